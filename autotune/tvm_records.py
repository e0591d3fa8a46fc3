"""TVM's records of tuning, read as hints: which tile sizes were fast for which loops.

A file has one record a line, as JSON: of AutoTVM's log, of the auto-scheduler (Ansor), or of
MetaSchedule's `database_tuning_record.json`. Only loop extents, tile sizes, dtypes and the mean
time are taken. They are somebody else's data: nothing is executed or unpickled, sizes are limited,
and a line that is no such record refuses the file with its number.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ..base.checked_json import parse_json
from ..base.dtypes import SCALARS
from ..base.errors import TuningError
from ..base.files import open_regular
from .search.hints import Axis, Hint, Nest

LARGEST = 256 << 20
"""Bytes of a file."""
LONGEST = 1 << 20
"""Characters of a line."""
FAILED = 1e8
"""TVM writes so many seconds and more for what did not run."""
MOST_EXTENT = 1 << 40
_PICKLED = re.compile(r'(?:^|["\t])gA[A-Z][A-Za-z0-9+/]{8,}={0,2}(?:["\t]|$)', re.MULTILINE)
"""Base64 of a pickle of protocol 2 or later."""
_JSON_OF_TVM = (
    "database_tuning_record.json of MetaSchedule, a log of AutoTVM or of the auto-scheduler"
)

HintFiles: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


class HintRecords(NamedTuple):
    """The hints in `records` of TVM; `skipped` counts the others by why they give none."""

    hints: tuple[Hint, ...]
    records: int
    skipped: Mapping[str, int]


class _Malformed(ValueError):
    """Why a line is no record."""


class _Skipped(Exception):
    """Why a record gives no hint."""


def read_hints(files: HintFiles) -> HintRecords:
    """The hints of files of TVM's records.

    Raises `TuningError` for a file that has something else, with `line` in its data: pickled
    records of old versions too, which are not read.
    """
    several = [files] if isinstance(files, str | os.PathLike) else list(files)
    hints: list[Hint] = []
    skipped: dict[str, int] = {}
    count = 0
    for file in several:
        name = os.fsdecode(file)
        for number, line in _lines(name):
            count += 1
            try:
                hints.append(_hint(line, name, number))
            except _Skipped as why:
                skipped[str(why)] = skipped.get(str(why), 0) + 1
            except (_Malformed, RecursionError) as error:
                what = str(error) if isinstance(error, _Malformed) else "nested too deeply"
                raise TuningError(
                    "{0}, line {1}: {2}", name, number, what, line=number,
                    hint=f"hints are read from {_JSON_OF_TVM}",
                ) from error  # fmt: skip
    return HintRecords(tuple(hints), count, skipped)


def _lines(name: str) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, without empty ones and comments."""
    try:
        with open_regular(Path(name), TuningError) as (file, size):
            if size > LARGEST:
                raise TuningError("{0} has {1} bytes, expected {2} at most", name, size, LARGEST)
            text = io.TextIOWrapper(file, encoding="utf-8", errors="replace")
            number = 0
            while line := text.readline(LONGEST + 1):
                number += 1
                if len(line) > LONGEST:
                    raise TuningError(
                        "{0}, line {1} has more than {2} characters", name, number, LONGEST,
                        line=number,
                    )  # fmt: skip
                if line.strip() and not line.startswith("#"):
                    yield number, line
    except FileNotFoundError as error:
        raise TuningError("cannot read {0}: there is no such file", name) from error


def _hint(line: str, file: str, number: int) -> Hint:
    if _PICKLED.search(line):
        raise _Malformed("a pickled record of an old AutoTVM, which could run anything: not read")
    try:
        record = parse_json(line)
    except ValueError as error:
        raise _Malformed(f"not JSON: {error}") from error
    match record:
        case {
            "input": [str(), str(task), list(arguments), *_],
            "config": {"entity": list(knobs)},
            "result": [times, errors, *_],
        }:
            found = _of_autotvm(task, arguments, knobs)
        case {
            "i": [str(), str(task), list(arguments), _, _, {"e": list(knobs)}, *_],
            "r": [times, errors, *_],
        }:
            found = _of_autotvm(task, arguments, knobs)
        case {"i": [[str(key), *_], [_, list(steps)]], "r": [times, errors, *_]}:
            found = _of_auto_scheduler(key, steps)
        case [int(), [[list(steps), list(decisions)], times, _, list(arguments)]]:
            found, errors = _of_meta_schedule(steps, decisions, arguments), 0
        case [str(), str()]:
            raise _Malformed("a workload of MetaSchedule, expected a tuning record")
        case _:
            raise _Malformed("no record of tuning that TVM writes")
    return Hint(file, number, _seconds(times, errors), *found)


