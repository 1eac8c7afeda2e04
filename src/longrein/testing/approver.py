"""`Approver`: a frontend that does nothing but answer permission requests, from a table or a function."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from longrein.agent import Answer, SessionPort
from longrein.events import Entry, PermissionAsked

Word = str | Answer | None
"""`allow`, `deny`, `session` and `always` (allow, with the rule suggested), an Answer, or None: no answer."""
Answers = Mapping[str, Word] | Callable[[PermissionAsked], Word]
"""By the exact text shown, else by the tool's name; or a function of the question."""


class Approver:
    """Denies what nobody allowed, and remembers what was asked."""

    def __init__(self, answers: Answers | None = None) -> None:
        self.asked: list[PermissionAsked] = []
        """Every question, in order."""
        self._answers: Answers = {} if answers is None else answers

    @asynccontextmanager
    async def answering(self, session: SessionPort) -> AsyncIterator["Approver"]:
        """Answer the questions of `session` while the block runs."""
        task = asyncio.ensure_future(self.watch(session))
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def watch(self, session: SessionPort) -> None:
        """Answer the questions of `session` until it closes, beginning with those that are open."""
        async for heard in session.follow(0, streaming=False):
            if isinstance(heard, Entry) and isinstance(heard.event, PermissionAsked):
                await self._meet(session, heard.event)

    async def _meet(self, session: SessionPort, question: PermissionAsked) -> None:
        waiting = session.state.calls.get(question.call)
        if waiting is None or waiting.answer is not None:
            return
        self.asked.append(question)
        answer = as_answer(question, self._word(question))
        if answer is not None:
            await session.tell(answer)

    def _word(self, question: PermissionAsked) -> Word:
        if callable(self._answers):
            return self._answers(question)
        by_tool = self._answers.get(question.name, "deny")
        return self._answers.get(question.shown, by_tool)


def as_answer(question: PermissionAsked, word: Word) -> Answer | None:
    """The answer that `word` stands for."""
    match word:
        case None | Answer():
            return word
        case "allow":
            return Answer(question.call, "allow")
        case "session":
            return Answer(question.call, "allow", "session", question.suggestion)
        case "always":
            return Answer(question.call, "allow", "always", question.suggestion)
        case "deny":
            return Answer(question.call, "deny")
        case _:
            raise AssertionError(f"{word!r} is no answer: allow, deny, session, always")
