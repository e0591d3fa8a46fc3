"""The rates of GPUs: the description of a device that estimates rest on, with its sources.

All of them are figures of designs and publications. None was measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


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
_KB, _MB = 1024, 1 << 20
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
