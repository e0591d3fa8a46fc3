"""What operators of PyTorch demand of data, and what its errors say where that does not hold."""

from __future__ import annotations

from ...graph.builder import Builder
from ...graph.ir import Value

CHECKS_OF_LINEAR_ALGEBRA = "aten._linalg_check_errors.default"
"""Demands that the numbers of failures of a factorization are 0."""

_FAILURES = {
    "inv": "The diagonal element {index} is zero, the inversion could not be completed because "
    "the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not "
    "positive-definite (the leading minor of order {index} is not positive-definite).",
    "solve": "The solver failed because the input matrix is singular.",
    "lu_factor": "U[{index},{index}] is zero and using it on lu_solve would result in a division "
    "by zero.",
}
"""By a part of a function's name, the first that is in it."""


def demand_success(b: Builder, function: str, failures: Value) -> None:
    """Have a model demand that a function of linear algebra fails nowhere.

    `failures` are those of a batch of matrices, or of a matrix if there are no dims.
    """
    text = next((t for name, t in _FAILURES.items() if name in function), "It failed at {index}.")
    batch = "(Batch element {place}): " if failures.shape else ""
    b.demand(failures, by=CHECKS_OF_LINEAR_ALGEBRA, broken=f"{function}: {batch}{text}")
