"""A damaged database is set aside, never overwritten; what can be read of the log is kept."""

import errno
import hashlib
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from lab.support.rot import (
    PATTERNS,
    Place,
    copy_of,
    database,
    is_silent,
    make_session,
    places,
    read_session,
)
from lab.support.rot import overwrite as overwrite_place
from longrein.store import Reader, list_sessions, read_entries
from longrein.store.disk_errors import store_failure
from longrein.store.salvage import LOST
from longrein_context.events import Entry, Reminded, StoreDamaged, StoreFull
from tests.store.fixtures import (
    ID,
    add,
    crash,
    done,
    entries,
    entry,
    filled,
    folder,
    in_writer,
    make,
    new_log,
    reopen,
    seqs,
    stored_log,
    text_in,
)

pytestmark = pytest.mark.anyio

LAST = 60


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """A closed session of 60 entries of 500 bytes, its WAL checkpointed."""
    log = await make(tmp_path)
    await add(
        log, [*entries(1, 2), *(entry(seq, f"{seq:04} " * 100) for seq in range(3, LAST + 1))]
    )
    log.put_blob(b"a blob of the session")
    await log.close()
    assert sorted(os.listdir(folder(tmp_path))) == ["high-water-mark", "lock", "log.sqlite"]
    return tmp_path


def is_as_written(one: Entry) -> bool:
    """Whether an entry is what was written, or a reminder that it is lost."""
    if isinstance(one.event, Reminded):
        return one.event.text.endswith(LOST)
    return one.seq < 3 or text_in(one) == f"{one.seq:04} " * 100


async def check(state: Path, kept: int | None, why: str) -> None:
    """Check that opening keeps `kept` entries (None: some), has a reminder in place of each other
    one, reports it and goes on from there.

    The damaged file is unchanged.
    """
    damaged = (folder(state) / "log.sqlite").read_bytes()
    async with stored_log(state) as log:
        assert seqs(log) == list(range(1, LAST + 1))
        lost = [one.seq for one in log.entries if isinstance(one.event, Reminded)]
        found = LAST - len(lost)
        assert found == kept or (kept is None and 0 < found < LAST)
        assert all(is_as_written(one) for one in log.entries)
        aside = folder(state) / "log.sqlite.damaged-1"
        told = f"{found} of {LAST} entries were kept, the rest is in {aside}"
        word = "entries" if len(lost) > 1 else "entry"
        told += f"; lost in between: {word} {', '.join(map(str, lost))}"
        assert log.notes == [f"the session's database was damaged ({why}): {told}"]
        assert aside.read_bytes() == damaged
        await add(log, [entry(LAST + 1)])
    async with stored_log(state) as log:
        assert (seqs(log), list(log.notes)) == (list(range(1, LAST + 2)), [])


def change(state: Path, statement: str) -> None:
    with sqlite3.connect(folder(state) / "log.sqlite") as database:
        database.execute(statement)
    database.close()


def overwrite(state: Path, at: int, data: bytes) -> None:
    with open(folder(state) / "log.sqlite", "r+b") as file:
        file.seek(at)
        file.write(data)


def entry_30(state: Path) -> int:
    """Offset of the text of entry 30."""
    return (folder(state) / "log.sqlite").read_bytes().index(b"0030 0030")


