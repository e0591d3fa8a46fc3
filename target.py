"""Targets as plain data: what a kernel is compiled for, and facts for lowering and search.

A target has a text form, `cpu -mcpu=cascadelake -threads=1`, and is equal to another if their
texts are. Caches, line, cores and model are facts about the processor that the text does not
spell: for a named processor they come from the table below; `codegen.detect.resolve` puts those of
this machine in their place where it is the one that is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from .errors import TargetError, similar

NATIVE = "native"
KINDS = ("cpu",)
_OPTIONS = ("mcpu", "mattr", "mtriple", "threads")
_MAX_TEXT = 4096
_MAX_THREADS = 4096
_KIB = 1024
_MIB = 1024 * 1024


class Feature(NamedTuple):
    """An instruction set extension: its flag in /proc/cpuinfo, and what it is an extension of."""

    flag: str
    requires: tuple[str, ...] = ()


# Extensions that code generation may use, by LLVM's name.
FEATURES: dict[str, Feature] = {
    "cx16": Feature("cx16"),
    "popcnt": Feature("popcnt"),
    "sse3": Feature("pni"),
    "ssse3": Feature("ssse3", ("sse3",)),
    "sse4.1": Feature("sse4_1", ("ssse3",)),
    "sse4.2": Feature("sse4_2", ("sse4.1",)),
    "sse4a": Feature("sse4a", ("sse3",)),
    "lzcnt": Feature("abm"),
    "movbe": Feature("movbe"),
    "bmi": Feature("bmi1"),
    "bmi2": Feature("bmi2"),
    "adx": Feature("adx"),
    "prfchw": Feature("3dnowprefetch"),
    "aes": Feature("aes"),
    "pclmul": Feature("pclmulqdq"),
    "sha": Feature("sha_ni"),
    "gfni": Feature("gfni"),
    "avx": Feature("avx", ("sse4.2",)),
    "f16c": Feature("f16c", ("avx",)),
    "fma": Feature("fma", ("avx",)),
    "avx2": Feature("avx2", ("avx",)),
    "vaes": Feature("vaes", ("avx2", "aes")),
    "vpclmulqdq": Feature("vpclmulqdq", ("avx", "pclmul")),
    "avxvnni": Feature("avx_vnni", ("avx2",)),
    "avx512f": Feature("avx512f", ("avx2", "f16c", "fma")),
    "avx512cd": Feature("avx512cd", ("avx512f",)),
    "avx512bw": Feature("avx512bw", ("avx512f",)),
    "avx512dq": Feature("avx512dq", ("avx512f",)),
    "avx512vl": Feature("avx512vl", ("avx512f",)),
    "avx512vnni": Feature("avx512_vnni", ("avx512f",)),
    "avx512bf16": Feature("avx512_bf16", ("avx512bw",)),
    "avx512fp16": Feature("avx512_fp16", ("avx512bw", "avx512dq", "avx512vl")),
    "avx512ifma": Feature("avx512ifma", ("avx512f",)),
    "avx512vbmi": Feature("avx512vbmi", ("avx512bw",)),
    "avx512vbmi2": Feature("avx512_vbmi2", ("avx512bw",)),
    "avx512bitalg": Feature("avx512_bitalg", ("avx512bw",)),
    "avx512vpopcntdq": Feature("avx512_vpopcntdq", ("avx512f",)),
    "amx-tile": Feature("amx_tile"),
    "amx-int8": Feature("amx_int8", ("amx-tile",)),
    "amx-bf16": Feature("amx_bf16", ("amx-tile",)),
    "amx-fp16": Feature("amx_fp16", ("amx-tile",)),
    "neon": Feature("asimd"),
    "dotprod": Feature("asimddp", ("neon",)),
    "fullfp16": Feature("asimdhp", ("neon",)),
    "i8mm": Feature("i8mm", ("neon",)),
    "bf16": Feature("bf16", ("neon",)),
    "sve": Feature("sve", ("fullfp16",)),
}


def _close(names: Iterable[str]) -> frozenset[str]:
    """The features with all that they require."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(FEATURES[name].requires)
    return frozenset(found)


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    chosen = set(names)
    return tuple(name for name in FEATURES if name in chosen)


