"""Programs to tune, and object code that misbehaves, written in LLVM's language.

Every kernel has the calling convention of `affine`: a pointer to the input of `SIZE` float32, then
one to the output, which should become twice the input and one more.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

from llvmlite import binding

from tilewright import Func, te
from tilewright.autotune.measure.measure_result import Kernel
from tilewright.autotune.measure.measurer import Built
from tilewright.codegen.calling_convention import signature_of

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
