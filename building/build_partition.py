"""Building a graph whose parts several providers run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ..base.errors import BuildError, ProviderError
from ..codegen.compiled import Compiled
from ..codegen.generator import generator_for
from ..codegen.sequence import joined
from ..graph.ir import Constant, Graph
from ..graph.partition import asked, partition
from ..graph.parts import Part, Partition, label
from ..graph.provider import Provider
from ..runtime.device_part import DevicePart
from ..runtime.model import WEIGHTS, Model
from ..runtime.part_loader import Call, limited
from ..runtime.partition_evidence import PartitionEvidence
from ..runtime.partitioned import PartitionedModel
from ..runtime.signature import Argument, Signature
from ..runtime.stored_partition import PartFile, PartFunction, StoredPart, StoredPartition
from ..runtime.weights_file import StoredFile
from ..target import Target
from .build_model import compile_graph
from .choose import Choice
from .device_memory import device_plan
from .providers import DeviceProvider, Tilewright, elsewhere, provider_of
from .weights import Weights

_log = logging.getLogger(__name__)


def divided(
    graph: Graph,
    providers: Sequence[str],
    own: Tilewright | None = None,
    placement: Mapping[str, str] | None = None,
    *,
    never: Sequence[str] = (),
    max_parts: int | None = None,
    max_transfer_bytes: int | None = None,
) -> Partition:
    """Divide a graph among providers by name, `own` for Tilewright; see `tw.build`."""
    for what, given in (("providers", providers), ("never", never)):
        if isinstance(given, str) or not all(isinstance(name, str) for name in given):
            raise BuildError("{0}: expected names of providers, found {1!r:.80}", what, given)
    forbidden = {provider_of(name).name for name in never}
    for name, wanted in (placement or {}).items():
        if wanted in forbidden:
            raise BuildError("placement of {0}: never={1!r} forbids {2}", name, never, wanted)
    allowed = [
        _with_options(provider_of(name), own)
        for name in dict.fromkeys(providers)
        if name not in forbidden
    ]
    if not allowed:
        raise BuildError("no provider is left: providers={0!r}, never={1!r}", providers, never)
    return partition(
        graph, allowed, placement, max_parts=max_parts, max_transfer_bytes=max_transfer_bytes
    )


def with_options(found: Partition, own: Tilewright) -> Partition:
    """A partition of `tw.partition`, whose kernels of this compiler are built as `own` says."""
    parts = (replace(part, provider=_with_options(part.provider, own)) for part in found.parts)
    return replace(found, parts=tuple(parts))


def _with_options(provider: Provider, own: Tilewright | None) -> Provider:
    """A provider, with the options of a build if its kernels are of this compiler."""
    if own is None:
        return provider
    if isinstance(provider, DeviceProvider):
        return provider.with_options(own.options)
    return own if provider.name == own.name else provider


def build_partition(found: Partition, target: Target, own: Tilewright) -> Model | PartitionedModel:
    """Compile the parts of a graph for a resolved target.

    Where all is Tilewright's, the result is a `Model`. Of parts elsewhere it is warned.
    """
    if all(part.provider is own for part in found.parts):
        return own.compile(found.graph, target)
    warn(found, own)
    calls = [_compiled(part, target, n, own) for n, part in enumerate(found.parts)]
    held = {number: value.data for number, value in _constants(found).items()}
    arenas = {n: call.arena_bytes for n, call in enumerate(calls) if isinstance(call, DevicePart)}
    devices = device_plan(found.plan, found.devices, arenas) if arenas else None
    return PartitionedModel(found.plan, calls, held, found.evidence(), target, devices)


def compile_partition(found: Partition, target: Target, own: Tilewright) -> BuiltPartition:
    """Compile and store the parts of a graph as an artifact has them, for a resolved target.

    Raises `UnsupportedError` for a part whose provider does not store it, and `ProviderError` where
    a provider raises.
    """
    generator = generator_for(target)
    if not generator.joins:
        raise BuildError(
            "{0}: models are built for processors, found {1}", found.graph.name, target
        )
    warn(found, own)
    constants = _constants(found)
    content = {n: _stored(p, target, n) for n, p in enumerate(found.parts) if p.provider is not own}
    built = {
        n: compile_graph(part.graph, target, **own.options, profiled=True)
        for n, part in enumerate(found.parts)
        if part.provider is own
    }
    weights = Weights()
    for constant in constants.values():
        weights.take_plain(constant)
    held = [weights.content(), *(b.compiled.weights for b in built.values())]
    sizes = [0 if array is None else array.nbytes for array in held]
    offsets = dict(zip((None, *built), accumulate(sizes, initial=0), strict=False))
    parts: list[StoredPart] = []
    for n, part in enumerate(found.parts):
        if n in content:
            file = StoredFile.of(content[n])
            version = asked(part.provider, "for its version", part.provider.version)
            parts.append(StoredPart(file=PartFile(version, file)))
        else:
            code = built[n].compiled
            assert code.profiled is not None, "it was compiled so"
            function = PartFunction(code.signature, code.profiled, offsets[n], code.guards)
            parts.append(StoredPart(function))
    stored = StoredPartition(
        found.plan, tuple(parts), tuple(weights.plain(value) for value in constants.values())
    )
    last = (Argument(WEIGHTS, "uint8", (sum(sizes),), constant=True),) if sum(sizes) else ()
    where = next((b.compiled.target for b in built.values()), None)
    compiled = joined(
        Signature(generator.function_name(found.graph.name), last),
        (),
        target if where is None else where,
        [function for b in built.values() for function in b.functions],
    )
    told = found.evidence()
    evidence = replace(
        told,
        parts=tuple(
            replace(part, kernels=built[n].evidence()) if n in built else part
            for n, part in enumerate(told.parts)
        ),
    )
    return BuiltPartition(
        replace(
            compiled,
            weights=np.concatenate([array for array in held if array is not None]),
            partition=(stored, content),
        ),
        {name: choice for b in built.values() for name, choice in b.choices.items()},
        evidence,
    )


@dataclass(frozen=True)
class BuiltPartition:
    """The code of all parts of Tilewright with what others store, the choices of the kernels by
    their names, and the evidence."""

    compiled: Compiled
    choices: Mapping[str, Choice]
    evidence: PartitionEvidence


def _stored(part: Part, target: Target, number: int) -> bytes:
    provider, operators = part.provider, elsewhere(part.graph.nodes)
    told: dict[str, Any] = {"part": number, "operators": tuple(map(label, part.graph.nodes))}
    store = partial(provider.store, part.graph, target)
    content = asked(provider, f"to store {operators}", store, **told)
    if not isinstance(content, bytes):
        raise ProviderError(
            "the provider {0}: expected the bytes of {1}, found {2!r:.80}",
            provider.name, operators, content, provider=provider.name, **told,
        )  # fmt: skip
    return content


def warn(found: Partition, own: Tilewright) -> None:
    """Say in the log which parts run elsewhere, and why."""
    for part in found.parts:
        if part.provider is not own:
            _log.warning(
                "%s: %s runs %s: %s",
                found.graph.name, part.provider.name, elsewhere(part.graph.nodes),
                part.why or "it is preferred",
            )  # fmt: skip


def _constants(found: Partition) -> dict[int, Constant]:
    """The outputs that are constants, by their numbers."""
    return {n: value for value, n in found.numbers.items() if isinstance(value, Constant)}


def _compiled(part: Part, target: Target, number: int, own: Tilewright) -> Call | DevicePart:
    provider, operators = part.provider, elsewhere(part.graph.nodes)
    told: dict[str, Any] = {"part": number, "operators": tuple(map(label, part.graph.nodes))}
    compile_part = partial(provider.compile, part.graph, target)
    call = asked(provider, f"to compile {operators}", compile_part, **told)
    if not (isinstance(call, DevicePart) if provider.device else callable(call)):
        raise ProviderError(
            "the provider {0}: expected a call of {1}, found {2!r:.80}",
            provider.name, operators, call, provider=provider.name, **told,
        )  # fmt: skip
    if provider is own or isinstance(call, DevicePart):
        return call
    return limited(provider, call, **told)
