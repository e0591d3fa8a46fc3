"""The pages of docs/ say what happens: their blocks are run in order, their output is compared.

- `python` is executed, all blocks of a page in one namespace and one folder of the page's own.
  `python picture` ends with an expression whose value shows itself in notebooks; the site shows it.
  `python numba` and its like are code of another library, and run where that is installed.
- `console` is run command by command: what follows a line `$ ...`, up to the next, is its output.
- `c` and `js` are written to the file that the first line names.
- `text` is what the `python` block before it printed; an error that it ends with is expected.

`...` stands for anything. After `text measured` and `console measured` numbers (`1 call`,
`3 calls`), units of time and ids may be any, so that a page can show what a machine really said.
"""

from __future__ import annotations

import contextlib
import difflib
import doctest
import io
import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import html5lib
import pytest

import tilewright
from tilewright.cli.main import main as command_line
from tilewright.codegen.cuda.nvcc import nvcc
from tilewright.importers import user_operators
from tilewright.runtime.host import HOST
from tilewright.schedule import PRIMITIVES
from tilewright.target import CPUS
from tilewright.tuning_db.journal import STATE

from .codegen.cuda.emulated import emulated_device
from .instruction_sets import forgotten
from .tuning_db.conftest import binaries, server

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
REFERENCE = DOCS / "reference"
"""Pages that are made of docstrings, and have no code of their own."""
PEERS = ("distributed", "jax", "numba", "torch", "triton", "tvm")
"""Libraries whose code pages show beside ours, which are not installed everywhere."""
SMALLER = {
    "trials=64": "trials=4",
    "trials=16": "trials=4",
    "--trials 64": "--trials 4",
    "--trials 16": "--trials 4",
}
"""The commands of pages, and smaller ones that are run here instead."""
SERVER = "postgresql+psycopg://db.example/tuning"
"""The database of pages that is on a server."""
PLAIN = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
"""The environment in which commands print plain text of one width."""

_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#([^)]+))?\)")
_NUMBER = re.compile(r"[-+]?\b\d+(\.\d+)?(e[-+]?\d+)?\b")
_ID = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_UNIT = re.compile(r"(?<=0 )(ns|us|ms|s)\b")
_PLURAL = re.compile(r"((?:\b0|\.\.\.) +[a-z]{2,})s\b")
_OPTIONS = doctest.ELLIPSIS
site = runpy.run_path(str(ROOT / "scripts" / "site_hooks.py"))


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and the words after it, its text and where it begins."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int


def blocks_of(page: str) -> list[Block]:
    return [
        Block(m[1], tuple(m[2].split()), m[3], page.count("\n", 0, m.start(3)) + 1)
        for m in _FENCE.finditer(page)
    ]


def normalised(text: str) -> str:
    """`text` with one number, one unit of time and one id in the place of all, and no plurals."""
    text = _UNIT.sub("s", _NUMBER.sub("0", _ID.sub("0", text)))
    return re.sub(r" +", " ", _PLURAL.sub(r"\1", text))


def compare(expected: str, found: str, words: tuple[str, ...], where: str) -> None:
    """Fail with a diff unless `found` is what the page says."""
    found = "".join(f"{line.rstrip()}\n" for line in found.splitlines())
    if "measured" in words:
        expected, found = normalised(expected), normalised(found)
    if not doctest.OutputChecker().check_output(expected, found, _OPTIONS):
        diff = difflib.unified_diff(
            expected.splitlines(), found.splitlines(), "the page", "found", lineterm=""
        )
        pytest.fail(f"{where} prints something else:\n" + "\n".join(diff), pytrace=False)


def shorter(text: str) -> str:
    for old, new in SMALLER.items():
        text = text.replace(old, new)
    return text


