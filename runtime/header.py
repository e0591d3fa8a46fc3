"""The C header of a kernel."""

from __future__ import annotations

from .signature import OK, OUT_OF_MEMORY, Argument, Signature


def c_header(signature: Signature) -> str:
    """A C header that declares the kernel and what packs for it, and says what arguments are."""
    guard = f"TILEWRIGHT_{signature.name.upper()}_H"
    lines = [_describe(a).replace("*/", "* /") for a in signature.arguments]
    return "\n".join(
        [
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "/*",
            *(f" * {line}" for line in lines),
            " *",
            f" * Returns {OK}, or {OUT_OF_MEMORY} if an internal buffer could not be allocated.",
            " * Outputs must not overlap with any other argument. Calls are thread-safe.",
            *_range_note(signature),
            " */",
            f"{signature.c_declaration()};",
            *(f"{packer.c_declaration()};" for packer in signature.packers),
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            f"#endif /* {guard} */",
            "",
        ]
    )


def _range_note(signature: Signature) -> list[str]:
    if all(a.value_range is None or a.role == "out" for a in signature.arguments):
        return []
    return [" * Values are not checked: other ones make it read or write other memory."]


def _describe(argument: Argument) -> str:
    text = f"{argument.name}: {argument.role} {argument.kind} {_elements(argument)}"
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
