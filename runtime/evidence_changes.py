"""What has changed between two builds of a model, and what of it is worse: a gate of releases.

Worse are: another partition, an operator that runs elsewhere now, more groups of the same graph,
as a fusion is lost, a kernel whose schedule is no record any more, more memory, and calls whose
median time is beyond the interval of the other.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, NamedTuple

from ..base.checked_json import Such, read
from ..base.durations import format_seconds, median_interval
from ..base.errors import ModelError
from ..base.text import count, format_bytes
from .evidence import Evidence, KernelEvidence
from .partition_evidence import PartitionEvidence, evidence_from

What = Literal[
    "graph", "target", "partition", "elsewhere", "groups", "schedule", "arena", "weights", "time"
]


@dataclass(frozen=True)
class Change:
    """What was `before` and is `after`, of the whole, or of the kernel or operator `of`."""

    what: What
    of: str
    before: str
    after: str
    worse: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Build(NamedTuple):
    """What is known of a build: its evidence, and the seconds of calls if it was timed."""

    evidence: Evidence | PartitionEvidence
    samples: tuple[float, ...] = ()


_Seconds = Annotated[
    tuple[float, ...], Such("seconds", lambda samples: min(samples, default=1) > 0)
]


def build_from(data: object) -> Build:
    """The build of JSON: of evidence, of the manifest of one model, or of what `tilewright run
    --evidence --json` prints.

    Raises `ModelError` for anything else.
    """
    if isinstance(data, dict) and "programs" in data:
        found = read(_Programs, {"programs": data["programs"]}, "manifest", ModelError).programs
        if len(found) != 1:
            raise ModelError("the manifest of {0} programs, expected one model", len(found))
        told = found[0].get("provenance")
        return Build(evidence_from(told.get("evidence") if isinstance(told, dict) else None))
    if isinstance(data, dict) and "evidence" in data:
        samples = read(_Times, {"samples": data.get("samples")}, "times", ModelError).samples
        return Build(evidence_from(data["evidence"]), samples or ())
    return Build(evidence_from(data))


@dataclass(frozen=True)
class _Programs:
    programs: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class _Times:
    samples: _Seconds | None


def changes(before: Build, after: Build) -> list[Change]:
    """What differs between two builds, the worse first."""
    old, new = _Whole(before.evidence), _Whole(after.evidence)
    found = [
        *_facts(old, new),
        *_elsewhere(old, new),
        *_schedules(old.kernels, new.kernels),
        *_times(before.samples, after.samples),
    ]
    return sorted(found, key=lambda change: not change.worse)


class _Whole:
    """The evidence of all parts of a model together."""

    def __init__(self, told: Evidence | PartitionEvidence) -> None:
        parts = told.parts if isinstance(told, PartitionEvidence) else ()
        own = [p.kernels for p in parts if p.kernels is not None]
        own += [told] if isinstance(told, Evidence) else []
        self.parts = [(p.provider, p.operators) for p in parts]
        self.transfers = told.transfers if isinstance(told, PartitionEvidence) else ()
        self.elsewhere = Counter(
            f"{operator} by {provider}"
            for provider, operators in self.parts
            if provider != "tilewright"
            for operator in operators
        )
        self.targets = [*dict.fromkeys(part.target for part in own)]
        self.sources = [(s.name, s.operator) for part in own for s in part.sources]
        self.groups = sum(len(part.groups) for part in own)
        self.kernels = [kernel for part in own for kernel in part.kernels]
        self.arena = sum(part.memory.arena_bytes for part in own)
        self.weights = sum(part.memory.weights_bytes for part in own)

    @property
    def partition(self) -> str:
        if not self.parts:
            return "one part"
        names = ", ".join(provider for provider, _ in self.parts)
        return f"{count(len(self.parts), 'part')}: {names}"


def _facts(old: _Whole, new: _Whole) -> Iterator[Change]:
    """Changes of the whole."""
    if old.targets != new.targets:
        yield Change("target", "", ", ".join(old.targets), ", ".join(new.targets), False)
    if (old.parts, old.transfers) != (new.parts, new.transfers):
        yield Change("partition", "", old.partition, new.partition, True)
    same = old.sources == new.sources
    if not same:
        nodes = [count(len(whole.sources), "node") for whole in (old, new)]
        yield Change("graph", "", nodes[0], nodes[1], False)
    if old.groups != new.groups:
        more = same and new.groups > old.groups
        yield Change("groups", "", str(old.groups), str(new.groups), more)
    sizes: tuple[tuple[What, int, int], ...] = (
        ("arena", old.arena, new.arena),
        ("weights", old.weights, new.weights),
    )
    for what, one, other in sizes:
        if one != other:
            yield Change(what, "", format_bytes(one), format_bytes(other), other > one)


def _elsewhere(old: _Whole, new: _Whole) -> Iterator[Change]:
    for name in dict.fromkeys([*new.elsewhere, *old.elsewhere]):
        one, other = old.elsewhere[name], new.elsewhere[name]
        if one != other:
            yield Change("elsewhere", name, str(one), str(other), other > one)


def _schedules(old: Sequence[KernelEvidence], new: Sequence[KernelEvidence]) -> Iterator[Change]:
    """Kernels by name; others beside those that nothing else has replaced, by their operators."""
    known = {kernel.name: kernel for kernel in old}
    there = {kernel.name for kernel in new}
    left: dict[str, list[KernelEvidence]] = {}
    for kernel in old:
        if kernel.name not in there:
            left.setdefault(kernel.operators, []).append(kernel)
    for kernel in new:
        alike = left.get(kernel.operators)
        before = known.get(kernel.name) or (alike.pop(0) if alike else None)
        if before is not None and before.schedule != kernel.schedule:
            lost = before.schedule == "record"
            yield Change("schedule", kernel.operators, before.schedule, kernel.schedule, lost)


def _times(old: Sequence[float], new: Sequence[float]) -> Iterator[Change]:
    """Medians whose intervals do not meet; where there are too few samples, nothing is known."""
    if not (old and new):
        return
    one, other = median_interval(old), median_interval(new)
    if one is None or other is None or (one[0] <= other[1] and other[0] <= one[1]):
        return
    texts = [format_seconds(statistics.median(samples)) for samples in (old, new)]
    yield Change("time", "", texts[0], texts[1], other[0] > one[1])


def table(found: Sequence[Change]) -> tuple[Sequence[str], list[list[str]]]:
    """Columns and rows; for the marks of columns see `Evidence.table`."""
    return ("changed", "~of", "~before", "~after", ""), [
        [c.what, c.of, c.before, c.after, "worse" if c.worse else ""] for c in found
    ]
