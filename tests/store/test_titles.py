"""Titles of sessions, and one-shot runs in the lists: from the high-water mark and from the
database.
"""

from pathlib import Path

import msgspec
import pytest

from lab.support.postgresql import both_stores
from longrein.store import SessionInfo, latest_session, session_info
from longrein_context.events import Entry, Text, TitleSet, UserSpoke
from tests.store.fixtures import ID, OTHER, add, folder, opened, store, stored_log

pytestmark = pytest.mark.anyio


def looks(state: Path, session: str) -> list[SessionInfo | None]:
    """The summary from the mark, then from the database."""
    from_mark = session_info(str(state), session)
    mark = folder(state, session) / "high-water-mark"
    kept = mark.read_bytes()
    mark.unlink()
    from_database = session_info(str(state), session)
    mark.write_bytes(kept)
    return [from_mark, from_database]


def shown(state: Path, session: str) -> list[tuple[str, bool]]:
    return [(info.title, info.one_shot) for info in looks(state, session) if info is not None]


async def test_a_title_replaces_the_first_words_and_ends_a_one_shot_run(tmp_path: Path) -> None:
    once = msgspec.structs.replace(opened(), one_shot=True)
    await store(tmp_path, [Entry(1, 5, once), Entry(2, 6, UserSpoke((Text("first words"),)))])
    assert shown(tmp_path, ID) == [("first words", True)] * 2
    async with stored_log(tmp_path, ID) as log:
        await add(log, [Entry(3, 7, TitleSet("A title of the user"))])
    assert shown(tmp_path, ID) == [("A title of the user", False)] * 2
    async with stored_log(tmp_path, ID) as log:
        await add(
            log, [Entry(4, 8, UserSpoke((Text("more words"),))), Entry(5, 9, TitleSet("x" * 100))]
        )
    assert shown(tmp_path, ID) == [("x" * 79 + "…", False)] * 2


@both_stores
async def test_a_one_shot_run_is_the_latest_only_when_nothing_else_is_there(tmp_path: Path) -> None:
    words = UserSpoke((Text("words"),))
    once = msgspec.structs.replace(opened(), one_shot=True)
    await store(tmp_path, [Entry(1, 5, once), Entry(2, 6, words)])
    assert latest_session(str(tmp_path), "/work", one_shot=False) == ID
    await store(tmp_path, [Entry(1, 3, opened(OTHER)), Entry(2, 4, words)])
    assert latest_session(str(tmp_path), "/work", one_shot=False) == OTHER
    assert latest_session(str(tmp_path), "/work") in (ID, OTHER)
