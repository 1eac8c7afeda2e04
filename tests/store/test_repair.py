"""A damaged database is set aside, never overwritten; the longest good beginning of the log goes on."""

import asyncio
import hashlib
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from longrein.events import StoreDamaged
from longrein.store import Reader, list_sessions, read_entries
from tests.store.kit import ID, add, crash, done, entries, entry, filled, folder, make, reopen, seqs

pytestmark = pytest.mark.anyio

LAST = 60


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """A closed session of 60 entries of 500 bytes, its WAL folded in."""
    log = await make(tmp_path)
    await add(log, [*entries(1, 2), *(entry(seq, f"{seq:04} " * 100) for seq in range(3, LAST + 1))])
    log.put_blob(b"a blob of the session")
    await log.close()
    await asyncio.wrap_future(log._writer.closed)
    assert sorted(os.listdir(folder(tmp_path))) == ["lock", "log.sqlite"]
    return tmp_path


async def check(state: Path, kept: int | None, why: str) -> None:
    """Opening keeps `kept` entries (None: some) and says so; it goes on from there; the damaged file is as it was."""
    damaged = (folder(state) / "log.sqlite").read_bytes()
    log = await reopen(state)
    found = len(log.entries)
    assert found == kept or (kept is None and 0 < found < LAST)
    aside = folder(state) / "log.sqlite.damaged-1"
    assert [note.replace(why, "WHY") for note in log.notes] == [
        f"the session's database was damaged (WHY): the first {found} entries were kept, the rest is in {aside}"
    ]
    assert aside.read_bytes() == damaged
    await add(log, [entry(found + 1)])
    await log.close()
    log = await reopen(state)
    assert (seqs(log), list(log.notes)) == (list(range(1, found + 2)), [])
    await log.close()


def change(state: Path, statement: str) -> None:
    with sqlite3.connect(folder(state) / "log.sqlite") as database:
        database.execute(statement)
    database.close()


def overwrite(state: Path, at: int, data: bytes) -> None:
    with open(folder(state) / "log.sqlite", "r+b") as file:
        file.seek(at)
        file.write(data)


async def test_an_entry_that_is_missing_cuts_the_log_there(state: Path) -> None:
    change(state, "DELETE FROM entries WHERE key & 0xffffffff = 40")
    await check(state, 39, "entry 40 is missing")


async def test_an_entry_that_was_changed_cuts_the_log_there(state: Path) -> None:
    place = (folder(state) / "log.sqlite").read_bytes().index(b"0030 0030")
    overwrite(state, place, b"0031")
    await check(state, 29, "entry 30 is not what was written")


async def test_R049_a_page_of_nul_bytes(state: Path) -> None:
    place = (folder(state) / "log.sqlite").read_bytes().index(b"0030 0030")
    overwrite(state, place // 4096 * 4096, bytes(4096))
    await check(state, None, "database disk image is malformed")


async def test_R033_a_main_file_cut_short(state: Path) -> None:
    os.truncate(folder(state) / "log.sqlite", 6 * 4096)
    with pytest.raises(StoreDamaged):
        list(read_entries(str(state), ID))
    assert [info.title for info in list_sessions(str(state))] == ["(damaged; opening it repairs what can be)"]
    with pytest.raises(StoreDamaged, match=r"nothing in the database of this session could be read .*damaged-1"):
        await reopen(state)
    with pytest.raises(StoreDamaged):  # again: nothing is overwritten
        await reopen(state)
    assert (folder(state) / "log.sqlite.damaged-1").stat().st_size == 6 * 4096


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 8192, b"this is no database at all " * 300], ids=["empty", "nul", "text"]
)
async def test_R049_a_main_file_lost_altogether(state: Path, content: bytes) -> None:
    (folder(state) / "log.sqlite").write_bytes(content)
    if not content:  # as a session killed while it was made: it is empty, and says so by having no entry
        log = await reopen(state)
        assert len(log.entries) == 0
        await log.close()
        return
    with pytest.raises(StoreDamaged, match="could be read"):
        await reopen(state)
    assert (folder(state) / "log.sqlite.damaged-1").read_bytes() == content
    with pytest.raises(StoreDamaged):
        list(Reader(str(state), ID).entries())


