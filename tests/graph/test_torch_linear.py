"""Linear algebra of PyTorch: factors of matrices, and what is solved by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from .test_torch import Module, check, exported

pytestmark = pytest.mark.filterwarnings("ignore")
L = torch.linalg
ONE: Any = torch.eye(4, dtype=torch.float64)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda _a, s, _b: (L.cholesky(s), L.cholesky(s, upper=True)),
    "inverse": lambda a, _s, _b: L.inv(a),
    "solve": lambda a, _s, b: (L.solve(a, b), L.solve(a, b[..., 0]), L.solve(a, b[0, ..., 0])),
    "solve from the right": lambda a, _s, b: torch._linalg_solve_ex(a, b.mT, left=False)[:2],
    "solve by factors": lambda a, _s, b: tuple(
        L.lu_solve(*L.lu_factor(a), b if left else b.mT, left=left, adjoint=adjoint)
        for left in (True, False)
        for adjoint in (True, False)
    ),
    "determinants": lambda a, s, _b: (L.det(a), *L.slogdet(a), torch.logdet(s)),
    "factors": lambda a, _s, _b: tuple(L.lu_factor(a)),
    "upper triangle": lambda a, _s, b: L.solve_triangular(a.triu() + 3 * ONE, b, upper=True),
    "lower triangle": lambda a, _s, b: L.solve_triangular(
        a.tril() + ONE, b.mT, upper=False, left=False, unitriangular=True
    ),
    "by roots": lambda _a, s, b: (
        torch.cholesky_solve(b, L.cholesky(s)),
        torch.cholesky_inverse(L.cholesky(s, upper=True), upper=True),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_linear_algebra(name: str) -> None:
    a, b = torch.randn(2, 4, 4, dtype=torch.float64), torch.randn(2, 4, 3, dtype=torch.float64)
    compiled = name in ("solve", "cholesky", "solve by factors")
    check(Module(FUNCTIONS[name]), a, a @ a.mT + ONE, b, tolerance=1e-9, compiled=compiled)


def test_what_has_no_solution_is_no_number() -> None:
    """PyTorch raises where a number of LAPACK says that it failed, which is a result here too."""
    singular = torch.ones(3, 3)
    graph = exported(Module(L.inv), singular)
    assert not np.isfinite(graph.reference(singular.numpy())[0]).any()
    check(Module(lambda x: L.inv_ex(x).info), singular, compiled=False)
    check(Module(lambda x: L.cholesky_ex(x).info), singular - torch.eye(3), compiled=False)
    check(Module(lambda x: L.cholesky_ex(x).info), singular + torch.eye(3), compiled=False)
