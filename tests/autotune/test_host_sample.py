"""Elements of programs on the host: they agree with the interpreter, and wrong ones are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.measure import host_sample
from tilewright.autotune.measure.host_sample import check_sample
from tilewright.autotune.measure.numeric_check import tolerance_of
from tilewright.base.errors import KernelError
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.visit import stored_buffers

from ..refusals import refused
from .checking import arguments
from .formulas import FORMULAS
from .kernels import centred_sums
from .test_default import CASES


def results(func: Func) -> tuple[list[Any], list[Any]]:
    """The arguments of a call, and its outputs."""
    given, after = arguments(func, 1), arguments(func, 1)
    interpret(func, *after)
    written = stored_buffers(func)
    return given, [a for p, a in zip(func.params, after, strict=True) if p in written]


def check(func: Func) -> None:
    given, outputs = results(func)
    tolerance = tolerance_of(func)
    assert check_sample(func, given, outputs, tolerance) is None
    names = [p.name for p in func.params if p in stored_buffers(func)]
    for n, output in enumerate(outputs):
        if output.size:
            wrong = [*outputs[:n], output + np.ones((), output.dtype), *outputs[n + 1 :]]
            with refused(KernelError, names[n]):
                check_sample(func, given, wrong, tolerance)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_operators(name: str, options: dict[str, Any]) -> None:
    check(getattr(ops, name)(**options))


@pytest.mark.part(7)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name: str) -> None:
    check(FORMULAS[name]())


def test_results_that_cancel_are_as_inexact_as_the_program() -> None:
    func = centred_sums()
    given, outputs = results(func)
    assert check_sample(func, given, outputs, 1e-9) is None
    outputs[0] = outputs[0] + np.float32(100 * np.abs(outputs[0]).max())
    with pytest.raises(KernelError):
        check_sample(func, given, outputs, 1e-9)


def test_what_is_beyond_the_budget_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    func = ops.matmul_func(16, 16, 64)
    given, outputs = results(func)
    for budget, reason in ((64 * 64, None), (64, None), (63, "more than")):
        monkeypatch.setattr(host_sample, "BUDGET", budget)
        found = check_sample(func, given, outputs, tolerance_of(func))
        assert found is None if reason is None else found is not None and reason in found


def test_why_a_program_is_not_sampled() -> None:
    func = parse("""
@tw.script
def scan(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.opaque(8, i)
            B[vi] = A[vi] + 1.0
""")
    found = check_sample(func, *results(func), tolerance_of(func))
    assert found == "the block B writes other elements than those of its iterations"


HALF = """
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range({loops}):
        {guard}with T.block("B"):
            {indent}vi = T.axis.spatial({domain}, i)
            {indent}B[vi] = A[vi] * 2.0
"""


@pytest.mark.parametrize(
    ("loops", "domain", "guard", "why"),
    [
        (32, 32, False, "writes a part of B"),
        (32, 64, False, "does not run all of its iterations"),
        (64, 64, True, "the block B is more than an assignment"),
    ],
)
def test_what_is_written_in_part_is_not_sampled(
    loops: int, domain: int, guard: bool, why: str
) -> None:
    """Elsewhere is what was there before, which a right program leaves alone."""
    text = HALF.format(
        loops=loops,
        domain=domain,
        guard="if i < 32:\n            " if guard else "",
        indent="    " if guard else "",
    )
    a, b = np.ones(64, np.float32), np.full(64, -7, np.float32)
    b[:32] = 2
    told = check_sample(parse(f"@tw.script{text}"), [a, b], [b], 1e-5)
    assert told is not None
    assert why in told


def test_infinity_is_an_error_unless_the_result_is_beyond_the_dtype() -> None:
    whole = HALF.format(loops=64, domain=64, guard="", indent="")
    func = parse(f"@tw.script{whole}")
    found = np.full(64, np.inf, np.float32)
    with refused(KernelError, "inf"):
        check_sample(func, [np.ones(64, np.float32), found], [found], 1e-5)
    large = np.full(64, 3e38, np.float32)
    assert check_sample(func, [large, found], [found], 1e-5) is None