WHERE = "WHERE key & 0xffffffff = 30"
CHANGED = "entry 30 is not what was written"
DAMAGE: list[tuple[Callable[[Path], None], int | None, str]] = [
    (lambda state: change(state, f"DELETE FROM entries {WHERE}"), LAST - 1, "entry 30 is missing"),
    (lambda state: overwrite(state, entry_30(state), b"0031"), LAST - 1, CHANGED),
    (lambda state: change(state, f"UPDATE entries SET at = at + 1 {WHERE}"), LAST - 1, CHANGED),
    (
        lambda state: change(state, f"UPDATE entries SET version = version + 1 {WHERE}"),
        LAST - 1,
        CHANGED,
    ),
    (lambda state: change(state, f"UPDATE entries SET crc = crc + 1 {WHERE}"), LAST - 1, CHANGED),
    (lambda state: change(state, f"UPDATE entries SET body = 'a text' {WHERE}"), LAST - 1, CHANGED),
    (
        lambda state: overwrite(state, entry_30(state) // 4096 * 4096, bytes(4096)),
        None,
        "database disk image is malformed",
    ),
]


@pytest.mark.parametrize(("spoil", "kept", "why"), DAMAGE)
async def test_R049_what_is_missing_or_changed_is_stepped_over(
    state: Path, spoil: Callable[[Path], None], kept: int | None, why: str
) -> None:
    spoil(state)
    await check(state, kept, why)


async def test_R033_a_main_file_cut_short(state: Path) -> None:
    os.truncate(folder(state) / "log.sqlite", 6 * 4096)
    with pytest.raises(StoreDamaged):
        list(read_entries(str(state), ID))
    found = [info.title for info in list_sessions(str(state))]
    assert found == ["(damaged; opening it repairs what can be)"]
    async with stored_log(state) as log:
        assert "nothing could be read, so it begins anew; the damaged file is" in log.notes[0]
        assert (folder(state) / "log.sqlite.damaged-1").stat().st_size == 6 * 4096
        await add(log, entries(1, 3))
    async with stored_log(state) as log:
        assert (seqs(log), log.notes) == ([1, 2, 3], [])


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 8192, b"this is no database at all " * 300],
    ids=["empty", "nul", "text"],
)
async def test_R049_a_main_file_lost_altogether(state: Path, content: bytes) -> None:
    (folder(state) / "log.sqlite").write_bytes(content)
    if (
        not content
    ):  # as a session killed while it was made: it is empty, and says so by having no entry
        async with stored_log(state) as log:
            assert len(log.entries) == 0
        return
    with pytest.raises(StoreDamaged):
        list(Reader(str(state), ID).entries())
    log = await reopen(state)
    assert (len(log.entries), "nothing could be read" in log.notes[0]) == (0, True)
    await log.close()
    assert (folder(state) / "log.sqlite.damaged-1").read_bytes() == content


@pytest.mark.parametrize("gone", [True, False])
async def test_R049_an_empty_or_missing_main_file_beside_a_wal_is_read_page_by_page(
    tmp_path: Path, gone: bool
) -> None:
    """SQLite would delete the WAL."""
    _, wal = await killed(tmp_path, 8)
    (folder(tmp_path) / "log.sqlite").unlink() if gone else (
        folder(tmp_path) / "log.sqlite"
    ).write_bytes(b"")
    with pytest.raises(StoreDamaged):
        list(read_entries(str(tmp_path), ID))
    assert [info.damaged for info in list_sessions(str(tmp_path))] == [True]
    async with stored_log(tmp_path) as log:
        aside = folder(tmp_path) / "log.sqlite.damaged-1"
        why = "the session's database was damaged (its main file is empty)"
        assert log.notes == [f"{why}: all 8 entries were kept, the damaged file is {aside}"]
        assert seqs(log) == list(range(1, 9))
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
        async with stored_log(copy) as log:
            found = seqs(log)
            assert found == list(range(1, len(found) + 1))
            kept.append(len(found))
            await add(log, [entry(len(found) + 1)])
        assert len(list(read_entries(str(copy), ID))) == len(found) + 1
    assert kept == sorted(kept)
    assert (kept[0], kept[-2], kept[-1]) == (
        18,
        20,
        20,
    )  # of the last record only zeros are missing


async def test_blobs_and_messages_survive_a_repair(state: Path) -> None:
    async with stored_log(state) as log:
        blob, large = log.put_blob(b"small"), log.put_blob(b"l" * 100_000)
        number, stored = log.put(b'{"waits":1}')
        await done(stored)
    change(state, "DELETE FROM entries WHERE key & 0xffffffff = 50")
    async with stored_log(state) as log:
        assert log.read_blob(blob) == b"small"
        assert log.read_blob(large) == b"l" * 100_000
        assert [message.id for message in log.inbox] == [number]
        assert log.put(b"{}")[0] == number + 1
    assert list_sessions(str(state))[0].title == "hello"


