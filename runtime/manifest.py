"""The manifest of an artifact: what is known of its files, and of each program that is in them.

It is data, written and read by the annotations of the classes here, of which
`docs/manifest.schema.json` is the JSON Schema. A kernel and a model are programs alike: a model has
a part of the weights, too, and one that several providers run has a partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Final, Literal, TypeAlias

from ..base.checked_json import Such, between, canonical_json, read, require_digest, sealed, show
from ..base.errors import ArtifactError, TargetError
from ..target import Target, registered_kinds
from .evidence import Natural
from .fixture import Fixture
from .guards import Guard, check_guards
from .module import Origin
from .signature import ABI_VERSION, WORKSPACE_ALIGNMENT, Signature
from .stored_partition import StoredPartition, stored_functions
from .target_runtime import TargetRuntime, runtime_for
from .weights_file import Size, StoredFile, StoredWeights

FORMAT_VERSION: Final = 8
OLDEST_VERSION = 4
"""Of manifests that are read: those before format 6 are of one program, those before format 7 may
be of code that calls an OpenMP runtime, which is refused. In format 8 guards have own texts."""
MAX_CODE_BYTES = 256 << 20
MARK = b"tilewright kernel: "
_Offset = Annotated[
    int,
    Such(
        f"a multiple of {WORKSPACE_ALIGNMENT} from 0 on",
        lambda offset: offset >= 0 and offset % WORKSPACE_ALIGNMENT == 0,
    ),
]
HINT = "copy the code and its manifest again, or build them anew"


@dataclass(frozen=True)
class MeasuredSchedule:
    """How a schedule was measured, as the record `id` says: seconds of a call, where, and when.

    `low` and `high` are the interval of the median. `target` and `host` are of that machine, and
    `created` is a time with its zone.
    """

    id: str
    seconds: float
    low: float
    high: float
    samples: Natural
    target: str
    host: str | None
    created: str


@dataclass(frozen=True)
class StoredSchedule:
    """The schedule of a kernel: where it comes from, its steps, and how it was measured.

    `trace` is the JSON text of a `Trace`.
    """

    origin: Origin
    trace: str | None = None
    measured: MeasuredSchedule | None = None


@dataclass(frozen=True)
class ProgramSource:
    """What a program was made of.

    `digest` is that of the program or graph, which names do not change. A graph that was read from
    a file says by which `importer`, as facts by name, and how often each rewrite was applied.
    """

    kind: Literal["program", "schedule", "graph"]
    digest: str
    importer: Mapping[str, str] | None = None
    rewrites: Mapping[str, Natural] | None = None


@dataclass(frozen=True)
class Provenance:
    """Where the code of a program comes from: `schedules` by the names of its kernels, and of a
    model the JSON form of its evidence."""

    origin: Origin
    schedules: Mapping[str, StoredSchedule] = field(default_factory=dict)
    source: ProgramSource | None = None
    evidence: Mapping[str, Any] | None = None

    @property
    def kernels(self) -> dict[str, Origin]:
        """Where the schedules of its kernels come from."""
        return {name: schedule.origin for name, schedule in self.schedules.items()}


@dataclass(frozen=True)
class WeightsSlice:
    """The bytes of the weights that a model takes as its last argument."""

    offset: _Offset
    size: Size


@dataclass(frozen=True)
class StoredProgram:
    """A program of an artifact.

    `needs` are the facts that the runtime of its kind of target asks for. Models have `weights`,
    which are their last argument if there are any, and `guards` of their indices. The signature of
    one that has a `partition` is that of a function that does nothing: its parts have their own.
    Where there is no `fixture`, `no_fixture` says why.
    """

    signature: Signature
    needs: Mapping[str, Any]
    provenance: Provenance
    weights: WeightsSlice | None = None
    guards: tuple[Guard, ...] = ()
    partition: StoredPartition | None = None
    fixture: Fixture | None = None
    no_fixture: str | None = None

    @property
    def name(self) -> str:
        return self.signature.name

    @property
    def kind(self) -> Literal["kernel", "model", "partitioned model"]:
        if self.weights is None:
            return "kernel"
        return "model" if self.partition is None else "partitioned model"


Form: TypeAlias = Literal["object file", "archive"]


@dataclass(frozen=True)
class CodeFile:
    """The file of the code. What is linked into a program before it runs says its `form`."""

    size: Annotated[int, between(0, MAX_CODE_BYTES)]
    sha256: str
    form: Form | None = None


@dataclass(frozen=True)
class ManifestFields:
    """The fields of a manifest beside versions and digest, as JSON has them.

    `alignment` is that of workspaces and of weights, in bytes.
    """

    target: str
    features: tuple[str, ...]
    toolchain: Mapping[str, str]
    alignment: Literal[64]
    code: CodeFile
    header: StoredFile | None
    weights: StoredWeights | None
    programs: tuple[StoredProgram, ...]

    def validate(self) -> None:
        """Raise `ValueError` for programs that do not go together."""
        symbols = [symbol for program in self.programs for symbol in program.signature.symbols]
        twice = next((name for name, times in Counter(symbols).items() if times > 1), None)
        if not self.programs or twice is not None:
            raise ValueError("no programs" if twice is None else f"two functions {twice!r}")
        held = 0 if self.weights is None else self.weights.size
        for own in (p.weights for p in self.programs if p.weights is not None):
            if own.offset + own.size > held:
                raise ValueError(f"weights from {own.offset} to {own.offset + own.size} of {held}")


@dataclass(frozen=True)
class Manifest:
    """The description of an artifact: its files, and its programs in their order.

    `features` are those of the target that the code uses.
    """

    target: Target
    features: tuple[str, ...]
    toolchain: Mapping[str, str]
    code: CodeFile
    header: StoredFile | None
    weights: StoredWeights | None
    programs: tuple[StoredProgram, ...]

    @cached_property
    def by_name(self) -> Mapping[str, StoredProgram]:
        return {program.name: program for program in self.programs}

    @property
    def program(self) -> StoredProgram:
        """The only program. Raises `ArtifactError` where there are several."""
        return self.named(None)

    def named(self, name: str | None) -> StoredProgram:
        """The program of that name, or the only one. Raises `ArtifactError`."""
        if name is None and len(self.programs) > 1:
            raise ArtifactError(
                "an artifact of {0} programs ({1}), expected one", len(self.programs),
                ", ".join(self.by_name), hint="name one: LIBRARY.so:NAME",
            )  # fmt: skip
        if name is not None and name not in self.by_name:
            raise ArtifactError(
                "there is no program {0!r:.80}; there are {1}", name, ", ".join(self.by_name)
            )
        return self.programs[0] if name is None else self.by_name[name]

    def to_json(self) -> dict[str, Any]:
        fields = ManifestFields(
            str(self.target), self.features, self.toolchain, WORKSPACE_ALIGNMENT, self.code,
            self.header, self.weights, self.programs,
        )  # fmt: skip
        return sealed({"format": FORMAT_VERSION, "abi": ABI_VERSION, **asdict(fields)})

    @staticmethod
    def from_json(data: Mapping[str, Any], digest: str) -> Manifest:
        """Returns the manifest of a JSON object; `digest` is that of the object.

        Raises `ArtifactError` for an unknown version or target, and for malformed content.
        """
        _check_version("format", data.get("format"), FORMAT_VERSION, OLDEST_VERSION)
        _check_version("abi", data.get("abi"), ABI_VERSION, ABI_VERSION)
        require_digest(data, digest, "the manifest", HINT)
        plain = {k: v for k, v in data.items() if k not in ("format", "abi", "digest")}
        if data["format"] < 6:
            plain = _upgraded(plain)
        found = read(ManifestFields, plain, "manifest")
        target, runtime = _kind_of(found.target)
        unknown = [name for name in found.features if name not in target.feature_names]
        if unknown:
            raise ArtifactError("manifest: unknown features {0} of {1}", show(unknown), target.kind)
        return Manifest(
            target, found.features, found.toolchain, found.code, found.header, found.weights,
            tuple(_checked(program, runtime) for program in found.programs),
        )  # fmt: skip


def _checked(program: StoredProgram, runtime: TargetRuntime) -> StoredProgram:
    """The program, whose facts go together. Raises `ArtifactError`."""
    if program.weights is not None:
        _check_weights(program.signature, program.weights)
        check_guards(program.signature, program.guards)
    if program.partition is not None:
        program.partition.check(0 if program.weights is None else program.weights.size)
    return replace(program, needs=runtime.needs(program.needs, program.signature))


def _check_weights(signature: Signature, weights: WeightsSlice) -> None:
    """Raise `ArtifactError` unless the last argument takes all of the weights, and no other."""
    arguments = signature.arguments
    found = {n: (a.dtype, a.shape) for n, a in enumerate(arguments) if a.constant}
    wanted = {len(arguments) - 1: ("uint8", (weights.size,))} if weights.size else {}
    if found != wanted:
        raise ArtifactError(
            "manifest: {0} bytes of weights, and the arguments that take them are {1}",
            weights.size, show(found), hint=HINT,
        )  # fmt: skip


def description(
    signature: Signature,
    target: Target,
    features: Sequence[str],
    needs: Mapping[str, Any],
    partition: StoredPartition | None = None,
) -> bytes:
    """The embedded description of a program: a NUL-terminated text of all that a safe call depends
    on.

    It stands anywhere in the code: in a shared library, it is the constant `<kernel>.description`.
    It is `MARK`, then as JSON the calling convention, the signature, the target, the required
    features, what the code needs to be called, and the functions of the parts of a partition.
    Raises `ArtifactError` for needs that have names of the others.
    """
    data = {
        "abi": ABI_VERSION,
        "signature": signature.to_json(),
        "target": str(target),
        "features": features,
    }
    if partition is not None:
        data["functions"] = stored_functions(partition.parts)
    if shared := needs.keys() & data.keys():
        raise ArtifactError(
            "what code for {0} needs has names of other facts: {1}", data["target"],
            ", ".join(sorted(shared)), hint="name them otherwise in `TargetRuntime.needs`",
        )  # fmt: skip
    return MARK + canonical_json({**data, **needs}).encode() + b"\0"


_OF_ALL = {"target", "features", "toolchain"}
_OF_ONE = {
    "signature", "sha256", "size", "origin", "schedule_id", "measurement_id", "weights", "guards",
    "evidence", "partition", "schedules",
}  # fmt: skip


def _upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a manifest of format 4 or 5, which has one program, as format 6 has them."""
    held, kernels = data.get("weights"), data.get("schedules")
    size = held.get("size") if isinstance(held, dict) else None
    digest = held.get("sha256") if isinstance(held, dict) else None
    needs = {k: v for k, v in data.items() if k not in _OF_ALL | _OF_ONE}
    origins = kernels if isinstance(kernels, dict) else {}
    program = {
        "signature": data.get("signature"),
        "needs": needs,
        "provenance": {
            "origin": data.get("origin"),
            "schedules": {name: {"origin": origin} for name, origin in origins.items()},
            "evidence": data.get("evidence"),
        },
        "weights": None if held is None else {"offset": 0, "size": size},
        "guards": data.get("guards") or [],
        "partition": data.get("partition"),
    }
    return {
        **{name: data.get(name) for name in sorted(_OF_ALL)},
        "alignment": WORKSPACE_ALIGNMENT,
        "code": {"size": data.get("size"), "sha256": data.get("sha256")},
        "weights": None if not size else {"size": size, "piece_bytes": size, "sha256": [digest]},
        "programs": [program],
    }


def _check_version(what: str, found: object, known: int, oldest: int) -> None:
    if type(found) is not int or found < 1:
        raise ArtifactError("manifest: expected a version of its {0}, found {1}", what, show(found))
    if found > known:
        raise ArtifactError(
            "manifest: {0} version {1} is newer than {2}, the newest that is known here",
            what,
            show(found),
            known,
            hint="update tilewright, or build the artifact with this version",
        )
    if found < oldest:
        raise ArtifactError(
            "manifest: {0} version {1} is not supported any more, expected {2}",
            what,
            found,
            oldest if oldest == known else f"{oldest} to {known}",
            hint="build the artifact anew",
        )


def _kind_of(text: str) -> tuple[Target, TargetRuntime]:
    """The target of its text, and the runtime of its kind."""
    kind = text.partition(" ")[0]
    if kind not in registered_kinds():
        raise ArtifactError(
            "the artifact is for targets of kind {0}, expected one of {1}",
            show(kind),
            ", ".join(registered_kinds()),
            hint="import the module that registers the kind before you load it, or update "
            "tilewright",
        )
    try:
        target = Target.parse(text)
        return target, runtime_for(target)
    except TargetError as error:
        raise ArtifactError("manifest: target: {0}", error) from error