_V2 = _close(["cx16", "popcnt", "sse4.2"])
_V3 = _V2 | _close(["avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"])
_V4 = _V3 | _close(["avx512bw", "avx512cd", "avx512dq", "avx512vl"])
_HASWELL = _V3 | {"aes", "pclmul"}
_BROADWELL = _HASWELL | {"adx", "prfchw"}
_SKYLAKE_X = _V4 | _BROADWELL
_CASCADE = _SKYLAKE_X | {"avx512vnni"}
_BITS = {"avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq"}
_CRYPTO = {"gfni", "vaes", "vpclmulqdq", "sha"}
_ICELAKE = _CASCADE | _BITS | _CRYPTO
_SAPPHIRE = _ICELAKE | {"avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16"}
_ALDER = _BROADWELL | _CRYPTO | {"avxvnni"}
_ZEN = _BROADWELL | {"sha", "sse4a"}
_ZEN3 = _ZEN | {"vaes", "vpclmulqdq"}
_ZEN4 = _ZEN3 | _CASCADE | _BITS | {"avx512bf16", "gfni"}
_NEON = _close(["neon"])
_NEOVERSE = _NEON | {"dotprod", "fullfp16"}


class Cpu(NamedTuple):
    """A processor by LLVM's name: features, and bytes of the caches that one core reaches."""

    features: frozenset[str]
    l1: int
    l2: int
    l3: int
    arch: str = "x86_64"


CPUS: dict[str, Cpu] = {
    "x86-64": Cpu(frozenset(), 32 * _KIB, 256 * _KIB, 8 * _MIB),
    "x86-64-v2": Cpu(_V2, 32 * _KIB, 256 * _KIB, 8 * _MIB),
    "x86-64-v3": Cpu(_V3, 32 * _KIB, 256 * _KIB, 8 * _MIB),
    "x86-64-v4": Cpu(_V4, 32 * _KIB, 1 * _MIB, 16 * _MIB),
    "haswell": Cpu(_HASWELL, 32 * _KIB, 256 * _KIB, 8 * _MIB),
    "broadwell": Cpu(_BROADWELL, 32 * _KIB, 256 * _KIB, 8 * _MIB),
    "skylake": Cpu(_BROADWELL, 32 * _KIB, 256 * _KIB, 8 * _MIB),
    "skylake-avx512": Cpu(_SKYLAKE_X, 32 * _KIB, 1 * _MIB, 22 * _MIB),
    "cascadelake": Cpu(_CASCADE, 32 * _KIB, 1 * _MIB, 36608 * _KIB),
    "cooperlake": Cpu(_CASCADE | {"avx512bf16"}, 32 * _KIB, 1 * _MIB, 38 * _MIB),
    "icelake-client": Cpu(_ICELAKE, 48 * _KIB, 512 * _KIB, 8 * _MIB),
    "icelake-server": Cpu(_ICELAKE, 48 * _KIB, 1280 * _KIB, 48 * _MIB),
    "tigerlake": Cpu(_ICELAKE, 48 * _KIB, 1280 * _KIB, 12 * _MIB),
    "rocketlake": Cpu(_ICELAKE, 48 * _KIB, 512 * _KIB, 16 * _MIB),
    "sapphirerapids": Cpu(_SAPPHIRE, 48 * _KIB, 2 * _MIB, 60 * _MIB),
    "emeraldrapids": Cpu(_SAPPHIRE, 48 * _KIB, 2 * _MIB, 160 * _MIB),
    "graniterapids": Cpu(_SAPPHIRE | {"amx-fp16"}, 48 * _KIB, 2 * _MIB, 160 * _MIB),
    "alderlake": Cpu(_ALDER, 48 * _KIB, 1280 * _KIB, 30 * _MIB),
    "raptorlake": Cpu(_ALDER, 48 * _KIB, 2 * _MIB, 36 * _MIB),
    "meteorlake": Cpu(_ALDER, 48 * _KIB, 2 * _MIB, 24 * _MIB),
    "znver1": Cpu(_ZEN, 32 * _KIB, 512 * _KIB, 8 * _MIB),
    "znver2": Cpu(_ZEN, 32 * _KIB, 512 * _KIB, 16 * _MIB),
    "znver3": Cpu(_ZEN3, 32 * _KIB, 512 * _KIB, 32 * _MIB),
    "znver4": Cpu(_ZEN4, 32 * _KIB, 1 * _MIB, 32 * _MIB),
    "znver5": Cpu(_ZEN4 | {"avxvnni"}, 48 * _KIB, 1 * _MIB, 32 * _MIB),
    "generic": Cpu(_NEON, 32 * _KIB, 512 * _KIB, 4 * _MIB, "aarch64"),
    "cortex-a76": Cpu(_NEOVERSE, 64 * _KIB, 512 * _KIB, 4 * _MIB, "aarch64"),
    "neoverse-n1": Cpu(_NEOVERSE, 64 * _KIB, 1 * _MIB, 32 * _MIB, "aarch64"),
    "neoverse-v1": Cpu(
        _NEOVERSE | {"bf16", "i8mm", "sve"}, 64 * _KIB, 1 * _MIB, 32 * _MIB, "aarch64"
    ),
}


