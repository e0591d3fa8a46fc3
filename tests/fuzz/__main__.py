"""Random schedules for as long as you like: `python -m tests.fuzz --seconds 60 --seed 0`.

Each seed makes a random program and applies random steps to it. Then the program must pass the
verifier and compute what it did before: interpreted, and, for some of them, compiled. Sketch rules
must schedule it, or leave it as it is, and a candidate of theirs compute the same. A step may be
refused, with a `ScheduleError` that can be read, and in no other way. What fails is shrunk, by
leaving out steps that do not matter, and printed; the exit status is 1. Ctrl-C ends the run with
the summary of what was done so far.

With `--gpu`, loops are bound to axes of a GPU as well, and the emulator runs the launches: what
lowering does not refuse computes the same, without a race. With `--compile-every` too, the text of
some kernels runs on this processor.

`python -m tests.fuzz graph` makes random graphs instead: each must have a text that parses back,
and its reference and its compiled program must compute what was expected as it was made. Examples
of the rules of passes are changed as well, and passes must keep what these compute.
"""

from __future__ import annotations

import argparse
import signal
import sys

import pytest

from ..codegen.cuda.host_run import toolkit
from .campaign import Outcome, Plan, run


def main() -> int:
    """Run, print what was done, and say whether all was well."""
    options = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__.split("\n")[0])
    options.add_argument("what", nargs="?", choices=("program", "graph"), default="program")
    options.add_argument("--seconds", type=float, default=60.0, help="for how long (60)")
    options.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    options.add_argument("--count", type=int, default=1 << 40, help="at most so many seeds")
    options.add_argument("--steps", type=int, default=1 << 40, help="at most so many changes")
    options.add_argument("--jobs", type=int, default=1, help="in how many processes (1)")
    options.add_argument(
        "--compile-every", type=int, help="compile each n-th program (none), or graph (all)"
    )
    options.add_argument("--gpu", action="store_true", help="bind loops to axes, and emulate")
    options.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    given = options.parse_args()
    if given.jobs < 1:
        options.error(f"--jobs {given.jobs}; expected at least 1")
    graphs = given.what == "graph"
    if given.compile_every is None:
        given.compile_every = int(graphs)
    if given.gpu and graphs:
        options.error("graphs are not run by the emulator")
    if given.gpu and given.compile_every:
        try:
            toolkit()
        except pytest.skip.Exception as reason:
            print(f"no text of kernels is run: {reason}", flush=True)
            given.compile_every = 0
    plan = Plan(given.compile_every, given.keep_going, given.gpu, graphs)
    seeds = range(given.seed, given.seed + given.count)
    done = Outcome()
    interrupted = False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    outcomes = run(seeds, plan, given.seconds, given.jobs)
    try:
        for outcome in outcomes:
            done.add(outcome)
            for text in outcome.failures:
                print(text, flush=True)
            if done.failures and not given.keep_going:
                break
            if done.tally.changes.total() >= given.steps:
                break
    except KeyboardInterrupt:
        interrupted = True
    outcomes.close()
    print(done.summary())
    return 130 if interrupted else 1 if done.failures else 0


if __name__ == "__main__":
    sys.exit(main())
