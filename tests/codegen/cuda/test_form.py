"""The form of the last lowered program of a GPU: what is not in it is refused."""

from __future__ import annotations

import pytest

from tilewright.base.errors import VerifyError
from tilewright.codegen.lower import lower
from tilewright.target import CudaTarget
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .form import check_form
from .kernels import kernel
from .test_text import SCHEDULED

TARGET = CudaTarget.named("sm_90a")


@pytest.mark.parametrize("name", SCHEDULED)
def test_lowered_programs_are_in_it(name: str) -> None:
    check_form(lower(SCHEDULED[name](), TARGET))


def test_annotations_of_loops_are_left_out() -> None:
    text = """
def f(A: T.Buffer((8, 4), "float32")):
    for t in T.thread("threadIdx.x", 8):
        for k in T.serial(4, annotations={"tensor_intrin": "fill"}):
            A[t, k] = 1.0
"""
    check_form(lower(parse(text.lstrip()), TARGET))


SOUND = {
    "a barrier of the block in all blocks": 'if b < 2:\n    T.barrier("block")',
    "a barrier of the warp in a row": 'if ty < 2:\n    T.barrier("warp")',
    "a move": "B[T.ramp(t * 4, 1, 4)] = A[T.ramp(t * 4, 1, 4)]",
}
UNSOUND = {
    "a barrier of a part of the block": (
        'if ty < 2:\n    T.barrier("block")',
        "barrier of the block",
    ),
    "a barrier of a part of the warp": ('if t < 2:\n    T.barrier("warp")', "barrier of the warp"),
    "a barrier behind what is loaded": (
        'with T.let(A[0]) as x:\n    if x < 1.0:\n        T.barrier("block")',
        "barrier of the block",
    ),
    "a shuffle of a part of the warp": (
        "if t < 2:\n    B[t] = T.warp_shuffle(A[t], 1)",
        "a shuffle",
    ),
    "a shuffle in a branch of a select": (
        "B[t] = T.select(t < 2, T.warp_shuffle(A[t], 1), 0.0)",
        "a shuffle",
    ),
    "a shuffle that the first operand may leave out": (
        "x = (t < 2) & (T.warp_shuffle(A[t], 1) < 1.0)",
        "a shuffle",
    ),
    "a shuffle in a condition": ("if T.warp_shuffle(A[t], 1) < 1.0:\n    B[t] = 1.0", "a shuffle"),
    "a move of elements apart": ("B[T.ramp(t, 2, 4)] = A[T.ramp(t, 2, 4)]", "adjacent"),
    "a loop over an axis in the code": (
        'if t < 2:\n    for u in T.thread("threadIdx.z", 2):\n        B[u] = 1.0',
        "the loop u",
    ),
}


def launch(code: str) -> Func:
    return kernel("A float32 1024; B float32 1024", code, threads=(32, 4), blocks=4)


@pytest.mark.parametrize("name", SOUND)
def test_sound_code(name: str) -> None:
    check_form(launch(SOUND[name]))


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_code(name: str) -> None:
    code, what = UNSOUND[name]
    with pytest.raises(VerifyError, match=what):
        check_form(launch(code))


LAUNCHES = {
    "threads around blocks": (
        """
    for t in T.thread("threadIdx.x", 4):
        for b in T.thread("blockIdx.x", 4):
            A[b * 4 + t] = 1.0
""",
        "blockIdx.x where it stands",
    ),
    "shared memory inside of threads": (
        """
    for y in T.thread("threadIdx.y", 4):
        with T.scratch((4,), "float32", scope="shared") as S:
            for t in T.thread("threadIdx.x", 4, annotations={"shared": [0]}):
                S[t] = 1.0
""",
        "inside of loops over threads",
    ),
    "no threads": (
        """
    for b in T.thread("blockIdx.x", 4):
        A[b] = 1.0
""",
        "no loop over threadIdx.x",
    ),
    "shared memory of two dimensions": (
        """
    with T.scratch((4, 4), "float32", scope="shared") as S:
        for t in T.thread("threadIdx.x", 4, annotations={"shared": [0]}):
            S[t, t] = 1.0
""",
        "one dimension",
    ),
    "a loop around a launch": (
        """
    for k in range(2):
        for t in T.thread("threadIdx.x", 4):
            A[t] = 1.0
""",
        "no loop over threadIdx.x",
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_unsound_launches(name: str) -> None:
    body, what = LAUNCHES[name]
    with pytest.raises(VerifyError, match=what):
        check_form(parse(f'def f(A: T.Buffer((16,), "float32")):\n{body.lstrip(chr(10))}'))
