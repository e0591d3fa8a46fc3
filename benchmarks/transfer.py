"""The trials that transfer saves: `python -m benchmarks.transfer --first 512,512,512 --second ...`.

Tunes a matrix product of other sizes, then the second one twice: from nothing with `--trials`, and
after the first one with `--few`. The kernels and that of zero trials are timed interleaved.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright import ops
from tilewright.runtime import time_interleaved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", default="512,512,512", help="n,m,k that are tuned before")
    parser.add_argument("--second", default="448,640,384", help="n,m,k of interest")
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--few", type=int, default=32)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    first = product(options.first)
    n, m, k = map(int, options.second.split(","))
    second = product(options.second)
    with tempfile.TemporaryDirectory() as folder:
        alone = tw.TuningDatabase(Path(folder) / "alone.db")
        related = tw.TuningDatabase(Path(folder) / "related.db")
        tw.tune(second, options.target, database=alone, trials=options.trials)
        tw.tune(first, options.target, database=related, trials=options.trials)
        modules = {"other sizes, 0 trials": tw.build(second, options.target, related)}
        tw.tune(second, options.target, database=related, trials=options.few)
        modules[f"other sizes, {options.few} trials"] = tw.build(second, options.target, related)
        modules[f"alone, {options.trials} trials"] = tw.build(second, options.target, alone)
    rng = np.random.default_rng(0)
    a, b = rng.random((n, k), np.float32), rng.random((k, m), np.float32)
    bound = [module.bind(a, b, np.empty((n, m), np.float32)) for module in modules.values()]
    timed = [t.median for t in time_interleaved(bound, rounds=options.rounds)]
    for (name, module), seconds in zip(modules.items(), timed, strict=True):
        print(
            f"{name:24} {seconds * 1e3:10.4g} ms  {timed[-1] / seconds:6.2f}  {module.origin.kind}"
        )


def product(sizes: str) -> tw.Func:
    n, m, k = map(int, sizes.split(","))
    return ops.matmul_func(n, m, k)


if __name__ == "__main__":
    main()
