"""Subagents' logs in the database of their root: joint writes, separate reads, entries shared by
forks.
"""

import errno
import hashlib
import io
import os
from pathlib import Path

import pytest

from lab.support.postgresql import both_stores
from longrein.store import (
    HistoryReader,
    Message,
    Reader,
    SessionHistory,
    contents_of,
    export_jsonl,
    fork_log,
    list_sessions,
    read_entries,
    title_of,
)
from longrein_context.events import (
    AnyEvent,
    Entry,
    Goal,
    GoalChanged,
    Opened,
    Parent,
    SessionError,
    SessionUnknown,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    decode_entry,
)
from tests.store.fixtures import (
    CHILD,
    GRANDCHILD,
    ID,
    OTHER,
    add,
    crash,
    done,
    entries,
    entry,
    folder,
    make,
    new_log,
    reopen,
    seqs,
    start_subagent,
    started,
    stored_log,
    subagent_start,
)

pytestmark = pytest.mark.anyio


@both_stores
async def test_a_subagent_begins_in_one_transaction_with_the_entry_that_starts_it(
    tmp_path: Path,
) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 3))
        child = log.child(CHILD)
        assert (list(child.entries), list(child.inbox), child.session) == ([], [], CHILD)
        first = subagent_start()
        await done(log.append([started(4)], flush=True, beside=[(child, first, ())]))
        await add(child, [entry(3)])
        await add(log, [entry(5)])
        assert list(child.history(1, 2)) == first
        assert [one.seq for one in log.history(1, 9)] == [1, 2, 3, 4, 5]
        assert list(log.history(1, 0)) == []

    async with stored_log(tmp_path) as log:
        assert seqs(log) == [1, 2, 3, 4, 5]  # the root counts its own only
        child = log.child(CHILD)
        assert list(child.entries)[:2] == first
        assert seqs(child) == [1, 2, 3]
        assert child.entries[-1].seq == 3
        await add(child, [entry(4)])
        await child.close()
    assert [info.session for info in list_sessions(str(tmp_path))] == [ID]
    assert Reader(str(tmp_path), ID, 2).about()[2] == "find the parser"


