"""Programs to tune, and object code that misbehaves, written in LLVM's language.

Every kernel has the calling convention of `affine`: a pointer to the input of `SIZE` float32, then
one to the output, which should become twice the input and one more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from llvmlite import binding

from tilewright import Func, te
from tilewright.autotune.measure.measure_result import Kernel
from tilewright.autotune.measure.worker_pool import Built
from tilewright.codegen.build import compile_func
from tilewright.codegen.calling_convention import signature_of
from tilewright.tir.ir import Expr

SIZE = 256

_BODIES = {
    "right": "ret i32 0",
    "null": "store volatile i32 0, ptr null\n  ret i32 0",
    "hang": "br label %again\nagain:\n  store volatile i32 0, ptr %cell\n  br label %again",
    "abort": "call i32 @puts(ptr @said)\n  call i32 @fflush(ptr null)\n  call void @abort()\n"
    "  ret i32 0",
    "hog": "ret i32 0",
    "strange": "ret i32 7",
    "exit": "call void @exit(i32 3)\n  ret i32 0",
    "stray": f"%past = getelementptr float, ptr %b, i64 {SIZE}\n"
    "  store volatile float 1.0, ptr %past\n  ret i32 0",
    "wrong": "%one = getelementptr float, ptr %b, i64 5\n"
    "  store volatile float 1.0e4, ptr %one\n  ret i32 0",
    "slow": "call i32 @usleep(i32 20000)\n  ret i32 0",
    "sleep": "call i32 @usleep(i32 900000000)\n  ret i32 0",
    "unresolved": "call i32 @there_is_no_such_function(i32 0)\n  ret i32 0",
}

_MODULE = """
@said = private constant [19 x i8] c"I give up, goodbye\\00"
declare i32 @puts(ptr)
declare i32 @fflush(ptr)
declare void @abort()
declare void @exit(i32)
declare i32 @usleep(i32)
declare i32 @there_is_no_such_function(i32)
define i32 @affine(ptr %a, ptr %b) {{
entry:
  %cell = alloca i32
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %a, i64 %i
  %to = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %from
  %y = fadd float %x, %x
  %z = fadd float %y, 1.0
  store float %z, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {count}
  br i1 %more, label %loop, label %done
done:
  {body}
}}
"""


def affine(size: int = SIZE) -> Func:
    a = te.placeholder((size,), name="A")
    return te.func([a, te.compute((size,), lambda i: a[i] * 2.0 + 1.0, name="B")], name="affine")


def matmul(n: int = 16) -> Func:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis(n, name="r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.func([a, b, c], name="matmul")


@cache
def kernel(kind: str) -> Built:
    """A kernel for `affine` that behaves as `kind` says, as a builder would give it."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(_MODULE.format(body=_BODIES[kind], count=SIZE))
    machine = binding.Target.from_default_triple().create_target_machine(reloc="pic")
    signature = signature_of(affine())
    if kind == "hog":
        signature = replace(signature, workspace_bytes=1 << 32)
    text = json.dumps(signature.to_json())
    return Built(Kernel(machine.emit_object(module), (), text), 0.0)


def centred_sums(
    dtype: str = "float32", pieces: int = 1, terms: int = 768, rows: int = 64, n: int = 768
) -> Func:
    """P[i], the sum of `terms` of X[i, k] less the mean of its row of `n`: of all, it is 0.

    The sums are of `pieces` that are summed up first.
    """
    a = te.placeholder((rows, n), dtype, name="X")

    def total(name: str, count: int, term: Callable[[Expr, Expr], Expr]) -> te.Tensor:
        r, c = te.reduce_axis(count // pieces, name="r"), te.reduce_axis(pieces, name="c")
        part = te.compute(
            (rows, pieces),
            lambda i, j: te.sum(term(i, j * (count // pieces) + r), axis=r),
            name=f"{name}_part",
        )
        return te.compute((rows,), lambda i: te.sum(part[i, c], axis=c), name=name)

    mean = total("S", n, lambda i, k: a[i, k])
    return te.func([a, total("P", terms, lambda i, k: a[i, k] - mean[i] / n)], name="centred_sums")


def compiled(func: Func) -> Built:
    """The kernel of a program as it is, as a builder would give it."""
    code = compile_func(func, "cpu -threads=1")
    text = json.dumps(code.signature.to_json())
    return Built(Kernel(code.image, code.launches, text), 0.0)
