"""The commands on models, `inspect`, `run`, `tune`, `build` and `db explain`, on small ones."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.autotune.model import base_model, samples
from tilewright.base.errors import TuningError
from tilewright.building.providers import PROVIDERS
from tilewright.cli import parity
from tilewright.cli.programs import kernels_of
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.text import parse_graph
from tilewright.importers.onnx import import_onnx
from tilewright.importers.onnx.table import find
from tilewright.runtime.evidence import Evidence
from tilewright.runtime.part_loader import LOADERS
from tilewright.runtime.profile import Profile

from .commands import Run

onnx = pytest.importorskip("onnx")
ONE = ["--target", "cpu -threads=1"]


def saved(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Path:
    weights = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    graph = onnx.helper.make_graph(
        nodes, "small", inputs, outputs, [onnx.numpy_helper.from_array(weights, "w")]
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
    return path


def info(name: str, dtype: str, shape: list[Any] | None) -> Any:
    kind = getattr(onnx.TensorProto, dtype)
    return onnx.helper.make_tensor_value_info(name, kind, shape)


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """`relu(x @ w) * scale`, with `N` rows."""
    node = onnx.helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("Cast", ["scale"], ["s"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["r", "s"], ["y"]),
    ]
    inputs = [info("x", "FLOAT", ["N", 8]), info("scale", "INT64", [])]
    return saved(tmp_path / "layer.onnx", nodes, inputs, [info("y", "FLOAT", ["N", 4])])


@pytest.fixture
def unsupported(tmp_path: Path) -> Path:
    """Two operators that nobody has."""
    node = onnx.helper.make_node
    nodes = [
        node("Nothing", ["x"], ["a"], name="first", domain="nowhere"),
        node("NonZero", ["x"], ["b"], name="second"),
        node("Relu", ["x"], ["y"]),
    ]
    ends = [info(n, "FLOAT", None) for n in "ay"] + [info("b", "INT64", None)]
    return saved(tmp_path / "unsupported.onnx", nodes, [info("x", "FLOAT", [2, 8])], ends)


def test_inspect_shows_a_model(run: Run, layer: Path) -> None:
    found = run("inspect", layer, "--shape", "N=3", "--json").json
    assert found["inputs"][0] == {"name": "x", "dtype": "float32", "shape": [3, 8]}
    assert found["outputs"] == [{"name": "y", "dtype": "float32", "shape": [3, 4]}]
    assert found["operators"] == {"MatMul": 1, "Relu": 1, "Cast": 1, "Mul": 1}
    assert found["weight_bytes"] == 8 * 4 * 4
    assert sum(group["kernels"] for group in found["groups"]) >= 1
    assert sum(found["became"].values()) == 4
    assert sum(group["operations"] for group in found["groups"]) >= 2 * 3 * 8 * 4
    assert sum(group["bytes"] for group in found["groups"]) >= 4 * (3 * 8 + 8 * 4 + 3 * 4)
    assert found["open_dims"] == found["unsupported"] == []
    told = run("inspect", layer, "--shape", "N=3")
    assert told.code == 0
    assert "float32[3, 8]" in told.out
    assert "MatMul" in told.out


def test_inspect_prints_text_that_parses_back(run: Run, layer: Path) -> None:
    done = run("inspect", layer, "--shape", "x=[3,8]", "--constant", "scale=2", "--text")
    graph = import_onnx(layer, {"N": 3}, {"scale": 2})
    held = {value.digest: value.data for value in graph.constants}
    assert parse_graph(done.out, held).digest == graph.digest
    assert list(graph.inputs) == ["x"]


def test_inspect_shows_what_passes_do(run: Run, layer: Path) -> None:
    given = ["inspect", layer, "--shape", "N=3", "--constant", "scale=1"]
    passes = {one["name"]: one for one in run(*given, "--json").json["passes"]}
    algebra = passes.pop("algebra")
    assert algebra == {"name": "algebra", "nodes": 2, "rules": {"without_neutral": 1}}
    assert not any(one["rules"] for one in passes.values())
    assert "without_neutral" in run(*given).out
    assert "multiply" in run(*given, "--text").out
    assert "multiply" not in run(*given, "--after", "algebra").out
    lines = run(*given, "--diff").out.splitlines()
    assert lines[:2] == ["--- integers", "+++ algebra"]
    assert any(line.startswith("-  %") and "multiply(" in line for line in lines)
    assert run(*given, "--diff", "--after", "movement").out.strip() == "nothing changes"
    refused = run(*given, "--after", "alchemy")
    assert refused.code == 2
    assert "integers, algebra, movement" in " ".join(refused.err.split())


def test_open_dims_are_listed_with_what_is_known(run: Run, layer: Path) -> None:
    done = run("inspect", layer, "--json")
    assert done.code == 1
    assert done.json["open_dims"] == ["N"]
    assert done.json["inputs"][0]["shape"] == ["N", 8]
    assert "--shape N=1" in done.err
    assert run("run", layer).err == done.err


def test_what_is_not_supported_is_listed(run: Run, unsupported: Path) -> None:
    done = run("inspect", unsupported, "--json")
    assert done.code == 1
    assert [(u["node"], u["operator"]) for u in done.json["unsupported"]] == [
        ("first", "Nothing"),
        ("second", "NonZero"),
    ]
    assert all(u["reason"] and u["detail"] for u in done.json["unsupported"])
    assert "NonZero" in run("inspect", unsupported).out
    assert run("run", unsupported).code == 1


def test_inspect_says_who_runs_what(run: Run, layer: Path) -> None:
    given = ["inspect", layer, "--shape", "N=3", "--constant", "scale=2", "--partition"]
    done = run(*given, "--place", "Relu=reference", "--json").json
    parts = [(part["provider"], part["operators"]) for part in done["parts"]]
    assert parts == [
        ("tilewright", ["matmul"]), ("reference", ["relu"]), ("tilewright", ["multiply"]),
    ]  # fmt: skip
    assert [(t["source"], t["destination"], t["bytes"]) for t in done["transfers"]] == [
        (0, 1, 48), (1, 2, 48),
    ]  # fmt: skip
    told = run(*given, "--place", "Relu=reference").out
    assert "Relu is placed here" in told
    assert "2 values, 96 B" in told
    assert [part["provider"] for part in run(*given, "--json").json["parts"]] == ["tilewright"]


def test_run_shares_a_model_among_providers(run: Run, layer: Path) -> None:
    given = ["run", layer, "--shape", "N=3", "--constant", "scale=2", *ONE]
    placed = ["--place", "Relu=reference", "--evidence", "--check", "reference"]
    done = run(*given, *placed, "--json").json
    providers = [part["provider"] for part in done["evidence"]["parts"]]
    assert providers == ["tilewright", "reference", "tilewright"]
    assert done["seconds"] > 0
    assert done["outputs"]["y"]["digest"] == run(*given, "--json").json["outputs"]["y"]["digest"]
    told = run(*given, *placed, "--repeat", 3).out
    assert "Relu is placed here" in told
    assert "3 runs: parts tilewright 6, reference 3; 288 B crossed" in told
    assert done["counts"] == {
        "runs": 1, "transferred_bytes": 96, "tilewright": 2, "reference": 1,
    }  # fmt: skip
    told = run(*given, *placed, "--profile", "--json").json["profile"]
    assert sorted(kernel["operators"] for kernel in told["kernels"]) == [
        "matmul", "multiply", "relu by reference",
    ]  # fmt: skip
    assert Profile.from_json(told).steps


@pytest.fixture
def partitioned(run: Run, layer: Path, tmp_path: Path) -> Path:
    """A library of which onnxruntime runs a part."""
    pytest.importorskip("onnxruntime")
    library = tmp_path / "layer.so"
    given = [layer, "--shape", "N=3", "--constant", "scale=2", *ONE]
    assert run("build", *given, "--place", "Relu=onnxruntime", "-o", library).code == 0
    return library


@pytest.mark.parametrize("lost", ["layer.so", "layer.so.part1", "layer.so.weights"])
def test_inspect_says_which_file_is_missing(run: Run, partitioned: Path, lost: str) -> None:
    assert run("verify", partitioned).code == 0
    whole = run("inspect", partitioned).out
    assert "missing" not in whole
    assert "onnxruntime" in whole
    (partitioned.parent / lost).unlink()
    assert f"{lost} is missing" in run("inspect", partitioned).out
    (check,) = run("verify", partitioned, "--json").json["checks"]
    assert (check["what"], check["outcome"], lost in check["detail"]) == ("files", "wrong", True)


def test_files_that_are_no_library(
    run: Run, partitioned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is an error that names the file, or the library that it belongs to."""
    monkeypatch.chdir(partitioned.parent)
    Path("alone.so").write_bytes(partitioned.read_bytes())
    Path("program.py").write_text("")
    Path("program.json").write_text("{}")  # is no manifest of the file without its suffix
    wanted = {
        "layer.so.part1": "of layer.so",
        "layer.so.json": "of layer.so",
        "layer.so:other": "there are",
        "alone.so": "expected alone.so.json",
        "none.so": "none.so does not exist",
        "none.so:one": "none.so does not exist",
        "program.py": "program.py:FUNCTION",
        ".": "folder",
    }
    for name, told in wanted.items():
        done = run("inspect", name)
        assert (done.code in {1, 2}, told in " ".join(done.err.split())) == (True, True), name
    for name in ("layer.so.part1", "none.so", "program.py", "."):
        done = run("verify", name, "--json")
        assert done.code == 1
        (check,) = done.json["checks"]
        assert (check["what"], check["outcome"]) == ("files", "wrong")
        assert ("file of layer.so" in check["detail"]) == (name == "layer.so.part1")