@dataclass(frozen=True)
class Target:
    """A place where kernels run.

    `features` are all instruction set extensions (LLVM names) that code may use. `threads` is 0
    and `mcpu` is `native` as long as they are left to the machine; `resolve` fills them in, and
    code generation takes resolved targets only. Cache sizes are bytes that one core reaches.
    """

    kind: str
    triple: str
    mcpu: str
    features: tuple[str, ...]
    threads: int
    l1_bytes: int = field(compare=False)
    l2_bytes: int = field(compare=False)
    l3_bytes: int = field(compare=False)
    line_bytes: int = field(default=64, compare=False)
    cores: int = field(default=1, compare=False)
    model: str = field(default="", compare=False)

    @staticmethod
    def parse(text: str) -> Target:
        """The target that a text such as `cpu -mcpu=cascadelake -threads=1` names.

        Raises `TargetError` for an unknown kind, option, processor or feature.
        """
        return _parse(text)

    @staticmethod
    def cpu(mcpu: str = NATIVE, *, threads: int = 0) -> Target:
        """A processor by LLVM's name with the facts of the table."""
        facts = CPUS["x86-64"] if mcpu == NATIVE else _lookup_cpu(mcpu)
        return Target(
            kind="cpu",
            triple=_default_triple(facts.arch),
            mcpu=mcpu,
            features=_ordered(facts.features),
            threads=threads,
            l1_bytes=facts.l1,
            l2_bytes=facts.l2,
            l3_bytes=facts.l3,
            cores=max(threads, 1),
        )

    def __str__(self) -> str:
        return " ".join([self.kind, *_options(self)])

    def with_threads(self, threads: int) -> Target:
        return replace(self, threads=_check_threads(str(threads)))

    @property
    def resolved(self) -> bool:
        """Whether nothing is left to the machine."""
        return self.mcpu != NATIVE and self.threads > 0

    @property
    def arch(self) -> str:
        return self.triple.partition("-")[0]

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector register."""
        if "avx512f" in self.features:
            return 512
        return 256 if "avx" in self.features else 128

    @property
    def vector_registers(self) -> int:
        return 32 if self.arch == "aarch64" or "avx512f" in self.features else 16

    @property
    def fma(self) -> bool:
        """Whether a fused multiply-add of floats is one instruction."""
        return "fma" in self.features or "neon" in self.features

    @property
    def vnni(self) -> bool:
        """Whether a dot product of four bytes added to an int32 is one instruction."""
        return any(name in self.features for name in ("avx512vnni", "avxvnni", "dotprod"))

    @property
    def llvm_features(self) -> str:
        """The feature text for LLVM: every known extension of this architecture, on or off."""
        names = (n for n in FEATURES if _arch_of(n) == self.arch)
        return ",".join(("+" if n in self.features else "-") + n for n in names)

    @property
    def cpu_flags(self) -> tuple[str, ...]:
        """What /proc/cpuinfo has to list on a machine that runs the code."""
        return tuple(FEATURES[name].flag for name in self.features)

    @property
    def compat_class(self) -> str:
        """What code is legal here: equal texts run each other's code."""
        level, extras = self.arch, set(self.features)
        if self.arch == "x86_64":
            level = baseline(self.arch, extras)
            extras -= CPUS[level].features
        return "+".join([f"{self.kind}/{level}", *_ordered(extras)])

    @property
    def perf_class(self) -> str:
        """What timings are comparable here: the processor's model and the number of threads."""
        model = f"/{self.model}" if self.model else ""
        return f"{self.kind}/{self.mcpu}{model}/threads={self.threads}"


_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def baseline(arch: str, features: Iterable[str]) -> str:
    """The richest generic processor whose features are all among `features`."""
    if arch == "aarch64":
        return "generic"
    present = set(features)
    return next(name for name in reversed(_LEVELS) if CPUS[name].features <= present)


def missing_features(target: Target, host: Target) -> tuple[str, ...]:
    """Features that code for `target` may use and `host` does not have."""
    return tuple(name for name in target.features if name not in host.features)


