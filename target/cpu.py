"""Processors as targets: the record of one, and which of them run each other's code.

Caches, line, cores and model are facts that the text of a target does not spell. For a named
processor they come from the table of `processors.py`; `codegen.detect.resolve` puts those of this
machine in their place where it is the one that is meant.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from ..base.errors import TargetError, nearest, similar
from .processors import CPUS, FEATURES, Cpu, close, ordered
from .rates import Rates
from .target import Fact, Target, register_kind

NATIVE = "native"
_MAX_THREADS = 4096
_ELSEWHERE = {
    "aarch64": "generic",
    "amd64": "x86-64",
    "arm64": "generic",
    "avx512": "x86-64-v4",
    "host": NATIVE,
    "generic-rv64": "riscv64",
    "riscv": "riscv64",
    "rv64gc": "riscv64",
    "wasm": "wasm32",
    "webassembly": "wasm32",
}
"""Processors by the names of what they have in common."""


@register_kind
@dataclass(frozen=True, kw_only=True, repr=False)
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
        """Returns the target of a processor by name, with the facts of its row in the table.

        `native` has those of `x86-64` until `resolve` finds this machine's. Raises `TargetError`
        for an unknown name, for threads where there are none, and for a row with impossible rates.
        """
        facts = CPUS["x86-64"] if mcpu == NATIVE else _lookup_cpu(mcpu)
        _check_serial(facts.arch, threads)
        try:  # as floats: then equal rates have the same text in every process
            rates = Rates.from_json(facts.rates.to_json())
        except (TypeError, ValueError) as error:
            raise TargetError("{0}: its row has an impossible rate, {1}", mcpu, error) from error
        return cls(
            triple=_default_triple(facts.arch),
            mcpu=mcpu,
            features=ordered(facts.features),
            threads=threads,
            l1_bytes=facts.l1,
            l2_bytes=facts.l2,
            l3_bytes=facts.l3,
            ways=facts.ways,
            rates=rates,
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
    def option_of(cls, name: str) -> str | None:
        """A processor's, or that of the most general one with a feature: `avx2` of `x86-64-v3`."""
        lower = name.lower()
        of_feature = [mcpu for mcpu, row in CPUS.items() if lower in row.features]
        known = _ELSEWHERE.get(lower, lower.replace("_", "-"))
        meant = [*of_feature, *nearest(known, [NATIVE, *CPUS])]
        return f"-mcpu={meant[0]}" if meant else None

    def options(self) -> Iterator[str]:
        if self.mcpu != NATIVE:
            yield f"-mcpu={self.mcpu}"
            table = CPUS[self.mcpu]
            added = set(self.features) - table.features
            removed = table.features - set(self.features)
            top = added - {r for name in added for r in close([name]) - {name}}
            root = {name for name in removed if not removed & (close([name]) - {name})}
            changes = [f"-{n}" for n in ordered(root)] + [f"+{n}" for n in ordered(top)]
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
            processor = {**row._asdict(), "features": ordered(row.features)}
            processor["rates"] = row.rates.to_json()
        return {**told, "processor": processor}

    @classmethod
    def register_facts(cls, told: Mapping[str, Any]) -> None:
        if told["processor"] is not None:
            row = dict(told["processor"])
            row["features"] = frozenset(row["features"])
            row["rates"] = Rates.from_json(row["rates"])
            row |= {name: tuple(row[name]) for name in ("ways", "sources")}
            CPUS.setdefault(told["fields"]["mcpu"], Cpu(**row))

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        return super().from_fields({**values, "rates": Rates.from_json(values["rates"])})

    def with_threads(self, threads: int) -> Self:
        _check_serial(self.arch, threads)
        return replace(self, threads=_check_threads(str(threads)))

    @property
    def resolved(self) -> bool:
        return self.mcpu != NATIVE and self.threads > 0

    @property
    def arch(self) -> str:
        return self.triple.partition("-")[0]

    @property
    def llvm_cpu(self) -> str:
        """LLVM's name of the processor."""
        row = CPUS.get(self.mcpu)
        return (row and row.llvm) or self.mcpu

    @property
    def serial(self) -> bool:
        """Whether there are no threads on such machines."""
        return self.arch in _SERIAL

    @property
    def pointer_bits(self) -> int:
        """The bits of an address."""
        return 32 if self.arch == "wasm32" else 64

    @property
    def vector_bits(self) -> int:
        if "avx512f" in self.features:
            return 512
        return 256 if "avx" in self.features else 128

    @property
    def vector_registers(self) -> int:
        """Where there are no vectors, those of as many lanes as there are registers of floats."""
        if _VECTORS.get(self.arch, "") not in ("", *self.features):
            return 8
        return 32 if self.arch in ("aarch64", "riscv64") or "avx512f" in self.features else 16

    @property
    def mask_bits(self) -> int | None:
        """The narrowest element of vectors that can be loaded and stored in part, in bits."""
        if "avx" not in self.features:
            return None
        return 8 if "avx512bw" in self.features else 32

    @property
    def fma(self) -> bool:
        """Whether a fused multiply-add of floats is one instruction."""
        return not {"fma", "neon", "f"}.isdisjoint(self.features)

    @property
    def llvm_features(self) -> str:
        """The feature text for LLVM: every known extension of this architecture, on or off."""
        names = (name for name, feature in FEATURES.items() if feature.arch == self.arch)
        return ",".join(("+" if n in self.features else "-") + n for n in names)

    @property
    def compat_class(self) -> str:
        """The class of targets with compatible code: targets of one class run each other's code."""
        level, extras = self.arch, set(self.features)
        if self.arch == "x86_64":
            level = baseline(self.arch, extras)
            extras -= CPUS[level].features
        return "+".join([f"{self.kind}/{level}", *ordered(extras)])

    @property
    def cache_bytes(self) -> int:
        return max(self.l3_bytes, self.l2_bytes * self.cores)

    @property
    def caches(self) -> dict[str, int]:
        sizes = {"L1": self.l1_bytes, "L2": self.l2_bytes, "L3": self.l3_bytes}
        return {name: size for name, size in sizes.items() if size}

    @property
    def bandwidths(self) -> dict[str, float]:
        r, cores = self.rates, max(1, min(self.threads, self.cores))
        bytes_in_cycle = {
            "L1": r.loads * self.vector_bits / 8 * cores,
            "L2": r.l2 * cores,
            "L3": min(r.l3 * cores, r.all_l3 or math.inf),
            "memory": min(r.memory * cores, r.all_memory or math.inf),
        }
        there = {*self.caches, "memory"}
        return {name: rate * r.hertz for name, rate in bytes_in_cycle.items() if name in there}

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
            "latencies": ", ".join(
                f"{place} {ns:.3g} ns" if ns else f"{place} not known"
                for place, ns in zip(("L1", "L2", "L3", "memory"), r[-4:], strict=True)
            ),
            "parallel loop": f"{r.fork * 1e6:.3g} us to begin and end",
        }


