"""Page faults of calls: of workspaces, which are kept, and of new outputs, which are if asked."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

NUMBERS = 262144
PAGES = NUMBERS * 4 // resource.getpagesize()
CALLS = """
import resource
import sys
import numpy as np
import tilewright as tw
from tilewright.runtime import keep_freed_memory
from tilewright.tir.parser import parse

func = parse('''
def f(A: T.Buffer((262144,), "float32"), C: T.Buffer((262144,), "float32")):
    B = T.alloc((262144,), "float32")
    for i in range(262144):
        B[i] = A[i] + 1.0
    for i in range(262144):
        C[262143 - i] = B[i]
''')
new, ask = "new" in sys.argv, "ask" in sys.argv
if ask:
    keep_freed_memory()
module = tw.build(tw.Schedule(func), "cpu -threads=1")
assert module.workspace_bytes == 4 * 262144
a, c = np.ones(262144, np.float32), np.empty(262144, np.float32)

def call():
    outputs = [np.empty(262144, np.float32) if new else c for _ in range(8)]
    for c_new in outputs:
        module(a, c_new)

for _ in range(3):
    call()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    call()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""


def faults(*options: str, **settings: str) -> int:
    """Page faults of eight calls, in a process of its own."""
    tunables = ("MALLOC_", "GLIBC_TUNABLES", "NUMPY_MADVISE")
    env = {k: v for k, v in os.environ.items() if not k.startswith(tunables)}
    env |= {"NUMPY_MADVISE_HUGEPAGE": "0", **settings}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, *options], env=env, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


linux = pytest.mark.skipif(sys.platform != "linux", reason="this is about glibc")


@linux
def test_a_workspace_is_kept_whatever_the_allocator_does() -> None:
    assert faults(MALLOC_MMAP_THRESHOLD_="65536") < PAGES // 8


@linux
def test_a_module_leaves_the_allocator_as_it_is() -> None:
    assert faults("new") >= 8 * PAGES // 2


@linux
def test_what_is_freed_is_kept_if_asked() -> None:
    assert faults("new", "ask") < PAGES // 8


@linux
def test_settings_of_the_user_stay() -> None:
    assert faults("new", "ask", MALLOC_MMAP_THRESHOLD_="65536") >= 8 * PAGES // 2
