"""Bundles: a whole session moves to another state folder; damaged and hostile bundles leave
nothing.
"""

import io
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from longrein.store import (
    Reader,
    export_jsonl,
    is_bundle,
    list_sessions,
    read_bundle,
    read_entries,
    write_bundle,
)
from longrein.store.database import new_database
from longrein_context.events import Opened, SessionError, decode_event
from tests.store.fixtures import (
    GRANDCHILD,
    ID,
    OTHER,
    add,
    entries,
    entry,
    folder,
    new_log,
    seqs,
    start_subagent,
    stored_log,
)

pytestmark = pytest.mark.anyio
SMALL, LARGE = b"small", os.urandom(300_000)


async def family(state: Path) -> None:
    """A root with two subagents, one of them forked and with a subagent of its own; entries and
    blobs of any size.
    """
    async with new_log(state) as log:
        log.put_blob(SMALL), log.put_blob(LARGE)
        await add(log, [*entries(1, 7), entry(8, "火\n\u2028" * 50_000)])
        await start_subagent(log, 9, results=2)
        fork = await start_subagent(log, 10, OTHER, shares=6, results=0)
        await start_subagent(fork, 9, GRANDCHILD, results=1)


def bundle(state: Path, path: Path) -> Path:
    with open(path, "wb") as out:
        write_bundle(str(state), ID, out, "0.1.0")
    return path


def exported(state: Path, number: int = 1) -> bytes:
    reader, out = Reader(str(state), ID, number), io.BytesIO()
    export_jsonl(reader, out)
    reader.close()
    return out.getvalue()


async def test_a_session_moves_whole(tmp_path: Path) -> None:
    await family(tmp_path / "old")
    path = bundle(tmp_path / "old", tmp_path / "b.zip")
    assert is_bundle(str(path))
    report = read_bundle(str(tmp_path / "new"), str(path), ["/there", "/more"])
    found = (report.session, report.cwd, report.entries, report.subagents, report.blobs)
    assert found == (ID, "/work", 20, 3, 3)
    for number in (1, 2, 3, 4):
        was, now = (exported(tmp_path / state, number).split(b"\n") for state in ("old", "new"))
        differ = [new for old, new in zip(was, now, strict=True) if old != new]
        assert all(
            b'"type":"Opened"' in line and b'"roots":["/there","/more"],"cwd":"/there"' in line
            for line in differ
        )
    async with stored_log(tmp_path / "new") as log:
        assert (log.notes, seqs(log)) == ([], list(range(1, 11)))
        hashes = log.put_blob(SMALL), log.put_blob(LARGE)
        assert [log.read_blob(name) for name in hashes] == [SMALL, LARGE]
        assert log.blob_path(hashes[1])
        assert [len(log.child(one).entries) for one in (OTHER, GRANDCHILD)] == [9, 3]
        await add(log, [entry(11)])
    (info,) = list_sessions(str(tmp_path / "new"))
    assert (info.cwd, info.title, info.entries) == ("/there", "hello", 11)
    modes = {
        os.stat(path).st_mode & 0o777
        for path in folder(tmp_path / "new").rglob("*")
        if path.is_file()
    }
    assert modes == {0o600}


async def test_a_bundle_of_an_open_session_holds_what_is_committed(tmp_path: Path) -> None:
    async with new_log(tmp_path / "old") as log:
        await add(log, entries(1, 5))
        path = bundle(tmp_path / "old", tmp_path / "b.zip")
        await add(log, [entry(6)])
    read_bundle(str(tmp_path / "new"), str(path), ["/w"])
    assert len(list(read_entries(str(tmp_path / "new"), ID))) == 5


async def test_a_session_that_is_there_is_never_changed(tmp_path: Path) -> None:
    await family(tmp_path / "old")
    path, before = bundle(tmp_path / "old", tmp_path / "b.zip"), exported(tmp_path / "old")
    with pytest.raises(SessionError, match=f"there is already a session {ID}; go on with"):
        read_bundle(str(tmp_path / "old"), str(path), ["/elsewhere"])
    assert exported(tmp_path / "old") == before


async def test_an_import_that_was_killed_is_done_again_and_one_that_runs_is_left_alone(
    tmp_path: Path,
) -> None:
    await family(tmp_path / "old")
    path, before = bundle(tmp_path / "old", tmp_path / "b.zip"), exported(tmp_path / "old")
    begun = folder(tmp_path / "new")
    (begun / "blobs").mkdir(parents=True)
    building = new_database(str(begun / "log.sqlite.new"))
    building.execute("INSERT INTO collected VALUES('written by the import that runs')")
    with pytest.raises(SessionError, match="there is already a session"):
        read_bundle(str(tmp_path / "new"), str(path), ["/w"])
    building.close()
    read_bundle(str(tmp_path / "new"), str(path), ["/w"])
    assert len(list(read_entries(str(tmp_path / "new"), ID))) == before.count(b"\n")
    shutil.rmtree(begun)
    begun.mkdir()
    (begun / "log.sqlite.new").write_bytes(b"half a page")
    read_bundle(str(tmp_path / "new"), str(path), ["/w"])
    assert len(list(read_entries(str(tmp_path / "new"), ID))) == before.count(b"\n")


Change = Callable[[dict[str, bytes]], None]


