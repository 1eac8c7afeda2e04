"""An engine with a stored log: a restart changes no byte, and the session is an ordinary
session.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from longrein.integrations import StoredEngine, engine
from longrein.store import list_sessions, read_entries
from longrein_context.events import LongreinError, SessionBusy, ToolEnded
from tests.integrations.message_lists import WIRES, Chat, big

WIRE = WIRES[0]


def opened(folder: Path, session: str = "customer 17") -> StoredEngine:
    return engine(window=5_000, max_output=500, state_dir=str(folder), session=session)


def grow(chat: Chat, number: int) -> None:
    chat += WIRE.calls((f"call_{number}", f"src/f{number}.py"))
    chat += WIRE.results((f"call_{number}", big(f"file{number}")))


def growing(mine: StoredEngine, chat: Chat, numbers: range) -> Iterator[Chat]:
    for number in numbers:
        yield mine.prepare(chat)
        grow(chat, number)


def test_a_restart_at_any_request_changes_no_byte(tmp_path: Path) -> None:
    chat: Chat = [{"role": "system", "content": "Be brief."}, *WIRE.user("Read all.")]
    for number in range(10):
        with opened(tmp_path) as mine:
            view = mine.prepare(chat)
        with opened(tmp_path) as again:
            assert again.prepare(chat) == view
            assert again.notes == []
        grow(chat, number)
    with opened(tmp_path) as mine:
        assert mine.state.breaks >= 1
        first = next(f"r{e.seq}" for e in mine.entries if isinstance(e.event, ToolEnded))
        assert mine.original(first) == big("file0")


def test_a_list_cut_while_nobody_looked(tmp_path: Path) -> None:
    chat: Chat = [*WIRE.user("Read all.")]
    with opened(tmp_path) as mine:
        list(growing(mine, chat, range(10)))
        mine.prepare(chat)
    with opened(tmp_path) as mine:
        assert mine.prepare(chat[:9])[-1] == chat[8]
        assert len(mine.notes) == 1


def test_a_caller_that_keeps_what_it_was_given_may_restart(tmp_path: Path) -> None:
    chat: Chat = [*WIRE.user("Read all.")]
    for number in range(10):
        with opened(tmp_path) as mine:
            chat = mine.prepare(chat)
            grow(chat, number)
            chat = mine.prepare(chat)
            chat += [{"role": "assistant", "content": "Hm."}, *WIRE.user("Go on.")]
            mine.prepare(chat)
            assert mine.notes == [], f"after {number} restarts"


def test_the_session_is_listed_and_its_log_is_whole(tmp_path: Path) -> None:
    with opened(tmp_path) as mine:
        chat: Chat = [*WIRE.user("Read all.")]
        list(growing(mine, chat, range(5)))
        entries = list(mine.entries)
    (info,) = list_sessions(str(tmp_path))
    assert info.title == "Read all."
    assert list(read_entries(str(tmp_path), info.session)) == entries


def test_one_conversation_has_one_engine(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(SessionBusy):
        opened(tmp_path)
    with opened(tmp_path), opened(tmp_path, "customer 18"):
        pass


def test_an_engine_in_memory_is_closed_like_any_other() -> None:
    with engine(window=5_000, max_output=500) as mine:
        assert mine.prepare(WIRE.user("Hello.")) == WIRE.user("Hello.")


def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    mine = opened(tmp_path)
    mine.close()
    mine.close()
    with pytest.raises(
        LongreinError, match="this engine was closed; open it again with the same session to go on"
    ):
        mine.prepare(WIRE.user("Hello."))


@pytest.mark.anyio
async def test_it_opens_and_closes_inside_a_running_loop(tmp_path: Path) -> None:
    with opened(tmp_path) as mine:
        assert await mine.aprepare(WIRE.user("Hello.")) == WIRE.user("Hello.")
        await asyncio.sleep(0)
