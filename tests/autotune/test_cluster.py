"""Measuring on the workers of a Dask cluster, with faults injected into real ones."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.autotune.cluster import cluster as clusters
from tilewright.autotune.cluster import dispatch
from tilewright.autotune.cluster import sentinels as sentinel_times
from tilewright.autotune.cluster import stream as streams
from tilewright.autotune.cluster.answers import (
    CandidateAnswer,
    Interleaved,
    Measured,
    answered,
    parse,
    received,
)
from tilewright.autotune.cluster.cluster import Cluster, Role, Worker
from tilewright.autotune.cluster.dispatch import Job, do
from tilewright.autotune.cluster.measurer import ClusterMeasurer
from tilewright.autotune.cluster.scheduler import Asked, Scheduler, connected
from tilewright.autotune.cluster.sentinels import Sentinels
from tilewright.autotune.cluster.stream import Stream
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import BuildRequest, MeasureResult
from tilewright.autotune.records import target_record
from tilewright.autotune.session.events import Trial
from tilewright.base.checked_json import digest_of
from tilewright.codegen.detect import resolve
from tilewright.tuning_db import (
    Environment,
    Measurement,
    Outcome,
    Session,
    SessionStatus,
    Verification,
)
from tilewright.tuning_db.values import ERROR_LIMIT, storable

from ..refusals import refused
from .cluster_of import HERE, QUICK, all_ran, requests, workers
from .kernels import affine, kernel, matmul

distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not import tests


@pytest.fixture(scope="module")
def shared() -> Iterator[Any]:
    with workers(Role.RUN, Role.RUN) as client:
        yield client


@pytest.fixture
def client(shared: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of two honest workers; this machine may be as noisy as it likes."""
    monkeypatch.setattr(sentinel_times, "SLOW", 1e9)
    yield shared
    shared.run(behave)
    shared.wait_for_workers(2, timeout=100)


def texts(numbers: Sequence[int]) -> tuple[str, bytes]:
    return str(numbers), b""


def measured(client: Any, kept: list[Environment] | None = None) -> dict[int, MeasureResult]:
    cluster = Cluster(client, HERE)
    keep = [] if kept is None else kept
    with ClusterMeasurer(affine(), cluster, QUICK, keep=keep.append) as measurer:
        return dict(measurer.measure(requests(), None))


# What runs on the workers in place of what should.


def behave() -> None:
    from tilewright.autotune.cluster import station

    station._station, station._described = getattr(station, "honest", (
        station._station, station._described,
    ))  # fmt: skip


def misbehave(do: Callable[[str], Any] | None, hello: dict[str, Any] | None = None) -> None:
    from tilewright.autotune.cluster import station

    honest = station._station, station._described
    station.honest = getattr(station, "honest", honest)  # type: ignore[attr-defined]

    class Station:
        def do(self, request: str, _: bytes) -> Any:
            assert do is not None
            return do(request)

    if do is not None:
        station._station = Station  # type: ignore[assignment]
    if hello is not None:
        station._described = lambda fields: {**honest[1](fields), **hello}


def test_a_session_measures_elsewhere_and_keeps_it_here(client: Any, sketched: None) -> None:
    quick = TuneConfig(batch=1, final_seconds=0.05, measure=QUICK)
    with tw.TuningDatabase("sqlite://") as database:
        result = tw.tune(
            matmul(), HERE, database=database, trials=6, cluster=client, config=quick,
            progress=False,
        )  # fmt: skip
        assert result.best is not None
        assert result.outcomes == {Outcome.OK: 6}
        here = target_record(resolve(HERE))
        trials = [m for m in database.records(Measurement) if m.trial]
        assert {m.target for m in trials} == {here.id}
        assert len(trials) == 6
        assert all(v.passed for v in database.records(Verification))
        places = {m.environment for m in database.records(Measurement)}
        facts = [database.get(Environment, place).facts for place in places]
        assert all(f["elsewhere"] is True for f in facts)
        built = tw.build(matmul(), HERE, database, allow=["record"])
        assert built.origin.kind == "record"