async def test_R049_an_empty_main_file_beside_a_wal_is_not_opened(tmp_path: Path) -> None:
    """SQLite would delete the WAL."""

    async def die_open() -> None:
        await add(await make(tmp_path), entries(1, 8))

    crash(die_open)
    (folder(tmp_path) / "log.sqlite").write_bytes(b"")
    wal = (folder(tmp_path) / "log.sqlite-wal").read_bytes()
    with pytest.raises(StoreDamaged):
        list(read_entries(str(tmp_path), ID))
    assert [info.damaged for info in list_sessions(str(tmp_path))] == [True]
    with pytest.raises(StoreDamaged, match="its main file is empty"):
        await reopen(tmp_path)
    assert (folder(tmp_path) / "log.sqlite.damaged-1-wal").read_bytes() == wal


async def test_a_main_file_that_is_gone_takes_no_wal_with_it(tmp_path: Path) -> None:
    async def die_open() -> None:
        await add(await make(tmp_path), entries(1, 8))

    crash(die_open)
    (folder(tmp_path) / "log.sqlite").unlink()
    wal = (folder(tmp_path) / "log.sqlite-wal").read_bytes()
    with pytest.raises(StoreDamaged):
        list(read_entries(str(tmp_path), ID))
    with pytest.raises(StoreDamaged, match="its main file is empty"):
        await reopen(tmp_path)
    assert (folder(tmp_path) / "log.sqlite.damaged-1-wal").read_bytes() == wal


async def test_R033_a_wal_cut_at_any_byte_of_its_last_records(tmp_path: Path) -> None:
    async def die_open() -> None:
        log = await make(tmp_path)
        for seq in range(1, 21):
            await add(log, [entry(seq)])

    crash(die_open)
    whole = (folder(tmp_path) / "log.sqlite-wal").read_bytes()
    sizes = [*range(len(whole) - 2 * 4120, len(whole), 311), len(whole) - 1, len(whole)]
    kept = []
    for size in sizes:
        copy = tmp_path / str(size)
        shutil.copytree(folder(tmp_path), folder(copy))
        os.truncate(folder(copy) / "log.sqlite-wal", size)
        (folder(copy) / "log.sqlite-shm").unlink()
        log = await reopen(copy)
        found = seqs(log)
        assert found == list(range(1, len(found) + 1))
        kept.append(len(found))
        await add(log, [entry(len(found) + 1)])
        await log.close()
        assert len(list(read_entries(str(copy), ID))) == len(found) + 1
    assert kept == sorted(kept)
    assert (kept[0], kept[-2], kept[-1]) == (18, 19, 20)


async def test_blobs_and_messages_survive_a_repair(state: Path) -> None:
    log = await reopen(state)
    blob, large = log.put_blob(b"small"), log.put_blob(b"l" * 100_000)
    number, stored = log.put(b'{"waits":1}')
    await done(stored)
    await log.close()
    change(state, "DELETE FROM entries WHERE key & 0xffffffff = 50")
    log = await reopen(state)
    assert log.read_blob(blob) == b"small"
    assert log.read_blob(large) == b"l" * 100_000
    assert [message.id for message in log.inbox] == [number]
    assert log.put(b"{}")[0] == number + 1
    await log.close()
    assert list_sessions(str(state))[0].title == "hello"


async def test_a_repair_that_was_killed_goes_on(state: Path) -> None:
    change(state, "DELETE FROM entries WHERE key & 0xffffffff = 20")
    at = folder(state)
    for prepare in (
        lambda: os.rename(at / "log.sqlite", at / "log.sqlite.damaged-1"),
        lambda: (at / "log.sqlite").unlink() or (at / "log.sqlite.new").write_bytes(b"half"),
    ):
        prepare()
        log = await reopen(state)
        assert seqs(log) == list(range(1, 20))
        assert len(log.notes) == 1
        await log.close()


