"""Code that is unloaded leaves nothing behind, and code loads wherever memory is left."""

from __future__ import annotations

import subprocess
import sys

import pytest

DROPPED = """
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

# What a process looks like that has mapped gigabytes of weights and dropped many small blocks: the
# holes above the weights hold a page, so that larger sections land below the weights.
FULL = """
import ctypes
from llvmlite import binding
from tilewright.codegen.cpu.jit import load_object
from tilewright.codegen.cpu.llvm import initialize

initialize()
table = ", ".join(f"i32 {i}" for i in range(16384))
module = binding.parse_assembly(f'''
@table = internal constant [16384 x i32] [{table}]
define i32 @entry(i64 %at) {{
  %place = getelementptr [16384 x i32], ptr @table, i64 0, i64 %at
  %value = load i32, ptr %place
  ret i32 %value
}}''')
target = binding.Target.from_default_triple()
machine = target.create_target_machine(reloc="pic", codemodel="default")
code = machine.emit_object(module)

def loaded():
    found = load_object(code, ["entry"], {})
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long)(found.addresses[0])(77) == 77
    return found

mmap = ctypes.CDLL(None).mmap
mmap.restype = ctypes.c_void_p
mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
PAGE, RESERVE, FIXED = 4096, 0x4022, 0x100000

kept = [loaded()]
weights = mmap(None, 8 << 30, 0, RESERVE, -1, 0)
lines = open("/proc/self/maps").read().splitlines()
spans = [[int(end, 16) for end in line.split()[0].split("-")] for line in lines]
for (_, end), (start, _) in zip(spans, spans[1:]):
    if weights <= end < start - PAGE and start < 1 << 47:
        mmap(end + PAGE, start - end - PAGE, 0, RESERVE | FIXED, -1, 0)
kept += [loaded() for _ in range(20)]
"""


def test_what_is_loaded_and_dropped_leaves_no_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 256 * 2048


@pytest.mark.skipif(sys.platform != "linux", reason="reads the map of the process's memory")
def test_sections_of_a_kernel_stay_near_each_other() -> None:
    subprocess.run([sys.executable, "-c", FULL], check=True)
