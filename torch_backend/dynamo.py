"""The backend that Dynamo calls: a captured function becomes graphs of ATen, and these are built.

AOTAutograd makes them: one for inference; with gradients one forward and one backward.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import PurePath
from typing import Any, Literal

import torch
from torch._C import DispatchKey
from torch._dynamo.backends.common import aot_autograd
from torch._guards import CompileContext, TracingContext
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..base.errors import BuildError, TilewrightError
from ..importers.torch.captured import decompositions
from ..importers.torch.table import TABLE
from .compiled_graph import CompiledGraph
from .draws import (
    DECOMPOSITIONS,
    partition,
    with_recurrent_layers,
    with_row_major_bernoulli,
)
from .open_sizes import OpenGraph, is_open
from .options import Options
from .report import RECORDS, Break, CapturedGraph, break_of

Kind = Literal["inference", "forward", "backward"]


def compile_captured(
    module: Any,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo: what `torch.compile(..., backend="tilewright")` calls.

    `options` are those of `Options`. A call of the result raises `BuildError` for options that are
    unknown, and for a graph break where these are to fail, `UnsupportedError` for operators that
    are not supported, and what `tw.build` raises. Where breaks are to fail, a function that is
    compiled for too many sizes raises `BuildError` at once, which Dynamo wraps.
    """
    function, source = _origin(module)
    try:
        if mode not in (None, "default"):
            raise BuildError("unknown mode {0!r}", mode, hint="leave it out", option="mode")
        known = Options.of(options)
        _require_whole(module, function, known)
    except TilewrightError as error:
        return partial(_refused, error)
    if known.breaks == "fail":
        _require_few_sizes(module, examples)
    with_row_major_bernoulli(module)
    resumed = _RESUMED.fullmatch(function)
    compiler = partial(_compiled, resumed[1] if resumed else function, source, known)
    with (
        _attention(examples),
        _without_python_kernels(),
        with_recurrent_layers(),
        _with_all_draws(),
    ):
        call: Callable[..., Any] = aot_autograd(
            fw_compiler=partial(compiler, "forward"),
            bw_compiler=partial(compiler, "backward"),
            inference_compiler=partial(compiler, "inference"),
            partition_fn=partition,
            decompositions={**decompositions(), **DECOMPOSITIONS},
            keep_inference_input_mutations=False,
        )(module, examples)
    return call


def _compiled(
    function: str, source: str, options: Options, kind: Kind, module: Any, examples: Sequence[Any]
) -> CompiledGraph | OpenGraph:
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    counts = Counter(str(node.target) for node in nodes if "getitem" not in str(node.target))
    record = RECORDS.add(CapturedGraph(function, source, kind, dict(counts)))
    weights = _weights(examples) if kind == "inference" and options.freeze else []
    if any(map(is_open, examples)):
        return OpenGraph(module, examples, weights, options, record)
    return CompiledGraph(module, weights, options, record)


def _weights(examples: Sequence[Any]) -> list[int]:
    """The arguments that are parameters and buffers, and that the graph does not write."""
    context = TracingContext.try_get()
    facts = None if context is None else context.fw_metadata
    if facts is None:
        return []
    written = set(facts.mutated_inp_runtime_indices)
    return [
        n
        for n in facts.static_input_indices
        if n not in written and n < len(examples) and _can_be_frozen(examples[n])
    ]


def _can_be_frozen(example: Any) -> bool:
    return isinstance(example, torch.Tensor) and not example.is_inference()


def _refused(error: TilewrightError, *_arguments: Any) -> Any:
    raise error


def _attention(examples: Sequence[Any]) -> AbstractContextManager[Any]:
    """With gradients attention is products and a softmax, whose gradients are such again."""
    tensors = [e for e in examples if isinstance(e, torch.Tensor)]
    trains = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return sdpa_kernel(SDPBackend.MATH) if trains else nullcontext()


def _with_all_draws() -> AbstractContextManager[Any]:
    """Capture numbers that nothing reads, too: those drawn after them depend on them."""
    patch: AbstractContextManager[Any] = torch._inductor.config.patch(fallback_random=True)
    return patch


@contextmanager
def _without_python_kernels() -> Iterator[None]:
    """Capture operators whole that PyTorch's kernels in Python divide before all decompositions."""
    removed = []
    for operator in _kept_operators():
        kernels = operator.py_kernels
        removed.append((operator, {key: kernels.pop(key) for key in _PYTHON if key in kernels}))
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, kernels in removed:
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()


