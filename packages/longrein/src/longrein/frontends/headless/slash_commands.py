"""Slash commands of a headless run: those that need no screen act without asking the model, the
others of the terminal are refused.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from longrein.agent import Compact, Rewind, working_agents
from longrein.app import AppSession
from longrein.steps import human_text
from longrein_context.events import AnyPart, Text, TurnEnded

BEGINNING = 1
"""Entry to which `/clear` goes back: the one that opens the session."""


class SlashCommand(NamedTuple):
    """A command that a message names."""

    name: str
    argument: str
    acts: bool
    """False for one that needs the terminal."""


Act = Callable[[AppSession, str], Awaitable[str]]
"""(open session, argument) -> answer."""


async def _compact(opened: AppSession, focus: str) -> str:
    session = opened.session
    before = session.state.view_tokens
    await session.tell(Compact(focus))
    await session.run(once=True)
    after = session.state.view_tokens
    if after >= before:
        return f"Nothing to compact: the context has {human_text.tokens(before)} tokens."
    return f"Compacted: {human_text.tokens(before)} to {human_text.tokens(after)} tokens."


async def _context(opened: AppSession, _argument: str) -> str:
    session = opened.session
    from longrein.frontends.reports.context import as_text

    if session.state.prefix is None:
        return "Nothing fills the context yet."
    return as_text(opened.context_report()).rstrip()


async def _cost(opened: AppSession, _argument: str) -> str:
    from longrein.frontends.reports.cost import cost_rows, usage_rows

    session = opened.session
    costs = await opened.read_history(lambda past: cost_rows(past.entries()))
    rows = usage_rows(costs, working_agents(session.state, session.agents()))
    return "\n".join(f"{name:<18}{value}" for name, value in rows)


async def _clear(opened: AppSession, _argument: str) -> str:
    session = opened.session
    if not session.state.words:
        return "The conversation is empty."
    await session.tell(Rewind(BEGINNING))
    await session.run(once=True)
    return "The conversation is empty now; the log keeps it, and files stay as they are."


COMMANDS: dict[str, Act] = {
    "compact": _compact,
    "context": _context,
    "cost": _cost,
    "clear": _clear,
}


async def answer_of(command: SlashCommand, opened: AppSession) -> TurnEnded:
    """Do a command; return how it ended, with what it says as the message."""
    if not command.acts:
        acting = ", ".join(f"/{one}" for one in COMMANDS)
        why = f"/{command.name} needs the terminal: run longrein without -p. Here act {acting}"
        return TurnEnded("error", why)
    act = COMMANDS[command.name]
    return TurnEnded("done", await act(opened, command.argument))


def slash_command(
    parts: tuple[AnyPart, ...], terminal: Callable[[], Collection[str]]
) -> SlashCommand | None:
    """Return the command that a message names; None for one to the model.

    `terminal`: returns the names of all commands of the terminal.
    """
    text = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else ""
    head, _, argument = text.strip().partition(" ")
    name = head.removeprefix("/")
    if name == head or not name or (name not in COMMANDS and name not in terminal()):
        return None
    return SlashCommand(name, argument.strip(), name in COMMANDS)
