"""A kind of target that is added from outside: named, built for, called, timed and measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.autotune.measure.measure_result import BuildRequest, MeasureConfig
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.records import environment_record, target_record, toolchain_record
from tilewright.autotune.rules import plans
from tilewright.autotune.rules.draft import Draft
from tilewright.codegen.build import compile_func
from tilewright.codegen.cache import KernelCache, key
from tilewright.codegen.detect import resolve
from tilewright.codegen.generator import generator_for, outside_modules, register_generator
from tilewright.errors import TargetError
from tilewright.target import CpuTarget, Target, register_kind, registered_kinds
from tilewright.tir.ir import Func
from tilewright.tuning_db.values import Outcome

from .toy_target import ToyGenerator, ToyTarget

N = 6


@pytest.fixture
def program() -> Func:
    a = te.placeholder((N,), "float32", name="A")
    return te.func([a, te.compute((N,), lambda i: a[i] * 2.0 + 1.0, name="B")], name="affine")


@pytest.mark.parametrize("text", ["toy", "toy -order=forward", "toy -order=shuffled"])
def test_its_text_reads_back(text: str) -> None:
    target = Target.parse(text)
    assert isinstance(target, ToyTarget)
    assert str(target) == text
    assert Target.parse(str(target)) == target
    assert target.resolved is (text != "toy")
    assert resolve(target).resolved


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("toys", ["'toys'", "known: cpu, toy", "did you mean toy?"]),
        ("toy -mcpu=haswell", ["'-mcpu=haswell'", "known: -order="]),
        ("toy -order=backward", ["-order=backward", "shuffled"]),
    ],
)
def test_a_wrong_text_says_what_is_known(text: str, words: list[str]) -> None:
    with pytest.raises(TargetError) as error:
        Target.parse(text)
    for word in words:
        assert word in str(error.value)


def test_a_kind_has_one_record_and_one_generator() -> None:
    assert set(registered_kinds()) >= {"cpu", "toy"}
    register_kind(ToyTarget)
    with pytest.raises(TargetError, match="a kind of target 'toy' already"):
        register_kind(type("Other", (ToyTarget,), {}))
    with pytest.raises(TargetError, match="'toy' have a code generator already"):
        register_generator("toy", type("Other", (ToyGenerator,), {}))
    with pytest.raises(TargetError, match="no code generator for targets of kind 'abacus'"):
        generator_for(type("Abacus", (ToyTarget,), {"kind": "abacus"})())


def test_facts_of_one_kind_are_not_asked_of_another() -> None:
    assert ToyTarget.of(Target.parse("toy")) == ToyTarget.parse("toy")
    with pytest.raises(TargetError, match="expected a target of kind cpu, found toy"):
        CpuTarget.parse("toy")


@pytest.mark.parametrize("text", ["toy", "toy -order=shuffled"])
def test_a_schedule_is_built_called_and_timed(text: str, program: Func) -> None:
    schedule = tw.Schedule(program)
    schedule.split(schedule.get_loops(schedule.get_block("B"))[0], [None, 4])
    module = tw.build(schedule, text)
    a, b = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    module(a, b)
    np.testing.assert_array_equal(b, a * 2 + 1)
    assert module.time(a, b, budget_seconds=0.01).samples
    assert "def affine(" in module.source("script")
    assert module.target == resolve(text)
    with pytest.raises(tw.ArgumentError):
        module(a[:-1], b)


def test_its_code_is_kept_on_disk(program: Func, tmp_path: Path) -> None:
    target = resolve("toy")
    kernels, name = KernelCache(tmp_path / "kernels"), key(program, target, strict_fp=False)
    compiled = compile_func(program, target)
    kernels.put(name, compiled)
    again = kernels.get(name, program, target)
    assert again is not None
    assert (again.image, again.launches) == (compiled.image, compiled.launches)
    assert again.source("script") == compiled.source("script")
    assert name != key(program, resolve("toy -order=shuffled"), strict_fp=False)


def test_its_kernels_become_files(program: Func, tmp_path: Path) -> None:
    made = tw.build_library(tw.Schedule(program), tmp_path / "affine.toy", "toy")
    assert made.files == (tmp_path / "affine.toy",)
    assert made.files[0].read_bytes() == compile_func(program, "toy").image


def test_its_measurements_are_records_of_their_own() -> None:
    target = resolve("toy")
    record = target_record(target)
    assert (record.text, record.compat, record.perf) == ("toy -order=forward", "toy", "toy/forward")
    assert toolchain_record(target).generation == "toy 1"
    assert toolchain_record(target).versions["toy"] == "1.0"
    assert environment_record(target).facts["model"] == "interpreter"


def test_without_rules_a_program_has_no_sketches(program: Func) -> None:
    with pytest.raises(TargetError, match="no sketch rules for targets of kind 'toy'"):
        next(plans(Draft(tw.Schedule(program), resolve("toy"))))


def test_builders_and_the_runner_take_candidates(program: Func) -> None:
    """The processes import the module that registers the kind."""
    target = resolve("toy")
    assert outside_modules(target) == (ToyTarget.__module__,)
    assert outside_modules(resolve("cpu")) == ()
    schedule = tw.Schedule(program)
    schedule.split(schedule.get_loops(schedule.get_block("B"))[0], [None, 4])
    config = MeasureConfig(builders=1, min_samples=1, max_samples=2)
    with Measurer(program, target, config) as measurer:
        requests = [BuildRequest.of(s.trace) for s in (tw.Schedule(program), schedule)]
        measured = list(measurer.measure(requests, None))
        kernels = [m.kernel for m in measured if m.kernel is not None]
        interleaved = measurer.interleave(kernels, 2)
    assert [m.outcome for m in measured] == [Outcome.OK, Outcome.OK]
    assert measured[0].check is not None
    assert measured[0].check.passed
    assert interleaved is not None
    assert [len(samples) for samples in interleaved] == [2, 2]
