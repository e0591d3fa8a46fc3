"""Every operator for every kind of processor: `python -m tests.matrix --jobs 2`.

Each operator is compiled as it is written, by its default schedule, and by candidates of its
sketches. Each lowering pass must keep the structure of the program. The assembly must keep to the
registers and instructions of the processor; GNU's assembler, where it is installed, is told what
that has and must accept the text. Each processor has a child process of its own, because LLVM ends
the process where it has no code for something. What is wrong is printed; the exit status is 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.search import Search, SearchConfig
from tilewright.codegen.build import compile_func
from tilewright.target import CPUS, CpuTarget, Target
from tilewright.tir.ir import Func

from ..instructions import Assembler, beyond
from ..wellformed import keep_structure

PROCESSORS = (
    *("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "haswell", "broadwell", "alderlake"),
    *("skylake-avx512", "cascadelake", "cooperlake", "icelake-server"),
    *("sapphirerapids", "graniterapids"),
    *("znver1", "znver2", "znver3", "znver4", "znver5"),
    *("generic", "neoverse-n1", "neoverse-v1"),
    *("riscv64", "wasm32"),
)
"""Of each set of features in the table one at least, and of each family of processors."""
CASES: list[tuple[str, dict[str, Any]]] = [
    ("matmul_func", {"n": 17, "m": 50, "k": 9, "bias": True, "epilogue": "relu"}),
    ("matmul_func", {"n": 32, "m": 32, "k": 64, "dtype": "uint8", "dtype_b": "int8"}),
    ("matmul_func", {"n": 32, "m": 32, "k": 64, "dtype": "bfloat16"}),
    ("matmul_func", {"n": 9, "m": 33, "k": 8, "dtype": "float16"}),
    ("int8_matmul_func", {"n": 10, "m": 48, "k": 16}),
    ("conv2d_func", {"c": 4, "h": 8, "w": 9, "o": 16, "bias": True}),
    *(
        ("conv2d_func", {"c": 1, "h": 8, "w": 8, "o": 16, "kernel": 1, "padding": 0, "dtype": t})
        for t in ("int8", "uint8", "float16", "bfloat16")
    ),
    ("depthwise_conv2d_func", {"c": 5, "h": 8, "w": 17}),
    ("pool2d_func", {"c": 3, "h": 9, "w": 18}),
    ("softmax_func", {"n": 5, "m": 37}),
    ("log_softmax_func", {"n": 5, "m": 37}),
    ("logsumexp_func", {"n": 5, "m": 37}),
    ("concatenate_func", {"n": 5, "m": 7, "k": 19}),
    ("take_func", {"n": 9, "m": 37, "k": 11}),
    ("one_hot_func", {"n": 9, "m": 37}),
    ("layer_norm_func", {"n": 5, "m": 48}),
    ("activation_func", {"n": 131, "kind": "gelu"}),
    ("add_relu_func", {"n": 131}),
    ("transpose_func", {"n": 21, "m": 35}),
    ("transpose_func", {"n": 35, "m": 40, "dtype": "int8"}),
    ("reduction_func", {"n": 21, "m": 35, "axis": 1, "kind": "argmax"}),
    ("attention_func", {"batch": 1, "heads": 1, "sequence": 9, "dim": 16}),
]
SKETCHES = 3
"""Sketches of each operator, at most, one candidate of each."""
SHOWN = 4
"""Instructions of a program that are shown, at most."""


def main() -> int:
    """Compile, print what was done, and say whether all was well."""
    options = argparse.ArgumentParser(prog="tests.matrix", description=__doc__.split("\n")[0])
    options.add_argument("processors", nargs="*", help="names in the table of targets")
    options.add_argument("--jobs", type=int, default=1, help="in how many processes (1)")
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    unknown = [name for name in given.processors if name not in CPUS]
    if unknown or given.jobs < 1:
        options.error(f"unknown processors {unknown}" if unknown else f"--jobs {given.jobs}")
    names = given.processors or PROCESSORS
    if given.child:
        with pytest.MonkeyPatch.context() as patch:
            keep_structure(patch)
            return int(sum(map(check_processor, names)) > 0)
    with ThreadPoolExecutor(given.jobs) as pool:
        failures = sum(pool.map(run_child, names))
    print(f"{len(names)} processors, {len(CASES)} operators, {failures} failures")
    return int(failures > 0)


def run_child(name: str) -> int:
    """Check one processor in a process of its own; 1 if that fails or dies."""
    command = [sys.executable, "-m", "tests.matrix", "--child", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *begun, last = done.stdout.splitlines() or [f"{name}: did not begin"]
    died = done.returncode not in (0, 1)
    print(*(line for line in begun if not line.startswith("at ")), last, sep="\n")
    if done.returncode:
        print(f"{name}: exit status {done.returncode}{', at the line above' if died else ''}")
        print(done.stderr[-2000:])
    sys.stdout.flush()
    return int(done.returncode != 0)


def check_processor(name: str) -> int:
    """Print what is wrong with the code for a processor; how many programs are."""
    target = CpuTarget.named(name)
    target = target.with_threads(1 if target.serial else 2)
    assembler = Assembler(target)
    programs, wrong = 0, 0
    for operator, options in CASES:
        case = f"{operator}({', '.join(f'{k}={v!r}' for k, v in options.items())})"
        for schedule, func in schedules(getattr(ops, operator)(**options), target):
            print(f"at {name} {case} {schedule}", flush=True)
            text = compile_func(func, target).source("asm")
            faults = beyond(text, target)
            if assembler.present:
                faults += assembler.refused(text)
            programs += 1
            wrong += bool(faults)
            for fault in faults[:SHOWN]:
                print(f"{name} {case} {schedule}: {fault}")
    how = "assembled" if assembler.present else "not assembled: no assembler for it"
    print(f"{name}: {programs} programs, {wrong} with what it does not have; {how}")
    return wrong


def schedules(func: Func, target: Target) -> Iterator[tuple[str, Func]]:
    """The function as it is written and scheduled in some ways, with names."""
    yield "as written", func
    config = SearchConfig(model=False, random=0.0, temperature=0.0)  # that of `default_trace`
    search = Search(func, target, config=config)
    yield "default", search.ask(1)[0].trace.apply(func).func
    rng = np.random.default_rng(0)
    for sketch in search.sketches[:SKETCHES]:
        for row in Rowspace(sketch).sample(rng, 1):
            scheduled = sketch.trace.with_row(row.tolist()).apply(func)
            yield f"{sketch.name} {row.tolist()}", scheduled.func


if __name__ == "__main__":
    sys.exit(main())
