"""Slash commands in the editor: one table of names, help texts and functions."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from longrein.agent import Compact, StopTask
from longrein.app import AppSession
from longrein.app.user_requests import pin_message, unpin_message
from longrein.frontends.reports.context import as_text
from longrein.steps.human_text import escape_line
from longrein.tools import SkillInfo

Run = Callable[[AppSession, str], str]
"""(session, argument) -> text for the user, as markdown."""


class EditorCommand(msgspec.Struct, frozen=True):
    """A command."""

    name: str
    summary: str
    run: Run
    argument: str = ""
    """Argument after the name; '' for nothing."""


def _compact(opened: AppSession, focus: str) -> str:
    opened.session.tell(Compact(focus))
    return "The conversation is compacted before the next request."


def _context(opened: AppSession, _argument: str) -> str:
    return "```\n" + "\n".join(as_text(opened.context_report()).splitlines()) + "\n```"


def _pin(opened: AppSession, text: str) -> str:
    if text:
        opened.session.tell(pin_message(opened.session.state, text))
        return f"Pinned: {escape_line(text)}"
    pins = opened.session.state.pins
    return (
        "\n".join(f"{number}. {escape_line(pin)}" for number, pin in enumerate(pins, 1))
        or "Nothing is pinned."
    )


def _unpin(opened: AppSession, number: str) -> str:
    message, pin = unpin_message(opened.session.state, number.strip())
    opened.session.tell(message)
    return f"Unpinned: {escape_line(pin)}"


def _tasks(opened: AppSession, _argument: str) -> str:
    rows = [
        f"- {task.id} {task.state}: {escape_line(task.command)}" for task in opened.session.tasks()
    ]
    rows += [
        f"- {one.label} {one.kind} {one.state}: {escape_line(one.description)}"
        for one in opened.session.agents()
    ]
    return "\n".join(rows) or "No background task and no subagent."


def _stop(opened: AppSession, task: str) -> str:
    if task not in [one.id for one in opened.session.tasks() if one.state in ("queued", "running")]:
        return "Write the id of a running task; /tasks lists them."
    opened.session.tell(StopTask(task))
    return f"Stopping {task}."


def _background(opened: AppSession, _argument: str) -> str:
    return (
        "It goes on in the background."
        if opened.session.background()
        else "No command runs in the foreground."
    )


COMMANDS = {
    command.name: command
    for command in (
        EditorCommand(
            "compact", "compact the conversation now", _compact, "what to keep in detail"
        ),
        EditorCommand("context", "show what fills the context", _context),
        EditorCommand(
            "pin", "keep a constraint word for word; without text list them", _pin, "text"
        ),
        EditorCommand("unpin", "drop a pinned constraint", _unpin, "number"),
        EditorCommand("tasks", "list background tasks and subagents", _tasks),
        EditorCommand("stop", "stop a background task", _stop, "id of the task"),
        EditorCommand("background", "send the running command to the background", _background),
    )
}


def available(skills: Sequence[SkillInfo]) -> list[dict[str, Any]]:
    """Return the commands as the protocol spells them. They go before the user's of the same
    name.
    """
    rows = [(c.name, c.summary, c.argument) for c in COMMANDS.values()]
    rows += [
        (one.name, one.description, one.argument_hint)
        for one in skills
        if one.for_user and one.name not in COMMANDS
    ]
    return [
        {"name": name, "description": told, **({"input": {"hint": hint}} if hint else {})}
        for name, told, hint in rows
    ]


def find(text: str) -> tuple[EditorCommand, str] | None:
    """Return the command that a prompt names and its argument; None for a prompt to the model."""
    name, _, argument = text.strip().partition(" ")
    command = COMMANDS.get(name[1:]) if name.startswith("/") else None
    return (command, argument.strip()) if command else None
