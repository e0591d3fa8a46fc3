"""Workspaces: the memory that kernels with large internal buffers take from their caller.

A `Module` that is called without a workspace takes one from a pool of the process and returns it
after the call. A call has its workspace to itself, so there are as many as concurrent calls, each
as large as the largest request. The next kernel reuses the same memory, which causes no page faults
and may still be in the caches. The pool is freed with the last module that needs it.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..base.errors import ArgumentError
from .memory import Memory, memory_for
from .signature import WORKSPACE_ALIGNMENT, Signature

Binder = Callable[[Any, Sequence[Any], list[Any]], int]


class Pool(list[Any]):
    """Workspaces that no call uses now, the most recently used one last.

    `pop` and `append` are atomic: threads need no lock, and the call glue does the same to the list
    in machine code. Items are arrays that `memory` has allocated.
    """

    def __init__(self, memory: Memory, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.memory = memory

    def take(self, signature: Signature) -> Any:
        """Take a workspace for a call of the kernel; return it by `append`.

        Raises `OutOfMemoryError` if there is no memory.
        """
        try:
            found = self.pop()
        except IndexError:
            found = None
        if found is not None and len(found) >= signature.workspace_bytes:
            return found
        del found  # too small: what it takes is free for the new one
        return new_workspace(signature, self.memory)


_pools: weakref.WeakValueDictionary[Memory, Pool] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def shared_pool(memory: Memory) -> Pool:
    """The pool of this process in that memory, which lives as long as a module holds it."""
    with _lock:
        return _pools.setdefault(memory, Pool(memory))


def new_workspace(signature: Signature, memory: Memory) -> Any:
    """A new workspace for calls of the kernel. Raises `OutOfMemoryError` if there is no memory."""
    text = "{0}: no memory for its workspace of {1} bytes"
    hint = "free some memory, or build with a schedule that caches less"
    with memory_for(text, signature.name, signature.workspace_bytes, hint=hint):
        return memory.allocate(signature.workspace_bytes)


def workspace_binder(signature: Signature, memory: Memory) -> Binder:
    """Returns a function from a caller's workspace and the kernel's values to its address.

    The owner of the memory is added to a list, to be held while the kernel runs. Raises
    `ArgumentError` unless the workspace is a compact, writable array of bytes, large enough,
    aligned, and disjoint from the arguments.
    """
    needed = signature.workspace_bytes
    tensors = [(i, a) for i, a in enumerate(signature.arguments) if a.kind == "tensor" and a.size]
    hint = "module.workspace() returns one"

    def bind(workspace: Any, values: Sequence[Any], owners: list[Any]) -> int:
        view = memory.view(workspace, "workspace")
        if view.dtype != "uint8":
            remedy = f"pass .view({memory.library_of(workspace).dtype('uint8')})"
            raise _error("bytes (dtype uint8)", f"dtype {view.dtype}", remedy)
        if not view.is_compact:
            raise _error("a compact array", f"strides of {view.byte_strides} bytes", hint)
        if view.unwritable:
            raise _error("memory to write to", view.unwritable, hint)
        found = math.prod(view.shape)
        if found < needed:
            raise _error(f"at least {needed} bytes for {signature.name}", f"{found}", hint)
        pointer = view.pointer
        if needed and pointer % WORKSPACE_ALIGNMENT:
            multiple = f"an address that is a multiple of {WORKSPACE_ALIGNMENT}"
            raise _error(multiple, f"{pointer:#x}", hint)
        for i, argument in tensors:
            if values[i] < pointer + needed and pointer < values[i] + argument.span_bytes:
                raise ArgumentError(
                    "workspace: its memory overlaps with argument {0}",
                    argument.name,
                    hint="give a call a workspace of its own: it is overwritten",
                )
        owners.append(view.owner)
        return pointer

    return bind


def _error(expected: str, found: str, hint: str) -> ArgumentError:
    return ArgumentError("workspace: expected {0}, found {1}", expected, found, hint=hint)
