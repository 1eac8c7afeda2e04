"""Logs of the inspector as they are stored: open elsewhere, with subagents, forked subagents and
lost ones.
"""

import asyncio
import time
from pathlib import Path

import pytest

from lab.inspector import store
from lab.inspector_session import SESSION, SampleLogs, SampleSession
from longrein.extensions.inspector.inspect_command import StoredLogs
from longrein.extensions.inspector.inspection import SessionInspector
from longrein.extensions.inspector.page_data import Inspection
from longrein.store import open_log
from longrein_context.events import (
    SCHEMA_VERSION,
    Entry,
    Opened,
    Parent,
    SessionUnknown,
    SubagentStarted,
    Text,
    UserSpoke,
)

FORKED, LOST = "0198c0de-0000-4000-8000-00000000f0f0", "0198c0de-0000-4000-8000-00000000dead"


def inspected(state_dir: Path, sample: SampleSession) -> Inspection:
    logs = StoredLogs(str(state_dir), SESSION)
    try:
        inspector = SessionInspector(logs, lambda _: sample.budget)
        inspector.read()
        assert inspector.read() == 0
        return inspector.inspection()
    finally:
        logs.close()


def test_what_is_stored_is_what_is_shown(tmp_path: Path) -> None:
    sample = SampleSession(window=40_000).grow(400)
    asyncio.run(store(sample, str(tmp_path)))
    stored = inspected(tmp_path, sample)
    inspector = SessionInspector(SampleLogs(sample), lambda _: sample.budget)
    inspector.read()
    whole = inspector.inspection()
    for name in ("requests", "items", "lanes", "transcript", "subagents", "files"):
        assert getattr(stored, name) == getattr(whole, name), name
    with pytest.raises(SessionUnknown):
        StoredLogs(str(tmp_path), SESSION.replace("beef", "0000"))


def test_a_session_that_grows_with_a_forked_and_a_lost_subagent(tmp_path: Path) -> None:
    sample = SampleSession(window=40_000).grow(60)
    seq = len(sample.entries)

    async def run() -> tuple[Inspection, Inspection]:
        log = await open_log(
            str(tmp_path), SESSION, create=True, wall_us=lambda: time.time_ns() // 1000
        )
        await asyncio.wrap_future(log.append(sample.entries, flush=True))
        before = inspected(tmp_path, sample)
        started = [
            Entry(
                seq + 1,
                sample.at,
                SubagentStarted(FORKED, "fork", "c1.0", task="Go on.", form="fork"),
            )
        ]
        started.append(
            Entry(seq + 2, sample.at, SubagentStarted(LOST, "explore", "c1.1", task="Look."))
        )
        opened = Opened(
            SCHEMA_VERSION, FORKED, "n", ("/w",), "/w", parent=Parent(SESSION, seq, "c1.0")
        )
        own = [
            Entry(seq + 1, sample.at, opened),
            Entry(seq + 2, sample.at, UserSpoke((Text("Go on."),))),
        ]
        beside = [(log.child(FORKED, seq), own, ())]
        await asyncio.wrap_future(log.append(started, flush=True, beside=beside))
        after = inspected(tmp_path, sample)
        await log.close()
        return before, after

    before, after = asyncio.run(run())
    assert (before.session.open, before.session.entries, after.session.entries) == (
        True,
        seq,
        seq + 2,
    )
    states = {child.session: child.state for child in after.subagents}
    assert (states[FORKED], states[LOST]) == ("queued", "queued")
    label = next(child.id for child in after.subagents if child.session == FORKED)
    assert [(row.seq, row.text) for row in after.transcript if row.agent == label] == [
        (seq + 2, "Go on.")
    ]
    assert after.left_out.subagents == 1 + len(sample.children)
    assert not inspected(tmp_path, sample).session.open
