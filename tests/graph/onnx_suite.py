"""ONNX's own node cases, built by our kernels: `python -m tests.graph.onnx_suite`.

Each case is right, wrong, refused with a reason of the closed list, or crashed; the counts are
printed, and `--list wrong` prints the cases. `--only REGEX` takes some; `--reference` compares the
graph's reference only, which takes seconds.
"""

from __future__ import annotations

import argparse
import re
import sys
import traceback
import warnings
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.base.errors import UnsupportedError

KINDS = ("right", "wrong", "refused", "crashed")


class Case(NamedTuple):
    """A model, and inputs and expected outputs: arrays, or what is none."""

    name: str
    model: bytes
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


def cases(pattern: str = "") -> list[Case]:
    """The node cases whose names match."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return [
        Case(c.name, c.model.SerializeToString(), *map(_arrays, c.data_sets[0]))
        for c in found
        if re.search(pattern, c.name)
    ]


def _arrays(values: list[Any]) -> tuple[Any, ...]:
    """Tensors that ONNX writes out, as arrays."""
    from onnx import TensorProto
    from onnx.numpy_helper import to_array

    return tuple(to_array(v) if isinstance(v, TensorProto) else v for v in values)


def verdict(case: Case, *, reference: bool) -> tuple[str, str]:
    """How a case ends, and why."""

    import tilewright as tw
    from tilewright.importers.onnx import import_onnx

    try:
        inputs = tensors(case)
        graph = import_onnx(
            case.model,
            shapes={n: list(np.shape(a)) for n, a in inputs.items()},
            constants=constants(case, inputs),
        )
        given = [inputs[n] for n in graph.inputs]
        if reference:
            found: Any = graph.reference(*given)
        else:
            found = tw.build(graph, "cpu -threads=1")(*given)
        found = found if isinstance(found, tuple) else (found,)
        for name, value, expected in zip(graph.outputs, found, case.outputs, strict=True):
            problem = difference(value, np.asarray(expected))
            if problem:
                return "wrong", f"{name}: {problem}"
    except UnsupportedError as error:
        reasons = error.data.get("reasons") or [("", "", "?", str(error))]
        return "refused", "; ".join(f"{r[2]} {r[1]} {r[3]}" for r in reasons if len(r) > 3)
    except Exception as error:  # noqa: BLE001
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return "crashed", f"{type(error).__name__} {where} {error}".replace("\n", " ")[:300]
    return "right", ""


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


def _one(job: tuple[Case, bool]) -> tuple[str, str, str]:
    warnings.simplefilter("ignore")
    kind, why = verdict(job[0], reference=job[1])
    return job[0].name, kind, why


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--list", choices=KINDS, action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    jobs = [(case, given.reference) for case in cases(given.only)]
    counts = Counter[str]()
    with get_context("spawn").Pool(given.jobs) as pool:
        for name, kind, why in pool.imap_unordered(_one, jobs, chunksize=8):
            counts[kind] += 1
            if kind in given.list:
                print(f"{kind}: {name}: {why}", flush=True)
    print(", ".join(f"{kind} {counts[kind]:,}" for kind in KINDS))
    return 1 if counts["wrong"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
