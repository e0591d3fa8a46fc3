"""`python -m tilewright.runtime.measure FOLDER --out results.jsonl --seconds N`.

Measures the pack in a folder with numpy alone, on GPUs with pycuda. Exit status: 0 if each
candidate has a result, 3 if some are left, 1 if the pack, the results or the machine are refused.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from ...base.errors import TilewrightError
from ...base.process import end_with_parent


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.runtime.measure", description=__doc__
    )
    parser.add_argument("folder", type=Path, nargs="?", help="what `tilewright measure pack` wrote")
    parser.add_argument("--out", type=Path, help="the file of results, a line at a time")
    parser.add_argument("--seconds", type=float, help="begin no candidate after so many seconds")
    parser.add_argument("--bench", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--replies", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bench is not None:
        end_with_parent(options.parent)  # a kernel may never end
        return _bench(options.bench, options.replies)
    if options.folder is None or options.out is None:
        parser.error("expected FOLDER and --out")
    from .supervisor import measure

    try:
        results = measure(
            options.folder,
            options.out,
            seconds=options.seconds,
            tell=_tell,
        )
    except TilewrightError as error:
        sys.stderr.write(f"tilewright: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command goes on\n")
        return 130
    return 3 if results.missing else 0


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _bench(folder: Path, replies: int) -> int:
    """The process that measures: answers messages, a line each, until its input ends."""
    from .packed import PackedBench

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks ends this process
    with os.fdopen(replies, "wb") as out:
        bench: PackedBench | None = None
        for line in sys.stdin.buffer:
            try:
                bench = bench or PackedBench(folder)
                answer = bench.answer(json.loads(line))
            except TilewrightError as error:
                answer = {"refused": str(error)}
            out.write(json.dumps(answer).encode() + b"\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
