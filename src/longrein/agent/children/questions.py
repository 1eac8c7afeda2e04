"""Approvals of a whole tree, shown one at a time: the next question is heard when the last one was answered."""

from collections import deque

from longrein.agent.port import OfChild
from longrein.agent.session import Session
from longrein.events import Entry, PermissionAsked


class Questions:
    """What subagents ask. A question is held back until its turn; nothing else of a subagent is."""

    def __init__(self, root: Session) -> None:
        self._root = root
        self._waiting: deque[OfChild] = deque()
        self._shown: OfChild | None = None

    @property
    def shown(self) -> tuple[OfChild, ...]:
        """The question that waits for the user, for those who begin to listen now."""
        return () if self._shown is None else (self._shown,)

    def ask(self, question: OfChild) -> None:
        """Let it be heard when its turn has come."""
        self._waiting.append(question)
        self.look()

    def settled(self, child: str, call: str = "") -> None:
        """`call` of `child` waits no more (without `call`: nothing of it does)."""
        kept = [one for one in self._waiting if not _is(one, child, call)]
        self._waiting = deque(kept)
        if self._shown is not None and _is(self._shown, child, call):
            self._shown = None
        self.look()

    def look(self) -> None:
        """Show the next one, unless one is shown or the root itself asks."""
        if self._shown is not None or not self._waiting or self._root.state.asking:
            return
        self._shown = self._waiting.popleft()
        self._root.readers.publish(self._shown)


def _is(question: OfChild, child: str, call: str) -> bool:
    asked = question.heard.event if isinstance(question.heard, Entry) else None
    return question.child == child and (not call or (isinstance(asked, PermissionAsked) and asked.call == call))
