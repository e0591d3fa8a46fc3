"""What the manifest of a partitioned model has beside that of a model, and how it is loaded.

The code has a function for each part of Tilewright, which takes its slice of the weights. Parts of
other providers are files of their own beside the code, `det.so.part1`: no manifest names a file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import dtypes
from ..base.checked_json import read, show
from ..base.errors import ArtifactError, ProviderError
from .evidence import Evidence, Natural
from .guards import Guard, check_guards
from .model import Array, Model
from .part_loader import Call, load_part
from .partition_evidence import PartitionEvidence
from .partition_plan import PartitionPlan
from .partitioned import PartitionedModel
from .profile import Instrumented, signatures
from .signature import Signature
from .target_runtime import TargetRuntime
from .weights_file import StoredFile

if TYPE_CHECKING:
    from .manifest import Manifest, StoredProgram


@dataclass(frozen=True)
class PartFunction:
    """A function of the code that runs a part, and the steps of it that a profile times.

    Its last argument are the weights from an offset on, if it has any.
    """

    signature: Signature
    profiled: Natural
    weights: Natural
    guards: tuple[Guard, ...]


@dataclass(frozen=True)
class PartFile:
    """What another provider has stored, and the version of what ran it there."""

    version: str
    content: StoredFile


@dataclass(frozen=True)
class StoredPart:
    """A part, which has a function or a file."""

    function: PartFunction | None = None
    file: PartFile | None = None

    def validate(self) -> None:
        """Raise `ValueError` for a part that has neither, or both."""
        if (self.function is None) is (self.file is None):
            raise ValueError("expected a function or a file")


@dataclass(frozen=True)
class StoredPartition:
    """The parts of a model in an artifact. Constants among the outputs are at these offsets of the
    weights."""

    plan: PartitionPlan
    parts: tuple[StoredPart, ...]
    constants: tuple[Natural, ...]

    def validate(self) -> None:
        """Raise `ValueError` where parts are not those of the plan."""
        if len(self.parts) != len(self.plan.parts):
            raise ValueError(f"{len(self.parts)} parts, expected {len(self.plan.parts)}")
        if len(self.constants) != len(self.plan.constants):
            raise ValueError("a constant has no offset")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: object) -> StoredPartition:
        """Those of the JSON form. Raises `ArtifactError` for anything malformed."""
        return read(StoredPartition, data, "manifest: partition")

    @property
    def files(self) -> Mapping[int, PartFile]:
        """The files by the numbers of the parts."""
        return {n: part.file for n, part in enumerate(self.parts) if part.file is not None}

    def check(self, weights: int) -> None:
        """Raise `ArtifactError` for functions that do not take what their part has, and for what
        is not in so many bytes of weights."""
        plan = self.plan
        for number, (part, own) in enumerate(zip(plan.parts, self.parts, strict=True)):
            if own.function is None:
                continue
            signature, offset = own.function.signature, own.function.weights
            arguments = [(a.dtype, a.shape, a.role) for a in signature.arguments]
            values = [("in", n) for n in part.reads] + [("out", n) for n in part.writes]
            wanted: list[Any] = [
                (plan.values[n].dtype, plan.values[n].shape, role) for role, n in values
            ]
            held = _weights_of(signature)
            if held:
                wanted.append(("uint8", (held,), "in"))
            if offset + held > weights:
                raise ArtifactError(
                    "manifest: part {0} takes the weights from {1} to {2}, found {3} bytes",
                    number, offset, offset + held, weights,
                )  # fmt: skip
            if arguments != wanted:
                raise ArtifactError(
                    "manifest: part {0} takes {1}, expected {2}", number, show(arguments),
                    show(wanted),
                )  # fmt: skip
            check_guards(signature, own.function.guards)
        for number, offset in zip(plan.constants, self.constants, strict=True):
            value = plan.values[number]
            if dtypes.UNKNOWN in value.shape or offset + value.bytes > weights:
                raise ArtifactError("manifest: output {0} is not in the weights", number)


def part_path(code: Path, number: int) -> Path:
    """The path of a part that another provider runs: `det.so.part1` beside `det.so`."""
    return code.with_name(f"{code.name}.part{number}")


def check_allowed(stored: StoredPartition, never: Collection[str], code: Path) -> None:
    """Raise `ProviderError` for a part of a provider that is forbidden."""
    for number, part in enumerate(stored.plan.parts):
        if part.provider in never:
            raise ProviderError(
                "{0}: part {1} is run by {2}, which never={3!r} forbids",
                code, number, part.provider, tuple(never), provider=part.provider,
                hint="build it with providers that may run it",
            )  # fmt: skip


def load_partition(
    manifest: Manifest,
    program: StoredProgram,
    code: bytes,
    weights: Array,
    files: Mapping[int, bytes],
    path: Path,
    runtime: TargetRuntime,
) -> PartitionedModel:
    """The model of a program of an artifact, of its files' contents.

    Raises `ArtifactError`, and `ProviderError` for parts that their provider does not load here.
    """
    stored = program.partition
    assert stored is not None, "it is that of a partitioned model"
    evidence = read(PartitionEvidence, program.provenance.evidence, "manifest: evidence")
    if len(evidence.parts) != len(stored.parts):
        raise ArtifactError("manifest: the evidence is of {0} parts", len(evidence.parts))
    calls: list[Call] = []
    for number, (part, own) in enumerate(zip(stored.plan.parts, stored.parts, strict=True)):
        if own.function is not None:
            kernels = evidence.parts[number].kernels
            calls.append(
                _model(manifest, program, own.function, kernels, code, weights, path, runtime)
            )
        elif own.file is not None:
            told = {"part": number, "operators": evidence.parts[number].operators}
            version, content = own.file.version, files[number]
            calls.append(load_part(part.provider, version, content, manifest.target, **told))
    constants = {
        number: _constant(stored, number, offset, weights)
        for number, offset in zip(stored.plan.constants, stored.constants, strict=True)
    }
    return PartitionedModel(stored.plan, calls, constants, evidence, manifest.target)


def _model(
    manifest: Manifest,
    program: StoredProgram,
    function: PartFunction,
    kernels: Evidence | None,
    code: bytes,
    weights: Array,
    path: Path,
    runtime: TargetRuntime,
) -> Model:
    """The model of a part."""

    def module(signature: Signature) -> Any:
        own = replace(program, signature=signature)
        return runtime.load(manifest, own, code, path, trust_indices=False)

    def instrumented() -> Instrumented:
        return Instrumented(*map(module, signatures(function.signature, function.profiled)))

    held = weights[function.weights :][: _weights_of(function.signature)]
    names = () if kernels is None else [kernel.name for kernel in kernels.kernels]
    origins = program.provenance.kernels
    return Model(
        module(function.signature),
        held,
        {name: origins[name] for name in names if name in origins},
        None if kernels is None else partial(_same, kernels),
        instrumented,
        function.guards,
    )


def _same(evidence: Evidence) -> Evidence:
    return evidence


def _weights_of(signature: Signature) -> int:
    """The bytes of weights that a function takes, as its last argument."""
    last = signature.arguments[-1:]
    return sum(a.span_bytes for a in last if a.constant)


def _constant(stored: StoredPartition, number: int, offset: int, weights: Array) -> Array:
    value = stored.plan.values[number]
    content = weights[offset:][: value.bytes]
    return content.view(dtypes.to_numpy(value.dtype)).reshape(value.shape)


def stored_functions(parts: Sequence[StoredPart]) -> list[dict[str, Any]]:
    """What a safe call of the functions of parts depends on, as data: the code carries it too."""
    functions = (part.function for part in parts if part.function is not None)
    return [{"signature": f.signature.to_json(), "profiled": f.profiled} for f in functions]