async def test_a_second_damage_gets_its_own_name(state: Path) -> None:
    for seq in (50, 40):
        change(state, f"DELETE FROM entries WHERE key & 0xffffffff = {seq}")
        log = await reopen(state)
        assert len(log.entries) == seq - 1
        await log.close()
    assert sorted(path.name for path in folder(state).glob("*.damaged-?")) == [
        "log.sqlite.damaged-1",
        "log.sqlite.damaged-2",
    ]


async def test_a_file_of_an_entry_that_is_gone_cuts_the_log_there(tmp_path: Path) -> None:
    log = await make(tmp_path)
    await add(log, [*entries(1, 4), entry(5, "x" * 100_000), entry(6)])
    await log.close()
    for path in folder(tmp_path).glob("blobs/??/*"):
        path.unlink()
    log = await reopen(tmp_path)
    assert seqs(log) == [1, 2, 3, 4]
    assert "(the file of entry 5 is missing)" in log.notes[0]
    await log.close()


async def test_a_write_that_meets_damage_has_the_database_rebuilt(state: Path) -> None:
    log = await reopen(state)
    # the last leaf of the table, that the next entry must go into, is lost under an open log
    place = (folder(state) / "log.sqlite").read_bytes().index(f"{LAST:04} {LAST:04}".encode())
    overwrite(state, place // 4096 * 4096, bytes(4096))
    log._writer.call(lambda database: database.connection.execute("PRAGMA shrink_memory"))
    with pytest.raises(StoreDamaged, match="open the session again to repair it"):
        await add(log, [entry(LAST + 1)])
    await log.close()
    log = await reopen(state)
    assert 0 < len(log.entries) < LAST
    assert len(log.notes) == 1
    await log.close()
    log = await reopen(state)
    assert list(log.notes) == []
    await log.close()


async def test_damage_outside_the_entries_is_met_by_a_write_and_mended_at_the_next_open(state: Path) -> None:
    name = hashlib.sha256(b"a blob of the session").digest()
    content = (folder(state) / "log.sqlite").read_bytes()
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    [number] = [n for n, page in enumerate(pages) if name in page and b"a blob of the session" not in page]
    overwrite(state, number * 4096, bytes(4096))
    log = await reopen(state)
    assert (len(log.entries), list(log.notes)) == (LAST, [])
    log.put_blob(b"another blob")
    with pytest.raises(StoreDamaged, match="open the session again to repair it"):
        await add(log, [entry(LAST + 1)])
    with pytest.raises(StoreDamaged):
        await log.close()
    log = await reopen(state)
    assert len(log.entries) == LAST
    assert "(a write met damage): the first 60 entries were kept" in log.notes[0]
    assert log.read_blob(name.hex()) == b"a blob of the session"
    log.put_blob(b"another blob")
    await add(log, [entry(LAST + 1)])
    await log.close()


@pytest.mark.parametrize("place", range(4096, 12 * 4096, 3333))
async def test_wherever_it_is_hit_it_opens_to_a_beginning_or_says_so(state: Path, place: int) -> None:
    overwrite(state, place, b"\xff" * 64)
    try:
        log = await reopen(state)
    except StoreDamaged:
        assert (folder(state) / "log.sqlite.damaged-1").exists()
        return
    for one in log.entries:
        assert one.seq < 3 or one.event.parts[0].text == f"{one.seq:04} " * 100  # type: ignore[union-attr]
    assert seqs(log) == list(range(1, len(log.entries) + 1))
    await log.close()


async def test_reading_a_folder_one_may_not_write(tmp_path: Path) -> None:
    await filled(tmp_path, 5)
    copy = tmp_path / "copy"
    shutil.copytree(folder(tmp_path), folder(copy))
    os.chmod(folder(copy), 0o500)
    assert len(list(read_entries(str(copy), ID))) == 5
    os.chmod(folder(copy), 0o700)
