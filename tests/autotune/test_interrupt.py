"""Requests to stop: which are noted, what they do at last, and whose handlers are left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from tilewright.autotune.session.interrupts import Interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    """The handlers of a program that has none of its own."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


def test_an_interrupt_is_noted_and_the_handlers_are_restored() -> None:
    before = handlers()
    with Interrupts() as interrupts:
        assert not set(map(str, before)) & set(map(str, handlers()))
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert handlers() == before


def test_an_interrupt_that_nobody_looked_for_is_raised_in_the_end() -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
    assert handlers() == before


def test_the_second_interrupt_is_raised_where_the_program_is() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one was held back")


def own(number: int, frame: FrameType | None) -> None:
    """A handler of the program."""


def test_handlers_of_the_program_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in SIGNALS:
        signal.signal(number, own)
    with Interrupts() as interrupts:
        assert handlers() == [own, own, own]
        signal.raise_signal(signal.SIGTERM)
        interrupts.check()
    assert handlers() == [own, own, own]


def test_ignored_signals_stay_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGHUP)
        interrupts.check()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_handler_that_was_installed_meanwhile_stays() -> None:
    with Interrupts():
        signal.signal(signal.SIGTERM, own)
    assert signal.getsignal(signal.SIGTERM) is own


def test_other_threads_install_nothing() -> None:
    before, seen = handlers(), list[object]()

    def enter() -> None:
        with Interrupts() as interrupts:
            interrupts.check()
            seen.extend(handlers())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == before


CHILD = """
import signal, sys
from tilewright.autotune.session.interrupts import Interrupts
with Interrupts() as interrupts:
    for name in sys.argv[1:]:
        signal.raise_signal(getattr(signal, name))
        print(name, flush=True)
    try:
        interrupts.check()
    except KeyboardInterrupt:
        print("cleaned up", flush=True)
print("went on", flush=True)
"""


@pytest.mark.parametrize(
    ("names", "status", "said"),
    [
        (["SIGTERM"], -signal.SIGTERM, "SIGTERM cleaned up"),
        (["SIGHUP"], -signal.SIGHUP, "SIGHUP cleaned up"),
        (["SIGINT"], 0, "SIGINT cleaned up went on"),
        (["SIGTERM", "SIGTERM"], -signal.SIGTERM, "SIGTERM"),
        (["SIGINT", "SIGTERM"], -signal.SIGTERM, "SIGINT"),
        (["SIGHUP", "SIGTERM"], -signal.SIGTERM, "SIGHUP"),
        (["SIGTERM", "SIGINT"], -signal.SIGTERM, "SIGTERM"),
    ],
)
def test_signals_that_end_a_process_end_it(names: list[str], status: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *names],
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == status
    assert done.stdout.split() == said.split()