@both_stores
async def test_numbers_rise_and_are_kept(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        names = [f"c0000000-0000-4000-8000-00000000000{n}" for n in range(3)]
        assert [log.child(name).number for name in (*names[:2], names[0])] == [2, 3, 2]
        for seq, name in enumerate(names, 3):
            await start_subagent(log, seq, name)
    async with stored_log(tmp_path) as log:
        assert [log.child(name).number for name in (OTHER, *names)] == [5, 2, 3, 4]


@both_stores
async def test_entries_out_of_order_are_refused_session_by_session(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        child = await start_subagent(log, 3)
        for wrong in (2, 4):
            with pytest.raises(SessionError, match="out of order"):
                await add(child, [entry(wrong)])
            with pytest.raises(
                SessionError, match="out of order"
            ):  # and nothing of the joint write is there
                await done(log.append([entry(4)], flush=True, beside=[(child, [entry(wrong)], ())]))
        await done(child.append([entry(3)], flush=True, beside=[(log, [entry(4)], ())]))
        async with new_log(tmp_path, OTHER) as other:
            with pytest.raises(ValueError, match="is not in the database of"):
                log.append([], flush=False, beside=[(other, [], ())])
    assert [one.seq for one in read_entries(str(tmp_path), ID)] == [1, 2, 3, 4]


@both_stores
async def test_what_was_refused_may_begin_elsewhere(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 5))
        with pytest.raises(SessionError, match="out of order"):
            await add(log.child(CHILD, 3), subagent_start(shares=4))
        child = log.child(CHILD, 4)
        await add(child, subagent_start(shares=4))
        assert seqs(log.child(CHILD)) == [1, 2, 3, 4, 5, 6]


@both_stores
async def test_each_has_its_own_inbox(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        child = await start_subagent(log, 3)
        one, stored = log.put(b"root")
        two, stored = child.put(b"child")
        three, stored = child.put(b"again")
        await done(stored)
        assert one < two < three  # ids are told apart in the whole tree
    async with stored_log(tmp_path) as log:
        child = log.child(CHILD)
        assert list(log.inbox) == [Message(one, b"root")]
        assert list(child.inbox) == [Message(two, b"child"), Message(three, b"again")]
        assert await child.collect() == []
        await done(
            log.append([entry(4)], flush=True, take=[one], beside=[(child, [entry(3)], [two])])
        )
        assert log.put(b"new")[0] == three + 1
    async with stored_log(tmp_path) as log:
        assert [message.body for message in log.inbox] == [b"new"]
        assert [message.body for message in log.child(CHILD).inbox] == [b"again"]


@both_stores
async def test_a_fork_has_its_parents_entries_by_reference(tmp_path: Path) -> None:
    log = await make(tmp_path)
    whole = entries(1, 8)
    await add(log, whole)
    child = log.child(CHILD, 5)
    assert list(child.entries) == whole[:5]
    first = subagent_start(shares=5)
    await done(log.append([started(9)], flush=True, beside=[(child, first, ())]))
    grandchild = child.child(GRANDCHILD, 6)  # of the fork's own one
    below = subagent_start(GRANDCHILD, parent=CHILD, shares=6)
    await done(child.append([started(8, GRANDCHILD)], flush=True, beside=[(grandchild, below, ())]))
    cousin = child.child(OTHER, 3)  # of what the fork itself shares
    await done(
        child.append(
            [], flush=True, beside=[(cousin, subagent_start(OTHER, parent=CHILD, shares=3), ())]
        )
    )
    await add(log, [entry(10)])

    async def check(session: str, expected: list[Entry]) -> None:
        found = log.child(session)
        assert list(found.entries) == expected
        assert list(found.history(2, 4)) == expected[1:4]
        assert found.entries[4] == expected[4]
        reader = found.reader
        assert [reader.entry(seq) for seq in range(1, len(expected) + 1)] == expected
        assert reader.entry(len(expected) + 1) is None
        assert reader.entry(10**17) is None
        assert reader.tail() == (expected[-1].seq, expected[-1].at)
        assert [reader.seq_at(one.at) for one in expected] == [one.seq for one in expected]
        assert [one.seq for one in reader.of_kind("UserSpoke", "Opened")] == [
            one.seq
            for one in reversed(expected)
            if type(one.event).__name__ in ("UserSpoke", "Opened")
        ]

    third = log.child(CHILD).reader.entry(8)
    assert third is not None
    cousins = log.child(OTHER).reader
    own = list(cousins.entries(cousins.first - 1))
    for _ in range(2):
        await check(CHILD, [*whole[:5], *first, third])
        await check(GRANDCHILD, [*whole[:5], first[0], *below])
        await check(OTHER, [*whole[:3], *own])
        await log.close()
        log = await reopen(tmp_path)
    assert seqs(log) == list(range(1, 11))
    past = SessionHistory(str(tmp_path), ID).child(CHILD)
    assert past.entry(3) == whole[2]
    assert [one.seq for one in past.entries(4, 6)] == [5, 6]
    await log.close()


# --- Finding, searching, exporting ----------------------------------------------------------------


async def family(state: Path) -> None:
    """A root with an empty subagent (a9) and a forked one (a10), which has a subagent itself
    (a10.a9).
    """
    async with new_log(state) as log:
        await add(log, [*entries(1, 7), entry(8, "the word amber stands in the root")])
        await start_subagent(log, 9, results=2)
        fork = await start_subagent(log, 10, OTHER, shares=6, results=0)
        await start_subagent(fork, 9, GRANDCHILD, results=1)
        await add(fork, [entry(10, "the word amber stands in the fork")])


@both_stores
async def test_a_fork_of_the_root_reaches_the_originals_subagents(tmp_path: Path) -> None:
    await family(tmp_path)
    copy = "6f9d0000-0000-4000-8000-00000000000f"
    await fork_log(
        str(tmp_path),
        ID,
        10,
        Entry(1, 5, Opened(1, copy, "n0nce", ("/work",), "/", parent=Parent(ID, 10))),
    )
    async with stored_log(tmp_path, copy) as log:
        assert seqs(log) == list(range(1, 11))  # the root's own entries only
        assert log.child(GRANDCHILD).number == 2
        past = SessionHistory(str(tmp_path), copy)
        child = past.child(OTHER)
        assert child.tail()[0] == 10
        assert child.child(GRANDCHILD) is not None
        past.close()


@both_stores
async def test_an_export_of_a_subagent_has_all_that_it_knows(tmp_path: Path) -> None:
    await family(tmp_path)

    def exported(reader: Reader) -> list[tuple[int, str]]:
        out = io.BytesIO()
        export_jsonl(reader, out)
        found = [decode_entry(line) for line in out.getvalue().splitlines()]
        return [(one.seq, type(one.event).__name__) for one in found]

    assert [seq for seq, _ in exported(Reader(str(tmp_path), ID))] == list(range(1, 11))
    root = Reader(str(tmp_path), ID)
    fork = exported(root.session_reader(root.number_of(OTHER)))
    assert [seq for seq, _ in fork] == list(range(1, 11))
    assert fork[6:9] == [(7, "Opened"), (8, "UserSpoke"), (9, "SubagentStarted")]


@both_stores
async def test_a_search_finds_what_is_shared_once(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, [*entries(1, 3), entry(4, "the amber root"), entry(5, "an amber later one")])
        await start_subagent(log, 6, results=1)
        fork = await start_subagent(log, 7, OTHER, shares=4, results=0)
        await add(fork, [entry(7, "the amber fork")])
    past = SessionHistory(str(tmp_path), ID)
    for _ in range(2):
        assert [hit.handle for hit in past.search_tree("amber", 9).hits] == ["r5", "r4", "a7/r7"]
        below = past.child(OTHER)
        assert [hit.handle for hit in below.search("amber", 9).hits] == [
            "r7",
            "r4",
        ]  # what came later is not its own
        assert [hit.handle for hit in below.search("amber", 9, before=7).hits] == ["r4"]
        assert [hit.handle for hit in below.search("found", 9).hits] == []
        assert [hit.handle for hit in past.search_tree("1 found 0", 9).hits] == ["a6/r3"]
    past.close()


@both_stores
async def test_a_subagents_past_is_read_beside_the_loop(tmp_path: Path) -> None:
    await family(tmp_path)
    archive = HistoryReader(str(tmp_path), ID).child(OTHER)
    assert await archive.reading(lambda past: past.tail()[0]) == 10
    assert await archive.child(GRANDCHILD).reading(lambda past: past.tail()[0]) == 3
    with pytest.raises(SessionUnknown, match="there is no subagent"):
        await (
            HistoryReader(str(tmp_path), ID)
            .child("6f9d0000-0000-4000-8000-00000000000a")
            .reading(lambda past: past.tail())
        )


def test_what_a_task_and_a_subagent_left_is_recalled_by_the_entry_that_ends_it() -> None:
    def first(event: AnyEvent) -> tuple[str, str]:
        one = Entry(9, 9, event)
        content = contents_of(one)[0]
        return title_of(one), content.text or content.blob

    blob = "ab" * 32
    assert first(TaskEnded("b1", "done", 0, output=blob)) == ("output of task b1, done", blob)
    assert first(TaskEnded("b1", "failed", 1, tail="boom")) == ("output of task b1, failed", "boom")
    found = first(SubagentStarted(CHILD, "explore", task="look"))
    assert found == ("task of a subagent (explore)", "look")
    assert first(SubagentEnded(CHILD, "done", "seen")) == ("report of a subagent", "seen")
    assert first(SubagentEnded(CHILD, "limit", "half")) == ("report of a subagent, limit", "half")
    found = first(GoalChanged(Goal(3, "Ship it", body="All green.")))
    assert found == ("goal 3, pending", "Ship it\n\nAll green.")


# --- Adopted files --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 5, 64 * 1024, 64 * 1024 + 1, 3_000_000])
@pytest.mark.parametrize("links", [True, False])
@both_stores
async def test_a_file_becomes_a_blob_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, *, links: bool
) -> None:
    if not links:
        monkeypatch.setattr("os.link", refuse)
    async with new_log(tmp_path) as log:
        file = tmp_path / "b1.out"
        file.write_bytes(b"o" * size)
        blob = await log.adopt(str(file))
        assert blob == (hashlib.sha256(b"o" * size).hexdigest() if size else "")
        assert await log.adopt(str(file)) == blob
        await add(log, entries(1, 2))
        file.unlink()
    async with stored_log(tmp_path) as log:
        if size:
            assert log.read_blob(blob) == b"o" * size
            assert bool(log.blob_path(blob)) == (size > 64 * 1024)
        assert list((folder(tmp_path) / "blobs").glob("tmp-*")) == []


def refuse(*_: object) -> None:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


async def test_what_cannot_be_adopted_says_so(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "to").write_text("x")
        (tmp_path / "link").symlink_to(tmp_path / "to")
        for name, why in (
            ("gone", "No such file"),
            ("pipe", "not a plain file"),
            ("link", "symbolic links"),
        ):
            with pytest.raises(OSError, match=why):
                await log.adopt(str(tmp_path / name))


async def test_an_adopted_file_that_no_commit_named_goes_with_a_crash(tmp_path: Path) -> None:
    async def die() -> None:
        log = await make(tmp_path)
        await add(log, entries(1, 2))
        assert await log.adopt(str(tmp_path / "out"))

    (tmp_path / "out").write_bytes(b"o" * 100_000)
    crash(die)
    async with stored_log(tmp_path) as log:
        assert list((folder(tmp_path) / "blobs").glob("*/*")) == []
        blob = await log.adopt(str(tmp_path / "out"))  # the file itself is still there
        await add(log, [entry(3)])
        assert log.read_blob(blob) == b"o" * 100_000
