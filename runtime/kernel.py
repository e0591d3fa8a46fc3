"""Compiled functions as Python calls them: arguments are checked, then the code runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Protocol

from ..base.errors import KernelError
from .argument_checks import ctypes_parameters, make_binder
from .memory import Memory
from .ranges import make_range_check
from .signature import Signature
from .workspace import Pool, workspace_binder


class Kernel(Protocol):
    """The checked entry of a compiled function, whose tensors are in `memory`.

    `options` are the keywords of a call that it takes; their values are not `None`.
    """

    @property
    def signature(self) -> Signature: ...

    @property
    def memory(self) -> Memory: ...

    @property
    def options(self) -> tuple[str, ...]: ...

    @property
    def resources(self) -> dict[str, dict[str, int | float]]:
        """See `Module.resources`."""
        ...

    def __call__(self, *arguments: Any) -> None:
        """Check the arguments and run the function with them."""

    @property
    def call(self) -> Callable[..., None]:
        """A function of the tuple of arguments, and the options as keywords: it calls."""
        ...

    @property
    def bind(self) -> Callable[..., Callable[[], None]]:
        """A function of the tuple of arguments, and the options as keywords.

        It checks the arguments now, and returns the call as a function without parameters.
        """
        ...


class NativeKernel:
    """A C function at an address: converts arguments in Python and calls through ctypes.

    `owner` holds the code.
    """

    options: ClassVar[tuple[str, ...]] = ("workspace",)
    resources: ClassVar[dict[str, dict[str, int | float]]] = {}

    def __init__(
        self,
        signature: Signature,
        address: int,
        memory: Memory,
        owner: object,
        pool: Pool | None,
    ) -> None:
        self.types = ctypes_parameters(signature)
        self.name = signature.name
        self.signature = signature
        self.memory = memory
        self.address = address
        self.function = ctypes.CFUNCTYPE(ctypes.c_int32, *self.types)(address)
        self.binder = make_binder(signature, memory)
        self.workspace_binder = workspace_binder(signature, memory)
        self.check_ranges = make_range_check(signature, memory)
        self.owner = owner
        if signature.workspace_bytes:
            assert pool is not None, "a kernel that needs a workspace has where to take it from"
            self.invoke = _in_pool(signature, self.function, pool)
        else:
            self.invoke = _without_workspace(self.function)

    def __call__(self, *arguments: Any) -> None:
        values, _owners = self.binder(arguments)
        if self.check_ranges is not None:
            self.check_ranges(values)
        status = self.invoke(*values)
        if status:
            self.fail(status)

    def call(self, arguments: tuple[Any, ...], workspace: Any) -> None:
        self.bind(arguments, workspace)()

    def bind(self, arguments: tuple[Any, ...], workspace: Any = None) -> Callable[[], None]:
        values, owners = self.binder(arguments)
        if self.check_ranges is not None:
            self.check_ranges(values)
        converted = [make(value) for make, value in zip(self.types, values, strict=False)]
        if workspace is None and self.signature.workspace_bytes:
            return partial(self.run, self.invoke, values, converted, owners)
        pointer = None if workspace is None else self.workspace_binder(workspace, values, owners)
        converted.append(ctypes.c_void_p(pointer))
        return partial(self.run, self.function, values, converted, owners)

    def run(
        self,
        invoke: Callable[..., int],
        values: list[Any],
        converted: list[Any],
        _owners: list[Any],
    ) -> None:
        if self.check_ranges is not None:
            self.check_ranges(values)
        status = invoke(*converted)
        if status:
            self.fail(status)

    def at(self, *addresses: int) -> None:
        """Run with arguments at these addresses. Nothing is checked, values of indices neither."""
        status = self.invoke(*addresses)
        if status:
            self.fail(status)

    def fail(self, status: int) -> None:
        raise KernelError("{0}: stopped with status {1}", self.name, status, status=status)


def _without_workspace(function: Callable[..., int]) -> Callable[..., int]:
    """`function`, called with a null pointer for the workspace that it does not use."""

    def invoke(*values: Any) -> int:
        return function(*values, None)

    return invoke


def _in_pool(signature: Signature, function: Callable[..., int], pool: Pool) -> Callable[..., int]:
    """`function`, called with a workspace of the pool."""
    address = pool.memory.address_reader()

    def invoke(*values: Any) -> int:
        workspace = pool.take(signature)
        try:
            return function(*values, address(workspace))
        finally:
            pool.append(workspace)

    return invoke
