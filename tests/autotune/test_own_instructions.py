"""Instructions that are added from outside: one row each, from rules to machine code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import Target, ops
from tilewright.autotune.model.cpu.estimate import Estimator
from tilewright.autotune.model.cpu.model import roofline
from tilewright.autotune.model.profile import profile
from tilewright.autotune.search import remembered
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.autotune.tasks import prepared_sketches, tasks
from tilewright.base.errors import BuildError, IRError
from tilewright.codegen import cache
from tilewright.codegen.build import compile_func
from tilewright.codegen.cpu import checked_code
from tilewright.codegen.cpu.checked_code import check_code
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.detect import resolve
from tilewright.schedule import Trace
from tilewright.target import CpuTarget
from tilewright.tir import te
from tilewright.tir.cpu_instructions import AMX, product
from tilewright.tir.instruction import Cost, Instruction, Product, Unit
from tilewright.tir.instruction_set import TABLES, find_instruction
from tilewright.tir.ir import Func

from ..emulator import Call, emulated
from ..emulator import run as run_emulated
from ..hosts import runs
from ..instruction_sets import forgotten
from ..refusals import refused
from .checking import arguments, expected, planned, run

ARM = Target.parse("cpu -mcpu=neoverse-n1 -threads=1")
OLD_ARM = Target.parse("cpu -mcpu=neoverse-n1 -mattr=-dotprod -threads=1")
GRANITE = Target.parse("cpu -mcpu=graniterapids -threads=1")
SDOT, TDP = "dot_4x4_sdot", "matmul_f16_amx"


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    with forgotten():
        yield


def sdot(cycles: float = 0.5) -> Instruction:
    """ARM's products of four int8 each, added to four int32."""
    return tw.register_intrin(
        SDOT,
        *product(SDOT, Product("int32", "int8", "int8", rows=1, columns=4, depth=1, group=4)),
        requires=(("dotprod",),),
        cost=Cost(cycles, latency=3.0),
        code="llvm.aarch64.neon.sdot.v4i32.v16i8",
    )


def float16_tiles() -> Instruction:
    """AMX's products of tiles of float16, of which Granite Rapids is the first to have any."""
    return tw.register_intrin(
        TDP,
        *product(TDP, Product("float32", "float16", "float16", 16, 16, 16, 2)),
        unit=AMX,
        requires=(("amx-fp16",),),
        cost=Cost(cycles=16.0, latency=52.0, run_loads=6.0),
        code="llvm.x86.tdpfp16ps.internal",
        init="zero_float32_amx",
        write="copy_float32_amx",
    )


def int8_matmul() -> Func:
    return ops.matmul_func(12, 20, 24, "int8")


def float16_matmul() -> Func:
    a, b = (
        te.placeholder((40, 64), "float16", name="A"),
        te.placeholder((64, 48), "float16", name="B"),
    )
    k = te.reduce_axis(64, name="k")
    c = te.compute(
        (40, 48),
        lambda i, j: te.sum(te.cast(a[i, k], "float32") * te.cast(b[k, j], "float32"), axis=k),
        name="C",
    )
    return te.func([a, b, c], name="matmul")


def made(sketch: Sketch, func: Func, count: int = 2) -> list[Func]:
    """The first rows of a sketch, scheduled by traces as text."""
    rows = Rowspace(sketch).sample(np.random.default_rng(0), count)
    assert len(rows)
    texts = [sketch.trace.with_row(row.tolist()).to_json() for row in rows]
    return [Trace.from_json(text).apply(func).func for text in texts]


def seconds(sketch: Sketch, target: Target) -> float:
    read = profile(sketch.func, sketch.space.bounds)
    rows = Rowspace(sketch).sample(np.random.default_rng(0), 20)
    return float(Estimator(read, target)(rows).seconds.min())


@emulated
def test_a_vector_instruction(tmp_path: Path) -> None:
    """ARM's `sdot`: rules find it, the estimate and the roofline read its cost, code has it."""
    func = int8_matmul()
    before, others, least = planned(func, ARM), planned(func, OLD_ARM), roofline(func, ARM)
    assert not any("dot" in name for name in before)
    sdot()
    after = planned(func, ARM)
    rest = [name for name in after if SDOT not in name]
    assert rest == before[: len(rest)]
    assert len(rest) < len(after)
    assert planned(func, OLD_ARM) == others
    assert roofline(func, ARM).compute < least.compute
    first, *_, last = sketches(func, ARM)
    assert (first.name, dict(first.choices[0].options)["instruction"]) == (f"{SDOT}_packA", SDOT)
    assert first.modules == (__name__,)
    assert seconds(first, ARM) < seconds(last, ARM)
    scheduled = made(first, func)
    compiled = [compile_func(f, ARM, name=f"matmul{n}") for n, f in enumerate(scheduled)]
    assert all("sdot\tv" in c.source("asm") for c in compiled)
    assert "sdot\tv" not in compile_func(scheduled[0], OLD_ARM).source("asm")
    calls = [Call(c, arguments(func, 1)) for c in compiled]
    for found in run_emulated(calls, "neoverse-n1", tmp_path):
        np.testing.assert_array_equal(found[-1], expected(func, 1)[-1])


