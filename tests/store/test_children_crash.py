"""Joint writes under `kill -9` and damage to subagents' logs: both sides of a write exist, or
neither.
"""

import asyncio
import os
import random
import resource
import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from longrein.store import SessionLog
from longrein.store.database import TABLES, entry_key
from longrein_context.events import (
    Entry,
    StoreDamaged,
    StoreFull,
    SubagentStarted,
    ToolEnded,
    TurnEnded,
    UserSpoke,
)
from tests.seeds import seeds
from tests.store.fixtures import (
    CHILD,
    GRANDCHILD,
    OTHER,
    add,
    crash,
    done,
    entries,
    entry,
    folder,
    killed_after,
    make,
    new_log,
    reopen,
    said,
    seqs,
    start_subagent,
    started,
    stored_log,
    subagent_start,
    text_in,
    wall_us,
)

pytestmark = pytest.mark.anyio


def name(number: int) -> str:
    return f"c0000000-0000-4000-8000-{number:012d}"


async def start_for_ever(state: Path, first: int, pipe: int) -> None:
    """Start subagents until killed; tell each acknowledged seq of the root to the parent process.

    Each start is one write with the root's entry, a message taken and a blob; a message in the
    subagent's log follows.
    """
    log = await (make(state) if first == 1 else reopen(state))
    if first == 1:
        await add(log, entries(1, 2))
    seq = len(log.entries) + 1 if first > 1 else 3
    while True:
        child = log.child(name(seq), seq - 1 if seq % 3 == 0 else 0)
        shares = seq - 1 if seq % 3 == 0 else 0
        task = "x" * 70_000 if seq % 4 == 0 else log.put_blob(b"%d" % seq * 10)
        message, _ = child.put(b"%d" % seq, flush=False)
        beside = [
            (
                child,
                subagent_start(name(seq), shares=shares, task=task),
                [message] if seq % 2 else [],
            )
        ]
        await done(log.append([started(seq, name(seq))], flush=seq % 2 == 0, beside=beside))
        os.write(pipe, b"%d\n" % seq)
        child.append([entry(shares + 3)], flush=False, beside=[(log, [entry(seq + 1)], ())])
        seq += 2


@pytest.mark.parametrize("seed", seeds(4))
async def test_killed_at_any_instant_a_subagent_is_there_with_what_started_it_or_not_at_all(
    tmp_path: Path, seed: int
) -> None:
    pause, first = random.Random(seed), 1
    for _ in range(4):
        told = killed_after(partial(start_for_ever, tmp_path, first), pause.randrange(1, 8), pause)
        async with stored_log(tmp_path) as log:
            found = list(log.entries)
            assert [one.seq for one in found] == list(range(1, len(found) + 1))
            assert len(found) >= told[-1]
            check_family(log, found)
        first = len(found) + 1


def check_family(log: SessionLog, found: list[Entry]) -> None:
    """Check that each `SubagentStarted` has its first transaction, and each third entry of a
    subagent its companion in the root.
    """
    for one in found:
        if not isinstance(one.event, SubagentStarted):
            continue
        child = log.child(one.event.child)
        own = [e for e in child.entries if e.seq >= child.reader.first]
        task = text_in(own[1])
        assert task.startswith("x") or log.read_blob(task) == b"%d" % one.seq * 10
        told = len(own)
        assert told == 2 + any(isinstance(e.event, ToolEnded) for e in found[one.seq : one.seq + 1])
        assert [message.body for message in child.inbox] == (
            [] if one.seq % 2 else [b"%d" % one.seq]
        )
    stored = [
        row[0] for row in log.reader.source.all("SELECT session FROM sessions WHERE number > 1")
    ]
    known = Counter(one.event.child for one in found if isinstance(one.event, SubagentStarted))
    # a child whose message was stored just before the kill is listed, but has no entry yet
    told = {s for s in stored if log.child(s).entries and log.child(s).reader.opening_entry()}
    assert told == set(known)


async def test_a_joint_write_that_does_not_fit_writes_neither_side(tmp_path: Path) -> None:
    async def story() -> None:
        async with new_log(tmp_path) as log:
            await add(log, entries(1, 2))
            child = await start_subagent(log, 3)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
            big = "x" * 60_000
            failed = [
                log.append([entry(4, big)], flush=True, beside=[(child, [entry(3, big)], ())]),
                child.append([entry(4)], flush=True),  # behind it
            ]
            for future in failed:
                with pytest.raises(StoreFull):
                    await done(future)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert (log.reader.tail()[0], child.reader.tail()[0]) == (3, 2)
            await done(
                log.append([entry(4, big)], flush=True, beside=[(child, [entry(3, big)], ())])
            )

    crash(story)
    async with stored_log(tmp_path) as log:
        assert (seqs(log), seqs(log.child(CHILD))) == ([1, 2, 3, 4], [1, 2, 3])


# --- Older databases ------------------------------------------------------------------------------


async def test_a_database_of_before_is_lifted_and_keeps_its_inbox(tmp_path: Path) -> None:
    log = await make(tmp_path)
    await add(log, entries(1, 3))
    first, stored = log.put(b"waits")
    await done(stored)
    await log.close()
    with sqlite3.connect(folder(tmp_path) / "log.sqlite") as database:
        database.executescript("ALTER TABLE inbox DROP COLUMN number; PRAGMA user_version=1;")
    database.close()
    assert "number" in TABLES
    async with stored_log(tmp_path) as log:
        assert [(message.id, message.body) for message in log.inbox] == [(first, b"waits")]
        await start_subagent(log, 4)
        assert log.put(b"more")[0] == first + 1
    async with stored_log(tmp_path) as log:
        assert (seqs(log), seqs(log.child(CHILD)), list(log.notes)) == ([1, 2, 3, 4], [1, 2], [])


