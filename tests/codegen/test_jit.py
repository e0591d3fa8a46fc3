"""Code that is unloaded leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys

CHILD = """
import psutil
from tilewright import ops
from tilewright.codegen.build import compile_func, to_module

compiled = compile_func(ops.add_relu_func(64), "cpu -threads=1")

def load(count):
    for _ in range(count):
        to_module(compiled)
    return psutil.Process().memory_info().rss

before = load(64)
print(load(256) - before)
"""


def test_what_is_loaded_and_dropped_leaves_no_memory() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 256 * 2048
