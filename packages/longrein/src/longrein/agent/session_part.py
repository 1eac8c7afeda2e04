"""Parts of an open session: what a session has besides its log.

A session keeps its parts in one list, in the order of `SessionPart.rank`, and tells each of them
what happens. A part is found by its type (`Session.part`, `Session.find`, `Session.open`).
The abstract parts below are opened with the first use; their modules need not be imported before.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from longrein.agent.messages import InboxMessage, PendingMessage, SessionUpdate, SubagentView
from longrein.permissions import Call, Hook, Rules
from longrein.settings_schema import Limits
from longrein.tools import SkillPort, SubagentPort, TaskPort, TaskView
from longrein_context.events import Reminded, TaskEnded, UserSpoke

if TYPE_CHECKING:
    from longrein.agent.session import Session
    from longrein.tools import SkillInfo
    from longrein.workspace.root_copies import CheckpointStore
    from longrein.workspace.tree_records import TreeRecord

T = TypeVar("T")


class SessionPart:
    """A part of an open session. A part overrides the methods that concern it."""

    session: "Session"
    """Set when the part is added to its session."""

    rank: ClassVar[int] = 50
    """Place among the parts; the lowest is told first."""

    def opened(self) -> None:
        """Begin: the part was added to its session."""

    def tell(self, message: InboxMessage) -> Awaitable[None] | None:  # noqa: ARG002 - the default
        """Accept a message in place of the inbox; None if it belongs there.

        The awaitable is done when the message is on disk.
        """
        return None

    def take(self, message: InboxMessage) -> None:
        """Act on a message that the loop takes from the inbox, before its entries are appended."""

    def started(self) -> None:
        """Begin to work: the main loop starts."""

    async def collect(self) -> None:
        """Append what has happened since the last move."""

    async def before_move(self) -> None:
        """Append what the next move has to know, after the messages have been taken."""

    def within(self, limits: Limits) -> Limits:
        """Return the limits of the next request, reduced to what this part leaves of them."""
        return limits

    def rules(self, rules: Rules) -> Rules:
        """Return the permission rules, with those of this part."""
        return rules

    def reminders(self) -> Sequence[Reminded]:
        """Return what the first request of a turn tells the model."""
        return ()

    def rest(self) -> None:
        """Append what is due while the session has nothing to do, and wake its loop later."""

    def warm(self) -> None:
        """Prepare for a command, which the model is about to call."""

    @property
    def idle(self) -> bool:
        """True if a run of one prompt need not wait for this part."""
        return True

    async def close(self) -> None:
        """Stop what runs, and append what is known of it."""

    async def release(self) -> None:
        """Let go of connections and programs, after the last commit."""


PartFactory = Callable[[], SessionPart]
"""Makes a part for a session."""


# --- Parts that are opened with the first use -----------------------------------------------------


class Subagents(SessionPart, SubagentPort):
    """The subagents of a session."""

    rank = 10

    @property
    @abstractmethod
    def running(self) -> bool:
        """True while a subagent works in the background."""

    @property
    @abstractmethod
    def pending(self) -> Sequence[PendingMessage]:
        """Messages that wait in the inboxes of subagents."""

    @abstractmethod
    def views(self) -> Sequence[SubagentView]:
        """Return all subagents, each followed by its own."""

    @abstractmethod
    def unqueue(self, number: int) -> str:
        """Take back a waiting message of a subagent (the newest for 0); '' when there is none."""

    @abstractmethod
    def resume(self) -> None:
        """Continue the subagents that worked when the session was left and whose call does not
        wait for them.
        """

    @abstractmethod
    async def settled(self) -> None:
        """Wait for the end of one background subagent; return at once when there is none."""

    @abstractmethod
    def stop(self) -> None:
        """Stop all of them; each reports what it has."""


class BackgroundTasks(SessionPart):
    """Commands and background tasks of a session and of its active subagents."""

    rank = 40

    @abstractmethod
    def of(self, call: str) -> TaskPort:
        """Return the port for one call."""

    @abstractmethod
    def told_by(self, call: str) -> Sequence[TaskEnded]:
        """Return the ends that the result of `call` reports, to append in the same transaction."""

    @abstractmethod
    def unfinished(self, after: int, promoted: bool) -> bool:
        """Return True if a task started after entry `after` runs, waits, or has an unrecorded
        end. Commands that their time limit sent to the background count if `promoted`.
        """

    @abstractmethod
    def background(self) -> bool:
        """Send the foreground commands to the background; False when there are none."""

    @abstractmethod
    def views(self) -> Sequence[TaskView]:
        """Return the tasks of this session and of its active subagents."""

    @abstractmethod
    async def leave(self, policy: str) -> Sequence[TaskView]:
        """Stop tasks before the session is closed, and record their ends.

        `stop` ends every task, `keep` only those that cannot outlive longrein. Returns those that
        continue.
        """


class Skills(SessionPart, SkillPort):
    """Skills and custom commands of a session."""

    rank = 20

    @abstractmethod
    def all(self) -> "Sequence[SkillInfo]":
        """Return skills and commands as they are on disk now."""

    @property
    @abstractmethod
    def known(self) -> "Sequence[SkillInfo]":
        """Skills and commands that the user can name, as of the last look."""

    @abstractmethod
    def preloaded(self, names: Sequence[str]) -> list[UserSpoke]:
        """Return the texts of the skills that a subagent type names. Commands in them are left
        as they are written.
        """

    @abstractmethod
    def hooks_of(self, name: str) -> Sequence[Hook]:
        """Return the hooks of a skill or command that is loaded."""

    @abstractmethod
    def tell_new(self, touched: Sequence[str] | None = None) -> None:
        """Append a notice for each skill that the model may load and was not told of.

        `touched`: real paths of files that tools have just touched; None looks for new files on
        disk.
        """


class Checkpoints(SessionPart):
    """Copies of the work tree, from which a rewind restores files."""

    place: str
    """Id of this work tree for a session in a shared store; '' for another session."""

    @abstractmethod
    async def keep(self, when: str, calls: Collection[str] = ()) -> "dict[str, TreeRecord]":
        """Keep the work tree and append `CheckpointTaken`; return the records by root, {} where
        it is impossible.
        """

    @abstractmethod
    async def keep_after(self, call: str) -> None:
        """Keep the work tree as a call has left it; an interrupt leaves the call's result
        intact.
        """

    @abstractmethod
    async def copy_tree(self) -> "tuple[str, dict[str, TreeRecord], str]":
        """Keep the work tree: (name of the checkpoint, records by root, why it was impossible)."""

    @abstractmethod
    async def run(self, work: "Callable[[CheckpointStore], T]") -> T:
        """Do `work` with the store in a thread. Raises what it raises; a cancelled caller does
        not wait.
        """


# --- The session above ----------------------------------------------------------------------------


class ParentPolicy(Protocol):
    """Live policy of the parent of a subagent, and the channel for the subagent's updates."""

    @property
    def root_id(self) -> str:
        """Id of the session of the user, which owns the processes."""

    @property
    def rules(self) -> Rules:
        """The parent's permission rules now."""

    @property
    def mode(self) -> str:
        """The widest permission mode the subagent may have now."""

    @property
    def mode_restored(self) -> bool:
        """True if the mode of the session of the user comes from its log."""

    @property
    def variables(self) -> dict[str, str]:
        """Variables for commands that the hooks of the parent have set."""

    @property
    def streaming(self) -> bool:
        """True if a subscriber of the session of the user wants replies while they grow."""

    @property
    def in_background(self) -> bool:
        """True if the parent does not wait for the subagent."""

    def elsewhere(self, call: Call, cwd: str) -> Iterator[tuple[Call, Rules, str]]:
        """Yield (call, rules, current folder) as they would be in the folders that worktrees stand
        for.

        A call denied there is denied here too.
        """

    def hear(self, heard: SessionUpdate) -> None:
        """Pass on a committed entry or a provisional update of the subagent."""

    def open_tasks(self) -> None:
        """Open the background tasks of the session of the user, which lists those of all."""
