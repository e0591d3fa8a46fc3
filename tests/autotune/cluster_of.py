"""Clusters of Dask for tests, and candidates for them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from tilewright import Schedule
from tilewright.autotune.cluster.cluster import Role
from tilewright.autotune.measure.measure_result import BuildRequest, MeasureConfig, MeasureResult
from tilewright.tuning_db import Outcome

from .kernels import affine

HERE = "cpu -threads=1"
QUICK = MeasureConfig(builders=1, max_samples=3, sample_seconds=1e-4, timing_seconds=0.01)


@contextmanager
def workers(*roles: Role) -> Iterator[Any]:
    """A client of a cluster with a worker for each role, which keeps its port when it restarts."""
    import dask.config
    import distributed

    with ExitStack() as sockets:
        free = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in roles]
        ports = [each.getsockname()[1] for each in free]
    specs = {
        n: {
            "cls": distributed.Nanny,
            "options": {
                "nthreads": 1,
                "silence_logs": 30,
                "resources": {role.value: 1},
                "worker_port": ports[n],
            },
        }
        for n, role in enumerate(roles)
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": ":0"}}
    with (
        # Dask gives up workers that take longer to be started again.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "100s"}),
        distributed.SpecCluster(workers=specs, scheduler=scheduler) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@cache
def requests() -> tuple[BuildRequest, ...]:
    """Schedules of `affine`, all different."""
    found = []
    for factor in (1, 2, 4, 8):
        sch = Schedule(affine())
        (loop,) = sch.get_loops(sch.get_block("B"))
        sch.split(loop, [None, factor])
        found.append(BuildRequest.of(sch.trace))
    return tuple(found)


def all_ran(results: dict[int, MeasureResult]) -> bool:
    outcomes = [results[n].outcome for n in range(len(requests()))]
    return len(results) == len(requests()) and set(outcomes) == {Outcome.OK}
