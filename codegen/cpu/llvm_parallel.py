"""Emit parallel loops: the body becomes a function that each thread of a team calls.

The caller stores what the body needs in a context on its stack and calls `GOMP_parallel`. Each
thread runs `.region`, which calls `.body` with pointers that are known not to alias. A parallel
loop inside a parallel loop is serial. If the body has buffers that do not fit on the stack, the
context has memory for all threads, of which thread 1 takes the second part.

Each thread has a contiguous share of the iterations and takes a few at a time. A thread that has
finished its share takes iterations from the next one's. A slow or preempted processor therefore
does not hold up the others, and on a quiet machine each thread touches the same memory in every
loop, as with static scheduling. Few iterations of which some have less to do, such as tiles at a
border, are one share that all threads take from: it ends evenly whichever is whose.

Each thread has a line of the cache, since two that write to one line slow each other down:

    | byte | content |
    | --- | --- |
    | 0 | the counter of its share: an integer, the iterations that are taken of it by any thread |
    | 8 | an integer: the iterations that the thread ran, of any share |
    | 16 | a double: the seconds that these took |
    | 24 | a double: the time at which the thread began |

The caller runs `.body` alone, as the only thread, while teams lose time. On busy processors a
thread that began may be away for milliseconds, and the barriers of OpenMP's own runtimes wait even
for those that did not begin (`thread_teams.py`). Each loop therefore has an account: the seconds
that it takes alone, and a balance in such calls.

- A team adds the share of the iterations that others ran. It subtracts what the caller waited for
  others after it had run iterations itself.
- When the balance becomes negative, the caller runs the loop alone for some calls: its patience.
  Then teams have a balance of `_GRANT` again, as at the beginning.
- Patience begins at `_SHORTEST` calls, doubles each time up to `_LONGEST`, and becomes shorter with
  what teams gain.

Where teams lose on average, they therefore cost a share of about `_GRANT / _LONGEST` of the time.
Where they gain, the balance stays positive, and a single late thread changes nothing. What was
wrong for a moment, such as the first calls of a program beside a thread pool that still spins, is
forgotten after a few calls.

To wake threads takes the caller longer than many a loop, and pays only if loops follow while they
are awake. A second balance of the same kind subtracts the time that it takes to begin. While it is
negative, the loop is offered to threads that are awake (`AWAKE`), which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.ir import Buffer, For, If, Let, Var
from ...tir.visit import distinct
from .llvm_loop import loop
from .llvm_memory import (
    STACK_BUFFER_BYTES,
    finish,
    release_slot,
    slot_parameters,
    slot_pointers,
    take_slot,
)
from .llvm_text import Builder, calling, constant, value_type

_CHUNKS = 8
"""In how many portions a thread takes its share."""
_LINE, _RAN, _SECONDS, _BEGAN = 64, 8, 16, 24
"""Bytes of the line of a thread, and where its numbers are."""
AWAKE = 1 << 8
"""The flag of a loop for which no thread is woken or made. OpenMP's runtimes ignore it."""
_GRANT, _CREDIT = 8.0, 64.0
"""The balance with which teams begin, and the largest. A negative one counts the calls alone."""
_SHORTEST, _LONGEST = 16.0, 512.0
"""For how many calls a loop is alone when its balance has become negative."""
_LESS = 16.0
"""By how many calls this becomes shorter with each call that teams gain."""
_PATIENCE, _WAKING, _ALONE = 8, 16, 32
"""Where a balance has its patience, and an account the balance of waking and the seconds alone."""


