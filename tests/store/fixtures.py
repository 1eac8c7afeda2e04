"""Shared by the tests of the store: a ticking clock, builders of entries and logs, processes to
kill.
"""

import asyncio
import itertools
import os
import random
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from longrein.store import SessionLog, open_log
from longrein_context.events import (
    SCHEMA_VERSION,
    Entry,
    Opened,
    Parent,
    SubagentStarted,
    Text,
    ToolEnded,
    UserSpoke,
    text_of,
)

ID = "6f1c3a52-7d0e-4b7a-9f3e-0123456789ab"
OTHER = "6f9d0000-0000-4000-8000-000000000002"

_ticks = itertools.count(1_760_000_000_000_000, 1_000)


def wall_us() -> int:
    return next(_ticks)


def opened(session: str = ID, cwd: str = "/work") -> Opened:
    return Opened(SCHEMA_VERSION, session, "n0nce", (cwd,), cwd)


def said(text: str) -> UserSpoke:
    return UserSpoke((Text(text),))


def result(seq: int, text: str = "") -> ToolEnded:
    return ToolEnded(f"c{seq}.0", "Bash", "ok", (Text(text or f"result {seq}"),))


def entry(seq: int, text: str = "", session: str = ID) -> Entry:
    """Return entry `seq` of a plain session: `Opened`, one message of the user, then results."""
    if seq == 1:
        return Entry(1, wall_us(), opened(session))
    return Entry(seq, wall_us(), said(text or "hello") if seq == 2 else result(seq, text))


def text_in(one: Entry) -> str:
    """Return the text of a message of the user or of a result."""
    assert isinstance(one.event, UserSpoke | ToolEnded)
    return text_of(one.event.parts)


def entries(first: int, last: int) -> list[Entry]:
    return [entry(seq) for seq in range(first, last + 1)]


async def make(state: Path, session: str = ID) -> SessionLog:
    return await open_log(str(state), session, create=True, wall_us=wall_us)


async def reopen(state: Path, session: str = ID) -> SessionLog:
    return await open_log(str(state), session, create=False, wall_us=wall_us)


@asynccontextmanager
async def new_log(state: Path, session: str = ID) -> AsyncIterator[SessionLog]:
    log = await make(state, session)
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def stored_log(state: Path, session: str = ID) -> AsyncIterator[SessionLog]:
    log = await reopen(state, session)
    try:
        yield log
    finally:
        await log.close()


async def add(log: SessionLog, new: Iterable[Entry], *, flush: bool = True) -> None:
    await done(log.append(list(new), flush=flush))


def in_writer(log: SessionLog, work: Callable[[Any], Any]) -> "Future[Any]":
    """Do `work` with the database of a log, in the thread that writes: to hold it, for one."""
    return log._writer.call(work)


async def done(future: "Future[None]") -> None:
    await asyncio.wrap_future(future)


async def filled(state: Path, last: int, session: str = ID) -> None:
    """Create a closed session of `last` entries."""
    async with new_log(state, session) as log:
        await add(log, [entry(seq, session=session) for seq in range(1, last + 1)])


async def store(state: Path, new: Iterable[Entry]) -> str:
    """Create a closed session of these entries, the first of them an `Opened`; return its id."""
    new = list(new)
    assert isinstance(new[0].event, Opened)
    async with new_log(state, new[0].event.session) as log:
        await add(log, new)
    return log.session


def folder(state: Path, session: str = ID) -> Path:
    return state / "sessions" / session


def seqs(log: SessionLog) -> list[int]:
    return [one.seq for one in log.entries]


def run_in_process(work: Callable[[], Awaitable[None]]) -> int:
    """Run `work` in a forked process; return its pid. It ends by `os._exit`: 0, or 1 when `work`
    raised.
    """
    for thread in (
        threading.enumerate()
    ):  # a log just closed may still hold SQLite's locks, which a fork copies
        if thread.name == "longrein-log":
            thread.join(0.2)
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        asyncio.run(_run(work))
        code = 0
    finally:
        os._exit(code)


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def killed_after(
    work: Callable[[int], Awaitable[None]], acknowledged: int, pause: random.Random
) -> list[int]:
    """Run `work`, which writes acknowledged seqs to a pipe for ever, and kill it some time after
    the n-th; return them.
    """
    reading, writing = os.pipe()
    pid = run_in_process(lambda: work(writing))
    os.close(writing)
    told = b""
    while told.count(b"\n") < acknowledged:
        told += os.read(reading, 1)
    for _ in range(pause.randrange(3000)):  # some instant inside the next writes
        pass
    kill(pid)
    while more := os.read(reading, 65536):
        told += more
    os.close(reading)
    return [int(one) for one in told.split()]


def crash(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` in a process that dies without closing anything."""
    assert wait_status(run_in_process(work)) == 0


def wait_status(pid: int) -> int:
    """Wait for a process; return its wait status."""
    return os.waitpid(pid, 0)[1]


CHILD = "c0000000-0000-4000-8000-000000000001"
GRANDCHILD = "c0000000-0000-4000-8000-000000000002"


def child_opened(session: str = CHILD, parent: str = ID, shares: int = 0) -> Opened:
    return Opened(
        SCHEMA_VERSION,
        session,
        "n0nce",
        ("/work",),
        "/work",
        parent=Parent(parent, shares, "c2.0"),
        label="a9",
    )


def subagent_start(
    session: str = CHILD, *, parent: str = ID, shares: int = 0, task: str = "find the parser"
) -> list[Entry]:
    """Return the first entries of a subagent's log."""
    return [
        Entry(shares + 1, wall_us(), child_opened(session, parent, shares)),
        Entry(shares + 2, wall_us(), said(task)),
    ]


def started(seq: int, child: str = CHILD) -> Entry:
    return Entry(seq, wall_us(), SubagentStarted(child, "explore", f"c{seq}.0"))


async def start_subagent(
    log: SessionLog, seq: int, session: str = CHILD, *, shares: int = 0, results: int = 0
) -> SessionLog:
    """Start a subagent at entry `seq` of `log` and append `results` further entries to it."""
    child = log.child(session, shares)
    first = subagent_start(session, parent=log.session, shares=shares)
    await done(log.append([started(seq, session)], flush=True, beside=[(child, first, ())]))
    for n in range(results):
        await add(child, [entry(shares + 3 + n, f"{session[-1]} found {n}")])
    return child