def check_runnable(target: Target, host: Target) -> None:
    """Raise `TargetError` unless code for `target` runs on `host`."""
    if target.arch != host.arch:
        raise TargetError(
            "target {0} is for {1}, this machine is {2}",
            target,
            target.arch,
            host.arch,
            hint="build an object file or shared library for it instead",
        )
    missing = missing_features(target, host)
    if missing:
        raise TargetError(
            "target {0} needs {1}, which this machine ({2}) does not have",
            target,
            ", ".join(missing),
            host.mcpu,
            hint="use the target `cpu`, or build a shared library to run elsewhere",
            missing=missing,
        )


@cache
def _parse(text: str) -> Target:
    words = text.split()
    if not words or len(text) > _MAX_TEXT:
        raise TargetError("expected a target such as `cpu`, found a text of {0} bytes", len(text))
    kind, *options = words
    if kind not in KINDS:
        raise TargetError(
            "unknown target kind {0!r}; known: {1}",
            kind,
            ", ".join(KINDS),
            hint=similar(kind, KINDS),
        )
    values: dict[str, str] = {}
    for word in options:
        name, equals, value = word.removeprefix("-").partition("=")
        if not word.startswith("-") or name not in _OPTIONS or not equals or not value:
            raise TargetError(
                "unknown target option {0!r} in {1!r}; known: {2}",
                word,
                text,
                ", ".join(f"-{o}=" for o in _OPTIONS),
                hint=f"did you mean -mcpu={word}?" if word in CPUS else similar(name, _OPTIONS),
            )
        if name in values:
            raise TargetError("target option -{0} is given twice in {1!r}", name, text)
        values[name] = value
    threads = _check_threads(values["threads"]) if "threads" in values else 0
    target = Target.cpu(values.get("mcpu", NATIVE), threads=threads)
    if "mattr" in values:
        if target.mcpu == NATIVE:
            raise TargetError(
                "-mattr changes the features of a named processor, and {0!r} names none",
                text,
                hint="add -mcpu=..., x86-64-v3 for instance",
            )
        target = replace(target, features=_apply(values["mattr"], target))
    if "mtriple" in values:
        target = replace(target, triple=_check_triple(values["mtriple"], target))
    return target


def _options(target: Target) -> Iterator[str]:
    if target.mcpu != NATIVE:
        yield f"-mcpu={target.mcpu}"
        table = CPUS[target.mcpu]
        added = set(target.features) - table.features
        removed = table.features - set(target.features)
        top = added - {r for name in added for r in _close([name]) - {name}}
        root = {name for name in removed if not removed & (_close([name]) - {name})}
        changes = [f"-{n}" for n in _ordered(root)] + [f"+{n}" for n in _ordered(top)]
        if changes:
            yield f"-mattr={','.join(changes)}"
        if target.triple != _default_triple(table.arch):
            yield f"-mtriple={target.triple}"
    if target.threads:
        yield f"-threads={target.threads}"


def _apply(changes: str, target: Target) -> tuple[str, ...]:
    features = set(target.features)
    names = [n for n in FEATURES if _arch_of(n) == target.arch]
    for change in changes.split(","):
        sign, name = change[:1], change[1:]
        if sign not in ("+", "-") or name not in names:
            raise TargetError(
                "unknown feature {0!r} in -mattr={1}; expected + or - and one of {2}",
                change,
                changes,
                ", ".join(names),
                hint=similar(name, names),
            )
        if sign == "+":
            features |= _close([name])
        else:
            features = {n for n in features if name not in _close([n])}
    return _ordered(features)


def _arch_of(feature: str) -> str:
    return "aarch64" if "neon" in _close([feature]) else "x86_64"


def _default_triple(arch: str) -> str:
    return f"{arch}-unknown-linux-gnu"


def _check_triple(triple: str, target: Target) -> str:
    if triple.partition("-")[0] != target.arch:
        raise TargetError(
            "-mtriple={0} is not a triple of {1}, which -mcpu={2} is",
            triple,
            target.arch,
            target.mcpu,
        )
    return triple


def _check_threads(value: str) -> int:
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:9]) <= _MAX_THREADS:
        raise TargetError("-threads={0}: expected a number from 1 to {1}", value, _MAX_THREADS)
    return int(value)


def _lookup_cpu(mcpu: str) -> Cpu:
    if mcpu not in CPUS:
        raise TargetError(
            "unknown processor -mcpu={0}; known: {1}",
            mcpu,
            ", ".join(CPUS),
            hint=similar(mcpu, CPUS),
        )
    return CPUS[mcpu]
