"""Linear algebra: operations of StableHLO, and what JAX calls of LAPACK on processors."""

from __future__ import annotations

from ....graph.builder import Builder
from ....graph.compose import linear
from ....graph.compose.basics import reshaped
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import Op, enumerated, hlo


def _root(b: Builder, x: Value, *, lower: bool) -> tuple[Value, Value]:
    """The root of matrices (..., n, n), and the row from 1 on at which there is none, or 0."""
    root = b.add("cholesky", linear.batched(b, x if lower else linear.turned(b, x)))
    failed = linear.first_failure(b, b.add("is_nan", linear.diagonal(b, root)), x.shape[:-2])
    found = reshaped(b, root, x.shape)
    return found if lower else linear.turned(b, found), failed


def _solved(
    b: Builder, a: Value, y: Value, *, left: bool, lower: bool, transposed: bool, unit: bool
) -> Value:
    """The x of `a @ x = y`, or of `x @ a = y`, of a triangle."""
    own = linear.batched(b, y if left else linear.turned(b, y))
    found = linear.triangle_solved(
        b, linear.batched(b, a), own, lower=lower, transposed=transposed == left, unit=unit
    )
    found = reshaped(b, found, (*y.shape[:-2], *found.shape[1:]))
    return found if left else linear.turned(b, found)


@hlo("cholesky")
def cholesky(b: Builder, op: Op) -> Value:
    return _root(b, op[0], lower=bool(op.attribute("lower", False)))[0]


@hlo("triangular_solve")
def triangular_solve(b: Builder, op: Op) -> Value:
    return _solved(
        b,
        *op.operands,
        left=op.attribute("left_side"),
        lower=op.attribute("lower"),
        transposed=enumerated(op.attribute("transpose_a")) != "NO_TRANSPOSE",
        unit=op.attribute("unit_diagonal"),
    )


def _is(op: Op, option: str, letter: str) -> bool:
    """Whether an option of LAPACK is that letter."""
    return chr(op.attribute("mhlo.backend_config")[option]) == letter


@hlo("custom_call @lapack_spotrf_ffi", "custom_call @lapack_dpotrf_ffi")
def root_by_lapack(b: Builder, op: Op) -> tuple[Value, Value]:
    return _root(b, op[0], lower=_is(op, "uplo", "L"))


@hlo("custom_call @lapack_strsm_ffi", "custom_call @lapack_dtrsm_ffi")
def triangle_solved_by_lapack(b: Builder, op: Op) -> Value:
    return _solved(
        b,
        *op.operands,
        left=_is(op, "side", "L"),
        lower=_is(op, "uplo", "L"),
        transposed=not _is(op, "trans_x", "N"),
        unit=_is(op, "diag", "U"),
    )


@hlo("custom_call @lapack_sgetrf_ffi", "custom_call @lapack_dgetrf_ffi")
def factors_by_lapack(b: Builder, op: Op) -> tuple[Value, ...]:
    x = op[0]
    if x.shape[-1] != x.shape[-2]:
        raise Unsupported(Reason.ATTRIBUTE, f"{x.type} is not square")
    lu, pivots = b.add_all("lu", linear.batched(b, x))
    singular = b.add("equal", linear.diagonal(b, lu), b.constant(0, x.dtype))
    failed = linear.first_failure(b, singular, x.shape[:-2])
    return reshaped(b, lu, x.shape), reshaped(b, pivots, x.shape[:-1]), failed