def evidence_in(run: Run, library: Path) -> Any:
    """The evidence of the only model of a library."""
    (program,) = run("inspect", library, "--json").json["programs"]
    return program["provenance"]["evidence"]


def test_a_library_keeps_the_parts_of_others(run: Run, layer: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    library = tmp_path / "layer.so"
    of_model = [layer, "--shape", "N=3", "--constant", "scale=2", *ONE]
    placed = ["--place", "Relu=onnxruntime"]
    done = run("build", *of_model, *placed, "-o", library, "--json").json
    assert [Path(file).name for file in done["files"]] == [
        "layer.so", "layer.so.json", "layer.so.part1", "layer.so.weights",
    ]  # fmt: skip
    told = evidence_in(run, library)
    assert [part["provider"] for part in told["parts"]] == [
        "tilewright", "onnxruntime", "tilewright",
    ]  # fmt: skip
    assert [part["kernels"] is None for part in told["parts"]] == [False, True, False]
    (program,) = run("inspect", library, "--json").json["programs"]
    importer = program["provenance"]["source"]["importer"]
    assert importer["importer"] == "onnx"
    assert importer["sha256"] == sha256(layer.read_bytes()).hexdigest()
    assert "part 2" in run("inspect", library).out
    found = run("run", library, "--evidence", "--profile", "--json").json
    built = run("run", *of_model, *placed, "--json").json
    assert found["outputs"] == built["outputs"]
    assert found["counts"] == built["counts"]
    assert len(found["profile"]["kernels"]) == 3
    database = tmp_path / "tuning.db"
    tuned = run("tune", *of_model, *placed, "--trials", 2, "--db", database, "--json").json
    assert [one["name"].rpartition("_")[0] for one in tuned] == ["matmul", "multiply"]
    explained = run("db", "explain", *of_model, *placed, "--db", database, "--json").json
    assert [k["origin"]["kind"] for k in explained["kernels"]] == ["record", "record"]
    assert run("build", *of_model, *placed, "--db", database, "-o", library).code == 0
    other = tmp_path / "other.so"
    warned = run("build", *of_model, "--place", "MatMul=onnxruntime", "--db", database, "-o", other)
    command = warned.err.partition("`")[2].partition("`")[0]
    assert "--place MatMul=onnxruntime" in command
    assert run(*shlex.split(command)[1:]).code == 0
    told = evidence_in(run, library)["parts"]
    schedules = [
        k["schedule"] for part in told if part["kernels"] for k in part["kernels"]["kernels"]
    ]
    assert schedules == ["record", "record"]
    refused = run("run", library, "--never", "onnxruntime")
    assert (refused.code, "forbids" in refused.err) == (1, True)
    refused = run("build", *of_model, *placed, "--never", "onnxruntime", "-o", library)
    assert (refused.code, "forbids" in refused.err) == (1, True)
    refused = run("build", *of_model, "--place", "Relu=reference", "-o", library)
    assert (refused.code, "does not store parts" in refused.err) == (1, True)


MODULE = """
import torch

def module(width: int = 16):
    torch.manual_seed(0)
    first, last = torch.nn.Linear(8, width), torch.nn.Linear(width, 4)
    return torch.nn.Sequential(first, torch.nn.GELU(), last), (torch.ones(2, 8),)

def scaled():
    import tilewright as tw
    made, inputs = module()
    return tw.import_torch(torch.export.export(made, inputs))

def odd():
    class Odd(torch.nn.Module):
        def forward(self, x):
            raise ValueError("an odd module")
    return Odd(), (torch.ones(2),)

def nothing():
    return 1, 2

def program():
    from tilewright import ops
    return ops.softmax_func(2, 8)

plain = torch.nn.Linear(2, 3)
"""


def test_a_function_makes_a_module_with_example_inputs(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "encoder.py"
    file.write_text(MODULE)
    name = f"{file}:module"
    found = run("inspect", name, "-p", "width=32", "--json").json
    assert found["inputs"] == [{"name": "input", "dtype": "float32", "shape": [2, 8]}]
    assert found["operators"] == {"aten.linear.default": 2, "aten.gelu.default": 1}
    assert found["weight_bytes"] == 4 * (8 * 32 + 32 + 32 * 4 + 4)
    assert "aten.linear.default" in run("inspect", name).out
    parts = run("inspect", name, "--partition", "--place", "gelu=reference", "--json").json["parts"]
    assert [part["provider"] for part in parts] == ["tilewright", "reference", "tilewright"]
    done = run("run", name, *ONE, "--check", "reference", "--json").json
    assert done["wrong"] == []
    assert done["outputs"] == run("run", f"{file}:scaled", *ONE, "--json").json["outputs"]
    library = tmp_path / "module.so"
    assert run("build", name, *ONE, "-o", library).code == 0
    assert run("run", library, "--json").json["outputs"] == done["outputs"]
    database = tmp_path / "tuning.db"
    assert run("tune", name, *ONE, "--trials", 2, "--db", database).code == 0
    tuned = run("run", name, *ONE, "--db", database, "--evidence", "--json").json["evidence"]
    assert {kernel["schedule"] for kernel in tuned["kernels"]} == {"record"}


@pytest.mark.parametrize(
    ("function", "code", "part"),
    [
        ("plain", 2, "is a module itself"),
        ("odd", 1, "does not export Odd: ValueError: an odd module"),
        ("nothing", 1, "expected a torch.nn.Module"),
        ("none", 2, "has no function"),
        ("program", 2, "model"),
    ],
)
def test_what_is_no_module(run: Run, tmp_path: Path, function: str, code: int, part: str) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "encoder.py"
    file.write_text(MODULE)
    for command in (["inspect"], ["run"], ["tune", "--never", "reference"]):
        done = run(*command, f"{file}:{function}")
        assert (done.code, part in " ".join(done.err.split())) == (code, True)


def test_inspect_says_who_runs_what_has_no_kernel(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    nodes = [onnx.helper.make_node("NonZero", ["x"], ["places"], name="second")]
    path = saved(
        tmp_path / "places.onnx", nodes, [info("x", "FLOAT", [2, 8])],
        [info("places", "INT64", [2, "n"])],
    )  # fmt: skip
    done = run("inspect", path, "--partition", "--json").json
    ((provider, why),) = [(part["provider"], part["why"]) for part in done["parts"]]
    assert (provider, why) == ("onnxruntime", "tilewright: no kernel")
    refused = run("inspect", path, "--partition", "--provider", "tilewright")
    assert refused.code == 1
    assert "no kernel" in refused.err


def test_run_computes_and_checks(run: Run, layer: Path) -> None:
    words = ["run", layer, "--shape", "N=3", "--constant", "scale=2", *ONE, "--json"]
    found = run(*words, "--check", "reference", "--repeat", 2).json
    assert found["outputs"]["y"]["type"] == "float32[3, 4]"
    assert found["seconds"] > 0
    assert found["wrong"] == []
    assert set(found["errors"]) == {"tilewright", "numpy"}
    assert found["errors"]["tilewright"]["y"] < 1e-5
    assert run(*words).json["outputs"] == found["outputs"]
    other = run(*words, "--random", 1).json["outputs"]
    assert other["y"]["digest"] != found["outputs"]["y"]["digest"]
    told = run(*words[:-1], "--check", "reference")
    assert told.code == 0
    assert "float32[3, 4]" in told.out


def test_run_says_where_the_time_goes_and_what_became_of_nodes(run: Run, layer: Path) -> None:
    words = ("run", layer, "--shape", "N=3", *ONE, "--profile", "--evidence")
    found = run(*words, "--json").json
    evidence, profile = Evidence.from_json(found["evidence"]), Profile.from_json(found["profile"])
    assert {kernel.name for kernel in profile.kernels} == {k.name for k in evidence.kernels}
    assert len(profile.steps) == len(evidence.groups)
    told = run(*words)
    for line in ("\nevidence\n", "\nprofile\n", "between", "python", "roofline"):
        assert line in told.out


def test_a_json_of_a_model_is_no_manifest(run: Run, layer: Path) -> None:
    """Voices of Piper, for instance, have a `.onnx.json` with their settings."""
    layer.with_name("layer.onnx.json").write_text("{}")
    found = run("run", layer, "--shape", "N=3", "--constant", "scale=2", *ONE, "--json").json
    assert found["outputs"]["y"]["type"] == "float32[3, 4]"


def test_run_takes_files(
    run: Run, layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 8), np.float32))
    np.save(tmp_path / "scale.npy", np.int64(3))
    words = ["run", layer, "--shape", "N=2", *ONE, "--input", f"x={tmp_path / 'x.npy'}"]
    found = run(*words, "--constant", f"scale={tmp_path / 'scale.npy'}", "--json").json
    assert found["outputs"]["y"]["first"] == [0, 0, 0, 0]
    with monkeypatch.context() as patch:
        patch.setattr("tilewright.building.build.build", None)  # files are read before it
        assert run(*words, "--input", "scale=missing.npy").code == 2
    np.save(tmp_path / "x.npy", np.zeros((1, 8), np.float32))
    assert run(*words).code == 1


def test_run_beside_onnxruntime(run: Run, layer: Path) -> None:
    pytest.importorskip("onnxruntime")
    words = ["run", layer, "--shape", "N=3", "--constant", "scale=2", *ONE]
    found = run(*words, "--check", "onnxruntime", "--json").json
    assert set(found["errors"]) == {"tilewright", "numpy", "onnxruntime"}
    assert found["interleaved_seconds"]["peer"] > 0
    assert found["wrong"] == found["differs"] == []


def test_without_onnxruntime_the_check_is_refused(
    run: Run, layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = run("run", layer, "--shape", "N=3", "--check", "onnxruntime")
    assert done.code == 1
    assert "pip install onnxruntime" in done.err


def test_what_is_wrong_is_found(layer: Path) -> None:
    graph = import_onnx(layer, {"N": 3}, {"scale": 2})
    given: dict[str, Any] = {"x": np.ones((3, 8), np.float32)}
    right = graph.reference(**given)
    assert parity.compare(graph, given, right, None, tuple).wrong == []
    for wrong in (right[0] * np.float32(1.001), right[0] * np.nan, right[0][:2]):
        assert parity.compare(graph, given, [wrong], None, tuple).wrong == ["y"]


def compared(graph: Graph, given: dict[str, Any], own: Any, peer: Any) -> parity.Comparison:
    return parity.compare(graph, given, [own], lambda: [peer], lambda: None)


def test_onnxruntime_judges_what_was_imported(layer: Path) -> None:
    """The references are of the imported graph: they tell nothing of it."""
    graph = import_onnx(layer, {"N": 3}, {"scale": 2})
    given: dict[str, Any] = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)}
    (right,) = graph.reference(**given)
    assert not compared(graph, given, right, right).differs
    assert not compared(graph, given, right, right * np.float32(1.00001)).differs
    for other in (right * np.float32(1.001), 1 / (1 + np.exp(-right)), right * np.nan, right[:2]):
        found = compared(graph, given, right, other)
        assert (found.differs, found.wrong) == (["y"], [])
        assert found.to_json()["differs"] == ["y"]
        both = compared(graph, given, right * np.float32(1.0005), other)  # excused by nobody
        assert (both.differs, both.wrong) == (["y"], ["y"])


