"""What is stored in all branches of a condition is stored."""

from __future__ import annotations

import pytest

from tilewright.base.errors import VerifyError
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify


def program(body: str) -> Func:
    lines = "".join(" " * 12 + line + "\n" for line in body.strip().splitlines())
    return parse(f"""
@tw.script
def f(A: T.Buffer((3, 6), "float32"), M: T.Buffer((3, 6), "bool"), B: T.Buffer((3, 6), "float32")):
    L = T.alloc((3, 6), "float32")
    for i, j in T.grid(3, 6):
        with T.block("L"):
            vi, vj = T.axis.remap("SS", [i, j])
{lines}
    for i, j in T.grid(3, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = L[vi, vj]
""")


CONDITIONS = [
    "vj >> 1 != 1",
    "vj * vj != 4",
    "A[vi, vj] > 0.0",
    "M[vi, vj]",
    "(vj > 2) & M[vi, vj]",
]
BOTH = """
if {0}:
    L[vi, vj] = A[vi, vj]
else:
    L[vi, vj] = 0.0
"""
THREE = """
if {0}:
    L[vi, vj] = A[vi, vj]
elif vi * vi > 3:
    L[vi, vj] = 2.0
else:
    L[vi, vj] = 0.0
"""


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("branches", [BOTH, THREE])
def test_all_branches_store(branches: str, condition: str) -> None:
    verify(program(branches.format(condition)))


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(
    ("text", "become"),
    [
        ("elif vi * vi > 3:\n    L[vi, vj] = 2.0", "elif vi * vi > 3:\n    L[vi, 0] = 2.0"),
        ("else:\n    L[vi, vj] = 0.0", "if vj > 3:\n    L[vi, vj] = 0.0"),
        ("    L[vi, vj] = A[vi, vj]", "    L[vi, 5 - vj] = A[vi, vj]"),
    ],
)
def test_a_branch_stores_elsewhere(text: str, become: str, condition: str) -> None:
    with pytest.raises(VerifyError):
        verify(program(THREE.format(condition).replace(text, become)))
