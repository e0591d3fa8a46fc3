"""The threads of parallel loops, with the functions of an OpenMP runtime that kernels call.

A caller of `GOMP_parallel` never waits for a thread that has not begun. It offers the loop, begins
with it, and withdraws the offer when nothing is left to do; then it waits for those that have taken
it. The loops of kernels give each iteration to whoever comes first (`llvm_parallel.py`), so that a
thread that sleeps, or that waits for its processor, costs nothing but its help. The barriers of
OpenMP's own runtimes wait for every thread of a team, for milliseconds where processors are busy.

There is one team for each loop that runs at a time, of the caller and of threads that are made when
a loop first asks for as many. A thread looks for an offer for `SPINS` seconds and then sleeps. It
may wake on the processor of its caller and wait there though others are idle: systems do not move
it where processors have no cache in common, as in many virtual machines. The caller therefore takes
its own processor from those of a sleeping thread that was last on it, and gives it back where it
wakes that thread from another one. A model of 28 loops on two
threads, called 30 ms after its last call, takes 6.4 to 7.1 ms so, and as long without a pause; with
libgomp's team it takes 12.8 to 14.5 ms after a pause, and 10.8 on one thread.

| field of a team | content |
| --- | --- |
| busy | 1 while a loop runs |
| state | the number of the offer, whether it stands (`_OPEN`), how many threads took it |
| finished | how many threads finished it |
| region, context, count | the arguments of `GOMP_parallel` |
| made, patience | how many threads there are; how many loops ask for no more of them |

Between a thread's reading of the offer and its taking of it (an exchange of the `state`), the offer
may have been withdrawn and others made: the exchange then fails, since offers have numbers. A
thread that took an offer may read its arguments until it says that it finished.

Code in this process has one such runtime. A shared library carries its own, whose threads run its
code and which is therefore never unloaded (`-z nodelete`), but all libraries of a process know one
list of teams, by a symbol that the loader makes unique (`STB_GNU_UNIQUE`). The list is in memory
that is zero in a forked process (`MADV_WIPEONFORK`): it makes threads of its own.
"""

from __future__ import annotations

import threading
from functools import cache

from ...target import CpuTarget
from . import llvm
from .detection import host_target
from .elf import made_unique
from .generator import OPENMP
from .jit import Loaded, load_object
from .llvm_parallel import AWAKE
from .llvm_text import constant

SPINS = 3e-4
"""Seconds for which a thread looks for an offer before it sleeps.

The iterations of a loop are seldom shared out evenly, and a thread that falls asleep while it waits
for the last ones comes late to the next loop. A convolution of two loops, one of 7 iterations of
80 us on two threads, takes 0.577 ms so, and 0.61 with a third of it."""
TEAMS = 64
"""Loops that may have a team at a time; further ones run on their callers' threads."""
THREADS = 1024
"""The most threads of a team, and the most processors of a machine."""
_OPEN = 1 << 31
_STATE, _FINISHED, _REGION, _CONTEXT, _COUNT, _MADE, _PATIENCE, _LINES = (
    64, 128, 192, 200, 208, 212, 216, 256,
)  # fmt: skip
"""Where the fields of a team are; the first is `busy`. Each that is waited for has a line."""
_LINE, _NUMBER, _PROCESSOR, _TAKEN, _TEAM, _THREAD, _SEMAPHORE = 128, 4, 8, 12, 16, 24, 64
"""The bytes of a thread, and where its fields are; the first says whether it is asleep.

`_TAKEN` is the number of the processor that callers took from it, plus one; 0 for none."""
_LOOPS_WITHOUT = 1000
"""Loops that ask for no more threads after the system refused one."""
_LIST = 1 << 16
"""Bytes of the list of teams: a whole number of pages."""
EACH = 1 << 9
"""The flag of a loop that each thread runs a part of: its caller waits for all of them, and they
are told how many they are, without those that the system refused."""
_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_LIST_SYMBOL = "tilewright.teams.2"
"""With a number that changes where what libraries share does: the list, a team, a thread."""
_loading = threading.Lock()


