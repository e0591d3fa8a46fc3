"""Linear algebra: operations of StableHLO, and what JAX calls of LAPACK on processors."""

from __future__ import annotations

from ....graph.builder import Builder
from ....graph.compose import linear
from ....graph.compose.basics import reshaped
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import Op, enumerated, hlo


@hlo("cholesky")
def cholesky(b: Builder, op: Op) -> Value:
    return linear.root(b, op[0], lower=bool(op.attribute("lower", False)))[0]


@hlo("triangular_solve")
def triangular_solve(b: Builder, op: Op) -> Value:
    return linear.solved_by_triangle(
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
    return linear.root(b, op[0], lower=_is(op, "uplo", "L"))


@hlo("custom_call @lapack_strsm_ffi", "custom_call @lapack_dtrsm_ffi")
def triangle_solved_by_lapack(b: Builder, op: Op) -> Value:
    return linear.solved_by_triangle(
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
    failed = linear.zero_pivot(b, lu, x.shape[:-2])
    return reshaped(b, lu, x.shape), reshaped(b, pivots, x.shape[:-1]), failed
