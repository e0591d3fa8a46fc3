"""A kind of target from outside of the package: kernels that the interpreter runs.

All that a kind takes is in this file: the record of its facts, a runtime with memory and artifacts
of its own, a code generator, sketch rules, an estimate, and their names. One rule takes register
tiles, as those for processors do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import numpy as np

from tilewright.autotune.model.profile import Ints, Profile, profile
from tilewright.autotune.model.target_model import (
    Estimate,
    Roofline,
    SampledFacts,
    TargetModel,
    register_model,
)
from tilewright.autotune.rules import register_rules
from tilewright.autotune.rules.access_patterns import extents, reduced, spatial
from tilewright.autotune.rules.common import block_loops, lanes_for, widest
from tilewright.autotune.rules.draft import Draft
from tilewright.autotune.rules.register_tiles import sample_tile
from tilewright.autotune.rules.rule import Group, GroupKind, RuleSet, SketchRule, Variant
from tilewright.base import dtypes
from tilewright.base.checked_json import read
from tilewright.base.errors import (
    ArtifactError,
    BuildError,
    ParseError,
    TargetError,
    TuningError,
)
from tilewright.base.files import File
from tilewright.codegen.compiled import Compiled, Launch
from tilewright.codegen.generator import (
    Code,
    CodeGenerator,
    Part,
    Pass,
    Source,
    Tools,
    register_generator,
)
from tilewright.codegen.passes.blocks import blocks
from tilewright.codegen.passes.flatten import flatten
from tilewright.runtime import dlpack
from tilewright.runtime.argument_checks import ctypes_parameters
from tilewright.runtime.artifact import ProgramContent, artifact_files
from tilewright.runtime.host_memory import HOST_MEMORY
from tilewright.runtime.manifest import Manifest, Provenance, StoredProgram, description
from tilewright.runtime.memory import Memory, View
from tilewright.runtime.module import Module, Origin
from tilewright.runtime.signature import UNUSABLE_WORKSPACE, Argument, Signature
from tilewright.runtime.target_runtime import TargetRuntime, register_runtime
from tilewright.runtime.timer import Timer, Timing, TimingOptions
from tilewright.schedule import Schedule
from tilewright.target import Fact, Target, register_kind
from tilewright.tir.evaluate import Columns
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func, Label, product
from tilewright.tir.parser import parse

from .attack.capsules import Fields as Exported

ORDERS = ("forward", "shuffled")
CALL, VISIT = 1e-4, 1e-6
"""Seconds of a call, and of one visit of a block."""
NOTES = 64
"""Bytes of the workspace of each kernel."""


@register_kind
@dataclass(frozen=True, kw_only=True)
class ToyTarget(Target):
    """An interpreter. `order` is that of the iterations of loops that have none.

    It takes `visit` seconds for each visit of a block.
    """

    kind: ClassVar[str] = "toy"
    option_names: ClassVar[tuple[str, ...]] = ("order",)

    order: str = ""
    visit: float = field(default=VISIT, compare=False)

    @classmethod
    def from_options(cls, options: Mapping[str, str], text: str) -> Self:
        order = options.get("order", "")
        if order not in ("", *ORDERS):
            raise TargetError("-order={0} in {1!r}: expected one of {2}", order, text, ORDERS)
        return cls(order=order)

    def options(self) -> Iterator[str]:
        if self.order:
            yield f"-order={self.order}"

    @property
    def resolved(self) -> bool:
        return bool(self.order)

    @property
    def compat_class(self) -> str:
        return self.kind

    @property
    def perf_class(self) -> str:
        return f"{self.kind}/{self.order}"

    @property
    def hardware(self) -> dict[str, str]:
        return {"model": "interpreter"}

    @property
    def facts(self) -> dict[str, Fact]:
        return {"order": self.order or None}

    @property
    def vector_bits(self) -> int:
        return 64

    @property
    def vector_registers(self) -> int:
        return 8


class ToyArray:
    """An array in the memory of toys, which numpy does not take. Its library is `toys`."""

    def __init__(self, view: View) -> None:
        self._view = view

    @classmethod
    def of(cls, values: np.ndarray[Any, Any]) -> Self:
        """A copy of an array of the host."""
        argument = Argument("values", dtypes.from_numpy(values.dtype), values.shape)
        array: Self = MEMORY.empty(argument)
        MEMORY.write(array._view, values)
        return array

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy for the host."""
        return MEMORY.read(self._view)

    def __len__(self) -> int:
        return self._view.shape[0]

    def part(self, number: int) -> ToyArray:
        """The array from an element of its first dimension on."""
        view = self._view
        pointer = view.pointer + number * view.byte_strides[0]
        shape = (view.shape[0] - number, *view.shape[1:])
        return ToyArray(view._replace(pointer=pointer, shape=shape))

    def transposed(self) -> ToyArray:
        view = self._view
        shape, strides = view.shape[::-1], view.byte_strides[::-1]
        return ToyArray(view._replace(shape=shape, strides=strides))

    def __dlpack_device__(self) -> tuple[int, int]:
        return ToyMemory.DEVICE, 0

    def __dlpack__(self, **_options: Any) -> object:
        view = self._view
        code, bits = dlpack.CODES[view.dtype]
        fields = Exported(
            data=view.pointer,
            rank=len(view.shape),
            code=code,
            bits=bits,
            lanes=1,
            shape=view.shape,
            strides=tuple(n * 8 // bits for n in view.byte_strides),
            device=ToyMemory.DEVICE,
        )
        self._exported = fields  # its capsules do not hold what they are of
        return fields.capsule()


class ToyMemory(Memory):
    """Memory that the host cannot address: it is `AWAY` from where pointers say.

    Addresses are multiples of 16, and arrays are told by DLPack's device for tests.
    """

    library: ClassVar[str] = "toys"
    DEVICE = 12
    AWAY = 1 << 62

    def __init__(self) -> None:
        self.synchronized = 0

    def view(self, value: Any, name: str) -> View:
        found = dlpack.view(value, name, self.DEVICE, "ToyArray.of")
        return found._replace(owner=(value, found.owner))

    def array(self, view: View) -> ToyArray:
        return ToyArray(view)

    def allocate(self, size: int) -> ToyArray:
        whole = HOST_MEMORY.allocate(size)
        view = HOST_MEMORY.view(whole, "whole")
        return ToyArray(view._replace(pointer=view.pointer + self.AWAY))

    def read(self, view: View) -> np.ndarray[Any, Any]:
        return self.elements(view).copy()

    def write(self, view: View, values: Any) -> None:
        self.elements(view)[...] = values

    def synchronize(self, seconds: float | None = None) -> None:
        self.synchronized += 1

    def alignment(self, argument: Argument) -> int:
        return 16

    def elements(self, view: View) -> np.ndarray[Any, Any]:
        """The elements themselves, for toys alone."""
        return HOST_MEMORY.array(view._replace(pointer=view.pointer - self.AWAY))


MEMORY = ToyMemory()


class ToyTimer(Timer):
    """At most `MOST` samples of a kernel; nothing caches the data of an interpreter."""

    MOST = 2
    flushed = 0

    def time_calls(self, run: Callable[[], object], **options: Unpack[TimingOptions]) -> Timing:
        options["min_samples"], options["max_samples"] = 1, self.MOST
        return super().time_calls(run, **options)

    def flusher(self, target: Target) -> Callable[[], object]:
        def flush() -> None:
            ToyTimer.flushed += 1

        return flush


class ToyRuntime(TargetRuntime):
    """The code of an artifact is the text of a program, and behind it its description.

    `orders` are those that this machine knows. A manifest says the `order` of its kernel.
    """

    memory: ClassVar[Memory] = MEMORY
    timer: ClassVar[Timer] = ToyTimer()
    orders = ORDERS

    def needs(self, data: Mapping[str, Any], signature: Signature) -> dict[str, Any]:
        return {"order": read(str, data.get("order"), "manifest: order")}

    def load(
        self,
        manifest: Manifest,
        program: StoredProgram,
        code: bytes,
        path: Path,
        *,
        trust_indices: bool,
    ) -> Module:
        order = program.needs["order"]
        if order not in self.orders:
            raise ArtifactError("{0} is for the order {1}, which this toy lacks", path, order)
        func, target = program_of(code), manifest.target
        if func.name != program.signature.name:
            raise ArtifactError("{0} has no function {1}", path, program.signature.name)
        origin = program.provenance.origin
        return toy_module(func, order, program.signature, target, origin, trust_indices)


def program_of(code: bytes) -> Func:
    """The program in code, which may have a description. Raises `ArtifactError` for no program."""
    try:
        return parse(code.partition(b"\n#")[0].decode())
    except (ParseError, UnicodeDecodeError) as error:
        raise ArtifactError("its code is no program: {0}", error) from error


def toy_module(
    func: Func,
    order: Any,
    signature: Signature,
    target: Target,
    origin: Origin,
    trust_indices: bool,
    sources: Mapping[str, Callable[[], str]] | None = None,
) -> Module:
    """A module whose kernel is interpreted."""
    parameters = ctypes_parameters(signature)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *parameters)(_entry(func, order, signature))
    address = ctypes.cast(entry, ctypes.c_void_p).value
    assert address is not None
    return Module(
        signature,
        [address],
        target,
        origin=origin,
        sources=sources,
        owner=entry,
        trust_indices=trust_indices,
    )


