"""The evidence of a model: what became of its nodes, its kernels, its memory and the build's time.

`print(model.evidence)` shows it on a screen. It is data: `to_json` and `from_json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, Literal

from ..base.checked_json import Such, read
from ..base.display import html
from ..base.durations import format_seconds
from ..base.errors import ModelError
from ..base.hints import Hinted
from ..base.text import aligned, count, cut, format_bytes, format_si, printable, short_id
from .module import OriginKind

VERSION: Final = 2
"""Of the JSON form."""
_KERNELS = 20
"""Kernels of the text of a model, the slowest ones; `text` has all on request."""
_OPERATORS = 40
"""Cells of the operators of a kernel in a text."""

_BECAME = {
    "group": "in groups",
    "view": "views",
    "folded": "folded",
    "merged": "merged with equal ones",
    "operand": "without effect",
    "unused": "unused or replaced",
}
"""How a text says what became of nodes."""

Natural = Annotated[int, Such("a number from 0 on", lambda n: n >= 0)]


@dataclass(frozen=True)
class NodeEvidence:
    """A node of the graph, the types of its outputs, and the number of the group that computes it.

    A node without a group is a view, another name for the memory of its operand.
    """

    operator: str
    types: tuple[str, ...]
    group: Natural | None


@dataclass(frozen=True)
class SourceEvidence:
    """A node of the file that the graph was read from, and what it became.

    `group`: the group of that number computes it; `view`: it is another name for the memory of its
    operand; `folded`: it was computed ahead; `merged`: an equal node stands before it; `operand`:
    it changes nothing; `unused`: nothing needs it, or other nodes stand for it and what reads it.
    """

    name: str
    operator: str
    became: Literal["group", "view", "folded", "merged", "operand", "unused"]
    group: Natural | None


@dataclass(frozen=True)
class GroupEvidence:
    """A group of nodes, in the order in which groups run: its kernel, and the groups it reads."""

    kernel: str
    reads: tuple[Natural, ...]


@dataclass(frozen=True)
class KernelEvidence:
    """A kernel: what a call of it does and where its schedule comes from.

    `groups` run it. `operations` are those on floats. `read_bytes` are of operands that calls
    compute, `constant_bytes` of others. The schedule is as of `Origin`, and `seconds` are of a
    call: measured for a `record`, else predicted. `least_seconds` are those of the roofline, and
    `bound` is what bounds it. Figures that are not known are `None`.
    """

    name: str
    operators: str
    groups: Natural
    operations: Natural | None
    read_bytes: Natural
    constant_bytes: Natural
    written_bytes: Natural
    workspace_bytes: Natural
    schedule: OriginKind
    record: str | None
    detail: str
    seconds: float | None
    least_seconds: float | None
    bound: Literal["arithmetic", "memory"] | None

    def __repr__(self) -> str:
        return f"<KernelEvidence {self.name}: {count(self.groups, 'group')}>"

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.constant_bytes + self.written_bytes


@dataclass(frozen=True)
class Lifetime:
    """Bytes of the arena at an offset, needed from group `first` to `last`; copies follow groups.

    `workspace`: a kernel computes in them; otherwise they have a value.
    """

    name: str
    workspace: bool
    bytes: Natural
    offset: Natural
    first: Natural
    last: Natural


@dataclass(frozen=True)
class MemoryEvidence:
    """The memory of a call: the arena, beside inputs, outputs and weights.

    `live_bytes` is the largest sum of lifetimes at one group. Of `weights_bytes`, `packed_bytes`
    are in a form of their own for a kernel. `copied` are outputs that are copied at the end: each
    is an input, a constant or another output as well.
    """

    arena_bytes: Natural
    live_bytes: Natural
    lifetimes: tuple[Lifetime, ...]
    weights_bytes: Natural
    packed_bytes: Natural
    copied: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<MemoryEvidence: an arena of {format_bytes(self.arena_bytes)}>"


@dataclass(frozen=True)
class Evidence(Hinted):
    """What is known of a model that was built: everything that was decided, with figures.

    `sources` are the nodes of the file, `rewrites` says how often each one was applied, and `nodes`
    are those of the graph after that. `seconds` are those of the build by stage. Artifacts
    have none, and no predicted times of kernels: equal builds have equal bytes. All nodes are
    kernels or views: what runs elsewhere, and why, is in the `PartitionEvidence` of a model that
    several providers run.
    """

    version: Literal[2]
    model: str
    target: str
    sources: tuple[SourceEvidence, ...]
    rewrites: Mapping[str, Natural]
    nodes: tuple[NodeEvidence, ...]
    groups: tuple[GroupEvidence, ...]
    kernels: tuple[KernelEvidence, ...]
    memory: MemoryEvidence
    seconds: Mapping[str, float]

    _repr_html_ = html

    def validate(self) -> None:
        """Raise `ValueError` for numbers and names of what is not there."""
        kernels = {kernel.name for kernel in self.kernels}
        last = len(self.groups)
        numbers = [n for group in self.groups for n in group.reads]
        numbers += [n.group for n in self.nodes if n.group is not None]
        numbers += [s.group for s in self.sources if s.group is not None]
        if not kernels.issuperset(group.kernel for group in self.groups):
            raise ValueError("a group has a kernel that is not there")
        if any(number >= last for number in numbers):
            raise ValueError(f"a group beyond the last of {last}")

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object: the fields by name."""
        return asdict(self)

    @staticmethod
    def from_json(data: object) -> Evidence:
        """The evidence of its JSON form. Raises `ModelError` for anything malformed.

        Version 1 also had `fallbacks`, which were always empty.
        """
        if (
            isinstance(data, dict)
            and data.get("version") == 1
            and data.get("fallbacks") in ([], ())
        ):
            data = {k: v for k, v in data.items() if k != "fallbacks"} | {"version": VERSION}
        return read(Evidence, data, "evidence", ModelError)

    def table(self) -> tuple[Sequence[str], list[list[str]]]:
        """Columns and rows of the kernels, those first that take longest in all.

        A column may begin with `>`, to the right, `~`, may be wrapped, or `?`, may be left out.
        """
        columns = ("~kernel", ">groups", ">operations", ">bytes", ">least", ">expected", "schedule")
        return columns, [_row(kernel) for kernel in sorted(self.kernels, key=_order)]

    def text(self, kernels: int | None = _KERNELS) -> str:
        """The evidence as text, with so many kernels, all for `None`."""
        columns, rows = self.table()
        shown = rows[:kernels]
        left = rows[len(shown) :]
        lines = [f"{name:<9} {value}" for name, value in self.facts().items()]
        if shown:
            brief = [[cut(row[0], _OPERATORS), *row[1:]] for row in shown]
            lines += ["", *aligned(columns, brief)]
        if left:
            lines.append(f"and {count(len(left), 'kernel')} more: print(evidence.text(None))")
        return "\n".join(lines)

    def facts(self) -> dict[str, str]:
        """What is said of the whole, by name."""
        memory, views = self.memory, sum(node.group is None for node in self.nodes)
        parts = [count(len(self.groups), "group"), *([count(views, "view")] if views else [])]
        packed = f", {format_bytes(memory.packed_bytes)} packed" if memory.packed_bytes else ""
        build = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in self.seconds.items())
        became = Counter[str](source.became for source in self.sources)
        file = {"file": became_text(became)} if self.sources else {}
        rewrites = Counter(self.rewrites).most_common()
        return {
            "model": f"{self.model} for {self.target}",
            **file,
            "rewrites": ", ".join(f"{name} {number}" for name, number in rewrites) or "none",
            "nodes": f"{count(len(self.nodes), 'node')} in {' and '.join(parts)}",
            "kernels": ", ".join([str(len(self.kernels)), *self._schedules()]),
            "arena": f"{format_bytes(memory.arena_bytes)}, {format_bytes(memory.live_bytes)} live",
            "weights": f"{format_bytes(memory.weights_bytes)}{packed}",
            "copied": printable(", ".join(memory.copied)) or "nothing",
            **({"build": f"{sum(self.seconds.values()):.2f} s: {build}"} if build else {}),
        }

    def _schedules(self) -> list[str]:
        kinds = Counter(kernel.schedule for kernel in self.kernels)
        return [f"{number} by {kind}" for kind, number in kinds.items()]

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Evidence of {self.model}: {count(len(self.kernels), 'kernel')}>"


def became_text(became: Counter[str]) -> str:
    """How many nodes of a file became what."""
    parts = ", ".join(f"{number} {_BECAME[fate]}" for fate, number in became.most_common())
    return f"{count(became.total(), 'node')}: {parts}"


def _order(kernel: KernelEvidence) -> float:
    return -kernel.groups * (kernel.seconds or kernel.least_seconds or 0.0)


def _row(kernel: KernelEvidence) -> list[str]:
    record = "" if kernel.record is None else f" {short_id(kernel.record)}"
    return [
        kernel.operators,
        str(kernel.groups),
        "" if kernel.operations is None else format_si(kernel.operations),
        format_bytes(kernel.bytes),
        "" if kernel.least_seconds is None else format_seconds(kernel.least_seconds),
        "" if kernel.seconds is None else format_seconds(kernel.seconds),
        f"{kernel.schedule}{record}",
    ]
