"""What stands for a captured graph: it is built when it is first called, and runs on tensors.

Arguments are passed by their addresses. Outputs are new tensors of PyTorch, with the strides that
it expects of them. Weights that are frozen are constants of a program: each call compares them with
what they were, and where they have changed, the program is built again.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from ..base.errors import BuildError, GuardError, TilewrightError, UnsupportedError
from ..building.build import build
from ..graph.ir import Graph
from ..importers.torch.assertions import CHECKS_OF_LINEAR_ALGEBRA
from ..importers.torch.captured import (
    Captured,
    Given,
    Known,
    Tensor,
    View,
    import_captured,
)
from ..runtime.model import Model
from .draws import Draw, separate
from .options import Options
from .report import CapturedGraph

MAX_WEIGHTS = 64
"""A graph is built for so many sets of weights; for others, they are inputs of its program."""
MAX_CHANGES = 3
"""Weights that change more often are inputs from then on."""
SAMPLES = 16
"""Of each weight so many elements are compared by every call.

PyTorch counts writes, but for those through `Tensor.data` and arrays of numpy. The samples find
these, unless they change none of the samples.
"""

Call: TypeAlias = "Callable[[list[Any]], list[Any]]"
"""Of the arguments of a graph, its results."""


class CompiledGraph:
    """A captured graph as AOTAutograd calls it: with a list of arguments, which it empties."""

    def __init__(
        self, module: Any, weights: Sequence[int], options: Options, record: CapturedGraph
    ) -> None:
        """`weights` are the numbers of the arguments that may be constants."""
        self._boxed_call = True  # its own attribute, which wrappers of Dynamo copy
        self._module = module
        self._weights = tuple(weights)
        self._options = options
        self._record = record
        self._pure, self._draws = separate(module)
        record.drawn = len(self._draws)
        record.compiled.append(weakref.ref(self))
        self._lock = threading.Lock()
        self._frozen: dict[tuple[int, ...], _Frozen] = {}
        self._changes = 0
        self._plain: Call | None = None

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = list(arguments)
        arguments.clear()
        self._record.calls += 1
        if self._weights:
            key = tuple([given[n].data_ptr() for n in self._weights])
            frozen = self._frozen.get(key)
            if frozen is None or not frozen.holds(given):
                frozen = self._built(key, given)
            if frozen is not None:
                return frozen.run(given)
        run = self._plain or self._built_plain()
        return run(given)

    @property
    def ways(self) -> tuple[str, Options]:
        """The target that it is built for, and its other options."""
        threads = self._options.threads or torch.get_num_threads()
        return f"cpu -threads={threads}", self._options

    def graphs(self) -> list[Graph]:
        """What Tilewright has built of it: with weights that are constants, and with none."""
        with self._lock:
            held = [{w.number: w.tensor for w in f.weights} for f in self._frozen.values()]
            held += [{}] if self._plain else []
        imported = [self._imported(constants) for constants in held]
        return [captured.graph for captured in imported if captured is not None]

    def _built(self, key: tuple[int, ...], given: Sequence[Any]) -> _Frozen | None:
        """The program with these weights; `None` where they are to be inputs."""
        with self._lock:
            known = self._frozen.get(key)
            if known is not None and known.holds(given):
                return known  # of another thread
            if any(given[n].is_inference() or _is_marked(given[n]) for n in self._weights):
                return None  # it does not count how often these are written, or flips signs
            self._changes += known is not None
            if self._changes > MAX_CHANGES or (known is None and len(self._frozen) >= MAX_WEIGHTS):
                return None
            held = {n: given[n].detach() for n in self._weights}
            frozen = _Frozen(given, held, self._compile(held))
            alive = {k: f for k, f in self._frozen.items() if f.is_reachable()}
            self._frozen = {**alive, key: frozen}
            self._record.frozen = len(held)
            return frozen

    def _built_plain(self) -> Call:
        with self._lock:
            self._plain = self._plain or self._compile({})
            return self._plain

    def _compile(self, constants: dict[int, Any]) -> Call:
        began = time.perf_counter()
        record = self._record
        try:
            captured = self._imported(constants)
            run = _eager(self._module) if captured is None else self._program(captured)
            record.ran_on = "tilewright"
            record.programs += 1
        except UnsupportedError as error:
            record.reason = error.first_line + "".join(str(error).split("\n")[1:2])
            if self._options.unsupported != "eager":
                record.ran_on = "refused"
                error.hint = _EAGER
                raise
            record.ran_on = "torch"
            run = _eager(self._module)
        except TilewrightError as error:
            record.ran_on, record.reason = "refused", error.first_line
            raise
        finally:
            record.seconds += time.perf_counter() - began
        return run

    def _imported(self, constants: dict[int, Any]) -> Captured | None:
        record = self._record
        views = record.kind == "inference"
        return import_captured(self._pure, constants, record.function, views=views)

    def _program(self, captured: Captured) -> Call:
        target, options = self.ways
        if options.tune_seconds is not None and not self._record.programs:
            from ..autotune.tune import tune

            assert options.database is not None, "options are checked"
            tune(
                captured.graph, target, database=options.database,
                seconds=options.tune_seconds, tolerance=options.tolerance, progress=False,
            )  # fmt: skip
        model = build(
            captured.graph, target, options.database, tolerance=options.tolerance,
            locked=options.locked,
        )  # fmt: skip
        self._record.kept += model.kept
        run = _Program(model, captured, self._record).run
        return _drawing(self._draws, run) if self._draws else run


_EAGER = 'options={"unsupported": "eager"} lets PyTorch run it, which torch_report() counts'


@dataclass(frozen=True)
class _Weight:
    """A weight when a program was built: it is alive, so nothing else lies at its address."""

    number: int
    tensor: Any
    version: int
    samples: Any
    seen: bytes


class _Frozen:
    """A program of a graph, and the weights that are constants of it."""

    def __init__(self, given: Sequence[Any], held: dict[int, Any], run: Call) -> None:
        self.run = run
        self._given = [weakref.ref(given[n]) for n in held]
        self.weights = [
            _Weight(n, tensor, tensor._version, samples, samples.tobytes())
            for n, tensor in held.items()
            for samples in [_samples(tensor)]
        ]

    def is_reachable(self) -> bool:
        """Whether a call may come with these weights: nothing else has dropped them."""
        return all(reference() is not None for reference in self._given)

    def holds(self, given: Sequence[Any]) -> bool:
        """Whether the arguments, which are at the same addresses, have not been written."""
        for w in self.weights:
            if w.tensor._version != w.version or w.samples.tobytes() != w.seen:
                return False
            if given[w.number]._version != w.version:
                return False
        return True


def _samples(tensor: Any) -> Any:
    """Elements of a tensor, in its memory; as bytes they are equal if nothing wrote there."""
    storage = tensor.untyped_storage()
    count = tensor.numel()
    if not count:
        return np.empty(0, np.uint8)
    width = tensor.element_size()
    extent = 1 + sum((e - 1) * s for e, s in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.storage_offset() * width
    whole = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    elements = whole[start : start + extent * width].reshape(extent, width)
    return elements[:: max(1, extent // SAMPLES)]


def _is_marked(tensor: Any) -> bool:
    """Whether its elements are the negatives or conjugates of what lies in its memory."""
    return bool(tensor.is_neg() or tensor.is_conj())


# `torch.empty_strided` in a third of its time, as Inductor calls it: sizes and strides are tuples.
_new = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None) or (
    lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype)
)


class _Program:
    """A built graph, called with tensors."""

    def __init__(self, model: Model, captured: Captured, record: CapturedGraph) -> None:
        self.at = model.at
        self.record = record
        self.inputs = tuple((n, t.strides, t) for n, t in captured.inputs.items())
        self.made = tuple(
            (o.shape, o.strides, o.dtype) for o in captured.outputs if isinstance(o, Tensor)
        )
        self.outputs = captured.outputs
        self.only_made = len(self.made) == len(self.outputs)

    def run(self, given: list[Any]) -> list[Any]:
        addresses = []
        copies = []
        for number, strides, form in self.inputs:
            tensor = given[number]
            if tensor.stride() != strides or _is_marked(tensor):
                tensor = self._laid_out(tensor, form)
                copies.append(tensor)
            addresses.append(tensor.data_ptr())
            if not addresses[-1] and tensor.numel():
                raise BuildError("argument {0}, {1}, has no memory", number, list(tensor.shape))
        made = [_new(*form) for form in self.made]
        addresses += [tensor.data_ptr() for tensor in made]
        try:
            self.at(*addresses)
        except GuardError as error:
            raise _as_pytorch(error) from None
        return made if self.only_made else _returned(self.outputs, made, given)

    def _laid_out(self, tensor: Any, form: Tensor) -> Any:
        """A tensor as it has to lie in memory, copied if its strides mean other places."""
        pairs = zip(form.shape, form.strides, tensor.stride(), strict=True)
        alike = all(extent == 1 or s == t for extent, s, t in pairs) and not _is_marked(tensor)
        if alike or not tensor.numel():
            return tensor
        self.record.copies += 1
        return torch.empty_strided(form.shape, form.strides, dtype=form.dtype).copy_(tensor)


class LinAlgGuardError(GuardError, torch.linalg.LinAlgError):  # type: ignore[misc]
    """Linear algebra has failed where PyTorch raises: a matrix is singular, say."""


def _as_pytorch(error: GuardError) -> GuardError:
    """The error as those catch it who expect PyTorch's."""
    if error.data["node"] != CHECKS_OF_LINEAR_ALGEBRA:
        return error
    return LinAlgGuardError(error.message, *error.arguments, **error.data)


def _returned(outputs: Sequence[Any], made: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    tensors = iter(made)
    found: list[Any] = [next(tensors) if isinstance(o, Tensor) else None for o in outputs]
    for place, output in enumerate(outputs):
        if isinstance(output, Given):
            found[place] = given[output.argument]
    for place, output in enumerate(outputs):
        if isinstance(output, Known):
            found[place] = output.value
        elif isinstance(output, View):
            whole = found[output.output]
            found[place] = whole.as_strided(output.shape, output.strides, output.offset)
    return found


def _drawing(draws: Sequence[Draw], run: Call) -> Call:
    """A call of what takes random numbers behind its arguments."""

    def draw_and_run(given: list[Any]) -> list[Any]:
        given = list(given)
        for draw in draws:
            given += draw(given)
        return run(given)

    return draw_and_run


def _eager(module: Any) -> Call:
    """PyTorch's own execution of the graph, which may compute nothing."""

    def run(given: list[Any]) -> list[Any]:
        return list(module(*given))

    return run