def one_node(operator: str, x: Any, **attributes: Any) -> tuple[Graph, dict[str, Any], Any]:
    b = Builder("one")
    graph = b.graph(
        {"y": b.add(operator, b.input("x", TensorType("float32", x.shape)), **attributes)}
    )
    return graph, {"x": x}, graph.reference(x)[0]


def test_what_accuracy_explains_of_onnxruntime() -> None:
    """Roundings of 1 in sigmoids near 0, and quanta; truncated integers of any size do not."""
    graph, given, right = one_node("sigmoid", np.linspace(-16, -14, 5, dtype=np.float32))
    assert not compared(graph, given, right, right + np.float32(2**-22)).differs
    assert compared(graph, given, right, right + np.float32(2**-18)).differs
    numbers = np.linspace(0, 250, 6, dtype=np.float32)
    for dtype, differs in (("uint8", []), ("int32", ["y"])):
        graph, given, right = one_node("cast", numbers, dtype=dtype)
        assert compared(graph, given, right, right + right.dtype.type(2)).differs == differs
        assert compared(graph, given, right, right[::-1]).differs == ["y"]


def test_an_operator_that_is_read_wrongly_is_found(
    run: Run, layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(
        "tilewright.importers.onnx.model.find",
        lambda domain, op, version: (
            (lambda b, node: b.add("sigmoid", node[0]))
            if op == "Relu"
            else find(domain, op, version)
        ),
    )
    words = ["run", layer, "--shape", "N=3", "--constant", "scale=2", *ONE]
    assert run(*words, "--check", "reference").code == 0
    done = run(*words, "--check", "onnxruntime")
    assert done.code == 1
    assert done.err.strip() == (
        "tilewright: onnxruntime differs from the reference of the imported graph: y"
    )


@pytest.mark.parametrize(
    "words",
    [
        "--shape N",
        "--shape N=x",
        "--shape N=-1",
        "--shape x=[1,",
        "--shape N=1,N=2",
        "--shape N=1 --constant scale=two",
        "--shape N=1 --constant scale=missing.npy",
        "--shape N=1 --input z=z.npy",
        "--shape N=1 --repeat 0",
        "--shape N=1 --check nobody",
    ],
)
def test_wrong_usage(run: Run, layer: Path, words: str) -> None:
    assert run("run", layer, *words.split()).code == 2


@pytest.mark.parametrize("there", ["pipe", "/dev/zero", "."])
def test_only_regular_files_are_read(run: Run, layer: Path, tmp_path: Path, there: str) -> None:
    """A pipe would be waited for, and a device may have no end."""
    os.mkfifo(tmp_path / "pipe")
    file = tmp_path / there
    (link := tmp_path / "link.npy").symlink_to(file)
    (model := tmp_path / "link.onnx").symlink_to(file)
    words = ["run", layer, "--shape", "N=2", *ONE]
    for option in (f"--input=x={file}", f"--constant=scale={link}"):
        done = run(*words, option)
        assert done.code == 2
        assert "expected a regular file" in " ".join(done.err.split())
    for command in ("inspect", "run"):
        assert "expected a regular file" in run(command, model).err
    for read in (partial(base_model.load, feature_version="1"), samples.read):
        with pytest.raises(TuningError, match="expected a regular file"):
            read(file)


@pytest.mark.parametrize(
    "words",
    [
        "--shape M=1",
        "--shape N=1 --constant scale=2.5",
        "--shape N=1 --constant scale=[2]",
        "--shape x=[1,7]",
        f"--shape N=1 --constant scale={10**30}",
    ],
)
def test_values_that_do_not_fit_are_refused(run: Run, layer: Path, words: str) -> None:
    done = run("inspect", layer, *words.split())
    assert done.code == 1
    assert done.err.startswith("tilewright: ")


def test_a_damaged_file_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    for name in ("bad.onnx", "missing.onnx"):
        for command in ("inspect", "run"):
            done = run(command, tmp_path / name)
            assert done.code == 1
            assert done.err.startswith("tilewright: ")
            assert done.out == ""


# Tuning, and files


@pytest.fixture
def options(layer: Path) -> list[object]:
    """The model, what it needs to be imported, and one thread."""
    return [layer, "--shape", "N=2", "--constant", "scale=3", *ONE]


def test_a_model_is_tuned_explained_built_and_run(
    run: Run, options: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = ["--db", tmp_path / "tuning.db"]
    library = tmp_path / "layer.so"
    tuned = run("tune", *options, *db, "--trials", 1, "--json")
    assert tuned.code == 0
    (row,) = tuned.json
    assert row["best"]["schedule"]
    told = run("db", "explain", *options, *db, "--json").json
    (kernel,) = told["kernels"]
    assert (kernel["name"], kernel["runs"]) == (row["name"], 1)
    assert kernel["origin"]["kind"] == "record"
    assert kernel["origin"]["schedule_id"] == row["best"]["schedule"]
    assert row["name"] in run("db", "explain", *options, *db).out
    model, *others = options
    one = [f"{model}:{row['name']}", *others, *db]
    assert row["best"]["schedule"][:8] in run("db", "explain", *one).out
    assert run("show", *one, "--what", "trace").code == 0
    without_target = one[: -len(ONE) - len(db)]
    assert run("db", "best", *without_target, *db, "--json").json[0]["name"] == row["name"]
    built = run("build", *options, *db, "--allow", "record", "-o", library, "--json")
    assert (built.code, built.err) == (0, "")
    assert [Path(p).suffix for p in built.json["files"]] == [".so", ".json", ".h", ".weights"]
    seen = Evidence.from_json(evidence_in(run, library))
    assert [(k.name, k.schedule) for k in seen.kernels] == [(row["name"], "record")]
    assert row["name"].split("_")[0] in run("inspect", library).out
    assert built.json["origin"]["kind"] == "record"
    loaded = run("run", library, "--random", 5, "--profile", "--json").json
    assert [kernel["name"] for kernel in loaded["profile"]["kernels"]] == [row["name"]]
    compiled = run("run", *options, *db, "--random", 5, "--json").json
    assert loaded["outputs"] == compiled["outputs"]
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "tuning.db"))
    assert run("run", library, "--random", 5, "--json").json["outputs"] == compiled["outputs"]
    monkeypatch.delenv("TILEWRIGHT_DB")
    again = run("tune", *options, *db, "--trials", 1)
    assert row["name"] in again.out
    assert "1 of 1 kernel measured; together they take" in " ".join(again.out.split())


