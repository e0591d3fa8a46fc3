"""Compiled code as data, whatever the kind of target: an image, a signature, a list of launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..base.errors import ArtifactError
from ..runtime.signature import Signature, limit_exceeded, show, workspace_size
from ..target import Target
from ..tir.ir import Func
from .generator import generator_for

Need: TypeAlias = "bool | int | str | Sequence[Need] | Mapping[str, Need] | None"
_MAX_DEPTH = 8
"""Lists and objects of needs within each other."""


@dataclass(frozen=True)
class Launch:
    """An entry point of an image, and what it needs to be called.

    `needs` are numbers and names, and lists and objects of them, that the code generator of the
    kind writes and reads: that of processors says `openmp` of functions that call OpenMP's runtime,
    that of GPUs lists the `kernels` of the entry point (`runtime/cuda_launch.py`).
    """

    symbol: str
    needs: Mapping[str, Need] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"symbol": self.symbol, "needs": dict(self.needs)}

    @staticmethod
    def from_json(data: object) -> Launch:
        """The launch of its JSON form. Raises `ArtifactError` for anything malformed."""
        if not isinstance(data, dict) or data.keys() != {"symbol", "needs"}:
            raise ArtifactError("launch: expected a symbol and needs, found {0}", show(data))
        symbol, needs = data["symbol"], data["needs"]
        if not isinstance(symbol, str) or not isinstance(needs, dict):
            raise ArtifactError("launch: expected a name and an object, found {0}", show(data))
        for need in needs.values():
            _check_need(need, _MAX_DEPTH)
        return Launch(symbol, needs)


def _check_need(need: object, depth: int) -> None:
    if isinstance(need, list | dict):
        if depth == 0:
            raise ArtifactError("launch: needs are nested too deeply: {0}", show(need))
        for part in need.values() if isinstance(need, dict) else need:
            _check_need(part, depth - 1)
    elif need is not None and not isinstance(need, bool | int | str):
        raise ArtifactError("launch: expected numbers or names, found {0}", show(need))


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel.

    The functions `signature.symbols` are entry points of `image`, the `launches` in their order.
    `text` is what the image was made of, in the code generator's own language; `lowered` are the
    programs it is of, or their text. `remarks` say what its schedule should do better. `strict_fp`
    says that nothing is fused. `scheduled` is the text of the program before lowering, of a kernel
    that this process built.
    """

    signature: Signature
    target: Target
    lowered: tuple[Func, ...] | str
    text: str
    image: bytes
    launches: tuple[Launch, ...]
    remarks: tuple[str, ...] = ()
    strict_fp: bool = False
    scheduled: str | None = field(default=None, compare=False)

    @property
    def tir(self) -> str:
        """The lowered programs as text."""
        programs = self.lowered
        return programs if isinstance(programs, str) else "\n\n".join(map(str, programs))

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


_FORM = {"launches": list, "workspaces": list, "remarks": list, "strict_fp": bool}
"""The parts of a `Compiled.form`, and their types."""


def compiled_from(
    form: object, signature: Signature, target: Target, tir: str, text: str, image: bytes
) -> Compiled:
    """The compiled program of a `form`, its texts and its image. `signature` has no workspaces yet.

    Raises `ArtifactError` where the form is malformed, or is not of that signature.
    """
    if not isinstance(form, dict) or form.keys() != _FORM.keys():
        raise ArtifactError("expected {0}, found {1}", ", ".join(_FORM), show(form))
    for name, kind in _FORM.items():
        if type(form[name]) is not kind:
            raise ArtifactError(
                "expected {0} of type {1}, found {2}", name, kind.__name__, show(form[name])
            )
    launches, sizes, remarks = form["launches"], form["workspaces"], form["remarks"]
    if not all(isinstance(remark, str) for remark in remarks):
        raise ArtifactError("expected texts as remarks, found {0}", show(remarks))
    made = tuple(map(Launch.from_json, launches))
    symbols = tuple(launch.symbol for launch in made)
    if symbols != signature.symbols:
        raise ArtifactError("launches of {0}, expected {1}", symbols, signature.symbols)
    if len(sizes) != len(symbols):
        raise ArtifactError("{0} workspaces of {1} launches", len(sizes), len(symbols))
    signature = signature.with_workspaces([workspace_size(size) for size in sizes])
    beyond = limit_exceeded(signature)
    if beyond is not None:
        raise ArtifactError("{0}", beyond)
    strict_fp = form["strict_fp"]
    return Compiled(signature, target, tir, text, image, made, tuple(remarks), strict_fp)
