"""The function that calls the kernels of a sequence, as LLVM IR, and the image of them all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from ...runtime.guards import FIRST_GUARD
from ...runtime.signature import (
    OK,
    UNUSABLE_WORKSPACE,
    WORKSPACE_ALIGNMENT,
    Argument,
    Signature,
)
from ...target import CpuTarget
from ..compiled import Compiled, Launch, Need
from ..generator import Code
from ..sequence import Address, Fill, Function, KernelCall, Repeat, SequenceStep, Stamp
from . import llvm
from .archive import archive, members
from .generator import runs_parallel
from .glue_range import range_function
from .llvm_text import memory_type

_Facts: TypeAlias = tuple[Argument, int, int]
"""Those of a guard: its indices, and what they are compared with."""


def entry(functions: Sequence[Function], kernels: Sequence[Compiled], target: CpuTarget) -> Code:
    """The image of the functions, of which the first is the entry, and the kernels.

    It is an archive of object files. What packs operands of the entry are functions of the kernels.
    """
    text, (signature, _) = _text(functions, kernels, target), functions[0]
    objects = [llvm.object_code(llvm.parse(text), target)]
    for kernel in kernels:
        objects += members(kernel.image)
    objects = list(dict.fromkeys(objects))  # loops have kernels in common
    needs: dict[str, Need] = {"parallel": True} if any(map(runs_parallel, kernels)) else {}
    texts = llvm.several([text, *(kernel.text for kernel in kernels)])
    own = {launch.symbol: launch for kernel in kernels for launch in kernel.launches}
    packers = [own[packer.name] for packer in signature.packers]
    launches = (Launch(signature.name, needs), *packers)
    return Code(archive(objects), launches, signature.workspaces, texts)


def _text(functions: Sequence[Function], kernels: Sequence[Compiled], target: CpuTarget) -> str:
    checks: dict[_Facts, str] = {}
    written = [_function(*function, target, checks) for function in functions]
    above = dict.fromkeys(line for facts, n in checks.items() for line in range_function(n, *facts))
    declarations = [
        f"declare i32 @{k.signature.name}({', '.join(_types(k.signature))})" for k in kernels
    ]
    size = f"i{target.pointer_bits}"
    return "\n".join(
        [
            *llvm.preamble(target),
            f"declare void @llvm.memcpy.p0.p0.{size}(ptr, ptr, {size}, i1)",
            f"declare void @llvm.memset.p0.{size}(ptr, i8, {size}, i1)",
            "declare i32 @clock_gettime(i32, ptr)",
            *declarations,
            *above,
            *written,
            "",
        ]
    )


def _function(
    signature: Signature,
    steps: Sequence[SequenceStep],
    target: CpuTarget,
    checks: dict[_Facts, str],
) -> str:
    """The function of these steps, where `checks` has the functions of guards by their facts."""
    names = [*(f"%a{n}" for n in range(len(signature.arguments))), "%workspace"]
    body = _Body(checks, f"i{target.pointer_bits}")
    body.take(steps, names)
    parameters = [f"{t} {name}" for t, name in zip(_types(signature), names, strict=True)]
    first = _workspace_check() if signature.workspace_bytes else []
    lines = "\n  ".join(["entry:", *body.counters, *first, *body.lines, f"ret i32 {OK}"])
    result = llvm.status_type(target)
    return f"define {result} @{signature.name}({', '.join(parameters)}) {{\n  {lines}\n}}"


class _Body:
    """The lines of a function in the making, and those that make room for counters of loops.

    `size` is the type of numbers of bytes.
    """

    def __init__(self, checks: dict[_Facts, str], size: str) -> None:
        self.lines: list[str] = []
        self.counters: list[str] = []
        self._checks, self._size = checks, size
        self._count = self._statuses = 0

    def take(self, steps: Sequence[SequenceStep], frame: Sequence[str]) -> None:
        """Take steps whose arguments are the pointers of a frame, the workspace last."""
        for step in steps:
            if isinstance(step, KernelCall):
                self._call(step, frame)
            elif isinstance(step, Repeat):
                self._repeat(step, frame)
            elif isinstance(step, Stamp):
                place = self._pointer(step.place, frame)
                self.lines.append(
                    f"call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr {place})"
                )
            elif isinstance(step, Fill):
                place, size = self._pointer(step.place, frame), self._size
                self.lines.append(
                    f"call void @llvm.memset.p0.{size}(ptr {place}, i8 -1, {size} {step.bytes}, "
                    "i1 false)"
                )
            else:
                to, source = (self._pointer(p, frame) for p in (step.destination, step.source))
                size = self._size
                self.lines.append(
                    f"call void @llvm.memcpy.p0.p0.{size}(ptr {to}, ptr {source}, "
                    f"{size} {step.bytes}, i1 false)"
                )

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _pointer(self, place: Address | None, frame: Sequence[str]) -> str:
        if place is None:
            return "null"
        base = frame[-1 if place.argument is None else place.argument]
        return self._behind(base, str(place.offset)) if place.offset else base

    def _behind(self, base: str, offset: str) -> str:
        name = f"%p{self._number()}"
        self.lines.append(f"{name} = getelementptr i8, ptr {base}, i64 {offset}")
        return name

    def _call(self, step: KernelCall, frame: Sequence[str]) -> None:
        for guard in step.guards:
            facts = (replace(guard.data, name=""), guard.least, guard.greatest)
            check = self._checks.setdefault(facts, f"guard.{len(self._checks)}")
            indices = self._pointer(Address(guard.argument, guard.offset), frame)
            status = self._statuses
            self.lines += [
                f"%g{status} = call i1 @{check}(ptr {indices})",
                f"br i1 %g{status}, label %within{status}, label %outside{status}",
                f"outside{status}:",
                f"ret i32 {FIRST_GUARD + status}",
                f"within{status}:",
            ]
            self._statuses += 1
        types = _types(step.kernel.signature)
        places = (*step.places, step.workspace)
        operands = [f"{t} {self._pointer(p, frame)}" for t, p in zip(types, places, strict=True)]
        name, number = step.kernel.signature.name, self._number()
        self.lines += [
            f"%s{number} = call i32 @{name}({', '.join(operands)})",
            f"%f{number} = icmp ne i32 %s{number}, {OK}",
            f"br i1 %f{number}, label %failed{number}, label %next{number}",
            f"failed{number}:",
            f"ret i32 %s{number}",
            f"next{number}:",
        ]

    def _repeat(self, step: Repeat, frame: Sequence[str]) -> None:
        first = [self._pointer(place, frame) for place in step.places]
        workspace = self._pointer(step.workspace, frame)
        number = self._number()
        self.counters.append(f"%c{number} = alloca i64")
        self.lines += [
            f"store i64 0, ptr %c{number}",
            f"br label %again{number}",
            f"again{number}:",
            f"%i{number} = load i64, ptr %c{number}",
        ]
        inner = []
        for base, stride in zip(first, step.strides, strict=True):
            if stride:
                moved = f"%o{self._number()}"
                self.lines.append(f"{moved} = mul i64 %i{number}, {stride}")
                inner.append(self._behind(base, moved))
            else:
                inner.append(base)
        self.take(step.steps, [*inner, workspace])
        self.lines += [
            f"%n{number} = add i64 %i{number}, 1",
            f"store i64 %n{number}, ptr %c{number}",
            f"%m{number} = icmp ult i64 %n{number}, {step.count}",
            f"br i1 %m{number}, label %again{number}, label %done{number}",
            f"done{number}:",
        ]


def _types(signature: Signature) -> list[str]:
    """The types of the parameters of a kernel, its workspace last."""
    own = ("ptr" if a.kind == "tensor" else memory_type(a.dtype) for a in signature.arguments)
    return [*own, "ptr"]


def _workspace_check() -> list[str]:
    return [
        "%address = ptrtoint ptr %workspace to i64",
        f"%low = and i64 %address, {WORKSPACE_ALIGNMENT - 1}",
        "%odd = icmp ne i64 %low, 0",
        "%null = icmp eq ptr %workspace, null",
        "%unusable = or i1 %odd, %null",
        "br i1 %unusable, label %refused, label %begin",
        "refused:",
        f"ret i32 {UNUSABLE_WORKSPACE}",
        "begin:",
    ]
