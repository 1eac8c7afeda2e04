"""What stands above a subagent: the rules and the mode of its parent, as they are now, and a way to be heard.

Nothing here is copied down, so a rule that the user takes back for the parent is gone below it at once.
"""

from collections.abc import Iterator

import msgspec

from longrein.agent.children.tree import Tree
from longrein.agent.children.worktrees import home, pictured
from longrein.agent.company import narrower
from longrein.agent.port import Heard, OfChild, Output, Streaming, TaskOver
from longrein.agent.session import Session
from longrein.events import Entry, PermissionAnswered, PermissionAsked, Replied, ToolEnded, TurnEnded, UserSpoke
from longrein.permissions import Call, Rules
from longrein.workspace import Worktree


class Bond:
    """One subagent's: see `agent.ports.Above`."""

    def __init__(self, parent: Session, tree: Tree, child: str, label: str, kind: str) -> None:
        self.parent, self.tree = parent, tree
        self.root, self.questions = tree.root, tree.questions
        self.child, self.label, self.kind = child, label, kind
        self.cap = "bypassPermissions"
        """The widest mode that its type may have."""
        self.last: Entry | None = None
        """What it did last that is worth telling, as far as it was heard."""
        self.reason = ""
        """How its last turn has ended; '' while one goes on."""
        self.worktree: Worktree | None = None
        """Folder of its own."""

    @property
    def rules(self) -> Rules:
        """See `Above`. Patterns that start at the first root start at that of its worktree."""
        rules, tree = self.parent.rules, self.worktree
        return rules if tree is None else msgspec.structs.replace(rules, base=tree.mapped(rules.base))

    def elsewhere(self, call: Call, cwd: str) -> Iterator[tuple[Call, Rules, str]]:
        """See `Above`."""
        tree, above = self.worktree, self.parent.crew.above
        if tree is not None:
            call, cwd = pictured(call, tree), home(cwd, tree)
            yield call, self.parent.rules, cwd
        if above is not None:
            yield from above.elsewhere(call, cwd)

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

    def _note(self, entry: Entry) -> None:
        match entry.event:
            case Replied() | ToolEnded():
                self.last = entry
            case UserSpoke():
                self.last, self.reason = entry, ""
            case TurnEnded(reason=reason):
                self.reason = reason
            case _:
                pass

    def hear(self, heard: Heard) -> None:
        """See `Above`."""
        if isinstance(heard, OfChild):
            return
        told = OfChild(self.child, self.label, self.kind, heard)
        if isinstance(heard, Streaming | Output | TaskOver):
            self.root.readers.stream(told)
            return
        event = heard.event if isinstance(heard, Entry) else None
        if isinstance(heard, Entry):
            self._note(heard)
        if isinstance(event, PermissionAsked):
            self.questions.ask(told)
            return
        self.root.readers.publish(told)
        if isinstance(event, PermissionAnswered | ToolEnded):
            self.questions.settled(self.child, event.call)
