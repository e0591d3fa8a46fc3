"""Kernels for other machines, called by a C program that an emulator runs, or Node.js.

One program calls many kernels: it reads their arguments from one file and writes what they computed
to another. Arrays are aligned to their elements alone, workspaces to what the header says, and all
lie between margins, which must not change; constant operands are packed by the kernel's own
functions first.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.base.dtypes import to_numpy
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cpu.generator import runs_parallel
from tilewright.runtime.header import Declared, c_header
from tilewright.runtime.signature import C_TYPES, Argument, Signature
from tilewright.target import CpuTarget

Array = Any
MARGIN = 64


@dataclass(frozen=True)
class Machine:
    """How programs for an architecture are compiled, and run.

    `processors` are the words of the emulator for each target: a processor that has just its
    instructions, where the emulator knows that.
    """

    compiler: tuple[str, ...]
    emulator: tuple[str, ...]
    processors: Mapping[str, Sequence[str]]
    files: tuple[Path, ...] = ()

    @property
    def missing(self) -> str | None:
        """What is not here of the programs and files that it takes, as a sentence."""
        programs = [name for name in (self.compiler[0], self.emulator[0]) if not shutil.which(name)]
        missing = programs + [str(path) for path in self.files if not path.exists()]
        if not missing:
            return None
        return f"no {' and no '.join(missing)}: `make cross-tools` installs them"

    @property
    def needed(self) -> pytest.MarkDecorator:
        """Marks tests that run code for the architecture."""
        return pytest.mark.skipif(self.missing is not None, reason=str(self.missing))

    def compile(self, program: Path, files: Sequence[str | Path], *options: str) -> None:
        """Compile and link a C program. Raises `AssertionError` where that fails."""
        words = [*self.compiler, "-Wall", "-Werror", *options, "-o", program, *files, "-lm"]
        _execute(words, program.parent)

    def run(self, mcpu: str, program: Path, *arguments: str | Path) -> str:
        """The standard output of a program. Raises `AssertionError` where it fails."""
        words = [*self.emulator, *self.processors[mcpu], program, *arguments]
        return _execute(words, program.parent)


ARM = Machine(
    ("aarch64-linux-gnu-gcc", "-static"),
    ("qemu-aarch64",),
    {
        "generic": ("-cpu", "cortex-a53"),
        "cortex-a76": ("-cpu", "cortex-a76"),
        "neoverse-n1": ("-cpu", "neoverse-n1"),
        "neoverse-v1": ("-cpu", "max"),
    },
)
# QEMU 7.2 takes `vfncvt.rtz.xu.f.w` from float32 to 16 bits for an instruction of Zvfh, and ends.
RISCV = Machine(
    ("riscv64-linux-gnu-gcc", "-static"),
    ("qemu-riscv64",),
    {
        "riscv64": ("-cpu", "rv64"),
        "riscv64 -mattr=+v": ("-cpu", "rv64,v=true,vlen=128"),
    },
)
WASM = Machine(
    ("clang", "--target=wasm32-wasi", "-O1"),
    ("node", "--no-warnings", str(Path(__file__).with_name("wasi.mjs"))),
    {"wasm32": (), "wasm32 -mattr=-simd128": ()},
    (Path("/usr/lib/wasm32-wasi/libc.a"),),
)
MACHINES = {name: m for m in (ARM, RISCV, WASM) for name in m.processors}
"""The machine that runs code for each target, by what follows `-mcpu=`."""
emulated = ARM.needed


@dataclass(frozen=True)
class Call:
    """A compiled kernel and its arguments, in order; constant operands as they are, not packed."""

    compiled: Compiled
    arguments: Sequence[Any]


def header_of(compiled: Compiled, file: str) -> str:
    """The header of a compiled kernel in an object file."""
    return c_header(
        compiled.signature.name, file, CpuTarget.of(compiled.target),
        [Declared(compiled.signature)], ["-lgomp"] if runs_parallel(compiled) else [],
    )  # fmt: skip


def run(calls: Sequence[Call], mcpu: str, folder: Path) -> list[list[Array]]:
    """The outputs after each call, in order, on the machine of `MACHINES[mcpu]`.

    Raises `AssertionError` where one fails.
    """
    machine = MACHINES[mcpu]
    lines = ["#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>"]
    lines += ["#include <string.h>", _HELPERS]
    objects, data = [], bytearray()
    for n, call in enumerate(calls):
        object_file, header = folder / f"k{n}.o", folder / f"k{n}.h"
        object_file.write_bytes(call.compiled.image)
        header.write_text(header_of(call.compiled, object_file.name), encoding="utf-8")
        objects.append(str(object_file))
        lines += [f'#include "{header.name}"', *_function(n, call)]
        for argument, value in zip(call.compiled.signature.arguments, call.arguments, strict=True):
            data += np.asarray(value, to_numpy(_given(argument).dtype)).tobytes()
    lines.append("int main(int count, char **names) {")
    lines.append('    if (count != 3 || !(in = fopen(names[1], "rb"))) return 98;')
    lines.append('    if (!(out = fopen(names[2], "wb"))) return 98;')
    lines += [f"    run{n}();" for n in range(len(calls))]
    lines += ["    return fclose(out) ? 98 : 0;", "}", ""]
    (folder / "main.c").write_text("\n".join(lines), encoding="utf-8")
    (folder / "in").write_bytes(data)
    program = folder / "program"
    parallel = ["-fopenmp"] if any(runs_parallel(c.compiled) for c in calls) else []
    machine.compile(program, [folder / "main.c", *objects], *parallel)
    machine.run(mcpu, program, folder / "in", folder / "out")
    return _outputs(calls, (folder / "out").read_bytes())


def _outputs(calls: Sequence[Call], data: bytes) -> list[list[Array]]:
    at, found = 0, []
    for call in calls:
        arrays = []
        for a in call.compiled.signature.arguments:
            if a.written:
                array = np.frombuffer(data, to_numpy(a.dtype), a.size, at)
                arrays.append(array.reshape(a.shape))
                at += a.size * a.itemsize
        found.append(arrays)
    assert at == len(data)
    return found


def _execute(command: Sequence[str | Path], folder: Path) -> str:
    """The standard output of a command that is run in a folder."""
    done = subprocess.run(
        [str(c) for c in command], cwd=folder, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{command[0]} gave {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout


def _given(argument: Argument) -> Argument:
    """The argument that callers have: the operand itself of one that is packed."""
    return argument if argument.packing is None else argument.packing.operand


_HELPERS = f"""
static FILE *in, *out;
static const size_t margin = {MARGIN};