def test_a_page_of_a_model(run: Run, options: list[object], tmp_path: Path) -> None:
    """The graph before and after and what a build made of it, or that alone of a library."""
    page, library = tmp_path / "page.html", tmp_path / "layer.so"
    done = run("report", *options, "-o", page)
    assert (done.code, done.out) == (0, "")
    for heading in ("The graph before", "The graph after", "What the build made", "Nothing lives"):
        assert heading in page.read_text()
    assert run("build", *options, "-o", library).code == 0
    assert run("report", library, "-o", page).code == 0
    assert "What the build made" in page.read_text()
    assert "The graph before" not in page.read_text()
    wrong = (
        (library, "--target", "cpu"),
        (library, "--session", "1"),
        (options[0], "--session", 1),
    )
    for words in wrong:
        assert run("report", *words, "-o", page).code == 2


def test_a_model_without_records_is_not_built_from_records_alone(
    run: Run, options: list[object], tmp_path: Path
) -> None:
    with tw.TuningDatabase(tmp_path / "tuning.db"):
        pass
    output = ["-o", tmp_path / "layer.so", "--db", tmp_path / "tuning.db"]
    refused = run("build", *options, *output, "--allow", "record")
    assert refused.code == 1
    assert "allow=['record'] permits no schedule" in refused.err
    assert not (tmp_path / "layer.so").exists()
    built = run("build", *options, *output, "--allow", "default")
    assert built.code == 0
    command = shlex.split(built.err.split("`")[1])
    assert command[:3] == ["tilewright", "db", "explain"]
    explained = run(*command[1:], "--json")  # as it is told
    assert (explained.code, explained.err) == (0, "")
    assert {*ONE, "--db", str(tmp_path / "tuning.db")} <= {*command}


