"""Slash commands in the editor: one table of names, help texts and functions."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from longrein.agent import Compact, Pin, StopTask, Unpin
from longrein.extensions.acp.host_port import CustomCommand, SessionFacts
from longrein.steps.human_text import escape_line

Run = Callable[[SessionFacts, str], str]
"""(session, argument) -> text for the user, as markdown."""


class Command(msgspec.Struct, frozen=True):
    """A command."""

    name: str
    summary: str
    run: Run
    argument: str = ""
    """Argument after the name; '' for nothing."""


def _compact(facts: SessionFacts, focus: str) -> str:
    facts.port.tell(Compact(focus))
    return "The conversation is compacted before the next request."


def _context(facts: SessionFacts, _argument: str) -> str:
    return "```\n" + "\n".join(facts.context_lines()) + "\n```"


def _pin(facts: SessionFacts, text: str) -> str:
    if text:
        facts.port.tell(Pin(text))
        return f"Pinned: {escape_line(text)}"
    pins = facts.port.state.pins
    return (
        "\n".join(f"{number}. {escape_line(pin)}" for number, pin in enumerate(pins, 1))
        or "Nothing is pinned."
    )


def _unpin(facts: SessionFacts, number: str) -> str:
    if not number.isdigit() or not 1 <= int(number) <= len(facts.port.state.pins):
        return "Write the number of a pinned constraint; /pin lists them."
    facts.port.tell(Unpin(int(number)))
    return f"Unpinned {number}."


def _tasks(facts: SessionFacts, _argument: str) -> str:
    rows = [f"- {task.id} {task.state}: {escape_line(task.command)}" for task in facts.port.tasks()]
    rows += [
        f"- {one.label} {one.kind} {one.state}: {escape_line(one.description)}"
        for one in facts.port.agents()
    ]
    return "\n".join(rows) or "No background task and no subagent."


def _stop(facts: SessionFacts, task: str) -> str:
    if task not in [one.id for one in facts.port.tasks() if one.state in ("queued", "running")]:
        return "Write the id of a running task; /tasks lists them."
    facts.port.tell(StopTask(task))
    return f"Stopping {task}."


def _background(facts: SessionFacts, _argument: str) -> str:
    return (
        "It goes on in the background."
        if facts.port.background()
        else "No command runs in the foreground."
    )


COMMANDS = {
    command.name: command
    for command in (
        Command("compact", "compact the conversation now", _compact, "what to keep in detail"),
        Command("context", "show what fills the context", _context),
        Command("pin", "keep a constraint word for word; without text list them", _pin, "text"),
        Command("unpin", "drop a pinned constraint", _unpin, "number"),
        Command("tasks", "list background tasks and subagents", _tasks),
        Command("stop", "stop a background task", _stop, "id of the task"),
        Command("background", "send the running command to the background", _background),
    )
}


def available(custom: Sequence[CustomCommand]) -> list[dict[str, Any]]:
    """Return the commands as the protocol spells them. They go before the user's of the same
    name.
    """
    rows = [(c.name, c.summary, c.argument) for c in COMMANDS.values()]
    rows += [row for row in custom if row[0] not in COMMANDS]
    return [
        {"name": name, "description": told, **({"input": {"hint": hint}} if hint else {})}
        for name, told, hint in rows
    ]


def find(text: str) -> tuple[Command, str] | None:
    """Return the command that a prompt names and its argument; None for a prompt to the model."""
    name, _, argument = text.strip().partition(" ")
    command = COMMANDS.get(name[1:]) if name.startswith("/") else None
    return (command, argument.strip()) if command else None