async def test_a_repair_that_was_killed_goes_on(state: Path) -> None:
    change(state, "DELETE FROM entries WHERE key & 0xffffffff = 20")
    at = folder(state)
    for prepare in (
        lambda: os.rename(at / "log.sqlite", at / "log.sqlite.damaged-1"),
        lambda: (at / "log.sqlite").unlink() or (at / "log.sqlite.new").write_bytes(b"half"),
    ):
        prepare()
        async with stored_log(state) as log:
            assert seqs(log) == list(range(1, LAST + 1))
            assert log.notes[0].endswith("lost in between: entry 20")


async def test_a_second_damage_gets_its_own_name(state: Path) -> None:
    for number, seq in enumerate((50, 40, 30), 1):
        change(state, f"DELETE FROM entries WHERE key & 0xffffffff = {seq}")
        log = await reopen(state)
        assert log.notes[0].endswith(f"lost in between: entry {seq}")
        assert len(log.entries) == LAST
        await log.close()
        if number == 2:
            (folder(state) / "log.sqlite.damaged-1").unlink()
    found = sorted(path.name[-9:] for path in folder(state).glob("*.damaged-?"))
    assert found == ["damaged-2", "damaged-3"]


async def test_an_entry_whose_file_is_gone_is_stepped_over(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, [*entries(1, 4), entry(5, "x" * 100_000), entry(6)])
    for path in folder(tmp_path).glob("blobs/??/*"):
        path.unlink()
    async with stored_log(tmp_path) as log:
        assert seqs(log) == [1, 2, 3, 4, 5, 6]
        assert "(the file of entry 5 is missing): 5 of 6 entries were kept" in log.notes[0]
        assert log.notes[0].endswith("; lost in between: entry 5")


