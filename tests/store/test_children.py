"""Subagents' logs in the database of their root: written together, read apart, shared where they were forked."""

import asyncio
from pathlib import Path

import pytest

from longrein.events import Entry, SessionError
from longrein.store import Message, Past, Reader, list_sessions, read_entries
from tests.store.kit import (
    CHILD,
    GRANDCHILD,
    ID,
    OTHER,
    add,
    begun,
    bring_up,
    done,
    entries,
    entry,
    make,
    reopen,
    seqs,
    started,
)

pytestmark = pytest.mark.anyio


async def test_a_subagent_begins_in_one_transaction_with_the_entry_that_starts_it(tmp_path: Path) -> None:
    log = await make(tmp_path)
    await add(log, entries(1, 3))
    child = log.child(CHILD)
    assert (list(child.entries), list(child.inbox), child.session) == ([], [], CHILD)
    first = begun()
    await done(log.append([started(4)], flush=True, beside=[(child, first, ())]))
    assert log._writer.commits == 2
    await add(child, [entry(3)])
    await add(log, [entry(5)])
    assert list(child.history(1, 2)) == first
    assert [one.seq for one in log.history(1, 9)] == [1, 2, 3, 4, 5]
    assert list(log.history(1, 0)) == []
    await log.close()

    log = await reopen(tmp_path)
    assert seqs(log) == [1, 2, 3, 4, 5]  # the root counts its own only
    child = log.child(CHILD)
    assert list(child.entries)[:2] == first
    assert seqs(child) == [1, 2, 3]
    assert child.entries[-1].seq == 3
    await add(child, [entry(4)])
    await child.close()
    await log.close()
    assert [info.session for info in list_sessions(str(tmp_path))] == [ID]
    assert Reader(str(tmp_path), ID, 2).about()[2] == "find the parser"


async def test_numbers_rise_and_are_kept(tmp_path: Path) -> None:
    log = await make(tmp_path)
    await add(log, entries(1, 2))
    names = [f"c0000000-0000-4000-8000-00000000000{n}" for n in range(3)]
    assert [log.child(name).number for name in (*names[:2], names[0])] == [2, 3, 2]
    for seq, name in enumerate(names, 3):
        await bring_up(log, seq, name)
    await log.close()
    log = await reopen(tmp_path)
    assert [log.child(name).number for name in (OTHER, *names)] == [5, 2, 3, 4]
    await log.close()


async def test_entries_out_of_order_are_refused_session_by_session(tmp_path: Path) -> None:
    log = await make(tmp_path)
    await add(log, entries(1, 2))
    child = await bring_up(log, 3)
    for wrong in (2, 4):
        with pytest.raises(SessionError, match="out of order"):
            await add(child, [entry(wrong)])
        with pytest.raises(SessionError, match="out of order"):  # and nothing of the joint write is there
            await done(log.append([entry(4)], flush=True, beside=[(child, [entry(wrong)], ())]))
    await done(child.append([entry(3)], flush=True, beside=[(log, [entry(4)], ())]))
    other = await make(tmp_path, OTHER)
    with pytest.raises(ValueError, match="is not in the database of"):
        log.append([], flush=False, beside=[(other, [], ())])
    await other.close()
    await log.close()
    assert [one.seq for one in read_entries(str(tmp_path), ID)] == [1, 2, 3, 4]


async def test_each_has_its_own_inbox(tmp_path: Path) -> None:
    log = await make(tmp_path)
    await add(log, entries(1, 2))
    child = await bring_up(log, 3)
    one, stored = log.put(b"root")
    two, stored = child.put(b"child")
    three, stored = child.put(b"again")
    await done(stored)
    assert one < two < three  # ids are told apart in the whole tree
    await log.close()
    log = await reopen(tmp_path)
    child = log.child(CHILD)
    assert list(log.inbox) == [Message(one, b"root")]
    assert list(child.inbox) == [Message(two, b"child"), Message(three, b"again")]
    assert await child.collect() == []
    await done(log.append([entry(4)], flush=True, take=[one], beside=[(child, [entry(3)], [two])]))
    assert log.put(b"new")[0] == three + 1
    await log.close()
    log = await reopen(tmp_path)
    assert [message.body for message in log.inbox] == [b"new"]
    assert [message.body for message in log.child(CHILD).inbox] == [b"again"]
    await log.close()


async def test_a_fork_has_its_parents_entries_by_reference(tmp_path: Path) -> None:
    log = await make(tmp_path)
    whole = entries(1, 8)
    await add(log, whole)
    child = log.child(CHILD, 5)
    assert list(child.entries) == whole[:5]
    first = begun(shares=5)
    await done(log.append([started(9)], flush=True, beside=[(child, first, ())]))
    grandchild = child.child(GRANDCHILD, 6)  # of the fork's own one
    below = begun(GRANDCHILD, parent=CHILD, shares=6)
    await done(child.append([started(8, GRANDCHILD)], flush=True, beside=[(grandchild, below, ())]))
    cousin = child.child(OTHER, 3)  # of what the fork itself shares
    await done(child.append([], flush=True, beside=[(cousin, begun(OTHER, parent=CHILD, shares=3), ())]))
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
            one.seq for one in reversed(expected) if type(one.event).__name__ in ("UserSpoke", "Opened")
        ]

    third = await reader_of(log, CHILD, 8)
    for _ in range(2):
        await check(CHILD, [*whole[:5], *first, third])
        await check(GRANDCHILD, [*whole[:5], first[0], *below])
        await check(OTHER, [*whole[:3], *begun_of(log, OTHER)])
        await log.close()
        log = await reopen(tmp_path)
    assert seqs(log) == list(range(1, 11))
    past = Past(str(tmp_path), ID).child(CHILD)
    assert past is not None
    assert past.entry(3) == whole[2]
    assert [one.seq for one in past.entries(4, 6)] == [5, 6]
    await log.close()


async def reader_of(log: object, session: str, seq: int) -> Entry:
    await asyncio.sleep(0)
    found = log.child(session).reader.entry(seq)  # type: ignore[attr-defined]
    assert found is not None
    return found  # type: ignore[no-any-return]


def begun_of(log: object, session: str) -> list[Entry]:
    reader = log.child(session).reader  # type: ignore[attr-defined]
    return list(reader.entries(reader.first - 1))
