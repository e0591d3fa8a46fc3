"""Every backend that the contract tests run on.

PostgreSQL is the server of the URL in TILEWRIGHT_TEST_POSTGRES, else one that is started here from
the `initdb` and `postgres` found on this machine; without either those tests are skipped.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError

from tilewright.tuning_db import TuningDatabase

from .samples import Clock, fill

_NUMBER = itertools.count()
Place = Callable[[], str]


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    given = os.environ.get("TILEWRIGHT_TEST_POSTGRES")
    if given:
        yield given
        return
    found = binaries()
    if found is None:
        pytest.skip("no PostgreSQL: set TILEWRIGHT_TEST_POSTGRES to a URL, or install a server")
    with server(found) as url:
        yield url


@pytest.fixture(scope="session")
def postgres(postgres_url: str) -> Iterator[Engine]:
    """Makes and drops what tests use on the server."""
    engine = create_engine(postgres_url)
    yield engine
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Returns the URL of a new, empty database at each call."""
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path}/tuning{next(_NUMBER)}.db"
        return
    engine: Engine = request.getfixturevalue("postgres")
    made: list[str] = []

    def new() -> str:
        made.append(f"tuning_{os.getpid()}_{next(_NUMBER)}")
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {made[-1]}"))
        options = {"options": f"-csearch_path={made[-1]}"}
        return engine.url.update_query_dict(options).render_as_string(hide_password=False)

    yield new
    with engine.begin() as connection:
        for schema in made:
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))


@pytest.fixture
def place(new_place: Place) -> str:
    """The URL of a new, empty database."""
    return new_place()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def filled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that `db` is a copy of on SQLite: making it took most of the time of these tests."""
    path = tmp_path_factory.mktemp("filled") / "tuning.db"
    with TuningDatabase(path) as opened:
        fill(opened)
    return path


@pytest.fixture
def db(place: str, clock: Clock, filled_file: Path) -> Iterator[TuningDatabase]:
    """A database that holds everything measurements refer to, and no measurement."""
    if place.startswith("sqlite"):
        shutil.copy(filled_file, place.removeprefix("sqlite:///"))
    with TuningDatabase(place, clock=clock) as opened:
        if not place.startswith("sqlite"):
            fill(opened)
        yield opened


def binaries() -> Path | None:
    """The folder of the server's programs."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


@contextmanager
def server(programs: Path, tls: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Run a server; return its URL. With a key and a certificate, it is reached by TLS alone."""
    # The server refuses to run as root.
    user = "nobody" if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="tilewright-postgres-"))
    if user is not None:
        shutil.chown(home, user)
    data = home / "data"
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "tilewright", "-A", "trust", "-E", "UTF8", "-N"],
        check=True,
        user=user,
        cwd=home,
        stdout=subprocess.DEVNULL,
    )
    settings = ["listen_addresses=", "fsync=off", "synchronous_commit=off", "logging_collector=off"]
    host = str(home)
    if tls is not None:
        for path in tls:
            shutil.copy(path, home)
            (home / path.name).chmod(0o600)
            if user is not None:
                shutil.chown(home / path.name, user)
        (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust\n")
        port = free_port()
        settings[0] = "listen_addresses=127.0.0.1"
        settings += [f"port={port}", "ssl=on"]
        settings += [f"ssl_key_file={home / tls[0].name}", f"ssl_cert_file={home / tls[1].name}"]
        host = f"localhost&port={port}&hostaddr=127.0.0.1&sslmode=require"
    options = [word for setting in settings for word in ("-c", setting)]
    with (home / "log").open("wb") as log:
        running = subprocess.Popen(
            [programs / "postgres", "-D", data, "-k", home, *options],
            user=user,
            cwd=home,
            stdout=log,
            stderr=log,
        )
    try:
        url = f"postgresql+psycopg://tilewright@/postgres?host={host}"
        _wait(url, running)
        yield url
    finally:
        running.send_signal(signal.SIGINT)  # it waits for no client
        running.wait()
        shutil.rmtree(home)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    engine = create_engine(url)
    for _ in range(3000):
        try:
            engine.connect().close()
        except OperationalError:
            assert server.poll() is None, "the PostgreSQL server did not start"
            time.sleep(0.1)
        else:
            break
    engine.dispose()
