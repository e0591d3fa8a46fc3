"""PyTorch's compiler, which searches (`max-autotune`); it takes a C++ compiler."""

from __future__ import annotations

import torch

from ..suite import Array, Case
from .call import Call, returning
from .torch import function

VERSION = torch.__version__


def prepare(case: Case, arrays: list[Array], threads: int) -> Call | None:
    """The call for a case; constant operands are frozen into it."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tensors = [torch.from_numpy(a) for a in arrays]
    fn = function(case)
    if case.op == "int8_matmul":
        tensors[0] = tensors[0].to(torch.int8)
    if case.params.get("constant_b"):
        compiled = torch.compile(_Product(tensors[1]), mode="max-autotune")
        with torch._inductor.config.patch(freezing=True):
            compiled(tensors[0])
        return returning(lambda: compiled(tensors[0]), lambda c: c.numpy())
    compiled = torch.compile(fn, mode="max-autotune")
    compiled(*tensors)
    return returning(lambda: compiled(*tensors), lambda c: c.numpy())


class _Product(torch.nn.Module):
    def __init__(self, b: torch.Tensor) -> None:
        super().__init__()
        self.b = torch.nn.Parameter(b, requires_grad=False)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        return a @ self.b