static void fail(int kernel, const char *what) {{
    fprintf(stderr, "kernel %d: %s\\n", kernel, what);
    exit(99);
}}

static void *space(size_t bytes, size_t item) {{
    unsigned char *p = aligned_alloc(64, (bytes + item + 2 * margin + 63) / 64 * 64);
    if (!p) fail(-1, "no memory");
    memset(p, 0xA5, bytes + item + 2 * margin);
    return p + margin + item;
}}

static void *given(size_t bytes, size_t item) {{
    void *p = space(bytes, item);
    if (fread(p, 1, bytes, in) != bytes) fail(-1, "the input ends");
    return p;
}}

static void kept(int kernel, const void *array, size_t bytes) {{
    const unsigned char *p = array;
    for (size_t k = 1; k <= margin; k++)
        if (p[-k] != 0xA5 || p[bytes + k - 1] != 0xA5) fail(kernel, "written beyond an array");
}}
"""


def _function(n: int, call: Call) -> list[str]:
    """The C function that reads the arguments of call `n`, calls it and writes its outputs."""
    signature = call.compiled.signature
    lines = [f"static void run{n}(void) {{"]
    checks = list[tuple[str, int]]()

    def called(function: Signature, *arguments: str) -> str:
        """The call of a function with a workspace; null if it needs none."""
        size = f"{function.name}_WORKSPACE_BYTES"
        workspace = f"w{len(checks)}"
        lines.append(f"    void *{workspace} = {size} ? space({size}, 0) : 0;")
        if function.workspace_bytes:
            checks.append((workspace, function.workspace_bytes))
        return f"{function.name}({', '.join([*arguments, workspace])})"

    for k, a in enumerate(signature.arguments):
        own, c_type = _given(a), C_TYPES[a.dtype]
        if a.kind == "scalar":
            lines.append(f"    {c_type} a{k};")
            lines.append(f'    if (fread(&a{k}, sizeof a{k}, 1, in) != 1) fail({n}, "no scalar");')
            continue
        lines.append(f"    void *a{k} = given({_bytes(own)}, {own.itemsize});")
        checks.append((f"a{k}", _bytes(own)))
        if a.packer is not None:
            lines.append(f"    void *o{k} = a{k};")
            lines.append(f"    a{k} = space({_bytes(a)}, {a.itemsize});")
            checks[-1] = (f"a{k}", _bytes(a))
            packing = called(a.packer, f"o{k}", f"a{k}")
            lines.append(f'    if ({packing}) fail({n}, "packing");')
            lines.append(f"    kept({n}, o{k}, {_bytes(own)});")
    call_of_kernel = called(signature, *(f"a{k}" for k in range(len(signature.arguments))))
    lines.append(f'    if ({call_of_kernel}) fail({n}, "an error code");')
    lines += [f"    kept({n}, {name}, {size});" for name, size in checks]
    lines += [
        f'    if (fwrite(a{k}, 1, {_bytes(a)}, out) != {_bytes(a)}) fail({n}, "no space left");'
        for k, a in enumerate(signature.arguments)
        if a.written
    ]
    return [*lines, "}", ""]


def _bytes(a: Argument) -> int:
    assert a.strides is None
    return math.prod(a.shape) * a.itemsize