def test_what_is_measured_elsewhere_is_measured_again_there(client: Any) -> None:
    kept = list[Environment]()
    cluster = Cluster(client, HERE)
    with ClusterMeasurer(affine(), cluster, QUICK, keep=kept.append) as measurer:
        assert measurer.await_reference() > 0
        others = [requests()[2:], ()]
        results = dict(measurer.stream(requests()[:2], None, lambda _: others.pop(0)))
        assert all_ran(results)
        kernels = [r.kernel for r in results.values() if r.kernel is not None]
        rows = measurer.interleave(kernels, 3)
        assert rows is not None
        assert [len(row) for row in rows] == [3] * len(requests())
        assert measurer.environment in {e.id for e in kept}
        assert measurer.check(kernels[0]).passed


def die(_: str) -> None:
    os._exit(3)


def sleep(_: str) -> str:
    time.sleep(1)
    return ""


@pytest.mark.parametrize("fault", [die, sleep])
def test_what_a_lost_worker_had_is_measured_elsewhere(
    client: Any, monkeypatch: pytest.MonkeyPatch, fault: Callable[[str], Any]
) -> None:
    worker = next(iter(client.scheduler_info()["workers"]))
    client.run(misbehave, fault, workers=[worker])
    if fault is sleep:
        late = set[str]()
        submit = Cluster.submit

        def noted(cluster: Cluster, asked_of: Worker, *more: Any) -> Asked:
            asked = submit(cluster, asked_of, *more)
            if asked_of.address == worker:
                late.add(asked.future.key)
            return asked

        monkeypatch.setattr(Cluster, "submit", noted)
        monkeypatch.setattr(Asked, "late", property(lambda asked: asked.future.key in late))
    assert all_ran(measured(client))


def nonsense(request: str) -> str:
    return "hello"


def others(request: str) -> bytes:
    return answered(request + " ", {"results": [], "sentinel": [], "reference_seconds": 1.0})


def faster(request: str) -> bytes:
    """The results of other schedules."""
    results = [
        {
            "schedule": digest_of("another"),
            "outcome": "ok",
            "seconds": 1e-9,
            "samples": [1e-9],
            "error": None,
            "stopped": False,
            "check": None,
            "resources": None,
        }
        for _ in json.loads(request)["requests"]
    ]
    return answered(request, {"results": results, "sentinel": [], "reference_seconds": 1.0})


def raises(request: str) -> str:
    raise ValueError(request)


