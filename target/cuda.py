"""GPUs of NVIDIA as targets: the record of one, and the limits of each architecture.

The rates of a device, which estimates rest on, are figures of designs and publications. None was
measured here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

from ..base.errors import TargetError, similar
from .target import Fact, Target, register_kind

WARP = 32
"""Threads of a warp."""
SECTOR_BYTES = 32
"""What global memory moves at least."""
BANKS = 32
BANK_BYTES = 4
"""Shared memory, and the width of a bank."""


class Limits(NamedTuple):
    """What an architecture allows. Bytes are of shared memory, registers have 32 bits.

    Of a block, of a thread, and of a multiprocessor (SM). `reserved_bytes` are taken of the SM's
    for each block. An SM gives registers to a warp by `register_unit`. `sms` are those of the
    device that is meant where none is named.
    """

    block_bytes: int
    sm_bytes: int
    sm_warps: int
    sm_blocks: int
    sms: int
    device: str
    block_threads: int = 1024
    thread_registers: int = 255
    block_registers: int = 65536
    sm_registers: int = 65536
    register_unit: int = 256
    reserved_bytes: int = 1024
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    block: tuple[int, int, int] = (1024, 1024, 64)


_KB, _MB = 1024, 1 << 20
# Limits: CUDA C++ Programming Guide 13.0, "Compute Capabilities", the table of technical
# specifications; units of allocation: `cuda_occupancy.h` of the toolkit. SMs: NVIDIA's white papers
# of Ampere (A100, GA10x), Ada and Hopper.
ARCHS: Mapping[str, Limits] = {
    "sm_80": Limits(163 * _KB, 164 * _KB, 64, 32, 108, "A100"),
    "sm_86": Limits(99 * _KB, 100 * _KB, 48, 16, 84, "RTX A6000"),
    "sm_89": Limits(99 * _KB, 100 * _KB, 48, 24, 142, "L40"),
    "sm_90": Limits(227 * _KB, 228 * _KB, 64, 32, 132, "H100 SXM"),
    "sm_90a": Limits(227 * _KB, 228 * _KB, 64, 32, 132, "H100 SXM"),
}
"""The limits of architectures by the names that the compiler has for them."""


_OLDEST, _NEWEST = 80, 90
_NAME = re.compile(r"(?:sm|compute)_?(\d{2,3})[af]?|(\d)\.(\d)", re.ASCII)


def _why_not(arch: str) -> str | None:
    """What to say of a name that is no architecture here: whether one is older, newer, or meant."""
    found = _NAME.fullmatch(arch.lower())
    if found is None:
        return similar(arch, ARCHS)
    capability = int(found[1] or found[2] + found[3])
    if f"sm_{capability}" in ARCHS:
        return f"write -arch={'sm_90a' if capability == _NEWEST else f'sm_{capability}'}"
    if capability < _OLDEST:
        return "that is older: kernels use what GPUs have from compute capability 8.0 (A100) on"
    if capability > _NEWEST:
        return (
            "that is newer: its limits and rates are not known yet. Its GPUs do not run code of "
            "another generation"
        )
    return "choose the next older one: GPUs run code of their generation that is no newer"


@register_kind
@dataclass(frozen=True, kw_only=True, repr=False)
class CudaTarget(Target):
    """A GPU of NVIDIA.

    `arch` is empty as long as it is left to this machine's device. What its text does not spell
    are facts of a device: 0 and "" where none was asked.
    """

    kind: ClassVar[str] = "cuda"
    option_names: ClassVar[tuple[str, ...]] = ("arch",)

    arch: str = ""
    model: str = field(default="", compare=False)
    sms: int = field(default=0, compare=False)
    memory_bytes: int = field(default=0, compare=False)
    l2_bytes: int = field(default=0, compare=False)
    power_watts: int = field(default=0, compare=False)

    @classmethod
    def named(cls, arch: str) -> Self:
        """Returns the target of an architecture. Raises `TargetError` for an unknown one."""
        if arch not in ARCHS:
            raise TargetError(
                "unknown architecture -arch={0}; known: {1}",
                arch,
                ", ".join(ARCHS),
                hint=_why_not(arch),
            )
        return cls(arch=arch, sms=ARCHS[arch].sms)

    @classmethod
    def from_options(cls, options: Mapping[str, str], text: str) -> Self:
        del text
        return cls.named(options["arch"]) if "arch" in options else cls()

    @classmethod
    def option_of(cls, name: str) -> str | None:
        return f"-arch={name.lower()}" if name.lower() in ARCHS else None

    def options(self) -> Iterator[str]:
        if self.arch:
            yield f"-arch={self.arch}"

    @property
    def limits(self) -> Limits:
        """Raises `TargetError` while the architecture is left to the machine."""
        if not self.arch:
            raise TargetError("{0} names no architecture", self, hint="add -arch=sm_90a")
        return ARCHS[self.arch]

    @property
    def rates(self) -> GpuRates:
        """The rates of the device. Raises `TargetError` while the architecture is left open."""
        _ = self.limits
        return rates_of(self.arch, self.model, self.l2_bytes)

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability of the devices that it is for: (9, 0) of sm_90a."""
        digits = self.arch.removeprefix("sm_").rstrip("a")
        return int(digits[:-1]), int(digits[-1])

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether devices of a compute capability run its code, which is machine code.

        Those of the same generation do that are no older. What is for just one capability has an
        `a`.
        """
        if self.arch.endswith("a"):
            return capability == self.capability
        return capability[0] == self.capability[0] and capability >= self.capability

    @property
    def resolved(self) -> bool:
        return bool(self.arch)

    @property
    def compat_class(self) -> str:
        return f"{self.kind}/{self.arch}"

    @property
    def perf_class(self) -> str:
        """The device's name, SMs, memory and power limit: what of these is known."""
        memory = f"{self.memory_bytes / 2**30:.0f}GiB" if self.memory_bytes else ""
        power = f"{self.power_watts}W" if self.power_watts else ""
        sms = f"{self.sms}SMs" if self.model else ""
        known = [self.model.replace(" ", "-"), sms, memory, power]
        return "/".join([self.compat_class, *(word for word in known if word)])

    @property
    def hardware(self) -> dict[str, str]:
        return {"model": self.model, "arch": self.arch}

    @property
    def facts(self) -> dict[str, Fact]:
        found: dict[str, Fact] = {"model": self.model or None, "arch": self.arch or None}
        if self.arch:
            limits = self.limits
            found |= {
                "sms": self.sms,
                "memory_bytes": self.memory_bytes or None,
                "l2_bytes": self.l2_bytes or None,
                "power_watts": self.power_watts or None,
                "threads_per_block": limits.block_threads,
                "threads_per_sm": limits.sm_warps * WARP,
                "registers_per_thread": limits.thread_registers,
                "registers_per_sm": limits.sm_registers,
                "shared_bytes_per_block": limits.block_bytes,
                "shared_bytes_per_sm": limits.sm_bytes,
            }
        return found

    @property
    def vector_bits(self) -> int:
        """The widest access to memory of a thread."""
        return 128

    @property
    def cache_bytes(self) -> int:
        return self.l2_bytes

    @property
    def caches(self) -> dict[str, int]:
        return {"L2": self.l2_bytes} if self.l2_bytes else {}

    @property
    def bandwidths(self) -> dict[str, float]:
        return {"L2": self.rates.l2, "memory": self.rates.memory}

    def memory_for(self, nbytes: int, scope: str) -> str:
        """A GPU holds a buffer where its scope says."""
        del nbytes
        return "registers" if scope == "register" else scope


