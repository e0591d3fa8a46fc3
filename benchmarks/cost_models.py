"""The cost models compared with a peer's: `python -m benchmarks.cost_models [DATABASE ...]`.

`tilewright model report`, with the cost model of the leading tuner as one more method. Without a
database the programs that come with the package are judged.
"""

from __future__ import annotations

import argparse

from tilewright.autotune.model import assess, samples
from tilewright.cli.report import print_assessment
from tilewright.tuning_db import TuningDatabase

from .metaschedule import ThroughputModel

KIND = "cpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("databases", nargs="*")
    parser.add_argument("--folds", type=int, default=8, help="base models trained")
    options = parser.parse_args()
    own = [s for path in options.databases for s in samples.sweeps_of(TuningDatabase(path), KIND)]
    learned = samples.featurise(samples.merged(own, samples.shipped(KIND)), KIND)
    sessions = {s.session for s in own} or {t.session for t in learned.tasks}
    judged = [n for n, task in enumerate(learned.tasks) if task.session in sessions]
    peers = {"metaschedule": ThroughputModel}
    print_assessment(assess.assess(learned, judged, folds=options.folds, peers=peers))


if __name__ == "__main__":
    main()
