"""Random attacks with a seed: `python -m tests.attack [KIND ...] --tries N --seed S`.

Each try damages something that comes from outside (a database, an artifact, an array, ...), uses
it, and asks what the package promises: the right result or a `TilewrightError`, within the time
limit, in a process that stays alive. A failure is printed with what was done; `--only N` makes try
N again. The exit status is 1 where something failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from .kinds import KINDS, total_tries
from .report import Report
from .supervisor import run_kind


def main() -> int:
    """Run the attacks, print what came of them, and return the exit status."""
    options = argparse.ArgumentParser(prog="tests.attack", description=__doc__.split("\n")[0])
    options.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} (all)")
    options.add_argument("--tries", type=int, help=f"in all, shared out ({total_tries(KINDS)})")
    options.add_argument("--seed", type=int, default=0, help="of all random choices (0)")
    options.add_argument("--seconds", type=float, default=1e9, help="at most so long for each kind")
    options.add_argument("--only", type=int, help="this try alone")
    options.add_argument("--failures", type=int, default=5, help="leave a kind after so many (5)")
    options.add_argument("--jobs", type=int, default=1, help="so many kinds at a time (1)")
    given = options.parse_args()
    unknown = [k for k in given.kinds if k not in KINDS]
    if unknown:
        options.error(f"unknown kind {unknown[0]}; expected some of {', '.join(KINDS)}")
    if given.jobs < 1:
        options.error(f"--jobs {given.jobs}; expected at least 1")
    kinds = given.kinds or list(KINDS)
    share = 1.0 if given.tries is None else given.tries / total_tries(kinds)
    stop = Event()

    def attack(name: str) -> bool:
        tries = range(max(1, round(KINDS[name].tries * share)))
        if given.only is not None:
            tries = range(given.only, given.only + 1)
        end = time.monotonic() + given.seconds
        report = Report(name, given.seed)
        for outcome in run_kind(name, given.seed, tries):
            report.add(outcome)
            if outcome.failure is not None:
                print(report.failure_text(outcome), flush=True)
            late = stop.is_set() or time.monotonic() >= end
            if late or len(report.failures) >= given.failures:
                break
        print(report.summary(), flush=True)
        return bool(report.failures)

    with ThreadPoolExecutor(given.jobs) as pool:
        try:
            failed = list(pool.map(attack, kinds))
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
