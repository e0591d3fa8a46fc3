"""Records of TVM as hints: what is read, what matches, and which candidates they give."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.search.hints import (
    MOST,
    Axis,
    Hint,
    Nest,
    hint_candidates,
    matching,
)
from tilewright.autotune.search.search import Search
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.tvm_records import read_hints
from tilewright.base.errors import TuningError
from tilewright.target import Target
from tilewright.tir.ir import Func

from ..refusals import refused

RECORDS = Path(__file__).parent / "tvm"
TARGET = Target.parse("cpu -mcpu=znver3 -threads=2")
MATMUL = ops.matmul_func(96, 128, 64)
CONV = ops.conv2d_func(1, 16, 16, 16, 32)
DENSE: dict[str, Any] = {
    "input": [
        "llvm -mcpu=znver3",
        "dense_pack.x86",
        [["TENSOR", [96, 64], "float32"], ["TENSOR", [128, 64], "float32"], None, "float32"],
        {},
    ],
    "config": {
        "index": 7,
        "code_hash": None,
        "entity": [
            ["tile_y", "sp", [-1, 4, 6]],
            ["tile_x", "sp", [-1, 1, 16]],
            ["tile_k", "sp", [-1, 8]],
            ["auto_unroll_max_step", "ot", 512],
        ],
    },
    "result": [[1e-5, 3e-5], 0, 1.5, 1600000000.5],
    "version": 0.2,
    "tvm_version": "0.8.0",
}
IMAGE = [["TENSOR", [1, 16, 16, 16], "float32"], ["TENSOR", [32, 16, 3, 3], "float32"]]
CONV_KNOBS = [
    ["tile_ic", "sp", [-1, 16]],
    ["tile_oc", "sp", [-1, 8]],
    ["tile_ow", "sp", [-1, 4]],
    ["unroll_kw", "ot", True],
]
OLD = {
    "i": [
        "llvm",
        "topi_x86_conv2d_NCHWc",
        [*IMAGE, 32, [3, 3], [1, 1], [1, 1], "NCHW", "NCHW", "float32"],
        {},
        ["conv2d_NCHWc"],
        {"i": 1, "c": None, "e": CONV_KNOBS, "t": ""},
    ],
    "r": [[2e-5], 0, 1.5, 1.0],
    "v": 0.1,
}
ANSOR = {
    "i": [
        ['["matmul", 96, 128, 64, "float32"]', "llvm", [2, 64, 64, 0, 0, 0, 0, 0], "", 1, []],
        [
            [],
            [
                ["CHW", 2, "local"],
                ["SP", 2, 0, 96, [2, 1, 6], 1],
                ["SP", 2, 4, 128, [1, 2, 16], 1],
                ["SP", 2, 8, 64, [4], 1],
                ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
                ["FSP", 3, 0, 1, 2],
                ["SP", 3, 1, 16, [8], 1],
                ["AN", 3, 0, 3],
                ["PR", 2, 0, "auto_unroll_max_step$64"],
            ],
        ],
    ],
    "r": [[3e-5, 4e-5], 0, 0.9, 1600000000],
    "v": "v0.6",
}
PRODUCT: Nest = (
    Axis(96, (6, 24), False),
    Axis(128, (16, 16), False),
    Axis(64, (8,), True),
)
"""What `DENSE` says."""


def changed(record: Any, *path: Any) -> Any:
    """A copy of a record with another value, the last one, at a place."""
    *places, last, value = path
    copy = json.loads(json.dumps(record))
    at = copy
    for place in places:
        at = at[place]
    at[last] = value
    return copy


def written(folder: Path, *records: Any) -> Path:
    file = folder / "tvm.json"
    file.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in records))
    return file


@pytest.fixture(scope="module")
def search() -> Search:
    """Of the product, with some of its sketches."""
    return Search(MATMUL, TARGET, prepared=sketches(MATMUL, TARGET)[:3])


def test_records_of_meta_schedule() -> None:
    found = read_hints(RECORDS / "matmul.json")
    assert (found.records, len(found.hints), found.skipped) == (3, 3, {})
    first, second, _ = found.hints
    assert (first.line, first.seconds) == (1, 0.00022775930087719299)
    assert first.dtypes == {"float32"}
    assert first.nests == (
        (Axis(96, (16, 16, 48), False), Axis(128, (4, 4, 8), False), Axis(64, (2,), True)),
    )
    # The innermost loop of the sum has one iteration: the tile of registers is the next one.
    assert second.nests[0][:2] == (Axis(96, (96, 96), False), Axis(128, (64, 64), False))
    assert [h.line for h, _ in matching(found.hints, MATMUL)] == [1, 2, 3]  # the fastest first
    assert matching(found.hints, CONV) == []
    convolutions = matching(read_hints(RECORDS / "conv.json").hints, CONV)
    assert [h.line for h, _ in convolutions] == [1, 3, 2]


def test_records_of_autotvm(tmp_path: Path) -> None:
    (hint,) = read_hints(written(tmp_path, DENSE)).hints
    assert (hint.nests, hint.seconds) == ((PRODUCT,), 2e-5)
    now = changed(OLD["i"], 2, [*IMAGE, [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"])
    now = {
        "input": ["llvm", "conv2d_NCHWc.x86", now[2], {}],
        "config": {"entity": CONV_KNOBS},
        "result": OLD["r"],
    }
    found = read_hints(written(tmp_path, OLD, now, "# a comment", ""))
    assert found.records == 2
    for hint in found.hints:
        (nest,) = hint.nests
        assert [axis.extent for axis in nest] == [1, 32, 16, 16, 16, 3, 3]
        assert {axis.tiles for axis in nest} == {(8,), (4,), (16,), ()}
    assert len(matching(found.hints, CONV)) == 2


def test_records_of_the_auto_scheduler(tmp_path: Path) -> None:
    (hint,) = read_hints(written(tmp_path, ANSOR)).hints
    main = (Axis(96, (6, 6, 12), False), Axis(128, (16, 32, 32), False), Axis(64, (4,), True))
    assert hint.nests == (main, (Axis(16, (8,), None),))
    assert matching([hint], MATMUL) == [(hint, main)]


@pytest.mark.parametrize(
    ("func", "matches"),
    [
        (MATMUL, True),
        (ops.matmul_func(96, 128, 64, "float64"), False),
        (ops.matmul_func(128, 96, 64), False),
        (ops.add_relu_func(96), False),
        (ops.matmul_func(96, 128, 64, transpose_b=True, bias=True, epilogue="gelu"), True),
    ],
)
def test_loops_and_dtypes_decide_what_matches(func: Func, matches: bool, tmp_path: Path) -> None:
    assert bool(matching(read_hints(written(tmp_path, DENSE)).hints, func)) is matches


def test_what_says_nothing_is_counted(tmp_path: Path) -> None:
    found = read_hints(
        written(
            tmp_path,
            changed(DENSE, "result", 1, 4),
            changed(DENSE, "result", 0, [1e9]),
            changed(DENSE, "input", 1, "conv2d_nchw_winograd.cuda"),
            changed(DENSE, "input", 2, 1, ["TENSOR", [128, 63], "float32"]),
        )
    )
    assert found.hints == ()
    assert sorted(found.skipped.values()) == [1, 1, 2]


def test_a_tiling_that_is_legal_here_is_found_exactly(search: Search) -> None:
    hints = [
        Hint(
            "x", n, 1e-5, ((Axis(96, i, None), Axis(128, j, None), Axis(64, k, None)),), frozenset()
        )
        for n, (i, j, k) in enumerate(
            [
                ((6, 24), (16,), (4,)),
                ((1, 16), (32, 64), (8,)),
                ((3,), (16, 128), (2,)),
                ((), (), ()),
            ]
        )
    ]
    found = hint_candidates(search, matching(hints, MATMUL))
    assert [(c.hint.line, c.exact) for c in found] == [(n, True) for n in range(4)]


def test_candidates_have_the_nearest_tiles(search: Search, tmp_path: Path) -> None:
    (found,) = hint_candidates(search, matching(read_hints(written(tmp_path, DENSE)).hints, MATMUL))
    assert found.exact
    text = str(found.trace.apply(MATMUL).func)
    assert "T.unrolled(6)" in text  # rows of the tile in registers
    odd = changed(DENSE, "config", "entity", 0, ["tile_y", "sp", [-1, 5, 48]])
    (found,) = hint_candidates(search, matching(read_hints(written(tmp_path, odd)).hints, MATMUL))
    assert not found.exact
    found.trace.apply(MATMUL)  # which is legal


def test_candidates_are_few_and_the_first_of_the_search(search: Search) -> None:
    records = read_hints([RECORDS / "matmul.json", RECORDS / "conv.json"]).hints
    matched = matching(records, MATMUL)
    candidates = hint_candidates(search, matched)
    assert [c.hint for c in candidates] == [hint for hint, _ in matched]
    assert [c.schedule for c in hint_candidates(search, matched * 20)] == [
        c.schedule for c in candidates
    ]
    for candidate in candidates:
        search.begin_with(candidate.trace)
    asked = [c.schedule.id for c in search.ask(MOST)]
    assert asked[: len(candidates)] == [c.schedule for c in candidates]


PICKLED = f"llvm\tgASVDgAAAAAAAAB9lIwBYZRLAXMu\t{'A' * 40}"


@pytest.mark.parametrize(
    "line",
    [
        PICKLED,
        changed(DENSE, "config", "code_hash", "gASVDgAAAAAAAAB9lIwBYZRLAXMu"),
        "[" * 100_000,
        '{"input": NaN}',
        "7",
        "{}",
        ["12137226205263772748", "FEcAAAAAAAB7CiAg"],
        changed(DENSE, "result", 0, [True, "x"]),
        changed(DENSE, "config", "entity", 0, 7),
        changed(DENSE, "config", "entity", 0, ["tile_y", "sp", [-1, -4]]),
        changed(DENSE, "config", "entity", 0, ["tile_y", "sp", [-1, 1 << 70]]),
        changed(DENSE, "input", 2, 0, ["TENSOR", [96, "n"], "float32"]),
        changed(ANSOR, "i", 1, 1, 1, ["SP", 2, 0, 96, [None], 1]),
        changed(ANSOR, "i", 1, 1, 1, 7),
        [0, [[[["SamplePerfectTile", ["l2"], [4, 64], ["v5"]]], [[0, 7]]], [1e-5], {}, []]],
        [0, [[[["GetLoops", ["b0"], [], ["l2"]]], ["x"]], [1e-5], {}, []]],
    ],
)
def test_what_is_no_record_is_refused_with_its_line(line: Any, tmp_path: Path) -> None:
    file = written(tmp_path, DENSE, line)
    with refused(TuningError, file, 2) as caught:
        read_hints(file)
    assert caught.value.data["line"] == 2


def test_files_that_are_none_and_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(TuningError, tmp_path / "none.json"):
        read_hints(tmp_path / "none.json")
    with refused(TuningError, tmp_path):
        read_hints(tmp_path)
    file = written(tmp_path, DENSE)
    monkeypatch.setattr("tilewright.autotune.tvm_records.LONGEST", 100)
    with refused(TuningError, file, 1, 100):
        read_hints(file)
    monkeypatch.setattr("tilewright.autotune.tvm_records.LARGEST", 10)
    with refused(TuningError, file, 10):
        read_hints(file)


def test_damaged_records_are_read_or_refused(tmp_path: Path) -> None:
    """Values in random places are exchanged for others: nothing else than `TuningError` is raised,
    and what is read gives candidates."""
    rng = np.random.default_rng(5)
    first = json.loads((RECORDS / "matmul.json").read_text().splitlines()[0])
    strange: Sequence[Any] = (None, -1, 0, 1 << 80, 1.5, "x", [], {}, [[]], True, [1, 2])
    refusals = []
    for _ in range(150):
        record = json.loads(json.dumps([DENSE, OLD, ANSOR, first][rng.integers(4)]))
        places = list(_places(record))
        at, key = places[rng.integers(len(places))]
        at[key] = strange[int(rng.integers(len(strange)))]
        file = written(tmp_path, record)
        try:
            matching(read_hints(file).hints, MATMUL)
        except TuningError as error:
            refusals.append(error.data["line"])
    assert 25 < len(refusals) < 150
    assert {*refusals} == {1}


def _places(value: Any) -> Any:
    """The containers in a JSON value, each with a key or index."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items):
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)


