"""Messages at every await point of a real session: each is delivered once, waits, or is in the
user's hands again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent import Compact, OpenSession
from longrein.frontends.terminal.command_actions import edit_last_queued, run_command
from longrein.frontends.terminal.command_table import parse
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.key_handlers import enter
from longrein.models import Failure, Reply
from longrein.testing.clock import run_virtual
from longrein.testing.harness import said
from longrein.testing.scripted_model import call, says
from longrein_context import Request
from longrein_context.events import UserSpoke, text_of
from tests.agent.memory_harness import MemoryHarness, ScriptedAgents, agent
from tests.terminal.opened_session import OpenedSession
from tests.terminal.scripted_session import NullScreen

ACTS = ("say", "steer", "tell", "up", "again", "take 1", "take 2", "drop 1", "interrupt", "compact")


class Busy(ScriptedAgents):
    """The root works and starts subagents now and then; they work for a while."""

    turns = 0

    def _next(self, request: Request) -> Reply | Failure:
        self.turns += 1
        if any("summar" in text.lower() for text in said(request)[-1:]):
            return says("What was done: little.")
        if any("TASK" in text for text in said(request)) and "Agent" not in str(request.items[-1]):
            return says("found") if self.turns % 5 == 0 else says(call("Read", file_path="/w/a.py"))
        work: Sequence[Any] = (
            ("It is so.",),
            (call("Read", file_path="/w/a.py"),),
            (agent("TASK"),),
            (call("Bash", command="wait"),),
        )
        return says(*work[self.turns % 4])


class User:
    """Types, takes back, throws away; knows what became of each message."""

    def __init__(self, session: OpenSession) -> None:
        self.session = session
        self.talk = Conversation(OpenedSession(session), time.monotonic)
        self.talk.screen = NullScreen()  # type: ignore[assignment]
        self.sent: list[str] = []
        self.dropped: list[str] = []

    def _fresh(self) -> str:
        self.sent.append(f"word{len(self.sent)}end")
        return self.sent[-1]

    def do(self, act: str) -> None:
        conversation = self.talk
        if act in ("say", "steer", "tell") and not conversation.buffer.text:
            children = [view.label for view in self.session.agents() if view.state == "running"]
            to = f"/agents tell {children[0]} " if act == "tell" and children else ""
            conversation.buffer.insert_text(to + self._fresh())
            enter(conversation, into_turn=act == "steer")
        elif act == "again" and conversation.buffer.text:
            enter(conversation)
        elif act == "up" and not conversation.buffer.text and self.session.pending:
            edit_last_queued(conversation)
        elif act.startswith("take ") and not conversation.buffer.text:
            self._command(f"/queue {act[5:]}")
        elif act.startswith("drop "):
            self._drop(int(act[5:]))
        elif act == "interrupt":
            self.session.interrupt()
        elif act == "compact":
            conversation.tell(Compact())

    def _command(self, text: str) -> None:
        typed = parse(text)
        assert typed is not None
        run_command(self.talk, typed)

    def _drop(self, number: int) -> None:
        taken = self.talk.context.queued_messages.take(number)
        if taken is not None:
            self.dropped.append(taken.text)

    def fates(self, spoken: Sequence[str]) -> Counter[str]:
        """How often each message is somewhere."""
        held = [
            self.talk.buffer.text,
            *(one.text for one in self.session.pending),
            *self.dropped,
            *spoken,
        ]
        return Counter(word for text in held for word in self.sent if word in text)


def spoken(stage: MemoryHarness) -> list[str]:
    logs = [stage.disk.entries(), *map(stage.disk.entries, stage.disk.children())]
    return [
        text_of(entry.event.parts)
        for log in logs
        for entry in log
        if isinstance(entry.event, UserSpoke)
    ]


def kept(stage: MemoryHarness) -> list[str]:
    """What waits on the disk for subagents that are over: they hear it when they are asked
    again.
    """
    return [
        message.body.decode()
        for child in stage.disk.children()
        for message in stage.disk.inbox(session=child)
    ]


def live(plan: Sequence[tuple[int, float, str]], seed: int) -> None:
    stage = MemoryHarness()
    stage.model = Busy(stage.clock, {"main": [], "TASK": []})
    stage.commands["wait"] = ""

    async def main() -> None:
        session = stage.open()
        walk = asyncio.ensure_future(session.run(once=False))
        user = User(session)
        for ticks, pause_s, act in plan:
            for _ in range(ticks):
                await asyncio.sleep(0)
            if pause_s:
                await stage.clock.sleep(pause_s)
            user.do(act)
        for _ in range(3):
            await asyncio.sleep(0)  # commands that were given are carried out
        session.interrupt()
        await stage.clock.sleep(20)
        await session.close()
        await asyncio.wait([walk])
        fates = user.fates([*spoken(stage), *kept(stage)])
        assert fates == Counter(user.sent), (
            fates,
            [text for text in user.sent if fates[text] != 1],
        )

    run_virtual(main(), clock=stage.clock, seed=seed)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 12), st.sampled_from([0.0, 0.0, 0.05, 0.1, 0.4]), st.sampled_from(ACTS)
        ),
        max_size=25,
    ),
    st.integers(0, 1_000),
)
def test_E4_no_message_is_lost_or_said_twice_whatever_comes_between(
    plan: list[tuple[int, float, str]], seed: int
) -> None:
    live(plan, seed)


@pytest.mark.parametrize("act", ["say", "steer", "tell"])
@pytest.mark.parametrize("ticks", range(0, 40, 3))
def test_E4_a_message_taken_back_at_any_moment_is_had_once(act: str, ticks: int) -> None:
    live(
        [
            (0, 0.0, "say"),
            (0, 0.35, act),
            (ticks, 0.0, "up"),
            (ticks, 0.0, "again"),
            (0, 1.0, "say"),
        ],
        ticks,
    )
