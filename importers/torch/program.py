"""Reading an exported program: its inputs, its weights, its outputs.

Operators that the table has stay as they are; others are decomposed into those of core ATen.
Weights are not copied: arrays share the memory of the tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...base.errors import ModelError
from ...graph.compose.complex import Complex
from ...graph.ir import Graph, Value
from ..unsupported import Reason, Unsupported
from .decompositions import with_ours
from .nodes import AtenNodes, Result, constant_of, input_of, output_of


def import_torch(program: Any, name: str = "") -> Graph:
    """The graph of a `torch.export.ExportedProgram`, whose shapes are static.

    Inputs are named as the arguments of the module, outputs by their keys or places in what it
    returns; a `None` is none. Complex ones are real, with the parts as a last dimension
    (`view_as_real`). Parameters and buffers are constants, whose memory is that of the tensors.
    Raises `UnsupportedError` with all nodes that are not supported, with open dims, with buffers
    that are written, and with results that are no tensors; `ModelError` for what is no program,
    and where PyTorch does not decompose it.
    """
    try:
        import torch
    except ImportError as error:
        raise ModelError(
            "torch is not installed", hint="pip install 'tilewright[torch]'"
        ) from error
    if not isinstance(program, torch.export.ExportedProgram):
        raise ModelError(
            "expected a torch.export.ExportedProgram, found {0}", type(program).__name__,
            hint="torch.export.export(module.eval(), args) makes one of a module",
        )  # fmt: skip
    from . import operators  # noqa: F401  # registers all

    graph = translated(_decomposed(program), name)
    return replace(graph, importer={"importer": "torch", "torch": torch.__version__})


def import_module(module: Any, inputs: Any, name: str = "") -> Graph:
    """The graph of a `torch.nn.Module`, as it is exported with a tuple of example inputs.

    Raises `ModelError` for what is no module with inputs, and where PyTorch does not export it,
    and what `import_torch` raises.
    """
    try:
        import torch
    except ImportError as error:
        raise ModelError(
            "torch is not installed", hint="pip install 'tilewright[torch]'"
        ) from error
    if not isinstance(module, torch.nn.Module) or not isinstance(inputs, tuple):
        raise ModelError(
            "expected a torch.nn.Module and a tuple of example inputs, found {0} and {1}",
            type(module).__name__, type(inputs).__name__, hint="return module.eval(), (x,)",
        )  # fmt: skip
    try:
        program = torch.export.export(module, inputs)
    except Exception as error:  # whatever the module raises, too
        raise _error_of_pytorch(f"export {type(module).__name__}", error) from error
    return import_torch(program, name)


def _error_of_pytorch(action: str, error: Exception) -> ModelError:
    first = str(error).strip().partition("\n")[0]
    return ModelError("PyTorch does not {0}: {1}: {2}", action, type(error).__name__, first)


def _decomposed(program: Any) -> Any:
    """The program in core ATen operators, and in those that the table has."""
    import torch

    table = torch.export.default_decompositions()
    try:
        return program.run_decompositions(with_ours(table))
    except Exception as error:  # of programs that it exported, such as with checks in branches
        raise _error_of_pytorch("decompose the program", error) from error


def translated(program: Any, name: str) -> Graph:
    """The graph of a program whose operators the table has. Raises as `import_torch` does."""
    nodes, signature = AtenNodes(name or "model", program.graph_module), program.graph_signature
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        _add_input(nodes, program, node, spec)
    outputs = _outputs(nodes, program, nodes.translate())
    if not outputs and not nodes.refused:
        nodes.refuse("", "output", Unsupported(Reason.TYPE, "there is no tensor"))
    return nodes.graph(outputs)


def _add_input(nodes: AtenNodes, program: Any, node: Any, spec: Any) -> None:
    from torch.export.graph_signature import ConstantArgument, TensorArgument

    name = spec.target or node.name
    if isinstance(spec.arg, ConstantArgument) or spec.kind.name == "TOKEN":
        return  # a number or `None`, which the program has where it is used, or no value
    try:
        if not isinstance(spec.arg, TensorArgument):
            raise Unsupported(Reason.TYPE, type(spec.arg).__name__)
        if spec.kind.name == "USER_INPUT":
            nodes.scope[node] = input_of(nodes.builder, node.name, node.meta["val"])
        elif spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            held = program.state_dict.get(spec.target)
            held = program.constants[spec.target] if held is None else held
            nodes.scope[node] = constant_of(nodes.builder, held, spec.target)
        else:
            raise Unsupported(Reason.TYPE, spec.kind.name)
    except Unsupported as problem:
        nodes.refuse(name, "input", problem)


def _outputs(nodes: AtenNodes, program: Any, results: Sequence[Result | None]) -> dict[str, Value]:
    """The results by their names, without those that are `None`.

    What the program writes, and what is no tensor, are refused.
    """
    from torch.export.graph_signature import ConstantArgument, TensorArgument

    specs = program.graph_signature.output_specs
    own = [(s, r) for s, r in zip(specs, results, strict=True) if s.kind.name == "USER_OUTPUT"]
    names = _names(program.call_spec.out_spec, "")
    outputs: dict[str, Value] = {}
    for name, (spec, result) in zip(names, own, strict=True):
        if name in outputs:
            raise ModelError("two results would be named {0}", name)
        if isinstance(result, Value | Complex):
            outputs[name] = output_of(nodes.builder, result)
        elif isinstance(spec.arg, ConstantArgument) and spec.arg.value is None:
            continue
        elif not isinstance(spec.arg, TensorArgument):
            kind = type(getattr(spec.arg, "value", spec.arg)).__name__
            nodes.refuse(name, "output", Unsupported(Reason.TYPE, kind))
        elif not nodes.refused:
            raise ModelError("nothing computes the result {0} ({1})", name, spec.arg.name)
    for spec in specs:
        if spec.kind.name not in ("USER_OUTPUT", "TOKEN"):
            detail = f"{spec.kind.name.lower()}, which a call would write"
            nodes.refuse(spec.target or "", "output", Unsupported(Reason.TYPE, detail))
    return outputs


def _names(spec: Any, prefix: str) -> Iterator[str]:
    """A name for each result of a module: keys of what it returns, or places."""
    if spec.is_leaf():
        yield prefix if prefix and not prefix[0].isdigit() else f"output{prefix and '_'}{prefix}"
        return
    children = spec.children()
    keys = _keys(spec.context)
    for place, child in enumerate(children):
        key = keys[place] if len(keys) == len(children) else place
        yield from _names(child, f"{prefix}_{key}" if prefix else str(key))


def _keys(context: Any) -> Sequence[Any]:
    """What a dictionary, a named tuple or a dataclass calls its values; nothing of others."""
    if isinstance(context, type):
        return getattr(context, "_fields", ())
    if not isinstance(context, list):
        return ()
    fields = context[0] if context and isinstance(context[0], list) else None
    return context if fields is None else fields  # of a dataclass, before those that are none
