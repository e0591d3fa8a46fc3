"""Finding OpenMP's runtime."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from tilewright.runtime import openmp


@pytest.fixture
def fresh() -> Iterator[None]:
    openmp.load.cache_clear()
    yield
    openmp.load.cache_clear()


def test_a_runtime_that_loads_has_its_functions(fresh: None) -> None:
    found = openmp.load()
    assert found is not None, "the cost model's package carries a libgomp"
    assert Path(found.path).is_file()
    threads = ctypes.CFUNCTYPE(ctypes.c_int)(found.symbol_address("omp_get_max_threads"))()
    assert threads >= 1
    assert found.symbol_address(openmp.ENTRY) != 0
    with pytest.raises(AttributeError):
        found.symbol_address("no_such_function")


def test_its_symbols_are_visible_to_what_is_loaded_later(fresh: None) -> None:
    assert openmp.load() is not None
    assert hasattr(ctypes.CDLL(None), openmp.ENTRY)


def test_a_carried_runtime_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "carrier.libs" / "libgomp-1234.so.1.0.0"
    library.parent.mkdir()
    library.write_bytes(b"")
    info = tmp_path / "carrier-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
    names = [
        "carrier/__init__.py",
        "carrier.libs/libgomp-1234.so.1.0.0",
        "carrier.libs/libgomp-gone.so",
    ]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    monkeypatch.syspath_prepend(str(tmp_path))
    invalidate_caches()
    assert list(openmp.carried("carrier")) == [str(library)]
    assert list(openmp.carried("no-such-package")) == []


def test_the_first_that_is_a_runtime_is_taken(tmp_path: Path, fresh: None) -> None:
    good = openmp.load()
    assert good is not None
    damaged = tmp_path / "libgomp.so.1"
    damaged.write_bytes(b"not a library")
    other = "libc.so.6"  # a library, and no OpenMP runtime
    found = openmp.first_usable(iter([str(damaged), other, good.path]))
    assert found is not None
    assert found.path == good.path
    assert openmp.first_usable(iter([str(damaged), other])) is None


def test_none_is_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fresh: None
) -> None:
    monkeypatch.setattr(openmp, "candidates", lambda: iter(()))
    with caplog.at_level(logging.WARNING):
        assert openmp.load() is None
        assert openmp.load() is None
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["no OpenMP runtime"]


@pytest.mark.skipif(
    "libgomp" not in getattr(openmp.load(), "path", ""), reason="no libgomp is loaded here"
)
@pytest.mark.parametrize(
    ("variables", "spins"),
    [
        ({}, openmp.SPINS),
        ({"GOMP_SPINCOUNT": "7"}, 7),
        ({"OMP_WAIT_POLICY": "passive"}, 0),
    ],
)
def test_waiting_threads_spin_briefly_unless_the_environment_says_otherwise(
    variables: dict[str, str], spins: int
) -> None:
    code = (
        "import os; from tilewright.runtime import openmp; openmp.load(); "
        "print(*(name for name in openmp.WAITING if name in os.environ))"
    )
    inherited = {k: v for k, v in os.environ.items() if k not in openmp.WAITING}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **variables, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr
    assert done.stdout.split() == list(variables)