def test_a_unit_for_matrices() -> None:
    """Tiles of float16 have the registers, the init and the copies of the unit's other products."""
    func = float16_matmul()
    assert not any("amx" in name for name in planned(func, GRANITE))
    float16_tiles()
    assert planned(func, GRANITE)[0] == TDP
    assert not any("amx" in n for n in planned(func, Target.parse("cpu -mcpu=sapphirerapids")))
    first = sketches(func, GRANITE)[0]
    for scheduled in made(first, func):
        code = compile_func(scheduled, GRANITE).source("asm")
        assert "tdpfp16ps" in code
        assert "tilestored" in code
        found = arguments(func, 1)
        run(scheduled, "cpu -threads=1", found)
        np.testing.assert_allclose(found[-1], expected(func, 1)[-1], rtol=1e-4, atol=1e-4)


def test_costs_are_those_of_the_row() -> None:
    func = int8_matmul()
    times = []
    for cycles in (0.5, 64.0):
        with forgotten():
            sdot(cycles)
            (sketch,) = (s for s in sketches(func, ARM) if s.name == SDOT)
            times.append((seconds(sketch, ARM), roofline(func, ARM).compute))
    (fast, bound), (slow, other) = times
    assert slow > 4 * fast
    assert bound < other


def test_what_costs_nothing_known_is_for_schedules_by_hand() -> None:
    """Without a cost rules leave it out; `tensorize` takes it, and code has it."""
    func, before = int8_matmul(), planned(int8_matmul(), ARM)
    programs = product(SDOT, Product("int32", "int8", "int8", 1, 4, 1, 4))
    code = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    tw.register_intrin(SDOT, *programs, requires=(("dotprod",),), code=code)
    assert planned(func, ARM) == before
    sch = tw.Schedule(func)
    block = sch.get_block("C")
    sch.pack(block, 1, "BAba", [4, 4])
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 4], perfect=True)
    k0, k1 = sch.split(k, factors=[None, 4], perfect=True)
    sch.reorder(i, j0, k0, j1, k1)
    sch.decompose_reduction(block, k0)
    sch.tensorize(j1, SDOT)
    assert "sdot\tv" in compile_func(sch.func, ARM).source("asm")


def test_caches_know_which_instructions_a_target_has() -> None:
    func = int8_matmul()

    def keys(target: Target) -> tuple[str, str]:
        return remembered.key(func, target, "model"), cache.key(func, target, strict_fp=False)

    plain, others = keys(ARM), keys(OLD_ARM)
    with forgotten():
        sdot()
        one = keys(ARM)
    assert keys(ARM) == plain
    sdot(1.0)
    assert len({*plain, *one, *keys(ARM)}) == 6
    assert keys(OLD_ARM) == others


def test_caches_know_the_instructions_that_a_program_names() -> None:
    """Other programs have the same keys as without them."""
    record = find_instruction("outer_4x8_fma")
    assert record is not None
    func, keys = ops.matmul_func(8, 16, 4), set()
    plain = cache.key(func, ARM, strict_fp=False)
    for text in ("first", "second"):
        with forgotten():
            tw.register_intrin("mine", record.semantics, replace(record.implementation, name=text))
            sch = tw.Schedule(func)
            i, j, k = sch.get_loops(sch.get_block("C"))
            i0, j0, i1, j1 = sch.tile((i, j), (4, 8))
            sch.reorder(i0, j0, k, i1, j1)
            sch.decompose_reduction(sch.get_block("C"), k)
            sch.tensorize(i1, "mine")
            keys.add(cache.key(sch.func, ARM, strict_fp=False))
            assert cache.key(func, ARM, strict_fp=False) == plain
    assert len(keys) == 2


def test_builders_import_the_module_that_registers_it() -> None:
    func = int8_matmul()
    sdot()
    (task,), _ = tasks(func)
    assert {name for s in sketches(func, ARM) for name in s.modules} == {__name__}
    record = find_instruction(SDOT)
    assert record is not None
    object.__setattr__(record, "home", "__main__")
    with pytest.raises(tw.TuningError, match="instructions that this script or notebook defines"):
        prepared_sketches(task, ARM, inexact=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"requires": (("dotprods",),)}, "requires the feature 'dotprods', which no target has"),
        ({"requires": "dotprod"}, "`requires` has 'dotprod'; expected a tuple of alternatives"),
        ({"requires": ("dotprod",)}, "`requires` has 'dotprod'; expected a tuple of alternatives"),
        ({"init": "zero_int16_amx"}, "names zero_int16_amx, which is no instruction"),
        ({"unit": Unit("x", "x", 1, 64, kind="gpu")}, "of 'gpu', which is no kind of target"),
    ],
)
def test_facts_that_do_not_fit(options: dict[str, object], message: str) -> None:
    programs = product(SDOT, Product("int32", "int8", "int8", 1, 4, 1, 4))
    with pytest.raises(IRError, match=message):
        tw.register_intrin(SDOT, *programs, **options)  # type: ignore[arg-type]
    assert find_instruction(SDOT) is None


