"""Builders and runners of a cluster: code that travels, and both killed while they work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw
from tilewright.autotune.cluster.cluster import Cluster, Role
from tilewright.autotune.cluster.measurer import ClusterMeasurer
from tilewright.autotune.config import TuneConfig
from tilewright.codegen.detect import resolve
from tilewright.tuning_db import Outcome, TargetRecord

from ..refusals import refused
from .cluster_of import HERE, QUICK, all_ran, requests, workers
from .kernels import affine

distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not import tests


@pytest.fixture(scope="module")
def farm() -> Iterator[Any]:
    """Two builders and a runner."""
    with workers(Role.BUILD, Role.BUILD, Role.RUN) as client:
        yield client


def settled(client: Any, builders: int = 2, **options: Any) -> Cluster:
    cluster = Cluster(client, HERE, **options)
    while len(cluster.of(Role.BUILD)) < builders:
        cluster.look()
    return cluster


def no_builds(_: Any, requests: Any, *__: Any) -> list[Any]:
    assert not requests, "the runner builds"
    return []


def forbid_builds() -> None:
    from tilewright.autotune.measure.measurer import Measurer

    Measurer.build = no_builds  # type: ignore[method-assign, assignment]


def test_code_is_built_by_some_and_run_by_another(farm: Any) -> None:
    cluster = settled(farm)
    (runner,) = cluster.workers
    farm.run(forbid_builds, workers=[runner.address])
    with ClusterMeasurer(affine(), cluster, QUICK) as measurer:
        assert measurer.width == 2
        results = dict(measurer.measure(requests(), None))
    assert all_ran(results), [r.error for r in results.values()]
    assert {r.outcome for r in results.values()} == {Outcome.OK}


def declare(target: str) -> None:
    import dask.config

    dask.config.set({"tilewright.target": target})


def test_workers_of_two_kinds_tune_for_both_targets_at_once() -> None:
    targets = [f"cpu -mcpu=x86-64-{level} -threads=1" for level in ("v2", "v3")]
    quick = TuneConfig(batch=2, final_seconds=0.05, measure=QUICK)
    numbers = set[int]()
    with workers(Role.RUN, Role.RUN) as client, tw.TuningDatabase("sqlite://") as database:
        for address, target in zip(client.scheduler_info()["workers"], targets, strict=True):
            client.run(declare, target, workers=[address])
        with refused(tw.TuningError):
            tw.tune(affine(), targets, database=database)  # one machine has one
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
            Cluster(client, HERE)
        assert all("it is for" in why for why in caught.value.data["workers"].values())