def _entry(func: Func, order: Any, signature: Signature) -> Callable[..., int]:
    """The kernel as a function of pointers and numbers; what it returns is its status."""

    def run(*values: Any) -> int:
        *numbers, workspace = values
        if workspace is None or workspace < ToyMemory.AWAY:
            return UNUSABLE_WORKSPACE
        given = zip(signature.arguments, numbers, strict=True)
        try:
            places = [_array(a, v) if a.kind == "tensor" else v for a, v in given]
            interpret(func, *places, order=order)
        except Exception:  # noqa: BLE001 - a status is all that C has
            return 2
        return 0

    return run


def _array(argument: Argument, address: int) -> np.ndarray[Any, Any]:
    """The memory of a tensor, with one index."""
    count = argument.span_bytes // argument.itemsize
    return MEMORY.elements(View(address, argument.dtype, (count,), None, False, None))


class ToyGenerator(CodeGenerator[ToyTarget, str]):
    """Its code is the text of the lowered program."""

    @property
    def sources(self) -> Mapping[str, Source]:
        why = "Prints the program, as the interpreter runs its text."
        return {"script": Source(lambda compiled: compiled.text, why)}

    def host(self) -> ToyTarget:
        return ToyTarget(order=ORDERS[0])

    def resolve(self, wanted: ToyTarget) -> ToyTarget:
        return wanted if wanted.order else replace(wanted, order=ORDERS[0])

    def check_runnable(self, target: ToyTarget) -> None:
        """All of them run here."""

    def tools(self) -> Tools:
        return Tools("toy 1", {"toy": "1.0"})

    def timed_on(self, target: ToyTarget) -> ToyTarget:
        return target

    def passes(self, target: ToyTarget) -> tuple[Pass, ...]:
        return (
            Pass("blocks", blocks, "Replaces blocks by plain stores, which the interpreter runs."),
            Pass("flatten", flatten, "Turns indices into one offset, as in the memory of toys."),
        )

    def emit(self, parts: Sequence[Part], target: ToyTarget, *, strict_fp: bool) -> str:
        if len(parts) > 1:
            raise BuildError("{0} packs operands, which toys do not", parts[0].signature.name)
        return str(replace(parts[0].func, name=parts[0].signature.name))

    def compile(self, emitted: str, target: ToyTarget) -> Code:
        launch = Launch(parse(emitted).name, {"order": target.order})
        return Code(emitted.encode(), (launch,), (NOTES,), emitted)

    def check(self, compiled: Compiled) -> None:
        func = program_of(compiled.image)
        if func.name != compiled.signature.name:
            raise ArtifactError("its code is of {0}", func.name)

    def load(self, compiled: Compiled, origin: Origin, *, trust_indices: bool) -> Module:
        (launch,) = compiled.launches
        return toy_module(
            program_of(compiled.image),
            launch.needs["order"],
            compiled.signature,
            compiled.target,
            origin,
            trust_indices,
            {"script": lambda: compiled.source("script")},
        )

    def check_files(
        self, path: Path, target: ToyTarget, *, intermediate: bool, linker: str | None = None
    ) -> None:
        """Any will do."""

    def files(
        self,
        programs: Sequence[tuple[Compiled, Provenance]],
        path: Path,
        toolchain: Mapping[str, str],
        *,
        intermediate: bool,
        linker: str | None = None,
    ) -> tuple[File, ...]:
        ((compiled, provenance),) = programs
        signature, target, (launch,) = compiled.signature, compiled.target, compiled.launches
        described = description(signature, target, target.features, launch.needs)
        code = File(path, compiled.image + b"\n#" + described)
        content = ProgramContent(signature, launch.needs, provenance)
        return artifact_files(code, target, toolchain, [content])

    def environment(self, target: ToyTarget, *, runs: bool) -> dict[str, str]:
        return {"TOY": "runs" if runs else "builds"}

    def addresses(self, target: ToyTarget) -> int | None:
        return None


