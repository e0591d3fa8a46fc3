"""The description of this machine: measured in a process of its own, kept, and used by choices."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.measure import machine
from tilewright.autotune.measure.machine import Again, Description, described, with_rates
from tilewright.autotune.model.cpu.estimate import FEATURES, Estimator
from tilewright.autotune.model.cpu.model import roofline
from tilewright.autotune.model.profile import profile
from tilewright.autotune.search.remembered import key
from tilewright.base.errors import ArtifactError, TargetError
from tilewright.codegen.cpu import bare_loops, llvm
from tilewright.codegen.cpu import machine as rates_of_cores
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.detect import resolve
from tilewright.codegen.generator import Measured
from tilewright.target import CPUS, CpuTarget, Rates
from tilewright.tuning_db import Environment, Machine, TuningDatabase

from ..refusals import refused

RATES = {"hertz": 3e9, "fma": 1.5, "memory": 7.0}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CpuTarget:
    """This machine, of which nothing is known in this process or in a cache of its own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWRIGHT_MACHINE", "")
    monkeypatch.setattr(machine, "_KNOWN", {})
    monkeypatch.setattr(machine, "_FAILED", set())
    return CpuTarget.of(resolve("cpu -threads=1"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The descriptions that are measured, the last first, in place of a real one."""
    answers: list[Any] = []

    def answer(*_: object) -> Description:
        odd, doubtful, age = answers.pop()
        created = datetime.now(UTC) - timedelta(minutes=age)
        return Description(Measured(RATES, odd, doubtful), created.isoformat())

    monkeypatch.setattr(machine, "_measured", answer)
    return answers


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_KNOWN", {})


def test_rates_of_this_machine_are_possible(here: CpuTarget) -> None:
    """Bounds that hold for any processor and however busy it is."""
    target, description = described(here)
    assert description is not None
    rates = CpuTarget.of(target).rates
    assert 5e8 < rates.hertz < 1e10
    assert 0.05 < rates.fma < 9
    assert 0.5 < rates.fma_latency < 60
    assert 0.05 < rates.loads < 9
    # Behind a cache of hundreds of MiB the latency of memory is not measured, and said to be so.
    known = not any("latency of memory" in odd for odd in description.measured.odd)
    assert (rates.l1_latency < rates.memory_latency) if known else rates.memory_latency == 0
    assert rates.memory < rates.loads * CpuTarget.of(target).vector_bits / 8 * 1.5
    assert all(value > 0 for value in description.measured.rates.values())


def test_it_is_measured_once_and_kept(
    here: CpuTarget, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.append(((), False, 0))
    first = described(here)
    forget(monkeypatch)
    assert described(here) == first
    assert CpuTarget.of(first[0]).rates == Rates.from_json(RATES)
    assert not asked


def test_threads_wait_for_one_measurement(here: CpuTarget, asked: list[Any]) -> None:
    asked.append(((), False, 0))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(described, [here] * 8))
    assert found == [found[0]] * 8


@pytest.mark.parametrize(
    ("doubtful", "age", "measured"), [(True, 60, True), (True, 1, False), (False, 60, False)]
)
def test_a_session_measures_again_what_was_disturbed_long_ago(
    here: CpuTarget, asked: list[Any], *, doubtful: bool, age: float, measured: bool
) -> None:
    asked += [((), False, 0), (("a load",), doubtful, age)]
    described(here)
    described(here)  # a build takes it as it is
    described(here, Again.IF_DOUBTFUL)
    assert (len(asked) == 0) is measured


def test_a_damaged_entry_is_measured_again(
    here: CpuTarget,
    asked: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked += [((), False, 0), ((), False, 0)]
    described(here)
    (entry,) = (tmp_path / "cache" / "machines").iterdir()
    entry.write_bytes(entry.read_bytes()[:-7])
    forget(monkeypatch)
    assert described(here)[1] is not None
    assert not asked
    assert "malformed" in caplog.text


def test_without_a_cache_only_sessions_measure(
    here: CpuTarget, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "")
    asked.append(((), False, 0))
    assert described(here) == (here, None)
    assert described(here, Again.IF_DOUBTFUL)[1] is not None
    assert described(here)[1] is not None
    assert not asked


def test_a_cache_that_keeps_nothing_is_none(
    here: CpuTarget, asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in its place")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file"))
    assert described(here) == (here, None)
    assert not asked


@pytest.mark.parametrize(
    "changed",
    [
        {"created": "yesterday"},
        {"created": 5},
        {"created": "2026-01-01T00:00:00"},
        {"odd": "noise"},
        {"odd": ["a\0b"]},
        {"rates": {"hertz": 1e300}},
        {"rates": {"hertz": 10**400}},
        {"rates": {"unknown": 1.0}},
        {"rates": [1.0]},
        {},
    ],
)
def test_a_forged_entry_is_measured_again(
    here: CpuTarget, asked: list[Any], monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    """Its digest is right. An entry of which nothing was changed is read."""
    asked += [((), False, 0), ((), False, 0)]
    _, first = described(here)
    assert first is not None
    cache, forged = machine._cache(), {**first.to_json(), **changed}
    assert cache is not None
    cache.put(machine._name(here), json.dumps(forged).encode())
    forget(monkeypatch)
    assert described(here)[1] is not None
    assert len(asked) == (0 if changed else 1)


@pytest.mark.parametrize(
    "rates", [{"hertz": 0.0}, {"hertz": -1.0}, {"fma": "2"}, {"fma": True}, {"unknown": 1.0}]
)
def test_impossible_rates_are_refused(here: CpuTarget, rates: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match="expected the rates of a processor"):
        CpuGenerator().described(here, rates)


def test_a_machine_that_cannot_be_measured_is_that_of_the_table(
    here: CpuTarget, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Description:
        raise TargetError("no")

    monkeypatch.setattr(machine, "_measured", fails)
    assert described(here) == (here, None)
    assert described(here) == (here, None)
    assert caplog.text.count("the table of processors is taken: no") == 1, "it tries once"
    with pytest.raises(TargetError, match="no"):
        described(here, Again.ALWAYS)


def test_other_processors_and_other_ways_are_not_measured(
    here: CpuTarget, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = resolve("cpu -mcpu=neoverse-n1")
    assert described(other) == (other, None)
    monkeypatch.setenv("TILEWRIGHT_MACHINE", "table")
    assert with_rates(here) is here
    monkeypatch.setenv("TILEWRIGHT_MACHINE", "tabel")
    with refused(TargetError, "TILEWRIGHT_MACHINE", "tabel", "measured or table"):
        described(here)
    assert not asked


@pytest.mark.usefixtures("here")
def test_builds_of_records_measure_nothing(asked: list[Any], tmp_path: Path) -> None:
    """`asked` is empty: whoever measures fails."""
    func = ops.add_relu_func(64)
    with TuningDatabase(tmp_path / "t.db") as db:
        with pytest.raises(tw.NotTunedError):
            tw.build(func, "cpu -threads=1", db, allow=["record"])
        with pytest.raises(IndexError):
            tw.build(func, "cpu -threads=1", db)


@pytest.mark.usefixtures("here")
def test_a_session_records_the_description_it_relies_on(asked: list[Any], tmp_path: Path) -> None:
    asked.append((("a quota",), False, 0))
    with TuningDatabase(tmp_path / "t.db") as db:
        tw.tune(ops.add_relu_func(64), "cpu -threads=1", database=db, trials=1)
        (found,) = db.records(Machine)
        (environment,) = db.records(Environment)
    assert environment.facts["machine"] == found.id
    assert (dict(found.rates), found.odd) == (RATES, ("a quota",))


def test_estimate_and_roofline_rest_on_the_rates() -> None:
    slow = CpuTarget.named("cascadelake", threads=1)
    fast = replace(slow, rates=slow.rates._replace(hertz=2 * slow.rates.hertz))
    func = ops.matmul_func(256, 256, 256)
    assert roofline(func, slow).compute == pytest.approx(2 * roofline(func, fast).compute)
    row = np.zeros((1, 0), dtype=np.int64)
    first, second = (Estimator(profile(func), t)(row) for t in (slow, fast))
    log = FEATURES.index("log_seconds")
    assert first.features[0, log] == pytest.approx(second.features[0, log] + 1, abs=1e-3)
    others = [n for n in range(len(FEATURES)) if n != log]
    np.testing.assert_allclose(first.features[0, others], second.features[0, others], rtol=1e-4)


def test_a_target_with_rates_reaches_another_process() -> None:
    rates = Rates.from_json(RATES)
    target = replace(CpuTarget.named("znver3", threads=2), rates=rates)
    told = json.loads(json.dumps(target.to_json()))
    assert CpuTarget.of(tw.Target.from_json(told)).rates == rates


def test_rates_of_a_row_are_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    row = CPUS["cascadelake"]._replace(rates=Rates(fma=1, hertz=3_000_000_000, l3_latency=0))
    monkeypatch.setitem(CPUS, "ours", row)
    target = CpuTarget.named("ours", threads=2)
    told = CpuTarget.of(tw.Target.from_json(json.loads(json.dumps(target.to_json()))))
    assert repr(told) == repr(target)
    assert key(ops.matmul_func(2, 2, 2), told, "model") == key(
        ops.matmul_func(2, 2, 2), target, "model"
    )


@pytest.mark.parametrize("rates", [{"l3": 0.0}, {"memory_latency": -1}, {"fma": "2"}])
def test_a_row_with_impossible_rates_is_refused(
    rates: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CPUS, "ours", CPUS["cascadelake"]._replace(rates=Rates(**rates)))
    with pytest.raises(
        TargetError, match=f"ours: its row has an impossible rate, {next(iter(rates))}"
    ):
        CpuTarget.parse("cpu -mcpu=ours")


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "sapphirerapids", "neoverse-n1"])
def test_the_loops_compile_for_any_processor(mcpu: str) -> None:
    target = CpuTarget.named(mcpu, threads=2)
    count = bare_loops.chains(target)
    loops = [
        bare_loops.clock(),
        bare_loops.sums("sums", target, count),
        bare_loops.shuffles(target, 8),
        bare_loops.gathers(target),
        bare_loops.chase(),
        bare_loops.reads(target, parallel=True),
        bare_loops.writes(target, parallel=False),
        bare_loops.forks(target),
    ]
    assert bare_loops.compiled({loop.name: loop for loop in loops}, target, ["reads"])


@pytest.mark.parametrize("threads", [1, 2, 64, 192])
@pytest.mark.parametrize("mcpu", [name for name in CPUS if name != "wasm32"])
def test_what_is_read_of_a_level_fits_it_and_none_before_it(mcpu: str, threads: int) -> None:
    target = CpuTarget.named(mcpu, threads=threads)
    sizes = rates_of_cores._sizes(target)
    assert sizes["l1"] <= target.l1_bytes // 2
    assert target.l1_bytes < sizes["l2"] <= target.l2_bytes
    assert target.l2_bytes < sizes["l3"]
    assert sizes["l3"] <= target.l3_bytes or not target.l3_bytes
    assert sizes.get("memory", 2 * target.l3_bytes) >= 2 * target.l3_bytes
    assert max(sizes.values()) <= rates_of_cores._MOST
    assert all(size % bare_loops.BLOCK == 0 for size in sizes.values())


@pytest.mark.parametrize(
    ("cache", "kept"),
    [(rates_of_cores._CHAIN, {"memory_latency"}), (480 << 20, {"memory", "memory_latency"})],
)
def test_of_a_large_cache_what_is_behind_it_is_not_claimed(cache: int, kept: set[str]) -> None:
    target = CpuTarget.of(resolve("cpu -threads=1"))
    known = target.rates._replace(memory=123.0, memory_latency=456.0)
    large = replace(target, l3_bytes=cache, rates=known)
    loops = rates_of_cores._loops(large)
    assert "l3 latency" in loops
    assert any("latency of memory" in odd for odd in rates_of_cores._limited(large))
    for loop in loops.values():
        loop.sample()
    found = rates_of_cores._rates(loops, large)
    same = {n for n in ("memory", "memory_latency") if getattr(found, n) == getattr(known, n)}
    assert same == kept


def test_rates_that_are_not_believed_are_named_in_words() -> None:
    usual = Rates(**dict.fromkeys(Rates._fields, 1.0))
    usual = usual._replace(fork=2e-6)
    strange = dict(rates_of_cores._strange(usual._replace(fork=476e-6, l3=0.1), usual))
    assert strange == {
        "fork": "the start and end of a parallel loop: measured 476 us; "
        "the model uses the usual 2 us",
        "l3": "bytes in a cycle from the third cache: measured 0.1; the model uses the usual 1",
    }
    assert set(rates_of_cores._MEANING) == set(Rates._fields)


def test_sums_stay_in_registers() -> None:
    """With spills, they would be as slow as the stack."""
    for mcpu in ("x86-64-v3", "skylake-avx512"):
        target = CpuTarget.named(mcpu, threads=1)
        loop = bare_loops.sums("sums", target, bare_loops.chains(target))
        text = llvm.assembly(llvm.parse(bare_loops.module_text({"sums": loop}, target)), target)
        assert "rsp" not in text, mcpu
        assert text.count("vfmadd") == bare_loops.chains(target)


def test_what_is_odd_is_a_warning(
    here: CpuTarget, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more threads than processors, this is the case on any machine."""
    monkeypatch.setattr(machine, "_KNOWN", {})
    many = replace(here, threads=2 * here.cores + 64)
    with caplog.at_level(logging.WARNING):
        description = machine._measured(many)
    assert any("threads" in text for text in description.measured.odd)
    assert "the measured rates of this machine, which predictions" in caplog.text
    assert "`tilewright target --measure` measures them again" in caplog.text
