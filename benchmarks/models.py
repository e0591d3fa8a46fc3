"""Whole models beside onnxruntime: `python -m benchmarks.models FOLDER [NAMES] [--threads 2]`.

With `--peer openvino`, beside OpenVINO, in float32 as well; errors are those of onnxruntime still.

The models of `TABLE` are looked for below a folder of `.onnx` files, one folder for each package.
`--table FILE` is for any other folder: all its files are taken, and the table says what a file
needs. It is JSON, an object of patterns of file names, of which the first that fits serves:

    {"gpt2-*.onnx": {"shapes": [{"B": 1, "S": 16}], "kinds": {"input_ids": [0, 90]}}}

`shapes` are sets of values of open dims, or of whole shapes of inputs, `kinds` the ranges of inputs
and `constants` the values of those that decide shapes; a file without a row needs none of them.
`--light` takes the light models of the `onnx` package in addition, with weights from a seed.

Each model is built without a database or with that of `--db`, which nothing is added to, with an
empty cache and again with that cache, compared with the graph's reference in float64, and timed in
turns with onnxruntime on as many threads. Errors are the largest of several inputs: those of one
say little where few numbers are returned, or a sum is near a step of a quantised model. Ratios are
onnxruntime's time over ours: above 1 is faster. Every call of several threads begins when those of
other calls are idle: they spin for a while, on the processors that it needs, and loops whose teams
wait for a processor run on one thread for hundreds of calls. A model that fails is a line with its
error, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import tilewright as tw
from tilewright.base.durations import format_seconds
from tilewright.codegen.disk_cache import LOCATION
from tilewright.graph.groups import divide
from tilewright.graph.lower import lowered
from tilewright.runtime import time_interleaved
from tilewright.runtime.timer import wait_for_threads

from .light import filled
from .peers.tilewright import target
from .zero import geometric

Array = np.ndarray[Any, Any]
Shapes = dict[str, "int | list[int]"]
_INPUTS = 5
"""For how many inputs a model is compared with the reference."""


@dataclass(frozen=True)
class Model:
    """A file, the values of its open dims, each set a run of its own, and what its inputs hold.

    `kinds` are ranges, of integers without their end; other inputs hold normal floats.
    """

    file: str
    shapes: tuple[Shapes, ...] = ({},)
    constants: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, tuple[float, float]] = field(default_factory=dict)


def _each(names: Sequence[str], *values: Sequence[int]) -> tuple[Shapes, ...]:
    """Sets of values of these dims."""
    return tuple(dict(zip(names, each, strict=True)) for each in values)


_IMAGE = [f"p2o.DynamicDimension.{n}" for n in range(3)]
_STEPS = _each(["batch", "sequence"], [1, 576], [2, 576], [8, 576])
_AUDIO = {"input": (-0.5, 0.5)}
_SR = {"sr": 16000}

TABLE = (
    Model("magika/model.onnx", _each(["unk__214"], [1], [4], [16]), kinds={"bytes": (0, 257)}),
    Model(
        "silero-vad/silero_vad.onnx",
        tuple({"input": [b, 512], "state": [2, b, 128]} for b in (1, 2, 8)),
        _SR, _AUDIO,
    ),
    Model("silero-vad/silero_vad_16k_op15.onnx", _STEPS, _SR, _AUDIO),
    Model("silero-vad/silero_vad_op18_ifless.onnx", _STEPS, _SR, _AUDIO),
    Model("silero-vad/silero_vad_half.onnx", _STEPS, {}, _AUDIO),
    Model(
        "silero-vad/silero_vad_16k_sequence.onnx",
        _each(["sequence_length"], [1], [3], [16]), kinds=_AUDIO,
    ),
    Model("silero-vad/silero_vad_openvino_16k.onnx", kinds=_AUDIO),
    Model(
        "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx",
        _each(_IMAGE, [1, 320, 320], [1, 480, 640], [2, 160, 224]),
    ),
    Model(
        "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer.onnx",
        tuple({"x": [b, 3, 48, width]} for b, width in ((1, 320), (1, 160), (4, 320))),
    ),
    Model(
        "rapidocr-onnxruntime/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        tuple({"x": [b, 3, 48, 192]} for b in (1, 2, 6)),
    ),
    Model("basic-pitch/nmp.onnx", _each(["unk__749"], [1], [2], [4])),
    Model(
        "ddddocr/common.onnx",
        _each(["image_width"], [128], [96], [200]), kinds={"input1": (0, 1)},
    ),
    Model("ddddocr/common_det.onnx", kinds={"images": (0, 255)}),
    Model(
        "chython-rxnmap/rxnmap.onnx", _each(["seq_len"], [32], [17], [100]),
        kinds={"atoms": (1, 60), "neighbors": (0, 8), "distances": (0, 8), "roles": (0, 3)},
    ),
)  # fmt: skip


def read_table(table: Path, folder: Path) -> list[Model]:
    """The models below a folder, each with the first row of a table whose pattern fits its name."""
    rows: dict[str, dict[str, Any]] = json.loads(table.read_text())
    models: list[Model] = []
    for path in sorted(folder.rglob("*.onnx")):
        name = path.relative_to(folder).as_posix()
        row = next((row for pattern, row in rows.items() if fnmatch(name, pattern)), {})
        kinds = {n: (low, high) for n, (low, high) in row.get("kinds", {}).items()}
        models.append(Model(name, tuple(row.get("shapes", [{}])), row.get("constants", {}), kinds))
    return models


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    light = filled(options.folder / "light") if options.light else []
    models = [*TABLE, *(Model(f"light/{path.name}") for path in light)]
    if options.table is not None:
        models = read_table(options.table, options.folder)
    chosen = [m for m in models if not options.names or any(n in m.file for n in options.names)]
    if not chosen:
        print(f"no model is named {' '.join(options.names)}", file=sys.stderr)
        return 2
    rows: list[dict[str, Any]] = []
    for model in chosen:
        for shapes in model.shapes[: options.bindings]:
            row = judged(model, shapes, options)
            rows.append(row)
            print(line(row), flush=True)
            if options.out is not None:
                with options.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")
    ratios = [row["ratio"] for row in rows if "error" not in row]
    failed = [row for row in rows if "error" in row or not row["right"]]
    print(f"geometric mean {geometric(ratios):.3f} of {len(ratios)}, {len(failed)} failed")
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="benchmarks.models", description=__doc__)
    found.add_argument("folder", type=Path)
    found.add_argument("names", nargs="*", help="parts of file names; all without")
    found.add_argument("--table", type=Path, help="JSON: what the files of this folder need")
    found.add_argument("--light", action="store_true", help="the light models of onnx as well")
    found.add_argument("--threads", type=int, choices=(1, 2), default=1)
    found.add_argument("--peer", choices=("onnxruntime", "openvino"), default="onnxruntime")
    found.add_argument("--db", help="the records that kernels are built from; none without")
    found.add_argument("--rounds", type=int, default=15)
    found.add_argument("--bindings", type=int, help="so many sets of dims of each, the first ones")
    found.add_argument("--out", type=Path, help="a file that gets a line of JSON for each")
    return found


def judged(model: Model, shapes: Shapes, options: argparse.Namespace) -> dict[str, Any]:
    """What came of one model; `error` if it failed."""
    row: dict[str, Any] = {"model": model.file, "shapes": shapes, "threads": options.threads}
    try:
        row |= _measured(options.folder / model.file, model, shapes, options)
    except Exception as error:  # noqa: BLE001  # any failure is a line, and the others go on
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def _measured(
    path: Path, model: Model, shapes: Shapes, options: argparse.Namespace
) -> dict[str, Any]:
    graph = tw.import_onnx(path, shapes=shapes, constants=model.constants)
    groups = divide(graph.optimized())
    where = target(options.threads)
    with tempfile.TemporaryDirectory() as cache:
        before = os.environ.get(LOCATION)
        os.environ[LOCATION] = cache
        try:
            cold, built = _timed(lambda: tw.build(graph, where, database=options.db))
            warm, built = _timed(lambda: tw.build(graph, where, database=options.db))
        finally:
            os.environ.pop(LOCATION)
            if before is not None:
                os.environ[LOCATION] = before
    theirs = session(path, options.threads)
    named = {i.name for i in theirs.get_inputs()}
    known = {n: np.array(v, np.int64) for n, v in model.constants.items() if n in named}
    names = list(graph.outputs)

    def errors_of(feeds: dict[str, Array]) -> list[float]:
        exact = graph.reference(*feeds.values(), dtype="float64")
        wait_for_threads()
        ours = built(*feeds.values())
        results = ours if isinstance(ours, tuple) else (ours,)
        return [error(found, exact) for found in (results, theirs.run(names, {**feeds, **known}))]

    found = [errors_of(inputs(graph, model, seed)) for seed in range(_INPUTS)]
    errors = [max(own) for own in zip(*found, strict=True)]
    feeds = inputs(graph, model)
    fed = {**feeds, **known}
    peer: Callable[[], Any] = partial(theirs.run, names, fed)
    if options.peer == "openvino":
        peer = openvino(path, fed, options.threads)
    timings = time_interleaved(
        [lambda: built(*feeds.values()), peer],
        rounds=options.rounds,
        clock=clock(options.threads, options.peer),
        before_turn=wait_for_threads if options.threads > 1 else None,
    )
    medians = [t.median for t in timings]
    memory, profile = built.evidence.memory, built.profile(*feeds.values())
    return {
        "nodes": len(graph.nodes),
        "groups": len(groups),
        "kernels": len({lowered(g).name for g in groups}),
        "cold_seconds": cold,
        "warm_seconds": warm,
        "our_error": errors[0],
        "their_error": errors[1],
        "arena_bytes": memory.arena_bytes,
        "live_bytes": memory.live_bytes,
        "between_seconds": profile.between,
        "python_seconds": profile.python,
        "slowest": [profile.kernels[0].operators, profile.kernels[0].share],
        "right": errors[0] <= max(2 * errors[1], 1e-6),
        "our_seconds": medians[0],
        "their_seconds": medians[1],
        "our_spread": timings[0].spread,
        "their_spread": timings[1].spread,
        "ratio": medians[1] / medians[0],
    }


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = run()
    return time.perf_counter() - began, result


def clock(threads: int, peer: str = "onnxruntime") -> Callable[[], float]:
    """What calls on so many threads are timed by: one thread by the time of the processor that it
    gets, which other work does not lengthen. OpenVINO's is not the thread that calls it."""
    if threads > 1:
        return time.perf_counter
    return time.process_time if peer == "openvino" else time.thread_time


