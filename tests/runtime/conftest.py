"""Kernels for these tests are Python functions behind C function pointers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from tilewright.runtime import Argument, Module, Origin, Signature
from tilewright.runtime.argument_checks import ctypes_parameters
from tilewright.target import Target


class Probe:
    """A module around a kernel that notes the values it is called with and returns `status`.

    A workspace that is null is not noted.
    """

    def __init__(
        self, *arguments: Argument, trust_indices: bool = False, workspace_bytes: int = 0
    ) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.status = 0
        signature = Signature("probe", arguments, workspace_bytes)
        self.function = ctypes.CFUNCTYPE(ctypes.c_int32, *ctypes_parameters(signature))(self.kernel)
        address = ctypes.cast(self.function, ctypes.c_void_p).value
        assert address is not None
        self.mod = Module(
            signature,
            [address],
            Target.parse("cpu -mcpu=x86-64 -threads=1"),
            origin=Origin("schedule"),
            sources={"tir": lambda: "the program", "llvm": lambda: "the code"},
            owner=self.function,
            trust_indices=trust_indices,
        )

    def kernel(self, *values: Any) -> int:
        *arguments, workspace = values
        self.calls.append(tuple(arguments if workspace is None else values))
        return self.status


@pytest.fixture
def probe() -> Callable[..., Probe]:
    return Probe
