"""What a command result is put on the screen, into the input, or to the session; and how the terminal is left."""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Literal

from msgspec import structs

from longrein.agent import SessionPort
from longrein.events import LongreinError
from longrein.frontends import text_format
from longrein.frontends.terminal import commands
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.commands import (
    NOTHING_RUNS,
    TOO_LATE,
    Choices,
    Command,
    CommandResult,
    MaybeAwaitable,
    ParsedCommand,
)
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.event_lines import line
from longrein.frontends.terminal.interface import Outcome
from longrein.frontends.terminal.task_rows import RunningTask
from longrein.frontends.text_format import escape_line

# --- Leaving while tasks run: what becomes of them is the user's word, or what the settings say ----------------------


COMMAND_CHARS_MAX = 40
SHOWN_MAX = 3


def exit_question(running: Sequence[RunningTask]) -> str:
    """The title of the question."""
    names = ", ".join(_name(one) for one in running[:SHOWN_MAX]) + (", …" if len(running) > SHOWN_MAX else "")
    verb, them = ("runs", "it") if len(running) == 1 else ("run", "them")
    return f"{text_format.counted(len(running), 'task')} still {verb} ({names}): what becomes of {them}?"


def exit_choices(count: int) -> tuple[Row, ...]:
    """What may become of so many."""
    them, takes = ("it", "takes it up") if count == 1 else ("them", "takes them up")
    how = f"`longrein tasks` lists and stops {them}; `longrein -c` {takes} again"
    return (
        Row("stop", f"stop {them} and leave"),
        Row("keep", f"leave {them} running", how),
        Row("stay", "stay"),
    )


async def choose_task_fate(session: SessionPort, outcome: Outcome, choice: str) -> Outcome:
    """How it is left, with the answer. Between two turns the session writes it down itself; in the middle of one it is
    carried out when the session is closed, so that the turn can be gone on with. Raises our own errors."""
    kept: Literal["stop", "keep"] = "keep" if choice == "keep" else "stop"
    if not session.busy:
        await session.leave(kept)
    return structs.replace(outcome, tasks=kept)


def exit_progress(count: int, choice: str) -> str:
    """The line while the answer is carried out."""
    tasks = text_format.counted(count, "task")
    return f"{tasks} kept running" if choice == "keep" else f"ending {tasks}; Ctrl-C leaves at once"


def _name(one: RunningTask) -> str:
    command = escape_line(one.started.command.strip().partition("\n")[0])
    shown = command if len(command) <= COMMAND_CHARS_MAX else command[: COMMAND_CHARS_MAX - 1] + "…"
    return f"{escape_line(one.started.task)} {shown}"


# --- obey ------------------------------------------------------------------------------------------------------------


def run_command(conversation: Conversation, typed: ParsedCommand) -> None:
    """Carry out one command."""
    command = typed.command
    if command is None:
        conversation.notice(commands.unknown_command_text(typed.name))
    elif command.idle_only and conversation.session.busy:
        conversation.notice(f"/{command.name} waits until the turn is over; Esc interrupts it")
    else:
        _handle_result(
            conversation, command, command.run(conversation.context, conversation.pastes.expand(typed.argument))
        )


def choose_session(conversation: Conversation) -> None:
    """Let the user choose another session of this folder, if there is one."""
    run_command(conversation, ParsedCommand(commands.command_named("resume"), "resume", ""))


def _handle_result(conversation: Conversation, command: Command, result: MaybeAwaitable) -> None:
    if isinstance(result, CommandResult):
        _apply(conversation, command, result)
    else:
        conversation.spawn(_apply_later(conversation, command, result))


async def _apply_later(conversation: Conversation, command: Command, result: Awaitable[CommandResult]) -> None:
    try:
        _apply(conversation, command, await result)
    except LongreinError as error:
        conversation.notice(str(error))


def _apply(conversation: Conversation, command: Command, result: CommandResult) -> None:
    if result.word is not None:
        conversation.tell(result.word)
    if result.title:
        conversation.show(conversation.view.spaced("answer", [line(("bold", result.title)), *result.rows]))
    if result.notice:
        conversation.notice(result.notice)
    if result.edit:
        conversation.edit(result.edit)
    if result.choices is not None:
        _choose(conversation, command, result.choices)
    if result.outcome is not None:
        request_exit(conversation, result.outcome)
    conversation.request_redraw()


def _choose(conversation: Conversation, command: Command, choices: Choices) -> None:
    follow_up = choices.chosen or partial(command.run, conversation.context)
    conversation.choose(
        choices.title, choices.rows, lambda value: _handle_result(conversation, command, follow_up(value))
    )


def edit_last_queued(conversation: Conversation) -> None:
    """The newest message that waits goes back into the input."""
    taken = conversation.context.messages.take()
    if taken is None:
        conversation.warn(TOO_LATE)
    else:
        conversation.edit(conversation.context.command_line_for(taken))


def background(conversation: Conversation) -> None:
    """The running command goes to the background."""
    if not conversation.session.background():
        conversation.warn(NOTHING_RUNS)


# --- leaving -----------------------------------------------------------------------------------------------------


def request_exit(conversation: Conversation, outcome: Outcome) -> None:
    """The user wants to leave: while tasks run, they are asked what becomes of those. Said twice it is done at once."""
    running = list(conversation.view.activity.tasks.values())
    if conversation.leaving is not None or not running:
        conversation.leave(conversation.leaving or outcome)
        return
    conversation.leaving = outcome
    if conversation.facts.leave_policy == "ask":
        conversation.choose(
            exit_question(running), exit_choices(len(running)), lambda choice: _exit_with(conversation, outcome, choice)
        )
    else:
        _exit_with(conversation, outcome, conversation.facts.leave_policy)


def _exit_with(conversation: Conversation, outcome: Outcome, choice: str) -> None:
    conversation.leaving = outcome if choice != "stay" else None
    if choice != "stay":
        conversation.spawn(_finish_exit(conversation, outcome, choice))


async def _finish_exit(conversation: Conversation, outcome: Outcome, choice: str) -> None:
    conversation.warn(exit_progress(len(conversation.view.activity.tasks), choice))
    try:
        outcome = await choose_task_fate(conversation.session, outcome, choice)
    except LongreinError as error:
        conversation.notice(str(error))
    conversation.leave(outcome)
