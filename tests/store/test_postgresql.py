"""The store in PostgreSQL: its lease, lost connections, migrations, and sessions that move between
machines. What it shares with sessions in files is in the other modules (`both_stores`).
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lab.support.postgresql import Server, in_postgresql, keep_in, proxy, running_server
from longrein.app.run_context import use_store_at
from longrein.store import (
    Snapshot,
    delete_session,
    find_session,
    leave_message,
    list_sessions,
    read_entries,
)
from longrein.store.store_port import Message
from longrein_context.events import (
    Entry,
    SessionBusy,
    SessionError,
    SessionReadOnly,
    SessionTakenOver,
    SessionUnknown,
    UsageError,
)
from tests.seeds import seeds
from tests.store.fixtures import (
    ID,
    OTHER,
    add,
    crash,
    done,
    entries,
    entry,
    filled,
    make,
    new_log,
    reopen,
    run_in_process,
    seqs,
    stored_log,
    wait_status,
    wall_us,
)
from tests.timeouts import HANG_S

pytestmark = [pytest.mark.anyio, in_postgresql]


@pytest.fixture
def elsewhere(tmp_path: Path, store: str) -> Path:
    """State folder of another machine with the same store."""
    state = tmp_path / "elsewhere"
    use_store_at(str(state), store)
    return state


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longrein_fleet.postgresql.store_database.LEASE_S", 0.4)


async def eventually(test: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + HANG_S
    while not await test():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


# --- Lease ----------------------------------------------------------------------------------------


async def test_a_session_goes_on_elsewhere_with_all_it_has(tmp_path: Path, elsewhere: Path) -> None:
    written = entries(1, 20)
    async with new_log(tmp_path) as log:
        await add(log, written)
        blobs = [log.put_blob(b"s" * 100), log.put_blob(b"l" * 2_500_000)]
        number, stored = log.put(b'{"a":1}')
        await done(stored)
        writing = log.keep_snapshot(Snapshot(20, b"state " * 300_000))
        assert writing is not None
        assert await asyncio.wrap_future(writing)
        with pytest.raises(SessionBusy, match=f"is open in process {os.getpid()} on "):
            await reopen(elsewhere)
    assert [one.session for one in list_sessions(str(elsewhere))] == [ID]
    assert find_session(str(elsewhere), ID[:6]) == ID
    async with stored_log(elsewhere) as log:
        assert log.snapshot == Snapshot(20, b"state " * 300_000)
        assert list(log.entries) == written
        assert list(log.inbox) == [Message(number, b'{"a":1}')]
        assert [log.read_blob(blob)[:1] for blob in blobs] == [b"s", b"l"]
        assert log.blob_path(blobs[0]) == ""
        path = Path(log.blob_path(blobs[1]))
        assert path.is_relative_to(elsewhere)
        assert path.read_bytes() == b"l" * 2_500_000
        await add(log, [entry(21)])
    async with stored_log(tmp_path) as log:
        assert seqs(log) == list(range(1, 22))


@pytest.mark.usefixtures("short_lease")
async def test_who_is_stopped_is_taken_over_and_writes_nothing_more(
    tmp_path: Path, elsewhere: Path
) -> None:
    """The stopped process believes that it has the session until the store refuses its write."""
    reading, writing = os.pipe()

    async def write_for_ever() -> None:
        log = await make(tmp_path)
        seq = 0
        try:
            while True:
                seq += 1
                await add(log, [entry(seq)])
                os.write(writing, b"%d\n" % seq)
        except SessionTakenOver as error:
            os.write(writing, f"{error}\n".encode())
            with pytest.raises(SessionTakenOver):
                await add(log, [entry(seq)])
        await log.close()

    pid = run_in_process(write_for_ever)
    os.close(writing)
    told = b""
    while told.count(b"\n") < 5:
        told += os.read(reading, 1)
    os.kill(pid, signal.SIGSTOP)

    async def takes_over() -> bool:
        try:
            log = await reopen(elsewhere)
        except SessionBusy:
            return False
        there = len(log.entries)
        await add(log, [entry(there + 1, "written elsewhere")])
        os.kill(pid, signal.SIGCONT)
        assert await asyncio.to_thread(wait_status, pid) == 0
        await add(log, [entry(there + 2)])
        assert seqs(log) == list(range(1, there + 1))
        await log.close()
        return True

    await eventually(takes_over)
    while more := os.read(reading, 65536):
        told += more
    os.close(reading)
    *acknowledged, why = told.decode().splitlines()
    assert f"session {ID} goes on in process {os.getpid()} on " in why
    stored = list(read_entries(str(tmp_path), ID))
    assert [one.seq for one in stored] == list(range(1, len(stored) + 1))
    assert len(stored) >= int(acknowledged[-1]) + 2


@pytest.mark.usefixtures("short_lease")
async def test_who_is_idle_renews_its_lease(tmp_path: Path, store: str, postgresql: Server) -> None:
    query = f"SELECT expires, writes FROM {store.rpartition('%3D')[2]}.roots"
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        [(first, writes)] = postgresql.run(query)

        async def is_renewed() -> bool:
            return postgresql.run(query)[0][0] > first

        await eventually(is_renewed)
        assert postgresql.run(query)[0][1] == writes
        await add(log, [entry(3)])


async def test_who_was_taken_over_by_one_that_wrote_nothing_is_refused_too(
    tmp_path: Path, store: str, postgresql: Server
) -> None:
    schema = store.rpartition("%3D")[2]
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        postgresql.run(f"UPDATE {schema}.roots SET token = token + 1, owner = 'process 7 on moon'")
        with pytest.raises(SessionTakenOver, match=f"session {ID} goes on in process 7 on moon"):
            await add(log, [entry(3)])
        writing = log.append([entry(3)], flush=True)
        with pytest.raises(SessionTakenOver):
            await done(writing)
    assert [one.seq for one in read_entries(str(tmp_path), ID)] == [1, 2]
    assert postgresql.run(f"SELECT expires > now() FROM {schema}.roots") == [(True,)]


async def test_a_killed_process_is_replaced_at_once_here_and_later_elsewhere(
    tmp_path: Path, elsewhere: Path
) -> None:
    async def die_open() -> None:
        await add(await make(tmp_path), entries(1, 4))

    crash(die_open)
    with pytest.raises(SessionBusy):
        await reopen(elsewhere)
    async with stored_log(tmp_path) as log:
        assert seqs(log) == [1, 2, 3, 4]


async def test_a_log_is_closed_when_its_lease_is_released(
    tmp_path: Path, elsewhere: Path, store: str
) -> None:
    """Also where the store takes its time to answer."""
    import psycopg

    log = await make(tmp_path)
    await add(log, entries(1, 2))
    with psycopg.connect(store) as slow:
        slow.execute("SELECT 1 FROM roots FOR UPDATE")
        closing = asyncio.ensure_future(log.close())
        done, _ = await asyncio.wait([closing], timeout=0.2)
        assert not done
    await closing
    async with stored_log(elsewhere) as log:
        assert seqs(log) == [1, 2]


async def test_half_a_transaction_of_a_stopped_writer_is_in_nobodys_way(
    tmp_path: Path, elsewhere: Path, store: str
) -> None:
    """A writer that is stopped while it sends holds the lock of the session's row."""
    import psycopg

    await filled(tmp_path, 2)
    stopped = psycopg.connect(store, application_name=f"longrein {ID} 1")
    stopped.execute("SELECT 1 FROM roots FOR UPDATE")
    async with stored_log(elsewhere) as log:
        await add(log, [entry(3)])
    with pytest.raises(psycopg.OperationalError, match="terminating connection"):
        stopped.commit()


