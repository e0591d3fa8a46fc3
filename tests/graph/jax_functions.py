"""Functions of JAX, built by our kernels: `python -m tests.graph.jax_functions`.

Each function is exported, imported and compared with what JAX computes: it is right, wrong, refused
with a reason of the closed list, or crashed. The counts are printed, and `--list wrong` prints the
functions. `--only REGEX` takes some; `--reference` compares the graph's reference only, which takes
seconds. It is an error if one is wrong, crashes, or is refused but not declared so. `--random 800`
tries so many operations with random dimension numbers beside; `--seed` repeats them.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tilewright.base.errors import UnsupportedError

from .jax_cases import Case, cases
from .jax_random import draws

VERDICTS = ("right", "wrong", "refused", "crashed")


def verdict(case: Case, *, reference: bool) -> tuple[str, str]:
    """How a case ends, and why."""
    from tilewright.building.build_model import build_graph
    from tilewright.codegen.detect import resolve
    from tilewright.importers.stablehlo import import_stablehlo

    try:
        compiled = jax.jit(case.function)
        graph = import_stablehlo(jax.export.export(compiled)(*case.arguments))
        given = [pairs(leaf) for leaf in jax.tree.leaves(case.arguments)]
        wanted = jax.tree.leaves(compiled(*case.arguments))
        if reference:
            results: Any = graph.reference(*given)
        else:
            # Starting processes takes longer than compiling these kernels.
            results = build_graph(graph, resolve("cpu -threads=1"), jobs=1)(*given)
        results = results if isinstance(results, tuple) else (results,)
        for name, value, expected in zip(graph.outputs, results, wanted, strict=True):
            problem = difference(np.asarray(value), pairs(expected), case.tolerance)
            if problem:
                return "wrong", f"{name}: {problem}"
    except UnsupportedError as error:
        reasons = error.data.get("reasons") or [("", "", "?", str(error))]
        return "refused", "; ".join(f"{reason} {detail}" for _, _, reason, detail in reasons)
    except Exception as error:  # noqa: BLE001
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return "crashed", f"{type(error).__name__} {where} {error}".replace("\n", " ")[:300]
    return "right", ""


def pairs(leaf: Any) -> Any:
    """An array as graphs take it: complex numbers as pairs of floats."""
    found = np.asarray(leaf)
    if found.dtype.kind != "c":
        return found
    return np.stack([found.real, found.imag], axis=-1)


def difference(found: Any, expected: Any, tolerance: float) -> str:
    """What tells two arrays apart; nothing if they agree: integers exactly."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind in "biu":
        wrong = int((found != expected).sum())
        return f"{wrong} of {expected.size} differ" if wrong else ""
    wide, right = found.astype(np.float64), expected.astype(np.float64)
    if np.allclose(wide, right, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"error {np.nanmax(np.abs(wide - right)):.3g}"


def tried_at_random(count: int, seed: int) -> Iterator[tuple[str, tuple[str, str]]]:
    """The verdicts, by the reference, on operations that JAX takes."""
    drawn = islice(draws(np.random.default_rng(seed)), count)
    for number, (name, (function, arguments)) in enumerate(drawn):
        try:
            jax.eval_shape(function, *arguments)
        except (TypeError, ValueError):
            continue
        case = Case(function, arguments, tolerance=1e-4)
        yield f"{name} {number} of seed {seed}", verdict(case, reference=True)


def _one(job: tuple[str, bool]) -> tuple[str, str, str]:
    """The verdict on a case, which does not travel: functions have no names of their own."""
    name, reference = job
    logging.getLogger("tilewright").setLevel(logging.ERROR)
    return name, *verdict(_known()[name], reference=reference)


_known = cache(cases)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--list", choices=VERDICTS, action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    known = {n: c for n, c in cases().items() if re.search(given.only, n)}
    verdicts: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}
    problems: list[str] = []
    with get_context("spawn").Pool(given.jobs) as pool:
        jobs = [(name, given.reference) for name in known]
        for name, kind, why in pool.imap_unordered(_one, jobs, chunksize=4):
            verdicts[name] = kind
            if kind in given.list:
                print(f"{kind}: {name}: {why}", flush=True)
            if kind == "refused":
                reasons.setdefault(why, []).append(name)
            if kind in ("wrong", "crashed") or (kind == "refused" and not known[name].refused):
                problems.append(f"{kind}: {name}: {why}")
    counts = Counter(verdicts.values())
    gradients = sum(n.startswith("grad_") and kind == "right" for n, kind in verdicts.items())
    print(", ".join(f"{kind} {counts[kind]:,}" for kind in VERDICTS), f"({gradients} gradients)")
    for why, names in sorted(reasons.items()):
        print(f"refused {len(names)}: {why}: {', '.join(names)}")
    for name, (kind, why) in tried_at_random(given.random, given.seed):
        if kind != "right":
            problems.append(f"{kind}: {name}: {why}")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
