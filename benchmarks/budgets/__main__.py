"""The cost of each step, beside its budget: `python -m benchmarks.budgets`.

The budgets are for two virtual cores with AVX-512. Times are medians of many repetitions, warm, in
processor time where one processor does the work. The program is the matrix product 1024^3 in
float32 with the schedule that is taken by default.

Machines differ, and so does one from hour to hour. A reference loop in Python and one in C are
timed before and after each group of lines. `machine` is how many times as long they took as on the
machine that `REFERENCES` was measured on, an AMD EPYC (Zen 5). `ours` is the share of the budget
that remains after division by it. Where both columns exceed the budget, this code does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from .compiler import lowering, machine_code, refusing, replay, verifying
from .lab import lab
from .line import Line, Settings, paced
from .processes import importing, shell, zero_trials
from .runtime import call, index_check, lookup
from .search import gpu, scoring
from .sessions import candidate, growth, session

BUDGETS: dict[str, Callable[[Settings], Iterator[Line]]] = {
    "replay": replay,
    "verify": verifying,
    "refuse": refusing,
    "lower": lowering,
    "llvm": machine_code,
    "score": scoring,
    "gpu": gpu,
    "candidate": candidate,
    "lookup": lookup,
    "call": call,
    "indices": index_check,
    "import": importing,
    "shell": shell,
    "build": zero_trials,
    "session": session,
    "growth": growth,
    "lab": lab,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.budgets", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help=f"of {', '.join(BUDGETS)}")
    parser.add_argument("--json", type=Path, default=Path("build/budgets.json"))
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work?")
    options = parser.parse_args(arguments)
    unknown = set(options.only or ()) - set(BUDGETS)
    if unknown:
        parser.error(f"no budget {', '.join(sorted(unknown))}; there are {', '.join(BUDGETS)}")
    settings = (
        Settings(trials=8, records=2000, size=128, repeats=3) if options.quick else Settings()
    )
    lines: list[Line] = []
    for name in options.only or BUDGETS:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        lines += paced(BUDGETS[name], settings)
    Console(width=None if sys.stdout.isatty() else 120).print(table(lines))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
    return 0


def table(lines: Sequence[Line]) -> Table:
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("what")
    for name in ("budget", "measured", "of it", "machine", "ours"):
        found.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        share, machine = line.share, line.machine
        ours = None if share is None or machine is None else share / machine
        found.add_row(
            line.what,
            "" if line.budget is None else f"{line.budget:g} {line.unit}",
            "left out" if line.measured is None else f"{line.measured:.3g} {line.unit}",
            "" if share is None else f"{share:.0%}",
            "" if machine is None else f"{machine:.2f}",
            "" if ours is None else f"{ours:.0%}",
            style="bold red" if share is not None and min(share, ours or share) > 1 else None,
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
