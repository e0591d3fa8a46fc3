"""Worker processes: started, asked, listened to with deadlines, found dead, killed.

A worker is `python -m tilewright.autotune.measure.worker`, never a fork, so it depends on nothing
of the program that tunes. Requests go to its standard input, replies come through a pipe of their
own, and whatever it prints ends in a file without a name, whose end explains its death.

A request has so many seconds of the worker's own processor time: on a busy machine a process that
gets no processor is not hanging. One that sleeps instead is given up after four times as long by
the clock. Only time counts that this process has waited: both may have been stopped together.

A worker dies with the thread that started it (the parent-death signal), or as soon as it finds its
standard input closed; so a pool is used and closed in the thread that opened it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from ...base.errors import TuningError, open_files_hint
from ...base.process import NO_NUMPY_THREADS, search_path
from .protocol import Assembler, Message, encode
from .reference import unnamed_file

TAIL = 2000
_PIECE = 1 << 20
_TICK = 0.2
_ASLEEP = 4.0
_AT_MOST = 60.0
_LONGEST = 1.0
_AWAKE = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
_OWN_SIGNALS = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
        signal.SIGPIPE,
        signal.SIGXFSZ,
    }
)
"""The signals that a process gets for what it does."""


@dataclass(frozen=True)
class Died:
    """A worker that ended while it was at work.

    `signal` is the one that killed it, 0 if it exited. `fault` is why this process killed it, if it
    did.
    """

    status: int
    signal: int
    out_of_memory: bool
    output: str
    fault: str = ""

    @property
    def killed_from_outside(self) -> bool:
        """Whether an operator, or the kernel for want of memory, killed it.

        The limits that this package sets (of memory, for instance) fail inside the process and end
        it in another way.
        """
        return self.signal != 0 and self.signal not in _OWN_SIGNALS

    def __str__(self) -> str:
        how = f"a kill by its parent: {self.fault}" if self.fault else f"exit status {self.status}"
        if self.signal:
            how = f"signal {self.signal} ({_signal_name(self.signal)})"
        return f"{how}{', out of memory' if self.out_of_memory else ''}{quoted(self.output)}"


@dataclass(frozen=True)
class TimedOut:
    """A worker that did not answer in time, and was killed.

    `seconds` is its time limit: by the clock if it was `asleep`, otherwise of processor time.
    """

    seconds: float
    output: str
    asleep: bool = False


Reply = Message | Died | TimedOut


class _Limits(NamedTuple):
    """Seconds that a request may take: of the worker's processor time, and by the clock, asleep."""

    processor: float
    asleep: float

    @property
    def earliest(self) -> float:
        """Seconds before anything is asked about the worker: those count as slept."""
        return min(self.processor, self.asleep / _ASLEEP)


