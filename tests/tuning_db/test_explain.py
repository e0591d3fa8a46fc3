"""Explanations: every reason for a refusal, near shapes, and the text that people read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy.event import listen

from tilewright.tuning_db import (
    Best,
    Measurement,
    Outcome,
    Reason,
    Refused,
    ScheduleRecord,
    TargetRecord,
    Toolchain,
    TuningDatabase,
)
from tilewright.tuning_db.staleness import LOWERED

from .samples import (
    ARM,
    BASE,
    CPU,
    LLVM,
    MATMUL,
    OLD_LLVM,
    SLOW_CPU,
    SOFTMAX,
    WIDER,
    fill,
    measurement,
    schedule,
    timed,
    verification,
    verified,
    winograd,
)


def refused(db: TuningDatabase) -> dict[Reason, Refused]:
    """The refusals for the matmul on the CPU, by reason (which occur once here)."""
    found = db.explain(MATMUL, CPU, LLVM).refused
    by_reason = {group.reason: group for group in found}
    assert len(by_reason) == len(found)
    return by_reason


def test_reasons_are_told(db: TuningDatabase) -> None:
    """All but those of finals (test_lookup.py), of damage (test_damage.py) and of threads."""
    db.put(*verified(1, 0.1, target=ARM))
    db.put(*verified(2, 0.2, target=SLOW_CPU))
    db.put(*verified(3, 0.3, toolchain=OLD_LLVM))
    db.put(schedule(4), measurement(4, None, outcome=Outcome.RUN_TIMEOUT))
    db.put(schedule(5), measurement(5, 0.5), verification(5, passed=False))
    db.put(schedule(6), measurement(6, 0.6))
    db.put(*verified(7, 0.7), *verified(8, 0.8))
    db.put(measurement(8, 0.75, after=-1))
    db.put(*winograd(9, 0.65, 1e-5))
    renewed = ScheduleRecord('{"steps":[{"op":"split","version":2}],"version":1}', 1)
    db.put(renewed, replace(measurement(10, 0.55), schedule=renewed.id))
    story = db.explain(MATMUL, CPU, LLVM)
    assert story.best == Best(schedule(7), measurement(7, 0.7), False, db.location)
    groups = refused(db)
    elsewhere = {Reason.OUTDATED, Reason.DAMAGED, Reason.NOT_APPLICABLE, Reason.OTHER_THREADS}
    assert set(groups) == set(Reason) - elsewhere
    assert [groups[reason].seconds for reason in Reason if reason in groups] == [
        *(0.1, 0.2, 0.3, 0.55, None, 0.5, 0.6),
        *(0.65, 0.75, 0.8),
    ]
    assert all(group.count == len(group.examples) == 1 for group in groups.values())
    assert groups[Reason.OTHER_COMPAT].detail == (
        "measured on cpu (aarch64 neon), wanted x86_64 avx512f"
    )
    assert groups[Reason.OTHER_PERF].detail == (
        "measured on cpu -threads=1 (Xeon, 1 thread), wanted Xeon, 2 threads"
    )
    assert groups[Reason.OTHER_VERSION].detail == "made with version 2 of split, wanted 1"
    assert groups[Reason.OTHER_GENERATION].detail == "measured with llvm 21, wanted llvm 22"
    assert groups[Reason.NOT_OK].detail == "run_timeout"
    assert groups[Reason.INEXACT].detail == "winograd, no tolerance was given"
    assert groups[Reason.NOT_CHOSEN].examples == (measurement(8, 0.8).id,)


def test_another_number_of_threads_is_told(db: TuningDatabase) -> None:
    two, one = (TargetRecord("cpu", "x86_64", f"cpu/a/b/threads={n}") for n in (2, 1))
    db.put(two, *verified(1, 0.1, target=two))
    (threads,) = db.explain(MATMUL, one, LLVM).refused
    assert (threads.reason, threads.detail) == (Reason.OTHER_THREADS, "tuned for 2, asked for 1")
    other = dataclasses.replace(one, perf="cpu/a/c/threads=2")
    assert [r.reason for r in db.explain(MATMUL, other, LLVM).refused] == [Reason.OTHER_PERF]


def test_inexact_steps_are_told(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), *winograd(9, 0.5, 1e-5))
    (refused,) = db.explain(MATMUL, CPU, LLVM, tolerance=1e-6).refused
    assert refused.reason is Reason.INEXACT
    assert refused.detail == "winograd, tolerance 1e-06"
    text = str(db.explain(MATMUL, CPU, LLVM, tolerance=1e-4))
    assert "(winograd), fastest verified, 500 ms" in text
    assert "1 record, at best 1 s: usable, but not the choice" in text


def test_records_of_one_fate_are_one_group(db: TuningDatabase) -> None:
    db.put(schedule(1), *(measurement(1, 1.0 + n) for n in range(20)))
    groups = refused(db)
    assert set(groups) == {Reason.NOT_VERIFIED}
    group = groups[Reason.NOT_VERIFIED]
    assert (group.count, group.seconds) == (20, 1.0)
    assert group.examples == tuple(measurement(1, 1.0 + n).id for n in range(3))


def test_near_shapes_of_the_same_operator(db: TuningDatabase) -> None:
    far = dataclasses.replace(MATMUL, id="e" * 64, shape="A[64,64] B[64,4096]")
    other = dataclasses.replace(MATMUL, id="f" * 64, shape="A[64] B[64]")
    db.put(far, other)
    db.put(*verified(8, 1.0, workload=WIDER), *verified(16, 2.0, workload=WIDER))
    db.put(*verified(8, 9.0, workload=far), *verified(8, 1.0, workload=SOFTMAX))
    db.put(*verified(8, 1.0, workload=other, target=ARM))
    near = db.explain(MATMUL, CPU).near
    assert [(n.workload, n.count, n.seconds) for n in near] == [
        (WIDER.id, 2, 1.0),
        (far.id, 1, 9.0),
        (other.id, 0, None),
    ]


def test_a_near_shape_has_the_time_of_its_choice(db: TuningDatabase) -> None:
    """Not that of a trial that the finals of its session replace, nor one superseded since."""
    finals = [timed(schedule(tile), 2.0 + tile / 16, after=9.0)[0] for tile in (16, 32)]
    at_once = [
        dataclasses.replace(final, workload=WIDER.id, created=finals[0].created) for final in finals
    ]
    db.put(*verified(8, 1.0, workload=WIDER), *verified(16, 1.5, workload=WIDER))
    db.put(*verified(32, 1.6, workload=WIDER), *at_once)
    best = db.best(WIDER.id, CPU, LLVM)
    assert best is not None
    assert best.seconds == at_once[0].seconds
    (near,) = db.explain(MATMUL, CPU, LLVM).near
    assert (near.workload, near.count, near.seconds) == (WIDER.id, 3, best.seconds)
    assert db.explain(MATMUL, CPU, OLD_LLVM).near[0].count == 0


def test_only_the_nearest_shapes_are_looked_into(db: TuningDatabase) -> None:
    """A family may have thousands."""
    statements: list[int] = []

    def count(many: range) -> int:
        for n in many:
            near = dataclasses.replace(MATMUL, id=f"{n:064x}", shape=f"A[{n},64] B[64,64]")
            db.put(near, *verified(8, 1.0, workload=near))
        statements.clear()
        assert len(db.explain(MATMUL, CPU).near) == 5
        return len(statements)

    listen(db._layers[0].engine, "before_cursor_execute", lambda *_: statements.append(1))
    assert count(range(1, 9)) == count(range(9, 40))


def test_a_workload_never_put_still_has_near_shapes(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0, workload=WIDER))
    novel = dataclasses.replace(MATMUL, id="9" * 64, shape="A[64,64] B[64,130]")
    story = db.explain(novel, CPU)
    assert [n.workload for n in story.near] == [WIDER.id, MATMUL.id]
    by_id = db.explain(novel.id, CPU)
    assert (by_id.name, by_id.near, by_id.best) == (None, (), None)
    assert "a workload never seen" in str(by_id)


def test_the_explanation_agrees_with_the_lookup(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), *verified(16, 2.0))
    db.pin(MATMUL.id, CPU, schedule(16).id)
    story = db.explain(MATMUL.id, CPU, LLVM)
    assert story.best == db.best(MATMUL.id, CPU, LLVM)
    assert [group.examples for group in story.refused] == [(measurement(8, 1.0).id,)]


def test_a_pin_that_nobody_checked_is_said_so(db: TuningDatabase) -> None:
    db.put(schedule(16), measurement(16, 2.0))
    db.pin(MATMUL.id, CPU, schedule(16).id, unverified=True)
    lines = str(db.explain(MATMUL.id, CPU, LLVM)).splitlines()
    named = f"found: schedule {schedule(16).id[:12]}, pinned"
    assert f"{named}, not verified, no usable time" in lines
    assert any("at best 2 s: not verified: its results were not compared" in line for line in lines)
    db.put(verification(16, passed=False))
    story = str(db.explain(MATMUL.id, CPU, LLVM))
    assert f"{named}, though a numeric check of it failed" in story


def test_layers_tell_their_own_refusals(new_place: Callable[[], str]) -> None:
    place = new_place()
    with TuningDatabase(place) as team:
        fill(team)
        team.put(schedule(8), measurement(8, 1.0))
    with TuningDatabase(new_place(), layers=[place]) as db:
        fill(db)
        db.put(*verified(16, 2.0), *verified(32, 3.0))
        story = db.explain(MATMUL, CPU)
        assert len(story.layers) == 2
        assert [(g.reason, g.layer) for g in story.refused] == [
            (Reason.NOT_CHOSEN, story.layers[0]),
            (Reason.NOT_VERIFIED, story.layers[1]),
        ]


def test_a_check_that_failed_in_a_layer_is_told_in_all(new_place: Callable[[], str]) -> None:
    place = new_place()
    with TuningDatabase(place) as team:
        fill(team)
        team.put(*verified(8, 1.0))
    with TuningDatabase(new_place(), layers=[place]) as db:
        fill(db)
        db.put(schedule(8), verification(8, passed=False), verification(8, target=ARM))
        story = db.explain(MATMUL, CPU)
        assert story.best is None
        assert [group.reason for group in story.refused] == [Reason.CHECK_FAILED]


def test_a_check_that_failed_elsewhere_refuses_nothing_here(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), *verified(16, 2.0))
    db.put(verification(8, passed=False, target=ARM), verification(16, passed=False, target=ARM))
    story = db.explain(MATMUL, CPU)
    assert story.best is not None
    assert story.best.seconds == 1.0
    assert [group.reason for group in story.refused] == [Reason.NOT_CHOSEN]


def test_the_text(db: TuningDatabase) -> None:
    db.put(schedule(8), *(measurement(8, 0.001 * n) for n in range(1, 6)))
    db.put(*verified(8, 0.0005, workload=WIDER))
    db.put(measurement(8, None))
    ids = ", ".join(measurement(8, 0.001 * n).id[:12] for n in (1, 2, 3))
    assert str(db.explain(MATMUL, CPU, LLVM)).splitlines() == [
        "matmul (aaaaaaaaaaaa) on cpu -threads=2",
        "toolchain: llvm 22",
        f"searched: {db.location}",
        "found: nothing usable",
        f"  1 record: it failed (crash): {measurement(8, None).id[:12]}",
        "  5 records, at best 1 ms: not verified: "
        "its results were not compared with the program as written: "
        f"{ids}, ...",
        "near shapes of matmul:",
        "  A[64,64] B[64,128] (bbbbbbbbbbbb): 1 usable, at best 500 us",
    ]
    db.put(verification(8), measurement(8, 0.006, after=1), *verified(16, 0.007))
    text = str(db.explain(MATMUL, CPU, LLVM))
    assert f"found: schedule {schedule(8).id[:12]}, fastest verified, 6 ms\n" in text
    assert "5 records, at best 1 ms: its schedule was measured again later" in text
    assert "1 record, at best 7 ms: usable, but not the choice" in text


def test_the_text_of_an_empty_database(new_place: Callable[[], str]) -> None:
    with TuningDatabase(new_place()) as db:
        assert str(db.explain(MATMUL, CPU)).splitlines() == [
            "matmul (aaaaaaaaaaaa) on cpu -threads=2",
            f"searched: {db.location}",
            "found: nothing usable",
            "  there are no measurements of this workload",
        ]


def test_the_layer_of_the_best_is_told_of_several(new_place: Callable[[], str]) -> None:
    place = new_place()
    with TuningDatabase(place) as below:
        below.put(*BASE, *verified(8, 0.5))
    with TuningDatabase(new_place(), layers=[place]) as db:
        lines = str(db.explain(MATMUL, CPU, LLVM)).splitlines()
    named = f"found: schedule {schedule(8).id[:12]}, fastest verified, 500 ms"
    assert f"{named}, from {below.location}" in lines


def test_the_finalists_that_compare_best_are_listed(db: TuningDatabase) -> None:
    """The fastest is told before: its line would repeat that."""
    entries = [timed(schedule(n), 1.0 + n / 10) for n in range(2, 14)]
    db.put(*(record for entry in entries for record in entry), *map(verification, range(2, 14)))
    lines = str(db.explain(MATMUL, CPU, LLVM)).splitlines()
    at = lines.index(
        "  ahead of the 11 other finalists; timed interleaved in 9 rounds; "
        "compared with the fastest:"
    )
    listed = [f"    {schedule(n).id[:12]}:" for n in range(3, 10)]
    assert [line[:17] for line in lines[at + 1 : at + 8]] == listed
    assert lines[at + 8] == "    ... 4 more"


def test_what_the_kernels_of_the_best_take(db: TuningDatabase) -> None:
    taken = {"registers": 40, "spill_store_bytes": 0, "shared_bytes": 1024}
    found, measured, check = verified(8, 0.25)
    assert isinstance(measured, Measurement)
    db.put(*BASE, found, dataclasses.replace(measured, resources={"mm": taken}), check)
    text = str(db.explain(MATMUL, CPU, LLVM))
    assert "\n  mm: 40 registers, 1024 shared bytes\n" in f"{text}\n"


def test_other_generations_of_lowering_are_told_of_programs_without_a_record(
    db: TuningDatabase,
) -> None:
    """A kernel of a model that was tuned by one of them may have been another program."""

    def of(generation: int) -> Toolchain:
        return replace(LLVM, versions={**LLVM.versions, LOWERED: generation})

    db.put(of(2), *verified(1, 0.1, toolchain=of(2)), *verified(2, 0.2, toolchain=LLVM))
    assert db.explain(SOFTMAX, CPU, LLVM).lowering == (2,)
    assert db.explain(SOFTMAX, CPU, of(2)).lowering == ()
    story = db.explain(SOFTMAX, CPU, of(3))
    assert story.lowering == (2,)
    assert "lowering generation 2" in str(story)
    assert db.explain(MATMUL, CPU, of(3)).lowering == ()