_Found: TypeAlias = "tuple[tuple[Nest, ...], frozenset[str]]"


def _seconds(times: Any, errors: Any) -> float:
    """The mean time of a record."""
    if errors != 0 or not times:
        raise _Skipped("failed")
    if not isinstance(times, list) or not all(isinstance(t, int | float) for t in times):
        raise _Malformed("its times are no list of numbers")
    if not all(0 < t < FAILED for t in times):
        raise _Skipped("failed")
    return float(sum(times) / len(times))


# AutoTVM: a template by name, its arguments, and the values of its knobs


def _of_autotvm(task: str, arguments: Sequence[Any], knobs: Sequence[Any]) -> _Found:
    template = next((t for name, t in _TEMPLATES.items() if name in task), None)
    if template is None or "winograd" in task or "depthwise" in task or "transpose" in task:
        raise _Skipped(f"no tile sizes are known of task {task:.60}")
    tensors = [_tensor(a) for a in arguments if isinstance(a, list) and a[:1] == ["TENSOR"]]
    extents = template([shape for shape, _ in tensors], arguments)
    tiles: dict[str, tuple[int, ...]] = {}
    for knob in knobs:
        match knob:
            case [str(name), "sp", [_, *inner]] if _KNOBS.get(name) in extents:
                tiles[_KNOBS[name]] = _tiles([_size(n) for n in inner])
            case [str(), str(), *_]:
                pass
            case _:
                raise _Malformed("a knob without a name and a kind")
    nest = tuple(Axis(n, tiles.get(k, ()), k in _REDUCED) for k, n in extents.items())
    return (nest,), frozenset(dtype for _, dtype in tensors)


_Shapes: TypeAlias = "Sequence[tuple[int, ...]]"


def _dense(shapes: _Shapes, _: Sequence[Any]) -> dict[str, int]:
    match shapes:
        case [(rows, summed), (columns, also), *_] if summed == also:
            return {"y": rows, "x": columns, "rc": summed}
        case _:
            raise _Skipped("a product of other operands")


def _batched(shapes: _Shapes, _: Sequence[Any]) -> dict[str, int]:
    match shapes:
        case [(n, rows, summed), (also, columns, last), *_] if n == also and summed == last:
            return {"n": n, "y": rows, "x": columns, "rc": summed}
        case _:
            raise _Skipped("a product of other operands")


def _convolution(shapes: _Shapes, arguments: Sequence[Any]) -> dict[str, int]:
    """Of an image in NCHW and weights in OIHW. Strides, padding and dilation follow as lists."""
    lists = [a for a in arguments if isinstance(a, list) and a[:1] != ["TENSOR"]]
    options = [tuple(a) for a in lists if all(type(n) is int and 0 <= n < MOST_EXTENT for n in a)]
    if any(type(a) is int for a in arguments[2:3]):  # an old one: filters and window come first
        options = options[1:]
    match shapes, options:
        case [(n, ic, h, w), (oc, also, kh, kw), *_], [(sh, sw), pad, *rest] if ic == also and len(
            pad
        ) in (2, 4):
            top, left, bottom, right = (*pad, *pad)[:4]
            dh, dw = next((d for d in rest if len(d) == 2), (1, 1))
            y = (h + top + bottom - dh * (kh - 1) - 1) // max(sh, 1) + 1
            x = (w + left + right - dw * (kw - 1) - 1) // max(sw, 1) + 1
            return {"n": n, "f": oc, "y": y, "x": x, "rc": ic, "ry": kh, "rx": kw}
        case _:
            raise _Skipped("a convolution of other operands")


