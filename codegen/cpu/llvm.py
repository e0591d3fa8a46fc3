"""Emit an LLVM module for a lowered `Func`, and compile it to object code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from llvmlite import binding

from ...base import dtypes
from ...base.errors import BuildError
from ...runtime.signature import OK, UNUSABLE_WORKSPACE, Signature
from ...target import CPUS, CpuTarget
from ...tir.instruction import Instruction
from ...tir.ir import STREAM, Buffer, Func, Store, Var
from ..passes.intervals import Intervals
from ..passes.rewrite import ranges_of, statements
from . import llvm_expr as _expressions  # noqa: F401  fills the table of expressions
from . import llvm_stmt as _statements  # noqa: F401  fills the table of statements
from .llvm_loop import stmt
from .llvm_memory import (
    finish,
    slot_parameters,
    slot_pointers,
    unusable,
)
from .llvm_text import Builder, Module, value_type


class Emitted(NamedTuple):
    """The LLVM module of an entry point, as text.

    `parallel`: it has loops of several threads. `instructions` are those whose `code` it calls.
    """

    text: str
    symbol: str
    argument_bytes: int
    workspace_bytes: int
    parallel: bool
    instructions: frozenset[Instruction]


class _Parameter(NamedTuple):
    """A parameter: its type as in a call, what is known of it, and its name."""

    type: str
    facts: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.facts} {self.name}"


_NO_LOOPS: Mapping[Var, int] = {}


def emit(
    func: Func,
    signature: Signature,
    target: CpuTarget,
    *,
    strict_fp: bool = False,
    loops: Mapping[Var, int] = _NO_LOOPS,
) -> Emitted:
    """The LLVM module of a lowered function, not optimised.

    Basic blocks are named after `loops`, the numbers of the program's loops.
    """
    module = Module(signature.name, target, strict_fp)
    module.loops = loops
    module.intervals = Intervals(ranges_of(func.body))
    written = {s.buffer for s in statements(func.body) if type(s) is Store}
    module.inputs = frozenset(p for p in func.params if type(p) is Buffer and p not in written)
    arrays = {n: p for n, p in enumerate(func.params) if type(p) is Buffer}
    module.streamed = frozenset(arrays[n] for n in dict(func.annotations).get(STREAM, ()))
    b = Builder(module)
    parameters = list[_Parameter]()
    for number, (p, argument) in enumerate(zip(func.params, signature.arguments, strict=True)):
        operand = f"%a{number}"
        if isinstance(p, Var):
            parameters.append(_Parameter(_scalar(b, p, operand), "", operand))
            continue
        b.pointers[p] = operand
        facts = ["noalias captures(none)"]
        if p in module.inputs:
            facts.append("readonly")
        if argument.size:
            facts += [f"nonnull align {argument.itemsize} dereferenceable({argument.span_bytes})"]
        parameters.append(_Parameter("ptr", " ".join(facts), operand))
    stmt(b, func.body)
    parts = [
        *preamble(target),
        *module.declarations.values(),
        *module.functions,
        *_functions(b, parameters),
        f"attributes #0 = {{ {_attributes(target)} }}",
        "!0 = !{}",
        "!1 = !{i32 1}",
    ]
    return Emitted(
        "\n\n".join(parts) + "\n",
        signature.name,
        sum(a.span_bytes for a in signature.arguments),
        sum(b.slots),
        module.parallel,
        frozenset(module.instructions),
    )


def _functions(b: Builder, parameters: Sequence[_Parameter]) -> list[str]:
    """The kernel as C calls it. If it uses the workspace, it is two functions: the first checks it
    and calls the other with pointers into it that are known not to alias."""
    name, result = b.module.name, status_type(b.module.target)
    declared = ", ".join([*map(str, parameters), "ptr noalias %workspace"])
    if not b.slots:
        finish(b, f"ret i32 {OK}")
        return [f"define {result} @{name}({declared}) #0 {{\n{b.text()}\n}}"]
    finish(b, "ret void")
    inner = ", ".join([*map(str, parameters), *slot_parameters(b.slots)])
    body = f"define internal void @{name}.body({inner}) noinline #0 {{\n{b.text()}\n}}"
    entry = Builder(b.module)
    refused, usable = entry.new_block("refused"), entry.new_block("usable")
    entry.branch(unusable(entry, "%workspace"), refused, usable)
    entry.start(refused)
    entry.block.end = f"ret i32 {UNUSABLE_WORKSPACE}"
    entry.start(usable)
    given = [f"{p.type} {p.name}" for p in parameters]
    given += slot_pointers(entry, b.slots, "%workspace")
    entry.do(f"call void @{name}.body({', '.join(given)})")
    entry.block.end = f"ret i32 {OK}"
    return [body, f"define {result} @{name}({declared}) #0 {{\n{entry.text()}\n}}"]


def preamble(target: CpuTarget) -> list[str]:
    """The first lines of a module: its triple, and the layout of data where addresses are not of
    64 bits, which LLVM assumes before it makes machine code."""
    lines = [f'target triple = "{target.triple}"']
    if target.pointer_bits != 64:
        lines.append(f'target datalayout = "{target_machine(target).target_data}"')
    return lines


def status_type(target: CpuTarget) -> str:
    """The type of what a function returns. C on RISC-V takes all 64 bits of the register for it."""
    return "signext i32" if target.arch == "riscv64" else "i32"


def optimise(text: str, target: CpuTarget) -> binding.ModuleRef:
    """Parse, verify and optimise the text of a module; see `parse` for the errors.

    The emitted code is vectorized, unrolled and hoisted, and accumulates in registers. So a few
    passes are enough: they inline vector functions, promote slots, remove dead code, and turn
    branches into selects.
    """
    module = parse(text)
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    options = binding.create_pipeline_tuning_options()
    passes.run(module, binding.create_pass_builder(target_machine(target), options))
    return module


_NEXT = "\n; the next module\n"


def several(texts: Iterable[str]) -> str:
    """The texts of modules as one text, of which `modules` makes them again."""
    return _NEXT.join(texts)


def modules(text: str) -> list[str]:
    """The texts of the modules that a text is of."""
    return text.split(_NEXT)


def parse(text: str) -> binding.ModuleRef:
    """Parse the text of a module. Raises `BuildError` if it is invalid, a bug of this package."""
    try:
        module = binding.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise BuildError("LLVM refuses the generated code: {0}", error, text=text) from error
    return module


_WIDENS_SINGLE_LANES = frozenset({22})
"""Major versions of LLVM that write beyond the lane. Where a masked store of truncated integers has
one lane, code for AVX-512 stores that lane as it was before it was truncated."""
_ONE_LANE = re.compile(
    r"^  (?:tail )?call void @llvm\.masked\.store\.\w+\.p0\("
    r"(?P<type><\d+ x (?P<lane>\w+)>) (?P<value>.+), ptr align (?P<align>\d+) (?P<at>%[\w.]+), "
    r"<\d+ x i1> <(?P<before>(?:i1 false, )*)i1 true(?:, i1 false)*>\).*$",
    re.MULTILINE,
)


def widens_single_lanes() -> bool:
    """Whether this LLVM writes beyond a single lane."""
    return binding.llvm_version_info[0] in _WIDENS_SINGLE_LANES


def without_single_lanes(text: str) -> str:
    """The text of a module with stores of one lane in the place of masked stores of one.

    The text as it is for a version of LLVM that stores them right.
    """
    if not widens_single_lanes() or "@llvm.masked.store" not in text:
        return text

    def plain(found: re.Match[str]) -> str:
        place, name = found["before"].count(","), f"%lane.{found.start()}"
        vector, lane = found["type"], found["lane"]
        return (
            f"  {name} = extractelement {vector} {found['value']}, i64 {place}\n"
            f"  {name}.at = getelementptr {lane}, ptr {found['at']}, i64 {place}\n"
            f"  store {lane} {name}, ptr {name}.at, align {found['align']}"
        )

    return _ONE_LANE.sub(plain, text)


def object_code(module: binding.ModuleRef, target: CpuTarget) -> bytes:
    """The object file of a module."""
    code: bytes = target_machine(target).emit_object(module)
    return code


def assembly(module: binding.ModuleRef, target: CpuTarget) -> str:
    """The assembly text of a module."""
    text: str = target_machine(target).emit_assembly(module)
    return text


def verbose_assembly(module: binding.ModuleRef, target: CpuTarget) -> str:
    """The assembly text of a module with LLVM's comments."""
    machine = _machine(target)
    machine.set_asm_verbosity(True)
    text: str = machine.emit_assembly(module)
    return text