def parallel(b: Builder, s: For) -> None:
    """A loop whose iterations are shared among the target's threads."""
    assert isinstance(s.extent, int), "lowering takes concrete programs"
    if s.extent == 0:
        return
    buffers, variables = _captured(b, s)
    name = f"{b.module.name}.parallel{len(b.module.functions)}"
    types = [*["ptr"] * len(buffers), *(value_type(v.dtype) for v in variables)]
    threads = min(b.module.target.threads, s.extent)
    body, slots = _body(b, s, name, buffers, variables, max(1, s.extent // (threads * _CHUNKS)))
    b.module.functions += [body, _region(b, name, types, slots)]
    b.module.parallel = True

    counters, in_slot = _counters(b, threads)
    b.module.declare("llvm.memset", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    size = threads * _LINE
    b.do(f"call void @llvm.memset.p0.i64(ptr align {_LINE} {counters}, i8 0, i64 {size}, i1 false)")
    captured = [*(b.pointers[x] for x in buffers), *(b.values[v][0] for v in variables)]
    workspace = [take_slot(b, threads * sum(slots))] if slots else []
    b.module.declare("GOMP_parallel", "declare void @GOMP_parallel(ptr, ptr, i32, i32)")
    team, alone = b.new_block("team"), b.new_block("alone")
    going_on = b.new_block("joined")  # knows nothing of what memory held before
    for bound in ("maxnum", "minnum"):
        intrinsic = f"llvm.{bound}.f64"
        b.module.declare(intrinsic, f"declare double @{intrinsic}(double, double)")
    account = f"@{name}.account"
    balance = f"double {_double(_GRANT)}, double {_double(_SHORTEST)}"
    values = f"{{ {balance}, {balance}, double 0.0 }}"
    state = "{ double, double, double, double, double }"
    b.module.declare(account, f"{account} = internal global {state} {values}, align {_LINE}")
    b.branch(b.op(f"fcmp oge double {b.op(_load(account))}, 0.0"), team, alone)

    b.start(team)
    fields = _fields(types, slots)
    context = b.alloca(_struct(fields), 1, 8)
    for number, operand in enumerate([counters, *captured, *workspace]):
        b.do(f"store {fields[number]} {operand}, ptr {_field(b, fields, context, number)}")
    waking = b.op(_load(b.op(f"getelementptr i8, ptr {account}, i64 {_WAKING}")))
    flags = b.op(f"select i1 {b.op(f'fcmp oge double {waking}, 0.0')}, i32 0, i32 {AWAKE}")
    began = b.op(calling(b, "omp_get_wtime", "double"))
    b.do(f"call void @GOMP_parallel(ptr @{name}.region, ptr {context}, i32 {threads}, i32 {flags})")
    ended = b.op(calling(b, "omp_get_wtime", "double"))
    ran = b.op(f"load i64, ptr {b.op(f'getelementptr i8, ptr {counters}, i64 {_RAN}')}")
    worked, own = (
        b.op(f"load double, ptr {b.op(f'getelementptr i8, ptr {counters}, i64 {place}')}")
        for place in (_SECONDS, _BEGAN)
    )
    share = b.op(f"fdiv double {b.op(f'uitofp i64 {ran} to double')}, {_double(s.extent)}")
    until = b.op(f"fsub double {own}, {began}")
    waited = b.op(f"fsub double {b.op(f'fsub double {ended}, {own}')}, {worked}")
    amounts = f"double {worked}, double {share}, double {until}, double {waited}"
    b.do(f"call void @{_settle(b)}(ptr {account}, {amounts})")
    b.jump(going_on)

    b.start(alone)
    _call(b, name, counters, ("0", "1"), _typed(types, captured), slots, workspace)
    b.do(f"call void @{_settle(b)}.enter(ptr {account}, double 0.0)")
    b.jump(going_on)
    b.start(going_on)
    for _ in range(bool(slots) + in_slot):
        release_slot(b)


def _counters(b: Builder, threads: int) -> tuple[str, bool]:
    """The counters of a loop, and whether they are a slot: many threads have too many for a stack.

    All loops of a function share those on its stack: they run one after the other.
    """
    size = threads * _LINE
    if size > STACK_BUFFER_BYTES:
        return take_slot(b, size), True
    if b.counters is None:
        most = min(b.module.target.threads * _LINE, STACK_BUFFER_BYTES)
        b.counters = b.alloca("i8", most, _LINE)
        b.stack_bytes += most
    return b.counters, False


def _captured(b: Builder, s: For) -> tuple[list[Buffer], list[Var]]:
    """Buffers and variables from outside that the loop's body uses, in order of appearance."""
    nodes = list(distinct(s.body))
    return (
        [n for n in nodes if type(n) is Buffer and n in b.pointers],
        [n for n in nodes if type(n) is Var and n in b.values],
    )


def _body(
    b: Builder, s: For, name: str, buffers: list[Buffer], variables: list[Var], portion: int
) -> tuple[str, list[int]]:
    """The function of thread `number` of `count`, and the slots of the workspace that it takes."""
    inner = Builder(b.module, in_parallel=True)
    parameters = ["ptr %counters", "i64 %number", "i64 %count"]
    for number, buffer in enumerate(buffers):
        readonly = " readonly" if buffer in b.module.inputs else ""
        parameters.append(f"ptr noalias{readonly} captures(none) %p{number}")
        inner.pointers[buffer] = f"%p{number}"
    for number, v in enumerate(variables):
        parameters.append(f"{value_type(v.dtype)} %x{number}")
        inner.values[v] = (f"%x{number}", 0)
    _iterations(inner, s, portion, common=portion == 1 and _is_uneven(s))
    finish(inner, "ret void")
    parameters += slot_parameters(inner.slots)
    head = f"define internal void @{name}.body({', '.join(parameters)}) noinline #0"
    return f"{head} {{\n{inner.text()}\n}}", inner.slots


def _is_uneven(s: For) -> bool:
    """Whether a condition on the loop's variable stands in its body.

    Then some iterations may have less to do than others, and all threads take from one share.
    """
    known = {s.var}
    for n in distinct(s.body):  # what is bound comes before what uses it
        if type(n) is Let and not known.isdisjoint(distinct(n.value)):
            known.add(n.var)
        elif type(n) is If and not known.isdisjoint(distinct(n.cond)):
            return True
    return False


def _iterations(b: Builder, s: For, portion: int, *, common: bool) -> None:
    """The loops over the shares, the thread's own first, and over the portions of a share.

    A counter says how many iterations of its share are taken. A `common` share is the only one.
    """
    shares = "1" if common else "%count"
    turn = b.alloca("i64", 1, 8)
    share, take, work = b.new_block("share"), b.new_block("take"), b.new_block("work")
    help_next, joined = b.new_block("help"), b.new_block("shared")
    b.do(f"store i64 0, ptr {turn}")
    own = b.op(f"add i64 {b.op(f'mul i64 %number, {_LINE}')}, {_RAN}")
    ran_here = b.op(f"getelementptr i8, ptr %counters, i64 {own}")
    b.jump(share)

    b.start(share)
    turns = b.op(f"load i64, ptr {turn}")
    owner = b.op(f"urem i64 {b.op(f'add i64 %number, {turns}')}, {shares}")
    begin = b.op(f"udiv i64 {b.op(f'mul i64 {owner}, {s.extent}')}, {shares}")
    following = b.op(f"add i64 {owner}, 1")
    end = b.op(f"udiv i64 {b.op(f'mul i64 {following}, {s.extent}')}, {shares}")
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
    ran = b.op(f"add i64 {b.op(f'load i64, ptr {ran_here}')}, {b.op(f'sub i64 {limit}, {first}')}")
    b.do(f"store i64 {ran}, ptr {ran_here}")
    loop(b, s, first, limit)
    b.jump(take)

    b.start(help_next)
    turns = b.op(f"add i64 {turns}, 1")
    b.do(f"store i64 {turns}, ptr {turn}")
    b.branch(b.op(f"icmp slt i64 {turns}, {shares}"), share, joined)
    b.start(joined)


def _region(b: Builder, name: str, types: Sequence[str], slots: Sequence[int]) -> str:
    """The function that each thread runs."""
    r = Builder(b.module, in_parallel=True)
    number, count = (
        r.op(f"sext i32 {r.op(calling(r, function, 'i32'))} to i64")
        for function in ("omp_get_thread_num", "omp_get_num_threads")
    )
    fields = _fields(types, slots)
    counters, *rest = [
        r.op(f"load {t}, ptr {_field(r, fields, '%context', place)}")
        for place, t in enumerate(fields)
    ]
    captured, workspace = rest[: len(types)], rest[len(types) :]
    if slots:
        before = r.op(f"mul i64 {number}, {sum(slots)}")
        workspace = [r.op(f"getelementptr i8, ptr {workspace[0]}, i64 {before}")]
    began = r.op(calling(r, "omp_get_wtime", "double"))
    _call(r, name, counters, (number, count), _typed(types, captured), slots, workspace)
    seconds = r.op(f"fsub double {r.op(calling(r, 'omp_get_wtime', 'double'))}, {began}")
    line = r.op(f"getelementptr i8, ptr {counters}, i64 {r.op(f'mul i64 {number}, {_LINE}')}")
    for value, place in ((seconds, _SECONDS), (began, _BEGAN)):
        r.do(f"store double {value}, ptr {r.op(f'getelementptr i8, ptr {line}, i64 {place}')}")
    r.block.end = "ret void"
    return f"define internal void @{name}.region(ptr %context) #0 {{\n{r.text()}\n}}"


def _call(
    b: Builder,
    name: str,
    counters: str,
    thread: tuple[str, str],
    captured: Sequence[str],
    slots: Sequence[int],
    workspace: Sequence[str],
) -> None:
    """Call the body as thread `number` of `count`, which has the workspace for itself if any."""
    arguments = [f"ptr {counters}", *(f"i64 {n}" for n in thread), *captured]
    for start in workspace:
        arguments += slot_pointers(b, slots, start)
    b.do(f"call void @{name}.body({', '.join(arguments)})")


def _settle(b: Builder) -> str:
    """The function that enters a team into the account of a loop.

    The caller began after some seconds, worked for some, ran a share of the iterations, and waited
    for some. The time alone that follows from these may be too long, if something else ran
    meanwhile: it becomes at most twice as long as it was. A caller that ran nothing knows nothing
    of it. As long as it is not known, each team costs as much as a call.
    """
    function = f"{b.module.name}.settle"
    text = f"""define internal void @{function}(
    ptr %account, double %worked, double %share, double %until, double %waited) noinline #0 {{
  %place = getelementptr i8, ptr %account, i64 {_ALONE}
  %known = {_load("%place")}
  %first_time = fcmp oeq double %known, 0.0
  %estimate = fdiv double %worked, %share
  %double = fmul double %known, 2.0
  %longer = fcmp ogt double %estimate, %double
  %at_most_double = select i1 %longer, double %double, double %estimate
  %updated = select i1 %first_time, double %estimate, double %at_most_double
  %idle = fcmp oeq double %share, 0.0
  %alone = select i1 %idle, double %known, double %updated
  {_store("%alone", "%place")}
  %unknown = fcmp oeq double %alone, 0.0
  %others = fsub double 1.0, %share
  %calls = fdiv double %waited, %alone
  %gained = fsub double %others, %calls
  %profit = select i1 %unknown, double -1.0, double %gained
  call void @{function}.enter(ptr %account, double %profit)
  %waking = getelementptr i8, ptr %account, i64 {_WAKING}
  %start = fdiv double %until, %alone
  %helped = fsub double %others, %start
  %worth = select i1 %unknown, double -1.0, double %helped
  call void @{function}.enter(ptr %waking, double %worth)
  ret void
}}

define internal void @{function}.enter(ptr %place, double %profit) noinline #0 {{
  %balance = {_load("%place")}
  %alone = fcmp olt double %balance, 0.0
  br i1 %alone, label %waits, label %team

waits:
  %left = fadd double %balance, 1.0
  %again = fcmp oge double %left, 0.0
  %granted = select i1 %again, double {_double(_GRANT)}, double %left
  {_store("%granted", "%place")}
  ret void

team:
  %sum = fadd double %balance, %profit
  %patience_place = getelementptr i8, ptr %place, i64 {_PATIENCE}
  %patience = {_load("%patience_place")}
  %in_debt = fcmp olt double %sum, 0.0
  %calls = fneg double %patience
  %capped = call double @llvm.minnum.f64(double %sum, double {_double(_CREDIT)})
  %becomes = select i1 %in_debt, double %calls, double %capped
  {_store("%becomes", "%place")}
  %twice = fmul double %patience, 2.0
  %gained = call double @llvm.maxnum.f64(double %profit, double 0.0)
  %less = fmul double %gained, {_double(_LESS)}
  %shorter = fsub double %patience, %less
  %next = select i1 %in_debt, double %twice, double %shorter
  %at_least = call double @llvm.maxnum.f64(double %next, double {_double(_SHORTEST)})
  %bounded = call double @llvm.minnum.f64(double %at_least, double {_double(_LONGEST)})
  {_store("%bounded", "%patience_place")}
  ret void
}}"""
    b.module.declare(function, text)
    return function


def _load(pointer: str) -> str:
    """Accounts are read and written whole: calls in several threads share them."""
    return f"load atomic double, ptr {pointer} monotonic, align 8"


def _store(operand: str, pointer: str) -> str:
    return f"store atomic double {operand}, ptr {pointer} monotonic, align 8"


def _double(value: float) -> str:
    return constant(float(value), "float64")


def _typed(types: Sequence[str], operands: Sequence[str]) -> list[str]:
    return [f"{t} {operand}" for t, operand in zip(types, operands, strict=True)]


def _fields(types: Sequence[str], slots: Sequence[int]) -> list[str]:
    """The types in a context: the counters, what the body needs from outside, the workspace."""
    return ["ptr", *types, *(["ptr"] if slots else [])]


def _struct(fields: Sequence[str]) -> str:
    return f"{{ {', '.join(fields)} }}"


def _field(b: Builder, fields: Sequence[str], context: str, number: int) -> str:
    return b.op(f"getelementptr {_struct(fields)}, ptr {context}, i32 0, i32 {number}")
