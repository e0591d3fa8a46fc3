"""A network between a client and a PostgreSQL server, which can be cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from sqlalchemy import make_url

PORT = ".s.PGSQL.5432"


class Proxy:
    """Passes on what is sent to a socket in `folder`; `url` is that of the database behind it."""

    def __init__(self, place: str, folder: Path) -> None:
        behind = make_url(place)
        self._server = f"{behind.query['host']}/{PORT}"
        self._path = folder / PORT
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        named = behind.update_query_dict({"host": str(folder)})
        self.url = named.render_as_string(hide_password=False)

    def __enter__(self) -> Self:
        self.join()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def join(self) -> None:
        """Let connections through."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """End all connections, and let none through."""
        if self._listener is None:
            return
        self._path.unlink()
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._listener = None
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client = listener.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._open |= {client, server}
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, destination: socket.socket) -> None:
        with suppress(OSError):
            while some := source.recv(65536):
                destination.sendall(some)
        for one in (source, destination):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
