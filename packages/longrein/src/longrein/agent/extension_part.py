"""Parts of extensions: tools of other programs in a session, with their commands and requests.

An extension makes such a part for each session of the user (the door `longrein.session_parts`).
The subagents of the session share it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from longrein.agent.messages import InboxMessage
from longrein.agent.session_part import SessionPart
from longrein.tools import DeferralPolicy, Tool
from longrein.workspace import SupervisedSpawner, Workspace
from longrein_context import State
from longrein_context.events import ToolCall

AskUser = Callable[
    [str, str, Mapping[str, Any], str],
    Awaitable[tuple[Literal["accept", "decline", "cancel"], dict[str, Any]]],
]
"""Asks the user for a program: (name of the program, message, schema of a form, URL) -> the
answer and the content of the form.
"""


def user_answer(response: Any) -> tuple[Literal["accept", "decline", "cancel"], dict[str, Any]]:
    """Read the answer of a frontend to `AskUser`; what cannot be read declines."""
    match response:
        case {"action": "accept" | "decline" | "cancel" as action}:
            content = response.get("content")
            return action, content if isinstance(content, dict) else {}
        case _:
            return "decline", {}


class SlashCommand(msgspec.Struct, frozen=True):
    """A slash command of an extension."""

    name: str
    argument: str
    """Hint for the argument; '' for none."""
    summary: str
    run: Callable[[str], Sequence[str] | InboxMessage] | None = None
    """Argument -> escaped lines, or a message for the session. Raises `UsageError`. None: the
    command is sent as a message, which `tell` replaces.
    """
    title: str = ""
    """Line above the lines."""


class ControlHandler(msgspec.Struct, frozen=True):
    """Handler of a control request of the program that runs longrein."""

    answer: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
    """Fields of the request -> fields of the answer. Raises `LongreinError`."""
    waits: bool = False
    """True if it may wait for the program itself: other requests are answered meanwhile."""


class Surroundings(msgspec.Struct, frozen=True):
    """Surroundings of a part of an extension, before its session opens."""

    session: str
    """Id of the session."""
    state: State
    """State of a resumed session, an empty one for a new session."""
    workspace: Workspace
    spawner: SupervisedSpawner
    """Starts programs."""
    tools: dict[str, Tool]
    """All tools of the session by name; tools may be added as long as it is open."""
    nonce: str
    """Nonce of the marks around texts from outside."""
    denies: Callable[[str], bool]
    """Returns True if a rule forbids every call of a tool."""


class ExtensionPart(SessionPart):
    """A part of a session of the user that an extension adds."""

    rank = 5

    notes: Sequence[str] = ()
    """Lines for the user at the start."""
    secrets: Sequence[str] = ()
    """Values that are masked in all that is kept and sent."""
    deferral: DeferralPolicy | None = None
    """Limits up to which tools from outside are listed; None for the usual ones."""

    def attach(self, place: Surroundings) -> None:
        """Prepare the tools, before the prefix of the conversation is made."""

    @property
    def offered(self) -> Sequence[Tool]:
        """Tools for the prefix, in order."""
        return ()

    @property
    def grows(self) -> bool:
        """True if tools may come later, so that the model needs `ToolSearch` to find them."""
        return False

    @property
    def instructions(self) -> tuple[str, str]:
        """Kind and text of what the static context says of the tools; an empty text for nothing."""
        return "", ""

    async def find_tool(self, name: str) -> Tool | None:  # noqa: ARG002 - the default
        """Return a tool by its full name, which may still have to come; None if it is not of this
        part.

        Raises `UsageError` with the reason for one that cannot be used.
        """
        return None

    def why_missing(self, call: ToolCall) -> str:  # noqa: ARG002 - the default
        """Return why a call's tool is not here; '' where this part does not know."""
        return ""

    def connections(self) -> Sequence[tuple[str, str]]:
        """Return (name, status) of the programs that this part is connected with."""
        return ()

    def let_user_answer(self, ask: AskUser | None = None) -> None:
        """Let the user answer questions of these programs: by `ask`, else by a slash command."""

    def slash_commands(self) -> Sequence[SlashCommand]:
        """Return the slash commands as they are now."""
        return ()

    def control_requests(self) -> Mapping[str, ControlHandler]:
        """Return the control requests that this part answers, by subtype."""
        return {}