# --- Lost connections -----------------------------------------------------------------------------


async def test_a_commit_is_one_round_trip_whatever_it_holds(
    tmp_path: Path, store: str, postgresql: Server
) -> None:
    with proxy(postgresql) as between:
        use_store_at(str(tmp_path), between.address(store))
        async with new_log(tmp_path) as log:
            await add(log, entries(1, 10))
            for seq in range(11, 31):
                before = between.round_trips
                log.put_blob(b"%d" % seq * 1000)
                number, _ = log.put(b"{}")
                await done(log.append([entry(seq)], flush=True, take=[number]))
                assert between.round_trips - before <= 2, "the message, and the entry that takes it"
            before = between.round_trips
            for seq in range(31, 51):
                await add(log, [entry(seq)])
                assert await log.collect() == []
            assert between.round_trips - before == 20


async def test_an_answer_that_is_lost_is_neither_lost_nor_written_twice(
    tmp_path: Path, store: str, postgresql: Server
) -> None:
    with proxy(postgresql) as between:
        use_store_at(str(tmp_path), between.address(store))
        async with new_log(tmp_path) as log:
            await add(log, entries(1, 2))
            for seq in range(3, 23):
                between.swallow = seq % 2 == 0  # the transaction is there, and its answer is not
                number, _ = log.put(b"{}")
                await done(log.append([entry(seq)], flush=True, take=[number]))
                if seq % 5 == 0:
                    between.cut()
    use_store_at(str(tmp_path), store)
    async with stored_log(tmp_path) as log:
        assert seqs(log) == list(range(1, 23))
        assert list(log.inbox) == []