def openvino(model: Path, feeds: dict[str, Array], threads: int) -> Callable[[], Any]:
    """Calls of a model in OpenVINO, with inputs of these shapes."""
    import openvino

    core = openvino.Core()
    read = core.read_model(model)
    read.reshape({name: list(array.shape) for name, array in feeds.items()})
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(read, "CPU", settings).create_infer_request()
    return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)


def session(model: Path | bytes, threads: int) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def inputs(graph: tw.Graph, model: Model, seed: int = 0) -> dict[str, Array]:
    """Inputs from a seed, by the names of the graph's."""
    rng = np.random.default_rng(seed)

    def make(name: str, value: Any) -> Array:
        floats = value.dtype.startswith(("float", "bfloat"))
        if name not in model.kinds and not floats:
            raise ValueError(f"{model.file}: the integers {name} need a range")
        if name not in model.kinds:
            data: Array = rng.standard_normal(value.shape)
        else:
            low, high = model.kinds[name]
            draw: Any = rng.uniform if floats else rng.integers
            data = np.asarray(draw(low, high, value.shape))
        return data.astype(value.dtype)

    return {name: make(name, value) for name, value in graph.inputs.items()}


def error(found: Sequence[Any], exact: Sequence[Any]) -> float:
    """The largest difference, relative to the largest element of its output; infinite where one is
    no number and the other is, or where integers differ."""
    return max(map(_error, found, exact))


