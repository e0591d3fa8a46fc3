"""Options of commands on models, given as text; and what passes make of a graph, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ..base.errors import ModelError
from ..base.files import open_regular

if TYPE_CHECKING:
    from ..graph.ir import Graph, Value
    from ..importers.onnx.summary import Summary
    from ..runtime.signature import Argument

ModelOrLibrary = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL.onnx|FILE.py:FUNCTION|LIBRARY.so[:NAME]",
        help="The model's file, the function that makes a graph or a module (runs FILE.py), or "
        "what `build` wrote, of several programs one by its name.",
    ),
]


def _repeatable(flag: str, metavar: str, help: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=f"{help} Repeatable.")


Texts: TypeAlias = list[str] | None
Shapes = Annotated[
    Texts,
    _repeatable(
        "--shape", "NAME=N,...", "Values of dims such as N=1,H=320, or a shape such as x=[1,3]."
    ),
]
Constants = Annotated[
    Texts,
    _repeatable(
        "--constant",
        "NAME=VALUE",
        "An input's value, as a number, as JSON or a .npy file; it is no input then.",
    ),
]
Inputs = Annotated[Texts, _repeatable("--input", "NAME=FILE.npy", "A file with an input's values.")]
Providers = Annotated[
    Texts,
    _repeatable(
        "--provider",
        "NAME",
        "Who may run parts, in the order of preference; by default tilewright, onnxruntime, "
        "reference.",
    ),
]
Placements = Annotated[
    Texts,
    _repeatable(
        "--place",
        "NAME=PROVIDER",
        "Who runs an operator or node, such as NonMaxSuppression=onnxruntime.",
    ),
]
Never = Annotated[Texts, _repeatable("--never", "NAME", "A provider that is forbidden.")]
PROVIDERS = ("tilewright", "onnxruntime", "reference")
"""Who may run parts where it is not said."""
_COMMA = re.compile(r",(?![^\[]*\])")
"""A comma that is not within brackets."""


def shapes(texts: Iterable[str] | None) -> dict[str, int | list[int]]:
    """The values of `--shape`: of a dim a number, of an input a list of them."""
    parts = (part for text in texts or () for part in _COMMA.split(text))
    found: dict[str, int | list[int]] = {}
    for name, value in _pairs(parts, "--shape", "NAME=N of a dim, or INPUT=[1,3]"):
        if not re.fullmatch(r"\d+|\[\s*(\d+\s*(,\s*\d+\s*)*)?\]", value):
            raise typer.BadParameter(
                f"{name}={value}: expected a number such as 320, or a shape such as [1,3]",
                param_hint="--shape",
            )
        found[name] = json.loads(value) if value.startswith("[") else int(value)
    return found


def values(texts: Iterable[str] | None) -> dict[str, Any]:
    """The values of `--constant`: a number, lists of numbers, or the array of a file."""
    found: dict[str, Any] = {}
    for name, value in _pairs(texts or (), "--constant", "NAME=VALUE"):
        if value.endswith(".npy"):
            found[name] = _read(value, "--constant")
            continue
        try:
            found[name] = json.loads(value)
        except ValueError:
            raise typer.BadParameter(
                f"{name}={value}: expected a number, JSON, or a file such as {name}.npy",
                param_hint="--constant",
            ) from None
    return found


def placements(texts: Iterable[str] | None) -> dict[str, str]:
    """The values of `--place`."""
    return dict(_pairs(texts or (), "--place", "NAME=PROVIDER"))


def sharing(
    provider: list[str] | None, place: list[str] | None, never: list[str] | None
) -> dict[str, Any]:
    """The options of a build whose graph several providers share; none where nothing is given."""
    placed = placements(place)
    if not (provider or placed or never):
        return {}
    return {"providers": provider or PROVIDERS, "placement": placed, "never": never or ()}


def words_of(shared: Mapping[str, Any]) -> list[str]:
    """The options of `sharing` as words of a command line."""
    words = [("--provider", name) for name in shared.get("providers", ())]
    words += [("--place", f"{n}={who}") for n, who in shared.get("placement", {}).items()]
    words += [("--never", name) for name in shared.get("never", ())]
    return [word for pair in words for word in pair]


def import_graph(
    model: Path,
    shape: list[str] | None,
    constant: list[str] | None,
    told: Summary | None = None,
    *,
    foreign: bool = False,
) -> Graph:
    """The graph of a model's file, by the options of a command."""
    from ..importers.onnx import import_onnx
    from ..importers.onnx.summary import summary

    try:
        return import_onnx(model, shapes(shape), values(constant), foreign=foreign)
    except ModelError as error:
        dims = error.data.get("dims")
        if dims is None:
            raise
        ranks = {t.name for t in (told or summary(model)).inputs if t.shape is None}
        given = ",".join(f"{dim}=[1]" if dim in ranks else f"{dim}=1" for dim in dims)
        raise ModelError(
            "these dims have no value: {0}", ", ".join(dims),
            hint=f"give them values, such as --shape {quote(given)}", dims=dims,
        ) from error  # fmt: skip


