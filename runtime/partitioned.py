"""`PartitionedModel`: a graph whose parts several providers run, called as a `Model` is."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.display import html
from ..base.errors import ArgumentError, ArtifactError, ProviderError, TilewrightError
from ..base.hints import Hinted
from ..base.process import InProcess
from ..target import Target
from .argument_checks import make_binder
from .device_part import DeviceCalls, DevicePart
from .device_plan import DevicePlan
from .host_memory import HOST_MEMORY
from .model import Array, Model, bound, outputs_of, read_only
from .part_loader import Call
from .partition_evidence import PartitionEvidence
from .partition_plan import PartitionPlan, PartPlan
from .profile import PartTime, Profile, partitioned_profile
from .service import CallCounts, Serviced
from .signature import Signature
from .timer import Timing, time_calls


class PartitionedModel(
    Serviced,
    InProcess,
    Hinted,
    error=ArtifactError,
    instead='write it once, tw.build_library(graph, "model.so", providers=...), and in each '
    'process take tw.load("model.so"); or import and build the graph there',
):
    """A graph of which several providers run parts. Calls may run concurrently in several threads.

    `parts` are what was compiled: the `Model`s of Tilewright, and the calls of other providers.
    `inputs` and `outputs` are as of a `Model`; an extent that data decide is -1.
    """

    def __init__(
        self,
        plan: PartitionPlan,
        parts: Sequence[Call | DevicePart],
        constants: Mapping[int, Array],
        evidence: PartitionEvidence,
        target: Target,
        devices: DevicePlan | None = None,
    ) -> None:
        """`constants` are those of the plan, by number. `devices` is there if parts are on some."""
        self.inputs, self.outputs = map(dict, plan.arguments())
        self.parts = tuple(parts)
        self.target = target
        self._plan = plan
        self._constants = dict(constants)
        self._decisions = evidence
        self._types = [(v.shape, dtypes.to_numpy(v.dtype)) for v in plan.values]
        # No part reads what has extents that data decide.
        self._crossing = [
            sum(plan.values[number].bytes for number in part.crossing) for part in plan.parts
        ]
        self._told = [
            {"provider": told.provider, "part": n, "operators": told.operators}
            for n, told in enumerate(evidence.parts)
        ]
        self._ends = [number for _, number in plan.outputs]
        self._counted: Callable[..., list[Array]] | None = None
        on_devices = {n: part for n, part in enumerate(parts) if isinstance(part, DevicePart)}
        self._devices = None if devices is None else DeviceCalls(devices, plan, on_devices)
        self._lock = threading.Lock()
        self._runs = self._transferred = self._copied_bytes = self._waits = 0
        self._begun = [0] * len(parts)
        # An output that is an input, a constant or another output too is an array of its own.
        self._copied = tuple(
            end < len(self.inputs) or end in self._constants or end in self._ends[:place]
            for place, end in enumerate(self._ends)
        )

    @cached_property
    def evidence(self) -> PartitionEvidence:
        """Who runs what, why, and what crosses; and of the parts of Tilewright their evidence."""
        parts = zip(self._decisions.parts, self.parts, strict=True)
        told = [
            replace(part, kernels=call.evidence) if isinstance(call, Model | DevicePart) else part
            for part, call in parts
        ]
        return replace(self._decisions, parts=tuple(told))

    @property
    def counts(self) -> dict[str, int]:
        """What calls have done until now, failing ones too: `runs`, the parts that each provider
        has run, and `transferred_bytes`, of arrays that crossed. Where parts are on devices,
        `copied_bytes` to and from these, and `waits` for them."""
        with self._lock:
            found = Counter(runs=self._runs, transferred_bytes=self._transferred)
            if self._devices is not None:
                found.update(copied_bytes=self._copied_bytes, waits=self._waits)
            for part, begun in zip(self._plan.parts, self._begun, strict=True):
                found[part.provider] += begun
        return dict(found)

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        """The output, or the tuple of outputs, as numpy arrays.

        Inputs are given as to a `Model`. Raises what parts of Tilewright raise, and
        `ProviderError` where another provider raises, or returns what is not of the types that the
        graph has.
        """
        found = self._call_counted(bound(self.inputs, arguments, named).values())
        results = tuple(
            [
                result.copy() if copied else result
                for result, copied in zip(found, self._copied, strict=True)
            ]
        )
        return results[0] if len(results) == 1 else results

    def into(self, *arguments: Any, out: Any, **named: Any) -> None:
        """Like a call that writes the outputs to `out`: an array, or several in their order.

        Raises `ArgumentError` too where data decide the extents of an output.
        """
        given = bound(self.inputs, arguments, named).values()
        results = outputs_of(self.outputs, out)
        open_ones = [a.name for a in self.outputs.values() if dtypes.UNKNOWN in a.shape]
        if open_ones:
            raise ArgumentError(
                "out: data decide the extents of {0}", ", ".join(open_ones),
                hint="call the model, which returns new arrays",
            )  # fmt: skip
        self._checked([*given, *results])
        for result, found in zip(results, self._call_counted(given), strict=True):
            np.copyto(HOST_MEMORY.array(HOST_MEMORY.view(result, "out")), found)

    def time(self, *arguments: Any, **options: Any) -> Timing:
        """Time calls with these inputs, by position or by name; options as of `Module.time`."""
        named = {name: options.pop(name) for name in self.inputs if name in options}
        given = bound(self.inputs, arguments, named).values()
        return time_calls(partial(self, *given), **options)

    def profile(self, *arguments: Any, **named: Any) -> Profile:
        """Say where the time of calls with these inputs goes: kernel by kernel of the parts of
        Tilewright, and part by part of the others.

        Raises what a call raises, and what `Model.profile` does.
        """
        given = tuple(bound(self.inputs, arguments, named).values())
        seen: list[tuple[Array, ...]] = []
        self._computed(given, seen=seen)
        types = self._plan.values
        parts = [
            PartTime(
                part.provider,
                operators=", ".join(dict.fromkeys(told.operators)),
                # What data decide the extents of is on the host.
                bytes=sum(types[n].bytes for n in (*part.reads, *part.writes))
                if isinstance(call, DevicePart)
                else sum(a.nbytes for a in arrays),
                profile=call.profile(*arrays[: len(part.reads)])
                if isinstance(call, Model)
                else None,
            )
            for part, told, call, arrays in zip(
                self._plan.parts, self._decisions.parts, self.parts, seen, strict=True
            )
        ]

        def run() -> list[float]:
            spent: list[float] = []
            self._computed(given, spent=spent)
            return spent

        return partitioned_profile(self._plan.model, str(self.target), parts, run)

    @cached_property
    def _checked(self) -> Callable[..., object]:
        """What refuses inputs and outputs that are not those of the model, or overlap."""
        arguments = (*self.inputs.values(), *self.outputs.values())
        return make_binder(Signature("model", arguments), HOST_MEMORY)

    def _computed(
        self,
        given: Iterable[Array],
        spent: list[float] | None = None,
        seen: list[tuple[Array, ...]] | None = None,
    ) -> list[Array]:
        """The outputs, some of which may be the same array.

        The seconds of each part are added to `spent`, and what it takes and returns to `seen`.
        """
        held = dict(enumerate(given))
        held.update(self._constants)
        devices, plan = self._devices, self._plan
        begun = transferred = 0
        with nullcontext() if devices is None else devices.arenas() as arenas:
            try:
                for part, call in zip(plan.parts, self.parts, strict=True):
                    transferred += self._crossing[begun]
                    begun += 1
                    start = 0.0 if spent is None else time.perf_counter()
                    if arenas is not None:
                        arenas.take_before(begun - 1, held)
                    if isinstance(call, DevicePart):
                        assert arenas is not None, "it is on a device"
                        arenas.submit(begun - 1, wait=spent is not None)
                    else:
                        _run(part, call, self._types, held, self._told[begun - 1])
                    if spent is not None:
                        spent.append(time.perf_counter() - start)
                    if seen is not None:
                        seen.append(
                            tuple([held[n] for n in (*part.reads, *part.writes) if n in held])
                        )
                    for number in part.dead:
                        held.pop(number, None)
                if arenas is not None:
                    arenas.take_before(begun, held)
            finally:
                with self._lock:
                    self._runs += 1
                    self._transferred += transferred
                    for number in range(begun):
                        self._begun[number] += 1
                    if arenas is not None:
                        self._copied_bytes += arenas.copied_bytes
                        self._waits += arenas.waits
        return [held[end] for end in self._ends]

    @property
    def _program(self) -> str:
        return self._plan.model

    def _origins(self) -> list[str]:
        own = [part for part in self.parts if isinstance(part, Model | DevicePart)]
        return [origin.kind for part in own for origin in part.kernels.values()]

    def _call_counted(self, given: Any) -> list[Array]:
        return self._computed(given) if self._counted is None else self._counted(given)

    def _count(self, counts: CallCounts) -> None:
        self._counted = counts.counted(self._computed)

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"<PartitionedModel {self._plan.model}: {len(self.parts)} parts>"


def _run(
    part: PartPlan,
    call: Call,
    types: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
    held: dict[int, Array],
    told: Mapping[str, Any],
) -> None:
    """Run a part on what is held, and hold what it computes. Errors have what is `told` of it."""
    given = [held[n] for n in part.reads]
    if not isinstance(call, Model):
        given = [read_only(array) for array in given]
    try:
        found = call(*given)
        results = list(found) if isinstance(found, list | tuple) else [found]
    except TilewrightError:
        raise
    except Exception as error:  # whatever a provider raises
        raise ProviderError(
            "the provider {0} raises as it runs {1}: {2}: {3}",
            part.provider, _operators(told), type(error).__name__, error, **told,
        ) from error  # fmt: skip
    if isinstance(call, Model):  # its results are what they should be, and new
        held.update(zip(part.writes, results, strict=True))
        return
    if len(results) != len(part.writes):
        raise ProviderError(
            "the provider {0}: expected {1} arrays of {2}, found {3}",
            part.provider, len(part.writes), _operators(told), len(results), **told,
        )  # fmt: skip
    for number, result in zip(part.writes, results, strict=True):
        shape, dtype = types[number]
        if not _is_of(result, shape, dtype):
            raise ProviderError(
                "the provider {0}: output {1} of {2}: expected {3}, found {4}",
                part.provider, part.writes.index(number), _operators(told), _text(shape, dtype),
                _text(result.shape, result.dtype) if isinstance(result, np.ndarray) else result,
                **told,
            )  # fmt: skip
        held[number] = _own(result, held.values())


def _operators(told: Mapping[str, Any]) -> str:
    return f"part {told['part']}, {', '.join(dict.fromkeys(told['operators']))}"


def _own(result: Array, held: Iterable[Array]) -> Array:
    """The result as a compact array that can be written, with memory of its own."""
    flags = result.flags
    shares = any(np.may_share_memory(result, one) for one in held)
    plain = flags.c_contiguous and flags.writeable and flags.aligned
    return result if plain and not shares else result.copy(order="C")


def _is_of(result: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    if type(result) is not np.ndarray or result.dtype != dtype:
        return False
    if result.shape == shape:
        return True
    pairs = zip(shape, result.shape, strict=False)
    return len(shape) == result.ndim and all(e in (dtypes.UNKNOWN, own) for e, own in pairs)


def _text(shape: Sequence[int], dtype: np.dtype[Any]) -> str:
    return f"{dtype}{list(shape)}"
