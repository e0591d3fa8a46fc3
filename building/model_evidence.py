"""The evidence of a model, of what its build leaves behind: `runtime/evidence.py` has the records.

What takes time to find out, the figures of kernels, is found out when the evidence is asked for.
No constants and no code are held until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..base.errors import TilewrightError
from ..base.text import count
from ..codegen.compiled import Compiled, as_program, as_text
from ..graph.fates import fates
from ..graph.groups import Group
from ..graph.ir import Graph, Value
from ..graph.loops import Loop, kernel_groups
from ..runtime.evidence import (
    VERSION,
    Evidence,
    GroupEvidence,
    KernelEvidence,
    Lifetime,
    MemoryEvidence,
    NodeEvidence,
    SourceEvidence,
)
from ..target import Target
from ..tir.ir import Func
from .compile_all import ChosenKernel
from .model_steps import Steps, root
from .origins import together
from .weights import Weights


@dataclass(frozen=True)
class BuiltEvidence:
    """Returns the evidence of a model when it is called.

    `plain` is without the figures of kernels and the `seconds` of the build, to which later stages
    are added. `programs` are those of kernels by name, as written and as scheduled.
    """

    plain: Evidence
    programs: Mapping[str, tuple[Func | str, Func | str]]
    target: Target
    seconds: Mapping[str, float]

    def __call__(self) -> Evidence:
        kernels = tuple(
            _with_figures(kernel, *self.programs[kernel.name], self.target)
            if kernel.name in self.programs
            else kernel
            for kernel in self.plain.kernels
        )
        return replace(self.plain, kernels=kernels, seconds=dict(self.seconds))

    def texts(self) -> dict[str, tuple[str, str]]:
        """The programs as texts."""
        return {
            name: (as_text(written), as_text(scheduled))
            for name, (written, scheduled) in self.programs.items()
        }


def evidence_of(
    graph: Graph,
    groups: Sequence[Group],
    called: Mapping[Group, ChosenKernel],
    codes: Mapping[Group, Compiled],
    steps: Steps[Value],
    weights: Weights,
    target: Target,
    rewrites: Mapping[str, int],
    seconds: Mapping[str, float],
) -> BuiltEvidence:
    """The evidence of a model whose groups have this code, of these kernels."""
    numbers = {node: n for n, group in enumerate(groups) for node in group.nodes}
    nodes = tuple(
        NodeEvidence(node.operator, tuple(str(v.type) for v in node.outputs), numbers.get(node))
        for node in graph.nodes
    )
    sources = tuple(
        SourceEvidence(source.name, source.operator, became.value, group)
        for source, became, group in fates(graph, groups)
    )
    memory = MemoryEvidence(
        steps.memory.bytes,
        steps.live_bytes,
        tuple(_lifetimes(graph, steps)),
        weights.bytes,
        weights.packed_bytes,
        steps.copied,
    )
    kernels: dict[str, KernelEvidence] = {}
    programs: dict[str, tuple[Func | str, Func | str]] = {}
    runs = Counter(codes[group].signature.name for group in groups)
    for group in groups:
        name = codes[group].signature.name
        sizes = (group.read_bytes, group.constant_bytes, group.written_bytes)
        if group.loop is not None:
            kernels[name] = _loop(group.loop, codes[group], sizes, called)
        elif name not in kernels:
            kernels[name] = _kernel(called[group], sizes, group.name, runs[name])
            (scheduled,) = called[group].compiled.scheduled
            programs[name] = called[group].func, scheduled
    plain = Evidence(
        VERSION, steps.signature.name, str(target), sources, dict(rewrites), nodes,
        tuple(_groups(graph, groups, codes)), tuple(kernels.values()), memory, {},
    )  # fmt: skip
    return BuiltEvidence(plain, programs, target, seconds)


def _groups(
    graph: Graph, groups: Sequence[Group], codes: Mapping[Group, Compiled]
) -> Iterator[GroupEvidence]:
    makers = {value: n for n, group in enumerate(groups) for value in group.outputs}
    for group in groups:
        read = (makers.get(root(graph, value)) for value in group.inputs)
        reads = sorted({n for n in read if n is not None})
        yield GroupEvidence(codes[group].signature.name, tuple(reads))


def _lifetimes(graph: Graph, steps: Steps[Value]) -> Iterator[Lifetime]:
    for key, block in steps.blocks.items():
        name = "" if isinstance(key, int) else f"{graph.producers[key].operator} {key.type}"
        yield Lifetime(
            name, isinstance(key, int), block.bytes, steps.memory.offsets[key], block.first,
            block.last,
        )  # fmt: skip


def _loop(
    loop: Loop,
    code: Compiled,
    sizes: tuple[int, int, int],
    called: Mapping[Group, ChosenKernel],
) -> KernelEvidence:
    """A loop as the kernel that it is for who calls it: its schedule is the least certain one."""
    kernels = [called[group] for group, _ in kernel_groups(loop.groups)]
    origin = together([kernel.choice.origin for kernel in kernels])
    told = f"{count(loop.count, 'step')} of {count(len(kernels), 'kernel')}: {origin.detail}"
    return KernelEvidence(
        code.signature.name, loop.name, 1, None, *sizes, code.signature.workspace_bytes,
        origin.kind, None, told, None, None, None,
    )  # fmt: skip


def _kernel(
    kernel: ChosenKernel, sizes: tuple[int, int, int], operators: str, groups: int
) -> KernelEvidence:
    origin, code = kernel.choice.origin, kernel.compiled.signature
    return KernelEvidence(
        code.name, operators, groups, None, *sizes, code.workspace_bytes, origin.kind,
        origin.record_id, origin.detail, kernel.choice.seconds, None, None,
    )  # fmt: skip


def _with_figures(
    kernel: KernelEvidence, written: Func | str, scheduled: Func | str, target: Target
) -> KernelEvidence:
    from ..autotune.measure.machine import with_rates
    from ..autotune.model.profile import profile
    from ..autotune.model.target_model import model_for
    from ..autotune.records import flops

    seconds, least, bound, operations = kernel.seconds, None, None, None
    try:
        func = as_program(written)
        # Of a program without blocks nothing is counted.
        operations = flops(func) if profile(func).visits else None
        model, described = model_for(target), with_rates(target)
        roofline = model.roofline(func, described)
        least, bound = roofline.seconds, roofline.bound
        if seconds is None:
            seconds = model.estimate(as_program(scheduled), described).seconds
    except TilewrightError:  # a kind without rates or a model, a program that is not read again
        pass
    return replace(kernel, operations=operations, seconds=seconds, least_seconds=least, bound=bound)
