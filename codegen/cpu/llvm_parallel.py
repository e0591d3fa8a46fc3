"""Emit parallel loops: the body becomes a function that OpenMP's runtime calls in each thread.

The caller stores what the body needs in a context on its stack and calls `GOMP_parallel`. Each
thread runs `.region`, which calls `.body` with pointers that are known not to alias. A parallel
loop inside a parallel loop is serial.

Each thread has a contiguous share of the iterations and takes a few at a time. A thread that has
finished its share takes iterations from the next one's. A slow or preempted processor therefore
does not hold up the others, and on a quiet machine each thread touches the same memory in every
loop, as with static scheduling.

The object file has a variable, a pointer to an integer, that the loader may set
(`runtime.openmp.connect`). If the integer is not 0, the process has no thread team: the caller
runs `.region` itself, without OpenMP's runtime, as the only thread.
"""

from __future__ import annotations

from ...errors import BuildError
from ...tir.ir import Buffer, For, Var
from ...tir.visit import distinct
from .llvm_loop import loop
from .llvm_memory import allocate, finish, local_buffers
from .llvm_text import Builder, value_type

_CHUNKS = 8
"""In how many portions a thread takes its share."""
_LINE = 64
"""Bytes from one thread's counter to the next: two in one cache line slow each other down."""


