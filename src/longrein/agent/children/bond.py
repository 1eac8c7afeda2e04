"""What stands above a subagent: the rules and the mode of its parent, as they are at each moment, and a way to be heard.

Nothing here is copied down, so a rule that the user takes back for the parent is gone below it at once.
"""

from collections import deque

from longrein.agent.port import Heard, OfChild, Output, Streaming
from longrein.agent.session import Session
from longrein.events import Entry, PermissionAnswered, PermissionAsked, ToolEnded
from longrein.permissions import Rules

WIDTH = {"plan": 0, "default": 1, "acceptEdits": 2, "bypassPermissions": 3}
"""How much a permission mode lets happen unasked."""


def narrower(mode: str, other: str) -> str:
    """The one of two modes that lets less happen. What is unknown counts as `default`."""
    return other if WIDTH.get(other, 1) < WIDTH.get(mode, 1) else mode


class Questions:
    """Approvals of a whole tree, shown one at a time: the next question is heard when the last one was answered."""

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
        if self._shown is not None or not self._waiting:
            return
        if any(call.asked is not None and call.answer is None for call in self._root.state.calls.values()):
            return
        self._shown = self._waiting.popleft()
        self._root.readers.publish(self._shown)


def _is(question: OfChild, child: str, call: str) -> bool:
    asked = question.heard.event if isinstance(question.heard, Entry) else None
    return question.child == child and (not call or (isinstance(asked, PermissionAsked) and asked.call == call))


class Bond:
    """One subagent's: see `agent.company.Above`."""

    def __init__(self, parent: Session, root: Session, questions: Questions, child: str, label: str, kind: str) -> None:
        self.parent, self.root, self.questions = parent, root, questions
        self.child, self.label, self.kind = child, label, kind
        self.cap = "bypassPermissions"
        """The widest mode that its type may have."""
        self.last: Entry | None = None
        """What it did last, as far as it was heard."""

    @property
    def rules(self) -> Rules:
        """See `Above`."""
        return self.parent.rules

    @property
    def mode(self) -> str:
        """See `Above`."""
        return narrower(self.parent.mode, self.cap)

    @property
    def process_session(self) -> str:
        """See `Above`."""
        return self.root.id

    @property
    def streaming(self) -> bool:
        """See `Above`."""
        return self.root.readers.streaming

    def hear(self, heard: Heard) -> None:
        """See `Above`."""
        if isinstance(heard, OfChild):
            return
        told = OfChild(self.child, self.label, self.kind, heard)
        if isinstance(heard, Streaming | Output):
            self.root.readers.stream(told)
            return
        if isinstance(heard, Entry):
            self.last = heard
            match heard.event:
                case PermissionAsked():
                    self.questions.ask(told)
                    return
                case PermissionAnswered(call=call) | ToolEnded(call=call):
                    self.root.readers.publish(told)
                    self.questions.settled(self.child, call)
                    return
                case _:
                    pass
        self.root.readers.publish(told)
