"""The log of one session: acknowledged writes are there, in order, after closing and after a
crash.
"""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.support.postgresql import both_stores
from longrein.store import Message, open_log, read_entries
from longrein.store.database import row_checksum
from longrein_context.events import Entry, SessionError, SessionReadOnly
from tests.store.fixtures import (
    ID,
    add,
    done,
    entries,
    entry,
    filled,
    folder,
    in_writer,
    make,
    new_log,
    reopen,
    result,
    seqs,
    stored_log,
    wall_us,
)
from tests.timeouts import HANG_S

pytestmark = pytest.mark.anyio


@both_stores
async def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        assert list(log.entries) == []
        written = entries(1, 5)
        await add(log, written[:2])
        await add(log, written[2:], flush=False)
    async with stored_log(tmp_path) as log:
        assert list(log.entries) == written
        assert log.entries[0] == written[0]
        assert log.entries[-1] == written[4]
        assert log.entries[1:3] == written[1:3]
        assert list(log.notes) == []
        await add(log, [entry(6)])
    assert [one.seq for one in read_entries(str(tmp_path), ID, after=4)] == [5, 6]


async def test_what_nobody_flushed_is_flushed_by_a_timer(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        await add(log, [entry(3)], flush=False)
        for _ in range(3_000):
            await asyncio.sleep(0.02)
            if not await asyncio.wrap_future(in_writer(log, lambda database: database.unflushed)):
                break
        else:
            raise AssertionError("the timer never flushed")


async def test_a_grown_wal_is_folded_in_when_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longrein.store.database.WAL_IDLE_BYTES", 100_000)
    async with new_log(tmp_path) as log:
        await add(log, [entry(seq, "x" * 20_000) for seq in range(1, 11)])
        for _ in range(3_000):
            await asyncio.sleep(0.02)
            if (folder(tmp_path) / "log.sqlite").stat().st_size > 150_000:
                break
        else:
            raise AssertionError("it was never folded in")
        await add(log, [entry(11)])
    assert len(list(read_entries(str(tmp_path), ID))) == 11


@both_stores
async def test_appending_does_not_wait_for_the_database(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        gate = threading.Event()
        in_writer(log, lambda _: gate.wait(HANG_S))
        future = log.append(entries(1, 2), flush=True)
        number, stored = log.put(b"{}")
        assert (number, future.done(), stored.done()) == (1, False, False)
        gate.set()
        await done(stored)
        assert future.done()


@both_stores
async def test_giving_up_waiting_does_not_undo_a_write(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        waiting = asyncio.wrap_future(log.append(entries(1, 2), flush=True))
        waiting.cancel()
        await add(log, [entry(3)])
    assert len(list(read_entries(str(tmp_path), ID))) == 3


@both_stores
async def test_an_entry_out_of_order_is_refused(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        with pytest.raises(SessionError, match="out of order"):
            await add(log, [entry(2)])
        await add(log, entries(1, 3))
        for wrong in (3, 5):
            with pytest.raises(SessionError, match="out of order"):
                await add(log, [entry(wrong)])
        await add(log, [entry(4)])
    assert len(list(read_entries(str(tmp_path), ID))) == 4


@both_stores
async def test_a_message_is_taken_in_one_transaction_with_its_entry(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        first, stored = log.put(b'{"a":1}')
        second, stored = log.put(b'{"b":2}')
        await done(stored)
    async with stored_log(tmp_path) as log:
        assert list(log.inbox) == [Message(first, b'{"a":1}'), Message(second, b'{"b":2}')]
        await done(log.append([entry(3)], flush=True, take=[first, second]))
    async with stored_log(tmp_path) as log:
        assert (list(log.inbox), seqs(log)) == ([], [1, 2, 3])
        assert log.put(b"{}")[0] == second + 1  # ids rise for ever


async def test_a_large_event_is_a_file_and_reads_like_any_other(tmp_path: Path) -> None:
    large = Entry(3, 7, result(3, "x" * 300_000))
    async with new_log(tmp_path) as log:
        await add(log, [*entries(1, 2), large], flush=False)
        assert log.reader.entry(3) == large
    assert sum(1 for _ in folder(tmp_path).glob("blobs/??/*")) == 1
    assert (folder(tmp_path) / "log.sqlite").stat().st_size < 100_000
    async with stored_log(tmp_path) as log:
        assert log.entries[2] == large
        assert list(log.entries)[2] == large


@both_stores
async def test_a_long_log_is_walked_a_few_entries_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longrein.store.repair.KEEP_BYTES_MAX", 1000)
    await filled(tmp_path, 700)
    async with stored_log(tmp_path) as log:
        assert len(log.entries) == 700
        assert seqs(log) == seqs(log) == list(range(1, 701))


async def test_a_session_killed_while_it_was_made_can_be_made_again(tmp_path: Path) -> None:
    folder(tmp_path).mkdir(parents=True)
    (folder(tmp_path) / "log.sqlite").touch()
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
    assert len(list(read_entries(str(tmp_path), ID))) == 2


async def test_an_entry_of_a_newer_longrein_makes_the_session_read_only(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 3))
    with closing(sqlite3.connect(folder(tmp_path) / "log.sqlite")) as database:
        database.create_function("checksum", 4, row_checksum)
        database.execute(
            "UPDATE entries SET version = 99 WHERE key = (SELECT max(key) FROM entries)"
        )
        database.execute("UPDATE entries SET crc = checksum(key, at, version, body)")
        database.commit()
    with pytest.raises(
        SessionReadOnly, match="entry 3 of this session was written by a newer longrein; upgrade it"
    ):
        await reopen(tmp_path)
    with pytest.raises(SessionReadOnly):
        list(read_entries(str(tmp_path), ID))


async def test_on_a_network_mount_the_journal_is_a_rollback_journal(tmp_path: Path) -> None:
    log = await open_log(str(tmp_path), ID, create=True, wall_us=wall_us, network=True)
    await add(log, entries(1, 3))
    assert not (folder(tmp_path) / "log.sqlite-wal").exists()
    found = [note.partition(" is on ")[2] for note in log.notes]
    assert found == ["a network file system: the log is written in a slower, safe mode"]
    await log.close()
    async with stored_log(tmp_path) as log:
        assert (seqs(log), list(log.notes)) == ([1, 2, 3], [])
        await add(log, [entry(4)])


@both_stores
async def test_closing_twice_and_using_after_closing(tmp_path: Path) -> None:
    log = await make(tmp_path)
    blob = log.put_blob(b"kept though nothing named it")
    await log.close()
    await log.close()
    async with stored_log(tmp_path) as log:
        assert log.read_blob(blob) == b"kept though nothing named it"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("put"), st.binary(max_size=20), st.booleans()),
        st.tuples(st.just("take"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("blob"), st.integers(0, 70_000), st.booleans()),
        st.tuples(st.just("reopen"), st.just(0), st.booleans()),
    ),
    max_size=12,
)


@given(steps=STEPS)
@settings(max_examples=25, deadline=None)
async def test_any_walk_ends_with_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple]
) -> None:
    """Appends, messages, blobs and reopenings in any order, awaited or not."""
    state = tmp_path_factory.mktemp("walk")
    log = await make(state)
    written: list[Entry] = []
    inbox: list[Message] = []
    blobs: dict[str, bytes] = {}
    for kind, value, flag in steps:
        match kind:
            case "append":
                new = [entry(len(written) + n) for n in range(1, value + 1)]
                written += new
                future = log.append(new, flush=flag)
            case "put":
                number, future = log.put(value, flush=flag)
                inbox.append(Message(number, value))
            case "take":
                taken, inbox = inbox[:value], inbox[value:]
                future = log.append([], flush=flag, take=[message.id for message in taken])
            case "blob":
                data = bytes([value % 251]) * value
                blobs[log.put_blob(data)] = data
            case _:
                await log.close()
                log = await reopen(state)
                assert list(log.entries) == written
                assert list(log.inbox) == inbox
        if kind in ("append", "put", "take") and flag:
            await done(future)
        assert all(log.read_blob(blob) == data for blob, data in blobs.items())
    await log.close()
    assert list(read_entries(str(state), ID)) == written
