"""What is asked of Dask: which workers there are, and that one of them does something.

Dask starts and finds the workers, and carries texts and bytes. Exceptions of workers are not asked
for: they would come as pickles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...base.errors import ClusterError, TuningError
from ..measure.protocol import MAX_DATA

FETCH_SECONDS = 30.0
_RESTART = "start it and its workers again, and continue the session: resume=True"


class Found(NamedTuple):
    """A worker that the scheduler knows. `life` is another one once it was started again."""

    address: str
    life: str
    name: str
    resources: dict[str, float]


@dataclass(eq=False)
class Asked:
    """A request that a worker has, and Dask's future of the answer."""

    request: str
    future: Any
    limit: float
    scheduler: Scheduler
    submitted: float = field(default_factory=time.monotonic)

    @property
    def late(self) -> bool:
        return time.monotonic() - self.submitted > self.limit

    @property
    def lost(self) -> bool:
        """Whether there is no answer, since the worker ended."""
        return self.future.status in ("cancelled", "lost")

    def answer(self) -> object:
        """The answer of a future that is done.

        Raises `TuningError` where its task failed, whose exception is not asked for; and where the
        answer is too large, does not come, or is of a kind that the client does not take.
        """
        if self.future.status == "error":
            raise TuningError("its task failed; its log says why")
        try:
            size = self.scheduler.size(self.future)
            if size > MAX_DATA:
                raise TuningError("an answer of {0} bytes; at most {1}", size, MAX_DATA)
            return self.future.result(timeout=FETCH_SECONDS)
        except TuningError:
            raise
        except Exception as error:
            raise TuningError("its answer cannot be read: {0}", type(error).__name__) from error


class Scheduler:
    """A scheduler, by a `dask.distributed.Client` of it. Raises `ClusterError` for what is none."""

    def __init__(self, client: Any) -> None:
        if not all(hasattr(client, name) for name in ("submit", "sync", "status")):
            raise ClusterError(
                "cluster={0!r:.80}: expected a dask.distributed.Client, or the address of a "
                "scheduler",
                client,
            )
        if getattr(client, "asynchronous", False):
            raise ClusterError("an asynchronous client: sessions call it from a thread of theirs")
        self._client = client

    def workers(self) -> list[Found]:
        """Those that it knows now. Raises `ClusterError` where it does not answer."""
        client = self._client
        try:
            if client.status != "running":
                raise OSError(f"the connection is lost ({client.status})")
            known = client.sync(
                client.scheduler.identity, n_workers=-1, callback_timeout=FETCH_SECONDS
            )["workers"]
            return [
                Found(a, str(w["local_directory"]), str(w.get("name", a)), dict(w["resources"]))
                for a, w in known.items()
            ]
        except Exception as error:
            raise ClusterError(
                "the scheduler does not answer: {0}", error, hint=_RESTART
            ) from error

    def submit(
        self,
        function: Callable[..., bytes],
        request: str,
        limit: float,
        address: str,
        data: bytes = b"",
        resources: dict[str, float] | None = None,
    ) -> Asked:
        """Ask a function of `station.py` on a worker, which has so many seconds from now on."""
        future = self._client.submit(
            function,
            *((request, data) if data else (request,)),
            workers=[address],
            allow_other_workers=False,
            resources=resources,
            pure=False,
            retries=0,
        )
        return Asked(request, future, limit, self)

    def size(self, future: Any) -> int:
        """The bytes of a result, which is still where it was made."""
        sizes: dict[Any, int] = self._client.nbytes(keys=[future.key], summary=False)
        return max(sizes.values(), default=0)


def connected(address: str) -> Any:
    """A client of the scheduler at an address such as `tcp://host:8786`.

    It takes no pickles for results. Raises `ClusterError` without Dask, or a scheduler.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(
            "distributed is not installed", hint="pip install 'tilewright[cluster]'"
        ) from error
    try:
        return Client(address, set_as_default=False, deserializers=["dask", "msgpack"])
    except (OSError, ValueError, TypeError) as error:
        raise ClusterError("no scheduler at {0}: {1}", address, error) from error