@cache
def target_machine(target: CpuTarget) -> Any:
    """LLVM's description of a resolved target. Raises `BuildError` if LLVM does not know it."""
    return _machine(target)


def _machine(target: CpuTarget) -> Any:
    initialize()
    try:
        found = binding.Target.from_triple(target.triple)
    except RuntimeError as error:
        raise BuildError(
            "this LLVM makes no code for {0}; it does for {1}",
            target.triple,
            ", ".join(_known()) or "nothing",
            hint="install llvmlite from PyPI, whose LLVM has all targets",
        ) from error
    return found.create_target_machine(
        cpu=target.llvm_cpu,
        features=target.llvm_features,
        opt=3,
        reloc="static" if target.arch == "wasm32" else "pic",
        codemodel="default",
    )


def _known() -> Iterator[str]:
    """The architectures of the table of processors that this LLVM makes code for."""
    for arch in sorted({cpu.arch for cpu in CPUS.values()}):
        with suppress(RuntimeError):
            binding.Target.from_triple(arch)
            yield arch


@cache
def initialize() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def _scalar(b: Builder, p: Var, operand: str) -> str:
    """The type of a parameter by value: bool as a byte, narrow floats as their bits.

    Without `signext` and `zeroext`: callers need not extend what is narrower than a register (on
    64-bit ARM those in C do not).
    """
    if dtypes.is_bool(p.dtype):
        b.values[p] = (b.op(f"icmp ne i8 {operand}, 0"), 0)
        return "i8"
    b.values[p] = (operand, 0)
    return value_type(p.dtype)


def _attributes(target: CpuTarget) -> str:
    width = target.vector_bits
    pairs = {
        "target-cpu": target.llvm_cpu,
        "target-features": target.llvm_features,
        "prefer-vector-width": str(width),
        "min-legal-vector-width": str(width),
        "no-trapping-math": "true",
    }
    return "nounwind " + " ".join(f'"{k}"="{v}"' for k, v in pairs.items())
