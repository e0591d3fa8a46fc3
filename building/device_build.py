"""Building the part of a graph that a device runs: kernels that the host submits."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.errors import BuildError
from ..codegen.build import to_module
from ..codegen.generator import generator_for
from ..codegen.sequence import Address, Copy, KernelCall
from ..graph.ir import Graph
from ..runtime.device_part import CopyStep, DevicePart, KernelStep, Place
from ..runtime.module import Module
from ..runtime.target_runtime import runtime_for
from .build_model import KernelsAndSteps, kernels_and_steps
from .build_program import Ways


def build_for_device(graph: Graph, ways: Ways, timeout: float | None = None) -> DevicePart:
    """Compile a graph without indices to guard, and load its kernels, for a resolved target.

    `timeout` is that of waits for it, in seconds. Raises what `tw.build` raises.
    """
    if not generator_for(ways.target).on_device:
        raise BuildError("{0}: expected the target of a device, found {1}", graph.name, ways.target)
    found = kernels_and_steps(graph, ways)
    steps = tuple(_steps(found))
    memory = runtime_for(ways.target).memory
    arena = found.plan.memory.bytes
    return DevicePart(memory, steps, arena, found.weights, found.evidence, timeout)


def _steps(found: KernelsAndSteps) -> Iterator[KernelStep | CopyStep]:
    modules = dict[str, Module]()
    for step in found.plan.steps:
        if isinstance(step, Copy):
            yield CopyStep(_place(step.source), _place(step.destination), step.bytes)
            continue
        assert isinstance(step, KernelCall)
        assert not step.guards
        code = step.kernel
        name = code.signature.name
        if name not in modules:
            # Indices without guards are known to be within their limits.
            modules[name] = to_module(code, found.choices[name].origin, trust_indices=True)
        workspace = None if step.workspace is None else _place(step.workspace)
        yield KernelStep(modules[name], tuple(map(_place, step.places)), workspace)


def _place(address: Address) -> Place:
    return Place(address.argument, address.offset)
