"""The notebooks of examples/notebooks/ run, and their stored outputs are what they print and show.

Times and texts are not compared, only the kinds of outputs of each cell. `make notebooks` runs them
and stores their outputs.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SMALLER = {"trials=64": "trials=4", "trials=24": "trials=3", "trials=16": "trials=3"}
SMALLER |= {
    "trials=96": "trials=6",
    "seconds=120": "seconds=4",
    "n = 512": "n = 64",
    "rounds=41": "rounds=3",
    "ops.conv2d_func(1, 32, 28, 28, 64, 3, padding=1)": "ops.matmul_func(32, 32, 32)",
    "ops.conv2d_func(1, 32, 56, 56, 64, 3, padding=1)": "ops.matmul_func(64, 32, 32)",
    "\nimport tilewright as tw": "\nimport tilewright as tw, tilewright.tests.short_sessions",
}
"""Parts of code, and smaller ones that are run here instead."""
MOST_BYTES = 400_000
MIMES = ("text/html", "image/svg+xml", "image/png", "text/plain")
"""Forms of an output, the richest first."""
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def kinds(cell: Any) -> list[str]:
    """What the outputs of a cell are, without warnings and repetitions."""
    found = []
    for output in cell["outputs"]:
        kind = output["output_type"]
        if kind == "stream":
            kind = output["name"]
        elif kind in ("execute_result", "display_data"):
            kind = next(mime for mime in MIMES if mime in output["data"])
        elif kind == "error":
            kind = output["ename"]
        if kind != "stderr" and kind not in found:
            found.append(kind)
    return found


def printed(notebook: Any) -> str:
    """What its cells print, without warnings."""
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "".join("".join(o["text"]) for o in outputs if o.get("name") == "stdout")


def beaten(text: str) -> str:
    """The verdict about the lab's version, which reads its input once and not three times."""
    reads = re.findall(r"^(L\d+) i (\d+) reads (\d+) KiB of X$", text, re.MULTILINE)
    rows = int(reads[0][1])
    assert [int(kib) << 10 for _, _, kib in reads] == [4 * rows * rows] * 4
    assert len({loop for loop, *_ in reads[:3]}) == 3
    assert reads[3] == reads[0]
    assert re.search(r"^ +[\d.]+ [mun]?s  sch\.merge\(i, i\)$", text, re.MULTILINE)
    assert "does not directly follow" in text
    assert re.search(r"^l\d+ = sch\.merge\(l\d+, l\d+, l\d+\)$", text, re.MULTILINE)
    assert re.search(r"rules of your own: read_once: \d+ of \d+ trials", text)
    compared = re.search(r"^(\w+): v2 (is|takes)", text, re.MULTILINE)
    assert compared is not None
    return compared[1]


CLAIMS: dict[str, Callable[[str], str]] = {"beat_the_tuner": beaten}
"""Of what a notebook prints, what its text says. They return the verdict of a comparison."""
OF_TORCH = ("encode_sentences",)
QUICK = [path for path in NOTEBOOKS if path.stem not in CLAIMS]
"""Those that claim nothing of times; `make test-long` runs all as they are."""


def compare(path: Path, folder: Path, smaller: dict[str, str]) -> None:
    pytest.importorskip("nbclient")
    if path.stem in OF_TORCH:
        pytest.importorskip("torch")
    run = runpy.run_path(str(ROOT / "scripts" / "notebooks.py"))["run"](path, folder, smaller)
    before = stored(path)
    assert [c["source"] for c in run["cells"]] == ["".join(c["source"]) for c in before["cells"]]
    for now, then in zip(code_cells(run), code_cells(before), strict=True):
        assert kinds(now) == kinds(then), f"run `make notebooks`: {now['source']}"
    if path.stem in CLAIMS:  # on a busy machine it may be unsettled
        assert CLAIMS[path.stem](printed(run)) != "slower"


@pytest.mark.parametrize("name", CLAIMS)
def test_stored_outputs_are_what_the_text_says(name: str) -> None:
    text = printed(stored(ROOT / "examples" / "notebooks" / f"{name}.ipynb"))
    assert CLAIMS[name](text) == "faster"
    ratio = re.search(r"v2 is ([\d.]+)x faster than v1", text)
    assert ratio is not None
    assert float(ratio[1]) > 1.4, "run `make notebooks` on a calm machine"


@pytest.mark.parametrize("path", QUICK, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_its_outputs(path: Path, tmp_path: Path) -> None:
    compare(path, tmp_path, SMALLER)


@pytest.mark.long
@every_notebook
def test_a_notebook_runs_as_it_is(path: Path, tmp_path: Path) -> None:
    compare(path, tmp_path, {})


@every_notebook
def test_stored_outputs_are_of_one_run_and_of_no_machine(path: Path) -> None:
    notebook, text = stored(path), path.read_text(encoding="utf-8")
    counts = [cell["execution_count"] for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1)), "run `make notebooks`"
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert len(text.encode()) < MOST_BYTES
    assert "jupyter.widget" not in text, "a stored widget is empty"
    assert re.findall(r"(?:/tmp|/home|/root|~)/[^\"\\ ]*", text) == []


@every_notebook
def test_links_of_a_notebook_lead_somewhere(path: Path) -> None:
    cells = [c for c in stored(path)["cells"] if c["cell_type"] == "markdown"]
    text = "".join("".join(cell["source"]) for cell in cells)
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert targets, "a notebook leads on to others"
    assert [target for target in targets if not (path.parent / target).exists()] == []
    assert text.startswith("# ")


def test_a_notebook_that_fails_is_noticed(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    cell: dict[str, Any] = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None}
    cells = [cell | {"source": "1 / n", "outputs": []}]
    path = tmp_path / "failing.ipynb"
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook), encoding="utf-8")
    run = runpy.run_path(str(ROOT / "scripts" / "notebooks.py"))["run"]
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        run(path, tmp_path, {"n": "0"})
