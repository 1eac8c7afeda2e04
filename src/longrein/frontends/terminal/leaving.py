"""Leaving while tasks run: what becomes of them is the user's word, or what the settings say."""

from collections.abc import Sequence
from typing import Literal

from msgspec import structs

from longrein.agent import SessionPort
from longrein.frontends import amounts
from longrein.frontends.safe import escape_line
from longrein.frontends.terminal.beside_rows import Running
from longrein.frontends.terminal.chooser import Row
from longrein.frontends.terminal.facts import Outcome

COMMAND_CHARS_MAX = 40
SHOWN_MAX = 3


def question(running: Sequence[Running]) -> str:
    """The title of the question."""
    told = ", ".join(_name(one) for one in running[:SHOWN_MAX]) + (", …" if len(running) > SHOWN_MAX else "")
    verb, them = ("runs", "it") if len(running) == 1 else ("run", "them")
    return f"{amounts.counted(len(running), 'task')} still {verb} ({told}): what becomes of {them}?"


def choices(count: int) -> tuple[Row, ...]:
    """What may become of so many."""
    them, takes = ("it", "takes it up") if count == 1 else ("them", "takes them up")
    how = f"`longrein tasks` lists and stops {them}; `longrein -c` {takes} again"
    return (
        Row("stop", f"stop {them} and leave"),
        Row("keep", f"leave {them} running", how),
        Row("stay", "stay"),
    )


async def settle(session: SessionPort, outcome: Outcome, choice: str) -> Outcome:
    """How it is left, with the answer. Between two turns the session writes it down itself; in the middle of one it is
    carried out when the session is closed, so that the turn can be gone on with. Raises our own errors."""
    kept: Literal["stop", "keep"] = "keep" if choice == "keep" else "stop"
    if not session.busy:
        await session.leave(kept)
    return structs.replace(outcome, tasks=kept)


def settling(count: int, choice: str) -> str:
    """The line while the answer is carried out."""
    tasks = amounts.counted(count, "task")
    return f"{tasks} kept running" if choice == "keep" else f"ending {tasks}; Ctrl-C leaves at once"


def _name(one: Running) -> str:
    command = escape_line(one.started.command.strip().partition("\n")[0])
    shown = command if len(command) <= COMMAND_CHARS_MAX else command[: COMMAND_CHARS_MAX - 1] + "…"
    return f"{escape_line(one.started.task)} {shown}"