def parallel(b: Builder, s: For) -> None:
    """A loop whose iterations are shared among the target's threads."""
    if not isinstance(s.extent, int):
        raise BuildError("the extent of the parallel loop {0} is not a constant", s.var.name)
    if s.extent == 0:
        return
    buffers, variables = _captured(b, s)
    name = f"{b.module.name}.parallel{len(b.module.functions)}"
    types = [*["ptr"] * len(buffers), *(value_type(v.dtype) for v in variables)]
    threads = min(b.module.target.threads, s.extent)
    context_type = f"{{ {', '.join(['i32', 'ptr', *types])} }}"
    body, may_fail = _body(b, s, name, buffers, variables, max(1, s.extent // (threads * _CHUNKS)))
    b.module.functions += [body, _region(b, name, context_type, types)]
    b.module.parallel = True

    context = b.alloca(context_type, 1, 8)
    counters = b.alloca("i8", threads * _LINE, _LINE)
    for number in range(threads):
        b.do(f"store i64 0, ptr {b.op(f'getelementptr i8, ptr {counters}, i64 {number * _LINE}')}")
    captured = [*(b.pointers[x] for x in buffers), *(b.values[v][0] for v in variables)]
    fields = zip(["i32", "ptr", *types], ["0", counters, *captured], strict=True)
    for number, (t, operand) in enumerate(fields):
        b.do(f"store {t} {operand}, ptr {_field(b, context_type, context, number)}")
    b.module.declare("GOMP_parallel", "declare void @GOMP_parallel(ptr, ptr, i32, i32)")
    team, alone = b.new_block("team"), b.new_block("alone")
    going_on = b.new_block("joined")  # knows nothing of what memory held before
    b.branch(b.op(f"icmp eq i32 {_refused(b)}, 0"), team, alone)
    b.start(team)
    b.do(f"call void @GOMP_parallel(ptr @{name}.region, ptr {context}, i32 {threads}, i32 0)")
    b.jump(going_on)
    b.start(alone)
    b.do(f"call void @{name}.region(ptr {context})")
    b.jump(going_on)
    b.start(going_on)
    if may_fail:
        status = b.op(f"load i32, ptr {context}")
        succeeded = b.new_block("succeeded")
        b.branch(b.op(f"icmp ne i32 {status}, 0"), b.failed, succeeded)
        b.start(succeeded)


def _refused(b: Builder) -> str:
    """0 where a team may be made. The variable is one for all functions of an object file."""
    allowed = f"{b.module.name}.allowed"
    b.module.declare(allowed, f"@{allowed} = internal constant i32 0")
    variable = b.module.teams
    b.module.declare(variable, f"@{variable} = weak protected global ptr @{allowed}")
    return b.op(f"load i32, ptr {b.op(f'load ptr, ptr @{variable}')}")


def _captured(b: Builder, s: For) -> tuple[list[Buffer], list[Var]]:
    """Buffers and variables from outside that the loop's body uses, in order of appearance."""
    nodes = list(distinct(s.body))
    return (
        [n for n in nodes if type(n) is Buffer and n in b.pointers],
        [n for n in nodes if type(n) is Var and n in b.values],
    )


def _body(
    b: Builder, s: For, name: str, buffers: list[Buffer], variables: list[Var], portion: int
) -> tuple[str, bool]:
    """The function of thread `number` of `count`, and whether it may run out of memory."""
    inner = Builder(b.module, in_parallel=True)
    parameters = ["ptr %counters", "i64 %number", "i64 %count"]
    for number, buffer in enumerate(buffers):
        readonly = " readonly" if buffer in b.module.inputs else ""
        parameters.append(f"ptr noalias{readonly} captures(none) %p{number}")
        inner.pointers[buffer] = f"%p{number}"
    for number, v in enumerate(variables):
        parameters.append(f"{value_type(v.dtype)} %x{number}")
        inner.values[v] = (f"%x{number}", 0)
    heap = allocate(inner, local_buffers(s.body, into_parallel=True))
    _iterations(inner, s, portion)
    finish(inner, heap)
    head = f"define internal i32 @{name}.body({', '.join(parameters)}) noinline #0"
    return f"{head} {{\n{inner.text()}\n}}", inner.may_fail


def _iterations(b: Builder, s: For, portion: int) -> None:
    """The loops over the shares, the thread's own first, and over the portions of a share.

    A counter says how many iterations of its share are taken.
    """
    turn = b.alloca("i64", 1, 8)
    share, take, work = b.new_block("share"), b.new_block("take"), b.new_block("work")
    help_next, joined = b.new_block("help"), b.new_block("shared")
    b.do(f"store i64 0, ptr {turn}")
    b.jump(share)

    b.start(share)
    turns = b.op(f"load i64, ptr {turn}")
    owner = b.op(f"urem i64 {b.op(f'add i64 %number, {turns}')}, %count")
    begin = b.op(f"udiv i64 {b.op(f'mul i64 {owner}, {s.extent}')}, %count")
    following = b.op(f"add i64 {owner}, 1")
    end = b.op(f"udiv i64 {b.op(f'mul i64 {following}, {s.extent}')}, %count")
    offset = b.op(f"mul i64 {owner}, {_LINE}")
    counter = b.op(f"getelementptr i8, ptr %counters, i64 {offset}")
    b.jump(take)

    b.start(take)
    taken = b.op(f"atomicrmw add ptr {counter}, i64 {portion} monotonic, align 8")
    first = b.op(f"add i64 {begin}, {taken}")
    b.branch(b.op(f"icmp slt i64 {first}, {end}"), work, help_next)

    b.start(work)
    limit = b.op(f"add i64 {first}, {portion}")
    short = b.op(f"icmp slt i64 {limit}, {end}")
    limit = b.op(f"select i1 {short}, i64 {limit}, i64 {end}")
    loop(b, s, first, limit, certain=True)
    b.jump(take)

    b.start(help_next)
    turns = b.op(f"add i64 {turns}, 1")
    b.do(f"store i64 {turns}, ptr {turn}")
    b.branch(b.op(f"icmp slt i64 {turns}, %count"), share, joined)
    b.start(joined)


def _region(b: Builder, name: str, context_type: str, types: list[str]) -> str:
    """The function that each thread runs."""
    for function in ("omp_get_thread_num", "omp_get_num_threads"):
        b.module.declare(function, f"declare i32 @{function}()")
    r = Builder(b.module, in_parallel=True)
    number = r.op(f"sext i32 {r.op('call i32 @omp_get_thread_num()')} to i64")
    count = r.op(f"sext i32 {r.op('call i32 @omp_get_num_threads()')} to i64")
    counters = r.op(f"load ptr, ptr {_field(r, context_type, '%context', 1)}")
    arguments = [f"ptr {counters}", f"i64 {number}", f"i64 {count}"]
    for place, t in enumerate(types, 2):
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
