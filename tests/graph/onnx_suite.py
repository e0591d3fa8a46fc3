"""ONNX's own cases, built by our kernels: `python -m tests.graph.onnx_suite`.

These are the cases of its operators (`--kind node`), and small models. Each is right, wrong,
refused with a reason of the closed list, or crashed; the counts are printed, and `--list wrong`
prints the cases. `--only REGEX` takes some; `--reference` compares the graph's reference only,
which takes seconds. With `--provider NAME`, repeatable, nodes without a translation are
kept, and run by these.

`onnx_verdicts.txt` has the names of the cases that are right and of those that are refused. It is
an error if one that was right no longer is; `--write` writes the file anew, after a run of all.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.base.errors import UnsupportedError

from .verdicts import VERDICTS, judged, record, recorded, regressions

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
RECORDED = Path(__file__).with_name("onnx_verdicts.txt")
PREFIX = "test_"


class Case(NamedTuple):
    """A model, and inputs and expected outputs: arrays, or what is none."""

    name: str
    model: bytes
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


def cases(pattern: str = "", kinds: Sequence[str] = KINDS) -> list[Case]:
    """The cases whose names match."""
    from onnx.backend.test.case.node import collect_testcases
    from onnx.backend.test.loader import load_model_tests

    found: list[Case] = []
    if "node" in kinds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = collect_testcases(None)
        found += [
            Case(c.name, c.model.SerializeToString(), *map(_arrays, c.data_sets[0]))
            for c in nodes
            if re.search(pattern, c.name)
        ]
    for kind in kinds:
        if kind == "node":
            continue
        models = sorted(load_model_tests(kind=kind), key=lambda c: str(c.name))
        found += [_stored(Path(c.model_dir)) for c in models if re.search(pattern, c.name)]
    return found


def _stored(folder: Path) -> Case:
    """A model and its first data set, in a folder."""
    import onnx

    model = onnx.load(folder / "model.onnx")
    held = {i.name for i in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in held]

    def read(kind: str, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            _read(folder / "test_data_set_0" / f"{kind}_{n}.pb", value.type)
            for n, value in enumerate(values)
        )

    content = model.SerializeToString()
    return Case(folder.name, content, read("input", inputs), read("output", model.graph.output))


def _read(path: Path, type: Any) -> Any:
    """The array of a file, or the name of another type."""
    from onnx import TensorProto
    from onnx.numpy_helper import to_array

    if type.WhichOneof("value") != "tensor_type":
        return type.WhichOneof("value")
    return to_array(TensorProto.FromString(path.read_bytes()))


def _arrays(values: list[Any]) -> tuple[Any, ...]:
    """Tensors that ONNX writes out, as arrays."""
    from onnx import TensorProto
    from onnx.numpy_helper import to_array

    return tuple(to_array(v) if isinstance(v, TensorProto) else v for v in values)


def verdict(case: Case, *, reference: bool, providers: Sequence[str] = ()) -> tuple[str, str]:
    """How a case ends, and why. With providers, these run what has no kernel."""
    from tilewright.building.build_partition import build_partition, divided
    from tilewright.building.providers import Tilewright
    from tilewright.codegen.detect import resolve
    from tilewright.importers.onnx import import_onnx

    def compare() -> str:
        inputs = tensors(case)
        graph = import_onnx(
            case.model,
            shapes={n: list(np.shape(a)) for n, a in inputs.items()},
            constants=constants(case, inputs),
            foreign=bool(providers),
        )
        given = [inputs[n] for n in graph.inputs]
        if reference:
            found: Any = graph.reference(*given)
        else:
            # Starting processes takes longer than compiling these kernels.
            own = Tilewright(jobs=1)
            parts = divided(graph, (own.name, *providers), own)
            found = build_partition(parts, resolve("cpu -threads=1"), own)(*given)
        found = found if isinstance(found, tuple) else (found,)
        for name, value, expected in zip(graph.outputs, found, case.outputs, strict=True):
            problem = difference(value, np.asarray(expected))
            if problem:
                return f"{name}: {problem}"
        return ""

    return judged(compare)


def tensors(case: Case) -> dict[str, Any]:
    """The inputs by name. Raises `UnsupportedError` where some are no tensors."""
    import onnx

    graph = onnx.load_model_from_string(case.model).graph
    held = {i.name for i in graph.initializer}
    names = [v.name for v in graph.input if v.name not in held]
    for array in (*case.inputs, *case.outputs):
        if not isinstance(array, np.ndarray | np.generic) or array.dtype.kind in "OUS":
            reasons = [(case.name, "input or output", "TYPE", type(array).__name__)]
            raise UnsupportedError("{0}: no tensor", case.name, reasons=reasons)
    return dict(zip(names, map(np.asarray, case.inputs), strict=False))


def constants(case: Case, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs that decide shapes: those a first import says data have to decide."""
    from tilewright.importers.onnx import import_onnx

    shapes = {n: list(np.shape(a)) for n, a in inputs.items()}
    try:
        import_onnx(case.model, shapes=shapes)
    except UnsupportedError as error:
        if any(r[2] == "DATA_DEPENDENT" for r in error.data.get("reasons", ())):
            first = next(iter(inputs), None)
            free = len(inputs) == 1
            rest = {n: a for n, a in inputs.items() if free or n != first or np.size(a) <= 1}
            whole = {n: a for n, a in rest.items() if a.dtype.kind in "iub" or np.size(a) <= 1}
            return whole or rest
    return {}


def difference(found: Any, expected: Any) -> str:
    """What tells two arrays apart; nothing if they agree as far as ONNX's own runner wants."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind in "biu":
        wrong = int((found != expected).sum())
        return f"{wrong} of {expected.size} differ" if wrong else ""
    wide, right = found.astype(np.float64), expected.astype(np.float64)
    narrow = expected.dtype.itemsize < 4
    if np.allclose(
        wide, right, rtol=2e-2 if narrow else 1e-3, atol=1e-2 if narrow else 1e-6, equal_nan=True
    ):
        return ""
    with np.errstate(all="ignore"):
        return f"error {np.nanmax(np.abs(wide - right)):.3g}"


def _one(job: tuple[Case, bool, Sequence[str]]) -> tuple[str, str, str]:
    warnings.simplefilter("ignore")
    logging.disable()
    kind, why = verdict(job[0], reference=job[1], providers=job[2])
    return job[0].name, kind, why


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of these only")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--provider", action="append", default=[], help="who runs the rest")
    parser.add_argument("--list", choices=VERDICTS, action="append", default=[])
    parser.add_argument("--write", action="store_true", help=f"write {RECORDED.name} anew")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.write and (given.only or given.kind or given.reference or given.provider):
        parser.error("--write is for a run of all cases")
    jobs = [
        (case, given.reference, given.provider) for case in cases(given.only, given.kind or KINDS)
    ]
    known = recorded(RECORDED, PREFIX)["right"]
    verdicts: dict[str, str] = {}
    with get_context("spawn").Pool(given.jobs) as pool:
        for name, kind, why in pool.imap_unordered(_one, jobs, chunksize=8):
            verdicts[name] = kind
            if kind in given.list:
                print(f"{kind}: {name}: {why}", flush=True)
    counts = Counter(verdicts.values())
    print(", ".join(f"{kind} {counts[kind]:,}" for kind in VERDICTS))
    if given.write:
        record(verdicts, RECORDED, PREFIX)
    lost = regressions(verdicts, known)
    for name in lost:
        print(f"was right: {name}")
    return 1 if lost or counts["wrong"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
