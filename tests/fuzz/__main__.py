"""Random schedules for as long as you like: `python -m tests.fuzz --seconds 60 --seed 0`.

Each seed makes a random program and applies random steps to it. Then the program must pass the
verifier and compute what it did before: interpreted, and, for some of them, compiled. A step may be
refused, with a `ScheduleError` that can be read, and in no other way. What fails is shrunk, by
leaving out steps that do not matter, and printed; the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from .case import Failure, run_case
from .shrink import shrunk


def main() -> int:
    """Run, print what was done, and say whether all was well."""
    options = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__.split("\n")[0])
    options.add_argument("--seconds", type=float, default=60.0, help="for how long (60)")
    options.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    options.add_argument("--count", type=int, default=1 << 40, help="at most so many seeds")
    options.add_argument("--compile-every", type=int, default=0, help="compile each n-th program")
    options.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    given = options.parse_args()
    end = time.monotonic() + given.seconds
    counts: Counter[str] = Counter()
    failures = 0
    seed = given.seed
    while time.monotonic() < end and seed - given.seed < given.count:
        every = given.compile_every
        failure = run_case(seed, counts, compiled=every > 0 and seed % every == 0)
        if failure is not None:
            failures += 1
            print(report(seed, failure), flush=True)
            if not given.keep_going:
                break
        seed += 1
    print(f"{seed - given.seed} programs, {failures} failures; steps:", dict(counts.most_common()))
    return 1 if failures else 0


def report(seed: int, failure: Failure) -> str:
    """A failure as text, with as few steps as it takes."""
    small = shrunk(failure)
    rule = "-" * 72
    parts = [f"seed {seed}: {small.what}", repr(small.func), small.trace.as_python()]
    if small.after is not None:
        parts.append(repr(small.after))
    return f"\n{rule}\n".join(parts) + f"\n{'=' * 72}"


if __name__ == "__main__":
    sys.exit(main())