# --- Damage ---------------------------------------------------------------------------------------


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """Entries 1–20; subagent CHILD started at 5 and asked again at 15, OTHER forked at 8,
    GRANDCHILD below it.
    """
    log = await make(tmp_path)
    await add(log, entries(1, 4))
    child = await start_subagent(log, 5, results=3)  # 1–5
    await add(child, [Entry(6, wall_us(), TurnEnded("done"))])
    await add(log, entries(6, 7))
    fork = await start_subagent(log, 8, OTHER, shares=6)  # 7, 8
    await start_subagent(fork, 9, GRANDCHILD, results=2)  # 1–4
    await add(log, entries(9, 14))
    again = Entry(15, wall_us(), SubagentStarted(CHILD, "explore", again=5))
    await done(
        log.append(
            [again], flush=True, beside=[(child, [Entry(7, wall_us(), said("once more"))], ())]
        )
    )
    await add(child, [entry(8), Entry(9, wall_us(), UserSpoke(said("steered").parts, "steer"))])
    await add(log, entries(16, 20))
    child.put(b"for the child")
    fork.put(b"for the fork")
    await log.close()
    return tmp_path


ROOT, FIRST, FORK, BELOW = 1, 2, 3, 4


def lose(state: Path, number: int, seq: int) -> None:
    with sqlite3.connect(folder(state) / "log.sqlite") as database:
        database.execute("DELETE FROM entries WHERE key = ?", (entry_key(number, seq),))
    database.close()


async def kept(state: Path) -> tuple[int, list[int], str]:
    """Return (entries of the root, last entries of the three subagents, note of the repair)."""
    async with stored_log(state) as log:
        found = (
            len(log.entries),
            [len(log.child(one).entries) for one in (CHILD, OTHER, GRANDCHILD)],
        )
        note = log.notes[0].rpartition("damaged-")[2].partition("; ")[2] if log.notes else "-"
    return *found, note


@pytest.mark.parametrize(("at", "expected"), [
    (19, ([9, 9, 4], "")),
    (15, ([9, 9, 4], "")),  # asked again
    (8, ([9, 9, 4], "")),
    (6, ([9, 9, 4], "")),
    (5, ([9, 9, 4], "")),
])  # fmt: skip
async def test_a_root_that_lost_an_entry_keeps_the_subagents_it_knows_of(
    state: Path, at: int, expected: tuple[list[int], str]
) -> None:
    ends, told = expected
    lose(state, ROOT, at)
    assert await kept(state) == (20, ends, f"lost in between: entry {at}{told}")
    assert await kept(state) == (20, ends, "-")
    async with stored_log(state) as log:
        child = log.child(CHILD)
        assert [message.body for message in child.inbox] == [b"for the child"]
        last = len(child.entries)
        await done(
            log.append(
                [entry(21)], flush=True, beside=[(child, [entry(last + 1, session=CHILD)], ())]
            )
        )


@pytest.mark.parametrize(("number", "seq", "expected"), [
    (FIRST, 8, (20, [9, 9, 4], "of its subagents' logs 1 were cut and 0 dropped")),
    (FIRST, 2, (20, [9, 9, 4], "of its subagents' logs 1 were cut and 0 dropped")),
    (FORK, 8, (20, [9, 0, 0], "of its subagents' logs 0 were cut and 2 dropped")),
    (BELOW, 3, (20, [9, 9, 4], "of its subagents' logs 1 were cut and 0 dropped")),
])  # fmt: skip
async def test_a_subagents_damage_is_told_after_the_open_and_mended_at_the_next(
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    seq: int,
    expected: tuple[int, list[int], str],
) -> None:
    monkeypatch.setattr("longrein.store.log.CHECK_AFTER_S", 0.0)
    session = {FIRST: CHILD, FORK: OTHER, BELOW: GRANDCHILD}[number]
    before = await kept(state)
    assert before == (20, [9, 9, 4], "-")
    lose(state, number, seq)
    async with stored_log(state) as log:
        assert (len(log.entries), log.notes) == (20, [])
        assert log.checked is not None
        told = await asyncio.wrap_future(log.checked)
        assert "the log of a subagent in" in told
        assert f"entry {seq} is missing" in told
        with pytest.raises(
            StoreDamaged,
            match=r"a subagent in .* is damaged .* open the session again to repair it",
        ):
            log.child(session)
    assert await kept(state) == expected


@pytest.mark.parametrize("place", range(4096, 14 * 4096, 2777))
async def test_wherever_it_is_hit_no_joint_write_is_half_there(state: Path, place: int) -> None:
    with open(folder(state) / "log.sqlite", "r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 64)
    gap = False
    for _ in range(2):  # the second mends what the first has met in a subagent
        try:
            log = await reopen(state)
        except StoreDamaged:
            return
        damaged = 0
        gap = gap or bool(log.notes)
        known = Counter(
            one.event.child for one in log.entries if isinstance(one.event, SubagentStarted)
        )
        for session in (CHILD, OTHER, GRANDCHILD):
            try:
                child = log.child(session)
            except StoreDamaged:
                damaged += 1
                continue
            own = (
                [one for one in child.entries if one.seq >= child.reader.first]
                if child.reader.opening_entry()
                else []
            )
            assert len(own) != 1
            if gap:  # what started a subagent may be the entry that is lost
                continue
            assert not own or session == GRANDCHILD or known[session]
            assert len(child.entries) < 7 or session != CHILD or known[CHILD] == 2
        await log.close()
    assert not damaged
