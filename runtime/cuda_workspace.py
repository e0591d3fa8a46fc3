"""Workspaces of calls on CUDA devices, in the order of their streams.

A call returns before its kernels are done. Its workspace is lent again at once to the next call on
the same stream, which comes after it anyway. A call on another stream takes one whose last call is
done, or a new one, for which smaller ones are freed. Where there is no memory for that, it waits
for one that is in use. Kernels wait for the last call in any case: a new stream may have the handle
of one that was destroyed.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from ..base.errors import ArgumentError, OutOfMemoryError
from .cuda_driver import Device
from .cuda_memory import Allocation
from .memory import memory_for
from .signature import Signature


class Workspace(NamedTuple):
    """Memory, and the event that is done when the last call that computed in it is."""

    memory: Allocation
    event: int
    stream: int


class StreamPool:
    """The workspaces of a device that no call is about to use, the one used last at the end."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._idle: list[Workspace] = []
        self._lock = threading.Lock()

    def take(self, signature: Signature, stream: int) -> Workspace:
        """Take a workspace for a call on a stream, whose kernels are launched with its event.

        Return it by `give_back`. Raises `OutOfMemoryError`, and `ArgumentError` where the stream's
        work goes into a graph.
        """
        with self._lock:
            found = self._choose(signature.workspace_bytes, stream)
        if found is None:
            found = self._allocate(signature, stream)
        return found if found.stream == stream else found._replace(stream=stream)

    def give_back(self, workspace: Workspace) -> None:
        """Return a workspace once all that computes in it was submitted to its stream."""
        self._idle.append(workspace)

    def captured(self, signature: Signature) -> ArgumentError:
        """The error for a call that would go into a graph with a workspace of the pool."""
        return ArgumentError(
            "{0}: the stream's work goes into a graph, which may run at any time, and the call "
            "computes in a workspace that other calls use too",
            signature.name,
            hint="give the graph one of its own: module(..., workspace=module.workspace())",
        )

    def _choose(self, size: int, stream: int) -> Workspace | None:
        """Take the workspace used last that is large enough, and whose calls come before.

        One of the same stream is preferred: no event is asked for then. To ask while a stream's
        work goes into a graph would end that.
        """
        fitting = [w for w in reversed(self._idle) if w.memory.size >= size]
        found = next((w for w in fitting if w.stream == stream), None)
        if found is None and fitting and not self.device.is_capturing(stream):
            found = next((w for w in fitting if self.device.is_done(w.event)), None)
        if found is not None:
            self._idle.remove(found)
        return found

    def _allocate(self, signature: Signature, stream: int) -> Workspace:
        if self.device.is_capturing(stream):
            raise self.captured(signature)
        size = signature.workspace_bytes
        self._drop_smaller(size, stream)
        try:
            memory = self._memory(signature)
        except OutOfMemoryError:
            with self._lock:
                fitting = [w for w in self._idle if w.memory.size >= size]
                if fitting:
                    self._idle.remove(fitting[0])
                    return fitting[0]
            self._drop_smaller(size, None)
            memory = self._memory(signature)
        return Workspace(memory, self.device.new_event(), stream)

    def _memory(self, signature: Signature) -> Allocation:
        size = signature.workspace_bytes
        text, hint = "{0}: no memory for its workspace of {1} bytes", "free arrays of the device"
        with memory_for(text, signature.name, size, hint=hint):
            return Allocation(self.device, size)

    def _drop_smaller(self, size: int, stream: int | None) -> None:
        """Free workspaces that are too small, as the new one takes their place.

        Those are of the stream, or are not in use; without a stream all of them, once they are not.
        """
        with self._lock:
            smaller = [
                w
                for w in self._idle
                if w.memory.size < size
                and (stream in (w.stream, None) or self.device.is_done(w.event))
            ]
            for workspace in smaller:
                self._idle.remove(workspace)
        for workspace in smaller:
            self.device.free_event(workspace.event)
