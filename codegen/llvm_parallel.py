"""Parallel loops: the body becomes a function that OpenMP's runtime calls in each thread.

The caller stores what the body needs in a context on its stack and calls `GOMP_parallel`. Each
thread runs `.region`, which takes its share of the iterations (one contiguous chunk) and calls
`.body` with pointers that are known not to alias. A loop in a parallel loop is serial.
"""

from __future__ import annotations

from ..errors import BuildError
from ..tir.ir import Buffer, For, Var
from ..tir.visit import walk
from .llvm_loop import loop
from .llvm_memory import allocate, finish, local_buffers
from .llvm_text import Builder, value_type


def parallel(b: Builder, s: For) -> None:
    """A loop whose iterations are shared among the target's threads."""
    if not isinstance(s.extent, int):
        raise BuildError("the extent of the parallel loop {0} is not a constant", s.var.name)
    if s.extent == 0:
        return
    buffers, variables = _captured(b, s)
    name = f"{b.module.name}.parallel{len(b.module.functions)}"
    types = [*["ptr"] * len(buffers), *(value_type(v.dtype) for v in variables)]
    context_type = f"{{ {', '.join(['i32', *types])} }}"
    body, may_fail = _body(b, s, name, buffers, variables)
    b.module.functions += [body, _region(b, s.extent, name, context_type, types)]
    b.module.parallel = True

    context = b.alloca(context_type, 1, 8)
    operands = ["0", *(b.pointers[x] for x in buffers), *(b.values[v][0] for v in variables)]
    for number, (t, operand) in enumerate(zip(["i32", *types], operands, strict=True)):
        b.do(f"store {t} {operand}, ptr {_field(b, context_type, context, number)}")
    threads = min(b.module.target.threads, s.extent)
    b.module.declare("GOMP_parallel", "declare void @GOMP_parallel(ptr, ptr, i32, i32)")
    b.do(f"call void @GOMP_parallel(ptr @{name}.region, ptr {context}, i32 {threads}, i32 0)")
    if may_fail:
        status = b.op(f"load i32, ptr {context}")
        going_on = b.new_block("joined")
        b.branch(b.op(f"icmp ne i32 {status}, 0"), b.failed, going_on)
        b.start(going_on)


def _captured(b: Builder, s: For) -> tuple[list[Buffer], list[Var]]:
    """Buffers and variables from outside that the loop's body uses, in order of appearance."""
    nodes = dict.fromkeys(walk(s.body))
    return (
        [n for n in nodes if type(n) is Buffer and n in b.pointers],
        [n for n in nodes if type(n) is Var and n in b.values],
    )


def _body(
    b: Builder, s: For, name: str, buffers: list[Buffer], variables: list[Var]
) -> tuple[str, bool]:
    """The function of iterations [begin, end), and whether it may run out of memory."""
    inner = Builder(b.module, in_parallel=True)
    parameters = ["i64 %begin", "i64 %end"]
    for number, buffer in enumerate(buffers):
        readonly = " readonly" if buffer in b.module.inputs else ""
        parameters.append(f"ptr noalias{readonly} captures(none) %p{number}")
        inner.pointers[buffer] = f"%p{number}"
    for number, v in enumerate(variables):
        parameters.append(f"{value_type(v.dtype)} %x{number}")
        inner.values[v] = (f"%x{number}", 0)
    heap = allocate(inner, local_buffers(s.body, into_parallel=True))
    loop(inner, s, "%begin", "%end", certain=False)
    finish(inner, heap)
    head = f"define internal i32 @{name}.body({', '.join(parameters)}) noinline #0"
    return f"{head} {{\n{inner.text()}\n}}", inner.may_fail


def _region(b: Builder, extent: int, name: str, context_type: str, types: list[str]) -> str:
    """The function that a thread runs: it finds its share of the iterations and does it."""
    for function in ("omp_get_thread_num", "omp_get_num_threads"):
        b.module.declare(function, f"declare i32 @{function}()")
    r = Builder(b.module, in_parallel=True)
    number = r.op(f"sext i32 {r.op('call i32 @omp_get_thread_num()')} to i64")
    count = r.op(f"sext i32 {r.op('call i32 @omp_get_num_threads()')} to i64")
    begin = r.op(f"sdiv i64 {r.op(f'mul i64 {number}, {extent}')}, {count}")
    following = r.op(f"add i64 {number}, 1")
    end = r.op(f"sdiv i64 {r.op(f'mul i64 {following}, {extent}')}, {count}")
    arguments = [f"i64 {begin}", f"i64 {end}"]
    for place, t in enumerate(types, 1):
        where = _field(r, context_type, "%context", place)
        arguments.append(f"{t} {r.op(f'load {t}, ptr {where}')}")
    status = r.op(f"call i32 @{name}.body({', '.join(arguments)})")
    failed, done = r.new_block("failed"), r.new_block("done")
    r.branch(r.op(f"icmp ne i32 {status}, 0"), failed, done)
    r.start(failed)
    r.do(f"store atomic i32 {status}, ptr %context monotonic, align 4")
    r.jump(done)
    r.start(done)
    r.block.end = "ret void"
    return f"define internal void @{name}.region(ptr %context) #0 {{\n{r.text()}\n}}"


def _field(b: Builder, context_type: str, context: str, number: int) -> str:
    return b.op(f"getelementptr {context_type}, ptr {context}, i32 0, i32 {number}")
