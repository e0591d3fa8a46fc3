"""The constants of a model as kernels take them, packed, one after the other in one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..base import dtypes
from ..base.errors import TargetError
from ..codegen.build import packers_of, to_module
from ..codegen.cache import compile_cached
from ..codegen.compiled import Compiled
from ..codegen.detect import check_runnable
from ..codegen.generator import generator_for
from ..graph.groups import Group
from ..graph.ir import Constant
from ..graph.operator import Array
from ..runtime.signature import Argument
from .memory_plan import ALIGNMENT

Pack: TypeAlias = Callable[[str, Array], Array]
"""Returns an operand as a kernel takes it, of its name and the operand as it is."""


class Weights:
    """Where each constant of a model is, in each form that its kernels take."""

    def __init__(self) -> None:
        self.bytes = self.packed_bytes = 0
        self._offsets: dict[tuple[str, str | None], int] = {}
        self._arrays: list[tuple[int, Any]] = []
        self._packers: dict[str, Pack] = {}

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
            name = kernel.signature.name
            if name not in self._packers:
                self._packers[name] = _packer(kernel)
            array = constant.data.reshape(argument.packing.operand.shape)
            packed = self._packers[name](argument.name, array)
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
        """The bytes of all, at an address that is a multiple of `ALIGNMENT`: to be asked for once.

        Each array is let go of when it is copied, so that large models are not held twice.
        """
        content = aligned(self.bytes)
        while self._arrays:
            offset, array = self._arrays.pop()
            content[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        content.flags.writeable = False
        return content


def aligned(size: int) -> Array:
    """So many bytes, all zero, at an address that is a multiple of `ALIGNMENT`."""
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _packer(kernel: Compiled) -> Pack:
    """What packs the operands of a kernel, which may be for a device or for another machine."""
    if generator_for(kernel.target).on_device:
        return _packer_for_others(kernel)
    try:
        check_runnable(kernel.target)
    except TargetError:
        return _packer_for_others(kernel)
    return to_module(kernel).pack


def _packer_for_others(kernel: Compiled) -> Pack:
    """The packing programs of a kernel, compiled for this machine."""
    (program,) = kernel.programs
    programs = packers_of(program, kernel.target)
    packers = {a.name: p for a in kernel.signature.arguments if (p := a.packer) is not None}

    def pack(name: str, array: Array) -> Array:
        packer = packers[name]
        module = to_module(compile_cached(programs[packer.name], "cpu -threads=1"))
        packed = packer.arguments[1]
        result = np.empty(packed.shape, dtypes.to_numpy(packed.dtype))
        module(array, result)
        return result

    return pack