def test_code_is_for_products() -> None:
    record = find_instruction("outer_4x8_fma")
    assert record is not None
    with refused(IRError, "llvm.x86.x"):
        tw.register_intrin("mine", record.semantics, record.implementation, code="llvm.x86.x")


def int16_sums(code: str) -> Func:
    """A product with sums by an instruction of AVX-512, written as `code`."""
    what = Product("int32", "int16", "int16", rows=1, columns=16, depth=1, group=2)
    programs = product("dot_16x2", what)
    tw.register_intrin("dot_16x2", *programs, requires=(("avx512vnni",),), code=code)
    return programs[1]


VNNI = "cpu -mcpu=cascadelake -threads=1"
VPDPWSSD = "llvm.x86.avx512.vpdpwssd.512"


def test_code_that_computes_its_semantics() -> None:
    func = int16_sums(VPDPWSSD)
    compiled = compile_func(func, VNNI)
    assert "vpdpwssd" in compiled.source("asm")


@pytest.mark.skipif(not runs(VNNI), reason="no AVX-512 VNNI here")
@pytest.mark.parametrize(
    ("code", "dtypes", "group"),
    [
        ("llvm.x86.avx512.vpdpwssds.512", ("int16", "int16"), 2),  # saturates
        ("llvm.x86.avx512.vpdpbusd.512", ("int8", "uint8"), 4),  # takes them the other way round
    ],
)
def test_code_that_computes_something_else(code: str, dtypes: tuple[str, str], group: int) -> None:
    programs = product("mine", Product("int32", *dtypes, 1, 16, 1, group))
    tw.register_intrin("mine", *programs, requires=(("avx512vnni",),), code=code)
    wrong = rf"the instruction mine: {code} does not compute its semantics: C\[\d+\] is -?\d+"
    for _ in range(2):
        with pytest.raises(BuildError, match=wrong):
            compile_func(programs[1], VNNI)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("llvm.x86.avx512.vpdpwsdd.512", "vpdpwsdd.512, which is no intrinsic of LLVM"),
        (
            "llvm.x86.avx512.vpdpwssd.256",
            "dot_16x2 is to be written as .*: LLVM refuses",
        ),
    ],
)
def test_code_that_is_not_llvms(code: str, message: str) -> None:
    func = int16_sums(code)
    with pytest.raises(BuildError, match=message):
        compile_func(func, VNNI)


@pytest.mark.parametrize(
    "code",
    [
        "llvm.x86.avx512.vpdpbusd.128",  # of other types: an assertion of LLVM
        "llvm.aarch64.neon.sdot.v4i32.v16i8",  # of another processor: nothing to select
    ],
)
def test_code_that_ends_the_process_is_refused(code: str) -> None:
    narrow = Product("float32", "float16", "float16", rows=1, columns=4, depth=1, group=4)
    tw.register_intrin("pp", *product("pp", narrow), cost=Cost(0.5, 3.0), code=code)
    instruction = find_instruction("pp")
    assert instruction is not None
    target = CpuTarget.of(resolve("cpu -mcpu=cascadelake -threads=1"))
    with pytest.raises(BuildError, match=r"pp is to be written as llvm") as refused:
        check_code(CpuGenerator(), instruction, target)
    with pytest.raises(BuildError) as again:
        check_code(CpuGenerator(), instruction, target)
    assert str(again.value) == str(refused.value)


def test_a_compilation_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a child that has not even started."""
    monkeypatch.setattr(checked_code, "_SECONDS", 1e-3)
    func = int16_sums("llvm.x86.avx512.vpdpwssd.512")
    with refused(BuildError, "LLVM has not compiled it after 0.001 s"):
        compile_func(func, VNNI)


@pytest.mark.part(2)
@pytest.mark.parametrize("name", [i.name for i in TABLES["cpu"] if i.code])
def test_the_code_of_this_package(name: str) -> None:
    """Each compiles for a processor that has it, and is run where this machine does."""
    instruction = find_instruction(name)
    assert instruction is not None
    here = CpuTarget.of(resolve("cpu"))
    everything = CpuTarget.of(resolve("cpu -mcpu=sapphirerapids -threads=1"))
    check_code(CpuGenerator(), instruction, here if instruction.runs_on(here) else everything)


def test_an_emitter_that_there_is_none_of() -> None:
    programs = product(SDOT, Product("int32", "int8", "int8", 1, 4, 1, 4))
    unit = Unit("vectors", "intrinsics", 1, 16)
    tw.register_intrin(SDOT, *programs, unit=unit, cost=Cost(0.5, 3.0), code="x")
    (scheduled,) = made(sketches(int8_matmul(), OLD_ARM)[0], int8_matmul(), 1)
    with refused(BuildError, "intrinsics"):
        compile_func(scheduled, OLD_ARM)
