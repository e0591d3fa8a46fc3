"""`python -m tests.lab.ending DATABASE`: a lab measures while that is locked."""

from __future__ import annotations

import sys
from pathlib import Path

import tilewright as tw

from .test_measuring import lab, measured_while_locked, unlock


def main(file: Path) -> None:
    """Measure, and end without closing the lab once the database is free again."""
    bench = next(lab(tw.TuningDatabase(f"sqlite:///{file}?timeout=0")))
    unlock(measured_while_locked(bench, file))
    print("unsaved", bench.state()["run"]["unsaved"], flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