async def test_a_transaction_that_comes_late_from_a_lost_connection_counts_once(
    tmp_path: Path, store: str, postgresql: Server
) -> None:
    """A server may go on with a connection that its client has lost, even after a look."""
    schema = store.rpartition("%3D")[2]
    row = "SELECT root, key + 1, at, version, crc, body FROM entries ORDER BY key DESC LIMIT 1"
    late = (
        f"SET search_path = {schema}; SELECT hold_lease(root, token, writes + 1, 15, NULL, NULL, "
        f"NULL, 0) FROM roots; INSERT INTO entries {row}"
    )
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        postgresql.run(late)
        await add(log, [entry(3)])
        await add(log, [entry(4)])
    count = f"SELECT count(*), max(key) & 255 FROM {schema}.entries"
    assert postgresql.run(count) == [(4, 4)]


@pytest.mark.parametrize("seed", seeds(3))
async def test_cut_at_any_byte_nothing_is_lost_or_written_twice(
    tmp_path: Path, store: str, postgresql: Server, seed: int
) -> None:
    chance = random.Random(seed)
    written: list[Entry] = []
    inbox: list[Message] = []
    with proxy(postgresql) as between:
        use_store_at(str(tmp_path), between.address(store))
        async with new_log(tmp_path) as log:
            for _ in range(40):
                between.bytes_left = chance.randrange(1, 3_000)
                new = [entry(len(written) + n) for n in range(1, chance.randrange(2, 5))]
                written += new
                number, _ = log.put(b"%d" % len(written))
                inbox.append(Message(number, b"%d" % len(written)))
                taken = [inbox.pop(0).id] if chance.random() < 0.5 else []
                log.put_blob(bytes([len(written) % 251]) * chance.choice([10, 100_000]))
                future = log.append(new, flush=True, take=taken)
                if chance.random() < 0.5:
                    await done(future)
    use_store_at(str(tmp_path), store)
    async with stored_log(tmp_path) as log:
        assert list(log.entries) == written
        assert list(log.inbox) == inbox


async def test_killed_backends_lose_nothing(tmp_path: Path, store: str, postgresql: Server) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        writes = []
        for seq in range(3, 203):
            writes.append(log.append([entry(seq)], flush=True))
            if seq % 20 == 0:
                await asyncio.to_thread(
                    postgresql.run,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name "
                    "LIKE 'longrein%%'",
                )
        for write in writes:
            await done(write)
        assert log.reader.entry(100) is not None, "readers connect again, too"
    assert [one.seq for one in read_entries(str(tmp_path), ID)] == list(range(1, 203))


async def test_a_server_that_crashes_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    with running_server() as server:
        keep_in(tmp_path, server)
        async with new_log(tmp_path) as log:
            await add(log, entries(1, 2))
            writes = []
            for seq in range(3, 103):
                writes.append(log.append([entry(seq)], flush=True))
                if seq in (30, 70):
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
                await asyncio.sleep(0)
            for write in writes:
                await done(write)
        assert [one.seq for one in read_entries(str(tmp_path), ID)] == list(range(1, 103))


async def test_a_server_that_stays_away_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longrein_fleet.postgresql.connection.RECONNECT_S", 0.2)
    monkeypatch.setattr("longrein_fleet.postgresql.connection.FIRST_S", 0.2)
    with running_server() as server:
        address = keep_in(tmp_path, server)
        use_store_at(str(tmp_path), address.replace("longrein@", "longrein:pass%21word@"))
        log = await make(tmp_path)
        await add(log, entries(1, 2))
        server.stop()
        for _ in range(2):  # nobody knows whether the first one is there
            with pytest.raises(
                SessionError, match=r"the store 127\.0\.0\.1:\d+/postgres cannot"
            ) as no:
                await add(log, [entry(3)])
            assert "pass" not in str(no.value)
            assert "\n" not in str(no.value)
        await log.close()
        with pytest.raises(SessionError, match="cannot be used"):
            await make(tmp_path, OTHER)
        server.start()


# --- Messages, forks and deletion -----------------------------------------------------------------


