"""PyTorch's own samples of its operators: `python -m tests.graph.torch_ops`.

The samples are those of `torch.testing`'s list of operators, in float32, int64 and bool: at most
`--samples` of each, spread over those that there are. Each is exported, imported and run, and its
results are compared with PyTorch's. It is right, wrong, refused with a reason of the closed list,
or crashed; `unexported` are those that PyTorch itself does not export. The reference of the graph
runs all of them, and kernels those of every `--compiled`th operator.

`torch_verdicts.txt` has the operators by verdict: that of their worst sample. It is an error if one
that was right no longer is; `--write` writes the file anew. `--only REGEX` takes some, and the file
keeps the others, `--list wrong` prints them with the reasons. PyTorch's list needs `pip install
expecttest`.
"""

from __future__ import annotations

import argparse
import logging
import random  # noqa: TID251  # some samples are of it
import re
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.base import dtypes

from .verdicts import VERDICTS, judged, record, recorded, regressions

DTYPES = ("float32", "int64", "bool")
SAMPLES = 3
RECORDED = Path(__file__).with_name("torch_verdicts.txt")
UNEXPORTED = "unexported"
RANKS = (*VERDICTS, UNEXPORTED)
_UNDEFINED = ("empty", "new_empty", "empty_like", "empty_permuted", "empty_strided",
              "new_empty_strided")  # fmt: skip
"""Operators whose elements may be anything."""
_ORDERED = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0}
"""Operators that return places, of equal elements any, and where their arguments have the axis."""


class Job(NamedTuple):
    """An operator with a dtype, as `add/float32`, and how its samples are tried."""

    name: str
    samples: int
    compiled: bool


class Outcome(NamedTuple):
    """How a sample ends, and why."""

    name: str
    sample: int
    verdict: str
    why: str


@cache
def operators() -> dict[str, Any]:
    """PyTorch's records of operators, by the name with a dtype."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, Any] = {}
    for op in op_db:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        for dtype in DTYPES:
            if op.supports_dtype(getattr(torch, dtype), "cpu"):
                found.setdefault(f"{name}/{dtype}", op)
    return found


def jobs(pattern: str = "", samples: int = SAMPLES, compiled: int = 0) -> list[Job]:
    """The operators whose names match, of which kernels run one in `compiled`, or none."""
    return [
        Job(name, samples, bool(compiled) and zlib.crc32(name.encode()) % compiled == 0)
        for name in operators()
        if re.search(pattern, name)
    ]


def outcomes(job: Job) -> Iterator[Outcome]:
    """How the samples of an operator end."""
    import torch

    op, dtype = operators()[job.name], job.name.rsplit("/", 1)[1]
    _seed()
    every = list(op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False))
    count = min(job.samples, len(every))
    for place in sorted({n * (len(every) - 1) // max(count - 1, 1) for n in range(count)}):
        yield Outcome(job.name, place, *verdict(op, every[place], compiled=job.compiled))


def verdict(op: Any, sample: Any, *, compiled: bool) -> tuple[str, str]:
    """How a sample ends, and why."""
    import torch

    import tilewright as tw
    from tilewright.building.build_model import build_graph
    from tilewright.codegen.detect import resolve

    leaves, tree = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    class Call(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *given: Any) -> Any:
            rest = iter(given)
            own = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            first, args, kwargs = torch.utils._pytree.tree_unflatten(own, tree)
            return op(first, *args, **kwargs)

    try:
        _seed()
        with torch.no_grad():
            expected = Call()(*(t.clone() for t in tensors))
            program = torch.export.export(Call().eval(), tuple(t.clone() for t in tensors))
    except Exception as error:  # noqa: BLE001  # of whatever kind, it is PyTorch's
        return UNEXPORTED, f"{type(error).__name__} {error}".replace("\n", " ")[:200]

    def compare() -> str:
        graph = tw.import_torch(program)
        given = [_array(t) for t in tensors]
        runs: list[Any] = [graph.reference]
        if compiled:
            runs.append(build_graph(graph, resolve("cpu -threads=1"), jobs=1))
        wanted = [
            leaf
            for leaf in torch.utils._pytree.tree_leaves(expected)
            if isinstance(leaf, torch.Tensor)
        ]
        for run in runs:
            found = run(*given)
            found = found if isinstance(found, tuple) else (found,)
            if len(found) != len(wanted):
                return f"{len(found)} results, expected {len(wanted)}"
            for n, (own, other) in enumerate(zip(found, wanted, strict=True)):
                pair = np.asarray(own), _array(other)
                if op.name in _ORDERED and other.dtype == torch.int64 and n == len(wanted) - 1:
                    pair = _elements(op, sample, pair[0]), _elements(op, sample, pair[1])
                problem = difference(*pair, exact=op.name not in _UNDEFINED)
                if problem:
                    return f"result {n}: {problem}"
        return ""

    return judged(compare)


def _elements(op: Any, sample: Any, places: Any) -> Any:
    """The elements of the input at places along an axis; the places if they are none."""
    import torch

    at, x = _ORDERED[op.name], sample.input
    given = sample.args[at : at + 1] or ([-1] if op.name.endswith(("sort", "k", "value")) else [])
    axis = sample.kwargs.get("dim", given[0] if given else None)
    if axis is None or not x.dim():
        return places
    index = torch.from_numpy(np.array(places))
    index = index if index.dim() == x.dim() else index.unsqueeze(axis)
    return _array(x.gather(axis, index))


def _array(tensor: Any) -> Any:
    import torch

    own = tensor.detach().resolve_conj().resolve_neg().contiguous()
    own = torch.view_as_real(own) if own.is_complex() else own
    if own.dtype == torch.bfloat16:  # which numpy has from another library
        return own.view(torch.int16).numpy().view(dtypes.to_numpy("bfloat16"))
    return own.numpy()


def _seed() -> None:
    import torch

    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)


def difference(found: Any, expected: Any, *, exact: bool) -> str:
    """What tells two arrays apart; nothing if they agree as far as float32 can."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if not exact:
        return ""
    if expected.dtype.kind in "biu":
        wrong = int((found != expected).sum())
        return f"{wrong} of {expected.size} differ" if wrong else ""
    wide, right = found.astype(np.float64), expected.astype(np.float64)
    rtol, atol = (1e-4, 1e-5) if expected.dtype.itemsize >= 4 else (2e-2, 1e-2)
    if np.allclose(wide, right, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        distance = np.abs(wide - right)
        return f"{int((~(distance <= atol)).sum())} of {right.size}, {np.nanmax(distance):.3g}"


def _prepare() -> None:
    """Of a process that tries operators."""
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    # PyTorch looks through all its operators with each export; here it remembers what it found.
    utils = torch._export.utils
    utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)
    known = utils._collect_all_valid_cia_ops_for_namespace
    utils._collect_all_valid_cia_ops_for_namespace = cache(known)


