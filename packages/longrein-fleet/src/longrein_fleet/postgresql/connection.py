"""Connections to the store: how they are opened again, and errors in one line for the user."""

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import conninfo

from longrein.store.session_store import passwords_in
from longrein_context.events import SessionError, StoreFull
from longrein_context.events.escape import one_line
from longrein_fleet.postgresql.schema import prepare_schema

FIRST_S = 3.0
"""Time for which a first connection is tried."""
RECONNECT_S = 60.0
"""Time for which a lost connection is tried again."""
PAUSES_S = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Pauses between the attempts; the last one is repeated."""
CONNECT_S = 10
"""Time limit of one attempt."""
SILENT_MS = 30_000
"""Time after which a connection on which nothing arrives counts as lost."""
TRANSIENT = frozenset({"57P01", "57P02", "57P03", "53300"})
"""States of a server that stops, starts or has no free connection."""

FINAL = ("authentication failed", "does not exist", "could not translate host name")
"""Parts of messages about connections that no later attempt gets either."""

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # else it writes to the terminal
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


def shown_address(address: str) -> str:
    """Return the address without user, password and options."""
    try:
        parts = conninfo.conninfo_to_dict(address)
    except psycopg.Error:
        return "the store"
    host = parts.get("host") or "localhost"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"the store {host}{port}/{parts.get('dbname') or ''}"


def is_lost(error: psycopg.Error) -> bool:
    """Return True if there is no connection now and may be one later. Whether a transaction whose
    answer is missing was committed is not known then.
    """
    if error.sqlstate is not None:
        return error.sqlstate in TRANSIENT
    is_of_link = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return is_of_link and not any(words in str(error) for words in FINAL)


def failure_of(error: psycopg.Error, address: str) -> SessionError:
    """Return the `SessionError` for an error of the store, without its password."""
    why = one_line(str(error))
    for password in passwords_in(address):
        why = why.replace(password, "***")
    if isinstance(error, psycopg.errors.DiskFull):
        return StoreFull(f"{shown_address(address)} is full ({why}); free some room there")
    return SessionError(f"{shown_address(address)} cannot be used: {why}")


class StoreLink:
    """A connection to the store that is opened at the first use, and again when it is lost.

    For one thread at a time.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._connection: Connection | None = None
        self._was_open = False

    def fetch(self, query: str, values: Sequence[object] = ()) -> Rows:
        """Run a query that may be repeated, and return its rows. Raises `SessionError`."""
        try:
            return self.run(lambda link: link.execute(query, values, binary=True).fetchall())
        except psycopg.Error as error:
            raise failure_of(error, self.address) from None

    def run(self, work: Callable[[Connection], T], limit_s: float | None = None) -> T:
        """Do `work` with a connection, again from its start when the connection is lost meanwhile.

        Raises psycopg.Error, also when there is no connection for `limit_s`: `RECONNECT_S`, and at
        first `FIRST_S`.
        """
        if limit_s is None:
            limit_s = RECONNECT_S if self._was_open else FIRST_S
        end = time.monotonic() + limit_s
        pauses = itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1]))
        while True:
            try:
                return work(self._open())
            except psycopg.Error as error:
                if not is_lost(error):
                    self._roll_back()
                    raise
                self.close()
                if time.monotonic() > end:
                    raise
            time.sleep(next(pauses))

    def _roll_back(self) -> None:
        if self._connection is not None:
            self._connection.rollback()

    def _open(self) -> Connection:
        if self._connection is None:
            connection = psycopg.connect(
                self.address,
                autocommit=True,
                connect_timeout=CONNECT_S,
                keepalives_idle=CONNECT_S,
                keepalives_interval=CONNECT_S,
                tcp_user_timeout=SILENT_MS,  # a server that is gone without a word
                application_name="longrein",
            )
            try:
                self.prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self._was_open = True
        return self._connection

    def prepare(self, connection: Connection) -> None:
        """Prepare a new connection. Raises `SessionReadOnly`, psycopg.Error."""
        prepare_schema(connection)

    def close(self) -> None:
        """Close the connection. Idempotent; the next use opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
