"""What a command told is put on the screen, into the input, or to the session; and how the terminal is left."""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Literal

from msgspec import structs

from longrein.agent import SessionPort
from longrein.events import LongreinError
from longrein.frontends import text_format as amounts
from longrein.frontends.terminal import commands
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.commands import NOTHING_RUNS, TOO_LATE, Choices, Command, Result, Told, Typed
from longrein.frontends.terminal.conversation import Talk
from longrein.frontends.terminal.event_lines import line
from longrein.frontends.terminal.interface import Outcome
from longrein.frontends.terminal.task_rows import Running
from longrein.frontends.text_format import escape_line

# --- Leaving while tasks run: what becomes of them is the user's word, or what the settings say ----------------------


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


# --- obey ------------------------------------------------------------------------------------------------------------


def obey(talk: Talk, typed: Typed) -> None:
    """Carry out one command."""
    command = typed.command
    if command is None:
        talk.notice(commands.unknown(typed.name))
    elif command.idle_only and talk.session.busy:
        talk.notice(f"/{command.name} waits until the turn is over; Esc interrupts it")
    else:
        _take(talk, command, command.run(talk.company, talk.pastes.expand(typed.argument)))


def choose_session(talk: Talk) -> None:
    """Let the user choose another session of this folder, if there is one."""
    obey(talk, Typed(commands.named("resume"), "resume", ""))


def _take(talk: Talk, command: Command, result: Result) -> None:
    if isinstance(result, Told):
        _apply(talk, command, result)
    else:
        talk.spawn(_apply_later(talk, command, result))


async def _apply_later(talk: Talk, command: Command, result: Awaitable[Told]) -> None:
    try:
        _apply(talk, command, await result)
    except LongreinError as error:
        talk.notice(str(error))


def _apply(talk: Talk, command: Command, told: Told) -> None:
    if told.word is not None:
        talk.tell(told.word)
    if told.title:
        talk.put(talk.scene.aside("answer", [line(("bold", told.title)), *told.rows]))
    if told.notice:
        talk.notice(told.notice)
    if told.edit:
        talk.edit(told.edit)
    if told.choices is not None:
        _choose(talk, command, told.choices)
    if told.outcome is not None:
        go(talk, told.outcome)
    talk.kick()


def _choose(talk: Talk, command: Command, choices: Choices) -> None:
    lead = choices.chosen or partial(command.run, talk.company)
    talk.choose(choices.title, choices.rows, lambda value: _take(talk, command, lead(value)))


def take_back(talk: Talk) -> None:
    """The newest message that waits goes back into the input."""
    taken = talk.company.waiting.take()
    if taken is None:
        talk.warn(TOO_LATE)
    else:
        talk.edit(talk.company.edited(taken))


def background(talk: Talk) -> None:
    """The running command goes to the background."""
    if not talk.session.background():
        talk.warn(NOTHING_RUNS)


# --- leaving -----------------------------------------------------------------------------------------------------


def go(talk: Talk, outcome: Outcome) -> None:
    """The user wants to leave: while tasks run, they are asked what becomes of those. Said twice it is done at once."""
    running = list(talk.scene.beside.tasks.values())
    if talk.leaving is not None or not running:
        talk.leave(talk.leaving or outcome)
        return
    talk.leaving = outcome
    if talk.facts.leave_policy == "ask":
        talk.choose(question(running), choices(len(running)), lambda choice: _go(talk, outcome, choice))
    else:
        _go(talk, outcome, talk.facts.leave_policy)


def _go(talk: Talk, outcome: Outcome, choice: str) -> None:
    talk.leaving = outcome if choice != "stay" else None
    if choice != "stay":
        talk.spawn(_settle(talk, outcome, choice))


async def _settle(talk: Talk, outcome: Outcome, choice: str) -> None:
    talk.warn(settling(len(talk.scene.beside.tasks), choice))
    try:
        outcome = await settle(talk.session, outcome, choice)
    except LongreinError as error:
        talk.notice(str(error))
    talk.leave(outcome)
