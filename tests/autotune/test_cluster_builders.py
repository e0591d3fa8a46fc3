"""Builders and runners of a cluster: code that travels, and both killed while they work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.autotune.cluster.cluster import Cluster, Role
from tilewright.autotune.cluster.measurer import ClusterMeasurer
from tilewright.tuning_db import Outcome

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