_TEMPLATES: dict[str, Callable[[_Shapes, Sequence[Any]], dict[str, int]]] = {
    "dense_nopack.x86": _dense,
    "dense_pack.x86": _dense,
    "batch_matmul.": _batched,
    "conv2d_NCHWc.x86": _convolution,
    "conv2d_nchw.": _convolution,
    "topi_x86_conv2d_NCHWc": _convolution,
    "topi_nn_conv2d": _convolution,
}
"""The extents of the loops that a template tiles, by part of the names of its tasks."""
_REDUCED = frozenset({"rc", "ry", "rx"})
_KNOBS = {
    "tile_y": "y", "tile_x": "x", "tile_k": "rc", "tile_f": "f", "tile_rc": "rc", "tile_ry": "ry",
    "tile_rx": "rx", "tile_oc": "f", "tile_ow": "x", "tile_oh": "y", "tile_ic": "rc",
}  # fmt: skip


def _tensor(argument: Sequence[Any]) -> tuple[tuple[int, ...], str]:
    match argument:
        case ["TENSOR", list(shape), str(dtype)] | ["TENSOR", str(dtype), list(shape)]:
            return tuple(map(_size, shape)), dtype
        case _:
            raise _Malformed("a tensor without shape and dtype")


# The auto-scheduler: steps on numbered stages; SP is a split


def _of_auto_scheduler(key: str, steps: Sequence[Any]) -> _Found:
    stages: dict[int, list[tuple[int, tuple[int, ...], int]]] = {}
    for step in steps:
        match step:
            case ["SP", int(stage), int(), int(extent), list(lengths), 1 | True]:
                sizes = [_size(n) for n in lengths]
                stages.setdefault(stage, []).append((_size(extent), _tiles(sizes), len(sizes)))
            case [str(), *_]:
                pass
            case _:
                raise _Malformed("a step without a name")
    nests = tuple(map(_nest, stages.values()))
    if not nests:
        raise _Skipped("no splits")
    return nests, frozenset(re.findall(r"\w+", key)) & {*SCALARS}


# MetaSchedule: instructions, and the decisions of some, by their positions


def _of_meta_schedule(
    steps: Sequence[Any], decisions: Sequence[Any], arguments: Sequence[Any]
) -> _Found:
    decided = {}
    for decision in decisions:
        match decision:
            case [int(place), value]:
                decided[place] = value
            case _:
                raise _Malformed("a decision without a position")
    nests: list[list[str]] = []
    tiled: dict[str, tuple[int, tuple[int, ...], int]] = {}
    for place, step in enumerate(steps):
        match step:
            case ["GetLoops", _, _, list(loops)]:
                nests.append([str(loop) for loop in loops])
            case ["SamplePerfectTile", [str(loop)], *_]:
                match decided.get(place):
                    case [_, *_] as factors:
                        sizes = [_size(n) for n in factors]
                        tiled[loop] = math.prod(sizes), _tiles(sizes[1:]), len(sizes)
                    case _:
                        raise _Malformed("a tile without its sizes")
            case [str(), *_]:
                pass
            case _:
                raise _Malformed("an instruction without a name")
    whole = [[tiled[v] for v in nest] for nest in nests if nest and tiled.keys() >= {*nest}]
    if not whole:
        raise _Skipped("no splits")
    return tuple(map(_nest, whole)), frozenset(_tensor(a)[1] for a in arguments)


def _nest(loops: Sequence[tuple[int, tuple[int, ...], int]]) -> Nest:
    """Loops with their extents, tile sizes, and into how many they are split.

    Multi-level tiling splits those of reductions less often. Where the innermost loops of all
    reductions have one iteration, the tiles that it has inside of them are no level of their own.
    """
    counts = {count for *_, count in loops}
    if len(counts) == 1:
        return tuple(Axis(extent, tiles, None) for extent, tiles, _ in loops)
    most = max(counts)
    first = int(all(tiles[:1] == (1,) for _, tiles, count in loops if count < most))
    return tuple(
        Axis(extent, tiles[first:] if count == most else tiles, count < most)
        for extent, tiles, count in loops
    )


def _tiles(factors: Sequence[int]) -> tuple[int, ...]:
    """The sizes of the tiles of a split, the smallest first, of its factors but the outermost."""
    return tuple(accumulate(reversed(factors), _product))


def _product(a: int, b: int) -> int:
    """That of two sizes; sizes of a split are no longer than its loop."""
    if a * b >= MOST_EXTENT:
        raise _Malformed("the factors of a split are too large")
    return a * b


def _size(value: Any) -> int:
    if type(value) is not int or not 0 < value < MOST_EXTENT:
        raise _Malformed(f"{value!r:.40} is no size")
    return value
