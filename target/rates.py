"""The rates of a core: the description of a machine that estimates rest on.

The rates of this machine are measured (`codegen/cpu/machine.py`); those of other processors are the
rows below, which the table of processors names. They are typical values, not measurements, except
for those of Cascade Lake: what they are to agree with is Fog, "Instruction tables" and "The
microarchitecture of Intel, AMD and VIA CPUs" (agner.org/optimize), Intel's and AMD's optimization
manuals, and Arm's for Neoverse N1 and V1. Bandwidths and clocks are guesses of their order.
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
    nothing. The latencies are nanoseconds until a load is there (0: not known).
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
        """The rates by name, without what is not known."""
        return {name: value for name, value in self._asdict().items() if value}

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


HASWELL = Rates(hertz=3.0e9, fma_latency=5.0, gather=1.5, l3=10.0)
SKYLAKE = Rates(hertz=3.2e9, gather=1.0, l3=10.0)
SKYLAKE_SERVER = Rates()
ICELAKE = Rates(hertz=2.9e9, gather=1.0, l2=40.0, l3=8.0)
GOLDEN_COVE = Rates(hertz=3.0e9, gather=1.5, l2=40.0, l3=8.0)
ZEN = Rates(hertz=3.0e9, fma=1.0, fma_latency=5.0, loads=1.0, stores=0.5, gather=2.5, l3=10.0)
"""Halves of 256 bits, one after the other."""
ZEN2 = Rates(hertz=3.0e9, fma_latency=5.0, shuffles=2.0, gather=2.5, l3=12.0)
ZEN3 = Rates(hertz=3.3e9, shuffles=2.0, gather=2.0, l3=14.0)
ZEN4 = Rates(hertz=3.5e9, fma=1.0, loads=1.0, stores=0.5, gather=1.5, l3=14.0)
"""Halves of 512 bits, one after the other."""
ZEN5 = Rates(hertz=4.0e9, shuffles=2.0, gather=1.5, l2=48.0, l3=14.0)
NEOVERSE_N1 = Rates(hertz=2.8e9, stores=1.0, gather=1.0, l2=24.0)
NEOVERSE_V1 = Rates(hertz=2.6e9, fma=4.0, loads=3.0, stores=2.0, shuffles=2.0, gather=1.0)
