"""The examples compute what they say, and the demonstration runs."""

from __future__ import annotations

import importlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.autotune.session.events import Event, Trial
from tilewright.autotune.show.display import LiveDisplay
from tilewright.cli.program_file import Options, load_program
from tilewright.runtime.timer import Timing

Array = np.ndarray[Any, Any]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def conv2d(x: Array, w: Array, bias: Array) -> Array:
    p = w.shape[2] // 2
    padded = np.pad(x, [(0, 0), (0, 0), (p, p), (p, p)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    found = np.einsum("nchwyx,ocyx->nohw", windows, w) + bias[:, None, None]
    return np.asarray(np.maximum(found, 0))


EXAMPLES: dict[str, tuple[list[str], Callable[..., Array]]] = {
    "matmul": (["n=5", "m=20", "k=7"], lambda a, b: a @ b),
    "softmax": (["n=6", "m=33"], softmax),
    "conv2d": (["c=3", "o=4", "size=9", "kernel=5"], conv2d),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_computes_what_it_says(root: Path, name: str) -> None:
    parameters, expected = EXAMPLES[name]
    func = load_program(f"{root / 'examples' / name}.py:{name}", Options(parameters))
    module = tw.build(func)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(a.shape).astype("f4") for a in module.signature.arguments]
    module(*arrays)
    np.testing.assert_allclose(arrays[-1], expected(*arrays[:-1]), rtol=1e-4, atol=1e-5)


def test_every_example_is_tested(root: Path) -> None:
    written = {path.stem for path in (root / "examples").glob("*.py")}
    assert written == {*EXAMPLES, "demo"}


def test_the_examples_can_be_tuned_as_they_say(root: Path) -> None:
    for name in EXAMPLES:
        text = (root / "examples" / f"{name}.py").read_text()
        (command, *_) = re.findall(r"^tilewright tune (.*)$", text, re.MULTILINE)
        program, *options = command.split()
        parameters = [b for a, b in pairwise(options) if a == "-p"]
        assert isinstance(load_program(str(root / program), Options(parameters)), tw.Func)


def demo(root: Path) -> ModuleType:
    sys.path.insert(0, f"{root}/examples")
    try:
        return importlib.import_module("demo")
    finally:
        sys.path.remove(f"{root}/examples")


def test_an_interrupt_ends_the_demo(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = demo(root)

    class Interrupting(LiveDisplay):
        def __call__(self, event: Event) -> None:
            if isinstance(event, Trial):
                signal.raise_signal(signal.SIGINT)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it went on")

    monkeypatch.setattr("tilewright.autotune.show.progress.LiveDisplay", Interrupting)
    monkeypatch.setattr(module.subprocess, "run", never)
    options = ["--size", "48", "--trials", "400", "--database", str(tmp_path / "tuning.db")]
    assert module.main(options) == 130


def test_a_slow_kernel_of_the_demo_is_called_once(root: Path) -> None:
    module = demo(root)
    calls: list[str] = []
    rows = [
        module.Row(name, partial(calls.append, name), 0.0, seconds)
        for name, seconds in (("fast", 1e-3), ("slow", 2.0))
    ]
    fast, slow = module.timed(rows)
    assert slow.samples == (2.0,)
    assert len(fast.samples) == module.ROUNDS
    assert set(calls) == {"fast"}


def test_rows_of_the_demo_are_lines_of_80_columns(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = demo(root)
    seconds = {"as written": 123.4, "untuned build": 1.234e-3, "tuned": 1.234e-3, "numpy": 1e-7}
    rows = [module.Row(name, print, 1.23e-6, taken) for name, taken in seconds.items()]
    timings = [
        Timing((taken, taken * 1.01, taken * 0.99) * 5, 15, taken) for taken in seconds.values()
    ]
    module.show(rows, timings, flops=10**6)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [next(name for name in seconds if name in line) for line in lines[2:6]] == list(seconds)
    assert all(line.rstrip().endswith("1.2e-06") for line in lines[2:6])


def test_demo_runs_without_a_terminal(root: Path, tmp_path: Path) -> None:
    code = "import demo, tilewright.tests.short_sessions; raise SystemExit(demo.main())"
    code = f"import sys; sys.path.insert(0, {str(root / 'examples')!r}); {code}"
    command = [sys.executable, "-c", code, "--size", "48", "--trials", "2"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "all 2 trials are done" in done.stderr
    assert re.search(
        r"^numpy [\d.]+ takes [\d.]+ [mun]?s: the time to beat\nTuning", done.stdout, re.MULTILINE
    )
    assert "with 0 measurements, from schedule " in done.stdout
    rows = re.findall(
        r"^ ?(\S.*?)  +[\d.]+ [mun]?s +[\d.]+ +([\d.e+-]+) +"
        r"(?:([\d.e+-]+) to ([\d.e+-]+) +)?(\S+) *$",
        done.stdout,
        re.MULTILINE,
    )
    assert [name.split()[0] for name, *_ in rows] == ["as", "untuned", "tuned", "numpy"]
    assert [ratio for name, ratio, *_ in rows if name == "tuned"] == ["1"]
    for name, ratio, low, high, error in rows:
        assert float(error) < 1e-4
        assert name == "tuned" or float(low) <= float(ratio) <= float(high)
    with tw.TuningDatabase(tmp_path / "tuning.db", create=False) as db:
        assert len(db.measurements()) >= 2
