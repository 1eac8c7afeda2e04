"""Messages that wait to be delivered: each has a number that stays its own, so that none is edited for another."""

from collections.abc import Sequence

from longrein.agent import Pending, SessionPort


class MessageQueue:
    """The waiting messages of one session, its subagents' too."""

    def __init__(self, session: SessionPort) -> None:
        self._session = session
        self._numbers: dict[int, int] = {}
        self._last = 0

    def numbered(self) -> Sequence[tuple[int, Pending]]:
        """Each with its number, in the order in which they go. Asked often, so that numbers rise as words are said.

        A prompt has 0: it waits for a moment only.
        """
        pending = self._session.pending
        for one in pending:
            if one.id not in self._numbers:
                self._last += one.how != "prompt" or bool(one.to)
                self._numbers[one.id] = self._last if one.how != "prompt" or one.to else 0
        return [(self._numbers[one.id], one) for one in pending]

    def take(self, number: int = 0) -> Pending | None:
        """Take one back, the newest when 0; it is not delivered then. None when it is not there any more."""
        found = [(its, one) for its, one in self.numbered() if number in (0, its)]
        if not found:
            return None
        one = max(found, key=lambda pair: pair[0])[1]
        text = self._session.unqueue(one.id)
        return Pending(one.id, one.how, text, one.to) if text else None