def arrays(
    inputs: Mapping[str, Argument | Value], files: Iterable[str], seed: int
) -> dict[str, Any]:
    """The inputs of a model, in order: those of files, and random ones for the others."""
    import numpy as np

    given: dict[str, Any] = {}
    for name, file in _pairs(files, "--input", "NAME=FILE.npy"):
        if name not in inputs:
            listed = ", ".join(inputs) or "none"
            raise typer.BadParameter(
                f"the model has no input {name!r}; it has {listed}", param_hint="--input"
            )
        given[name] = _read(file, "--input")
    rng = np.random.default_rng(seed)
    drawn = {name: _random(kind.dtype, kind.shape, rng) for name, kind in inputs.items()}
    return {name: given.get(name, drawn[name]) for name in inputs}


def _random(name: str, shape: tuple[int, ...], rng: Any) -> Any:
    from ..base import dtypes

    dtype = dtypes.to_numpy(name)
    if dtypes.is_float(name):
        return rng.standard_normal(shape).astype(dtype)
    low, high = (-128, 128) if name == "int8" else (0, 256 if name == "uint8" else 2)
    return rng.integers(low, high, shape).astype(dtype)


def _pairs(texts: Iterable[str], option: str, form: str) -> Iterator[tuple[str, str]]:
    """Names and values; the names of models may have `=` in them."""
    seen: set[str] = set()
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not name or not equals or not value:
            raise typer.BadParameter(f"expected {form}, found {text!r}", param_hint=option)
        if name in seen:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint=option)
        seen.add(name)
        yield name, value


def _read(file: str, option: str) -> Any:
    import numpy as np

    try:
        with open_regular(Path(file), ModelError) as (there, _):
            array = np.load(there, allow_pickle=False)
    except ModelError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    except (OSError, ValueError, EOFError) as error:
        raise typer.BadParameter(f"{file!r} cannot be read: {error}", param_hint=option) from None
    if not isinstance(array, np.ndarray):
        raise typer.BadParameter(f"{file!r} has several arrays", param_hint=option)
    return array


def check_pass(name: str | None) -> None:
    """Refuse the name of a pass that does not exist."""
    from ..graph.passes import PASSES

    names = [each.name for each in PASSES]
    if name is not None and name not in names:
        raise typer.BadParameter(
            f"there is no pass {name!r}; in this order there are {', '.join(names)}",
            param_hint="--after",
        )


def graph_after(graph: Graph, name: str | None) -> Graph:
    """The graph after a pass; as it was imported for `None`."""
    from ..graph.passes import stages

    return next((s.graph for s in stages(graph) if s.name == name), graph)


def changes(graph: Graph, name: str | None) -> str:
    """What that pass changes, or each, as differences of texts in which values keep their names."""
    from ..graph.passes import stages
    from ..graph.text import graph_text

    lines = list[str]()
    before = "imported"
    old = graph_text(graph, own_names=True).splitlines()
    for stage in stages(graph):
        new = graph_text(stage.graph, own_names=True).splitlines()
        if name in (None, stage.name):
            lines += unified_diff(old, new, before, stage.name, n=0, lineterm="")
        before, old = stage.name, new
    return "\n".join(lines) or "nothing changes"