class Worker:
    """One worker process and the requests that it has not answered yet."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], inherit: Sequence[int] = ()
    ) -> None:
        if not sys.executable:
            raise TuningError(
                "this process does not know its Python interpreter",
                hint="set sys.executable to one that has tilewright installed",
            )
        with ExitStack() as opened:
            try:
                self._start(arguments, environment, inherit, opened)
            except (OSError, psutil.Error) as error:
                hint = open_files_hint(error) if isinstance(error, OSError) else None
                raise TuningError("cannot start a worker process: {0}", error, hint=hint) from error
            self._opened = opened.pop_all()
        self._outbox = bytearray()
        self._timeouts: deque[_Limits] = deque()
        self._waited = 0.0
        self._slept = 0.0
        self._used = 0.0
        self._kills = 0
        self._assembler = Assembler()
        self.dead = False

    def _start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        inherit: Sequence[int],
        opened: ExitStack,
    ) -> None:
        """Start the process; `opened` ends it and closes what is open for it. Raises `OSError`."""
        self._output = unnamed_file("tilewright-output")
        opened.callback(os.close, self._output)
        fcntl.fcntl(self._output, fcntl.F_SETFL, os.O_APPEND | os.O_RDWR)
        self.replies, replies_end = os.pipe()
        opened.callback(os.close, self.replies)
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    f"{__package__}.worker",
                    f"--parent={os.getpid()}",
                    f"--replies={replies_end}",
                    *arguments,
                ],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[replies_end, *inherit],
                env={
                    **os.environ,
                    **NO_NUMPY_THREADS,
                    **environment,
                    "PYTHONPATH": search_path(),
                },
                start_new_session=True,  # an interrupt from the keyboard is the parent's to handle
            )
        finally:
            os.close(replies_end)
        opened.callback(self._end_process)
        assert self.process.stdin is not None
        self.requests = self.process.stdin.fileno()
        os.set_blocking(self.requests, False)
        os.set_blocking(self.replies, False)
        self._usage = psutil.Process(self.process.pid)

    @property
    def idle(self) -> bool:
        """Whether every request was answered."""
        return not self._timeouts

    @property
    def sending(self) -> bool:
        return bool(self._outbox)

    @property
    def patience(self) -> float:
        """Seconds to wait before asking whether it is `late`."""
        limit = self._timeouts[0].earliest
        return limit - self._waited if self._waited < limit else limit

    def waited(self, seconds: float) -> None:
        """Count time that was spent waiting for its answer."""
        self._waited += seconds
        if self._waited > self._timeouts[0].earliest and self._sleeps():
            self._slept += seconds

    def late(self) -> TimedOut | None:
        """The time limit that the oldest request has exceeded, if it has."""
        limits = self._timeouts[0]
        limit, asleep, earliest = limits.processor, limits.asleep, limits.earliest
        if self._waited <= earliest:
            return None
        if self._processor_seconds() - self._used > limit:
            return TimedOut(limit, self.output())
        if earliest + self._slept > asleep:
            return TimedOut(asleep, self.output(), asleep=True)
        if self._waited > _AT_MOST * limit:  # not every system tells who sleeps
            return TimedOut(_AT_MOST * limit, self.output(), asleep=True)
        return None

    def send(self, message: Message, timeout: float, asleep: float | None = None) -> None:
        """Queue a request; its time starts when those before it are answered.

        `timeout` is in seconds of processor time; a worker may sleep for four times as long, or for
        `asleep` seconds.
        """
        if not self._timeouts:
            self._begin()
            self._kills = _out_of_memory_kills()
            os.ftruncate(self._output, 0)
        self._timeouts.append(_Limits(timeout, _ASLEEP * timeout if asleep is None else asleep))
        self._outbox += encode(message)
        self.push()

    def push(self) -> None:
        """Write as much of the requests as the pipe takes."""
        try:
            while self._outbox:
                del self._outbox[: os.write(self.requests, self._outbox[:_PIECE])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._outbox.clear()  # it is dying: that will be read from its replies

    def pull(self) -> list[Reply]:
        """The replies that have arrived. The last reply of a worker is its death."""
        replies: list[Reply] = []
        try:
            while piece := os.read(self.replies, _PIECE):
                for message in self._assembler.feed(piece):
                    self._answered()
                    replies.append(message)
        except BlockingIOError:
            return replies
        except TuningError as error:
            return [*replies, self._buried(str(error))]
        return [*replies, self._buried()]

    def output(self) -> str:
        """The end of what it printed since it was last idle."""
        size = os.fstat(self._output).st_size
        data = os.pread(self._output, TAIL, max(0, size - TAIL))
        return data.decode("utf-8", "replace").strip()

    def kill(self) -> None:
        """End the process at once and wait for its end."""
        if self.dead:
            return
        self.dead = True
        self._opened.close()

    def _answered(self) -> None:
        if not self._timeouts:
            raise TuningError("a worker answered more than it was asked")
        self._timeouts.popleft()
        self._begin()

    def _begin(self) -> None:
        self._waited = self._slept = 0.0
        self._used = self._processor_seconds()

    def _processor_seconds(self) -> float:
        """The processor time of all threads of the process."""
        try:
            used = self._usage.cpu_times()
        except (psutil.Error, OSError):
            return 0.0  # it has ended: that will be read from its replies
        return float(used.user + used.system)

    def _sleeps(self) -> bool:
        """Whether it waits for anything but a processor."""
        try:
            return self._usage.status() not in _AWAKE
        except (psutil.Error, OSError):
            return True

    def _buried(self, fault: str = "") -> Died:
        """The death of a worker that closed its end, or of one that is killed for a `fault`."""
        if not fault:
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                fault = "it closed its replies and did not end"
        output, kills = self.output(), self._kills
        self.kill()
        status = self.process.returncode
        killed = 0 if fault else max(0, -status)
        return Died(status, killed, _is_out_of_memory(killed, output, kills), output, fault)

    def _end_process(self) -> None:
        """Kill the process with all that it has started, such as a compiler, wait for its end and
        close its input."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # it leads a group of its own
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()


def turn(
    workers: Sequence[Worker],
    tick: Callable[[], None],
    work: Callable[[], bool] = lambda: False,
    *,
    wait: bool = True,
) -> list[tuple[Worker, Reply]]:
    """Wait for replies of workers that owe an answer, and return them.

    `tick` is called at least every 0.2 seconds; it may raise to give up waiting. `work` is called
    instead of waiting as long as it returns that it had something to do. Without `wait` there may
    be no replies.
    """
    while True:
        tick()
        poll = select.poll()
        by_fd: dict[int, Worker] = {}
        for worker in workers:
            by_fd[worker.replies] = worker
            poll.register(worker.replies, select.POLLIN)
            if worker.sending:
                by_fd[worker.requests] = worker
                poll.register(worker.requests, select.POLLOUT)
        patience = min(_TICK, *(w.patience for w in workers)) + 1e-3
        most = 0.0 if work() or not wait else patience
        replies: list[tuple[Worker, Reply]] = []
        began = time.monotonic()
        ready = poll.poll(most * 1000)
        waited = min(time.monotonic() - began, _LONGEST)
        for worker in workers:
            worker.waited(waited)
        for fd, _ in ready:
            worker = by_fd[fd]
            if fd == worker.requests and not worker.dead:
                worker.push()
            elif not worker.dead:
                replies += [(worker, r) for r in worker.pull()]
        heard = {w for w, _ in replies}
        for worker in workers:
            if worker not in heard and not worker.dead and (late := worker.late()) is not None:
                worker.kill()
                replies.append((worker, late))
        if replies or not wait:
            return replies


def quoted(output: str) -> str:
    """The output of a worker as a suffix of a reason."""
    return f"; it printed: {output}" if output else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _is_out_of_memory(killed: int, output: str, kills: int) -> bool:
    """Whether a worker ran out of memory, as the kernel counts or as it printed."""
    if killed == signal.SIGKILL:
        return _out_of_memory_kills() > kills
    words = ("out of memory", "bad_alloc", "MemoryError", "Cannot allocate memory")
    return any(word in output for word in words)


def _out_of_memory_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="ascii")
    except OSError:
        return 0
    counts = [line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else 0