_PYTHON = DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd


@cache
def _kept_operators() -> Sequence[Any]:
    """Overloads that, with their gradients, are in the table of operators: resizings, of which
    PyTorch makes lookups, and a loss that it computes wrongly."""
    decompositions()  # it loads the table
    suffix = "_backward.default"
    names = (name.removesuffix(suffix) for name in TABLE if name.endswith(suffix))
    packets = [getattr(torch.ops.aten, n) for n in names if n.startswith("upsample_")]
    resizings = [getattr(packet, name) for packet in packets for name in packet.overloads()]
    return [*resizings, torch.ops.aten.multilabel_margin_loss_forward.default]


_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
"""How Dynamo names what follows a break: the function, and the line."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([^\n]+)')


def _origin(module: Any) -> tuple[str, str]:
    """The function that was captured, and the line of its first operator."""
    for node in module.graph.nodes:
        frames = _FRAME.findall(node.meta.get("stack_trace") or "")
        own = [f for f in frames if "/torch/nn/" not in PurePath(f[0]).as_posix()]
        if frames:
            path, line, function = (own or frames)[-1]
            return function, f"{PurePath(path).name}:{line}"
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if stack:
            return str(getattr(stack[0][1], "__name__", stack[0][1])), "its forward"
    return "function", "unknown"


def _require_whole(module: Any, function: str, options: Options) -> None:
    """Raise `BuildError` for a graph that a break ends, or begins, where breaks are to fail."""
    if options.breaks != "fail":
        return
    own = getattr(module, "compile_subgraph_reason", None)
    resumed = _RESUMED.fullmatch(function)
    if own is not None and own.graph_break:
        one = break_of(own)
    elif resumed is not None:  # of a break before the first operator, or the backend had refused
        unknown = Break(f"line {resumed[2]}", "Dynamo has not noted why")
        one = RECORDS.break_at(int(resumed[2])) or unknown
    else:
        return
    raise BuildError(
        "the graph ends at {0}: {1}", one.source, one.reason,
        hint="torch.compile(..., fullgraph=True) has the whole reason", source=one.source,
    )  # fmt: skip


_SIZES: dict[object, list[dict[str, tuple[Any, ...]]]] = {}
"""By frames of Dynamo: the sizes of all tensors that they were compiled for."""


def _require_few_sizes(module: Any, examples: Sequence[Any]) -> None:
    """Raise `BuildError` before Dynamo gives up, and runs a function by PyTorch without a word."""
    current = CompileContext.current_compile_id()
    if current is None or current.frame_id is None or current.frame_compile_id is None:
        return
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    sizes: dict[str, tuple[object, ...]] = {
        name: tuple(e if isinstance(e, int) else "open" for e in example.shape)
        for name, example in zip(names, examples, strict=False)
        if isinstance(example, torch.Tensor)
    }
    if not current.frame_compile_id:
        _SIZES[current.frame_id] = []  # numbers begin anew after a reset of Dynamo
    seen = _SIZES.setdefault(current.frame_id, [])
    seen.append(sizes)
    limit = torch._dynamo.config.recompile_limit
    if current.frame_compile_id < limit - 1:
        return
    varied = _varied(seen)
    if not varied:  # threads that compile at once are counted too
        return
    raise BuildError(
        "the function is compiled for the {0}th time, of at most {1}: {2}",
        current.frame_compile_id + 1, limit - 1, "; ".join(varied),
        hint="pad to a few sizes, or raise torch._dynamo.config.recompile_limit; the environment "
        "variable TORCH_LOGS=recompiles says what each time was for",
        dims=varied,
    )  # fmt: skip


def _varied(seen: Sequence[Mapping[str, tuple[object, ...]]]) -> list[str]:
    """The dims of arguments that had several sizes, and these."""
    found = []
    for name, shape in seen[-1].items():
        for dim in range(len(shape)):
            shapes = [s[name] for s in seen if name in s and len(s[name]) == len(shape)]
            sizes = dict.fromkeys(s[dim] for s in shapes)
            if len(sizes) > 1:
                found.append(f"dim {dim} of {name} was {', '.join(map(str, sizes))}")
    return found