def cut(draft: Draft, labels: Sequence[Label]) -> None:
    """Cut the outermost loop of each block in two."""
    sch = draft.schedule
    for label in map(sch.get_block, labels):
        loop = sch.get_loops(label)[0]
        outer, _ = sch.split(loop, factors=sch.sample_perfect_tile(loop, 2))
        draft.map_outer(outer)


def halved(draft: Draft, group: Group) -> Iterator[Variant]:
    """The outermost loop of each block is cut in two."""
    del draft
    yield Variant.of("cut", partial(cut, labels=group.labels))


def tiled(draft: Draft, group: Group) -> Iterator[Variant]:
    """A contraction in register tiles, by the decisions that all kinds of targets share."""
    del draft
    main, *following = group.labels

    def schedule(draft: Draft) -> None:
        sch = draft.schedule
        label, target = sch.get_block(main), draft.target
        block = draft.block(label)
        *_, vector = spatial(block)
        extent, loops = extents(block)[vector], block_loops(sch, label)
        lanes = lanes_for(target.vector_bits, widest(block), extent)
        vectors = -(-extent // lanes)
        tile = sample_tile(sch, block, vector, lanes, vectors, (1, 2), cached=False)
        draft.limit("a tile fits the registers", tile.accumulators < target.vector_registers)
        parts = {v: sch.split(loops[v], factors=[None, tile.width(v)]) for v in tile.inner}
        outer = [parts[v][0] if v in parts else loops[v] for v in spatial(block)]
        inner = [within for _, within in parts.values()]
        sch.reorder(*outer, *(loops[v] for v in reduced(block)), *inner)
        draft.map_outer(outer[0])

    yield Variant.of("tile", schedule, partial(cut, labels=following))


RULES = RuleSet(
    map_outer=Schedule.parallel,
    rules=(
        SketchRule("toy_tile", GroupKind.CONTRACTION, tiled),
        *(
            SketchRule("toy_cut", kind, halved)
            for kind in GroupKind
            if kind is not GroupKind.ORDERED
        ),
    ),
)


class ToyEstimator:
    """Visits take all the time. The outermost loops are the second feature."""

    def __init__(self, source: Profile, target: Target) -> None:
        visits = [product(v.extents) for v in source.visits]
        outer = [v.extents[0] for v in source.visits if v.extents]
        self._count, self._visit = len(visits), ToyTarget.of(target).visit
        self._columns = Columns([*visits, *outer], source.bounds)

    def __call__(self, rows: Ints) -> Estimate:
        numbers = self._columns(rows)
        seconds = CALL + self._visit * numbers[:, : self._count].sum(axis=1)
        outer = 1.0 + numbers[:, self._count :].sum(axis=1)
        return Estimate(seconds, np.log2(np.stack([seconds, outer], axis=1)).astype(np.float32))


def toy_roofline(func: Func, target: Target) -> Roofline:
    visits = ToyEstimator(profile(func), target)(np.zeros((1, 0), dtype=np.int64))
    return Roofline(float(visits.seconds[0]), 0.0)


class ToyFacts(SampledFacts):
    """The `visit` of a target."""

    def of(self, target: Target) -> dict[str, Any]:
        return {"visit": ToyTarget.of(target).visit}

    def described(self, target: Target, facts: Mapping[str, Any]) -> ToyTarget:
        if facts.keys() != {"visit"} or not isinstance(facts["visit"], float):
            raise TuningError("expected the seconds of a visit of {0}, found {1}", target, facts)
        return replace(ToyTarget.of(target), visit=facts["visit"])


MODEL = TargetModel(("log_seconds", "outer"), "toy 1", ToyEstimator, toy_roofline, facts=ToyFacts())

register_runtime(ToyTarget.kind, ToyRuntime)
register_generator(ToyTarget.kind, ToyGenerator)
register_rules(ToyTarget.kind, lambda: RULES)
register_model(ToyTarget.kind, lambda: MODEL)
