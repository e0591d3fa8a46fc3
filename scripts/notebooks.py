"""Run the notebooks of examples/notebooks/ and store their outputs, as people would see them.

    python -m scripts.notebooks [NAME ...]

Each runs in a folder of its own, so that nothing is left behind. Times are those of this machine;
the names of its folders and the hours at which cells ran are left out.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

import tilewright

NOTEBOOKS = Path(__file__).resolve().parent.parent / "examples" / "notebooks"
KERNEL = "python3"
SECONDS = 600
"""The time that a cell may take."""
WIDGET = "application/vnd.jupyter.widget-view+json"
"""A widget needs the kernel that made it: what is stored is the picture beside it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of notebooks, such as ship_it")
    names = parser.parse_args().names
    for path in [NOTEBOOKS / f"{name}.ipynb" for name in names] or notebooks():
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(path, Path(folder))
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def notebooks() -> list[Path]:
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def run(path: Path, folder: Path, smaller: Mapping[str, str] | None = None) -> Any:
    """A notebook with the outputs of running it in a folder.

    `smaller` are parts of code, and what runs in their place. A line break stands before the first
    line. A cell that raises ends the run with nbclient's `CellExecutionError`, but for those with
    the tag `raises-exception`.
    """
    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        source = f"\n{cell.source}"
        for old, new in (smaller or {}).items():
            source = source.replace(old, new)
        cell.source = source[1:]
    client = NotebookClient(
        notebook,
        kernel_name=KERNEL,
        extra_arguments=["--log-level=ERROR"],  # it warns of sockets that are on this machine alone
        timeout=SECONDS,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    for cell, source in zip(notebook.cells, sources, strict=True):
        cell.source = source
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": KERNEL},
        "language_info": {"name": "python"},
    }
    package = Path(tilewright.__file__).parent
    return nbformat.from_dict(renamed(notebook, {f"{folder}/": "", f"{package.parent}/": ""}))


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A value of JSON with other names in its texts."""
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if isinstance(value, Mapping):
        return {key: renamed(item, names) for key, item in value.items()}
    return value


if __name__ == "__main__":
    main()
