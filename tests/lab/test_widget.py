"""The kernel's side of the lab's widget, without a page."""

from __future__ import annotations

import importlib
import pydoc
import sys
import threading
import time
from types import ModuleType
from typing import Any

import html5lib
import pytest

import tilewright as tw
from tilewright.base.errors import TilewrightError
from tilewright.lab.front.widget import Lab
from tilewright.lab.workbench.workbench import Workbench


@pytest.fixture
def lab() -> Lab:
    return tw.lab(tw.ops.matmul_func(64, 48, 32))


def answers(lab: Lab, monkeypatch: pytest.MonkeyPatch, *commands: object) -> list[Any]:
    """What the page is sent for these commands."""
    sent: list[Any] = []
    monkeypatch.setattr(lab, "send", sent.append)
    for number, command in enumerate(commands):
        lab._receive(lab, {"id": number, "command": command}, [])
    lab.close()
    until = time.monotonic() + 60
    while len(sent) < len(commands) and time.monotonic() < until:
        time.sleep(0.01)
    return sent


def test_commands_change_the_state(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    (loop, *_) = [n["id"] for n in lab.state["tree"]["nodes"]]
    step = {"do": "apply", "op": "parallel", "args": {"loop": loop}}
    (first, second) = answers(lab, monkeypatch, step, {"do": "fly"})
    assert (first["id"], first["answer"]["ok"]) == (0, True)
    assert second["answer"]["error"]["text"] == "there is no command 'fly'"
    assert lab.state["version"] == "v1"
    assert "T.parallel(64)" in str(lab.schedule)


def test_what_is_no_command_is_answered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(lab, monkeypatch, None, 3, {}, {"do": ["moves"]})
    assert [a["answer"]["ok"] for a in found] == [False] * 4
    lab._receive(lab, "no message", [])


def test_cancel_does_not_wait_for_other_commands(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(lab, "send", sent.append)
    with lab.bench.measurements.quiet:  # as while a candidate is timed
        lab._receive(lab, {"id": 0, "command": {"do": "tree"}}, [])
        lab._receive(lab, {"id": 1, "command": {"do": "cancel"}}, [])
        assert [(a["id"], a["answer"]["error"]["text"]) for a in sent] == [(1, "no run goes on")]
    until = time.monotonic() + 60
    while len(sent) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert sent[1]["answer"]["ok"]
    lab.close()


@pytest.mark.parametrize(
    "state", [{}, {"revision": "x"}, {"revision": None}, {"revision": 1e99}, [], None]
)
def test_the_page_cannot_change_the_state(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, state: object
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(lab.comm, "send", lambda data, **_: sent.append(data))
    before = lab.state
    update = {"method": "update", "state": {"state": state, "tooltip": "a"}, "buffer_paths": []}
    lab._handle_msg({"content": {"data": update}, "buffers": []})
    assert lab.state is before
    assert lab.tooltip == "a"
    assert sent[-1]["state"] == {"state": before}
    loop = next(n["id"] for n in before["tree"]["nodes"])
    step = {"do": "apply", "op": "parallel", "args": {"loop": loop}}
    assert [a["answer"]["ok"] for a in answers(lab, monkeypatch, step)] == [True]
    assert lab.state["version"] == "v1"


def test_defects_are_shown(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Workbench, command: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Workbench, "do", broken)
    (found,) = answers(lab, monkeypatch, {"do": "undo"})
    assert found["answer"]["error"]["text"] == "ZeroDivisionError('a defect')"
    assert "in broken" in found["answer"]["error"]["trace"]


def test_closing_ends_the_threads(lab: Lab) -> None:
    ours = [t for t in threading.enumerate() if t.name.startswith("tilewright-lab")]
    lab.close()
    ours[-1].join(60)
    assert not ours[-1].is_alive()


def test_without_widgets_the_program_is_shown(lab: Lab) -> None:
    data, _ = lab._repr_mimebundle_()
    assert data["text/plain"] == repr(lab)
    assert repr(lab).startswith("the lab of matmul on cpu")
    assert repr(lab).endswith("at v0: as written")
    html5lib.HTMLParser(strict=True).parseFragment(data["text/html"])
    assert "matmul" in data["text/html"]


def test_the_name_of_the_package_is_a_function() -> None:
    importlib.import_module("tilewright.lab.plot")
    assert not isinstance(tw.lab, ModuleType)
    assert importlib.import_module("tilewright.lab").lab == tw.lab
    shown = pydoc.plain(pydoc.render_doc(tw.lab))
    assert "function lab in module tilewright.lab" in shown
    assert "Open the lab for a program" in shown
    assert 'tw.lab(func, "cpu -threads=2", tw.TuningDatabase("tuning.db"))' in shown
    assert "\nlab(func: 'Func | Schedule', target: 'Target | str' = 'cpu', database: " in shown
    with pytest.raises(TilewrightError, match="did you mean database"):
        tw.lab(tw.ops.matmul_func(8, 8, 8), databse=None)  # type: ignore[call-arg]


def test_without_anywidget_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tilewright.lab.front.widget", None)
    with pytest.raises(TilewrightError, match=r"pip install 'tilewright\[notebook\]'"):
        tw.lab(tw.ops.matmul_func(8, 8, 8))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((tw.ops.matmul_func,), r"expected a program .*\n  hint: call the function that makes"),
        (
            (tw.ops.matmul_func(8, 8, 8), "cpu", 3),
            r"database: .*, found 3\n  hint: write database=",
        ),
        ((tw.ops.matmul_func(8, 8, 8), "gpu"), "gpu"),
    ],
    ids=["function", "database", "target"],
)
def test_what_is_no_program_or_database_is_named(arguments: Any, says: str) -> None:
    with pytest.raises(TilewrightError, match=says):
        tw.lab(*arguments)