def test_kernels_of_several_models_share_a_budget(layer: Path) -> None:
    graph, other = (import_onnx(layer, {"N": n}, {"scale": 3}) for n in (2, 4))
    program = tw.ops.softmax_func(2, 8)
    runs = kernels_of([graph, program, other, graph], [2.0, 3.0, 5.0, 7.0], "cpu")
    funcs = [*runs]
    assert [*runs.values()] == [9.0, 3.0, 5.0]
    assert funcs[1] is program
    assert [func.name for func in funcs[::2]] == [
        f.name for g in (graph, other) for f in g.kernels()
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("build LAYER -p n=2 -o x.so", "--shape, --constant"),
        ("build LAYER -o x.so", "--shape N=1"),
        ("build f.py:f --shape N=2 -o x.so", "are of models"),
        ("show LAYER --shape N=2 --constant scale=3", ".onnx:KERNEL, of matmul"),
        ("check LAYER:x --shape N=2 --constant scale=3", "no kernel 'x'"),
        ("db best --shape N=2", "parameters of no program"),
        ("tune LAYER --shape N=2 --constant scale=3 --weight 1 --weight 2", "--weight"),
        ("build LAYER --shape N=1 --constant scale=3 -o LAYER", "the name of a model"),
        ("inspect LAYER --shape 1,3,8", "INPUT=[1,3]"),
        ("inspect LAYER --shape x=1,3,8", "INPUT=[1,3]"),
        ("inspect LAYER --shape batch=3", "no dim or input 'batch'; it has N, scale, x"),
        ("inspect LAYER --place Relu=reference", "are of --partition"),
        ("inspect LAYER --never reference", "are of --partition"),
        ("inspect LAYER -p n=1", "a model has --shape"),
        ("run KERNEL -p n=1", "was built already"),
        ("inspect LAYER --partition --place Relu", "NAME=PROVIDER"),
        ("inspect KERNEL --partition", "was built already"),
        ("run missing.onnx", "missing.onnx"),
        ("run KERNEL", "is a kernel"),
        ("run KERNEL --shape N=1", "was built already: --shape is"),
        ("run KERNEL --target cpu --db x.db --check reference", "--check, --target, --db is"),
        ("inspect KERNEL --text", "was built already"),
    ],
)
def test_words_that_do_not_fit(
    run: Run, layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kernel = tmp_path / "kernel.so"
    if "KERNEL" in words:
        tw.build_library(tw.Schedule(tw.ops.softmax_func(2, 8)), kernel, "cpu -threads=1")
    named = words.replace("LAYER", str(layer)).replace("KERNEL", str(kernel))
    before = layer.read_bytes()
    result = run(*named.split())
    assert layer.read_bytes() == before
    assert result.code in {1, 2}
    assert told in " ".join(result.err.split())


VENDOR = """
import numpy as np
import tilewright as tw

@tw.register_provider
class Vendor(tw.Provider):
    name = "vendor"

    def refusal(self, node):
        return None if node.operator == "relu" else "it has relu only"

    def store(self, graph, target):
        return b"relu"

    def load(self, content, target):
        assert content == b"relu"
        return lambda x: np.maximum(x, 0)

    def compile(self, graph, target):
        return self.load(self.store(graph, target), target)
"""


@pytest.fixture
def providers_end_with_their_test() -> Iterator[None]:
    yield
    for table in (PROVIDERS, LOADERS):
        table.pop("vendor", None)


@pytest.mark.usefixtures("providers_end_with_their_test")
def test_a_file_or_module_is_loaded_first(
    run: Run, layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, library = tmp_path / "vendor_of_test.py", tmp_path / "layer.so"
    file.write_text(VENDOR)
    monkeypatch.syspath_prepend(tmp_path)
    given = [layer, "--shape", "N=3", "--constant", "scale=2", "--place", "Relu=vendor"]
    given += ["--provider", "tilewright", "--provider", "vendor"]
    assert run("inspect", *given, "--partition").code == 1
    for name in (file, "vendor_of_test"):
        PROVIDERS.pop("vendor", None)
        told = run("--load", name, "inspect", *given, "--partition", "--json").json
        assert [part["provider"] for part in told["parts"]] == [
            "tilewright",
            "vendor",
            "tilewright",
        ]
    assert run("--load", file, "build", *given, *ONE, "-o", library).code == 0
    assert run("--load", file, "run", library, "--json").json["counts"]["vendor"] == 1
    for wrong in ("no_such_module", tmp_path / "none.py", "no/such"):
        assert run("--load", wrong, "inspect", layer).code == 2


def test_a_page_of_a_model_that_several_providers_run(
    run: Run, layer: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    given = [layer, "--shape", "N=3", "--constant", "scale=2", *ONE, "-o", page]
    assert run("report", *given, "--place", "Relu=reference").code == 0
    text = page.read_text()
    assert "3 parts of 2 providers" in text
    assert "the kernels of tilewright" in text
