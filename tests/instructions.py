"""Questions to assembly text: the processor that it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping

from tilewright.target import CpuTarget

_WIDE = {
    r"%zmm": ("avx512f",),
    r"%ymm": ("avx",),
    r"%[xy]mm(1[6-9]|2\d|3[01])\b": ("avx512vl",),
    r"%k[0-7]\b": ("avx512f",),
    r"%tmm": ("amx-tile",),
}
"""Registers on x86-64, as patterns, and the features any of which has them."""

_X86 = {
    **_WIDE,
    r"v": ("avx",),
    r"vp[^e]\S* .*%ymm": ("avx2",),
    r"v(perm(d|q|ps|pd)|inserti128|extracti128|p?gather\w+|ps[lr][la]v[dq]) ": ("avx2",),
    r"vfn?m(add|sub)\w*[sp][sd] ": ("fma", "avx512f"),
    r"vcvt(ph2ps|ps2ph) ": ("f16c", "avx512f"),
    r"vpdp(busd|wssd)s? ": ("avx512vnni", "avxvnni"),
    r"v(dpbf16ps|cvtne\w*bf16) ": ("avx512bf16",),
    r"v(add|sub|mul|div|sqrt|cmp|max|min|rndscale|fn?m\w+|mov)\w*[ps]h ": ("avx512fp16",),
    r"v(pmullq|cvtt?p[sd]2u?qq|cvtu?qq2p[sd]|range|reduce|fpclass)": ("avx512dq",),
    r"v(permb|perm[it]2b|pmultishiftqb) ": ("avx512vbmi",),
    r"v(p(compress|expand)[bw]|psh[lr]dv?[wdq]) ": ("avx512vbmi2",),
    r"vpopcnt[bw] ": ("avx512bitalg",),
    r"vpopcnt[dq] ": ("avx512vpopcntdq",),
    r"vpmadd52": ("avx512ifma",),
    r"vp(conflict|lzcnt)": ("avx512cd",),
    r"v?gf2p8": ("gfni",),
    r"tdpb[su][su]d ": ("amx-int8",),
    r"tdpbf16ps ": ("amx-bf16",),
    r"tdpfp16ps ": ("amx-fp16",),
    r"(h(add|sub)p|addsubp)[sd] |mov(s[hl]|d)dup |lddqu ": ("sse3",),
    r"pshufb |palignr |pabs[bwd] |pmaddubsw |pmulhrsw |ph(add|sub)\w+ |psign[bwd] ": ("ssse3",),
    r"pmov[sz]x|pmul(ld|dq) |p(max|min)(s[bd]|u[dw]) |p?blend|round[sp][sd] |ptest ": ("sse4.1",),
    r"p(inser|ext)r[bdq] |insertps |extractps |packusdw |pcmpeqq |dpp[sd] |movntdqa ": ("sse4.1",),
    r"pcmpgtq |crc32": ("sse4.2",),
    r"movnts[sd] |(extr|insert)q ": ("sse4a",),
    r"popcnt": ("popcnt",),
    r"lzcnt": ("lzcnt",),
    r"(andn|bls(i|r|msk)|bextr|tzcnt)[lq]? ": ("bmi",),
    r"(mulx|pdep|pext|bzhi|rorx|s[ah][lr]x)[lq]? ": ("bmi2",),
    r"movbe": ("movbe",),
    r"ad[co]x[lq]? ": ("adx",),
    r"cmpxchg16b ": ("cx16",),
    r"prefetchw ": ("prfchw",),
}
_AARCH64 = {
    r"\S+ .*\bz\d+\.[bhsdq]\b|ptrue |while\w+ ": ("sve",),
    r"[su]dot ": ("dotprod",),
    r"(us|su)dot |[us]mmla |usmmla ": ("i8mm",),
    r"bf(dot|mmla|mlal[bt]|cvtn?2?) ": ("bf16",),
    r"f(?!cvt|mov)\w+ .*(v\d+\.[48]h|\bh\d+\b)": ("fullfp16",),
}
_RISCV = {r"v[a-z]": ("v",)}
_WASM = {
    r"(v128|[if]\d+x\d+)\.": ("simd128",),
    r"i\d+\.extend(8|16|32)_s ": ("sign-ext",),
    r"i\d+\.trunc_sat": ("nontrapping-fptoint",),
    r"memory\.(copy|fill) ": ("bulk-memory",),
}
_TABLES: dict[str, Mapping[str, tuple[str, ...]]] = {
    "x86_64": _X86,
    "aarch64": _AARCH64,
    "riscv64": _RISCV,
    "wasm32": _WASM,
}


def instructions(assembly: str) -> Iterator[str]:
    """The instructions of assembly text, one line each, without comments and prefixes."""
    for line in assembly.splitlines():
        text = re.split(r"\s#|//", line, maxsplit=1)[0]
        found = re.match(r"\t(?:\{\w+\}\s+)?([a-z]\S*)(?:\s+(.*))?$", text.rstrip())
        if found:
            yield f"{found[1]} {found[2] or ''}"


def beyond(assembly: str, target: CpuTarget) -> list[str]:
    """Instructions and registers that `target` does not have, each with the features that do.

    It knows those that a compiler chooses for kernels, no more.
    """
    table = _TABLES[target.arch]
    missing = [
        (re.compile(rf".*{pattern}" if pattern in _WIDE else pattern), " or ".join(features))
        for pattern, features in table.items()
        if not any(name in target.features for name in features)
    ]
    return sorted(
        {
            f"{instruction.strip()} (takes {features})"
            for instruction in instructions(assembly)
            for pattern, features in missing
            if pattern.match(instruction)
        }
    )


def widest(assembly: str) -> int:
    """Bits of the widest vector register of x86-64 that is named, 0 for none."""
    widths = {"x": 128, "y": 256, "z": 512}
    return max((widths[w] for w in re.findall(r"%([xyz])mm\d", assembly)), default=0)


class Assembler:
    """GNU's assembler, told what a target has: it knows all instructions, where it is installed.

    `present` says whether there is one that knows the target's features. It is for x86-64.
    """

    def __init__(self, target: CpuTarget) -> None:
        names = [_GNU.get(name, name) for name in target.features]
        self._command = ["as", "-march=" + "+".join(["generic64", *names]), "-o", os.devnull]
        known = target.arch == "x86_64" and shutil.which("as") is not None
        self.present = known and self._run("") == ""

    def refused(self, assembly: str) -> list[str]:
        """The assembler's errors for assembly text, each once."""
        said = re.findall(r"Error: (.*)", self._run(assembly))
        return sorted(set(said))

    def _run(self, assembly: str) -> str:
        done = subprocess.run(
            self._command, input=assembly, capture_output=True, text=True, check=False
        )
        return done.stderr


_GNU = {
    "avxvnni": "avx_vnni",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
    "amx-fp16": "amx_fp16",
}
