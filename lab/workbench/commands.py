"""The commands of the lab, a function each: of a workbench and the keys of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from markupsafe import Markup

from ...autotune.records import target_record
from ...autotune.search.replay import recorded_schedule
from ...base.text import short_id
from ...schedule.find import loops_in
from ...schedule.primitive import find_primitive
from ...tir.printer import loop_names
from ..pictures.assembly_lines import UNKNOWN_LOOPS, where
from ..pictures.page import text as cut
from ..pictures.roofline import roofline as roofline_figure
from ..pictures.roofline import roofline_points
from ..pictures.trace import changes, line_changes
from . import records
from .answers import Arguments, flag_of, number_of, page_of, text_of
from .export import rule, script
from .lowering_steps import Lowering
from .measuring import GENERATOR
from .moves import applied, call_text, decoded, moves, refusal, try_move
from .program_tree import Data
from .sliders import Sliders
from .versions import LabError, Version

if TYPE_CHECKING:
    from .workbench import Workbench

Command: TypeAlias = Callable[["Workbench", Arguments], Any]
PAGE = 400
"""Nodes and lines of a program in an answer, at most."""
_MOVES = 100
_MEASURED = 16
"""Versions of a run."""
_RECORDS = 100
_PATH = 4096


def tree(bench: Workbench, given: Arguments) -> Data:
    """A page of the nodes of a program."""
    version = _version(bench, given)
    return {"version": version.id, **_page(given, "nodes", bench.tree(version).nodes)}


def text(bench: Workbench, given: Arguments) -> Data:
    """A page of the lines of a program."""
    version = _version(bench, given)
    return {"version": version.id, **_page(given, "lines", bench.tree(version).lines)}


def all_moves(bench: Workbench, given: Arguments) -> Data:
    """A page of the moves at a place of a program."""
    place, version = given.get("place"), _version(bench, given)
    handle = bench.handles.get(place)
    if place is not None and handle is None:
        raise LabError("there is no loop or block {0!r:.40}", place, hint="ids are in the tree")
    found: list[Data] = bench.kept(
        (version.id, "moves", place),
        lambda: moves(version.schedule, handle, bench.target, bench.handles, bench),
    )
    page = _page(given, "moves", found, _MOVES)
    page["moves"] = [_expected(version, move) for move in page["moves"]]
    return {"version": version.id, **page}


def _expected(version: Version, move: Data) -> Data:
    """A move with its predicted time scaled by what the model is off by at its version."""
    if move.get("predicted") is None or version.scale is None:
        return move
    return {**move, "expected": move["predicted"] * version.scale}


def attempt(bench: Workbench, given: Arguments) -> Data:
    """A step that is tried and not taken."""
    version, op = _version(bench, given), text_of(given, "op")
    move = try_move(version.schedule, op, given.get("args"), bench.handles, bench)
    return {"version": version.id, **_expected(version, move)}


def apply(bench: Workbench, given: Arguments) -> Data:
    """A step, which makes a version: a branch, if its parent has others."""
    version = _version(bench, given)
    primitive = find_primitive(text_of(given, "op"))
    bound = decoded(primitive, given.get("args"), bench.handles)
    said = call_text(primitive, bound, loop_names(version.schedule.func))
    after = applied(version.schedule, primitive, bound, bench)
    if after.func is version.schedule.func:
        raise LabError("{0} changes nothing", said)
    return {"version": bench.add(version, said, after).id}


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
    """How the programs of two versions differ, or their assembly."""
    a, b = (bench.versions.get(given.get(name)) for name in ("a", "b"))
    of = given.get("of", "program")
    if of not in ("program", "assembly"):
        raise LabError("of: expected program or assembly, found {0!r:.40}", of)

    def lines() -> list[Data]:
        if of == "program":
            found = changes(a.schedule.func, b.schedule.func)
        else:
            found = line_changes(*(_lowering(bench, v).assembly.lines for v in (a, b)))
        return [{"op": c.sign, "text": c.text} for c in found]

    pages = bench.kept((a.id, b.id, "diff", of), lines)
    return {"a": a.id, "b": b.id, **_page(given, of, pages)}


def lowering(bench: Workbench, given: Arguments) -> Data:
    """The stages from a version to its code."""
    version = _version(bench, given)
    return {"version": version.id, "stages": _lowering(bench, version).listed()}


def stage(bench: Workbench, given: Arguments) -> Data:
    """What a lowering pass changed."""
    version = _version(bench, given)
    changed = _lowering(bench, version).changes(number_of(given, "number", 0))
    return {"version": version.id, **_page(given, "lines", changed)}


def assembly(bench: Workbench, given: Arguments) -> Data:
    """A page of the machine code of a version."""
    version = _version(bench, given)
    found = _lowering(bench, version).assembly
    page = _page(given, "lines", found.lines)
    in_tree = {loop.var for loop in loops_in(version.schedule.func.body)}
    own = [
        bench.handles.id(loop.var) if loop.var in in_tree else None for loop in found.program.loops
    ]
    ids: list[str | None] = []
    for number, id in enumerate(own):  # loops in blocks are not in the tree: those around them are
        around = found.program.around[number]
        ids.append(ids[around[-1]] if id is None and around else id)
    loops = None
    if found.loops is not None:
        shown = found.loops[page["start"] : page["start"] + len(page["lines"])]
        loops = [None if number is None else ids[number] for number in shown]
    places = {
        own[number]: {
            "name": place.name,
            "lines": [[part.start, part.stop - 1] for part in place.ranges],
            "says": place.says,
        }
        for number, place in enumerate(found.places)
        if own[number] is not None
    }
    hot = None if found.hot is None else [found.hot.start, found.hot.stop - 1]
    return {
        "version": version.id,
        "name": found.name,
        "hot": hot,
        "says": where(found.hot),
        "unknown": UNKNOWN_LOOPS if loops is None else None,
        "loops": loops,
        "places": places,
        **page,
    }


def _lowering(bench: Workbench, version: Version) -> Lowering:
    found: Lowering = bench.kept((version.id, "lowering"), lambda: Lowering(version, bench.target))
    return found


def roofline(bench: Workbench, given: Arguments) -> Data:
    """The least time of the program, and where its versions are; one is always named."""
    if bench.model is None:
        raise LabError("there is no model of times for {0}", bench.target)
    version = _version(bench, given)
    known = roofline_points(
        bench.func, bench.workload, bench.target, bench.model, bench.versions, bench.recorded
    )
    last = sorted(known["points"], key=lambda p: p["version"] == version.id)
    times = [
        {p["version"]: p["seconds"] for p in last if p["measured"] is m} for m in (True, False)
    ]
    html = Markup(str(roofline_figure(bench.func, bench.target, *times)))
    return {"version": version.id, **known, "html": html}


def sliders(bench: Workbench, given: Arguments) -> Data:
    """The sizes of a version that can be moved, and their figures."""
    version = _version(bench, given)
    found = _sliders(bench, version)
    shown = found.figures(found.row, lambda e: refusal(e, bench.handles))
    return {"version": version.id, **found.data(), **shown}


def figures(bench: Workbench, given: Arguments) -> Data:
    """What other sizes of a version would give."""
    version = _version(bench, given)
    shown = _sliders(bench, version).figures(
        given.get("values"), lambda e: refusal(e, bench.handles)
    )
    return {"version": version.id, **shown}


def slide(bench: Workbench, given: Arguments) -> Data:
    """A version with other sizes."""
    version = _version(bench, given)
    found = _sliders(bench, version)
    after = found.schedule(given.get("values"))
    return {"version": bench.add(version, found.changes(given.get("values")), after).id}


def measure(bench: Workbench, given: Arguments) -> Data:
    """Begins to measure versions, interleaved if there are several."""
    run = bench.measurements.start(_versions(bench, given))
    bench.changed()
    return {"run": run.data()}


def pack(bench: Workbench, given: Arguments) -> Data:
    """Begins to compile versions for a machine elsewhere."""
    folder = text_of(given, "folder")
    if not folder or len(folder) > _PATH:
        raise LabError("folder: expected the path of a new folder, found {0!r:.80}", folder)
    run = bench.measurements.pack(_versions(bench, given), Path(folder))
    bench.changed()
    return {"run": run.data()}


def _versions(bench: Workbench, given: Arguments) -> list[Version]:
    """Those of a command, by default the current one."""
    ids = given.get("versions", [bench.versions.current.id])
    if not isinstance(ids, list) or not 0 < len(ids) <= _MEASURED:
        raise LabError("versions: expected a list of 1 to {0}, found {1!r:.80}", _MEASURED, ids)
    return list(dict.fromkeys(bench.versions.get(id) for id in ids))


def cancel(bench: Workbench, _: Arguments) -> Data:
    """Abandons the run that goes on."""
    bench.measurements.cancel()
    run = bench.measurements.run
    return {"run": None if run is None else run.data()}


def is_urgent(command: object) -> bool:
    """Whether a command waits for nothing: it computes nothing, and ends what others wait for."""
    return isinstance(command, Mapping) and command.get("do") == "cancel"


def listed_records(bench: Workbench, given: Arguments) -> Data:
    """A page of the schedules of this program in the database."""
    database = records.required(bench.database)
    found = records.listed(database, bench.workload, bench.target)
    page = _page(given, "records", found, _RECORDS)
    page["records"] = records.completed(database, page["records"], bench.decision_names)
    bench.look_up_pin()
    return page


def open_record(bench: Workbench, given: Arguments) -> Data:
    """A version with the schedule of a record."""
    database = records.required(bench.database)
    record, schedule, of_others = recorded_schedule(database, text_of(given, "record"), bench.func)
    said = f"schedule {short_id(record.id)}" + (f" of {cut(of_others[0])}" if of_others else "")
    version = bench.add(bench.versions.root, said, schedule, foreign=True)
    if version.timing is None:
        known = records.known_timing(database, bench.workload, bench.target, record)
        if isinstance(known, str):
            version.problem = known
        else:
            version.timing = known
        bench.changed()
    return {"version": version.id}


def pin(bench: Workbench, given: Arguments) -> Data:
    """Makes the schedule of a version the choice of builds."""
    version, database = _version(bench, given), records.required(bench.database)
    record = records.pinned(
        database,
        bench.workload,
        bench.target,
        version,
        GENERATOR,
        unverified=flag_of(given, "unverified"),
    )
    bench.look_up_pin()
    return {"version": version.id, "record": record.id, "id": short_id(record.id)}


def unpin(bench: Workbench, _: Arguments) -> Data:
    """Takes the choice back."""
    database = records.required(bench.database)
    gone = database.unpin(bench.workload.id, target_record(bench.target))
    bench.look_up_pin()
    return {"unpinned": gone}


def export(bench: Workbench, given: Arguments) -> Data:
    """A version as a script."""
    version = _version(bench, given)
    return {"version": version.id, "text": script(version)}


def make_rule(bench: Workbench, given: Arguments) -> Data:
    """A version as a sketch rule."""
    version = _version(bench, given)
    return {"version": version.id, "text": rule(version, bench.target, text_of(given, "name"))}


def _sliders(bench: Workbench, version: Version) -> Sliders:
    found: Sliders = bench.kept(
        (version.id, "sliders"), lambda: Sliders(version.schedule, bench.target)
    )
    return found


def _page(given: Arguments, name: str, items: Sequence[object], most: int = PAGE) -> Data:
    """The items that a command asks for, with how many there are."""
    start, count = page_of(given, most)
    return {name: list(items[start : start + count]), "start": start, "total": len(items)}


def _version(bench: Workbench, given: Arguments) -> Version:
    id = given.get("version")
    return bench.versions.current if id is None else bench.versions.get(id)


COMMANDS: dict[str, Command] = {
    "apply": apply,
    "assembly": assembly,
    "cancel": cancel,
    "diff": diff,
    "export": export,
    "figures": figures,
    "go": go,
    "lowering": lowering,
    "measure": measure,
    "moves": all_moves,
    "open": open_record,
    "pack": pack,
    "pin": pin,
    "records": listed_records,
    "redo": redo,
    "roofline": roofline,
    "rule": make_rule,
    "slide": slide,
    "sliders": sliders,
    "stage": stage,
    "text": text,
    "tree": tree,
    "try": attempt,
    "undo": undo,
    "unpin": unpin,
}
