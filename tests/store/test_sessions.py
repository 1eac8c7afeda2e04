"""Lists of sessions, their folders and file modes; removal of empty ones."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lab.support.postgresql import both_stores
from longrein.store import (
    database,
    discard_empty,
    find_session,
    is_open,
    latest_session,
    leave_message,
    list_sessions,
    open_log,
    read_entries,
)
from longrein.store import reader as reading
from longrein.store.session_folder import mount_type
from longrein_context.events import (
    AnyEvent,
    Entry,
    Image,
    ModeSet,
    Opened,
    Parent,
    PinsSet,
    PrefixSet,
    SessionError,
    SessionUnknown,
    TaskStarted,
    Text,
    UserSpoke,
)
from tests.store.fixtures import (
    ID,
    OTHER,
    add,
    entry,
    filled,
    folder,
    make,
    new_log,
    opened,
    said,
    stored_log,
    wall_us,
)

pytestmark = pytest.mark.anyio

BAD_IDS = [
    ("../../x", "'../../x' is not a session id; `longrein sessions` lists them"),
    ("..", "'..' is not a session id; `longrein sessions` lists them"),
    ("", "'' is not a session id; `longrein sessions` lists them"),
    ("a/b", "'a/b' is not a session id; `longrein sessions` lists them"),
    ("x\0y", "'x\\x00y' is not a session id; `longrein sessions` lists them"),
    (ID + "\n", f"'{ID}\\n' is not a session id; `longrein sessions` lists them"),
    ("{" + ID + "}", f"'{{{ID}}}' is not a session id; `longrein sessions` lists them"),
    ("x" * 5000, "'" + "x" * 59 + "…' is not a session id; `longrein sessions` lists them"),
]


@pytest.mark.parametrize(("bad", "line"), BAD_IDS)
async def test_S043_a_text_that_is_no_id_touches_nothing(
    tmp_path: Path, bad: str, line: str
) -> None:
    state = tmp_path / "a" / "b" / "state"
    for create in (True, False):
        with pytest.raises(SessionUnknown) as error:
            await open_log(str(state), bad, create=create, wall_us=wall_us)
        assert str(error.value) == line
    for look in (
        lambda: list(read_entries(str(state), bad)),
        lambda: find_session(str(state), bad),
        lambda: leave_message(str(state), bad, b""),
        lambda: is_open(str(state), bad),
    ):
        with pytest.raises(SessionUnknown):
            look()
    assert list(tmp_path.iterdir()) == []


async def test_S072_modes_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state = tmp_path / "new" / "state"
        async with new_log(state) as log:
            await add(log, [entry(1), entry(2), entry(3, "x" * 100_000)])
            log.put_blob(b"b" * 100_000)
            growing = log.new_blob()
            growing.write(b"g" * 100_000)
            leave_message(str(state), ID, b"message")
            await add(log, [entry(4)])
            list(read_entries(str(state), ID))
            found = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*")}
    finally:
        os.umask(before)
    names = {path.name for path in found}
    assert {"log.sqlite", "log.sqlite-wal", "log.sqlite-shm", "lock", "blobs", "inbox"} <= names
    assert any(name.startswith("tmp-") for name in names)
    for path, mode in found.items():
        assert (path, oct(mode)) == (path, oct(0o700 if path.is_dir() else 0o600))


async def spoken(state: Path, number: int, cwd: str, words: str) -> str:
    session = f"{number:08x}-0000-4000-8000-000000000000"
    async with new_log(state, session) as log:
        await add(
            log, [Entry(1, wall_us(), opened(session, cwd)), Entry(2, wall_us(), said(words))]
        )
    return session


@both_stores
async def test_the_list_has_the_latest_first(tmp_path: Path) -> None:
    assert list_sessions(str(tmp_path / "none")) == []
    one = await spoken(tmp_path, 1, "/a", "mend the\n\n parser,   please")
    two = await spoken(tmp_path, 2, "/b", "火" * 200)
    three = await spoken(tmp_path, 3, "/a", "third")
    log = await open_log(str(tmp_path), one, create=False, wall_us=wall_us)
    await add(log, [entry(3)])
    (tmp_path / "sessions" / "not-a-session").mkdir()
    found = list_sessions(str(tmp_path))
    assert [(info.session, info.cwd, info.title, info.entries, info.open) for info in found] == [
        (one, "/a", "mend the parser, please", 3, True),
        (three, "/a", "third", 2, False),
        (two, "/b", "火" * 79 + "…", 2, False),
    ]
    assert all(0 < info.created_at < info.updated_at for info in found)
    assert [info.session for info in list_sessions(str(tmp_path), limit=1)] == [one]
    assert latest_session(str(tmp_path), "/a") == one
    assert latest_session(str(tmp_path), "/b") == two
    assert latest_session(str(tmp_path), "/c") == ""
    await log.close()


async def test_one_in_which_nothing_was_said_is_not_gone_on_with_while_there_is_another(
    tmp_path: Path,
) -> None:
    async with new_log(tmp_path) as mute:
        await add(mute, [Entry(1, wall_us(), opened(ID, "/a"))])
    assert latest_session(str(tmp_path), "/a") == ID
    spoke = await spoken(tmp_path, 1, "/a", "mend the parser")
    os.utime(tmp_path / "sessions" / ID / "log.sqlite", ns=(time.time_ns() + 10**10,) * 2)
    assert latest_session(str(tmp_path), "/a") == spoke


@both_stores
async def test_who_says_an_image_alone_has_said_something(tmp_path: Path) -> None:
    async with new_log(tmp_path) as seen:
        await add(
            seen,
            [
                Entry(1, wall_us(), opened(ID, "/a")),
                Entry(2, wall_us(), UserSpoke((Image("b1", "image/png", 3),))),
            ],
        )
        assert [info.title for info in list_sessions(str(tmp_path))] == ["(no words)"]
        await add(seen, [Entry(3, wall_us(), UserSpoke((Text("what is this?"),)))])
    assert [info.title for info in list_sessions(str(tmp_path))] == ["what is this?"]


async def test_one_that_is_made_between_two_looks_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await spoken(tmp_path, 1, "/a", "first")
    (folder(tmp_path, one) / "high-water-mark").unlink()  # as an older longrein leaves it
    looks = [sqlite3.OperationalError("unable to open database file")]

    def read_only(path: str) -> sqlite3.Connection:
        if looks:
            raise looks.pop()
        return database.read_only(path)

    monkeypatch.setattr(reading, "read_only", read_only)
    assert [(info.session, info.damaged) for info in list_sessions(str(tmp_path))] == [(one, False)]
    assert not looks


@both_stores
async def test_a_session_without_an_entry_is_not_listed(tmp_path: Path) -> None:
    async with new_log(tmp_path):
        assert list_sessions(str(tmp_path)) == []
    (folder(tmp_path, OTHER)).mkdir()
    assert list_sessions(str(tmp_path)) == []
    assert list(read_entries(str(tmp_path), OTHER)) == []


FIND = [
    ("6f1", ID),
    (ID, ID),
    (ID.upper(), ID),
    ("6f", f"2 sessions begin with 6f ({ID}, {OTHER}); write more of the id"),
    ("6f1d", f"no session begins with 6f1d; the nearest is {ID}; `longrein sessions` lists them"),
    ("77", "no session begins with 77; `longrein sessions` lists them"),
]


@pytest.mark.parametrize(("prefix", "answer"), FIND)
@both_stores
async def test_finding_by_the_first_characters(tmp_path: Path, prefix: str, answer: str) -> None:
    for session in (ID, OTHER):
        await filled(tmp_path, 1, session)
    if answer == ID:
        assert find_session(str(tmp_path), prefix) == ID
        return
    with pytest.raises(SessionUnknown) as error:
        find_session(str(tmp_path), prefix)
    assert str(error.value) == answer


@both_stores
async def test_no_such_session(tmp_path: Path) -> None:
    with pytest.raises(
        SessionUnknown, match=f"there is no session {ID}; `longrein sessions` lists them"
    ):
        await open_log(str(tmp_path), ID, create=False, wall_us=wall_us)
    assert list(tmp_path.iterdir()) == []


async def test_a_state_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError) as error:
        await make(tmp_path / "file" / "state")
    assert str(error.value) == (
        f"cannot make {folder(tmp_path / 'file' / 'state')}: Not a directory; "
        "name another place with --state-dir or LONGREIN_STATE_DIR"
    )


def test_the_type_of_a_mount_is_read_from_its_line() -> None:
    table = (
        "36 35 98:0 / / rw,noatime shared:1 - ext4 /dev/root rw\n"
        "41 36 0:52 /home /home rw - nfs4 server:/home rw,vers=4.2\n"
        "42 36 0:53 / /mnt/a\\040b rw master:1 - fuse.sshfs ada@host: rw\n"
    )
    assert [
        mount_type(table, 98, 0),
        mount_type(table, 0, 52),
        mount_type(table, 0, 53),
        mount_type(table, 0, 5),
    ] == ["ext4", "nfs4", "fuse.sshfs", ""]


async def test_closed_sessions_are_listed_without_opening_their_databases(tmp_path: Path) -> None:
    for n in range(20):
        await spoken(tmp_path, n, "/a", f"words {n}")
    program = (
        "import sys\nfrom longrein.store import list_sessions\nopened = "
        "[]\nsys.addaudithook(lambda event, _: opened.append(event) if event == 'sqlite3.connect' "
        "else None)\nprint(len(list_sessions(sys.argv[1])), len(opened))\n"
    )
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, tmp_path, stdout=subprocess.PIPE
    )
    assert await ran.communicate() == (b"20 0\n", None)


@pytest.mark.parametrize("damage", ["head", "cut", "empty"])
async def test_a_damaged_session_is_found_by_the_folder_it_was_started_in(
    tmp_path: Path, damage: str
) -> None:
    log = await make(tmp_path)
    one = log.session
    await add(
        log, [Entry(1, wall_us(), opened(one, "/a")), Entry(2, wall_us(), said("first words"))]
    )
    await log.close()
    path = folder(tmp_path, one) / "log.sqlite"
    whole = path.read_bytes()
    cut = whole.index(b"Opened") // 4096 * 4096 + 4096
    path.write_bytes({"head": bytes(4096) + whole[4096:], "cut": whole[:cut], "empty": b""}[damage])
    assert latest_session(str(tmp_path), "/a") == one
    async with stored_log(tmp_path, one) as log:
        assert [one.seq for one in log.entries] == ([] if damage == "empty" else [1, 2])


# --- Removing empty sessions ----------------------------------------------------------------------
#
# Sessions in which nobody said anything are removed when they are left; all others stay.


PREFIX = PrefixSet("start", "p", "m", "scripted", "Be good.", ())


async def stored(tmp_path: Path, *events: AnyEvent) -> None:
    async with new_log(tmp_path) as log:
        await add(log, [Entry(seq, wall_us(), event) for seq, event in enumerate(events, 1)])


@pytest.mark.parametrize("events", [
    (),
    (opened(ID, "/a"),),
    (opened(ID, "/a"), PREFIX),
    (opened(ID, "/a"), PREFIX, ModeSet("plan")),
])  # fmt: skip
@both_stores
async def test_what_holds_nothing_but_its_beginning_goes(
    tmp_path: Path, events: tuple[AnyEvent, ...]
) -> None:
    await stored(tmp_path, *events)
    assert await discard_empty(str(tmp_path), ID, wall_us=wall_us)
    assert not folder(tmp_path).exists()
    assert list_sessions(str(tmp_path)) == []
    assert not await discard_empty(str(tmp_path), ID, wall_us=wall_us)


def copied() -> Opened:
    return Opened(1, ID, "n", ("/a",), "/a", parent=Parent("6f1d", 7))


@pytest.mark.parametrize(
    "last",
    [UserSpoke((Text("keep me"),)), PinsSet(("never push",)), TaskStarted("b1", "make"), copied()],
    ids=lambda last: type(last).__name__,
)
@both_stores
async def test_what_holds_anything_else_stays(tmp_path: Path, last: AnyEvent) -> None:
    await stored(tmp_path, opened(ID, "/a"), PREFIX, last)
    assert not await discard_empty(str(tmp_path), ID, wall_us=wall_us)
    assert len(list_sessions(str(tmp_path))) == 1


async def _waits(tmp_path: Path) -> None:
    async with stored_log(tmp_path) as log:
        log.put(b"a word that was never taken")


async def _left(tmp_path: Path) -> None:
    leave_message(str(tmp_path), ID, b"a word from another process")


async def _spool(tmp_path: Path) -> None:
    (folder(tmp_path) / "tasks").mkdir()


async def _damage(tmp_path: Path) -> None:
    (folder(tmp_path) / "log.sqlite").write_bytes(b"no database")


@pytest.mark.parametrize("befalls", [_waits, _left, _spool, _damage])
async def test_what_may_hold_something_stays(
    tmp_path: Path, befalls: Callable[[Path], Awaitable[None]]
) -> None:
    await stored(tmp_path, opened(ID, "/a"), PREFIX)
    await befalls(tmp_path)
    assert not await discard_empty(str(tmp_path), ID, wall_us=wall_us)
    assert (folder(tmp_path) / "log.sqlite").exists()


@both_stores
async def test_what_somebody_has_open_stays(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, [Entry(1, wall_us(), opened(ID, "/a"))])
        assert not await discard_empty(str(tmp_path), ID, wall_us=wall_us)
    assert await discard_empty(str(tmp_path), ID, wall_us=wall_us)