class Page:
    """Runs the blocks of one page, in the current folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[str, Any] = {"__name__": path.stem}

    def run(self) -> None:
        blocks = blocks_of(self.path.read_text(encoding="utf-8"))
        for number, block in enumerate(blocks):
            where = f"{self.path.name}:{block.line}"
            after = blocks[number + 1 : number + 2]
            expected = after[0] if after and after[0].language == "text" else None
            if block.language == "python" and block.words[:1] in [(peer,) for peer in PEERS]:
                continue
            if block.language == "python":
                self._python(block, expected, where)
            elif block.language == "console":
                self._console(block, where)
            elif block.language in ("c", "js"):
                name = block.text.split()[1]
                Path(name).write_text(block.text, encoding="utf-8")
            else:
                assert block.language == "text", f"{where}: a block in {block.language!r}"

    def _python(self, block: Block, expected: Block | None, where: str) -> None:
        source = "\n" * (block.line - 1) + shorter(block.text)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                value = site["run_block"](source, self.names, str(self.path))
            if "picture" in block.words:
                html5lib.HTMLParser(strict=True).parseFragment(site["picture"](value))
        except tilewright.TilewrightError as error:
            text = f"{type(error).__name__}: {error}\n"
            if expected is None or text.partition(":")[0] not in expected.text:
                raise
            printed.write(text)
        if expected is not None:
            compare(expected.text, printed.getvalue(), expected.words, where)

    def _console(self, block: Block, where: str) -> None:
        for command, expected in commands(block.text):
            status, printed = run_command(shorter(command), where)
            refused = expected.startswith("tilewright: ")
            assert status == int(refused), f"{where}: status {status}\n{printed}"
            if expected:
                compare(expected, printed, block.words, where)


def run_command(command: str, where: str) -> tuple[int, str]:
    """The status of a command and what it printed.

    `tilewright` itself runs in this process, unless variables are set for it alone.
    """
    words = shlex.split(command)
    if words[0] == "tilewright":
        return run_tilewright(words)
    program = next(word for word in words if not _ASSIGNMENT.match(word))
    if shutil.which(program) is None:
        pytest.skip(f"{where}: there is no {program} on this machine")
    run = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return run.returncode, run.stdout


def run_tilewright(words: list[str]) -> tuple[int, str]:
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", words)
        command_line()
    return int(ended.value.code or 0), printed.getvalue()


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block with their output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = re.sub(r"\\\n", "", part).partition("\n")
        yield command, output


@pytest.fixture
def registry() -> Iterator[None]:
    """Leave no primitives, instructions, operators and processors of a page behind."""
    registries: list[dict[Any, Any]] = [PRIMITIVES, CPUS, *user_operators.TABLES]
    before = [dict(registry) for registry in registries]
    with forgotten():
        yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


def device_of(path: Path) -> AbstractContextManager[object]:
    """A GPU whose kernels the emulator runs, for the page that has one."""
    if path.stem != "cuda":
        return contextlib.nullcontext()
    try:
        nvcc()
    except tilewright.BuildError as error:
        pytest.skip(str(error))
    return emulated_device()


@pytest.fixture
def server_of_a_page() -> Iterator[str]:
    """The URL of an empty database on a server of its own, on which pages may make roles."""
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL on this machine")
    pytest.importorskip("psycopg")
    with server(programs) as url:
        yield url


def page_name(path: Path) -> str:
    return path.relative_to(DOCS).with_suffix("").as_posix()


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    "path", [path for path in PAGES if path.parent != REFERENCE], ids=page_name
)
def test_page_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if (
        path.stem in {"deploy", "deployment", "targets", "write_a_target"}
        and platform.machine() != "x86_64"
    ):
        pytest.skip("the page loads what it compiles for x86-64")
    if path.stem == "other_machines" and HOST in os.environ:
        pytest.skip("the page says what this machine lacks, and the variable leaves out more")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:.", prepend=":")
    for name, value in PLAIN.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if path.stem == "models":
        pytest.importorskip("onnx")
    if path.stem == "partitions":
        pytest.importorskip("onnxruntime")
    if path.stem == "share_a_server":
        monkeypatch.setenv(STATE, str(tmp_path / "state"))
        monkeypatch.setitem(SMALLER, SERVER, request.getfixturevalue("server_of_a_page"))
    if path.stem == "frameworks":
        pytest.importorskip("torch")
        warnings.simplefilter("ignore")  # of PyTorch, about itself
    with device_of(path):
        Page(path).run()


@pytest.mark.parametrize("peer", PEERS)
def test_code_of_a_peer_runs(peer: str) -> None:
    pytest.importorskip(peer)
    names: dict[str, Any] = {"__name__": peer}
    for path in PAGES:
        for block in blocks_of(path.read_text(encoding="utf-8")):
            if block.language == "python" and block.words == (peer,):
                source = "\n" * (block.line - 1) + block.text
                exec(compile(source, str(path), "exec"), names)
    assert peer in names


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_links_lead_somewhere(path: Path) -> None:
    found = _LINK.findall(_FENCE.sub("", path.read_text(encoding="utf-8")))
    assert found or path.parent == REFERENCE, "a page leads on to others"
    for target, anchor in found:
        page = (path.parent / target).resolve()
        assert page.exists() or page == DOCS / site["PRIMITIVES_PAGE"], target
        if anchor and page.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [slug(h) for h in headings], f"{target}#{anchor}"


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_index_names_every_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    names = [f"{page_name(p)}.md" for p in PAGES if p.parent != REFERENCE and p.stem != "index"]
    assert [name for name in names if f"]({name})" not in index] == []
    assert "](reference/index.md)" in index


def test_reference_of_the_primitives_is_fresh() -> None:
    render = runpy.run_path(str(ROOT / "scripts" / "reference.py"))["render"]
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    assert page == render(), "write it with .venv/bin/python scripts/reference.py"


def test_the_runner_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    for text in (
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nprint('1.5 ms')\n```\n\n```text measured\nfast\n```\n",
        "```console\n$ echo 1\n2\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ WORD=b printenv WORD\na\n```\n",
        "```python\nassert False\n```\n",
        "```ruby\n```\n",
    ):
        page.write_text(text, encoding="utf-8")
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            Page(page).run()
    page.write_text(
        "```python\nprint('1.5 ms of 1 call')\n```\n\n```text measured\n20 us of 3 calls\n```\n\n"
        "```python\nimport tilewright as tw\ntw.Target.parse('x')\n```\n\n"
        "```text\nTargetError: unknown target kind 'x'...\n```\n\n"
        "```console\n$ echo a\na\n```\n\n"
        '```console\n$ WORD="-a=b c" printenv WORD\n-a=b c\n```\n',
        encoding="utf-8",
    )
    Page(page).run()