@pytest.mark.parametrize("lie", [nonsense, others, faster, raises])
def test_a_worker_that_is_not_believed_gets_no_more_work(
    client: Any, lie: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    worker = next(iter(client.scheduler_info()["workers"]))
    client.run(misbehave, lie, workers=[worker])
    assert all_ran(measured(client))
    assert worker in caplog.text


class Pickle:
    """What is unpickled makes a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self._path,)


def test_nothing_is_unpickled_that_a_worker_answers(client: Any, tmp_path: Path) -> None:
    trap = str(tmp_path / "trap")
    worker = next(iter(client.scheduler_info()["workers"]))
    client.run(misbehave, lambda _: Pickle(trap), workers=[worker])
    with connected(client.scheduler.address) as careful:
        assert all_ran(measured(careful))
    assert not Path(trap).exists()


def test_a_worker_of_another_version_is_refused_by_name(client: Any) -> None:
    client.run(misbehave, None, {"version": "0.0.9", "another": "field"})
    with refused(tw.ClusterError) as caught:
        Cluster(client, HERE)
    found = caught.value.data["workers"]
    assert found.keys() == client.scheduler_info()["workers"].keys()
    assert all("0.0.9" in why for why in found.values())


def test_a_cluster_without_the_resource_is_refused(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scheduler, "workers", lambda _: [])
    with refused(tw.ClusterError) as caught:
        Cluster(client, HERE)
    assert "resource tilewright" in str(caught.value)


def test_what_is_no_cluster_is_refused() -> None:
    with refused(tw.ClusterError):
        tw.tune(affine(), HERE, database="sqlite://", cluster=7)
    with refused(tw.ClusterError, "nowhere"):
        tw.tune(affine(), HERE, database="sqlite://", cluster="nowhere")


class Wire:
    """A TCP connection to a scheduler that can be cut: for its clients, it is dead then."""

    def __init__(self, scheduler: str) -> None:
        host, port = scheduler.removeprefix("tcp://").split(":")
        self._there = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listener]
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ends = [self._listener.accept()[0], socket.create_connection(self._there)]
                self._open += ends
                for pair in (ends, ends[::-1]):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)


def test_a_scheduler_that_dies_leaves_what_was_measured(client: Any, sketched: None) -> None:
    wire = Wire(client.scheduler.address)
    quick = TuneConfig(batch=2, final_seconds=0.05, measure=QUICK)

    def end(event: object) -> None:
        if isinstance(event, Trial) and event.number == 2:
            wire.cut()

    with (
        tw.TuningDatabase("sqlite://") as database,
        distributed.Client(wire.address, set_as_default=False, timeout="1s") as ours,
    ):
        with refused(tw.ClusterError) as caught:
            tw.tune(
                matmul(), HERE, database=database, trials=40, cluster=ours, config=quick,
                progress=False, callback=end,
            )  # fmt: skip
        kept = sum(bool(m.trial) for m in database.records(Measurement))
        assert kept >= 2
        assert caught.value.detail is not None
        assert f"{kept} trials are kept" in caught.value.detail(False)
        (session,) = database.records(Session)
        assert session.status is SessionStatus.INTERRUPTED


FAILED: dict[str, Any] = {"outcome": "crash", "seconds": None, "samples": []}
RIGHT = received(faster('{"requests": [1]}'), '{"requests": [1]}').fields


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 2e-9},
        {"samples": []},
        {"samples": [-1e-9], "seconds": -1e-9},
        {"samples": [1e-13], "seconds": 1e-13},
        {"samples": [1e308], "seconds": 1e308},
        {"outcome": "splendid"},
        {"outcome": "crash"},
        {**FAILED, "error": "x" * (ERROR_LIMIT + 1)},
        {"check": {"passed": False, "max_error": 1.0, "tolerance": 0.1, "error": "x"}},
        {"more": 1},
        {"resources": {"kernel": {"registers": -1}}},
        {"resources": {"kernel": {"registers": 2**63}}},
        {"resources": {"kernel": {"registers": 1.5}}},
        {"resources": {"kernel": 1}},
        {"resources": {"kernel": {str(n): n for n in range(100_000)}}},
    ],
)
def test_answers_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    request = '{"requests": [1]}'
    assert parse(Measured, answered(request, RIGHT), request).results[0].seconds == 1e-9
    wrong = {**RIGHT, "results": [{**RIGHT["results"][0], **change}]}
    with refused(tw.TuningError):
        parse(Measured, answered(request, wrong), request)


@pytest.mark.parametrize(
    "samples",
    [
        [[], []],
        [[], [1.0, 1.0]],
        [[1.0, 1.0], [1.0]],
        [[1.0] * 3] * 2,
        [[1.0] * 2],
        [[1e-300] * 2] * 2,
    ],
)
def test_samples_of_other_candidates_or_rounds_are_refused(samples: list[list[float]]) -> None:
    def read(samples: list[list[float]] | None) -> None:
        parse(Interleaved, answered("{}", {"samples": samples}), "{}").require(2, rounds=2)

    read([[1.0, 2.0], []])
    read(None)
    with refused(tw.TuningError):
        read(samples)


def test_a_long_reason_arrives_as_a_database_takes_it() -> None:
    result = MeasureResult(Outcome.CRASH, error="x" * (10 * ERROR_LIMIT))
    told = CandidateAnswer.of(BuildRequest("{}", 1.0), result)
    request = '{"requests": [1]}'
    found = parse(Measured, answered(request, {**RIGHT, "results": [told]}), request)
    error = found.results[0].error
    assert error == storable("x" * (10 * ERROR_LIMIT))
    assert error is not None
    assert len(error) <= ERROR_LIMIT


def test_a_candidate_that_is_lost_twice_has_failed() -> None:
    job = Job([3, 4], texts, lambda *_: None, 1.0)
    first = job.lost()
    assert [each.numbers for each in first] == [[3], [4]]
    assert [each.lost() for each in first] == [[], []]


class Replies:
    """A cluster of workers that answer what they are asked at once: with the request."""

    def __init__(self, runners: str = "abc", builders: str = "") -> None:
        self.all = [Worker(name) for name in runners]
        self.all += [Worker(name, Role.BUILD) for name in builders]
        self.aside, self.resting = list[str](), list[str]()
        self.did = set[str]()

    @property
    def workers(self) -> list[Worker]:
        return self.of(Role.RUN)

    def of(self, role: Role) -> list[Worker]:
        return [w for w in self.all if w.role is role]

    def has(self, worker: Worker) -> bool:
        return worker in self.all

    def set_aside(self, worker: Worker, why: str, seconds: float = 0.0) -> None:
        self.all.remove(worker)
        self.aside.append(worker.address)

    def rest(self, worker: Worker, why: str) -> None:
        self.all.remove(worker)
        self.resting.append(worker.address)

    def worked(self, worker: Worker) -> None:
        self.did.add(worker.address)

    def named(self, address: str) -> str:
        return address

    def look(self) -> None:
        pass

    def submit(self, worker: Worker, request: str, data: bytes, limit: float) -> Asked:
        future: Future[object] = Future()
        future.set_result((worker.address, request))
        future.status = "finished"  # type: ignore[attr-defined]
        scheduler: Any = self
        return Asked(request, future, limit, scheduler)

    def size(self, _: object) -> int:
        return 1


class Jobs:
    """A `Source` of what is there."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = [*jobs]

    @property
    def over(self) -> bool:
        return not self.jobs

    def next(self, role: Role, free: int) -> Job | None:
        return self.jobs.pop(0) if self.jobs and self.jobs[0].role is role else None


def test_what_no_worker_can_do_costs_two_of_them() -> None:
    """Regression: each worker in turn was set aside, until none was left."""

    def read(worker: Worker, numbers: Sequence[int], answer: object, request: str) -> object:
        if 1 in numbers:
            raise tw.TuningError("it does not build any more")
        return request

    cluster: Any = Replies()
    jobs = Jobs(Job([0, 1], texts, read, 9.0), Job([2], texts, read, 9.0))
    done = [*do(cluster, jobs, lambda: None)]
    assert sorted((d.job.numbers, d.answer) for d in done) == [
        ([0], "[0]"), ([1], None), ([2], "[2]"),
    ]  # fmt: skip
    assert len(cluster.workers) == 1


def test_a_worker_that_says_that_it_cannot_rests() -> None:
    def read(worker: Worker, numbers: Sequence[int], answer: object, request: str) -> object:
        if worker.address == "a":
            return parse(Measured, answered(request, {"error": "no space is left"}), request)
        return request

    cluster: Any = Replies()
    done = [*do(cluster, Jobs(Job([0, 1], texts, read, 9.0)), lambda: None)]
    assert sorted((d.job.numbers, d.answer) for d in done) == [([0], "[0]"), ([1], "[1]")]
    assert (cluster.resting, cluster.aside) == (["a"], [])
    assert cluster.did == {d.worker.address for d in done}


def test_a_worker_that_fails_again_and_again_is_set_aside(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "REST", 0.0)
    monkeypatch.setattr(clusters, "LOOK", 0.0)
    cluster = Cluster(client, HERE)
    address = cluster.workers[0].address

    def back() -> Worker | None:
        """The worker once it has rested; `None` if it does not come back."""
        cluster.look()
        while cluster._greeted:
            time.sleep(0.01)
            cluster.look()
        return next((w for w in cluster.workers if w.address == address), None)

    for done in (False, True, False, False, False):
        worker = back()
        assert worker is not None
        if done:
            cluster.worked(worker)
        else:
            cluster.rest(worker, "no space is left")
    assert back() is None
    assert cluster.aside == {address: "no space is left"}


def test_a_worker_that_was_too_busy_to_say_who_it_is_is_asked_again(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "LOOK", 0.0)
    first = next(iter(client.scheduler_info()["workers"]))
    submit = Scheduler.submit

    def busy(*asked: Any) -> Asked:
        found = submit(*asked)
        return replace(found, future=Future(), limit=0.0) if first in asked else found

    monkeypatch.setattr(Scheduler, "submit", busy)
    cluster = Cluster(client, HERE)
    assert cluster.aside.keys() == {first}
    monkeypatch.setattr(Scheduler, "submit", submit)
    cluster._rests[first] -= clusters.REST  # as if it had rested
    deadline = time.monotonic() + 60
    while len(cluster.workers) < 2 and time.monotonic() < deadline:
        cluster.look()
        time.sleep(0.01)
    assert len(cluster.workers) == 2
    assert cluster.aside == {}


def test_a_worker_that_is_late_rests() -> None:
    class Late(Replies):
        def submit(self, worker: Worker, request: str, data: bytes, limit: float) -> Asked:
            asked = super().submit(worker, request, data, limit)
            return replace(asked, future=Future(), limit=0.0) if worker.address == "a" else asked

    cluster: Any = Late()
    jobs = Jobs(Job([0], texts, lambda *asked: asked[-1], 9.0))
    done = [*do(cluster, jobs, lambda: None)]
    assert [(d.job.numbers, d.answer) for d in done] == [([0], "[0]")]
    assert (cluster.resting, cluster.aside) == (["a"], [])


@pytest.mark.parametrize("most_bytes", [1, 1 << 30])
def test_builders_wait_for_runners(monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
    """However many candidates the search has: only so many are on their way."""
    monkeypatch.setattr(dispatch, "_TICK", 1e-3)
    monkeypatch.setattr(streams, "MAX_HELD", most_bytes)
    cluster: Any = Replies(runners="a", builders="xyz")
    most, drawn, ahead = 3000, streams.PART, 0
    ran: list[int] = []

    def draw(count: int) -> int:
        nonlocal drawn
        new = min(count, most - drawn)
        drawn += new
        return new

    def tick() -> None:
        nonlocal ahead
        ahead = max(ahead, drawn - len(ran))

    def answered_at_once(*asked: Any) -> Any:
        return asked[-1]

    stream = Stream(
        cluster,
        streams.PART,
        draw,
        build=lambda ns: Job(ns, texts, answered_at_once, 9.0, role=Role.BUILD),
        run=lambda ns: Job(ns, texts, answered_at_once, 9.0),
    )
    for done in do(cluster, stream, tick):
        numbers = done.job.numbers
        if done.job.role is Role.BUILD:
            assert [*stream.built(numbers, [kernel("right")] * len(numbers))] == []
        else:
            stream.done(numbers)
            ran += numbers
    assert sorted(ran) == [*range(most)]
    assert ahead <= (streams.AHEAD + 2 * 3 + 2) * streams.PART


def test_slow_and_disturbed_workers_are_noticed() -> None:
    a, b, c, d = (Worker(name) for name in "abcd")
    sentinels = Sentinels()
    assert [sentinels.note(w, [(1.0,), (1.1,)]) for w in (a, b, c)] == [None] * 3
    assert sentinels.note(d, [(2.5,), (2.5,)]) is not None  # slow
    assert sentinels.note(a, [(1.0, 1.0, 9.0), (2.2, 2.2, 1.0)]) is not None  # disturbed
    assert sentinels.note(b, [(1e-9,), (1e-9,)]) is not None  # its clock is wrong, not others'
    assert sentinels.note(c, [(1.0,), (1.1,)]) is None
    assert sentinels.note(c, []) is None
