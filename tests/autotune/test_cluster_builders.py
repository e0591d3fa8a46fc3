"""Builders and runners of a cluster: code that travels, and both killed while they work."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any

import pytest

import tilewright as tw
from tilewright.autotune.cluster import cluster as clusters
from tilewright.autotune.cluster import code, sentinels, station
from tilewright.autotune.cluster.answers import UNBELIEVED, received
from tilewright.autotune.cluster.cluster import Cluster, Role, Worker
from tilewright.autotune.cluster.code import Compiled, pack, unpack
from tilewright.autotune.cluster.measurer import ClusterMeasurer
from tilewright.autotune.cluster.scheduler import Asked
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureResult
from tilewright.autotune.measure.program_text import program_fields
from tilewright.autotune.measure.worker_pool import Built
from tilewright.autotune.session.events import Trial
from tilewright.codegen.compiled import Launch
from tilewright.codegen.detect import resolve
from tilewright.tuning_db import Measurement, Outcome, TargetRecord

from ..refusals import refused
from .cluster_of import HERE, QUICK, all_ran, requests, workers
from .kernels import affine, kernel

distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not import tests


@pytest.fixture(scope="module")
def farm() -> Iterator[Any]:
    """Two builders and two runners."""
    with workers(Role.BUILD, Role.BUILD, Role.RUN, Role.RUN) as client:
        yield client


@pytest.fixture
def client(farm: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """All of them, honest; this machine may be as noisy as it likes."""
    monkeypatch.setattr(sentinels, "SLOW", 1e9)
    monkeypatch.setattr(clusters, "LOOK", 0.1)
    yield farm
    farm.run(behave)
    farm.wait_for_workers(4, timeout=100)


def settled(client: Any) -> Cluster:
    """All workers, once they have said who they are."""
    cluster = Cluster(client, HERE)
    while len(cluster.of(Role.BUILD)) < 2 or len(cluster.workers) < 2:
        time.sleep(0.01)
        cluster.look()
    return cluster


def measured(cluster: Cluster) -> dict[int, MeasureResult]:
    """What became of each candidate, of which there is one result."""
    with ClusterMeasurer(affine(), cluster, QUICK) as measurer:
        results = list(measurer.measure(requests(), None))
    assert len({number for number, _ in results}) == len(results)
    return dict(results)


# What workers do in place of what they should.


def spoil(owner: str, name: str, value: Any) -> None:
    """Put a value into a module or class of a worker, until it behaves."""
    from importlib import import_module

    from tilewright.autotune.cluster import station

    module, _, kind = f"tilewright.autotune.{owner}".partition(":")
    place: Any = import_module(module)
    place = getattr(place, kind) if kind else place
    vars(station).setdefault("spoilt", []).append((place, name, getattr(place, name)))
    setattr(place, name, value)


def behave() -> None:
    from tilewright.autotune.cluster import station

    for place, name, honest in reversed(vars(station).pop("spoilt", [])):
        setattr(place, name, honest)


def killed(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_between(_: Any, candidates: Any, best: Any) -> Iterator[Any]:
    """The first candidate is timed, and then the worker is killed."""
    yield 0, candidates[0]
    killed()


def sleeps(*_: Any) -> Any:
    time.sleep(60)


def only_what_is_built(program: Any, requests: Any, known: Any, fields: Any) -> Any:
    from tilewright.autotune.cluster import station

    assert known is not None, "the runner builds"
    return vars(station)["spoilt"][-1][2](program, requests, known, fields)


def damaged(requests: Any, found: Any) -> Any:
    """Code in which a byte is another one than its digest says."""
    from tilewright.autotune.cluster.code import pack

    fields, data = pack(requests, found)
    return fields, data[:-1] + bytes([data[-1] ^ 1])


def test_code_is_built_by_some_and_run_by_others(client: Any) -> None:
    cluster = settled(client)
    runners = [worker.address for worker in cluster.workers]
    client.run(spoil, "cluster.station:_Program", "_measure", only_what_is_built, workers=runners)
    assert all_ran(measured(cluster))
    assert cluster.aside == {}


@pytest.mark.parametrize(
    ("role", "place", "name", "fault"),
    [
        (Role.BUILD, "measure.program_builds:ProgramBuilds", "each", killed),
        (Role.RUN, "measure.measurer:Measurer", "time", killed_between),
    ],
)
def test_one_that_is_killed_at_work_costs_no_candidate(
    client: Any, role: Role, place: str, name: str, fault: Any
) -> None:
    cluster = settled(client)
    victim = cluster.of(role)[0].address
    client.run(spoil, place, name, fault, workers=[victim])
    assert all_ran(measured(cluster))


@pytest.mark.parametrize("lie", [damaged, sleeps])
def test_a_builder_that_errs_or_hangs_is_set_aside(
    client: Any, lie: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = settled(client)
    victim = cluster.of(Role.BUILD)[0].address
    if lie is sleeps:
        client.run(spoil, "cluster.station", "_station", sleeps, workers=[victim])
        hangs = property(lambda asked: asked.future.key in late)
        late = set[str]()
        submit = Cluster.submit

        def noted(cluster: Cluster, worker: Worker, *more: Any) -> Asked:
            asked = submit(cluster, worker, *more)
            late.update([asked.future.key] if worker.address == victim else [])
            return asked

        monkeypatch.setattr(Cluster, "submit", noted)
        monkeypatch.setattr(Asked, "late", hangs)
    else:
        client.run(spoil, "cluster.station", "pack", lie, workers=[victim])
    assert all_ran(measured(cluster))
    assert cluster.aside.keys() == {victim}
    if lie is sleeps:
        client.restart_workers([victim])


def test_without_builders_runners_build(client: Any) -> None:
    cluster = settled(client)
    for worker in cluster.of(Role.BUILD):
        cluster.set_aside(worker, "a test")
    assert all_ran(measured(cluster))


def test_a_wrong_time_of_day_changes_nothing(client: Any) -> None:
    cluster = settled(client)
    client.run(spoil, "measure.worker_process", "time", WrongClock())
    assert all_ran(measured(cluster))


class WrongClock:
    """The module `time`, of a machine whose date is wrong."""

    def __getattr__(self, name: str) -> Any:
        import time

        return (lambda: 1.0) if name == "time" else getattr(time, name)


def test_kills_lose_no_trial_and_make_none_twice(client: Any) -> None:
    pids = client.run(os.getpid)
    victims = [pids[settled(client).of(role)[0].address] for role in Role]
    quick = TuneConfig(batch=2, final_seconds=0.05, measure=QUICK)

    def kill(event: object) -> None:
        if isinstance(event, Trial) and event.number in (2, 4):
            os.kill(victims.pop(), signal.SIGKILL)

    with tw.TuningDatabase("sqlite://") as database:
        result = tw.tune(
            affine(), HERE, database=database, trials=8, cluster=client, config=quick,
            progress=False, callback=kill,
        )  # fmt: skip
        trials = [m for m in database.records(Measurement) if m.trial]
    assert victims == []
    assert result.trials == len(trials) == len({m.schedule for m in trials})
    assert set(result.outcomes) == {Outcome.OK}


def test_a_worker_started_again_on_its_port_gets_work(client: Any) -> None:
    cluster = settled(client)
    worker = cluster.workers[0]
    cluster.set_aside(worker, "it does not answer")
    cluster.look()
    assert worker not in cluster.workers
    client.restart_workers([worker.address])
    deadline = time.monotonic() + 60
    while len(cluster.workers) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
        cluster.look()
    assert cluster.aside == {}
    assert worker.address in {w.address for w in cluster.workers}
    assert worker not in cluster.workers


# Code as data.


def here(kind: str) -> Built:
    """A kernel whose code is for the target `here`."""
    built = kernel(kind)
    return built._replace(kernel=built.kernel._replace(target="here", launches=(Launch(kind),)))


CODE: list[Compiled] = [here("right"), MeasureResult(Outcome.BUILD_ERROR, error="no"), here("slow")]


def test_code_comes_back_as_it_was() -> None:
    fields, data = pack(requests()[:3], CODE)
    found = unpack(json.loads(json.dumps(fields)), data, requests()[:3], "here")
    assert [each[0] if isinstance(each, Built) else each for each in found] == [
        each[0] if isinstance(each, Built) else each for each in CODE
    ]


def test_code_that_is_not_what_it_should_be_is_refused() -> None:
    some = requests()[:3]
    fields, data = pack(some, CODE)
    for wrong in (
        (fields, data, some, "another processor"),
        (fields, data[:-1], some, "here"),
        (fields, data[:-1] + b"?", some, "here"),
        (fields, data, [some[1], some[0], some[2]], "here"),
        (fields[:2], data, some, "here"),
        ([{**fields[0], "size": 1 << 40}, *fields[1:]], data, some, "here"),
        ([{**fields[0], "launches": []}, *fields[1:]], data, some, "here"),
        ([{**fields[0], "resources": {"right": {"n": -1}}}, *fields[1:]], data, some, "here"),
        (None, data, some, "here"),
    ):
        with refused(tw.TuningError):
            unpack(*wrong)


def test_a_signature_that_is_nested_too_deeply_is_not_believed() -> None:
    fields, data = pack(requests()[:1], CODE[:1])
    with pytest.raises(UNBELIEVED):
        unpack([{**fields[0], "signature": "[" * 100_000}], data, requests()[:1], "here")


def test_a_runner_refuses_code_for_another_processor() -> None:
    some = [list(request) for request in requests()[:1]]
    codes, data = pack(requests()[:1], [here("right")])
    fields: dict[str, Any] = {"config": asdict(QUICK), "tolerance": None, "step_modules": []}
    runner = station._Program({**program_fields(affine(), resolve(HERE)), **fields})
    with closing(runner), refused(tw.TuningError) as caught:
        runner.answer({"do": "measure", "requests": some, "codes": codes}, data)
    assert "here" in str(caught.value)


def test_code_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MAX_CODE", 10)
    fields, data = pack(requests()[:1], CODE[:1])
    (failed,) = unpack(fields, data, requests()[:1], "here")
    assert isinstance(failed, MeasureResult)
    assert (failed.outcome, data) == (Outcome.BUILD_ERROR, b"")


class Served:
    """A program by its name, in place of one with processes: one that is `bad` does not open."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._name = fields["name"]

    def open(self) -> None:
        if self._name == "bad":
            raise tw.TuningError("it does not open")

    def close(self) -> None:
        pass

    def answer(self, fields: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        return {"by": self._name}, data


def served(worker: Any, name: str) -> Any:
    """What a station answers to a request for a program: who did, or that none can."""
    request = json.dumps({"do": "measure", "program": {"name": name}})
    return received(worker.do(request, b""), request).fields["by"]


def test_a_program_that_does_not_open_answers_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(station, "_Program", Served)
    worker = station._Station()
    assert served(worker, "good") == "good"
    with refused(tw.TuningError):
        served(worker, "bad")
    assert served(worker, "good") == "good"
    with refused(tw.TuningError):
        served(worker, "bad")


def test_a_program_that_does_not_close_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Event()

    class Stuck(Served):
        def close(self) -> None:
            tried.set()
            raise OSError("it does not close")

    monkeypatch.setattr(station, "_Program", Stuck)
    monkeypatch.setattr(station, "IDLE", 0.01)
    worker = station._Station()
    assert served(worker, "one") == "one"
    assert tried.wait(10)  # idle
    answers = list[str]()
    threading.Thread(target=lambda: answers.append(served(worker, "two")), daemon=True).start()
    deadline = time.monotonic() + 10
    while not answers and time.monotonic() < deadline:
        time.sleep(0.01)
    assert answers == ["two"]
    assert "it does not close" in caplog.text


def declare(target: str | None) -> None:
    import dask.config

    dask.config.set({"tilewright.target": target})


def test_workers_of_two_kinds_tune_for_both_targets_at_once(client: Any) -> None:
    targets = [f"cpu -mcpu={level} -threads=1" for level in ("x86-64", "x86-64-v2")]
    quick = TuneConfig(batch=2, final_seconds=0.05, measure=QUICK)
    numbers = set[int]()
    runners = [worker.address for worker in settled(client).workers]
    with tw.TuningDatabase("sqlite://") as database:
        with refused(tw.TuningError):
            tw.tune(affine(), targets, database=database)  # one machine has one
        for address, target in zip(runners, targets, strict=True):
            client.run(declare, target, workers=[address])
        results = tw.tune(
            affine(), targets, database=database, trials=4, cluster=client, config=quick,
            progress=False, callback=lambda event: numbers.add(event.program),
        )  # fmt: skip
        assert [r.target for r in results] == [str(resolve(t)) for t in targets]
        assert [r.trials for r in results] == [4, 4]
        assert numbers == {0, 1}
        for result in results:
            assert result.best is not None
            trials = database.measurements(session=result.session, limit=100)
            assert {database.get(TargetRecord, m.target).text for m in trials} == {result.target}
            assert len({m.schedule for m in trials if m.trial}) == 4
    with refused(tw.ClusterError) as caught:
        Cluster(client, resolve("cpu -mcpu=x86-64-v2 -threads=2"))
    assert all("it measures for" in why for why in caught.value.data["workers"].values())
    client.run(declare, None)
