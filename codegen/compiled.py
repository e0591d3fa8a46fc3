"""Compiled code as data, whatever the kind of target: an image, a signature, a list of launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from ..base.checked_json import read, show
from ..base.errors import ArtifactError
from ..runtime.guards import Guard
from ..runtime.signature import Signature, WorkspaceBytes, limit_exceeded
from ..runtime.stored_partition import StoredPartition
from ..target import Target
from ..tir.ir import Func
from ..tir.parser import parse
from ..tir.printer import func_text
from .generator import generator_for

Need: TypeAlias = "bool | int | str | Sequence[Need] | Mapping[str, Need] | None"
_MAX_DEPTH = 8
"""Lists and objects of needs within each other."""


@dataclass(frozen=True)
class Launch:
    """An entry point of an image, and what it needs to be called.

    `needs` are numbers and names, and lists and objects of them, that the code generator of the
    kind writes and reads: that of processors says `parallel` of functions with loops of several
    threads, that of GPUs lists the `kernels` of the entry point (`runtime/cuda_launch.py`).
    """

    symbol: str
    needs: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"symbol": self.symbol, "needs": dict(self.needs)}

    @staticmethod
    def from_json(data: object) -> Launch:
        """The launch of its JSON form. Raises `ArtifactError` for anything malformed."""
        return read(Launch, data, "launch")

    def validate(self) -> None:
        """Raise `ValueError` for needs that are no `Need`, or are nested deeply."""
        for need in self.needs.values():
            _check_need(need, _MAX_DEPTH)


def _check_need(need: object, depth: int) -> None:
    if isinstance(need, list | dict):
        if depth == 0:
            raise ValueError(f"needs are nested too deeply: {show(need)}")
        for part in need.values() if isinstance(need, dict) else need:
            _check_need(part, depth - 1)
    elif need is not None and not isinstance(need, bool | int | str):
        raise ValueError(f"expected numbers or names as needs, found {show(need)}")


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel.

    The functions `signature.symbols` are entry points of `image`, the `launches` in their order.
    `text` is what the image was made of, in the code generator's own language; `scheduled` are the
    programs it is of before lowering, or their texts. `remarks` say what its schedule should do
    better. `strict_fp` says that nothing is fused. `spent` are the seconds of choosing its schedule
    and of compiling it, of a kernel that this process or a child of it built. `weights` are the
    bytes that the last argument of a model takes, if there are
    any, and `guards` say what its indices have to be. An image with the functions of a profile is
    of a model of `profiled` steps. That of a `partition` has the functions of its parts; beside
    it are the parts that others run, as they store them, by number.
    """

    signature: Signature
    target: Target
    scheduled: tuple[Func | str, ...]
    text: str
    image: bytes
    launches: tuple[Launch, ...]
    remarks: tuple[str, ...] = ()
    strict_fp: bool = False
    spent: tuple[float, float] = field(default=(0.0, 0.0), compare=False)
    weights: np.ndarray[Any, Any] | None = field(default=None, compare=False)
    guards: tuple[Guard, ...] = field(default=(), compare=False)
    profiled: int | None = field(default=None, compare=False)
    partition: tuple[StoredPartition, Mapping[int, bytes]] | None = field(
        default=None, compare=False
    )

    @property
    def programs(self) -> tuple[Func, ...]:
        """The scheduled programs. Raises `ParseError` for a text that is nested too deeply."""
        return tuple(map(as_program, self.scheduled))

    @cached_property
    def lowered(self) -> tuple[Func, ...]:
        """The lowered programs and their packers: a build has no use for them once it is done, so
        that they are made again."""
        from .build import lower_parts

        made = (lower_parts(p, self.target, strict_fp=self.strict_fp) for p in self.programs)
        return tuple(part.func for lowered in made for part in lowered.parts)

    @cached_property
    def tir(self) -> str:
        """The lowered programs as text."""
        return "\n\n".join(map(str, self.lowered))

    @property
    def form(self) -> dict[str, Any]:
        """The launches, workspaces, remarks and options as JSON: all beside image and texts."""
        return {
            "launches": [launch.to_json() for launch in self.launches],
            "workspaces": list(self.signature.workspaces),
            "remarks": list(self.remarks),
            "strict_fp": self.strict_fp,
        }

    def source(self, name: str) -> str:
        """A text of the code, by its name: `tir`, or one of the code generator's `sources`."""
        if name == "tir":
            return self.tir
        return generator_for(self.target).sources[name].text(self)


def as_program(program: Func | str) -> Func:
    """A program that may be its text. Raises `ParseError` for one that is nested too deeply."""
    return parse(program) if isinstance(program, str) else program


def as_text(program: Func | str) -> str:
    """The text of a program that may be one already."""
    return program if isinstance(program, str) else func_text(program)


@dataclass(frozen=True)
class _Form:
    """A `Compiled.form`."""

    launches: tuple[Launch, ...]
    workspaces: tuple[WorkspaceBytes, ...]
    remarks: tuple[str, ...]
    strict_fp: bool


def compiled_from(
    form: object,
    signature: Signature,
    target: Target,
    scheduled: tuple[str, ...],
    text: str,
    image: bytes,
) -> Compiled:
    """The compiled program of a `form`, its texts and its image. `signature` has no workspaces yet.

    Raises `ArtifactError` where the form is malformed, or is not of that signature.
    """
    found = read(_Form, form, "compiled code")
    symbols = tuple(launch.symbol for launch in found.launches)
    if symbols != signature.symbols:
        raise ArtifactError("launches of {0}, expected {1}", symbols, signature.symbols)
    if len(found.workspaces) != len(symbols):
        raise ArtifactError("{0} workspaces of {1} launches", len(found.workspaces), len(symbols))
    signature = signature.with_workspaces(found.workspaces)
    beyond = limit_exceeded(signature)
    if beyond is not None:
        raise ArtifactError("{0}", beyond)
    return Compiled(
        signature, target, scheduled, text, image, found.launches, found.remarks, found.strict_fp
    )