def _one(job: Job) -> list[Outcome]:
    return list(outcomes(job))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--compiled", type=int, default=8, help="0 for the reference only")
    parser.add_argument("--list", choices=RANKS, action="append", default=[])
    parser.add_argument("--reasons", type=int, default=40, help="how many reasons are printed")
    parser.add_argument("--write", action="store_true", help=f"write {RECORDED.name} anew")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    found: list[Outcome] = []
    with get_context("spawn").Pool(given.jobs, _prepare) as pool:
        tried = jobs(given.only, given.samples, given.compiled)
        for several in pool.imap_unordered(_one, tried, chunksize=4):
            found += several
            for one in several:
                if one.verdict in given.list:
                    print(f"{one.verdict}: {one.name} {one.sample}: {one.why}", flush=True)
    verdicts = worst(found)
    for title, counts in (
        ("samples", Counter(one.verdict for one in found)),
        ("operators", Counter(verdicts.values())),
    ):
        whole = sum(counts[kind] for kind in VERDICTS)
        share = f"{counts['right'] / max(whole, 1):.1%} right"
        print(f"{title}: {share}:", ", ".join(f"{kind} {counts[kind]:,}" for kind in RANKS))
    for reason, count in reasons(found).most_common(given.reasons):
        print(f"{count:6} {reason}")
    before = recorded(RECORDED) if RECORDED.exists() else {}
    lost = regressions(verdicts, before.get("right", set()))
    if given.write:
        kept = {n: kind for kind, names in before.items() for n in names} if given.only else {}
        record(kept | verdicts, RECORDED)
    for name in lost:
        print(f"was right: {name}")
    bad = {"wrong", "crashed"} & set(verdicts.values())
    return 1 if lost or bad else 0


def worst(found: list[Outcome]) -> dict[str, str]:
    """The verdict of each operator with a dtype: the worst of its samples that are exported."""
    order = [UNEXPORTED, *VERDICTS[:1], "refused", "wrong", "crashed"]
    verdicts: dict[str, str] = {}
    for one in sorted(found):
        known = verdicts.get(one.name, UNEXPORTED)
        verdicts[one.name] = max(known, one.verdict, key=order.index)
    return verdicts


def reasons(found: list[Outcome]) -> Counter[str]:
    """Why samples are refused, and how many: each reason once for a sample."""
    return Counter(
        reason for one in found if one.verdict == "refused" for reason in set(one.why.split("; "))
    )


if __name__ == "__main__":
    sys.exit(main())