def test_a_session_measures_hints_first(tmp_path: Path) -> None:
    func = ops.matmul_func(16, 32, 16)
    record = changed(DENSE, "input", 2, 0, ["TENSOR", [16, 16], "float32"])
    record = changed(record, "input", 2, 1, ["TENSOR", [32, 16], "float32"])
    file = written(tmp_path, record, DENSE)
    with tw.TuningDatabase(tmp_path / "t.db") as db:
        result = tw.tune(
            func, "cpu -threads=1", database=db, trials=3, seed=0, hints=file, progress=False
        )
        use = result.hints
        assert use is not None
        assert (use.records, use.matched, use.candidates, use.trials) == (2, 1, 1, 1)
        assert use.best == f"{file}:1"
        assert use.schedule in [trial.schedule for trial in result.history]
        assert use.won == (result.best is not None and use.schedule == result.best.schedule_id)
        assert use.won or (use.ratio is not None and use.ratio > 0)
        assert use.schedule in {m.schedule for m in db.measurements()}
        assert any(line.startswith("hints: 1 of 2 records match") for line in result.lines)
        before = len(db.measurements())
        with refused(TuningError, tmp_path / "none.json"):
            tw.tune(func, database=db, hints=tmp_path / "none.json")
        assert len(db.measurements()) == before


def test_factors_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    splits = [["SP", 0, 0, 1024, [1 << 39] * 2000, 1]]
    record = {"i": [['["k"]', "llvm"], [[], splits]], "r": [[1e-3], 0, 1, 1], "v": "v0.6"}
    path = tmp_path / "grows.json"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(TuningError) as error:
        read_hints(path)
    assert error.value.data["line"] == 1
