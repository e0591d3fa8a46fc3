"""`Model`, the callable that a graph is built to: arrays in, arrays out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.display import html
from ..base.errors import ArgumentError, ArtifactError, KernelError
from ..base.hints import Hinted
from ..base.process import InProcess
from ..target import Target
from .argument_checks import number_reader, require_type
from .evidence import Evidence
from .guards import FIRST_GUARD, Guard
from .host_memory import HOST_MEMORY, is_array
from .module import Module, Origin, OriginKind
from .profile import Instrumented, Profile, profiled
from .service import CallCounts, Serviced
from .signature import OK, Argument
from .timer import Timing

Array = np.ndarray[Any, Any]
WEIGHTS = "weights"
"""The name of the argument that has the constants of a model as bytes, its last one."""
_INSTEAD = (
    'write it once, tw.build_library(graph, "model.so"), and in each process take '
    'tw.load("model.so"); or import and build the graph there'
)


class Model(Serviced, InProcess, Hinted, error=ArtifactError, instead=_INSTEAD):
    """A compiled graph. Calls may run concurrently in several threads.

    `module` is the kernel that runs all others: its arguments are the inputs, the outputs, and the
    bytes of `weights` where the model has constants, which is `None` where not. `kernels` has where
    the schedules of these kernels come from, by their names. One that is `kept` was built before,
    and comes from the cache on disk.

    Copies, deep ones too, are the model itself. It cannot be pickled: `ArtifactError` says what to
    do.
    """

    def __init__(
        self,
        module: Module,
        weights: Array,
        kernels: Mapping[str, Origin],
        evidence: Callable[[], Evidence] | None = None,
        instrumented: Callable[[], Instrumented] | None = None,
        guards: Sequence[Guard] = (),
        *,
        kept: bool = False,
    ) -> None:
        arguments = module.signature.arguments
        data = arguments[:-1] if weights.size else arguments
        self.module = module
        self.weights = weights if weights.size else None
        self.kernels = dict(kernels)
        self.kept = kept
        self._evidence = evidence
        self._instrumented = instrumented
        self.guards = tuple(guards)
        self.inputs = {a.name: a for a in data if a.role == "in"}
        self.outputs = {a.name: a for a in data if a.role == "out"}
        self._made = tuple((a.shape, dtypes.to_numpy(a.dtype)) for a in self.outputs.values())
        self._entry = module.entry
        self._counted: Callable[..., None] | None = None
        self._content = weights
        self._held = (weights,) if weights.size else ()
        self._held_at = tuple([weights.ctypes.data for weights in self._held])

    @property
    def target(self) -> Target:
        """What it was built for."""
        return self.module.target

    @cached_property
    def evidence(self) -> Evidence:
        """What became of the graph, with figures: nodes, kernels, memory and the build's time.

        Raises `ArtifactError` for a model that was loaded, and written before its manifest had it.
        """
        if self._evidence is None:
            raise self._loaded("evidence")
        return self._evidence()

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        """The output, or the tuple of outputs, as new numpy arrays.

        Inputs are given by position or by name: numpy arrays, or CPU objects with `__dlpack__`, of
        exactly the dtypes and shapes of `inputs`; numbers for those without dimensions. Raises
        `ArgumentError`, `GuardError` for an index out of its range, and what a kernel raises.
        """
        results = self._empty()
        call = self._run if self._counted is None else self._counted
        call(arguments, named, results)
        return results[0] if len(results) == 1 else results

    def into(self, *arguments: Any, out: Any, **named: Any) -> None:
        """Like a call that writes the outputs to `out`: an array, or several in their order."""
        results = outputs_of(self.outputs, out)
        call = self._run if self._counted is None else self._counted
        call(arguments, named, results)

    def at(self, *addresses: int) -> None:
        """Like `into`, with the addresses of the inputs and then of the outputs.

        Nothing is checked or counted: at each there has to be compact memory of the type of that
        input or output, and no output overlaps with anything. Raises what a kernel raises, and
        `GuardError`.
        """
        try:
            self.module.at(*addresses, *self._held_at)
        except KernelError as error:
            types = (*self.inputs.values(), *self.outputs.values())
            given = [_array_at(a, place) for a, place in zip(types, addresses, strict=True)]
            self._explain(error, (*given, *self._held))
            raise

    def time(self, *arguments: Any, **options: Any) -> Timing:
        """Time calls with these inputs, by position or by name; options as of `Module.time`."""
        named = {name: options.pop(name) for name in self.inputs if name in options}
        given = (*bound(self.inputs, arguments, named).values(), *self._empty(), *self._held)
        try:
            return self.module.time(*given, **options)
        except KernelError as error:
            self._explain(error, given)
            raise

    def profile(self, *arguments: Any, **named: Any) -> Profile:
        """Say where the time of calls with these inputs goes, kernel by kernel.

        Raises `ArgumentError`, what a kernel raises, and `ArtifactError` for a model that was
        loaded, and written before its code had what a profile calls.
        """
        given = tuple(bound(self.inputs, arguments, named).values())
        if self._instrumented is None:
            raise self._loaded("profile")
        modules = self._instrumented()
        empty = Model(modules.empty, self._content, {})
        return profiled(
            self.evidence,
            modules,
            partial(self, *given),
            partial(empty, *given),
            (*given, *self._empty(), *self._held),
        )

    def _loaded(self, what: str) -> ArtifactError:
        return ArtifactError(
            "{0} was loaded, and has no {1}", self.module.signature.name, what,
            hint="import and build the graph",
        )  # fmt: skip

    def _run(self, arguments: Sequence[Any], named: Mapping[str, Any], out: Sequence[Any]) -> None:
        try:
            if not named:
                try:
                    self._entry(*arguments, *out, *self._held)
                    return
                except ArgumentError:
                    pass  # one is to be converted, or is wrong, which `bound` says
            self._entry(*bound(self.inputs, arguments, named).values(), *out, *self._held)
        except KernelError as error:
            given = bound(self.inputs, arguments, named).values()
            self._explain(error, (*given, *out, *self._held))
            raise

    def _explain(self, error: KernelError, arguments: Sequence[Any]) -> None:
        """Raise the `GuardError` of a call that a guard has ended.

        Its indices may be in the workspace, so it is called again with one that can be read.
        """
        number = error.data.get("status", OK) - FIRST_GUARD
        if not 0 <= number < len(self.guards):
            return
        guard = self.guards[number]
        if guard.argument is not None:
            raise guard.error(np.asarray(arguments[guard.argument])) from None
        workspace = self.module.workspace()
        with suppress(KernelError):
            self.module(*arguments, workspace=workspace)
        raise guard.error(workspace) from None

    @property
    def _program(self) -> str:
        return self.module.signature.name

    def _origins(self) -> list[OriginKind]:
        return [origin.kind for origin in self.kernels.values()]

    def _count(self, counts: CallCounts) -> None:
        self._counted = counts.counted(self._run)

    def _empty(self) -> tuple[Array, ...]:
        return tuple([np.empty(shape, dtype) for shape, dtype in self._made])

    _repr_html_ = html

    def __repr__(self) -> str:
        given = ", ".join(f"{a.name}: {a.type_text}" for a in self.inputs.values())
        made = ", ".join(f"{a.name}: {a.type_text}" for a in self.outputs.values())
        return f"<Model {self.module.signature.name}({given}) -> ({made})>"


def outputs_of(outputs: Mapping[str, Argument], out: Any) -> tuple[Any, ...]:
    """The arrays to write that `out` has: an array, or several in the order of the outputs."""
    plain = type(out) in (np.ndarray, memoryview) or not isinstance(out, Sequence)
    results = (out,) if plain else tuple(out)
    if len(results) != len(outputs):
        raise ArgumentError(
            "out: expected {0} arrays ({1}), found {2}",
            len(outputs), ", ".join(outputs), len(results),
        )  # fmt: skip
    return results


def read_only(array: Array) -> Array:
    """A view of an array through which it is not written."""
    view = array.view()
    view.flags.writeable = False
    return view


def bound(
    inputs: Mapping[str, Argument], arguments: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Array]:
    """Arguments by the names of inputs, as compact arrays of their types.

    Raises `ArgumentError` for one that is missing, unknown or given twice, or not of its type.
    """
    names = list(inputs)
    if len(arguments) > len(names):
        raise ArgumentError(
            "expected {0} inputs ({1}), found {2}", len(names), ", ".join(names), len(arguments)
        )
    given = dict(zip(names, arguments, strict=False))
    for name, argument in named.items():
        if name not in inputs or name in given:
            problem = "is given twice" if name in given else f"is none of {', '.join(names)}"
            raise ArgumentError("the input {0} {1}", name, problem)
        given[name] = argument
    missing = [name for name in names if name not in given]
    if missing:
        raise ArgumentError("the inputs {0} are missing", ", ".join(missing))
    return {name: _array(inputs[name], given[name]) for name in names}


def _array(wanted: Argument, argument: Any) -> Array:
    dtype, array = dtypes.to_numpy(wanted.dtype), argument
    if type(array) is not np.ndarray or array.shape != wanted.shape or array.dtype != dtype:
        if not wanted.shape and not is_array(argument) and not hasattr(argument, "__dlpack__"):
            return np.asarray(number_reader(wanted)(argument)).astype(dtype)
        view = HOST_MEMORY.view(argument, wanted.name)
        require_type(wanted, view, HOST_MEMORY.library_of(argument))
        array = HOST_MEMORY.array(view)
    # Without dimensions it is contiguous, and stays as it is.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _array_at(argument: Argument, address: int) -> Array:
    """The array of an argument's type that lies at an address."""
    dtype = dtypes.to_numpy(argument.dtype)
    size = argument.size * dtype.itemsize
    if not size:
        return np.empty(argument.shape, dtype)
    memory = memoryview((ctypes.c_uint8 * size).from_address(address))
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(argument.shape)