def load() -> dict[str, int]:
    """The addresses of the functions in this process, by the names `OPENMP`."""
    with _loading:  # threads that load it at a time get the same
        return dict(zip(OPENMP, _loaded().addresses, strict=True))


@cache
def _loaded() -> Loaded:
    target = host_target()
    return load_object(llvm.object_code(llvm.parse(text(target)), target), OPENMP, {})


@cache
def library_code(target: CpuTarget) -> bytes:
    """The object file for shared libraries, which do not show its functions."""
    code = llvm.object_code(llvm.parse(text(target, shared=True)), target)
    return made_unique(code, _LIST_SYMBOL)


def text(target: CpuTarget, *, shared: bool = False) -> str:
    """The module as LLVM text; `shared` has the list of teams that libraries have in common."""
    declared, pause = _PAUSES.get(target.arch, ("", ""))
    seen = "hidden " if shared else ""
    return f"""target triple = "{target.triple}"

@{_LIST_SYMBOL} = {"" if shared else "internal "}global {{ i32, i32, ptr }} zeroinitializer

declare i32 @pthread_once(ptr, ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_getcpu()
declare i32 @sched_yield()
declare i32 @sem_init(ptr, i32, i32)
declare i32 @sem_post(ptr)
declare i32 @sem_wait(ptr)
declare i32 @clock_gettime(i32, ptr)
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare i64 @llvm.vector.reduce.or.v{THREADS // 64}i64(<{THREADS // 64} x i64>)
{declared}

; What all loops share: whether there is anything yet, the key of each thread's number, and teams.
define internal void @begin() cold {{
  %key.p = getelementptr i8, ptr @{_LIST_SYMBOL}, i64 4
  %refused = call i32 @pthread_key_create(ptr %key.p, ptr null)
  %keyed = icmp eq i32 %refused, 0
  br i1 %keyed, label %map, label %over
map:
  %mapped = call ptr @mmap(ptr null, i64 {_LIST}, i32 3, i32 34, i32 -1, i64 0)
  %bits = ptrtoint ptr %mapped to i64
  %none = icmp eq i64 %bits, -1
  br i1 %none, label %lacking, label %ready
lacking:
  %plain = call ptr @calloc(i64 1, i64 {_LIST})
  br label %ready
ready:
  %list = phi ptr [ %mapped, %map ], [ %plain, %lacking ]
  %wiped = call i32 @madvise(ptr %list, i64 {_LIST}, i32 18)
  %list.p = getelementptr i8, ptr @{_LIST_SYMBOL}, i64 8
  store ptr %list, ptr %list.p
  br label %over
over:  ; without a list, every loop runs on its caller alone
  ret void
}}

define {seen}double @omp_get_wtime() {{
  %time = alloca [2 x i64]
  %ignored = call i32 @clock_gettime(i32 1, ptr %time)
  %second = getelementptr i64, ptr %time, i64 1
  %seconds = load i64, ptr %time
  %nanoseconds = load i64, ptr %second
  %whole = sitofp i64 %seconds to double
  %part = sitofp i64 %nanoseconds to double
  %fraction = fmul double %part, {constant(1e-9, "float64")}
  %sum = fadd double %whole, %fraction
  ret double %sum
}}

; What a thread is in its loop: its number, and above 32 bits how many there are.
define {seen}i32 @omp_get_thread_num() {{
  %key.p = getelementptr i8, ptr @{_LIST_SYMBOL}, i64 4
  %key = load i32, ptr %key.p
  %place = call ptr @pthread_getspecific(i32 %key)
  %bits = ptrtoint ptr %place to i64
  %number = trunc i64 %bits to i32
  ret i32 %number
}}

define {seen}i32 @omp_get_num_threads() {{
  %key.p = getelementptr i8, ptr @{_LIST_SYMBOL}, i64 4
  %key = load i32, ptr %key.p
  %place = call ptr @pthread_getspecific(i32 %key)
  %bits = ptrtoint ptr %place to i64
  %high = lshr i64 %bits, 32
  %count = trunc i64 %high to i32
  ret i32 %count
}}

define internal void @run(ptr %region, ptr %context, i32 %number, i32 %count) {{
  %key.p = getelementptr i8, ptr @{_LIST_SYMBOL}, i64 4
  %key = load i32, ptr %key.p
  %low = zext i32 %number to i64
  %wide = zext i32 %count to i64
  %high = shl i64 %wide, 32
  %bits = or i64 %high, %low
  %place = inttoptr i64 %bits to ptr
  %around = call ptr @pthread_getspecific(i32 %key)
  %set = call i32 @pthread_setspecific(i32 %key, ptr %place)
  call void %region(ptr %context)
  %restored = call i32 @pthread_setspecific(i32 %key, ptr %around)
  ret void
}}

define {seen}void @GOMP_parallel(ptr %region, ptr %context, i32 %count, i32 %flags) {{
  %once = call i32 @pthread_once(ptr @{_LIST_SYMBOL}, ptr @begin)
  %list.p = getelementptr i8, ptr @{_LIST_SYMBOL}, i64 8
  %list = load ptr, ptr %list.p
  %nowhere = icmp eq ptr %list, null
  br i1 %nowhere, label %alone, label %search
search:
  %at = phi i64 [ 0, %0 ], [ %next, %taken ]
  %more = icmp ult i64 %at, {TEAMS}
  br i1 %more, label %look, label %alone
look:
  %place = getelementptr ptr, ptr %list, i64 %at
  %there = load atomic ptr, ptr %place acquire, align 8
  %missing = icmp eq ptr %there, null
  br i1 %missing, label %make, label %ask
make:
  %new = call ptr @calloc(i64 1, i64 {_LINES + THREADS * _LINE})
  %full = icmp eq ptr %new, null
  br i1 %full, label %alone, label %enter
enter:
  %swapped = cmpxchg ptr %place, ptr null, ptr %new acq_rel acquire
  %first = extractvalue {{ ptr, i1 }} %swapped, 1
  br i1 %first, label %ask, label %lost
lost:
  call void @free(ptr %new)
  %other = extractvalue {{ ptr, i1 }} %swapped, 0
  br label %ask
ask:
  %team = phi ptr [ %there, %look ], [ %new, %enter ], [ %other, %lost ]
  %held = cmpxchg ptr %team, i32 0, i32 1 acquire monotonic
  %free = extractvalue {{ i32, i1 }} %held, 1
  br i1 %free, label %lead, label %taken
taken:
  %next = add i64 %at, 1
  br label %search
lead:
  call void @lead(ptr %team, ptr %region, ptr %context, i32 %count, i32 %flags)
  store atomic i32 0, ptr %team release, align 4
  ret void
alone:
  call void @run(ptr %region, ptr %context, i32 0, i32 1)
  ret void
}}

; Offer a loop to the threads of a team, work on it, withdraw it, and wait for those who took it.
define internal void @lead(
    ptr %team, ptr %region, ptr %context, i32 %count, i32 %flags) {{
  %state = getelementptr i8, ptr %team, i64 {_STATE}
  %finished = getelementptr i8, ptr %team, i64 {_FINISHED}
  %region.p = getelementptr i8, ptr %team, i64 {_REGION}
  %context.p = getelementptr i8, ptr %team, i64 {_CONTEXT}
  %count.p = getelementptr i8, ptr %team, i64 {_COUNT}
  %made.p = getelementptr i8, ptr %team, i64 {_MADE}
  %many = icmp ugt i32 %count, {THREADS}
  %wanted = select i1 %many, i32 {THREADS}, i32 %count
  %helpers = sub i32 %wanted, 1
  %already = load i32, ptr %made.p
  %awake.bit = and i32 %flags, {AWAKE}
  %only.awake = icmp ne i32 %awake.bit, 0
  %enough = icmp sge i32 %already, %helpers
  %none.more = or i1 %enough, %only.awake
  br i1 %none.more, label %offer, label %lacking
lacking:
  %patience.p = getelementptr i8, ptr %team, i64 {_PATIENCE}
  %patience = load i32, ptr %patience.p
  %impatient = icmp eq i32 %patience, 0
  br i1 %impatient, label %hire, label %later
later:
  %less = sub i32 %patience, 1
  store i32 %less, ptr %patience.p
  br label %offer
hire:
  %hired = phi i32 [ %already, %lacking ], [ %number, %counted ]
  %number = add i32 %hired, 1
  %begun = call i32 @hire(ptr %team, i32 %number)
  %refused = icmp ne i32 %begun, 0
  br i1 %refused, label %short, label %counted
short:
  store i32 {_LOOPS_WITHOUT}, ptr %patience.p
  br label %offer
counted:
  store i32 %number, ptr %made.p
  %complete = icmp sge i32 %number, %helpers
  br i1 %complete, label %offer, label %hire
offer:
  store ptr %region, ptr %region.p
  store ptr %context, ptr %context.p
  %made = load i32, ptr %made.p
  %few = icmp slt i32 %made, %helpers
  %able = select i1 %few, i32 %made, i32 %helpers
  %each.bit = and i32 %flags, {EACH}
  %each = icmp ne i32 %each.bit, 0
  %present = add i32 %able, 1
  %told = select i1 %each, i32 %present, i32 %count
  store atomic i32 %told, ptr %count.p monotonic, align 4
  store atomic i64 0, ptr %finished monotonic, align 8
  %old = load atomic i64, ptr %state monotonic, align 8
  %high = lshr i64 %old, 32
  %following = add i64 %high, 1
  %shifted = shl i64 %following, 32
  %open = or i64 %shifted, {_OPEN}
  %before = atomicrmw xchg ptr %state, i64 %open seq_cst
  br i1 %only.awake, label %work, label %wake
wake:
  %k = phi i32 [ 1, %offer ], [ %k.next, %awake ]
  %all = icmp sgt i32 %k, %able
  br i1 %all, label %work, label %check
check:
  %wide = zext i32 %k to i64
  %offset = mul i64 %wide, {_LINE}
  %lines = getelementptr i8, ptr %team, i64 {_LINES}
  %thread = getelementptr i8, ptr %lines, i64 %offset
  %slept = load atomic i32, ptr %thread seq_cst, align 4
  %sleeps = icmp ne i32 %slept, 0
  br i1 %sleeps, label %claim, label %awake
claim:
  %was = atomicrmw xchg ptr %thread, i32 0 seq_cst
  %mine = icmp ne i32 %was, 0
  br i1 %mine, label %rouse, label %awake
rouse:
  call void @rouse(ptr %thread)
  br label %awake
awake:
  %k.next = add i32 %k, 1
  br label %wake
work:
  call void @run(ptr %region, ptr %context, i32 0, i32 %told)
  br i1 %each, label %gather, label %close
gather:
  %expected = zext i32 %able to i64
  call void @await(ptr %state, i64 {_OPEN - 1}, i64 %expected)
  br label %close
close:
  %last = atomicrmw and ptr %state, i64 {~_OPEN} seq_cst
  %joined = and i64 %last, {_OPEN - 1}
  call void @await(ptr %finished, i64 -1, i64 %joined)
  ret void
}}

; Wait until these bits are what is wanted; let others run where that takes long.
define internal void @await(ptr %place, i64 %mask, i64 %wanted) {{
  br label %look
look:
  %turn = phi i32 [ 0, %0 ], [ %turn.next, %pause ], [ %turn.next, %yield ]
  %found = load atomic i64, ptr %place acquire, align 8
  %bits = and i64 %found, %mask
  %ended = icmp eq i64 %bits, %wanted
  br i1 %ended, label %over, label %longer
longer:
  %turn.next = add i32 %turn, 1
  %patient = icmp ult i32 %turn, 4096
  br i1 %patient, label %pause, label %yield
pause:
  {pause}
  br label %look
yield:
  %ignored = call i32 @sched_yield()
  br label %look
over:
  ret void
}}

define internal i32 @hire(ptr %team, i32 %number) cold noinline {{
  %wide = zext i32 %number to i64
  %offset = mul i64 %wide, {_LINE}
  %lines = getelementptr i8, ptr %team, i64 {_LINES}
  %thread = getelementptr i8, ptr %lines, i64 %offset
  %number.p = getelementptr i8, ptr %thread, i64 {_NUMBER}
  %team.p = getelementptr i8, ptr %thread, i64 {_TEAM}
  %handle = getelementptr i8, ptr %thread, i64 {_THREAD}
  %semaphore = getelementptr i8, ptr %thread, i64 {_SEMAPHORE}
  store i32 %number, ptr %number.p
  store ptr %team, ptr %team.p
  %ignored = call i32 @sem_init(ptr %semaphore, i32 0, i32 0)
  %result = call i32 @pthread_create(ptr %handle, ptr null, ptr @serve, ptr %thread)
  ret i32 %result
}}

define internal void @rouse(ptr %thread) noinline {{
  %processor.p = getelementptr i8, ptr %thread, i64 {_PROCESSOR}
  %taken.p = getelementptr i8, ptr %thread, i64 {_TAKEN}
  %handle.p = getelementptr i8, ptr %thread, i64 {_THREAD}
  %semaphore = getelementptr i8, ptr %thread, i64 {_SEMAPHORE}
  %here = call i32 @sched_getcpu()
  %there = load i32, ptr %processor.p
  %together = icmp eq i32 %here, %there
  %taken = load i32, ptr %taken.p
  %number = add i32 %here, 1
  %other = icmp ne i32 %taken, %number
  %some = icmp ne i32 %taken, 0
  %back = and i1 %some, %other
  %change = or i1 %together, %back
  br i1 %change, label %place, label %post
place:
  %handle = load i64, ptr %handle.p
  %new = call i32 @place(i64 %handle, i32 %here, i1 %together, i32 %taken)
  store i32 %new, ptr %taken.p
  br label %post
post:
  %ignored = call i32 @sem_post(ptr %semaphore)
  ret void
}}

; Have a thread use the processors of the caller, without this one if they are together; returns
; what is taken from it then. There has to be another one.
define internal i32 @place(i64 %handle, i32 %processor, i1 %together, i32 %taken) cold noinline {{
  %mask = alloca <{THREADS // 64} x i64>, align 128
  store <{THREADS // 64} x i64> zeroinitializer, ptr %mask
  %failed = call i32 @sched_getaffinity(i32 0, i64 {THREADS // 8}, ptr %mask)
  %known = icmp eq i32 %failed, 0
  %listed = icmp ult i32 %processor, {THREADS}
  %sure = and i1 %known, %listed
  br i1 %sure, label %take, label %done
take:
  %wide = zext i32 %processor to i64
  %word = lshr i64 %wide, 6
  %place = getelementptr i64, ptr %mask, i64 %word
  %old = load i64, ptr %place
  %within = and i64 %wide, 63
  %bit = shl i64 1, %within
  %own = select i1 %together, i64 %bit, i64 0
  %others = xor i64 %own, -1
  %new = and i64 %old, %others
  store i64 %new, ptr %place
  %all = load <{THREADS // 64} x i64>, ptr %mask
  %left = call i64 @llvm.vector.reduce.or.v{THREADS // 64}i64(<{THREADS // 64} x i64> %all)
  %none = icmp eq i64 %left, 0
  br i1 %none, label %done, label %move
move:
  %ignored = call i32 @pthread_setaffinity_np(i64 %handle, i64 {THREADS // 8}, ptr %mask)
  %number = add i32 %processor, 1
  %now = select i1 %together, i32 %number, i32 0
  br label %done
done:
  %result = phi i32 [ %taken, %0 ], [ %taken, %take ], [ %now, %move ]
  ret i32 %result
}}

; A thread of a team, for as long as the process lives.
define internal ptr @serve(ptr %thread) {{
  %number.p = getelementptr i8, ptr %thread, i64 {_NUMBER}
  %processor.p = getelementptr i8, ptr %thread, i64 {_PROCESSOR}
  %team.p = getelementptr i8, ptr %thread, i64 {_TEAM}
  %semaphore = getelementptr i8, ptr %thread, i64 {_SEMAPHORE}
  %number = load i32, ptr %number.p
  %team = load ptr, ptr %team.p
  %state = getelementptr i8, ptr %team, i64 {_STATE}
  %finished = getelementptr i8, ptr %team, i64 {_FINISHED}
  %region.p = getelementptr i8, ptr %team, i64 {_REGION}
  %context.p = getelementptr i8, ptr %team, i64 {_CONTEXT}
  %count.p = getelementptr i8, ptr %team, i64 {_COUNT}
  br label %begin
begin:
  %seen = phi i64 [ -1, %0 ], [ %offer, %served ], [ %seen.kept, %roused ]
  %since = call double @omp_get_wtime()
  br label %look
look:
  %seen.kept = phi i64 [ %seen, %begin ], [ %seen.kept, %again ], [ %seen.kept, %raced ],
      [ %offer, %foreign ]
  %turn = phi i32 [ 0, %begin ], [ %turn.next, %again ], [ %turn, %raced ], [ %turn, %foreign ]
  %now = load atomic i64, ptr %state seq_cst, align 8
  %offer = lshr i64 %now, 32
  %is.new = icmp ne i64 %offer, %seen.kept
  %bit = and i64 %now, {_OPEN}
  %is.open = icmp ne i64 %bit, 0
  %offered = and i1 %is.new, %is.open
  br i1 %offered, label %consider, label %idle
consider:
  %count = load atomic i32, ptr %count.p monotonic, align 4
  %mine = icmp ult i32 %number, %count
  br i1 %mine, label %take, label %foreign
foreign:
  br label %look
take:
  %one.more = add i64 %now, 1
  %exchanged = cmpxchg ptr %state, i64 %now, i64 %one.more seq_cst seq_cst
  %joined = extractvalue {{ i64, i1 }} %exchanged, 1
  br i1 %joined, label %join, label %raced
raced:
  br label %look
join:
  %region = load ptr, ptr %region.p
  %context = load ptr, ptr %context.p
  call void @run(ptr %region, ptr %context, i32 %number, i32 %count)
  %before = atomicrmw add ptr %finished, i64 1 seq_cst
  br label %served
served:
  br label %begin
idle:
  {pause}
  %turn.next = add i32 %turn, 1
  %low = and i32 %turn.next, 63
  %due = icmp eq i32 %low, 0
  br i1 %due, label %timed, label %again
again:
  br label %look
timed:
  %at = call double @omp_get_wtime()
  %waited = fsub double %at, %since
  %tired = fcmp ogt double %waited, {constant(SPINS, "float64")}
  br i1 %tired, label %sleep, label %again
sleep:
  %here = call i32 @sched_getcpu()
  store i32 %here, ptr %processor.p
  %ignored = atomicrmw xchg ptr %thread, i32 1 seq_cst
  %last = load atomic i64, ptr %state seq_cst, align 8
  %last.offer = lshr i64 %last, 32
  %last.new = icmp ne i64 %last.offer, %seen.kept
  %last.bit = and i64 %last, {_OPEN}
  %last.open = icmp ne i64 %last.bit, 0
  %stands = and i1 %last.new, %last.open
  br i1 %stands, label %stay, label %rest
stay:
  %was = atomicrmw xchg ptr %thread, i32 0 seq_cst
  %unclaimed = icmp ne i32 %was, 0
  br i1 %unclaimed, label %roused, label %rest
rest:
  %interrupted = call i32 @sem_wait(ptr %semaphore)
  %again.rest = icmp ne i32 %interrupted, 0
  br i1 %again.rest, label %rest, label %roused
roused:
  br label %begin
}}
"""
