"""The benchmarks run; what they find is not looked at here."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from rich.console import Console

from benchmarks import databases, kernels, suite
from benchmarks.peers.tilewright import program
from benchmarks.primitives import CASES, ELSEWHERE
from benchmarks.rounds import Timed, compare, peers
from tilewright.schedule import PRIMITIVES
from tilewright.tir.interpreter import interpret

from .long import first_of


def run(root: Path, module: str, *arguments: object) -> str:
    """The output of a benchmark, which is run from the root, with short sessions."""
    code = f"import runpy, tilewright.tests.short_sessions; runpy.run_module({module!r}, "
    code += "run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels_beside_numpy(root: Path, tmp_path: Path) -> None:
    report, db = tmp_path / "report.json", tmp_path / "t.db"
    shown = run(
        root,
        "benchmarks.kernels",
        *("--quick", "--only", "layer_norm"),
        *("--peers", "numpy", "--threads", 1, "--rounds", 2, "--trials", 1),
        *("--db", db, "--json", report),
    )
    assert "1 thread, ms per call" in shown
    results = json.loads(report.read_text())["results"]
    assert [r["case"] for r in results] == ["small layer_norm 512x768"]
    for result in results:
        ours, numpy = result["peers"]["tilewright"], result["peers"]["numpy"]
        assert ours["failed"] is None
        assert ours["note"] == ""  # tuned, not the default
        assert ours["error"] < 1e-5
        assert len(ours["samples"]) == len(ours["kernel_samples"]) == len(numpy["samples"]) == 2
        assert result["best_peer"] == "numpy"
        assert result["speed"]["numpy"]["ratio"] > 0
        assert result["speed"]["roofline"]["ratio"] > 0


@pytest.mark.long
def test_pipelines_beside_the_programs_as_written(root: Path, tmp_path: Path) -> None:
    report, db = tmp_path / "report.json", tmp_path / "t.db"
    shown = run(
        root,
        "benchmarks.kernels",
        *("--suite", "pipelines", "--quick", "--only", "blur", "--only", "masked"),
        *("--peers", "numpy", "--threads", 1, "--rounds", 2, "--trials", 1),
        *("--db", db, "--json", report),
    )
    for name in ("plain", "zero"):
        assert f"geometric mean of 2: {name} / tilewright" in shown
    results = json.loads(report.read_text())["results"]
    assert [r["case"] for r in results] == ["small blur 3x3", "small masked mean"]
    for result in results:
        assert result["best_peer"] == "numpy"  # `plain` and `zero` are no peers
        for name in ("tilewright", "plain", "zero"):
            timed = result["peers"][name]
            assert timed["failed"] is None
            assert timed["note"] == ""
            assert timed["error"] < 1e-5
            assert len(timed["samples"]) == 2


@pytest.mark.parametrize("case", suite.PIPELINES, ids=lambda case: case.name)
def test_a_pipeline_is_the_same_in_both_languages(case: suite.Case) -> None:
    small = case.shrunk()
    arrays, out = suite.inputs(small), suite.output(small)
    interpret(program(small), *arrays, out)
    assert suite.find(small.name) == small
    assert suite.error(out, suite.reference(small, arrays)) < 1e-6


def test_references_of_pipelines() -> None:
    """Two of them in other words: padding and rolling instead of indices."""
    blur, heat = (suite.find(f"small {name}") for name in ("blur 3x3", "heat, wrapped, four times"))
    (x,) = suite.inputs(blur)
    near = sliding_window_view(np.pad(x, 1, mode="edge"), (3, 3))
    taps = np.array([0.25, 0.5, 0.25], np.float32)
    assert (
        suite.error(np.einsum("ijpq,p,q->ij", near, taps, taps), suite.reference(blur, [x])) < 1e-6
    )
    (x,) = suite.inputs(heat)
    expected = suite.reference(heat, [x])
    for _ in range(4):
        around = sum(np.roll(x, shift, axis) for shift in (-1, 1) for axis in (0, 1))
        x = x * np.float32(0.6) + around * np.float32(0.1)
    assert suite.error(x, expected) < 1e-6


def test_means_of_what_ran() -> None:
    """The mean is over the lines that a peer has; a peer with none has no mean."""

    def line(case: suite.Case, halide: float | None) -> dict[str, Any]:
        ours, plain = Timed("tilewright", samples=(2.0,)), Timed("plain", samples=(4.0,))
        other = () if halide is None else (halide,)
        return kernels.row(case, 1, [ours, plain, Timed("halide", "21", "Li2018", samples=other)])

    rows = [line(c, h) for c, h in zip(suite.PIPELINES[:3], (1.0, 16.0, None), strict=True)]
    assert [r["best_peer"] for r in rows] == ["halide", "halide", None]
    names = ["tilewright", "plain", "halide"]
    shown = Console(width=200, file=StringIO())
    shown.print(kernels.table(rows, names, 1, ("plain", "zero", "halide")))
    assert isinstance(shown.file, StringIO)
    lines = [line.split() for line in shown.file.getvalue().splitlines()]
    means = [words for words in lines if words[:2] == ["geometric", "mean"]]
    assert [(words[3:5], words[-1]) for words in means] == [
        (["2", "2.00x"], "2.00x"),
        (["3:", "plain"], "2.00x"),
        (["2:", "halide"], "2.00x"),
    ]
    assert any("(Li2018)" in words for words in lines)  # the best of Halide's schedules


def test_a_wrong_peer_is_never_the_best() -> None:
    """It is shown with its time and the word."""
    timed = [
        Timed("tilewright", samples=(2.0,)),
        Timed("torch", error=0.5, samples=(1.0,)),
        Timed("numpy", error=1e-7, samples=(3.0,)),
    ]
    found = kernels.row(suite.SUITE[0], 1, timed)
    assert found["best_peer"] == "numpy"
    shown = Console(width=200, file=StringIO())
    shown.print(kernels.table([found], [t.peer for t in timed], 1))
    assert isinstance(shown.file, StringIO)
    assert "1e+03 WRONG" in shown.file.getvalue()
    assert "1.50x" in shown.file.getvalue()


def test_a_peer_that_died(root: Path) -> None:
    """It is a failure of its lines and ends no comparison."""
    with peers(["numpy"], 1, {"numpy": sys.executable}, os.environ) as (numpy,):
        (before,) = compare(suite.find("small transpose 4096^2"), [numpy], 1)
        numpy.process.kill()
        numpy.process.wait()
        (after,) = compare(suite.find("small blur 3x3"), [numpy], 1)
    assert before.failed is None
    assert after.failed == f"the process ended with status {-signal.SIGKILL}"


def test_peers_are_those_of_the_suite(root: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.kernels", "--peers", "halide"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "no peer 'halide'; there are numpy, torch" in done.stderr


def test_an_unknown_kernel_is_named(root: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.kernels", "--only", "fft"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "matmul 1024^3" in done.stdout


@pytest.mark.parametrize(
    "names",
    first_of(
        [
            ("replay", "lookup", "call"),
            ("verify", "refuse", "lower", "llvm", "score"),
            ("shell", "lab"),
        ]
    ),
    ids=" ".join,
)
def test_budgets(root: Path, tmp_path: Path, names: tuple[str, ...]) -> None:
    only = [word for name in names for word in ("--only", name)]
    report = tmp_path / "budgets.json"
    shown = run(root, "benchmarks.budgets", "--quick", *only, "--json", report)
    lines = json.loads(report.read_text())
    assert len(lines) >= len(names)
    assert all(line["measured"] > 0 for line in lines)
    assert all(line["what"].split(",")[0][:30] in shown for line in lines)


@pytest.mark.long
def test_budgets_of_gpus(root: Path, tmp_path: Path) -> None:
    """Without a compiler of CUDA C++ the line of builds says so."""
    report = tmp_path / "budgets.json"
    shown = run(root, "benchmarks.budgets", "--quick", "--only", "gpu", "--json", report)
    *lines, builds = json.loads(report.read_text())
    assert all(line["measured"] > 0 for line in lines)
    assert [line["budget"] for line in lines if line["budget"]] == [10, 10]
    assert builds["budget"] == 1.5
    left_out = builds["measured"] is None
    assert left_out == ("left out" in shown) == ("neither nvcc" in builds["what"])


def test_databases(capsys: pytest.CaptureFixture[str]) -> None:
    databases.main(["--records", "2000", "--imported", "100"])
    shown = capsys.readouterr().out
    assert re.search(r"2,000 measurements in SQLite: .* MB\n  the best of a program: .* ms", shown)
    assert re.search(r"import into SQLite: [\d,]+ records/s", shown)


def test_costs_of_primitives(root: Path, tmp_path: Path) -> None:
    report = tmp_path / "primitives.json"
    shown = run(root, "benchmarks.primitives", "--repeats", 1, "--json", report)
    lines = json.loads(report.read_text())
    assert {"split", "compute_at", "rfactor", "parallel, refused"} <= {r["step"] for r in lines}
    assert all(r["microseconds"] > 0 for r in lines)
    assert all(r["step"] in shown for r in lines)


def test_every_primitive_has_a_case_or_a_reason() -> None:
    assert CASES.keys() | ELSEWHERE.keys() == PRIMITIVES.keys()
    assert not CASES.keys() & ELSEWHERE.keys()


def test_zero_trials_on_unseen_shapes(root: Path, tmp_path: Path) -> None:
    report = tmp_path / "zero.json"
    wanted = ("--seed", 5, "--count", 1, "--trials", 2, "--rounds", 2, "--json", report)
    shown = run(root, "benchmarks.zero", *wanted)
    found = json.loads(report.read_text())
    assert "seed 5" in shown
    assert found["seed"] == 5
    assert len(found["cases"]) == 1
    assert all(speed > 0 for case in found["cases"] for speed in case["speed"].values())


def test_programs_of_several_products_beside_their_kernels(root: Path) -> None:
    shown = run(root, "benchmarks.division", "softmax", "gated", "--shape", "2x8x16", "--rounds", 2)
    rows = dict(re.findall(r"(\w+) +2x8x16 +(\d) kernels .* one after the other", shown))
    assert rows == {"softmax": "3", "gated": "3"}


def test_what_a_deployment_costs(root: Path, tmp_path: Path) -> None:
    small = ("--kernels", 1, "--weights", 100_000, "--rounds", 1)
    shown = run(root, "benchmarks.deploy", *small, "--db", tmp_path / "t.db")
    loaded = re.findall(r"load of (\w+ \w+)", shown)
    assert loaded == ["a kernel", "the 1", "a model", "its weights"]


def test_measurements_of_random_shapes(root: Path, tmp_path: Path) -> None:
    wanted = ("--seed", 5, "--count", 1, "--trials", 2, "--db", tmp_path / "t.db")
    shown = run(root, "benchmarks.collect", *wanted)
    assert shown.count("best") == 1


def test_models_of_a_folder(root: Path, tmp_path: Path) -> None:
    """A table gives a file its dims and ranges; a file without a row needs none."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper, floats, ints = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64

    def save(name: str, rows: str | int) -> None:
        table = onnx.numpy_helper.from_array(np.ones((5, 4), np.float32), "t")
        graph = helper.make_graph(
            [helper.make_node("Gather", ["t", "x"], ["y"])],
            "gather",
            [helper.make_tensor_value_info("x", ints, [rows])],
            [helper.make_tensor_value_info("y", floats, [rows, 4])],
            [table],
        )
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), tmp_path / name)

    save("open.onnx", "N")
    save("fixed.onnx", 3)
    table, out = tmp_path / "table.json", tmp_path / "rows.json"
    row = {"shapes": [{"N": 2}, {"N": 3}], "kinds": {"x": [0, 5]}}
    table.write_text(json.dumps({"op*.onnx": row, "*": {"kinds": {"x": [0, 5]}}}))
    wanted = ("--table", table, "--rounds", 2, "--out", out)
    shown = run(root, "benchmarks.models", tmp_path, *wanted)
    assert "of 3, 0 failed" in shown
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["shapes"] for r in rows] == [{}, {"N": 2}, {"N": 3}]
    assert all(r["our_error"] == 0 and r["right"] and r["kernels"] == 1 for r in rows)


