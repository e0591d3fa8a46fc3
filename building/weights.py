"""The constants of a model as kernels take them, packed, one after the other in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..codegen.build import to_module
from ..codegen.compiled import Compiled
from ..graph.groups import Group
from ..graph.ir import Constant
from ..graph.operator import Array
from ..runtime.module import Module
from ..runtime.signature import Argument
from .memory_plan import ALIGNMENT


class Weights:
    """Where each constant of a model is, in each form that its kernels take."""

    def __init__(self) -> None:
        self.bytes = self.packed_bytes = 0
        self._offsets: dict[tuple[str, str | None], int] = {}
        self._arrays: list[tuple[int, Any]] = []
        self._modules: dict[str, Module] = {}

    def place(self, constant: Constant, kernel: Compiled, argument: Argument) -> int:
        """The offset of a constant operand, in the form that the kernel takes."""
        packing = argument.packing
        if packing is None:
            return self.plain(constant)
        form = f"{kernel.signature.name} {argument.name}"
        return self._offset(constant, form)

    def plain(self, constant: Constant) -> int:
        """The offset of a constant as it is."""
        return self._offset(constant, None)

    def take(self, groups: Sequence[Group], kernels: Sequence[Compiled]) -> None:
        """Pack what the kernels of the groups take."""
        for group, kernel in zip(groups, kernels, strict=True):
            for value, argument in zip(group.inputs, kernel.signature.arguments, strict=False):
                if isinstance(value, Constant):
                    self._take(value, kernel, argument)

    def take_plain(self, constant: Constant) -> None:
        self._put((constant.digest, None), constant.data)

    def _take(self, constant: Constant, kernel: Compiled, argument: Argument) -> None:
        if argument.packing is None:
            self.take_plain(constant)
            return
        key = (constant.digest, f"{kernel.signature.name} {argument.name}")
        if key not in self._offsets:
            module = self._modules.get(kernel.signature.name)
            if module is None:
                module = self._modules[kernel.signature.name] = to_module(kernel)
            operand = argument.packing.operand
            array = constant.data.reshape(operand.shape)
            packed = module.pack(argument.name, array)
            self.packed_bytes += packed.nbytes
            self._put(key, packed)

    def _put(self, key: tuple[str, str | None], array: Array) -> None:
        if key in self._offsets:
            return
        self._offsets[key] = self.bytes
        self._arrays.append((self.bytes, array))
        # What has no elements has an address too.
        self.bytes += max(1, -(-array.nbytes // ALIGNMENT)) * ALIGNMENT

    def _offset(self, constant: Constant, form: str | None) -> int:
        return self._offsets[constant.digest, form]

    def content(self) -> Array:
        """The bytes of all, at an address that is a multiple of `ALIGNMENT`."""
        memory = np.zeros(self.bytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        content = memory[start : start + self.bytes]
        for offset, array in self._arrays:
            content[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        return content
