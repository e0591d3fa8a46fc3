"""Lock files: what is frozen is built again to the byte, and all that changed is told at once."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.records import schedule_record, target_record, workload_record
from tilewright.base.checked_json import sealed
from tilewright.base.durations import MeasuredTime
from tilewright.building import compile_all, lock_file
from tilewright.building.lock_file import LockFile, parse_lock, read_lock
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.codegen.generator import Tools
from tilewright.graph import Builder, Graph, TensorType
from tilewright.schedule import PRIMITIVES, Schedule, Trace
from tilewright.tir.equality import structural_hash
from tilewright.tir.parser import parse
from tilewright.tuning_db import Measurement, ScheduleRecord, TuningDatabase

from .commands import Run
from .instruction_sets import forgotten
from .layers import LAYERS
from .long import examples
from .measured import put_measured
from .refusals import refused
from .schedule.machinery import inputs
from .schedule.random_cases import Tally, a_case, apply_random_steps

SERIAL = "cpu -threads=1"
HERE = resolve(SERIAL)
ADD, SUM = ops.add_relu_func(32), ops.softmax_func(3, 20)
WRITTEN = Schedule(ADD).trace.to_json()
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def split(func: tw.Func, factor: int, block: str | int = 0) -> Trace:
    sch = Schedule(func)
    sch.split(sch.get_loops(sch.get_block(block))[0], factors=[None, factor])
    return sch.trace


def put(db: TuningDatabase, func: tw.Func, factor: int, seconds: float) -> Measurement:
    return put_measured(db, func, HERE, split(func, factor).to_json(), seconds)


@pytest.fixture(scope="module", autouse=True)
def compile_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Code is kept by the program that it is of: what a lock makes another program of is not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCATION, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def db(tmp_path: Path) -> Iterator[TuningDatabase]:
    with TuningDatabase(tmp_path / "tuning.db") as database:
        yield database


def code(built: tw.Module | tw.Model) -> str:
    module = built if isinstance(built, tw.Module) else built.module
    return str(module.source("asm"))


def model(rows: int = 4, name: str = "layers", last: str = "relu") -> Graph:
    """Two kernels, one of which a call runs twice."""
    rng = np.random.default_rng(0)
    b = Builder(name)
    x = b.input("x", TensorType("float32", (rows, 16)))
    for _ in range(2):
        w = b.constant(rng.standard_normal((16, 16)) / 4, "float32")
        x = b.add("sigmoid", b.add("matmul", x, w))
    return b.graph({"y": b.add(last, b.add("max", x, axes=(1,), keepdims=False))})


def changes(error: pytest.ExceptionInfo[tw.LockError]) -> list[tuple[Any, ...]]:
    return [tuple(change.values()) for change in error.value.data["changes"]]


# What is frozen


def test_a_lock_says_why(db: TuningDatabase) -> None:
    put(db, ADD, 4, 2e-6)
    best = put(db, ADD, 8, 1e-6)
    lock = tw.freeze(ADD, SERIAL, db)
    (kernel,) = lock.kernels
    assert (lock.target, lock.compiler) == (str(HERE), CpuGenerator().tools().generation)
    assert (kernel.program, kernel.name) == (structural_hash(ADD), ADD.name)
    assert (kernel.source, kernel.record, kernel.schedule) == ("record", best.id, best.schedule)
    assert (kernel.time, kernel.measured) == (best.time, best.created)
    assert (kernel.host, kernel.inexact) == (socket.gethostname(), None)
    assert Trace.from_json(kernel.recorded.trace) == split(ADD, 8)
    module = tw.build(ADD, SERIAL, locked=lock)
    assert (module.origin.kind, module.origin.record_id) == ("record", best.id)
    assert module.origin.schedule_id == best.schedule


def test_rivals_are_those_of_the_finals(db: TuningDatabase) -> None:
    fast, slow = (put(db, ADD, factor, time) for factor, time in ((8, 1e-6), (4, 2e-6)))
    for one in (fast, slow):  # timed interleaved, in one session
        samples = (one.seconds or 0.0,) * 9
        db.put(replace(one, session=fast.session, samples=samples, created=LATER))
    (kernel,) = tw.freeze(ADD, SERIAL, db).kernels
    assert (kernel.measured, kernel.time) == (LATER, MeasuredTime(1e-6, (1e-6, 1e-6), 9))
    (rival,) = kernel.rivals or ()
    assert rival.startswith(slow.schedule[:12])


def test_the_text_is_sorted_and_has_a_step_a_line(db: TuningDatabase) -> None:
    put(db, ADD, 8, 1e-6)
    options: Any = {"allow": ["record", "default"], "jobs": 1}
    lock = tw.freeze([SUM, ADD, model(), ADD], SERIAL, db, **options)
    text = str(lock)
    assert str(tw.freeze([model(), ADD, SUM], SERIAL, db, **options)) == text
    assert str(parse_lock(text.encode())) == text
    assert [p.name for p in lock.programs] == ["add_relu", "layers", "softmax"]
    assert [k.name for k in lock.kernels] == sorted(k.name for k in lock.kernels)
    steps = [line for line in text.splitlines() if line.lstrip().startswith('{"op"')]
    assert len(steps) == sum(len(kernel.steps) for kernel in lock.kernels)
    other = str(tw.freeze([SUM, ADD], SERIAL, **options)).splitlines()
    assert [line for line in other if "softmax" in line] == [
        line for line in text.splitlines() if "softmax" in line
    ]


def test_kernels_without_a_record_are_locked_too() -> None:
    lock = tw.freeze([ADD], SERIAL, allow=["default"])
    module = tw.build(ADD, SERIAL, allow=["default"])
    locked = tw.build(ADD, SERIAL, locked=lock)
    assert (locked.origin.kind, code(locked)) == ("default", code(module))
    lock = tw.freeze([ops.add_relu_func(64)], SERIAL)
    assert lock.summary == "1 kernel: 1 model"


def test_a_schedule_of_other_sizes_is_locked(db: TuningDatabase) -> None:
    source = put(db, ops.add_relu_func(64), 8, 1e-6)
    module = tw.build(ADD, SERIAL, db)
    lock = tw.freeze(ADD, SERIAL, db)
    assert module.origin.kind == "transfer"
    assert (lock.kernels[0].source, lock.kernels[0].record) == ("transfer", source.id)
    assert code(tw.build(ADD, SERIAL, locked=parse_lock(str(lock).encode()))) == code(module)


def test_a_pin_is_locked_though_it_was_not_measured(db: TuningDatabase) -> None:
    where = target_record(HERE)
    pinned = schedule_record(split(ADD, 16))
    db.pin(workload_record(ADD), where, pinned, unverified=True)
    lock = tw.freeze(ADD, SERIAL, db)
    (kernel,) = lock.kernels
    assert (kernel.source, kernel.record, kernel.time) == ("record", pinned.id, None)
    module = tw.build(ADD, SERIAL, locked=lock, require_tuned=True)
    assert module.origin.record_id == pinned.id


@pytest.mark.parametrize("program", [tw.Schedule(ADD), "add", [[ADD]], {"a": 1}, {"1": ADD}])
def test_programs_and_graphs_are_frozen(program: Any) -> None:
    with pytest.raises(tw.BuildError):
        tw.freeze(program, SERIAL)


# The same machine code


def test_near_ties_do_not_change_what_is_built(tmp_path: Path) -> None:
    """Two records within noise: databases that know them in turn disagree, a locked build not."""
    times = {"first": {4: 1.000e-6, 8: 1.001e-6}, "second": {4: 1.001e-6, 8: 1.000e-6}}
    for name, seconds in times.items():
        with TuningDatabase(tmp_path / f"{name}.db") as database:
            for factor, time in seconds.items():
                put(database, ADD, factor, time)
    tw.freeze(ADD, SERIAL, tmp_path / "first.db").write(tmp_path / "add.lock")

    def built(name: str, **options: Any) -> list[bytes]:
        made = tw.build_library(ADD, tmp_path / name, SERIAL, object_file=True, **options)
        return [path.read_bytes() for path in made.files if path.suffix != ".json"]

    first, second = (built(f"{n}.o", database=tmp_path / f"{n}.db") for n in times)
    assert first != second
    names = [built(f"{n}.o", locked=tmp_path / "add.lock") for n in ("first", "first", "second")]
    assert names[0] == names[1] == first
    assert names[2][0] == first[0]


@pytest.mark.parametrize("whole", [True, False])
def test_a_program_of_several_kernels_stays_divided(db: TuningDatabase, whole: bool) -> None:
    """Later its whole has another time, by which it would be built the other way."""
    func = LAYERS["two_layers"]()
    pieces = tw.kernels(func, SERIAL).values()
    for piece in pieces:
        put_measured(db, piece, HERE, WRITTEN, 1e-6)
    put_measured(db, func, HERE, WRITTEN, 1e-6 if whole else 1.0)
    lock = tw.freeze(func, SERIAL, db, jobs=1)
    assert len(lock.kernels) == (1 if whole else len(pieces))
    module = tw.build(func, SERIAL, db)
    put_measured(db, func, HERE, WRITTEN, 1.0 if whole else 1e-6)
    assert code(tw.build(func, SERIAL, locked=lock)) == code(module)
    assert code(tw.build(func, SERIAL, db)) != code(module)


def test_a_model_is_built_from_its_lock(db: TuningDatabase, tmp_path: Path) -> None:
    graph = model()
    for func in graph.kernels():
        put_measured(db, func, HERE, WRITTEN, 1e-6)
    lock = tw.freeze([graph, ADD], SERIAL, db, jobs=1)
    lock.write(tmp_path / "tilewright.lock")
    expected = tw.build(graph, SERIAL, db)
    put_measured(db, next(iter(graph.kernels())), HERE, WRITTEN, 1e-9)
    locked = tw.build(graph, SERIAL, locked=tmp_path / "tilewright.lock")
    assert code(locked) == code(expected)
    assert {o.record_id for o in locked.kernels.values()} == {
        o.record_id for o in expected.kernels.values()
    }
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
    np.testing.assert_array_equal(locked(x), expected(x))


def test_a_library_is_built_from_a_lock(db: TuningDatabase, tmp_path: Path) -> None:
    """All of it is the same to the byte, and what changed in any program is told at once."""
    graph, other = model(), ops.softmax_func(3, 21)
    for func in (ADD, SUM, *graph.kernels()):
        put_measured(db, func, HERE, WRITTEN, 1e-6)
    named: dict[str, tw.Func | Graph] = {"add": ADD, "soft": SUM, "net": graph}
    lock = tw.freeze(named, SERIAL, db, jobs=1)
    assert [program.name for program in lock.programs] == ["add", "net", "soft"]
    made = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "ops.a"
        tw.build_library(named, path, SERIAL, locked=lock, object_file=True, require_tuned=True)
        made.append(path.read_bytes())
        put_measured(db, ADD, HERE, split(ADD, 8).to_json(), 1e-9)
    assert made[0] == made[1]
    changed: dict[str, tw.Func | Graph] = {"add": ADD, "soft": other, "net": model(last="tanh")}
    with pytest.raises(tw.LockError) as caught:
        tw.build_library(changed, tmp_path / "ops.a", SERIAL, locked=lock, object_file=True)
    expected = {"soft", *names(graph) ^ names(changed["net"])}
    assert {change[1] for change in changes(caught)} == expected
    with pytest.raises(tw.NotTunedError) as untuned:
        tw.build_library(
            changed, tmp_path / "ops.a", SERIAL, db, object_file=True, require_tuned=True
        )
    expected = {"soft", *names(changed["net"]) - names(graph)}
    assert {*untuned.value.data["kernels"]} == expected


def names(graph: Any) -> set[str]:
    return {func.name for func in graph.kernels()}


def test_the_parts_of_a_partition_are_locked() -> None:
    graph = model()
    providers = {"providers": ["tilewright", "reference"], "placement": {"max": "reference"}}
    lock = tw.freeze(tw.partition(graph, **providers), SERIAL, allow=["default"], jobs=1)  # type: ignore[arg-type]
    built = tw.build(graph, SERIAL, locked=lock, **providers)  # type: ignore[call-overload]
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
    np.testing.assert_allclose(built(x), graph.reference(x)[0], rtol=1e-5)
    with pytest.raises(tw.LockError):
        tw.build(graph, SERIAL, locked=lock)


@settings(max_examples=examples(16))
@given(st.data())
def test_random_programs_are_built_as_they_were_frozen(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Of a few programs with random schedules, the machine code is the same and so are results."""

    def pick(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    programs = list[tw.Func]()
    folder = tmp_path_factory.mktemp("frozen")
    with TuningDatabase(folder / "tuning.db") as database:
        for number in range(1 + pick(3)):
            func, steps = a_case(pick)
            sch, _ = apply_random_steps(Schedule(func), pick, 1 + pick(6), Tally(), steps)
            if len(sch.funcs) == 1 and not sch.trace.inexact:
                programs.append(replace(func, name=f"program{number}"))
                put_measured(database, func, HERE, sch.trace.to_json(), 1e-6)
        expected = tw.build_all(programs, SERIAL, database, jobs=1)
        lock = tw.freeze(programs, SERIAL, database, jobs=1)
    again = tw.build_all(programs, SERIAL, locked=parse_lock(str(lock).encode()), jobs=1)
    for func, one, other in zip(programs, expected, again, strict=True):
        assert code(one) == code(other)
        assert one.origin.schedule_id == other.origin.schedule_id
        results = []
        for module in (one, other):
            arguments, outputs = inputs(func, 0)
            module(*arguments)
            results.append({name: array.tobytes() for name, array in outputs.items()})
        assert results[0] == results[1]


# What changed


def test_all_that_changed_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tw.freeze([ADD, SUM], SERIAL, allow=["default"], jobs=1)
    name = min(steps_of(lock, SUM))
    monkeypatch.setitem(PRIMITIVES, name, replace(PRIMITIVES[name], version=2))
    tools = CpuGenerator().tools()
    monkeypatch.setattr(CpuGenerator, "tools", lambda _: Tools("another", tools.versions))
    other = ops.add_relu_func(33)
    with pytest.raises(tw.LockError) as caught:
        tw.build_all([other, SUM, ops.matmul_func(2, 3, 4)], "cpu -threads=2", locked=lock)
    found = changes(caught)
    assert found == [
        ("target", "cpu", str(HERE), str(resolve("cpu -threads=2"))),
        ("compiler", "cpu", tools.generation, "another"),
        ("primitive", name, "1", "2"),
        ("kernel", "add_relu", structural_hash(ADD), structural_hash(other)),
        ("kernel", "matmul", None, structural_hash(ops.matmul_func(2, 3, 4))),
    ]
    assert all(str(part)[:12] in str(caught.value) for change in found for part in change if part)


def steps_of(lock: LockFile, func: tw.Func) -> set[str]:
    return {step["op"] for step in lock.by_program[structural_hash(func)].steps}


def test_a_primitive_of_another_version_is_no_longer_built(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(db, ADD, 8, 1e-6)
    lock = tw.freeze(ADD, SERIAL, db)
    monkeypatch.setitem(PRIMITIVES, "split", replace(PRIMITIVES["split"], version=3))
    with pytest.raises(tw.LockError) as caught:
        tw.build(ADD, SERIAL, locked=lock)
    assert changes(caught) == [("primitive", "split", "1", "3")]
    (kernel,) = tw.freeze(ADD, SERIAL, allow=["default"]).kernels
    assert {s.get("version") for s in kernel.steps if s["op"] == "split"} <= {3}


SCALE = """
def scale(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * 2.0
"""
HALVES = """
def scale(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    B[T.ramp(0, 1, 2)] = A[T.ramp(0, 1, 2)] + A[T.ramp(0, 1, 2)]
    B[T.ramp(2, 1, 2)] = A[T.ramp(2, 1, 2)] + A[T.ramp(2, 1, 2)]
"""
WHOLE = """
def scale(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    B[T.ramp(0, 1, 4)] = A[T.ramp(0, 1, 4)] + A[T.ramp(0, 1, 4)]
"""


def test_an_instruction_of_a_user_that_changed_is_no_longer_built(db: TuningDatabase) -> None:
    a = te.placeholder((8,), name="A")
    func = te.func([a, te.compute((8,), lambda i: a[i] * 2.0, name="B")], name="twice")
    sch = Schedule(func)
    locks = list[LockFile]()
    for implementation in (HALVES, WHOLE):
        with forgotten():
            tw.register_intrin("scale_locked", parse(SCALE), parse(implementation))
            if not locks:
                _, inner = sch.split(sch.get_loops(sch.get_block("B"))[0], factors=[None, 4])
                sch.tensorize(inner, "scale_locked")
                put_measured(db, func, HERE, sch.trace.to_json(), 1e-6)
            locks.append(tw.freeze(func, SERIAL, db, jobs=1))
            assert parse_lock(str(locks[-1]).encode()) == locks[-1]
            found = np.empty(8, np.float32)
            tw.build(func, SERIAL, locked=locks[-1])(np.arange(8, dtype=np.float32), found)
            assert found.tolist() == [*range(0, 16, 2)]
    first, second = (dict(lock.kernels[0].instructions or {})["scale_locked"] for lock in locks)
    assert first != second
    for now in (first, None):
        with forgotten():
            if now is not None:
                tw.register_intrin("scale_locked", parse(SCALE), parse(HALVES))
            with pytest.raises(tw.LockError) as caught:
                tw.build(func, SERIAL, locked=locks[1])
            assert changes(caught) == [("instruction", "scale_locked", second, now)]
            assert second[:12] in str(caught.value)


def test_kernels_of_a_model_come_and_go() -> None:
    """Passes may change them while the model stays: those that only the lock has are told too."""
    lock = tw.freeze(model(), SERIAL, allow=["default"], jobs=1)
    now = model(last="tanh")
    here = {structural_hash(f): f.name for f in now.kernels()}
    locked = {kernel.program: kernel.name for kernel in lock.kernels}
    with pytest.raises(tw.LockError) as caught:
        tw.build(now, SERIAL, locked=lock)
    assert sorted(changes(caught), key=str) == sorted(
        [
            *(("kernel", n, None, d) for d, n in here.items() if d not in locked),
            *(("kernel", n, d, None) for d, n in locked.items() if d not in here),
        ],
        key=str,
    )
    assert {change[2] is None for change in changes(caught)} == {True, False}


def test_what_else_a_lock_has_does_not_matter() -> None:
    """A lock is of all that is shipped; one program of it, or one kernel, may be built alone."""
    graph = model()
    lock = tw.freeze([ADD, graph, SUM], SERIAL, allow=["default"], jobs=1)
    tw.build(ADD, SERIAL, locked=lock)
    for func in graph.kernels():
        tw.build(func, SERIAL, locked=lock)
    same = tw.freeze([ADD, ops.add_relu_func(64)], SERIAL, allow=["default"], jobs=1)
    assert len(same.programs) == 2
    for func in (ADD, ops.add_relu_func(64)):
        tw.build(func, SERIAL, locked=same)


@pytest.mark.parametrize(
    "options", [{"database": "tuning.db"}, {"allow": ["record"]}, {"tolerance": 1e-3}]
)
def test_a_lock_is_all_that_is_asked(options: dict[str, Any], tmp_path: Path) -> None:
    lock = tw.freeze(ADD, SERIAL, allow=["default"])
    TuningDatabase(tmp_path / "tuning.db").close()
    options = {k: tmp_path / v if k == "database" else v for k, v in options.items()}
    with refused(tw.BuildError, *options):
        tw.build(ADD, SERIAL, locked=lock, **options)
    with pytest.raises(tw.BuildError):
        tw.build(Schedule(ADD), SERIAL, locked=lock)
    with pytest.raises(tw.BuildError):
        tw.build(ADD, SERIAL, locked=3)  # type: ignore[call-overload]
    with pytest.raises(tw.BuildError):
        tw.build(ADD, SERIAL, allow=["default"], require_tuned=True)


# Bad files


@pytest.fixture(scope="module")
def frozen() -> LockFile:
    return tw.freeze([ADD, SUM], SERIAL, allow=["default"], jobs=1)


def resealed(lock: LockFile, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A lock whose kernels were changed by somebody who writes their digests."""
    data = lock.to_json()
    before = lock_file.before_of(data["target"], data["compiler"])
    for kernel in data["kernels"]:
        change(kernel)
    data["kernels"] = [sealed(kernel, before) for kernel in data["kernels"]]
    return lock_file._text(data).encode()


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "the target": lambda d: d.update(target="cpu -threads=2"),
    "the compiler": lambda d: d.update(compiler="llvm 99"),
    "the source": lambda d: d["kernels"][0].update(source="record"),
    "a step less": lambda d: d["kernels"][0]["steps"].pop(),
    "an argument": lambda d: d["kernels"][0]["steps"][-1]["args"].update(more=1),
    "schedules exchanged": lambda d: d["kernels"][0].update(steps=d["kernels"][1]["steps"]),
    "programs exchanged": lambda d: d["kernels"][0].update(program=d["kernels"][1]["program"]),
    "a kernel less": lambda d: d["kernels"].pop(),
    "a kernel twice": lambda d: d["kernels"].append(d["kernels"][0]),
    "a program less": lambda d: d["programs"].pop(),
    "another version": lambda d: d.update(version=2),
    "a version that is true": lambda d: d.update(version=True),
    "another format": lambda d: d.update(format="tilewright-tuning-records"),
    "more": lambda d: d.update(more=1),
    "no kernels": lambda d: d.pop("kernels"),
    "a list": lambda d: d.update(programs=[[]]),
    "deep": lambda d: d.update(target=nested(900)),
    "another name": lambda d: d["programs"][0].update(name="other"),
    "deep in a kernel": lambda d: d["kernels"][0].update(name=nested(900)),
    "no digest": lambda d: d["kernels"][0].pop("digest"),
    "a name that is none": lambda d: d["programs"][0].update(name=3),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_lock_is_refused(frozen: LockFile, what: str) -> None:
    data = json.loads(str(frozen))
    EDITS[what](data)
    with pytest.raises(tw.LockError):
        parse_lock(json.dumps(data).encode())
    parse_lock(json.dumps(json.loads(str(frozen))).encode())  # white space says nothing


def test_a_damaged_lock_is_refused(frozen: LockFile) -> None:
    """Cut off, or with a bit of another value, wherever that is."""
    content = str(frozen).encode()
    for at in range(0, len(content) - 1, 31):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 7
        for damaged in (content[:at], bytes(flipped)):
            with pytest.raises(tw.LockError):
                parse_lock(damaged)


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"\xff", b"{}", b'{"format": NaN}', b"[1]", b'{"a":1,"a":2}']
)
def test_what_is_no_lock_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "no.lock").write_bytes(content)
    with pytest.raises(tw.LockError):
        tw.build(ADD, SERIAL, locked=tmp_path / "no.lock")
    for path in (tmp_path / "none.lock", tmp_path):
        with refused(tw.LockError, path):
            tw.build(ADD, SERIAL, locked=path)


def of_another_program(kernel: dict[str, Any]) -> None:
    steps = [*split(SUM, 4, 3).to_data()["steps"]]
    put_steps(kernel, steps)


def of_no_primitive(kernel: dict[str, Any]) -> None:
    put_steps(kernel, [{"op": "__import__", "args": {"name": "os"}}])


def of_wrong_arguments(kernel: dict[str, Any]) -> None:
    put_steps(kernel, [{"op": "get_block", "args": {"block": [1, {"v": "b9"}]}, "out": ["b0"]}])


def of_hostile_versions(kernel: dict[str, Any]) -> None:
    put_steps(kernel, [{"op": ["get_block"], "version": [1], "args": {"block": 0}, "out": ["b0"]}])


def put_steps(kernel: dict[str, Any], steps: list[Any]) -> None:
    kernel["steps"] = steps
    kernel["schedule"] = ScheduleRecord.of({"version": 1, "steps": steps}, 1, "", "").id


@pytest.mark.parametrize(
    "change", [of_another_program, of_no_primitive, of_wrong_arguments, of_hostile_versions]
)
def test_a_forged_schedule_is_applied_as_any_other(
    frozen: LockFile, change: Callable[[dict[str, Any]], None]
) -> None:
    """Digests that are right do not help: a schedule that does not apply is refused."""
    lock = parse_lock(resealed(frozen, change))
    with pytest.raises(tw.LockError):
        tw.build(ADD, SERIAL, locked=lock)


def test_writers_and_readers_at_once_see_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "tilewright.lock"
    locks = [tw.freeze(p, SERIAL, allow=["default"], jobs=1) for p in ([ADD], [SUM], [ADD, SUM])]
    locks[0].write(path)
    done = threading.Event()

    def write(lock: LockFile) -> None:
        while not done.is_set():
            lock.write(path)

    writers = [threading.Thread(target=write, args=(lock,)) for lock in locks]
    for writer in writers:
        writer.start()
    try:
        seen = [str(read_lock(path)) for _ in range(100)]
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert {*seen} <= {*map(str, locks)}
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_lock_replaces_locks_alone(frozen: LockFile, tmp_path: Path) -> None:
    program, folder, lock = tmp_path / "a.py", tmp_path / "none", tmp_path / "a.lock"
    program.write_text("x = 1")
    for path in (program, tmp_path, folder / "a.lock", tmp_path / "a\0b"):
        with pytest.raises(tw.LockError):
            frozen.write(path)
    assert program.read_text() == "x = 1"
    lock.touch()
    for _ in range(2):
        frozen.write(lock)
    assert read_lock(lock) == frozen
    assert read_lock(lock).location == str(lock)


# What has to be tuned


def test_all_that_is_not_tuned_is_told_by_its_share(db: TuningDatabase) -> None:
    graph = model()
    twice, once = sorted(graph.kernels(), key=graph.kernels().__getitem__, reverse=True)
    put(db, ADD, 8, 1e-6)
    for build in (tw.build, tw.freeze):
        with pytest.raises(tw.NotTunedError) as caught:
            build(graph, SERIAL, db, require_tuned=True)
        missing = caught.value.data["missing"]
        assert [m["kernel"] for m in missing] == caught.value.data["kernels"]
        assert {m["kernel"]: m["runs"] for m in missing} == {twice.name: 2, once.name: 1}
        assert missing == sorted(missing, key=lambda m: -m["share"])
        assert sum(m["share"] for m in missing) == pytest.approx(1.0)
    put_measured(db, twice, HERE, WRITTEN, 1.0)
    with pytest.raises(tw.NotTunedError) as caught:
        tw.freeze([graph, ADD, SUM], SERIAL, db, require_tuned=True)
    assert {*caught.value.data["kernels"]} == {once.name, SUM.name}
    with pytest.raises(tw.NotTunedError) as caught:
        tw.build_all([ADD, SUM, ops.matmul_func(2, 3, 4)], SERIAL, db, require_tuned=True)
    assert {*caught.value.data["kernels"]} == {SUM.name, "matmul"}
    put_measured(db, once, HERE, WRITTEN, 1.0)
    built = tw.build(graph, SERIAL, db, require_tuned=True)
    assert {origin.kind for origin in built.kernels.values()} == {"record"}


def test_shares_are_at_the_efficiency_of_what_is_measured(db: TuningDatabase) -> None:
    """Of two equal programs one has a time: the other is taken to need as long."""
    one, other = ops.matmul_func(8, 8, 8), ops.matmul_func(8, 8, 9)
    put(db, one, 4, 5e-3)
    with pytest.raises(tw.NotTunedError) as caught:
        tw.build_all([one, other], SERIAL, db, require_tuned=True)
    (missing,) = caught.value.data["missing"]
    assert missing["share"] == pytest.approx(0.5, abs=0.1)


def test_what_does_not_compile_is_not_tuned(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(db, ADD, 8, 1e-6)

    def fail(*_: object, **__: object) -> None:
        raise tw.BuildError("no code")

    monkeypatch.setattr(compile_all, "_compiled", fail)
    with pytest.raises(tw.NotTunedError):
        tw.build(ADD, SERIAL, db, require_tuned=True)


def test_a_lock_may_have_to_be_of_records(db: TuningDatabase) -> None:
    put(db, ADD, 8, 1e-6)
    lock = tw.freeze([ADD, SUM], SERIAL, db, jobs=1)
    tw.build(ADD, SERIAL, locked=lock, require_tuned=True)
    with pytest.raises(tw.NotTunedError) as caught:
        tw.build(SUM, SERIAL, locked=lock, require_tuned=True)
    assert caught.value.data["kernels"] == [SUM.name]


def test_inexact_steps_are_named(db: TuningDatabase) -> None:
    """What a lock was frozen with is built, and one that hides such a step is not."""
    func = ops.conv2d_func(n=1, c=2, h=4, w=4, o=3)
    sch = Schedule(func)
    sch.winograd(sch.get_block("Y"), 2)
    put_measured(db, func, HERE, sch.trace.to_json(), 1e-6)
    lock = tw.freeze(func, SERIAL, db, tolerance=1e-3)
    assert lock.kernels[0].inexact == "winograd"
    tw.build(func, SERIAL, locked=lock)
    hidden = parse_lock(resealed(lock, lambda kernel: kernel.pop("inexact")))
    with pytest.raises(tw.LockError):
        tw.build(func, SERIAL, locked=hidden)


# From the shell

PROGRAMS = """
from tilewright import ops

def add(n: int = 32):
    return ops.add_relu_func(n)

def soft():
    return ops.softmax_func(3, 20)
"""


def test_the_shell_freezes_and_builds(
    run: Run, db: TuningDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.py").write_text(PROGRAMS)
    put(db, ADD, 8, 1e-6)
    one = ["--target", SERIAL]
    done = run("freeze", "p.py:add", "p.py:soft", "--db", db.location, *one)
    assert (done.code, done.out.splitlines()[0]) == (0, "tilewright.lock")
    lock = read_lock("tilewright.lock")
    assert lock == tw.freeze([ADD, SUM], SERIAL, db, jobs=1)
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "none.db"))
    locked = [*one, "--locked", "tilewright.lock"]
    assert run("build", "p.py:add", "-o", "a.o", "--object", *locked).code == 0
    tw.build_library(ADD, "b.o", SERIAL, db, object_file=True)
    assert Path("a.o").read_bytes() == Path("b.o").read_bytes()
    changed = run("build", "p.py:add", "-p", "n=33", "-o", "c.o", "--object", *locked)
    assert changed.code == 1
    assert not Path("c.o").exists()
    both = run("build", "p.py:add", "-o", "c.o", "--object", *locked, "--db", db.location)
    assert both.code == 1
    for command in (["build", "p.py:soft", "-o", "c.o", "--object"], ["freeze", "p.py:soft"]):
        told = run(*command, "--require-tuned", "--db", db.location, *one)
        assert (told.code, "softmax" in told.err) == (1, True)
    assert read_lock("tilewright.lock") == lock
    told = run("freeze", "p.py:add", "-o", "p.py", *one, "--db", db.location)
    assert (told.code, Path("p.py").read_text()) == (1, PROGRAMS)


def test_inspect_shows_a_lock(run: Run, frozen: LockFile, tmp_path: Path) -> None:
    path = tmp_path / "some"
    frozen.write(path)
    assert run("inspect", path, "--json").json == json.loads(str(frozen))
    shown = run("inspect", path)
    assert shown.code == 0
    for kernel in frozen.kernels:
        assert kernel.name in shown.out
        assert str(Trace.from_json(kernel.recorded.trace)).splitlines()[-1] not in shown.out
        steps = run("inspect", path, "--text").out
        assert str(Trace.from_json(kernel.recorded.trace)) in steps
    (tmp_path / "bad.lock").write_text("{")
    assert run("inspect", tmp_path / "bad.lock").code == 1
