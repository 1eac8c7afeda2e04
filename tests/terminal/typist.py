"""Questions that appear while somebody types, on a screen in memory and by the test's clock."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.key_binding.key_processor import _Flush
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import DummyOutput

from longrein.agent import Answer, UserMessage
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.terminal_run import attach_screen
from longrein_context.events import ToolStarted
from tests.terminal.opened_session import OpenedSession
from tests.terminal.scripted_session import ScriptedSession, endless

RULES = {"Bash": "Bash(git push:*)", "Edit": "Edit(src/**)"}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Bash": {"command": "git push origin topic"},
    "Edit": {"file_path": "a.py", "old_string": "a", "new_string": "b"},
    "ExitPlanMode": {"plan": "1. Look"},
    "AskUserQuestion": {
        "questions": [
            {"question": "Which?", "options": [{"label": "also"}, {"label": "no"}]},
            {"question": "What?", "options": [{"label": "this"}], "multiSelect": True},
        ]
    },
}
"""Tools that ask, with their arguments."""
ENGLISH = """also yes no always never say add all next new make sure and fix explain another session
you next: name it so everywhere 1 2 3rd 4 options? e.g. x y a m f folder view only o ok j ja nein"""
CHINESE = """是 否 请 继续 也 不 不要 先 运行 测试 再 修改 文件 好的 对 然后 提交 1 2 yes"""
LONG_S = 1_000.0


class Typist:
    """A terminal with a session that asks when it is told to."""

    def __init__(self, tools: Sequence[str]) -> None:
        self.now_s = 1_000.0
        self._tools, self._is_asked = tools, asyncio.Event()
        self.session = ScriptedSession(self._turn)
        self.conversation = Conversation(
            OpenedSession(self.session, os.devnull),  # type: ignore[arg-type]
            lambda: self.now_s,
        )
        self.conversation.guard.hold_s = 0

    async def _turn(self, session: ScriptedSession, text: str) -> None:
        await self._is_asked.wait()
        for tool in self._tools:
            call = await session.call(tool, ARGUMENTS[tool])
            await session.permit(call, tool, "git push", "no rule allows it", RULES.get(tool, ""))
            session.append(ToolStarted(call, tool))
        await endless()

    async def _listen(self) -> None:
        async for heard in self.session.follow():
            self.conversation.show(self.conversation.view.apply(heard, self.now_s))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Typist"]:
        """Run the terminal with a turn that goes on."""
        with create_pipe_input() as keys_from:
            attach_screen(self.conversation, DummyOutput(), keys_from)
            with create_app_session(input=keys_from, output=DummyOutput()):
                acts = (self.conversation.screen.app.run_async(), self._listen())
                tasks = [asyncio.ensure_future(act) for act in acts]
                tasks.append(asyncio.ensure_future(self.session.run(once=False)))
                await self._settle()
                await self.type("go\r", [0.01] * 3)
                self.session.told.clear()
                try:
                    yield self
                finally:
                    await self.session.close()
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle(self) -> None:
        """Let the session act, and draw what has come of it."""
        for _ in range(8):
            await asyncio.sleep(0)
        self.conversation.redraw()
        app = self.conversation.screen.app
        if app.context is not None:
            app.context.copy().run(self.conversation.screen.commit, [])

    async def wait(self, pause_s: float) -> None:
        """Let time go by, and the screen see it."""
        self.now_s += pause_s
        await self._settle()

    async def press(self, *texts: str) -> None:
        """Press keys at once: letters, `\\r` for Enter or `\\x1b` for Esc."""
        named = {"\r": Keys.ControlM, "\x1b": Keys.Escape}
        app = self.conversation.screen.app
        for text in texts:
            app.key_processor.feed(KeyPress(named.get(text, text), text))
        app.key_processor.feed(_Flush)  # no sequence of keys begins with the last one
        if app.context is not None:
            app.context.copy().run(app.key_processor.process_keys)
        await self._settle()

    async def ask(self) -> None:
        """Let the questions appear."""
        self._is_asked.set()
        await self._settle()
        await self._settle()

    async def type(self, text: str, pauses_s: Sequence[float]) -> None:
        for letter, pause_s in zip(text, pauses_s, strict=True):
            await self.wait(pause_s)
            await self.press(letter)

    @property
    def answers(self) -> list[Answer]:
        return [word for word in self.session.told if isinstance(word, Answer)]

    @property
    def prompts(self) -> list[UserMessage]:
        return [word for word in self.session.told if isinstance(word, UserMessage)]


async def sentence_over_questions(seed: int) -> tuple[str, list[Answer]]:
    """Type one to three sentences, while up to three questions appear in the first. Return what
    was typed, and the answers that came of it: each is an accident.
    """
    chance = random.Random(seed)
    tools = [chance.choice(list(ARGUMENTS)) for _ in range(chance.randint(1, 3))]
    words = chance.choice((ENGLISH, CHINESE)).split()
    blank = "" if "是" in words else " "
    sentences = [
        blank.join(chance.choice(words) for _ in range(chance.randint(2, 6))) + "\r"
        for _ in range(chance.randint(1, 3))
    ]
    text = "".join(sentences)
    shown_at = chance.randrange(len(sentences[0]))
    async with Typist(tools).running() as typist:
        for n, letter in enumerate(text):
            if n == shown_at:
                await typist.ask()
            quick = n == shown_at == 0 or chance.random() < 0.5
            pause_s = chance.uniform(0, 0.6) if quick else chance.uniform(0, 10)
            await typist.wait(pause_s)
            await typist.press(letter)
        await typist.wait(LONG_S)
        return text, typist.answers