@pytest.mark.parametrize(
    ("wanted", "library"),
    [(["mlp"], "torch"), (["gru", "--train"], "torch"), (["dense_layers", "--jax"], "jax")],
)
def test_modules_of_frameworks(root: Path, tmp_path: Path, wanted: list[str], library: str) -> None:
    pytest.importorskip(library)
    if library == "torch" and shutil.which("g++") is None:
        pytest.skip("Inductor needs a C++ compiler")
    out = tmp_path / "rows.json"
    options = ("--width", 1, "--rounds", 2, "--out", out)
    shown = run(root, "benchmarks.frameworks", *wanted, *options)
    assert "1 of 1 whole, 0 failed" in shown
    (row,) = map(json.loads, out.read_text().splitlines())
    assert row["errors"]["ours"] < 1e-5
    assert row["ratio"] > 0


def test_weights_of_light_models() -> None:
    """What has a shape only gets elements, which nearly keep the variance of what they multiply."""
    onnx = pytest.importorskip("onnx")
    from benchmarks.light import fill

    nodes = [
        onnx.helper.make_node("ConstantOfShape", ["s"], ["w"]),
        onnx.helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    shape = onnx.numpy_helper.from_array(np.array([64, 128]), "s")
    graph = onnx.helper.make_graph(nodes, "g", [], [], [shape])
    fill(graph)
    assert [n.op_type for n in graph.node] == ["MatMul"]
    (made,) = [onnx.numpy_helper.to_array(t) for t in graph.initializer if t.name == "w"]
    assert made.shape == (64, 128)
    assert made.std() == pytest.approx(np.sqrt(1.5 / 128), rel=0.05)


def test_layers_of_a_model(tmp_path: Path) -> None:
    """Equal ones once, with the elementwise nodes up to the next value that is read twice."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from benchmarks import layers, models

    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    w = onnx.numpy_helper.from_array(np.ones((8, 8, 3, 3), np.float32), "w")
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        node("Sigmoid", ["a"], ["s"]),
        node("Mul", ["a", "s"], ["b"]),
        node("Conv", ["b", "w"], ["c"], pads=[1] * 4),
        node("Sigmoid", ["c"], ["t"]),
        node("Mul", ["c", "t"], ["d"]),
        node("Conv", ["d", "w"], ["e"], pads=[1] * 4),
        node("Add", ["e", "b"], ["y"]),
    ]
    shape = [1, 8, 6, "W"]
    graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, shape)], [info("y", 1, shape)], [w])
    opsets = [onnx.helper.make_opsetid("", 17)]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
    found = layers.layers(path, models.Model(path.name), {"W": 5})
    names = [layer.name.split() for layer in found]
    assert [(n[0], n[1], *n[3:]) for n in names] == [
        ("Conv", "1x8x6x5", "Sigmoid", "Mul"),
        ("Conv", "1x8x6x5"),
    ]
    assert [layer.count for layer in found] == [2, 1]
    options = layers.parser().parse_args([str(tmp_path), "--rounds", "1", "--most", "1"])
    (row,) = layers.compared(found, options)
    assert row["right"]
    assert row["ratio"] > 0
