"""GPU kernels beside PyTorch: `python -m benchmarks.cuda`.

A row tunes a kernel, checks it on fresh random data against float64, and times it interleaved with
what zero trials choose, torch and torch.compile on the same arrays, and a copy and an FMA kernel,
which say what the device allows. It is a line of JSON as soon as it is measured; `--resume` goes on
with the rows that have none. Exit status: 0 if all rows are measured, 1 if one of them failed, 3 if
some are left.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright.autotune.config import TuneConfig
from tilewright.base.errors import DeviceError
from tilewright.codegen.detect import resolve
from tilewright.runtime.cuda_driver import driver

from .cuda_limits import limits
from .cuda_row import OURS, PEERS, ZERO, Bench, find_torch, measured
from .kernels import circumstances
from .peers.tilewright import program
from .suite import Case

TRIALS = 64
_MARGIN = 1.2
"""How many times as long as the longest row so far the next one may take."""


def _rows(op: str, name: str, n: int, m: int, dtype: str = "float32", **more: Any) -> Case:
    label = f"{name} {_short(n)}x{_short(m)}" + ("" if dtype == "float32" else f" {dtype}")
    return Case(label, op, {"n": n, "m": m, "dtype": dtype, **more}, {"n": 8, "m": 40})


def _matmul(name: str, n: int, m: int, k: int) -> Case:
    return Case(f"matmul {name}", "matmul", {"n": n, "m": m, "k": k}, {"n": 24, "m": 17, "k": 19})


def _short(n: int) -> str:
    return f"{n >> 10}K" if n % 1024 == 0 else str(n)


_M = 1 << 20
CASES: tuple[Case, ...] = (
    Case("relu(a + b) 64M", "add_relu", {"n": 64 * _M}, {"n": 4000}),
    Case(
        "relu(a + b) 128M bfloat16",
        "add_relu",
        {"n": 128 * _M, "dtype": "bfloat16"},
        {"n": 4000},
    ),
    _rows("sum", "sum", 64 << 10, 1 << 10, axis=1),
    _rows("sum", "sum", 4 << 10, 16 << 10, axis=1),
    _rows("sum", "sum", 256, 256 << 10, axis=1),
    _rows("sum", "sum", 32 << 10, 4 << 10, "bfloat16", axis=1),
    _rows("transpose", "transposition", 8 << 10, 8 << 10),
    _rows("transpose", "transposition", 8 << 10, 16 << 10, "bfloat16"),
    _rows("softmax", "softmax", 64 << 10, 1 << 10),
    _rows("softmax", "softmax", 256, 256 << 10),
    _rows("softmax", "softmax", 32 << 10, 4 << 10, "bfloat16"),
    _rows("layer_norm", "layer_norm", 64 << 10, 1 << 10),
    _rows("layer_norm", "layer_norm", 256, 256 << 10),
    _rows("layer_norm", "layer_norm", 8 << 10, 16 << 10, "bfloat16"),
    _matmul("2048^3", 2048, 2048, 2048),
    _matmul("4096^3", 4096, 4096, 4096),
    _matmul("4095x4097x4093", 4095, 4097, 4093),
)
"""Arrays of 256 MB and more where memory limits: more than the second-level cache holds."""
COLUMNS = (
    *("row", OURS, "rate", "of copy", "of fma", *PEERS, "of the best", "zero", "trials/s"),
    "",
)


def main(arguments: Sequence[str] | None = None, config: TuneConfig | None = None) -> int:
    options = parser().parse_args(arguments)
    wanted = [c for c in CASES if not options.only or any(t in c.name for t in options.only)]
    cases = [c.shrunk() for c in wanted] if options.quick else wanted
    if not cases:
        print("no row has such a name; there are:", *(f"  {c.name}" for c in CASES), sep="\n")
        return 2
    if options.pack is not None:
        return pack(cases, options)
    if options.json.exists() and not options.resume:
        raise SystemExit(f"{options.json} is there: --resume goes on with it, --json names another")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    rows = {line["row"]: line for line in lines(options.json) if "row" in line}
    interrupted = False
    with tw.TuningDatabase(options.db) as database:
        try:
            bench = opened(options, database, config)
        except tw.TargetError as error:
            raise SystemExit(str(error)) from error
        with options.json.open("a") as file:
            torch = getattr(bench.torch, "__version__", bench.torch)
            _write(file, {"run": circumstances(bench.target), "torch": torch})
            try:
                fill(rows, cases, partial(_write, file), bench, options.seconds)
            except KeyboardInterrupt:
                interrupted = True
    Console(width=None if sys.stdout.isatty() else 180).print(table([*rows.values()]))
    if interrupted or any(c.name not in rows for c in cases):
        print("rows are left: the same command with --resume goes on")
        return 130 if interrupted else 3
    return int(any(rows[c.name]["error"] for c in cases))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="benchmarks.cuda", description=__doc__)
    found.add_argument("--only", action="append", metavar="TEXT", help="rows with TEXT in them")
    found.add_argument("--seconds", type=float, help="begin no row that would end after so long")
    found.add_argument("--resume", action="store_true", help="go on with the file of --json")
    found.add_argument("--rounds", type=int, default=15)
    found.add_argument("--trials", type=int, default=TRIALS, help="for each row; 0: none")
    found.add_argument("--db", default="benchmarks-cuda.db", help="the tuning database")
    found.add_argument("--json", type=Path, default=Path("build/cuda.jsonl"), help="a line a row")
    found.add_argument("--quick", action="store_true", help="small shapes: does it work?")
    found.add_argument("--target", default="cuda")
    found.add_argument(
        "--pack",
        type=Path,
        metavar="FOLDER",
        help="measure nothing: compile the candidates of all rows into FOLDER for --target",
    )
    return found


def pack(cases: Sequence[Case], options: argparse.Namespace) -> int:
    """A pack of each row, for `python -m tilewright.runtime.measure`. Those that are there stay."""
    from tilewright.autotune.measure.pack import write_pack

    options.pack.mkdir(parents=True, exist_ok=True)
    failed = False
    for case in cases:
        folder = options.pack / re.sub(r"[^a-z0-9]+", "-", case.name.lower()).strip("-")
        if folder.exists():
            continue
        try:
            packed = write_pack(program(case), options.target, folder, trials=options.trials)
            print(f"{folder}: {packed.built} of {len(packed.pack.candidates)} compiled", flush=True)
        except tw.TilewrightError as error:
            failed = True
            print(f"{case.name}: {error}", file=sys.stderr)
    return int(failed)


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of rows. One that was being written at the end is removed."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    try:
        found = [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        raise SystemExit(f"{path} has no rows of this benchmark: {error}") from error
    os.truncate(path, len(whole))
    return found


def opened(
    options: argparse.Namespace, database: tw.TuningDatabase, config: TuneConfig | None
) -> Bench:
    """What rows are measured with, on the device that is here. Raises `TargetError`."""
    target = str(resolve(options.target))
    sms = driver().device(driver().current()).facts.sms
    return Bench(
        target,
        database,
        limits(target, sms, small=options.quick),
        find_torch(),
        options.trials,
        options.rounds,
        options.resume,
        config,
    )


def fill(
    rows: dict[str, Any],
    cases: Sequence[Case],
    write: Callable[[Mapping[str, Any]], None],
    bench: Bench,
    seconds: float | None,
) -> None:
    """Measure the cases that have no row, as long as there is time."""
    began, longest = monotonic(), 0.0
    for number, case in enumerate(cases, 1):
        if case.name in rows:
            continue
        start = monotonic()
        if seconds is not None and start - began + _MARGIN * longest > seconds:
            return
        print(f"{number}/{len(cases)}: {case.name}", flush=True)
        row, lost = {"row": case.name, "error": None}, False
        try:
            for part in measured(case, bench):
                row |= part
        except Exception as error:  # noqa: BLE001  a row that fails must not end the others
            row["error"] = f"{type(error).__name__}: {error}"
            lost = isinstance(error, DeviceError) and error.sticky
        took = monotonic() - start
        longest = max(longest, took)
        rows[case.name] = row | {"took": took}
        write(rows[case.name])
        named = zip(COLUMNS[1:], cells(rows[case.name])[1:], strict=True)
        print(
            "  " + ", ".join(f"{name} {cell}".strip() for name, cell in named if cell), flush=True
        )
        if lost:
            print("the device has failed for this process", file=sys.stderr)
            return


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows for people."""
    found = Table(title="milliseconds a call, medians", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in COLUMNS:
        numbers = name not in (COLUMNS[0], COLUMNS[-1])
        found.add_column(name, justify="right" if numbers else "left", no_wrap=name != COLUMNS[-1])
    for row in rows:
        found.add_row(*cells(row))
    return found


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row of the table. `of the best` is our speed over that of the best peer, `zero` ours
    without trials over ours with them; the last cell is an error, or why a peer is missing."""
    seconds, shares, speed = (row.get(key, {}) for key in ("seconds", "shares", "speed"))
    best, tuning = speed.get(row.get("best_peer")), row.get("tuning")
    notes = [row["error"] or "", *dict.fromkeys(row.get("missing", {}).values())]

    def milliseconds(name: str) -> str:
        return f"{seconds[name] * 1e3:.3f}" if name in seconds else ""

    def share(name: str) -> str:
        return f"{shares[name]:.0%}" if name in shares else ""

    return [
        row["row"],
        milliseconds(OURS),
        row.get("rate", ""),
        share("copy"),
        share("fma"),
        *map(milliseconds, PEERS),
        "" if best is None else f"{best['ratio']:.2f}x ±{best['spread']:.2f}",
        f"{1 / speed[ZERO]['ratio']:.0%}" if ZERO in speed else "",
        "" if tuning is None else f"{tuning['trials_per_second']:.1f}",
        "; ".join(filter(None, notes)),
    ]


def _write(file: IO[str], line: Mapping[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()
    os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main())
