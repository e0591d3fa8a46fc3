"""The Python of README.md runs as it stands, but for smaller numbers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright

SMALLER = {"1024": "48", "trials=64": "trials=2"}


@pytest.fixture(scope="module")
def blocks(root: Path) -> list[str]:
    """The fenced Python blocks in order."""
    return re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)


def test_readme_runs(blocks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "readme"}
    for source in blocks:
        text = source
        for old, new in SMALLER.items():
            text = text.replace(old, new)
        exec(compile(text, "README.md", "exec"), names)
    assert len(blocks) == 2
    assert (tmp_path / "tuning.db").is_file()
    np.testing.assert_array_equal(names["c"], 48)
    names["c"][:] = 0
    names["mod"](names["a"], names["b"], names["c"])
    np.testing.assert_array_equal(names["c"], 48)


def test_readme_runs_a_model(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    text = (root / "README.md").read_text()
    (source,) = re.findall(r"```python model\n(.*?)```", text, re.DOTALL)
    assert source.count("\n") == 7
    monkeypatch.chdir(tmp_path)
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 8])
        for name in ("image", "y")
    ]
    node = onnx.helper.make_node("Sigmoid", ["image"], ["y"])
    opsets = [onnx.helper.make_opsetid("", 17)]
    made = onnx.helper.make_graph([node], "small", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(made, ir_version=8, opset_imports=opsets), "model.onnx")
    names: dict[str, Any] = {"np": np, "tw": tilewright, "db": None}
    exec(compile(source, "README.md", "exec"), names)
    for y in (names["y"], tilewright.load("model.so")(names["image"])):
        np.testing.assert_array_equal(y, np.full((1, 8), 0.5, np.float32))


def test_readme_opens_with_the_two_commands(root: Path) -> None:
    indented = re.findall(
        r"^    (make .*?)\s*(?:#.*)?$", (root / "README.md").read_text(), re.MULTILINE
    )
    assert indented[:2] == ["make demo", "make test"]


def test_readme_says_how_to_install_above_its_first_program(root: Path) -> None:
    text = (root / "README.md").read_text()
    commands = re.findall(r"^    (pip install \S+)", text.partition("```python")[0], re.MULTILINE)
    assert commands == ["pip install .", "pip install git+URL", "pip install '.[notebook,plot]'"]


def test_readme_names_every_extra(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    listed = re.search(
        r"Extras add libraries: (.*?)\n\n", (root / "README.md").read_text(), re.DOTALL
    )
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == {*project["optional-dependencies"]} - {"tvm"}


def test_readme_links_lead_somewhere(root: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (root / "README.md").read_text())
    assert links
    assert [link for link in links if not (root / link).exists()] == []
