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
from ..sequence import Address, Fill, Function, KernelCall, SequenceStep, Stamp
from . import llvm
from .archive import archive, members
from .glue_range import range_function
from .llvm_text import memory_type

_Facts: TypeAlias = tuple[Argument, int, int]
"""Those of a guard: its indices, and what they are compared with."""


def entry(functions: Sequence[Function], kernels: Sequence[Compiled], target: CpuTarget) -> Code:
    """The image of the functions, of which the first is the entry, and the kernels.

    It is an archive of object files. What packs operands of the entry are functions of the kernels.
    """
    text, (signature, _) = _text(functions, kernels), functions[0]
    objects = [llvm.object_code(llvm.parse(text), target)]
    for kernel in kernels:
        objects += members(kernel.image)
    teams = [
        kernel.signature.teams_symbol
        for kernel in kernels
        if any(launch.needs.get("openmp") for launch in kernel.launches)
    ]
    needs: dict[str, Need] = {"openmp": True, "teams": teams} if teams else {}
    texts = llvm.several([text, *(kernel.text for kernel in kernels)])
    own = {launch.symbol: launch for kernel in kernels for launch in kernel.launches}
    packers = [own[packer.name] for packer in signature.packers]
    launches = (Launch(signature.name, needs), *packers)
    return Code(archive(objects), launches, signature.workspaces, texts)


def _text(functions: Sequence[Function], kernels: Sequence[Compiled]) -> str:
    checks: dict[_Facts, str] = {}
    written = [_function(*function, checks) for function in functions]
    above = dict.fromkeys(line for facts, n in checks.items() for line in range_function(n, *facts))
    declarations = [
        f"declare i32 @{k.signature.name}({', '.join(_types(k.signature))})" for k in kernels
    ]
    return "\n".join(
        [
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            "declare i32 @clock_gettime(i32, ptr)",
            *declarations,
            *above,
            *written,
            "",
        ]
    )


def _function(
    signature: Signature, steps: Sequence[SequenceStep], checks: dict[_Facts, str]
) -> str:
    """The function of these steps, where `checks` has the functions of guards by their facts."""
    lines: list[str] = []
    count = statuses = 0

    def pointer(place: Address | None) -> str:
        nonlocal count
        if place is None:
            return "null"
        base = "%workspace" if place.argument is None else f"%a{place.argument}"
        if not place.offset:
            return base
        count += 1
        lines.append(f"%p{count} = getelementptr i8, ptr {base}, i64 {place.offset}")
        return f"%p{count}"

    for number, step in enumerate(steps):
        if isinstance(step, KernelCall):
            for guard in step.guards:
                facts = (replace(guard.data, name=""), guard.least, guard.greatest)
                check = checks.setdefault(facts, f"guard.{len(checks)}")
                indices = pointer(Address(guard.argument, guard.offset))
                lines += [
                    f"%g{statuses} = call i1 @{check}(ptr {indices})",
                    f"br i1 %g{statuses}, label %within{statuses}, label %outside{statuses}",
                    f"outside{statuses}:",
                    f"ret i32 {FIRST_GUARD + statuses}",
                    f"within{statuses}:",
                ]
                statuses += 1
            types = _types(step.kernel.signature)
            places = (*step.places, step.workspace)
            operands = [f"{t} {pointer(p)}" for t, p in zip(types, places, strict=True)]
            name = step.kernel.signature.name
            lines.append(f"%s{number} = call i32 @{name}({', '.join(operands)})")
            lines.append(f"%f{number} = icmp ne i32 %s{number}, {OK}")
            lines.append(f"br i1 %f{number}, label %failed{number}, label %next{number}")
            lines += [f"failed{number}:", f"ret i32 %s{number}", f"next{number}:"]
        elif isinstance(step, Stamp):
            place = pointer(step.place)
            lines.append(f"call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr {place})")
        elif isinstance(step, Fill):
            lines.append(
                f"call void @llvm.memset.p0.i64(ptr {pointer(step.place)}, i8 -1, "
                f"i64 {step.bytes}, i1 false)"
            )
        else:
            to, source = pointer(step.destination), pointer(step.source)
            lines.append(
                f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {step.bytes}, "
                "i1 false)"
            )
    names = [*(f"%a{n}" for n in range(len(signature.arguments))), "%workspace"]
    parameters = [f"{t} {name}" for t, name in zip(_types(signature), names, strict=True)]
    first = _workspace_check() if signature.workspace_bytes else []
    body = "\n  ".join(["entry:", *first, *lines, f"ret i32 {OK}"])
    return f"define i32 @{signature.name}({', '.join(parameters)}) {{\n  {body}\n}}"


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
