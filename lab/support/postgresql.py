"""A PostgreSQL server for tests: one for each process of pytest, a schema of its own for each test.

The server runs as an ordinary user, because it refuses root, and ends with the process that has
started it.
"""

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from importlib.util import find_spec
from pathlib import Path

import pytest

from longrein.app.run_context import use_store_at
from tests.tables import split_words
from tests.timeouts import HANG_S

FOLDERS = ("/usr/local/bin", *sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True))
"""Folders in which PostgreSQL's programs may be."""
both_stores = pytest.mark.parametrize("store", ["files", "postgresql"], indirect=True)
"""Run a test over sessions in files and in PostgreSQL."""
in_postgresql = pytest.mark.parametrize("store", ["postgresql"], indirect=True)

_schemas = itertools.count(1)


def _program(name: str) -> str:
    paths = (os.path.join(folder, name) for folder in FOLDERS)
    return shutil.which(name) or next(filter(os.path.exists, paths), "")


def why_missing() -> str:
    """Return why tests cannot use PostgreSQL here; '' where they can."""
    if not _program("initdb") or not _program("postgres"):
        return "PostgreSQL is not installed (Debian: postgresql)"
    return "" if find_spec("psycopg") else "psycopg is not installed (make library)"


class Server:
    """A running server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        words = split_words("""
            --no-sync --auth=trust --username=longrein --encoding=UTF8 --no-locale
        """)
        done = subprocess.run(
            _as_user([_program("initdb"), "-D", str(folder / "data"), *words]),
            capture_output=True,
            check=False,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr.decode()
        self.start()

    @property
    def address(self) -> str:
        """Address of its database."""
        return f"postgresql://longrein@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 200,
        }
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with open(self.folder / "output", "ab") as output:
            self._process = subprocess.Popen(
                _as_user([_program("postgres"), "-D", str(self.folder / "data"), *words]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )
        self._wait_ready()

    def _wait_ready(self) -> None:
        import psycopg

        end = time.monotonic() + HANG_S
        while True:
            try:
                psycopg.connect(self.address).close()
            except psycopg.OperationalError:
                assert self._process is not None
                assert self._process.poll() is None, (self.folder / "output").read_text()
                assert time.monotonic() < end, "the server does not start"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Stop it at once, as a crash does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(HANG_S)

    def run(self, query: str, *values: object) -> list[tuple]:
        """Run a query in the database; return its rows."""
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def new_schema(self) -> str:
        """Make an empty schema; return the address of a store in it."""
        name = f"test_{os.getpid()}_{next(_schemas)}"
        self.run(f"CREATE SCHEMA {name}")
        return f"{self.address}?options=-csearch_path%3D{name}"


def _as_user(words: Sequence[str]) -> list[str]:
    ending = ["setpriv", "--pdeathsig", "KILL"]
    if os.getuid() != 0:
        return [*ending, *words]
    user = pwd.getpwnam("nobody")
    return [*ending, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *words]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running_server() -> Iterator[Server]:
    """Run a server of its own. Skips the test where PostgreSQL is missing."""
    if why := why_missing():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="longrein-postgresql-"))
    try:
        server = Server(folder)
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep_in(state: Path, server: Server) -> str:
    """Keep the sessions of `state` in a new store of `server`; return its address."""
    address = server.new_schema()
    use_store_at(str(state), address)
    return address


# --- Connections that are watched and cut ---------------------------------------------------------


@contextmanager
def proxy(server: Server) -> Iterator["Proxy"]:
    running = Proxy(server)
    try:
        yield running
    finally:
        running.close()


class Proxy:
    """Passes connections on to the server: counts round trips, and cuts connections."""

    def __init__(self, server: Server) -> None:
        self.round_trips = 0
        self.swallow = False
        """True: answers are kept back, and the connection is cut at the next one."""
        self.bytes_left: int | None = None
        """Bytes in both directions after which a connection is cut; None for no end."""
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def address(self, store: str) -> str:
        return store.replace(f":{self._server.port}/", f":{self.port}/")

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server.port))
            self._pairs.append((client, server))
            state = {"asks": False}
            for source, target in ((client, server), (server, client)):
                threading.Thread(
                    target=self._pass_on,
                    args=(source, target, source is client, state),
                    daemon=True,
                ).start()

    def _pass_on(
        self, source: socket.socket, target: socket.socket, is_client: bool, state: dict[str, bool]
    ) -> None:
        try:
            while data := source.recv(65536):
                if is_client and not state["asks"]:
                    self.round_trips += 1
                state["asks"] = is_client
                if self.swallow and not is_client:
                    self.swallow = False
                    break
                target.sendall(data[: self.bytes_left])
                if self.bytes_left is not None:
                    self.bytes_left -= len(data)
                    if self.bytes_left <= 0:
                        self.bytes_left = None
                        break
        except OSError:
            pass
        for one in (source, target):
            shut(one)

    def cut(self) -> None:
        for pair in self._pairs:
            for one in pair:
                shut(one)

    def close(self) -> None:
        shut(self._listener)  # else the thread in `accept` takes one more connection
        self._listener.close()
        self.cut()


def shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