def _error(found: Any, exact: Any) -> float:
    if found.dtype.kind in "biu":
        return 0.0 if np.array_equal(found, exact) else float("inf")
    a, b = np.asarray(found, np.float64), np.asarray(exact, np.float64)
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(b)
    scale = np.abs(b[finite]).max(initial=0.0)
    return float(np.abs(a - b)[finite].max(initial=0.0) / (scale or 1.0))


def line(row: dict[str, Any]) -> str:
    """A row as a line of text."""
    where = ",".join(f"{name}={value}" for name, value in row["shapes"].items())
    name = f"{row['model']} {where}".strip()
    if "error" in row:
        return f"{name}: {row['error'].splitlines()[0]}"
    return "  ".join(_parts(name, row))


def _parts(name: str, row: dict[str, Any]) -> Iterator[str]:
    yield f"{name}:"
    yield f"{row['nodes']} nodes, {row['groups']} groups, {row['kernels']} kernels;"
    yield f"build {row['cold_seconds']:.1f} s, {row['warm_seconds']:.2f} s warm;"
    wrong = "" if row["right"] else " WRONG"
    yield f"error {row['our_error']:.1e} beside {row['their_error']:.1e}{wrong};"
    for who in ("our", "their"):
        spread = row[f"{who}_spread"]
        yield f"{row[f'{who}_seconds'] * 1e3:.3f} ms" + (f" ±{spread:.0%}" if spread else "")
    yield f"ratio {row['ratio']:.2f};"
    yield f"arena {row['arena_bytes'] / max(row['live_bytes'], 1):.2f} of what lives,"
    yield f"{format_seconds(row['between_seconds'])} between kernels,"
    yield f"{format_seconds(row['python_seconds'])} for Python,"
    yield "slowest {} {:.0%}".format(*row["slowest"])


if __name__ == "__main__":
    sys.exit(main())
