"""Linear algebra: factors, solutions, determinants.

The numbers of failures that the operators return are those of LAPACK; a call raises for one only
where PyTorch checks them, else results are infinite or NaN.
"""

from __future__ import annotations

from ....graph.builder import Builder
from ....graph.compose import linear
from ....graph.compose.basics import reshaped
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..assertions import demand_success
from ..table import aten


@aten("linalg_cholesky_ex")
def cholesky_ex(
    b: Builder, _out: TensorType, x: Value, *, upper: bool = False, check_errors: bool = False
) -> tuple[Value, ...]:
    root, failed = linear.root(b, x, lower=not upper)
    if check_errors:
        demand_success(b, "linalg.cholesky_ex", failed)
    return root, failed


@aten("cholesky")
def cholesky(b: Builder, _out: TensorType, x: Value, upper: bool = False) -> Value:
    root, failed = linear.root(b, x, lower=not upper)
    demand_success(b, "cholesky", failed)
    return root


class _Factors:
    """The factors of square matrices."""

    def __init__(self, b: Builder, x: Value) -> None:
        if x.shape[-1] != x.shape[-2]:
            raise Unsupported(Reason.ATTRIBUTE, f"{x.type} is not square")
        self.b, self.lead = b, x.shape[:-2]
        self.lu, self.pivots = b.add_all("lu", linear.batched(b, x))

    def whole(self, x: Value) -> Value:
        """(batch, ...) as PyTorch has it."""
        return reshaped(self.b, x, (*self.lead, *x.shape[1:]))

    @property
    def shown(self) -> tuple[Value, Value]:
        return self.whole(self.lu), self.whole(self.pivots)

    def failures(self, function: str, *, check: bool) -> Value:
        """The numbers of failures, which have to be 0 if a function checks them."""
        failed = linear.zero_pivot(self.b, self.lu, self.lead)
        if check:
            demand_success(self.b, function, failed)
        return failed

    def solved(self, y: Value) -> Value:
        return linear.factors_solved(self.b, self.lu, self.pivots, y)


@aten("linalg_lu_factor_ex")
def lu_factor(
    b: Builder, _out: TensorType, x: Value, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Value, ...]:
    if not pivot:
        raise Unsupported(Reason.ATTRIBUTE, "pivot=False")
    factors = _Factors(b, x)
    return *factors.shown, factors.failures("torch.linalg.lu_factor_ex", check=check_errors)


@aten("linalg_inv_ex")
def inverse(
    b: Builder, _out: TensorType, x: Value, *, check_errors: bool = False
) -> tuple[Value, ...]:
    factors = _Factors(b, x)
    found = factors.whole(factors.solved(linear.identity(b, factors.lu)))
    return found, factors.failures("linalg.inv_ex", check=check_errors)


@aten("_linalg_det")
def determinant(
    b: Builder, _out: TensorType, x: Value, *, transposed: bool = False
) -> tuple[Value, ...]:
    factors = _Factors(b, linear.turned(b, x) if transposed else x)
    found = linear.determinant(b, factors.lu, factors.pivots)
    return (factors.whole(found), *factors.shown)


@aten("_linalg_slogdet")
def logarithm_of_determinant(
    b: Builder, _out: TensorType, x: Value, *, transposed: bool = False
) -> tuple[Value, ...]:
    factors = _Factors(b, linear.turned(b, x) if transposed else x)
    own = linear.diagonal(b, factors.lu)
    signs = b.add("prod", b.add("sign", own), axes=(1,))
    signs = b.add("multiply", signs, linear.sign_of_order(b, factors.pivots, own.dtype))
    size = b.add("sum", b.add("log", b.add("abs", own)), axes=(1,))
    return (factors.whole(signs), factors.whole(size), *factors.shown)


@aten("_linalg_solve_ex")
def solve(
    b: Builder,
    out: TensorType,
    x: Value,
    y: Value,
    *,
    left: bool = True,
    check_errors: bool = False,
) -> tuple[Value, ...]:
    """Of a vector, or vectors, where `y` has a dimension less; `left=False` is `z @ x = y`."""
    column = y.type.rank == 1 or y.shape == x.shape[:-1]
    given = reshaped(b, y, (*y.shape, 1)) if column else y
    factors = _Factors(b, x)
    found = _by_factors(b, *factors.shown, given, left=left or column)
    found = reshaped(b, found, out.shape)
    failed = factors.failures("torch.linalg.solve_ex", check=check_errors)
    return found, *factors.shown, failed


def _by_factors(
    b: Builder, lu: Value, pivots: Value, y: Value, *, left: bool, adjoint: bool = False
) -> Value:
    """The x of `a @ x = y`, or of `x @ a = y`, given the factors of `a`; or of its transpose."""
    column = reshaped(b, pivots, (*pivots.shape, 1))
    lead, (own, places, given) = linear.alike(b, lu, column, y if left else linear.turned(b, y))
    places = reshaped(b, places, places.shape[:2])
    found = linear.factors_solved(b, own, places, given, transposed=left == adjoint)
    found = reshaped(b, found, (*lead, *found.shape[1:]))
    return found if left else linear.turned(b, found)


@aten("linalg_lu_solve")
def solve_by_factors(
    b: Builder,
    _out: TensorType,
    lu: Value,
    pivots: Value,
    y: Value,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> Value:
    return _by_factors(b, lu, pivots, y, left=left, adjoint=adjoint)


@aten("linalg_solve_triangular")
def solve_triangular(
    b: Builder,
    _out: TensorType,
    x: Value,
    y: Value,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Value:
    return linear.solved_by_triangle(b, x, y, left=left, lower=not upper, unit=unitriangular)


def _by_root(b: Builder, root: Value, y: Value, *, upper: bool) -> Value:
    """The x of `a @ x = y` (batch, n, m), given the root of `a`."""
    own = linear.triangle_solved(b, root, y, lower=not upper, transposed=upper)
    return linear.triangle_solved(b, root, own, lower=not upper, transposed=not upper)


@aten("cholesky_solve")
def solve_by_root(b: Builder, out: TensorType, y: Value, root: Value, upper: bool = False) -> Value:
    _, (own, given) = linear.alike(b, root, y)
    return reshaped(b, _by_root(b, own, given, upper=upper), out.shape)


@aten("cholesky_inverse")
def inverse_by_root(b: Builder, _out: TensorType, root: Value, upper: bool = False) -> Value:
    own = linear.batched(b, root)
    failed = linear.zero_pivot(b, own, root.shape[:-2])
    demand_success(b, "cholesky_inverse", failed)
    return reshaped(b, _by_root(b, own, linear.identity(b, own), upper=upper), root.shape)