async def test_messages_from_other_machines_come_in_once_and_in_order(
    tmp_path: Path, elsewhere: Path
) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        assert await log.collect() == []
        for body in (b"one", b"two", b"one"):
            leave_message(str(elsewhere), ID, body)
        await add(log, [entry(3)])  # whose answer says that messages wait
        found = await log.collect()
        assert [message.body for message in found] == [b"one", b"two", b"one"]
        await done(log.append([entry(4)], flush=True, take=[found[0].id]))
        assert await log.collect() == []
    for _ in range(256):
        leave_message(str(elsewhere), ID, b"more")
    with pytest.raises(SessionError, match="256 messages wait"):
        leave_message(str(elsewhere), ID, b"one more")
    async with stored_log(elsewhere) as log:
        assert [message.body for message in log.inbox] == [b"two", b"one"]
        assert len(await log.collect()) == 256


@pytest.mark.usefixtures("short_lease")
async def test_who_is_idle_sees_messages_too(tmp_path: Path, elsewhere: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        assert await log.collect() == []
        leave_message(str(elsewhere), ID, b"one")

        async def comes() -> bool:
            return [message.body for message in await log.collect()] == [b"one"]

        await eventually(comes)


async def test_a_deleted_session_is_gone_everywhere(
    tmp_path: Path, elsewhere: Path, store: str, postgresql: Server
) -> None:
    await filled(tmp_path, 3)
    await filled(tmp_path, 3, OTHER)
    async with stored_log(elsewhere):
        with pytest.raises(SessionBusy):
            await delete_session(str(tmp_path), ID, wall_us=wall_us)
    await delete_session(str(tmp_path), ID, wall_us=wall_us)
    assert [one.session for one in list_sessions(str(elsewhere))] == [OTHER]
    with pytest.raises(SessionUnknown):
        await reopen(elsewhere)
    schema = store.rpartition("%3D")[2]
    assert postgresql.run(f"SELECT count(DISTINCT root) FROM {schema}.entries") == [(1,)]


async def test_a_session_in_files_stays_there_beside_the_store(tmp_path: Path, store: str) -> None:
    use_store_at(str(tmp_path), "")
    await filled(tmp_path, 3)
    use_store_at(str(tmp_path), store)
    await filled(tmp_path, 2, OTHER)
    assert {one.session for one in list_sessions(str(tmp_path))} == {ID, OTHER}
    async with stored_log(tmp_path) as log:
        assert seqs(log) == [1, 2, 3]
    assert find_session(str(tmp_path), OTHER[:3]) == OTHER


# --- Schema ---------------------------------------------------------------------------------------


async def test_many_processes_may_be_the_first(tmp_path: Path, store: str) -> None:
    def session(number: int) -> str:
        return f"{number:08}-0000-4000-8000-000000000000"

    def begin(number: int) -> int:
        state = tmp_path / str(number)
        use_store_at(str(state), store)
        return run_in_process(lambda: filled(state, 3, session(number)))

    assert [wait_status(pid) for pid in [begin(number) for number in range(6)]] == [0] * 6
    assert len(list_sessions(str(tmp_path))) == 6


async def test_a_store_of_a_newer_longrein_is_left_alone(
    tmp_path: Path, store: str, postgresql: Server
) -> None:
    await filled(tmp_path, 3)
    schema = store.rpartition("%3D")[2]
    postgresql.run(f"UPDATE {schema}.longrein_schema SET version = 99")
    for attempt in (reopen, make):
        with pytest.raises(SessionReadOnly, match="schema 99, this one knows 2"):
            await attempt(tmp_path)
    with pytest.raises(SessionReadOnly):
        list_sessions(str(tmp_path))
    assert postgresql.run(f"SELECT version FROM {schema}.longrein_schema") == [(99,)]


WRONG = [
    "mysql://somebody:secret@host/x",
    "host=x password=secret",
    "postgresql://h/d?password=secret",
]


@pytest.mark.parametrize("address", WRONG)
async def test_an_address_that_is_none_is_not_shown(tmp_path: Path, address: str) -> None:
    with pytest.raises(UsageError, match=r"sessions\.store is not an address") as wrong:
        use_store_at(str(tmp_path), address)
    assert "secret" not in str(wrong.value)


async def test_a_malformed_address_is_not_shown(tmp_path: Path) -> None:
    use_store_at(str(tmp_path), "postgresql://somebody:secret@host:port/x?nonsense=secret")
    with pytest.raises(SessionError) as wrong:
        await make(tmp_path)
    assert "secret" not in str(wrong.value)
