"""The kernel suite beside other libraries: `python -m benchmarks.kernels`.

Whole calls from Python are timed, warm, in interleaved rounds, each library in a process of its own
on the same processors. Ratios within one run are what counts; the column `kernel` is our call with
its arguments bound, and `of the roofline` how much of what the machine allowed in the same rounds.
Kernels without a record in the database are tuned first. `--suite pipelines` runs pipelines of
stencils, beside the programs as written (`plain`), what zero trials choose (`zero`) and Halide.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .rounds import ROOT, Timed, compare, peers, ratio
from .suite import PIPELINES, SUITE, Case

OURS = "tilewright"
LIMIT = "roofline"
PLAIN, ZERO = "plain", "zero"
"""This package without tuning: the program as written, and the schedule that zero trials choose."""
_OWN = (OURS, LIMIT, PLAIN, ZERO)


@dataclass(frozen=True)
class Suite:
    """Cases, and what runs them beside this package's tuned kernels.

    `peers` are other libraries, those of `on_demand` only if they are named. `untuned` are other
    schedules of this package. For each of `means` the table ends with the geometric mean of its
    times over ours.
    """

    cases: tuple[Case, ...]
    peers: tuple[str, ...]
    on_demand: tuple[str, ...] = ()
    untuned: tuple[str, ...] = ()
    means: tuple[str, ...] = ()


SUITES = {
    "kernels": Suite(
        SUITE,
        ("numpy", "torch", "onnxruntime", "openvino", "jax", "numba"),
        on_demand=("inductor", "tvm"),
    ),
    "pipelines": Suite(
        PIPELINES,
        ("numpy", "halide"),
        untuned=(PLAIN, ZERO),
        means=(PLAIN, ZERO, "halide"),
    ),
}
_NEEDS = {"onnxruntime": "onnxruntime, onnx", "openvino": "openvino, onnx", "inductor": "torch"}
_DATABASE = "TILEWRIGHT_BENCHMARK_DB"
_TVM_TRIALS = "TILEWRIGHT_BENCHMARK_TVM_TRIALS"
TRIALS = 64


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    suite, only = SUITES[options.suite], options.only
    wanted = [c for c in suite.cases if not only or any(text in c.name for text in only)]
    cases = [c.shrunk() for c in wanted] if options.quick else wanted
    if not cases:
        print(f"none of the {options.suite} has such a name; there are:")
        print(*(f"  {c.name}" for c in suite.cases), sep="\n")
        return 2
    pythons = interpreters(options.python)
    found = available(options.peers or suite.peers, (*suite.peers, *suite.on_demand), pythons)
    names = [OURS, LIMIT, *suite.untuned, *found]
    console = Console(width=None if sys.stdout.isatty() else 200)
    results = []
    for threads in options.threads:
        if options.trials:
            tune(cases, threads, options.trials, options.db)
        rows = list(measured(cases, names, pythons, threads, options))
        results += rows
        console.print(table(rows, names, threads, suite.means))
    report = {**circumstances(), "rounds": options.rounds, "results": results}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"raw samples: {options.json}")
    return 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="benchmarks.kernels", description=__doc__)
    found.add_argument("--only", action="append", metavar="TEXT", help="kernels with TEXT in them")
    found.add_argument("--suite", choices=SUITES, default="kernels")
    choices = "; ".join(f"{n}: {', '.join(s.peers + s.on_demand)}" for n, s in SUITES.items())
    found.add_argument("--peers", type=_words, metavar="NAME,...", help=f"of {choices}")
    found.add_argument("--threads", type=_numbers, default=[1, 2], metavar="1,2")
    found.add_argument("--rounds", type=int, default=9)
    found.add_argument("--trials", type=int, default=TRIALS, help="for untuned kernels; 0: none")
    found.add_argument("--db", default="benchmarks.db", help="the tuning database")
    found.add_argument("--json", type=Path, default=Path("build/benchmarks.json"))
    found.add_argument("--quick", action="store_true", help="small shapes: does it work?")
    found.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="[PEER=]PATH",
        help="the interpreter of a peer, or of all but this package",
    )
    return found


def interpreters(texts: Sequence[str]) -> dict[str, str]:
    """The Python of each peer."""
    parts = [t.partition("=") if "=" in t else ("", "", t) for t in texts]
    given = {name: path for name, _, path in parts}
    everyone = given.get("", sys.executable)
    names = [n for suite in SUITES.values() for n in (*suite.peers, *suite.on_demand)]
    found = {name: given.get(name, everyone) for name in names}
    return {**found, **dict.fromkeys(_OWN, sys.executable)}


def available(names: Sequence[str], known: Sequence[str], pythons: Mapping[str, str]) -> list[str]:
    """The peers whose libraries are installed."""
    found = []
    for name in names:
        if name not in known:
            raise SystemExit(f"no peer {name!r}; there are {', '.join(known)}")
        modules = _NEEDS.get(name, name)
        code = (
            "import sys; from importlib.util import find_spec; "
            f"sys.exit(not all(map(find_spec, '{modules}'.split(', '))))"
        )
        if subprocess.run([pythons[name], "-c", code], check=False).returncode == 0:
            found.append(name)
        else:
            print(f"{name} is left out: {modules} is not installed")
    return found


def tune(cases: Sequence[Case], threads: int, trials: int, location: str) -> None:
    """Tune the cases that have no record yet."""
    import tilewright as tw
    from tilewright.autotune.records import target_record, toolchain_record, workload_record
    from tilewright.codegen.detect import resolve

    from .peers.tilewright import program, target

    resolved = resolve(target(threads))
    with tw.TuningDatabase(location) as database:
        for case in cases:
            func = program(case)
            known = database.best(
                workload_record(func).id, target_record(resolved), toolchain_record(resolved)
            )
            if known is not None:
                continue
            print(f"tuning {case.name} for {threads} thread(s)", flush=True)
            try:
                tw.tune(func, resolved, database=database, trials=trials)
            except tw.TilewrightError as error:
                print(f"{case.name}: {error}", file=sys.stderr)


def measured(
    cases: Sequence[Case],
    names: Sequence[str],
    pythons: Mapping[str, str],
    threads: int,
    options: argparse.Namespace,
) -> Iterator[dict[str, Any]]:
    """A row for each case: what is in the JSON file."""
    environment = {
        **os.environ,
        _DATABASE: str(Path(options.db).resolve()),
        _TVM_TRIALS: str(options.trials or TRIALS),
    }
    _create(options.db)
    with peers(names, threads, pythons, environment) as workers:
        for case in cases:
            print(f"timing {case.name} on {threads} thread(s)", flush=True)
            timed = compare(case, workers, options.rounds)
            for t in timed:
                if t.failed is not None:
                    print(f"  {t.peer}: {t.failed.splitlines()[0]}", file=sys.stderr)
            yield row(case, threads, timed)


def row(case: Case, threads: int, timed: Sequence[Timed]) -> dict[str, Any]:
    """The figures of a case; `speed` is ours over that of each peer, with its spread.

    A peer whose result is wrong is never the best.
    """
    ours = timed[0]
    speeds = {
        t.peer: ratio(t.samples, ours.samples) for t in timed[1:] if t.samples and ours.samples
    }
    others = [t for t in timed if t.peer not in _OWN]
    times = {t.peer: t.seconds for t in others if t.seconds is not None and _right(t.error)}
    return {
        "case": case.name,
        "threads": threads,
        "flops": case.flops,
        "bytes": case.bytes,
        "rate": None if ours.seconds is None else case.rate(ours.seconds),
        "best_peer": min(times, key=lambda name: times[name]) if times else None,
        "speed": {name: {"ratio": r, "spread": s} for name, (r, s) in speeds.items()},
        "peers": {
            t.peer: {**asdict(t), "seconds": t.seconds, "kernel_seconds": t.kernel_seconds}
            for t in timed
        },
    }


def table(
    rows: Sequence[dict[str, Any]], names: Sequence[str], threads: int, means: Sequence[str] = ()
) -> Table:
    """The rows for people: milliseconds, and our speed over that of the best peer.

    The last lines are the geometric means of our speed over that of each of `means`.
    """
    title = f"{threads} thread{'s' if threads > 1 else ''}, ms per call from Python, medians"
    found = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("kernel")
    others = [name for name in names[1:] if name != LIMIT]
    for name in (OURS, "kernel only", "rate", "of the best", "of the roofline"):
        found.add_column(name, justify="right", no_wrap=True)
    for name in others:
        found.add_column(name, justify="right", no_wrap=True)
    for r in rows:
        ours, best = r["peers"][OURS], r["best_peer"]
        found.add_row(
            r["case"],
            _cell(ours),
            _milliseconds(ours["kernel_seconds"]),
            r["rate"] or "",
            _speed(r["speed"].get(best), "{0:.2f}x ±{1:.2f}"),
            _speed(r["speed"].get(LIMIT), "{0:.0%} ±{1:.0%}"),
            *(
                f"[bold]{_cell(r['peers'][n])}[/]" if n == best else _cell(r["peers"][n])
                for n in others
            ),
        )
    found.add_section()
    best = [r["speed"][r["best_peer"]]["ratio"] for r in rows if r["best_peer"] in r["speed"]]
    if best:
        mean = f"{statistics.geometric_mean(best):.2f}x"
        found.add_row(f"geometric mean of {len(best)}", *[""] * 3, mean, *[""] * (1 + len(others)))
    for name in means:
        speeds = [r["speed"][name]["ratio"] for r in rows if name in r["speed"]]
        if speeds:
            cells = (
                f"{statistics.geometric_mean(speeds):.2f}x" if n == name else "" for n in others
            )
            label = f"geometric mean of {len(speeds)}: {name} / {OURS}"
            found.add_row(label, *[""] * 5, *cells)
    return found


def circumstances(target: str = "cpu") -> dict[str, Any]:
    """The machine and the versions that the figures depend on."""
    from tilewright.autotune.records import environment_record, toolchain_record
    from tilewright.codegen.detect import resolve

    here = resolve(target)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "machine": dict(environment_record(here).facts),
        "target": str(here),
        "toolchain": dict(toolchain_record(here).versions),
        "python": platform.python_version(),
        "commit": commit.stdout.strip() or None,
    }


def _create(location: str) -> None:
    import tilewright as tw

    tw.TuningDatabase(location).close()


def _cell(timed: Mapping[str, Any]) -> str:
    if timed["failed"] is not None:
        return "failed"
    note = f" ({timed['note']})" if timed["note"] else ""
    return _milliseconds(timed["seconds"]) + ("" if _right(timed["error"]) else " WRONG") + note


def _right(error: float | None) -> bool:
    """Whether a result is close enough to numpy's; an unknown error is no reason to doubt it."""
    return error is None or error < 1e-3


def _speed(found: Mapping[str, float] | None, text: str) -> str:
    return "" if found is None else text.format(found["ratio"], found["spread"])


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
