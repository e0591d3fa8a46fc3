"""Processors as targets: extensions, the table of processors by name, and the record of one.

Caches, line, cores and model are facts that the text of a target does not spell. For a named
processor they come from the table below; `codegen.detect.resolve` puts those of this machine in
their place where it is the one that is meant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

from ..errors import TargetError, similar
from . import rates
from .rates import Rates
from .target import Fact, Target, register_kind

NATIVE = "native"
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
    """A processor by LLVM's name: features, bytes of the caches that one core reaches, and rates.

    `ways` are the lines in each set of L1, L2 and L3.
    """

    features: frozenset[str]
    l1: int
    l2: int
    l3: int
    arch: str = "x86_64"
    ways: tuple[int, int, int] = (8, 16, 16)
    rates: Rates = Rates()


CPUS: dict[str, Cpu] = {
    "x86-64": Cpu(frozenset(), 32 * _KIB, 256 * _KIB, 8 * _MIB),
    "x86-64-v2": Cpu(_V2, 32 * _KIB, 256 * _KIB, 8 * _MIB),
    "x86-64-v3": Cpu(_V3, 32 * _KIB, 256 * _KIB, 8 * _MIB),
    "x86-64-v4": Cpu(_V4, 32 * _KIB, 1 * _MIB, 16 * _MIB),
    "haswell": Cpu(_HASWELL, 32 * _KIB, 256 * _KIB, 8 * _MIB, ways=(8, 8, 16), rates=rates.HASWELL),
    "broadwell": Cpu(
        _BROADWELL, 32 * _KIB, 256 * _KIB, 8 * _MIB, ways=(8, 8, 16), rates=rates.HASWELL
    ),
    "skylake": Cpu(
        _BROADWELL, 32 * _KIB, 256 * _KIB, 8 * _MIB, ways=(8, 4, 16), rates=rates.SKYLAKE
    ),
    "skylake-avx512": Cpu(
        _SKYLAKE_X, 32 * _KIB, 1 * _MIB, 22 * _MIB, ways=(8, 16, 11), rates=rates.SKYLAKE_SERVER
    ),
    "cascadelake": Cpu(
        _CASCADE, 32 * _KIB, 1 * _MIB, 36608 * _KIB, ways=(8, 16, 11), rates=rates.SKYLAKE_SERVER
    ),
    "cooperlake": Cpu(
        _CASCADE | {"avx512bf16"},
        32 * _KIB,
        1 * _MIB,
        38 * _MIB,
        ways=(8, 16, 11),
        rates=rates.SKYLAKE_SERVER,
    ),
    "icelake-client": Cpu(
        _ICELAKE, 48 * _KIB, 512 * _KIB, 8 * _MIB, ways=(12, 8, 16), rates=rates.ICELAKE
    ),
    "icelake-server": Cpu(
        _ICELAKE, 48 * _KIB, 1280 * _KIB, 48 * _MIB, ways=(12, 20, 12), rates=rates.ICELAKE
    ),
    "tigerlake": Cpu(
        _ICELAKE, 48 * _KIB, 1280 * _KIB, 12 * _MIB, ways=(12, 20, 12), rates=rates.ICELAKE
    ),
    "rocketlake": Cpu(
        _ICELAKE, 48 * _KIB, 512 * _KIB, 16 * _MIB, ways=(12, 8, 16), rates=rates.ICELAKE
    ),
    "sapphirerapids": Cpu(
        _SAPPHIRE, 48 * _KIB, 2 * _MIB, 60 * _MIB, ways=(12, 16, 15), rates=rates.GOLDEN_COVE
    ),
    "emeraldrapids": Cpu(
        _SAPPHIRE, 48 * _KIB, 2 * _MIB, 160 * _MIB, ways=(12, 16, 20), rates=rates.GOLDEN_COVE
    ),
    "graniterapids": Cpu(
        _SAPPHIRE | {"amx-fp16"},
        48 * _KIB,
        2 * _MIB,
        160 * _MIB,
        ways=(12, 16, 16),
        rates=rates.GOLDEN_COVE,
    ),
    "alderlake": Cpu(
        _ALDER, 48 * _KIB, 1280 * _KIB, 30 * _MIB, ways=(12, 10, 12), rates=rates.GOLDEN_COVE
    ),
    "raptorlake": Cpu(
        _ALDER, 48 * _KIB, 2 * _MIB, 36 * _MIB, ways=(12, 16, 12), rates=rates.GOLDEN_COVE
    ),
    "meteorlake": Cpu(
        _ALDER, 48 * _KIB, 2 * _MIB, 24 * _MIB, ways=(12, 16, 12), rates=rates.GOLDEN_COVE
    ),
    "znver1": Cpu(_ZEN, 32 * _KIB, 512 * _KIB, 8 * _MIB, ways=(8, 8, 16), rates=rates.ZEN),
    "znver2": Cpu(_ZEN, 32 * _KIB, 512 * _KIB, 16 * _MIB, ways=(8, 8, 16), rates=rates.ZEN2),
    "znver3": Cpu(_ZEN3, 32 * _KIB, 512 * _KIB, 32 * _MIB, ways=(8, 8, 16), rates=rates.ZEN3),
    "znver4": Cpu(_ZEN4, 32 * _KIB, 1 * _MIB, 32 * _MIB, ways=(8, 8, 16), rates=rates.ZEN4),
    "znver5": Cpu(
        _ZEN4 | {"avxvnni"}, 48 * _KIB, 1 * _MIB, 32 * _MIB, ways=(12, 16, 16), rates=rates.ZEN5
    ),
    "generic": Cpu(_NEON, 32 * _KIB, 512 * _KIB, 4 * _MIB, "aarch64"),
    "cortex-a76": Cpu(
        _NEOVERSE, 64 * _KIB, 512 * _KIB, 4 * _MIB, "aarch64", (4, 8, 16), rates.NEOVERSE_N1
    ),
    "neoverse-n1": Cpu(
        _NEOVERSE, 64 * _KIB, 1 * _MIB, 32 * _MIB, "aarch64", (4, 8, 16), rates.NEOVERSE_N1
    ),
    "neoverse-v1": Cpu(
        _NEOVERSE | {"bf16", "i8mm", "sve"},
        64 * _KIB,
        1 * _MIB,
        32 * _MIB,
        "aarch64",
        (4, 8, 16),
        rates.NEOVERSE_V1,
    ),
}


@register_kind
@dataclass(frozen=True, kw_only=True)
class CpuTarget(Target):
    """The processors of a machine.

    `features` are all instruction set extensions (LLVM names) that code may use. `threads` is 0
    and `mcpu` is `native` as long as they are left to the machine; `resolve` fills them in, and
    code generation takes resolved targets only. Cache sizes are bytes that one core reaches.
    """

    kind: ClassVar[str] = "cpu"
    option_names: ClassVar[tuple[str, ...]] = ("mcpu", "mattr", "mtriple", "threads")
    feature_names: ClassVar[Collection[str]] = FEATURES

    triple: str
    mcpu: str
    l1_bytes: int = field(compare=False)
    l2_bytes: int = field(compare=False)
    l3_bytes: int = field(compare=False)
    line_bytes: int = field(default=64, compare=False)
    ways: tuple[int, int, int] = field(default=(8, 16, 16), compare=False)
    rates: Rates = field(default=Rates(), compare=False)
    cores: int = field(default=1, compare=False)
    model: str = field(default="", compare=False)

    @classmethod
    def named(cls, mcpu: str = NATIVE, *, threads: int = 0) -> Self:
        """A processor by LLVM's name with the facts of the table."""
        facts = CPUS["x86-64"] if mcpu == NATIVE else _lookup_cpu(mcpu)
        return cls(
            triple=_default_triple(facts.arch),
            mcpu=mcpu,
            features=_ordered(facts.features),
            threads=threads,
            l1_bytes=facts.l1,
            l2_bytes=facts.l2,
            l3_bytes=facts.l3,
            ways=facts.ways,
            rates=facts.rates,
            cores=max(threads, 1),
        )

    @classmethod
    def from_options(cls, options: Mapping[str, str], text: str) -> Self:
        threads = _check_threads(options["threads"]) if "threads" in options else 0
        target = cls.named(options.get("mcpu", NATIVE), threads=threads)
        if "mattr" in options:
            if target.mcpu == NATIVE:
                raise TargetError(
                    "-mattr changes the features of a named processor, and {0!r} names none",
                    text,
                    hint="add -mcpu=..., x86-64-v3 for instance",
                )
            target = replace(target, features=_apply(options["mattr"], target))
        if "mtriple" in options:
            target = replace(target, triple=_check_triple(options["mtriple"], target))
        return target

    @classmethod
    def option_hint(cls, word: str) -> str | None:
        return f"did you mean -mcpu={word}?" if word in CPUS else super().option_hint(word)

    def options(self) -> Iterator[str]:
        if self.mcpu != NATIVE:
            yield f"-mcpu={self.mcpu}"
            table = CPUS[self.mcpu]
            added = set(self.features) - table.features
            removed = table.features - set(self.features)
            top = added - {r for name in added for r in _close([name]) - {name}}
            root = {name for name in removed if not removed & (_close([name]) - {name})}
            changes = [f"-{n}" for n in _ordered(root)] + [f"+{n}" for n in _ordered(top)]
            if changes:
                yield f"-mattr={','.join(changes)}"
            if self.triple != _default_triple(table.arch):
                yield f"-mtriple={self.triple}"
        if self.threads:
            yield f"-threads={self.threads}"

    def to_json(self) -> dict[str, Any]:
        """Its fields, and the row of the table: other processes may lack one from outside."""
        told = super().to_json()
        told["fields"]["rates"] = self.rates.to_json()
        processor = None
        if (row := CPUS.get(self.mcpu)) is not None:
            processor = [_ordered(row.features), *row[1:-1], row.rates.to_json()]
        return {**told, "processor": processor}

    @classmethod
    def register_facts(cls, told: Mapping[str, Any]) -> None:
        if told["processor"] is not None:
            names, l1, l2, l3, arch, ways, rates = told["processor"]
            row = Cpu(frozenset(names), l1, l2, l3, arch, tuple(ways), Rates.from_json(rates))
            CPUS.setdefault(told["fields"]["mcpu"], row)

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        return super().from_fields({**values, "rates": Rates.from_json(values["rates"])})

    def with_threads(self, threads: int) -> Self:
        return replace(self, threads=_check_threads(str(threads)))

    @property
    def resolved(self) -> bool:
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
    def mask_bits(self) -> int | None:
        """The narrowest element of vectors that can be loaded and stored in part, in bits."""
        if "avx" not in self.features:
            return None
        return 8 if "avx512bw" in self.features else 32

    @property
    def fma(self) -> bool:
        """Whether a fused multiply-add of floats is one instruction."""
        return "fma" in self.features or "neon" in self.features

    @property
    def llvm_features(self) -> str:
        """The feature text for LLVM: every known extension of this architecture, on or off."""
        names = (n for n in FEATURES if _arch_of(n) == self.arch)
        return ",".join(("+" if n in self.features else "-") + n for n in names)

    @property
    def compat_class(self) -> str:
        """The class of targets with compatible code: targets of one class run each other's code."""
        level, extras = self.arch, set(self.features)
        if self.arch == "x86_64":
            level = baseline(self.arch, extras)
            extras -= CPUS[level].features
        return "+".join([f"{self.kind}/{level}", *_ordered(extras)])

    @property
    def cache_bytes(self) -> int:
        return max(self.l3_bytes, self.l2_bytes * self.cores)

    @property
    def perf_class(self) -> str:
        """The class of targets with comparable times: processor model and number of threads."""
        model = f"/{self.model}" if self.model else ""
        return f"{self.kind}/{self.mcpu}{model}/threads={self.threads}"

    @property
    def hardware(self) -> dict[str, str]:
        return {"model": self.model, "mcpu": self.mcpu}

    @property
    def facts(self) -> dict[str, Fact]:
        return {
            "model": self.model or None,
            "triple": self.triple,
            "threads": self.threads,
            "cores": self.cores,
            "vector_bits": self.vector_bits,
            "vector_registers": self.vector_registers,
            "l1_bytes": self.l1_bytes,
            "l2_bytes": self.l2_bytes,
            "l3_bytes": self.l3_bytes,
            "line_bytes": self.line_bytes,
            "ways": "/".join(map(str, self.ways)),
            "features": list(self.features),
        }

    @property
    def speeds(self) -> dict[str, str]:
        r = self.rates
        peak = 2 * r.fma * self.vector_bits / 32 * r.hertz

        def bandwidth(one: float, all_cores: float = 0.0) -> str:
            together = f", {all_cores * r.hertz / 1e9:.0f} GB/s all cores" if all_cores else ""
            return f"{one * r.hertz / 1e9:.0f} GB/s ({one:.3g} bytes/cycle){together}"

        return {
            "clock": f"{r.hertz / 1e9:.2f} GHz under load",
            "arithmetic": f"{peak / 1e9:.0f} GFLOP/s of float32 on one core "
            f"({r.fma:.3g} vectors/cycle, {r.fma_latency:.3g} cycles to a result)",
            "vectors": f"{r.loads:.3g} loads, {r.stores:.3g} stores, {r.shuffles:.3g} shuffles "
            f"in a cycle; {r.gather:.3g} cycles for a gathered element",
            "l2": bandwidth(r.l2),
            "l3": bandwidth(r.l3, r.all_l3),
            "memory": bandwidth(r.memory, r.all_memory),
            "latencies": "L1 {:.3g}, L2 {:.3g}, L3 {:.3g}, memory {:.3g} ns".format(*r[-4:]),
            "parallel loop": f"{r.fork * 1e6:.3g} us to begin and end",
        }


_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def baseline(arch: str, features: Iterable[str]) -> str:
    """The richest generic processor whose features are all among `features`."""
    if arch == "aarch64":
        return "generic"
    present = set(features)
    return next(name for name in reversed(_LEVELS) if CPUS[name].features <= present)


def missing_features(target: CpuTarget, host: CpuTarget) -> tuple[str, ...]:
    """Features that code for `target` may use and `host` does not have."""
    return tuple(name for name in target.features if name not in host.features)


def check_runnable(target: CpuTarget, host: CpuTarget) -> None:
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


def _apply(changes: str, target: CpuTarget) -> tuple[str, ...]:
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


def _check_triple(triple: str, target: CpuTarget) -> str:
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
