"""The C header of a library or object file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..base import __version__
from ..target import FEATURES, CpuTarget
from .guards import FIRST_GUARD, Guard
from .host import CPUINFO
from .signature import (
    ABI_VERSION,
    OK,
    UNUSABLE_WORKSPACE,
    WORKSPACE_ALIGNMENT,
    Argument,
    Signature,
)


class WeightsNote(NamedTuple):
    """The bytes of the weights' file, of that name, that the last argument of a model takes."""

    file: str
    offset: int
    size: int


class Declared(NamedTuple):
    """A program that a header declares; models have `weights`, if any, and `guards`."""

    signature: Signature
    weights: WeightsNote | None = None
    guards: Sequence[Guard] = ()


def c_header(
    name: str,
    file: str,
    target: CpuTarget,
    programs: Sequence[Declared],
    libraries: Sequence[str] = (),
) -> str:
    """The C header of a `file` with code for a target, to be linked with `libraries` too.

    It declares the programs and their packing functions, documents the arguments, and defines
    `<name>_runs_here`, which says whether the processor has what the code needs.
    """
    guard = f"TILEWRIGHT_{name}_H"
    return "\n".join(
        [
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stdint.h>",
            *_INCLUDED.get(target.arch, ["#include <stdio.h>", "#include <string.h>"]),
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "/*",
            f" * Code for {target}",
            f" * by Tilewright {__version__}, calling convention {ABI_VERSION}.",
            f" * {_linked(_shown(file), target, programs, libraries)}",
            " */",
            *(line for program in programs for line in _declaration(program)),
            "",
            *_check(f"{name}_runs_here", target),
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            f"#endif /* {guard} */",
            "",
        ]
    )


def _linked(
    file: str, target: CpuTarget, programs: Sequence[Declared], libraries: Sequence[str]
) -> str:
    """How to link the file."""
    if target.arch != "wasm32":
        return " ".join(["Link", file, "-lm", *libraries])
    exported = " ".join(f"--export={program.signature.name}" for program in programs)
    return f"Link it with a C program, or alone: wasm-ld --no-entry {exported} {file}"


def _declaration(program: Declared) -> list[str]:
    """The lines of a program, after an empty one."""
    signature, weights, guards = program
    lines = [_describe(a).replace("*/", "* /") for a in signature.arguments]
    functions = (signature, *signature.packers)
    places = {} if weights is None else {"OFFSET": weights.offset, "BYTES": weights.size}
    return [
        "",
        "/*",
        *(f" * {line}" for line in lines),
        " *",
        *_weights_note(signature, weights),
        *_WORKSPACE_NOTE,
        *(f" * {line}" for line in _guard_note(guards)),
        " * Outputs must not overlap with any other argument. Calls are thread-safe.",
        *_range_note(signature),
        " */",
        *(f"#define {_size_name(f)} {f.workspace_bytes}" for f in functions),
        *(f"#define {signature.name}_WEIGHTS_{what} {n}" for what, n in places.items()),
        *(f"{f.c_declaration()};" for f in functions),
    ]


def _check(function: str, target: CpuTarget) -> list[str]:
    """A function that looks for the features where `check_machine` does, or the system's own."""
    if target.arch == "wasm32":
        return [*_NO_CHECK_NOTE, f"static inline int {function}(void) {{", *_RUNS, "}"]
    if target.arch in _INCLUDED:
        return [*_CAPABILITIES_NOTE, f"static inline int {function}(void) {{",
                *_capabilities(target), "}"]  # fmt: skip
    flags = [FEATURES[name].flag for name in target.features]
    rows = [flags[start : start + _PER_LINE] for start in range(0, len(flags), _PER_LINE)]
    needed = ["        " + "".join(f'" {flag} ", ' for flag in row).rstrip() for row in rows]
    return [
        *_CHECK_NOTE,
        f"static inline int {function}(void) {{",
        *([*_NEEDED, *needed, *_FIND] if flags else _RUNS),
        "}",
    ]


def _capabilities(target: CpuTarget) -> list[str]:
    """The lines that compare with the capabilities that Linux tells a program."""
    words = {"AT_HWCAP": 0, "AT_HWCAP2": 0}
    for name in target.features:
        word, bit = CAPABILITIES[name]
        words[word] |= 1 << bit
    compared = [
        f"(getauxval({w}) & {bits:#x}UL) == {bits:#x}UL" for w, bits in words.items() if bits
    ]
    found = "\n        && ".join(compared) or "1"
    return ["#ifdef __linux__", f"    return {found};", "#else", "    return 0;", "#endif"]


