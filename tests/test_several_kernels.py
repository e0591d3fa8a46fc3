"""Programs that are built as several kernels: called, tuned, looked up and shipped as others."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.autotune.records import target_record, workload_record
from tilewright.autotune.rules.division import pieces_of
from tilewright.codegen.build import compiled_signature
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.runtime.signature import Signature
from tilewright.tir.ir import Func

from .layers import LAYERS, arguments, interpreted
from .refusals import refused

SERIAL = "cpu -threads=1"
QUICK = TuneConfig(measure=MeasureConfig(builders=1, min_samples=5, max_samples=5))


@pytest.fixture(scope="module", autouse=True)
def compile_once(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What is compiled here is the same in most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCATION, str(tmp_path_factory.mktemp("cache")))
        yield


def built(name: str, target: str = SERIAL) -> tw.Module:
    return tw.build(LAYERS[name](), target, allow=("default",))


def is_right(module: tw.Module, func: Func) -> bool:
    """Whether a call leaves what the interpreter leaves; constants are packed first."""
    given = arguments(func)
    wanted = interpreted(func, given)
    packed = with_packed(module, given)
    module(*packed)
    return all(
        np.allclose(a, b, rtol=1e-4, atol=1e-4)
        for argument, a, b in zip(module.signature.arguments, packed, wanted, strict=True)
        if argument.written
    )


def with_packed(module: tw.Module, given: list[Any]) -> list[Any]:
    """The arguments with constants in the form that the module takes."""
    names = [a.name for a in module.signature.arguments]
    return [
        module.pack(n, a) if n in module.layouts else a for n, a in zip(names, given, strict=True)
    ]


@pytest.mark.parametrize(
    "name",
    ["inplace", "softmax_between", "one_weight", "scalar"],
)
def test_a_module_computes_what_its_program_does(name: str) -> None:
    module, func = built(name), LAYERS[name]()
    kernels = len(pieces_of(func, module.target))
    assert module.origin.detail == f"{kernels} kernels: {kernels} default"
    assert is_right(module, func)


def test_its_kernels_are_those_of_their_programs() -> None:
    """Their code is the same as when each is built alone; a program of one kernel is that."""
    func, module = LAYERS["softmax_between"](), built("softmax_between")
    kernels = tw.kernels(func, SERIAL)
    assert [*kernels] == [f"softmax_between_{n}" for n in range(3)]
    for program in kernels.values():
        assert tw.build(program, SERIAL, allow=("default",)).source("tir") in module.source("tir")
        assert tw.kernels(program, SERIAL) == {program.name: program}
    with pytest.raises(tw.BuildError):
        tw.kernels(tw.Schedule(func), SERIAL)  # type: ignore[arg-type]


def test_kernels_that_run_in_parallel() -> None:
    assert is_right(built("two_layers", "cpu -threads=2"), LAYERS["two_layers"]())


def test_the_signature_is_that_of_one_kernel() -> None:
    func, module = LAYERS["known_ahead"](), built("known_ahead")
    whole = compiled_signature(func, module.target)

    def plain(signature: Signature) -> list[Any]:
        own = [a if a.packing is None else a.packing.operand for a in signature.arguments]
        return [(a.name, a.dtype, a.shape, a.role, a.kind, a.strides) for a in own]

    assert plain(module.signature) == plain(whole)
    assert [*module.layouts] == ["W"]
    assert is_right(module, func)


def test_what_is_between_kernels_is_in_the_workspace() -> None:
    """Values that do not live at the same time share it: of three layers, two are alive."""
    func, module = LAYERS["three_layers"](), built("three_layers")
    between = [p.operands[-1] for p in pieces_of(func, module.target)][:-1]
    sizes = [4 * 20 * 32 for _ in between]
    assert sum(sizes) <= module.workspace_bytes < 2 * sum(sizes)
    given = arguments(func)
    module(*given, workspace=module.workspace())
    assert np.allclose(given[-1], interpreted(func, arguments(func))[-1], rtol=1e-4, atol=1e-4)


def test_threads_call_one_module() -> None:
    func, module = LAYERS["two_layers"](), built("two_layers")

    def run(seed: int) -> bool:
        given = with_packed(module, arguments(func, seed))
        for _ in range(50):
            module(*given)
        return np.allclose(given[-1], wanted[seed], rtol=1e-4, atol=1e-4)

    wanted = [interpreted(func, arguments(func, seed))[-1] for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(8)))


def test_the_code_of_all_kernels_is_shown() -> None:
    module = built("two_layers")
    assert all(f"\n{n}:" in module.source("asm") for n in ("mlp", "mlp_0", "mlp_1"))
    assert all(f"def {n}(" in module.source("tir") for n in ("mlp_0", "mlp_1"))


def test_several_programs_are_built_at_once() -> None:
    names = ("two_layers", "several_outputs")
    funcs = [LAYERS[name]() for name in names]
    modules = tw.build_all(funcs, SERIAL, allow=("default",))
    for func, module, name in zip(funcs, modules, names, strict=True):
        assert is_right(module, func)
        assert module.source("llvm") == built(name).source("llvm")


@pytest.mark.parametrize("target", [SERIAL, "cpu -threads=2"])
def test_a_library_is_loaded_and_called(target: str, tmp_path: Path) -> None:
    func = LAYERS["two_layers"]()
    made = tw.build_library(func, tmp_path / "mlp.so", target, allow=("default",))
    loaded = tw.load(made.files[0])
    assert isinstance(loaded, tw.Module)
    assert is_right(loaded, func)
    manifest = json.loads((tmp_path / "mlp.so.json").read_text())
    stored = manifest["programs"][0]["provenance"]["schedules"]
    assert [*stored] == ["mlp_0", "mlp_1"]


def test_a_name_that_no_kernel_can_have() -> None:
    with refused(tw.BuildError, "memcpy"):
        tw.build(replace(LAYERS["two_layers"](), name="memcpy"), SERIAL, allow=("default",))


def test_kernels_without_a_permitted_schedule_are_listed(tmp_path: Path) -> None:
    database = tw.TuningDatabase(tmp_path / "t.db")
    with pytest.raises(tw.NotTunedError) as caught:
        tw.build(LAYERS["two_layers"](), SERIAL, database, allow=("record",))
    assert caught.value.data["kernels"] == ["mlp_0", "mlp_1"]


def test_kernels_are_tuned_and_their_records_are_built(tmp_path: Path) -> None:
    func, database = LAYERS["two_layers"](), tw.TuningDatabase(tmp_path / "t.db")

    def origin(program: Func = func) -> str:
        return str(tw.build(program, SERIAL, database, allow=("record",)).origin)

    options: Any = {"database": database, "config": QUICK, "progress": False}
    result = tw.tune(func, SERIAL, trials=4, seed=0, **options)
    assert [*result.kernels] == ["mlp_0", "mlp_1"]
    assert result.trials == sum(r.trials for r in result.kernels.values()) == 4
    best = [r.best for r in result.kernels.values()]
    assert result.call_seconds == sum(b.seconds for b in best if b is not None)
    assert all(name in str(result) for name in result.kernels)
    assert "built as 2 kernels: 2 record" in str(tw.explain(func, SERIAL, database))
    assert origin() == "record: 2 kernels: 2 record"
    assert is_right(tw.build(func, SERIAL, database), func)
    assert "measured" in origin(pieces_of(func, resolve(SERIAL))[0].func)

    # A record of the whole is built where it is not slower, or pinned.
    schedule = tw.Schedule(func)
    schedule.parallel(schedule.get_loops(schedule.get_block("M0"))[0])
    whole = tw.tune(schedule, SERIAL, trials=1, **options)
    assert whole.best is not None
    assert ("2 kernels" in origin()) is (result.call_seconds < whole.best.seconds)
    target = target_record(resolve(SERIAL))
    database.pin(workload_record(func).id, target, whole.best.schedule_id)
    assert "pinned" in origin()


def test_kernels_that_are_equal_but_for_their_names_are_tuned_once(tmp_path: Path) -> None:
    func = LAYERS["one_weight"]()
    models: Any = SimpleNamespace(kernels=lambda: {func: 1, replace(func, name="other"): 2})
    options: Any = {"database": tmp_path / "t.db", "config": QUICK, "progress": False}
    found = tw.tune(models, SERIAL, trials=2, **options)
    assert len(found) == 2
    assert found[0] is found[1]
    assert found[0].trials == 2