async def test_a_write_that_meets_damage_has_the_database_rebuilt(state: Path) -> None:
    async with stored_log(state) as log:
        # the last leaf of the table, that the next entry must go into, is lost under an open log
        place = (folder(state) / "log.sqlite").read_bytes().index(f"{LAST:04} {LAST:04}".encode())
        overwrite(state, place // 4096 * 4096, bytes(4096))
        in_writer(log, lambda database: database.connection.execute("PRAGMA shrink_memory"))
        with pytest.raises(StoreDamaged, match="open the session again to repair it"):
            await add(log, [entry(LAST + 1)])
    async with stored_log(state) as log:
        assert 0 < len(log.entries) < LAST
        assert len(log.notes) == 1
    async with stored_log(state) as log:
        assert list(log.notes) == []


async def test_damage_outside_the_entries_is_met_by_a_write_and_mended_at_the_next_open(
    state: Path,
) -> None:
    name = hashlib.sha256(b"a blob of the session").digest()
    content = (folder(state) / "log.sqlite").read_bytes()
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    [number] = [
        n for n, page in enumerate(pages) if name in page and b"a blob of the session" not in page
    ]
    overwrite(state, number * 4096, bytes(4096))
    log = await reopen(state)
    assert (len(log.entries), list(log.notes)) == (LAST, [])
    log.put_blob(b"another blob")
    with pytest.raises(StoreDamaged, match="open the session again to repair it"):
        await add(log, [entry(LAST + 1)])
    with pytest.raises(StoreDamaged):
        await log.close()
    async with stored_log(state) as log:
        assert len(log.entries) == LAST
        assert "(a write met damage): all 60 entries were kept" in log.notes[0]
        assert log.read_blob(name.hex()) == b"a blob of the session"
        log.put_blob(b"another blob")
        await add(log, [entry(LAST + 1)])


PLACES_EACH = 5


@pytest.mark.parametrize("size", [20, 300])
async def test_wherever_rot_hits_what_was_acknowledged_is_there_or_its_loss_is_told(
    tmp_path: Path, size: int
) -> None:
    """A thousand further places: `make rot`."""
    whole, random = tmp_path / "whole", Random(size)
    await make_session(whole, size, size, subagent=False)
    intact = await read_session(copy_of(whole, tmp_path / "intact"))
    assert (len(intact.entries), intact.told) == (size, "")
    for kind, of_kind in places(database(whole)).items():
        for n, place in enumerate(random.sample(of_kind, min(PLACES_EACH, len(of_kind)))):
            rotten = copy_of(whole, tmp_path / f"{kind} {n}")
            overwrite_place(database(rotten), place, PATTERNS[n % len(PATTERNS)])
            assert not is_silent(await read_session(rotten), intact), place
            shutil.rmtree(rotten)


@pytest.mark.parametrize("seq", [3, 12, 19, 20])
async def test_an_entry_whose_key_became_larger_than_those_behind_it_hides_none(
    tmp_path: Path, seq: int
) -> None:
    """An ascending read ends there; a descending one begins at the last entry."""
    await make_session(tmp_path, 1, 20, subagent=False)
    key = bytes([0xA0, *[0x80] * 4, seq])  # 1 << 40 | seq as a variable-length integer
    at = database(tmp_path).read_bytes().index(key)
    overwrite_place(database(tmp_path), Place(at, "key"), b"\xff" * 5)
    found = await read_session(tmp_path)
    assert len(found.entries) == (19 if seq == 20 else 20)
    lost = "the last 1 of its 20 entries" if seq == 20 else "lost in between: entry"
    assert lost in found.told or "all 20 entries were kept" in found.told


async def test_reading_a_folder_one_may_not_write(tmp_path: Path) -> None:
    await filled(tmp_path, 5)
    copy = tmp_path / "copy"
    shutil.copytree(folder(tmp_path), folder(copy))
    os.chmod(folder(copy), 0o500)
    assert len(list(read_entries(str(copy), ID))) == 5
    os.chmod(folder(copy), 0o700)


# --- Files that were truncated, removed or changed unnoticed by SQLite ----------------------------


async def killed(state: Path, last: int = 40) -> tuple[bytes, bytes]:
    """Return (main file, log) of a session of `last` entries, killed with all of them in the
    WAL.
    """

    async def die_open() -> None:
        log = await make(state)
        for seq in range(1, last + 1):
            await add(log, [entry(seq, f"{seq:04} " * 100 if seq > 2 else "")])

    crash(die_open)
    return (folder(state) / "log.sqlite").read_bytes(), (
        folder(state) / "log.sqlite-wal"
    ).read_bytes()


async def test_one_wrong_bit_in_a_write_ahead_log_loses_nothing_that_stands_elsewhere(
    tmp_path: Path,
) -> None:
    _, wal = await killed(tmp_path)
    for n, at in enumerate(range(len(wal) // 2, len(wal), len(wal) // 7)):
        copy = tmp_path / str(n)
        shutil.copytree(folder(tmp_path), folder(copy))
        (folder(copy) / "log.sqlite-wal").write_bytes(
            wal[:at] + bytes([wal[at] ^ 1]) + wal[at + 1 :]
        )
        async with stored_log(copy) as log:
            assert "(its write-ahead log is damaged): " in log.notes[0]
            assert len(log.entries) >= 39, (
                log.notes
            )  # each page stands in the log once for each entry that went into it


@pytest.mark.parametrize("size", [0, None], ids=["emptied", "removed"])
async def test_a_write_ahead_log_that_is_gone_is_noticed(tmp_path: Path, size: int | None) -> None:
    log = await make(tmp_path)
    await add(log, entries(1, 5))
    await log.close()

    async def die_open() -> None:
        await add(await reopen(tmp_path), entries(6, 9))

    crash(die_open)
    wal = folder(tmp_path) / "log.sqlite-wal"
    wal.unlink() if size is None else os.truncate(wal, size)
    async with stored_log(tmp_path) as log:
        assert (seqs(log), log.was_cut) == ([1, 2, 3, 4, 5], True)
        why = (
            "its write-ahead log was removed or cut short, or the database replaced by an older one"
        )
        assert log.notes == [f"this session has lost the last 4 of its 9 entries: {why}"]
    async with stored_log(tmp_path) as log:
        assert (list(log.notes), log.was_cut) == ([], True)
        await add(log, [entry(6)])
    async with stored_log(tmp_path) as log:
        assert (list(log.notes), log.was_cut) == ([], False)


async def test_R033_of_a_main_file_cut_short_the_rows_that_are_left_are_kept(state: Path) -> None:
    whole = (folder(state) / "log.sqlite").read_bytes()
    found = []
    for pages in range(8, len(whole) // 4096):
        copy = state / str(pages)
        shutil.copytree(folder(state), folder(copy))
        (folder(copy) / "log.sqlite").write_bytes(whole[: pages * 4096 - 1000])
        async with stored_log(copy) as log:
            found.append(len(log.entries))
            assert all(is_as_written(one) for one in log.entries)
            found[-1] -= sum(isinstance(one.event, Reminded) for one in log.entries)
            assert log.was_cut == (0 < found[-1] < LAST)
        assert [info.title for info in list_sessions(str(copy))] == ["hello"] * bool(found[-1])
    assert found == sorted(found)
    assert found[-1] > 40


async def test_a_blob_kept_in_the_database_is_checked_when_it_is_read(state: Path) -> None:
    name = hashlib.sha256(b"a blob of the session").hexdigest()
    overwrite(
        state, (folder(state) / "log.sqlite").read_bytes().index(b"a blob of the session"), b"A"
    )
    async with stored_log(state) as log:
        with pytest.raises(StoreDamaged, match=f"blob {name[:12]} in .* is not what was written"):
            log.read_blob(name)
        with pytest.raises(KeyError):  # for those who only want the bytes
            log.read_blob(name)


async def test_entries_of_an_older_longrein_keep_their_checksum(state: Path) -> None:
    with sqlite3.connect(folder(state) / "log.sqlite") as database:
        for key, body in database.execute("SELECT key, body FROM entries").fetchall():
            database.execute("UPDATE entries SET crc = ? WHERE key = ?", (zlib.crc32(body), key))
        database.execute("PRAGMA user_version = 2")
    database.close()
    log = await reopen(state)
    assert (len(log.entries), list(log.notes)) == (LAST, [])
    await log.close()
    overwrite(state, entry_30(state), b"0031")
    await check(state, LAST - 1, CHANGED)


@pytest.mark.parametrize(
    "ends", [("",), ("-wal",), ("", "-wal", "-shm")], ids=["main", "wal", "all"]
)
@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_files_that_are_removed_or_replaced_under_an_open_log_are_noticed(
    state: Path, ends: tuple[str, ...], how: str
) -> None:
    """The contents of the open database are written back, with commits made after the files were
    gone.
    """
    log = await reopen(state)
    await add(log, [entry(LAST + 1)])
    for end in ends:
        path = folder(state) / f"log.sqlite{end}"
        path.rename(path.with_suffix(".away"))
        if how == "replaced":
            shutil.copyfile(path.with_suffix(".away"), path)
    with pytest.raises(
        StoreDamaged, match="was removed or replaced while it was open; it was written again, go on"
    ):
        await add(log, [entry(LAST + 2)])
    with pytest.raises(StoreDamaged):
        await log.close()
    async with stored_log(state) as log:
        assert (len(log.entries), list(log.notes)) == (LAST + 1, [])
        await add(log, [entry(LAST + 2)])


async def test_a_log_whose_files_went_after_the_last_write_is_put_back_at_its_close(
    state: Path,
) -> None:
    log = await reopen(state)
    await add(log, [entry(LAST + 1)])
    (folder(state) / "log.sqlite").unlink()
    with pytest.raises(StoreDamaged, match="it was written again"):
        await log.close()
    async with stored_log(state) as log:
        assert len(log.entries) == LAST + 1


async def test_a_folder_that_is_removed_under_an_open_log_is_not_made_again(state: Path) -> None:
    log = await reopen(state)
    shutil.rmtree(folder(state))
    with pytest.raises(
        StoreDamaged, match="was removed while the session in it was open; nothing more is kept"
    ):
        await add(log, [entry(LAST + 1)])
    with pytest.raises(StoreDamaged):
        await log.close()
    assert not folder(state).exists()


def sqlite_error(code: int, words: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(("error", "told"), [
    (OSError(errno.ENOSPC, "No space left on device"), "free some room"),
    (OSError(errno.EDQUOT, "Disk quota exceeded"), "free some room"),
    (OSError(errno.EIO, "Input/output error"), "check the disk"),
    (sqlite_error(13, "database or disk is full"), "free some room"),
    (sqlite_error(10 | 3 << 8, "disk I/O error"), "check the disk"),
])  # fmt: skip
def test_a_failing_disk_is_told_apart_from_a_full_one(
    tmp_path: Path, error: Exception, told: str
) -> None:
    failure = store_failure(error, str(tmp_path))
    assert told in str(failure)
    assert isinstance(failure, StoreFull) == (told == "free some room")
    assert os.listdir(tmp_path) == []