def edit(name: str, old: bytes, new: bytes) -> Change:
    def change(members: dict[str, bytes]) -> None:
        assert old in members[name], (name, old)
        members[name] = members[name].replace(old, new, 1)

    return change


def drop(start: str) -> Change:
    def change(members: dict[str, bytes]) -> None:
        del members[next(name for name in members if name.startswith(start))]

    return change


def blob_of(members: dict[str, bytes]) -> None:
    members[next(name for name in members if name.startswith("blobs/"))] = b"x"


LOG = "sessions/1.jsonl"
CHANGED = "is not what was exported"
PATH = b"../../../../etc/passwd"


@pytest.mark.parametrize(("change", "told"), [
    (edit(LOG, b"hello", b"adieu"), f"sessions/1.jsonl {CHANGED}"),
    (edit(LOG, b'"seq":3', b'"seq":4'), "entry 3 of sessions/1.jsonl is missing"),
    (edit(LOG, b'{"seq":2', b'\xff{"seq":2'), CHANGED),
    (edit(LOG, b'"type":"UserSpoke"', b'"type":"Unknown!!"'), "upgrade it"),
    (edit(LOG, b'"type":"Opened"', b'"type":"CwdSet"'), "does not begin as a session does"),
    (edit("sessions/2.jsonl", b'"seq":1', b'"seq":' + b"9" * 30), "impossible numbers"),
    (edit(LOG, b'"at":1', b'"at":' + b"9" * 18), "impossible numbers"),
    (edit(LOG, b'"at":1', b'"at":-1'), "impossible numbers"),
    (edit("bundle.json", b'"created": 1', b'"created": -1'), "contradicts itself"),
    (drop("sessions/3"), f"sessions/3.jsonl {CHANGED}"),
    (drop("blobs/"), CHANGED),
    (blob_of, CHANGED),
    (drop("bundle"), "is no bundle of longrein"),
    (edit("bundle.json", b'"format": 1', b'"format": 2'), "written by a newer longrein"),
    (edit("bundle.json", b'"schema": 1', b'"schema": 9'), "written by a newer longrein"),
    (edit("bundle.json", b'"number": 2', b'"number": 1'), "contradicts itself"),
    (edit("bundle.json", ID.encode(), PATH), "is not a session id|contradicts itself"),
    (edit("bundle.json", b'"sessions"', b'"sessionz"'), "is no bundle of longrein"),
    (edit("bundle.json", b"{", b"[" * 5_000), "is no bundle of longrein"),
])  # fmt: skip
async def test_a_changed_bundle_is_refused_and_leaves_nothing(
    tmp_path: Path, change: Change, told: str
) -> None:
    await family(tmp_path / "old")
    path = bundle(tmp_path / "old", tmp_path / "b.zip")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(SessionError, match=told):
        read_bundle(str(tmp_path / "new"), str(path), ["/w"])
    assert list_sessions(str(tmp_path / "new")) == []
    assert not folder(tmp_path / "new").exists()


async def test_a_bundle_cut_or_changed_at_any_place_is_refused_or_whole(tmp_path: Path) -> None:
    await family(tmp_path / "old")
    data = bundle(tmp_path / "old", tmp_path / "b.zip").read_bytes()
    for at in range(4, len(data), len(data) // 12):
        for damaged in (data[:at], data[:at] + bytes((data[at] ^ 0x55,)) + data[at + 1 :]):
            (tmp_path / "c.zip").write_bytes(damaged)
            new = tmp_path / f"new{at}-{len(damaged)}"
            try:
                read_bundle(str(new), str(tmp_path / "c.zip"), ["/work"])
            except SessionError:
                assert not folder(new).exists()
            else:
                assert exported(new) == exported(tmp_path / "old")


async def test_a_zip_bomb_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await family(tmp_path / "old")
    path = bundle(tmp_path / "old", tmp_path / "b.zip")
    usage = type("Usage", (), {"free": 1_000})
    monkeypatch.setattr("longrein.store.bundle.shutil.disk_usage", lambda _: usage)
    with pytest.raises(SessionError, match="1,000 are free"):
        read_bundle(str(tmp_path / "new"), str(path), ["/w"])
    assert not (tmp_path / "new").exists()


async def test_a_blob_that_is_gone_is_counted_and_the_rest_moves(tmp_path: Path) -> None:
    await family(tmp_path / "old")
    files = [
        path
        for path in folder(tmp_path / "old").glob("blobs/*/*")
        if path.stat().st_size == len(LARGE)
    ]
    files[0].unlink()
    with open(tmp_path / "b.zip", "wb") as out:
        assert write_bundle(str(tmp_path / "old"), ID, out, "0.1.0").missing == 1
    assert read_bundle(str(tmp_path / "new"), str(tmp_path / "b.zip"), ["/w"]).blobs == 2


async def test_each_line_of_a_bundle_is_an_entry_of_the_documented_form(tmp_path: Path) -> None:
    await family(tmp_path / "old")
    with zipfile.ZipFile(bundle(tmp_path / "old", tmp_path / "b.zip")) as archive:
        lines = archive.read("sessions/1.jsonl").splitlines()
    first = msgspec.json.decode(lines[0], type=dict[str, msgspec.Raw])
    assert list(first) == ["seq", "at", "version", "event"]
    assert isinstance(decode_event(bytes(first["event"])), Opened)
