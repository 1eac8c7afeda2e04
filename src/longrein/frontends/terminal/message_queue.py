"""Waiting messages with stable numbers, so that `/queue N` never takes back another message."""

from collections.abc import Sequence

from longrein.agent import PendingMessage, SessionPort


class MessageQueue:
    """Waiting messages of one session and its subagents."""

    def __init__(self, session: SessionPort) -> None:
        self._session = session
        self._numbers: dict[int, int] = {}
        self._last = 0

    def numbered(self) -> Sequence[tuple[int, PendingMessage]]:
        """Waiting messages with their numbers, in order of delivery.

        Numbers are given on the first call that sees a message. A prompt has 0: it waits for a moment only.
        """
        pending = self._session.pending
        for one in pending:
            if one.id not in self._numbers:
                self._last += one.how != "prompt" or bool(one.to)
                self._numbers[one.id] = self._last if one.how != "prompt" or one.to else 0
        return [(self._numbers[one.id], one) for one in pending]

    def take(self, number: int = 0) -> PendingMessage | None:
        """Take a message back before delivery, the newest when `number` is 0. None when it was delivered."""
        found = [(its, one) for its, one in self.numbered() if number in (0, its)]
        if not found:
            return None
        one = max(found, key=lambda pair: pair[0])[1]
        text = self._session.unqueue(one.id)
        return PendingMessage(one.id, one.how, text, one.to) if text else None
