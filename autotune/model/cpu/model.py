"""The model of processors, and the files of the base model that comes with it.

The figures of a candidate on a processor: registers, vectors, and what each cache holds.

What processors can build, as `codegen/passes/registers.py` checks it of a program.

The least time that a program can take on a processor: its roofline.

The larger of two times: that of its floating-point operations at the peak rate of all cores, and
that of bringing each argument once from the innermost cache that holds them all, or from memory
(Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009). The rates are those of the target:
measured ones, or those of the table of processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from ....base.errors import TuningError
from ....target import CpuTarget, Rates, Target
from ....tir.instruction_set import products_of
from ....tir.ir import Buffer, ForKind, Func
from ...rules.common import native_lanes, nbytes
from ..profile import Profile, Visit, profile
from ..target_model import Features, Figure, Limit, Roofline, SampledFacts, TargetModel, shares
from .estimate import FEATURES, USABLE, VERSION, Estimator

MODEL_FILE = Path(__file__).with_name("base") / "model.json"
"""The base model."""


class CpuFacts(SampledFacts):
    """The `caches` of a processor (bytes of L1, L2 and L3), their `ways`, `line_bytes` and `rates`.

    Those that are `None` or left out are those of the table of processors. Rates are written also
    where none were measured, so that features do not change with that table.
    """

    def of(self, target: Target) -> dict[str, Any]:
        cpu = CpuTarget.of(target)
        return {
            "caches": [cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes],
            "rates": cpu.rates.to_json(),
            "ways": list(cpu.ways),
            "line_bytes": cpu.line_bytes,
        }

    def described(self, target: Target, facts: Mapping[str, Any]) -> CpuTarget:
        known = self.of(target) | {name: x for name, x in facts.items() if x is not None}
        try:
            l1, l2, l3 = _numbers(known.pop("caches"), least=0)
            w1, w2, w3 = _numbers(known.pop("ways"), least=1)
            (line_bytes,) = _numbers([known.pop("line_bytes")], least=1)
            rates = Rates.from_json(dict(known.pop("rates")))
        except (TypeError, ValueError) as error:
            raise TuningError("expected facts of {0}: {1}", target, error) from error
        super().described(target, known)
        return replace(
            CpuTarget.of(target),
            l1_bytes=l1,
            l2_bytes=l2,
            l3_bytes=l3,
            ways=(w1, w2, w3),
            line_bytes=line_bytes,
            rates=rates,
        )

    def machine(self, target: Target) -> str:
        """Its caches: it has these whatever it is taken for."""
        cpu = CpuTarget.of(target)
        return f"{cpu.l1_bytes}/{cpu.l2_bytes}/{cpu.l3_bytes}"


def _numbers(values: Any, least: int) -> list[int]:
    numbers = list(values)
    if not all(type(n) is int and n >= least for n in numbers):
        raise ValueError(f"expected integers from {least} on, found {values!r:.80}")
    return numbers


def figures(features: Features, target: Target) -> tuple[Figure, ...]:
    """Of the block that takes longest: its register tile, its vectors, and its working sets.

    Those are of an iteration of the loop above the straight code, which L1 should hold, and of an
    iteration of the outermost loop that is not parallel, for L2.
    """
    cpu, share = CpuTarget.of(target), shares(FEATURES, features)
    registers, width = cpu.vector_registers, cpu.vector_bits
    return (
        Figure("accumulators", share["accumulators"] * registers, "registers", registers),
        Figure("vectors", share["vectors"] * width, f"bits in registers of {width}"),
        Figure("unrolled", share["unrolled"], "copies"),
        Figure("register tile", share["tile_bytes"] * registers * width / 8, "bytes"),
        Figure("L1 working set", share["middle_bytes"] * cpu.l1_bytes, "bytes", cpu.l1_bytes),
        Figure("L2 working set", share["outer_bytes"] * cpu.l2_bytes, "bytes", cpu.l2_bytes),
        Figure("threads at work", share["balance"] * cpu.threads, "threads", cpu.threads),
    )


_STRAIGHT = (ForKind.UNROLL, ForKind.VECTOR)
"""The kinds of loops whose variables become constants."""


def limits(source: Profile, target: Target) -> Iterator[Limit]:
    del target
    for visit in source.visits:
        for access in visit.accesses:
            if access.buffer.scope != "register":
                continue
            for term in (t for terms in access.terms for t in terms):
                if visit.kinds[term.loop] not in _STRAIGHT:
                    name = f"indices of {access.buffer.name}, held in registers, are constants"
                    yield Limit(name, term.values <= 1)


def roofline(func: Func, target: Target) -> Roofline:
    """The roofline of a concrete program on a resolved target, which is a processor."""
    target = CpuTarget.of(target)
    cores = max(1, min(target.threads, target.cores))
    cycles = 0.0
    for visit in profile(func).visits:
        count = prod(n for n in visit.extents if isinstance(n, int))
        lanes = native_lanes(target.vector_bits, visit.dtype)
        each = visit.operations / (2.0 * lanes * target.rates.fma)
        cycles += count * min([each, *_products(visit, target)])
    size = sum(nbytes(p) for p in func.params if isinstance(p, Buffer))
    rate = _rate(size, cores, target)
    return Roofline(cycles / (target.rates.hertz * cores), size / rate if rate else 0.0)


def _products(visit: Visit, target: CpuTarget) -> Iterator[float]:
    """Cycles of one product and its sum, by each instruction that the target has for such."""
    sums = {a.buffer for a in visit.accesses if a.stores}
    factors = [a.buffer.dtype for a in visit.accesses if a.buffer not in sums]
    if not visit.accumulates or len(factors) != 2:
        return
    for _, product, cost in products_of(target):
        if product.dtypes == (visit.dtype, *factors):
            yield cost.cycles / product.count


def _rate(size: int, cores: int, target: CpuTarget) -> float | None:
    """Bytes per second from where `size` bytes stay between calls; `None` for L1."""
    bandwidths = target.bandwidths
    rooms = (
        (target.l1_bytes * cores, None),
        (target.l2_bytes * cores, bandwidths.get("L2")),
        (target.l3_bytes, bandwidths.get("L3")),
    )
    for room, rate in rooms:
        if size <= USABLE * room:
            return rate
    return bandwidths["memory"]


MODEL = TargetModel(FEATURES, VERSION, Estimator, roofline, MODEL_FILE, CpuFacts(), figures, limits)
