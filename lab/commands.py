"""The commands of the lab, a function each: of a workbench and the keys of a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..autotune.records import target_record
from ..ids import short_id
from ..schedule.primitive import find_primitive
from ..tir.printer import loop_names
from . import records
from .answers import Arguments, page_of, text_of
from .export import rule, script
from .measuring import GENERATOR
from .moves import applied, call_text, decoded, moves, refusal, try_move
from .program_tree import Data
from .sliders import Sliders
from .versions import LabError, Version, line_diff

if TYPE_CHECKING:
    from .workbench import Workbench

Command: TypeAlias = Callable[["Workbench", Arguments], Any]
PAGE = 400
"""Nodes and lines of a program in an answer, at most."""
_MOVES = 100
_MEASURED = 16
"""Versions of a run."""
_RECORDS = 100


def tree(bench: Workbench, given: Arguments) -> Data:
    """A page of the nodes of a program."""
    nodes = bench.tree(_version(bench, given)).nodes
    start, count = page_of(given, PAGE)
    return {"nodes": nodes[start : start + count], "start": start, "total": len(nodes)}


def text(bench: Workbench, given: Arguments) -> Data:
    """A page of the lines of a program."""
    lines = bench.tree(_version(bench, given)).lines
    start, count = page_of(given, PAGE)
    return {"lines": lines[start : start + count], "start": start, "total": len(lines)}


def all_moves(bench: Workbench, given: Arguments) -> Data:
    """A page of the moves at a place of the current program."""
    place, version = given.get("place"), bench.versions.current
    handle = bench.handles.get(place)
    if place is not None and handle is None:
        raise LabError("there is no loop or block {0!r:.40}", place, hint="ids are in the tree")
    start, count = page_of(given, _MOVES)
    found: list[Data] = bench.kept(
        (version.id, "moves", place),
        lambda: moves(version.schedule, handle, bench.target, bench.handles, bench.predict),
    )
    return {"moves": found[start : start + count], "start": start, "total": len(found)}


def attempt(bench: Workbench, given: Arguments) -> Data:
    """A step that is tried and not taken."""
    schedule, op = bench.versions.current.schedule, text_of(given, "op")
    return try_move(schedule, op, given.get("args"), bench.handles, bench.predict)


def apply(bench: Workbench, given: Arguments) -> Data:
    """A step, which makes a version."""
    current = bench.versions.current
    primitive = find_primitive(text_of(given, "op"))
    bound = decoded(primitive, given.get("args"), bench.handles)
    said = call_text(primitive, bound, loop_names(current.schedule.func))
    after = applied(current.schedule, primitive, bound)
    if after.func is current.schedule.func:
        raise LabError("{0} changes nothing", said)
    return {"version": bench.add(current, said, after).id}


def undo(bench: Workbench, _: Arguments) -> Data:
    """To the parent of the current version."""
    return _moved(bench, bench.versions.undo)


def redo(bench: Workbench, _: Arguments) -> Data:
    """Takes an undo back."""
    return _moved(bench, bench.versions.redo)


def go(bench: Workbench, given: Arguments) -> Data:
    """To any version."""
    return _moved(bench, lambda: bench.versions.go(given.get("version")))


def _moved(bench: Workbench, move: Callable[[], None]) -> Data:
    move()
    bench.changed()
    return {"version": bench.versions.current.id}


def diff(bench: Workbench, given: Arguments) -> Data:
    """How two programs differ."""
    a, b = (bench.versions.get(given.get(name)) for name in ("a", "b"))
    programs = (str(v.schedule.func) for v in (a, b))
    return {"a": a.id, "b": b.id, "program": line_diff(*programs)}


def sliders(bench: Workbench, given: Arguments) -> Data:
    """The sizes of a version that can be moved, and their figures."""
    found = _sliders(bench, given)
    return {**found.data(), **found.figures(found.row, lambda e: refusal(e, bench.handles))}


def figures(bench: Workbench, given: Arguments) -> Data:
    """What other sizes of a version would give."""
    found = _sliders(bench, given)
    return found.figures(given.get("values"), lambda e: refusal(e, bench.handles))


def slide(bench: Workbench, given: Arguments) -> Data:
    """A version with other sizes."""
    version, found = _version(bench, given), _sliders(bench, given)
    after = found.schedule(given.get("values"))
    return {"version": bench.add(version, found.changes(given.get("values")), after).id}


def measure(bench: Workbench, given: Arguments) -> Data:
    """Begins to measure versions, interleaved if there are several."""
    ids = given.get("versions", [bench.versions.current.id])
    if not isinstance(ids, list) or not 0 < len(ids) <= _MEASURED:
        raise LabError("versions: expected a list of 1 to {0}, found {1!r:.80}", _MEASURED, ids)
    versions = list(dict.fromkeys(bench.versions.get(id) for id in ids))
    run = bench.measurements.start(versions)
    bench.changed()
    return {"run": run.data()}


def cancel(bench: Workbench, _: Arguments) -> Data:
    """Gives up on the run that goes on."""
    bench.measurements.cancel()
    run = bench.measurements.run
    return {"run": None if run is None else run.data()}


def listed_records(bench: Workbench, given: Arguments) -> Data:
    """A page of the schedules of this program in the database."""
    found = records.listed(records.required(bench.database), bench.workload, bench.target)
    start, count = page_of(given, _RECORDS)
    return {"records": found[start : start + count], "start": start, "total": len(found)}


def open_record(bench: Workbench, given: Arguments) -> Data:
    """A version with the schedule of a record."""
    database = records.required(bench.database)
    record, schedule = records.opened(database, text_of(given, "record"), bench.func)
    version = bench.add(bench.versions.root, f"record {short_id(record.id)}", schedule)
    if version.timing is None:
        version.timing = records.known_timing(database, bench.workload, bench.target, record)
    return {"version": version.id}


def pin(bench: Workbench, given: Arguments) -> Data:
    """Makes the schedule of a version the choice of builds."""
    version, database = _version(bench, given), records.required(bench.database)
    record = records.pinned(database, bench.workload, bench.target, version, GENERATOR)
    return {"version": version.id, "record": record.id, "id": short_id(record.id)}


def unpin(bench: Workbench, _: Arguments) -> Data:
    """Takes the choice back."""
    database = records.required(bench.database)
    return {"unpinned": database.unpin(bench.workload.id, target_record(bench.target))}


def export(bench: Workbench, given: Arguments) -> Data:
    """A version as a script."""
    return {"text": script(_version(bench, given))}


def make_rule(bench: Workbench, given: Arguments) -> Data:
    """A version as a sketch rule."""
    return {"text": rule(_version(bench, given), bench.target, text_of(given, "name"))}


def _sliders(bench: Workbench, given: Arguments) -> Sliders:
    version = _version(bench, given)
    found: Sliders = bench.kept(
        (version.id, "sliders"), lambda: Sliders(version.schedule, bench.target)
    )
    return found


def _version(bench: Workbench, given: Arguments) -> Version:
    id = given.get("version")
    return bench.versions.current if id is None else bench.versions.get(id)


COMMANDS: dict[str, Command] = {
    "apply": apply,
    "cancel": cancel,
    "diff": diff,
    "export": export,
    "figures": figures,
    "go": go,
    "measure": measure,
    "moves": all_moves,
    "open": open_record,
    "pin": pin,
    "records": listed_records,
    "redo": redo,
    "rule": make_rule,
    "slide": slide,
    "sliders": sliders,
    "text": text,
    "tree": tree,
    "try": attempt,
    "undo": undo,
    "unpin": unpin,
}
