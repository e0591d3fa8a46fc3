"""The command that asks a device and compute-sanitizer, on a device that the emulator runs."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tilewright.base.errors import BuildError
from tilewright.codegen.cuda.emulate_faults import Fault
from tilewright.codegen.cuda.nvcc import nvcc

from . import on_device
from .emulated import emulated_device


@pytest.fixture
def faults() -> Iterator[list[Fault]]:
    try:
        nvcc()
    except BuildError as error:
        pytest.skip(str(error))
    with emulated_device() as found:
        yield found


@pytest.mark.parametrize("name", ["matmul of bfloat16", "sum in two launches", "conv"])
def test_schedules_are_right(
    name: str, faults: list[Fault], capsys: pytest.CaptureFixture[str]
) -> None:
    assert on_device.main(["--only", name]) == 0
    assert capsys.readouterr().out == f"{name}: right\n"
    assert not faults


def test_wrong_results_are_told(faults: list[Fault], capsys: pytest.CaptureFixture[str]) -> None:
    name = "transpose of int8"
    with patch.object(on_device, "interpret", lambda _, a, b: b.fill(int(a[0, 0]) + 1)):
        assert on_device.main(["--only", name]) == 1
    assert capsys.readouterr().out.startswith(f"{name}: Y[0, 0] is ")
    assert not faults


@pytest.mark.parametrize(("found", "status"), [(True, 0), (False, 1)])
def test_the_sanitizer_has_to_agree_with_the_emulator(
    found: bool, status: int, faults: list[Fault], capsys: pytest.CaptureFixture[str]
) -> None:
    """`found` says whether it finds the races that are planted."""
    asked = list[tuple[int | None, str]]()

    def sanitized(name: str, without: int | None, tool: str) -> bool:
        asked.append((without, tool))
        assert name == "transpose"
        return without is not None and found

    with patch.object(on_device, "sanitized", sanitized):
        assert on_device.main(["--only", "transpose", "--sanitizer"]) == status
    assert (0, "racecheck") in asked
    assert [tool for without, tool in asked if without is None] == [
        "memcheck", "initcheck", "racecheck", "synccheck",
    ]  # fmt: skip
    assert ("disagree" in capsys.readouterr().out) is not found
    assert not faults
