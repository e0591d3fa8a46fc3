"""Halide: the best of its three autoschedulers for processors, which measure nothing themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import halide as hl

from .. import suite
from ..pipelines import PIPELINES, Shape
from ..suite import Array, Case
from ..worker import sample
from .call import Call

VERSION = version("halide")
AUTOSCHEDULERS = ("Adams2019", "Mullapudi2016", "Li2018")
ROUNDS = 5
"""Interleaved samples of the schedules; the smallest of each counts."""
_LIBRARIES = Path(hl.__file__).parent / "lib64"
_TYPES = {"float32": hl.Float(32), "uint8": hl.UInt(8)}

for _name in AUTOSCHEDULERS:
    hl.load_plugin(str(_LIBRARIES / f"libautoschedule_{_name.lower()}.so"))


def prepare(case: Case, arrays: list[Array], threads: int) -> Call:
    """The call of a pipeline with the fastest of the schedules; `note` names its autoscheduler.

    Raises the first autoscheduler's error if all fail.
    """
    out = suite.output(case)
    calls: dict[str, Callable[[], Any]] = {}
    failed: dict[str, Exception] = {}
    for name in AUTOSCHEDULERS:
        try:
            call = _scheduled(case, arrays, out, name, threads)
            call()
        except Exception as error:  # noqa: BLE001  the others may have a schedule
            failed[name] = error
        else:
            calls[name] = call
    if not calls:
        raise failed[AUTOSCHEDULERS[0]]
    rounds = [{name: sample(call) for name, call in calls.items()} for _ in range(ROUNDS)]
    best = min(calls, key=lambda name: min(times[name] for times in rounds))
    note = "; ".join([best, *(f"{name} failed" for name in failed)])
    return Call(calls[best], lambda: out, note=note)


def _scheduled(
    case: Case, arrays: list[Array], out: Array, autoscheduler: str, threads: int
) -> Callable[[], Any]:
    """The call of a pipeline as one autoscheduler schedules it; it writes into `out`."""
    images = [_image(array) for array in arrays]
    inputs = [_Indexed(image) for image in images]
    function = PIPELINES[case.params["pipeline"]].build(_Halide(), out.shape, *inputs).function
    _fix_sizes(function.output_buffer(), out)
    pipeline, host = hl.Pipeline(function), hl.get_host_target()
    parameters = hl.AutoschedulerParams(autoscheduler, {"parallelism": str(threads)})
    pipeline.apply_autoscheduler(host, parameters)
    pipeline.compile_jit(host)
    result = hl.Buffer(out)

    def call() -> Any:
        return pipeline.realize(result), arrays  # an image does not keep the memory that it reads

    return call


def _image(array: Array) -> hl.ImageParam:
    """The input that reads an array; its first dimension is the array's last."""
    image = hl.ImageParam(_TYPES[array.dtype.name], array.ndim)
    _fix_sizes(image, array)
    image.set(hl.Buffer(array))
    return image


def _fix_sizes(parameter: Any, array: Array) -> None:
    """Compile an input or the output for the sizes of an array.

    Guards stay in loops over an output of unknown size: kernels take up to four times as long.
    """
    for dimension, extent in enumerate(reversed(array.shape)):
        parameter.dim(dimension).set_bounds(0, extent).set_estimate(0, extent)


@dataclass(frozen=True)
class _Indexed:
    """A function or an image whose indices are in numpy's order."""

    function: Any

    def __getitem__(self, at: tuple[Any, ...]) -> Any:
        return self.function[tuple(reversed(at))]


class _Halide:
    """The language of pipelines, in Halide."""

    def stage(self, shape: Shape, formula: Callable[..., Any], name: str) -> _Indexed:
        variables = [hl.Var(f"{name}_{axis}") for axis in range(len(shape))]
        function = hl.Func(name)
        function[tuple(reversed(variables))] = formula(*variables)
        return _Indexed(function)

    def number(self, value: float) -> Any:
        return hl.f32(value)

    def clamp(self, index: Any, extent: int) -> Any:
        return hl.clamp(index, 0, extent - 1)

    def maximum(self, a: Any, b: Any) -> Any:
        return hl.max(a, b)

    def sqrt(self, x: Any) -> Any:
        return hl.sqrt(x)

    def abs(self, x: Any) -> Any:
        return hl.abs(x)

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return hl.select(condition, a, b)
