"""Messages of other processes: each file of the inbox folder is taken in once, also across
kills.
"""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from lab.support.postgresql import both_stores
from longrein.store import leave_message
from longrein_context.events import Entry, HookAnswered, SessionError, SessionUnknown, TurnEnded
from tests.store.fixtures import (
    ID,
    add,
    crash,
    done,
    entries,
    entry,
    folder,
    in_writer,
    make,
    new_log,
    stored_log,
)
from tests.timeouts import HANG_S

pytestmark = pytest.mark.anyio


def waiting(state: Path) -> list[str]:
    return sorted(os.listdir(folder(state) / "inbox"))


async def test_messages_come_in_once_and_in_order(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        assert await log.collect() == []
        for body in (b"one", b"two", b"three"):
            leave_message(str(tmp_path), ID, body)
        found = await log.collect()
        assert [message.body for message in found] == [b"one", b"two", b"three"]
        assert waiting(tmp_path) == []
        assert await log.collect() == []
        leave_message(str(tmp_path), ID, b"one")  # the same words again are another message
        assert [message.body for message in await log.collect()] == [b"one"]
        await done(log.append([entry(3)], flush=True, take=[found[0].id]))
    async with stored_log(tmp_path) as log:
        assert [message.body for message in log.inbox] == [b"two", b"three", b"one"]


REFUSED = (HookAnswered("no.sh", "UserPromptSubmit", "block"), TurnEnded("blocked", "no words"))


@pytest.mark.parametrize("events", [(), REFUSED])
async def test_a_message_that_becomes_no_entry_leaves_the_disk(
    tmp_path: Path, events: tuple[HookAnswered | TurnEnded, ...]
) -> None:
    """The user has taken it back, or a hook has refused it: it may hold a password."""
    instead = [Entry(3 + n, 7, event) for n, event in enumerate(events)]
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        other, _ = log.put(b"it waits")
        number, stored = log.put(b"my password is " + b"correct-horse " * 5_000)
        await done(stored)
        assert log.reader.entry(2) is not None
        assert b"correct-horse" in stored_bytes(tmp_path)
        await done(log.append(instead, flush=False, take=[number]))
        assert b"correct-horse" not in stored_bytes(tmp_path), "while the session goes on"
        await add(log, entries(3 + len(instead), 5))
    async with stored_log(tmp_path) as log:
        assert [message.id for message in log.inbox] == [other]


def stored_bytes(state: Path) -> bytes:
    return b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())


async def test_two_looks_at_once_take_each_message_once(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        leave_message(str(tmp_path), ID, b"one")
        both = await asyncio.gather(log.collect(), log.collect())
        assert sorted(len(found) for found in both) == [0, 1]


async def test_killed_between_the_commit_and_the_removal(tmp_path: Path) -> None:
    async def die_collecting() -> None:
        log = await make(tmp_path)
        leave_message(str(tmp_path), ID, b"one")
        os.link(folder(tmp_path) / "inbox" / waiting(tmp_path)[0], tmp_path / "kept")
        name = waiting(tmp_path)[0]
        found = await log.collect()
        await done(log.append([entry(1)], flush=True, take=[found[0].id]))  # delivered, too
        os.link(
            tmp_path / "kept", folder(tmp_path) / "inbox" / name
        )  # as if it had never been removed

    crash(die_collecting)
    assert len(waiting(tmp_path)) == 1
    async with stored_log(tmp_path) as log:
        assert list(log.inbox) == []
        assert await log.collect() == []
        assert waiting(tmp_path) == []


async def test_a_file_goes_only_when_its_message_is_stored(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        leave_message(str(tmp_path), ID, b"one")
        gate = threading.Event()
        in_writer(log, lambda _: gate.wait(HANG_S))
        looking = asyncio.ensure_future(log.collect())
        for _ in range(5):
            await asyncio.sleep(0)
        assert (len(waiting(tmp_path)), looking.done()) == (1, False)
        gate.set()
        assert len(await looking) == 1
        assert waiting(tmp_path) == []


async def test_a_message_half_written_is_not_seen(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        leave_message(str(tmp_path), ID, b"whole")
        (folder(tmp_path) / "inbox" / ".77-1").write_bytes(b"hal")
        assert [message.body for message in await log.collect()] == [b"whole"]


async def test_what_cannot_be_left(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        with pytest.raises(SessionUnknown, match="there is no session"):
            leave_message(str(tmp_path), ID.replace("6", "7"), b"")
        with pytest.raises(SessionError, match="too long"):
            leave_message(str(tmp_path), ID, b"x" * 2_000_000)
        for _ in range(256):
            (folder(tmp_path) / "inbox").mkdir(exist_ok=True)
            (folder(tmp_path) / "inbox" / f"{_:020}").touch()
        with pytest.raises(SessionError, match="256 messages wait"):
            leave_message(str(tmp_path), ID, b"one more")
        assert len(await log.collect()) == 256


@both_stores
async def test_many_senders(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:

        async def send() -> None:
            for number in range(10):
                leave_message(str(tmp_path), ID, b"%d" % number)

        for _ in range(3):
            crash(send)
        found = sorted(int(message.body) for message in await log.collect())
        assert found == sorted([*range(10)] * 3)