class GpuRates(NamedTuple):
    """Rates of a device. What is "in a cycle" is of one multiprocessor (SM).

    `hertz` is the clock under load. `float32`, `float64`, `special` and `integers` are operations
    of threads in a cycle: multiply-adds, those of double precision, special functions, and integer
    arithmetic. `issue` is instructions of warps in a cycle. `l1_sectors` are sectors of 32 bytes
    that an SM takes in a cycle from L1, of which there are `l1_bytes`, shared memory included.
    `l2` and `memory` are bytes in a second for all SMs, and `l2_bytes` the size of the second
    level. The latencies are cycles until a load is there, or a barrier passed, or an arithmetic
    result known, and `block_start` those in which an SM starts a block. `launch` is the seconds of
    a kernel that does nothing.
    """

    hertz: float
    float32: float
    float64: float
    special: float
    integers: float
    l1_bytes: int
    l2_bytes: int
    l2: float
    memory: float
    issue: float = 4.0
    l1_sectors: float = 4.0
    arithmetic_latency: float = 4.0
    shared_latency: float = 30.0
    l2_latency: float = 270.0
    memory_latency: float = 600.0
    barrier_latency: float = 30.0
    block_start: float = 60.0
    launch: float = 2.0e-6


# Operations in a cycle: CUDA C++ Programming Guide 13.0, "Arithmetic Instructions", the table of
# throughput. L1: "Compute Capabilities", the same guide. Clocks (boost), L2 and memory: NVIDIA's
# white papers "A100 Tensor Core GPU Architecture" (40 GB), "Ampere GA102 GPU Architecture",
# "H100 Tensor Core GPU Architecture" (SXM5), and the data sheets of RTX A6000, L40 and H200.
# Latencies and the rate of L2: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
# Architecture via Microbenchmarking", arXiv 2402.13499; Jia et al., arXiv 1804.06826 (Volta).
# The starts of kernels and blocks are rough: what they are for is that few large blocks are
# preferred to many small ones that do the same.
RATES: Mapping[str, GpuRates] = {
    "sm_80": GpuRates(1.41e9, 64, 32, 16, 64, 192 * _KB, 40 * _MB, 4.2e12, 1.555e12),
    "sm_86": GpuRates(1.80e9, 128, 2, 16, 64, 128 * _KB, 6 * _MB, 2.6e12, 0.768e12),
    "sm_89": GpuRates(2.49e9, 128, 2, 16, 64, 128 * _KB, 96 * _MB, 4.5e12, 0.864e12),
    "sm_90": GpuRates(1.75e9, 128, 64, 16, 64, 256 * _KB, 50 * _MB, 5.7e12, 3.35e12),
    "sm_90a": GpuRates(1.75e9, 128, 64, 16, 64, 256 * _KB, 50 * _MB, 5.7e12, 3.35e12),
}
"""The rates of the device that is meant where an architecture alone is named."""
MEMORY: Mapping[str, float] = {"H200": 4.8e12, "A100-SXM4-80GB": 2.04e12, "H100 PCIe": 2.0e12}
"""Bytes in a second of devices whose names have this in them."""


def rates_of(arch: str, model: str, l2_bytes: int) -> GpuRates:
    """The rates of a device of an architecture, whose name and L2 are empty and 0 if not known."""
    rates = RATES[arch]
    memory = next((rate for part, rate in MEMORY.items() if part in model), rates.memory)
    return rates._replace(memory=memory, l2_bytes=l2_bytes or rates.l2_bytes)
