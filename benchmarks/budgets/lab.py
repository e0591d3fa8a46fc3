"""What people wait for in the lab."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tilewright.lab.workbench.moves import moves
from tilewright.lab.workbench.workbench import Workbench

from .compiler import subject
from .line import Line, Settings, median


def lab(settings: Settings) -> Iterator[Line]:
    """On the schedule that is taken by default."""
    func, target, trace = subject(settings.size)
    bench = Workbench(trace.apply(func), target)
    schedule = bench.versions.current.schedule.copy()
    block = schedule.get_block(0)
    for what, place in (("block", block), ("loop", schedule.get_loops(block)[0])):
        offer = partial(moves, schedule, place, target, bench.handles, bench)
        seconds = median(offer, settings.repeats)
        count = len(offer())
        yield Line(f"offer {count} steps at a {what}", 500, seconds * 1e3, "ms", "Python")
    values = bench.do({"do": "sliders"})["result"]["values"]
    seconds = median(lambda: bench.do({"do": "figures", "values": values}), settings.repeats)
    yield Line("from a slider to its figures", 50, seconds * 1e3, "ms", "Python")
