"""`PartitionedModel`: a graph whose parts several providers run, called as a `Model` is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.errors import ArtifactError, ProviderError, TilewrightError
from ..base.hints import Hinted
from ..base.process import InProcess
from .model import Array, bound
from .partition_evidence import PartitionEvidence
from .signature import Argument
from .timer import Timing, time_calls


@dataclass(frozen=True)
class RunPart:
    """A part that is compiled: `call` takes the values of these numbers and returns those of
    others, which are of the `types`.

    `crossing` are numbers of what other parts have computed. After it, nothing reads `dead`.
    """

    provider: str
    call: Callable[..., Any]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    types: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    crossing: tuple[int, ...]
    dead: tuple[int, ...]


class PartitionedModel(
    InProcess,
    Hinted,
    error=ArtifactError,
    instead="import and build the graph in the other process",
):
    """A graph of which several providers run parts. Calls may run concurrently in several threads.

    `evidence` says who runs what, why, and what crosses; `parts` are what was compiled: the
    `Model`s of Tilewright, and the calls of other providers. `inputs` and `outputs` are as of a
    `Model`; an extent that data decide is -1.
    """

    def __init__(
        self,
        inputs: Mapping[str, Argument],
        outputs: Mapping[str, Argument],
        values: tuple[Sequence[int], Mapping[int, Array]],
        parts: Sequence[RunPart],
        evidence: PartitionEvidence,
    ) -> None:
        """`values` are the numbers of the outputs, and what constants among them are; inputs have
        the first numbers."""
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)
        self.parts = tuple(part.call for part in parts)
        self.evidence = evidence
        self._ends, self._constants = values
        self._parts = tuple(parts)
        self._lock = threading.Lock()
        self._runs = self._transferred = 0
        self._begun = [0] * len(parts)
        # An output that is an input, a constant or another output too is an array of its own.
        self._copied = tuple(
            end < len(inputs) or end in self._constants or end in self._ends[:place]
            for place, end in enumerate(self._ends)
        )

    @property
    def counts(self) -> dict[str, int]:
        """What calls have done until now, failing ones too: `runs`, the parts that each provider
        has run, and `transferred_bytes`, of arrays that crossed."""
        with self._lock:
            found = Counter(runs=self._runs, transferred_bytes=self._transferred)
            for part, begun in zip(self._parts, self._begun, strict=True):
                found[part.provider] += begun
        return dict(found)

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        """The output, or the tuple of outputs, as numpy arrays.

        Inputs are given as to a `Model`. Raises what parts of Tilewright raise, and
        `ProviderError` where another provider raises, or returns what is not of the types that the
        graph has.
        """
        held = dict(enumerate(bound(self.inputs, arguments, named).values()))
        held.update(self._constants)
        begun = transferred = 0
        try:
            for part in self._parts:
                for number in part.crossing:
                    transferred += held[number].nbytes
                begun += 1
                _run(part, held)
        finally:
            with self._lock:
                self._runs += 1
                self._transferred += transferred
                for number in range(begun):
                    self._begun[number] += 1
        results = tuple(
            [
                held[end].copy() if copied else held[end]
                for end, copied in zip(self._ends, self._copied, strict=True)
            ]
        )
        return results[0] if len(results) == 1 else results

    def time(self, *arguments: Any, **options: Any) -> Timing:
        """Time calls with these inputs, by position or by name; options as of `Module.time`."""
        named = {name: options.pop(name) for name in self.inputs if name in options}
        given = bound(self.inputs, arguments, named).values()
        return time_calls(partial(self, *given), **options)

    def __repr__(self) -> str:
        return f"<PartitionedModel {self.evidence.model}: {len(self.parts)} parts>"


def _run(part: RunPart, held: dict[int, Array]) -> None:
    """Run a part on what is held, and hold what it computes."""
    given = [held[n] for n in part.reads]
    try:
        found = part.call(*given)
    except TilewrightError:
        raise
    except Exception as error:  # whatever a provider raises
        raise ProviderError(
            "the provider {0} raises as a part runs: {1}: {2}",
            part.provider, type(error).__name__, error, provider=part.provider,
        ) from error  # fmt: skip
    results = found if isinstance(found, list | tuple) else (found,)
    if len(results) != len(part.writes):
        raise ProviderError(
            "the provider {0}: expected {1} arrays of its part, found {2}",
            part.provider, len(part.writes), len(results), provider=part.provider,
        )  # fmt: skip
    for number, (shape, dtype), result in zip(part.writes, part.types, results, strict=True):
        if not _is_of(result, shape, dtype):
            raise ProviderError(
                "the provider {0}: output {1} of its part: expected {2}, found {3}",
                part.provider, part.writes.index(number), _text(shape, dtype),
                _text(result.shape, result.dtype) if isinstance(result, np.ndarray) else result,
                provider=part.provider,
            )  # fmt: skip
        held[number] = _own(result, held.values())
    for number in part.dead:
        del held[number]


def _own(result: Array, held: Iterable[Array]) -> Array:
    """The result as a compact array, with memory of its own."""
    shares = any(np.may_share_memory(result, one) for one in held)
    return result.copy(order="C") if shares or not result.flags.c_contiguous else result


def _is_of(result: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    if type(result) is not np.ndarray or result.dtype != dtype:
        return False
    if result.shape == shape:
        return True
    pairs = zip(shape, result.shape, strict=False)
    return len(shape) == result.ndim and all(e in (dtypes.UNKNOWN, own) for e, own in pairs)


def _text(shape: Sequence[int], dtype: np.dtype[Any]) -> str:
    return f"{dtype}{list(shape)}"
