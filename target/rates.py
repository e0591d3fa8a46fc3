"""The rates of a core: the description of a machine that estimates rest on.

The rates of this machine are measured (`codegen/cpu/machine.py`); those of other processors are
the designs below, which the table of processors (`target/processors.py`) names. Each rate has its
source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_LEAST, _MOST = 1e-12, 1e15
"""Of a rate: seconds of a fork are few, and hertz many."""


class Rates(NamedTuple):
    """Rates of one core, vectors being the widest of the target.

    `hertz` is the clock under load. `fma`, `loads`, `stores` and `shuffles` are vector instructions
    in a cycle, in registers or in L1; `fma_latency` is in cycles. `gather` is cycles for each
    element of a vector that is gathered. `l2`, `l3` and `memory` are bytes in a cycle that a core
    reads from there, and `all_l3` and `all_memory` those of all cores together, where that is known
    (0: as much as each of them can read). `fork` is the seconds of a parallel loop that does
    nothing. The latencies are nanoseconds until a load is there (0: not known). What is given here
    is assumed of a processor that no row describes.
    """

    hertz: float = 2.6e9
    fma: float = 2.0
    fma_latency: float = 4.0
    loads: float = 2.0
    stores: float = 1.0
    shuffles: float = 1.0
    gather: float = 2.5
    l2: float = 32.0
    l3: float = 8.0
    memory: float = 4.0
    all_l3: float = 0.0
    all_memory: float = 0.0
    fork: float = 1.5e-6
    l1_latency: float = 0.0
    l2_latency: float = 0.0
    l3_latency: float = 0.0
    memory_latency: float = 0.0

    def to_json(self) -> dict[str, float]:
        """The rates by name, without those that are not known."""
        usual = Rates()._asdict()
        return {name: value for name, value in self._asdict().items() if value or usual[name]}

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> Rates:
        """The rates of `to_json`.

        Raises `TypeError` for an unknown name or what is no number, and `ValueError` for a number
        that is no rate.
        """
        for name, value in told.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name}={value!r}")
            if not _LEAST <= value <= _MOST:
                raise ValueError(f"{name}={value!r:.80}")
        return Rates(**{name: float(value) for name, value in told.items()})


SOURCES: dict[str, str] = {
    "llvm": "LLVM 22.1.8, `llvm-mca -instruction-info` (the scheduling models of lib/Target/X86 "
    "and AArch64): vfmadd231ps, vmovups, vunpcklps; fmla, ldr q, str q, zip1. "
    "https://github.com/llvm/llvm-project/tree/llvmorg-22.1.8/llvm/lib/Target",
    "osaca": "OSACA 0.7.1, osaca/data/*.yml: port models and measured throughputs (ibench, "
    "asmbench, uops.info). https://github.com/RRZE-HPC/OSACA/tree/v0.7.1/osaca/data",
    "instlat": "InstLatx64, *_InstLatX64.txt: measured throughput of VGATHERDPS and latency of "
    "VFMADD231PS. https://github.com/InstLatx64/InstLatx64",
    "kerncraft": "kerncraft 0.8.18, examples/machine-files/*.yml: likwid-bench `load` by one core "
    "and by all of a socket, over the clock. "
    "https://github.com/RRZE-HPC/kerncraft/tree/v0.8.18/examples/machine-files",
    "intel": "Intel, Optimization Reference Manual, table 2-5, sustained bandwidth, as quoted in "
    "https://github.com/travisdowns/uarch-bench/wiki/"
    "How-much-bandwidth-does-the-L2-have-to-give,-anyway%3F",
    "arm": "Arm Learning Paths, memory subsystem, bandwidth of Graviton2 over 2.5 GHz. "
    "https://learn.arm.com/learning-paths/servers-and-cloud-computing/memory-subsystem/",
    "measured": "measured by this project on such a machine",
    "mitigated": "measured by this project on Cascade Lake, whose microcode keeps gathers from "
    "speculating; assumed of each design that Intel lists as affected by gather data sampling. "
    "Without that microcode OSACA has 0.56. https://www.intel.com/content/www/us/en/developer/"
    "articles/technical/software-security-guidance/technical-documentation/gather-data-sampling.html",
    "assumed": "no source: what is assumed of any processor, or of its kind",
}
"""Where rates are from. `like NAME` is a source, too: no measurement of this design was found, and
that of the named one is taken, whose caches are connected alike."""


class Design(NamedTuple):
    """The rates of the cores of a design, and for each the key of its source in `SOURCES`.

    The clock is that of a product, not of a design; so are latencies, which nothing reads yet.
    """

    rates: Rates
    sources: Mapping[str, str]

    def at(self, ghz: float) -> Rates:
        """The rates of a product with this clock."""
        return self.rates._replace(hertz=ghz * 1e9)


def _design(**sourced: tuple[float, str]) -> Design:
    fork = (Rates().fork, "assumed")
    both = {"fork": fork, **sourced}
    values = {name: value for name, (value, _) in both.items()}
    return Design(Rates(**values), {name: source for name, (_, source) in both.items()})


# kerncraft: HaswellEP_E5-2695v3. instlat: 11.00 cycles for 8, GenuineIntel00306C3_Haswell.
HASWELL = _design(
    fma=(2.0, "llvm"),
    fma_latency=(5.0, "llvm"),
    loads=(2.0, "llvm"),
    stores=(1.0, "llvm"),
    shuffles=(1.0, "llvm"),
    gather=(1.38, "instlat"),
    l2=(25.2, "kerncraft"),
    l3=(10.0, "kerncraft"),
    memory=(3.9, "kerncraft"),
    all_memory=(26.9, "kerncraft"),
)
# kerncraft: BroadwellEP_E5-2697v4_CoD. osaca: bdw.yml, 4.25 cycles for 8 from the ports.
BROADWELL = _design(
    fma=(2.0, "llvm"),
    fma_latency=(5.0, "llvm"),
    loads=(2.0, "llvm"),
    stores=(1.0, "llvm"),
    shuffles=(1.0, "llvm"),
    gather=(0.53, "osaca"),
    l2=(25.3, "kerncraft"),
    l3=(12.5, "kerncraft"),
    memory=(4.9, "kerncraft"),
    all_memory=(30.4, "kerncraft"),
)
SKYLAKE = _design(
    fma=(2.0, "llvm"),
    fma_latency=(4.0, "llvm"),
    loads=(2.0, "llvm"),
    stores=(1.0, "llvm"),
    shuffles=(1.0, "llvm"),
    gather=(2.5, "mitigated"),
    l2=(29.0, "intel"),
    l3=(12.5, "like BROADWELL"),
    memory=(4.9, "like BROADWELL"),
)
# kerncraft: SkylakeSP_Gold-6148; the Gold 6248 (Cascade Lake) has 44.4, 9.6, 5.2 and 50.1.
SKYLAKE_SERVER = _design(
    fma=(2.0, "llvm"),
    fma_latency=(4.0, "llvm"),
    loads=(2.0, "llvm"),
    stores=(1.0, "llvm"),
    shuffles=(1.0, "llvm"),
    gather=(2.5, "mitigated"),
    l2=(46.2, "kerncraft"),
    l3=(10.2, "kerncraft"),
    memory=(6.0, "kerncraft"),
    all_memory=(50.3, "kerncraft"),
)
# One unit for products of 512 bits: those of ports 0 and 1 together. A store of 512 bits takes both
# ports for data (osaca: icx.yml); LLVM has two stores in a cycle.
ICELAKE_CLIENT = _design(
    fma=(1.0, "llvm"),
    fma_latency=(4.0, "llvm"),
    loads=(2.0, "llvm"),
    stores=(1.0, "osaca"),
    shuffles=(1.0, "llvm"),
    gather=(2.5, "mitigated"),
    l2=(46.2, "like SKYLAKE_SERVER"),
    l3=(12.5, "like BROADWELL"),
    memory=(4.9, "like BROADWELL"),
)
# Servers have a second unit, on port 5, which the models of LLVM lack (osaca: icx.yml, spr.yml).
ICELAKE_SERVER = _design(
    fma=(2.0, "osaca"),
    fma_latency=(4.0, "osaca"),
    loads=(2.0, "llvm"),
    stores=(1.0, "osaca"),
    shuffles=(1.0, "osaca"),
    gather=(2.5, "mitigated"),
    l2=(46.2, "like SKYLAKE_SERVER"),
    l3=(10.2, "like SKYLAKE_SERVER"),
    memory=(6.0, "like SKYLAKE_SERVER"),
)
# Vectors of 256 bits. instlat: 2.42 cycles for 8, GenuineIntel0090672_AlderLake_BC_AVX512.
GOLDEN_COVE = _design(
    fma=(2.0, "llvm"),
    fma_latency=(4.0, "llvm"),
    loads=(3.0, "llvm"),
    stores=(2.0, "llvm"),
    shuffles=(1.0, "llvm"),
    gather=(0.3, "instlat"),
    l2=(46.2, "like SKYLAKE_SERVER"),
    l3=(12.5, "like BROADWELL"),
    memory=(4.9, "like BROADWELL"),
)
# osaca: 5.0 cycles for 16.
SAPPHIRE_RAPIDS = _design(
    fma=(2.0, "osaca"),
    fma_latency=(4.0, "osaca"),
    loads=(2.0, "osaca"),
    stores=(1.0, "osaca"),
    shuffles=(1.0, "osaca"),
    gather=(0.31, "osaca"),
    l2=(46.2, "like SKYLAKE_SERVER"),
    l3=(10.2, "like SKYLAKE_SERVER"),
    memory=(6.0, "like SKYLAKE_SERVER"),
)
# Halves of 256 bits, one after the other. kerncraft: Zen_EPYC-7451. instlat: 20.00 cycles for 8,
# AuthenticAMD0810F10_K17_Zen.
ZEN = _design(
    fma=(1.0, "llvm"),
    fma_latency=(5.0, "llvm"),
    loads=(1.0, "osaca"),
    stores=(0.5, "osaca"),
    shuffles=(1.0, "llvm"),
    gather=(2.5, "instlat"),
    l2=(30.9, "kerncraft"),
    l3=(21.8, "kerncraft"),
    memory=(9.4, "kerncraft"),
    all_memory=(64.6, "kerncraft"),
)
# kerncraft: Zen2_EPYC-7452. instlat: 16.00 cycles for 8, AuthenticAMD0870F10_K17_Matisse.
ZEN2 = _design(
    fma=(2.0, "llvm"),
    fma_latency=(5.0, "llvm"),
    loads=(2.0, "osaca"),
    stores=(1.0, "osaca"),
    shuffles=(2.0, "llvm"),
    gather=(2.0, "instlat"),
    l2=(31.8, "kerncraft"),
    l3=(23.0, "kerncraft"),
    memory=(9.3, "kerncraft"),
    all_memory=(61.0, "kerncraft"),
)
# osaca: 8.0 cycles for 8.
ZEN3 = _design(
    fma=(2.0, "llvm"),
    fma_latency=(4.0, "llvm"),
    loads=(2.0, "llvm"),
    stores=(1.0, "llvm"),
    shuffles=(2.0, "llvm"),
    gather=(1.0, "osaca"),
    l2=(31.8, "like ZEN2"),
    l3=(23.0, "like ZEN2"),
    memory=(9.3, "like ZEN2"),
)
# Halves of 512 bits, one after the other. osaca: 17.0 cycles for 16.
ZEN4 = _design(
    fma=(1.0, "llvm"),
    fma_latency=(4.0, "llvm"),
    loads=(1.0, "osaca"),
    stores=(0.5, "osaca"),
    shuffles=(1.0, "llvm"),
    gather=(1.06, "osaca"),
    l2=(31.8, "like ZEN2"),
    l3=(23.0, "like ZEN2"),
    memory=(9.3, "like ZEN2"),
)
# A server with units of 512 bits; LLVM's model is that of Zen 4.
ZEN5 = _design(
    fma=(2.0, "measured"),
    fma_latency=(4.0, "measured"),
    loads=(2.0, "measured"),
    stores=(1.0, "measured"),
    shuffles=(4.0, "measured"),
    gather=(0.85, "measured"),
    l2=(47.0, "measured"),
    l3=(29.0, "measured"),
    memory=(10.0, "measured"),
    fork=(2e-6, "measured"),
)
# NEON has no gathers: elements are loaded one by one.
NEOVERSE_N1 = _design(
    fma=(2.0, "llvm"),
    fma_latency=(4.0, "llvm"),
    loads=(2.0, "llvm"),
    stores=(1.0, "llvm"),
    shuffles=(2.0, "llvm"),
    gather=(1.0, "assumed"),
    l2=(29.4, "arm"),
    l3=(14.4, "arm"),
    memory=(8.4, "arm"),
    all_memory=(67.8, "arm"),
)
NEOVERSE_V1 = _design(
    fma=(4.0, "llvm"),
    fma_latency=(4.0, "llvm"),
    loads=(3.0, "llvm"),
    stores=(2.0, "llvm"),
    shuffles=(4.0, "llvm"),
    gather=(1.0, "assumed"),
    l2=(29.4, "like NEOVERSE_N1"),
    l3=(14.4, "like NEOVERSE_N1"),
    memory=(8.4, "like NEOVERSE_N1"),
)