_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
_GENERIC = {"aarch64": "generic", "riscv64": "riscv64"}
_SERIAL = ("wasm32",)
_VECTORS = {"riscv64": "v", "wasm32": "simd128"}
"""The feature that architectures have vectors with, where not all of their processors have them."""


def baseline(arch: str, features: Iterable[str]) -> str:
    """The richest generic processor whose features are all among `features`."""
    if arch in _GENERIC:
        return _GENERIC[arch]
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
    names = [name for name, feature in FEATURES.items() if feature.arch == target.arch]
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
            features |= close([name])
        else:
            features = {n for n in features if name not in close([n])}
    return ordered(features)


def _default_triple(arch: str) -> str:
    return f"{arch}-unknown-{'unknown' if arch == 'wasm32' else 'linux-gnu'}"


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
    digits = value.lstrip("0")
    known = value.isascii() and value.isdecimal() and 0 < len(digits) <= len(str(_MAX_THREADS))
    if not known or int(digits) > _MAX_THREADS:
        raise TargetError("-threads={0}: expected a number from 1 to {1}", value, _MAX_THREADS)
    return int(digits)


def _check_serial(arch: str, threads: int) -> None:
    if threads > 1 and arch in _SERIAL:
        raise TargetError(
            "-threads={0}: code for {1} runs on one thread",
            threads,
            arch,
            hint="leave -threads out, or write -threads=1",
        )


def _lookup_cpu(mcpu: str) -> Cpu:
    if mcpu not in CPUS:
        raise TargetError(
            "unknown processor -mcpu={0}; known: {1}",
            mcpu,
            ", ".join(CPUS),
            hint=similar(mcpu, CPUS) or CpuTarget.option_hint(mcpu),
        )
    return CPUS[mcpu]