CAPABILITIES: dict[str, tuple[str, int]] = {
    "neon": ("AT_HWCAP", 1),
    "fullfp16": ("AT_HWCAP", 10),
    "dotprod": ("AT_HWCAP", 20),
    "sve": ("AT_HWCAP", 22),
    "i8mm": ("AT_HWCAP2", 13),
    "bf16": ("AT_HWCAP2", 14),
    **{letter: ("AT_HWCAP", ord(letter) - ord("a")) for letter in "macfdv"},
}
"""The word and bit that say that a processor of 64-bit ARM or RISC-V has a feature.

Linux, Documentation/arch/arm64/elf_hwcaps.rst, and arch/riscv/include/uapi/asm/hwcap.h.
"""
_AUXV = ["#ifdef __linux__", "#include <sys/auxv.h>", "#endif"]
_INCLUDED: dict[str, list[str]] = {"aarch64": _AUXV, "riscv64": _AUXV, "wasm32": []}
_CAPABILITIES_NOTE = [
    "/*",
    " * Returns 1 if this processor has the features that the code needs, and 0 if it has not, or",
    " * if the system does not say: Linux does. Call it before anything else.",
    " */",
]
_NO_CHECK_NOTE = [
    "/*",
    " * Returns 1: an engine refuses a module with instructions that it does not have.",
    " */",
]
_CHECK_NOTE = [
    "/*",
    " * Returns 1 if this processor has the features that the code needs, and 0 if it has not, or",
    f" * if the system does not say: Linux does, in {CPUINFO}. Call it before anything else.",
    " */",
]
_PER_LINE = 5
_RUNS = ["    return 1;"]
_NEEDED = ["    static const char *const needed[] = {"]
_FIND = f"""\
    }};
    const size_t count = sizeof needed / sizeof *needed;
    size_t found = 0, length;
    char line[8192];
    FILE *const file = fopen("{CPUINFO}", "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line - 1, file))
        if (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)) {{
            length = strcspn(line, "\\n");
            line[length] = ' ';
            line[length + 1] = 0;
            while (found < count && strstr(line, needed[found]))
                found++;
            break;
        }}
    fclose(file);
    return found == count;
""".splitlines()

_WORKSPACE_NOTE = [
    " * A workspace is for one call at a time and overlaps with no argument. It has at least the",
    f" * WORKSPACE_BYTES of its function, aligned to {WORKSPACE_ALIGNMENT}, and may be null for 0.",
    " * Its content need not be initialised and is garbage afterwards.",
    " *",
    f" * Returns {OK}, or {UNUSABLE_WORKSPACE} if a needed workspace is null or not aligned.",
]


def _guard_note(guards: Sequence[Guard]) -> list[str]:
    """The status of each guard."""
    return [
        f"Returns {status} if {_reason(guard)}." for status, guard in enumerate(guards, FIRST_GUARD)
    ]


def _reason(guard: Guard) -> str:
    what = "an index is out of range" if guard.broken is None else "an assertion does not hold"
    return f"{what}, {_shown(guard.text).removesuffix('.')}"


def _weights_note(signature: Signature, weights: WeightsNote | None) -> list[str]:
    if weights is None:
        return []
    return [
        f" * {signature.arguments[-1].name} has the bytes of {_shown(weights.file)} from",
        f" * {signature.name}_WEIGHTS_OFFSET on and is only read. It is aligned to",
        f" * {WORKSPACE_ALIGNMENT}, as a file is that is mapped.",
        " *",
    ]


def _size_name(function: Signature) -> str:
    """The C constant that is the bytes of a function's workspace: C tells `f` from `F`."""
    return f"{function.name}_WORKSPACE_BYTES"


def _range_note(signature: Signature) -> list[str]:
    if all(a.value_range is None or a.role == "out" for a in signature.arguments):
        return []
    return [" * Values are not checked: other ones make it read or write other memory."]


def _shown(name: str) -> str:
    """What a model says as text of a comment, which it cannot end: anybody may have chosen it."""
    return "".join(c if c.isprintable() and c not in "*\\" else f"\\u{ord(c):04x}" for c in name)


def _describe(argument: Argument) -> str:
    text = f"{_shown(argument.name)}: {argument.role} {argument.kind} {_elements(argument)}"
    packing = argument.packing
    if packing is None:
        return text
    return f"{text}, as {packing.packer} makes it of {_elements(packing.operand)}: {packing.layout}"


def _elements(argument: Argument) -> str:
    shape = "".join(f"[{n}]" for n in argument.shape)
    strides = "" if argument.strides is None else f", strides {argument.strides} elements"
    text = f"{argument.dtype}{shape}{strides}"
    if argument.value_range is None or argument.role == "out":
        return text
    low, high = argument.value_range
    return f"{text}, values from {low} to {high - 1}"
