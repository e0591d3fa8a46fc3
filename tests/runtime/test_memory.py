"""Calls of a kernel take the memory that the call before has freed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

CALLS = """
import resource
import numpy as np
import tilewright as tw
from tilewright.tir.parser import parse

func = parse('''
def f(A: T.Buffer((262144,), "float32"), C: T.Buffer((262144,), "float32")):
    B = T.alloc((262144,), "float32")
    for i in range(262144):
        B[i] = A[i] + 1.0
    for i in range(262144):
        C[262143 - i] = B[i]
''')
module = tw.build(tw.Schedule(func), "cpu -threads=1")
a, c = np.ones(262144, np.float32), np.empty(262144, np.float32)
for _ in range(3):
    module(a, c)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    module(a, c)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""


def faults(**settings: str) -> int:
    """Page faults of a call, in a process of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")} | settings
    done = subprocess.run(
        [sys.executable, "-c", CALLS], env=env, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="this is about glibc")
def test_pages_are_taken_once() -> None:
    pages = 262144 * 4 // resource.getpagesize()
    assert faults() < pages // 8


@pytest.mark.skipif(sys.platform != "linux", reason="this is about glibc")
def test_settings_of_the_user_stay() -> None:
    pages = 262144 * 4 // resource.getpagesize()
    assert faults(MALLOC_MMAP_THRESHOLD_="65536") >= pages // 2
