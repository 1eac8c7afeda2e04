"""Effects of commands on the conversation, and leaving while background tasks run."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal

from msgspec import structs
from prompt_toolkit.application import run_in_terminal

from longrein.frontends.localization import translate
from longrein.frontends.secret_input import is_terminal, read_secret
from longrein.frontends.terminal.choice_list import Chooser, Row
from longrein.frontends.terminal.command_table import (
    NOTHING_RUNS,
    TOO_LATE,
    ParsedCommand,
    unknown_command_text,
)
from longrein.frontends.terminal.command_types import (
    KEEPS,
    KEEPS_LINE,
    Choices,
    Command,
    CommandResult,
    MaybeAwaitable,
    Outcome,
)
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.event_lines import Line, line
from longrein.frontends.terminal.external_editor import open_in_editor
from longrein.frontends.terminal.page_openers import open_page
from longrein.frontends.terminal.task_rows import RunningTask
from longrein.steps.human_text import counted, escape_line
from longrein_context.events import LongreinError
from longrein_context.events.escape import shortened

# --- Question about running tasks -----------------------------------------------------------------


COMMAND_CHARS_MAX = 40
SHOWN_MAX = 3


def exit_question(running: Sequence[RunningTask]) -> str:
    """Title of the question about running tasks."""
    names = ", ".join(_name(task) for task in running[:SHOWN_MAX]) + (
        ", …" if len(running) > SHOWN_MAX else ""
    )
    verb, them = ("runs", "it") if len(running) == 1 else ("run", "them")
    return f"{counted(len(running), 'task')} still {verb} ({names}): what becomes of {them}?"


def _name(task: RunningTask) -> str:
    command = escape_line(task.started.command.strip().partition("\n")[0])
    return f"{escape_line(task.started.task)} {shortened(command, COMMAND_CHARS_MAX)}"


def exit_choices(count: int) -> tuple[Row, ...]:
    """Answers to it for `count` tasks."""
    them, takes = ("it", "takes it up") if count == 1 else ("them", "takes them up")
    how = f"`longrein tasks` lists and stops {them}; `longrein -c` {takes} again"
    return (
        Row("stop", f"stop {them} and leave"),
        Row("keep", f"leave {them} running", how),
        Row("stay", "stay"),
    )


def run_command(conversation: Conversation, typed: ParsedCommand) -> None:
    """Run a command and apply its result."""
    command = typed.command
    if command is None:
        opened = conversation.opened
        known = (opened.known_skills(), opened.slash_commands())
        conversation.notice(unknown_command_text(typed.name, *known))
    elif command.idle_only and conversation.session.busy and not conversation.reads_lines:
        conversation.notice(f"/{command.name} waits until the turn is over; Esc interrupts it")
    else:
        argument = conversation.pastes.expand(typed.argument)
        _run(conversation, command, lambda: command.run(conversation.context, argument))


def _run(conversation: Conversation, command: Command, run: Callable[[], MaybeAwaitable]) -> None:
    """Run a command or the choice from its list; a `LongreinError` becomes a notice."""
    try:
        result = run()
    except LongreinError as error:
        conversation.notice(str(error))
        return
    if isinstance(result, CommandResult):
        _apply(conversation, command, result)
    else:
        conversation.spawn(_apply_later(conversation, command, result))


async def _apply_later(
    conversation: Conversation, command: Command, result: Awaitable[CommandResult]
) -> None:
    try:
        _apply(conversation, command, await result)
    except LongreinError as error:
        conversation.notice(str(error))


def _apply(conversation: Conversation, command: Command, result: CommandResult) -> None:
    if conversation.reads_lines:
        result = _as_lines(command, result)
    conversation.starts_with_list &= result.choices is not None
    if result.message is not None:
        conversation.tell(result.message)
    if result.title:
        conversation.show(
            conversation.view.spaced(
                "answer", [line(("bold", translate(result.title))), *result.rows]
            )
        )
    if result.notice:
        conversation.notice(result.notice, done=result.is_done)
    if result.edit:
        conversation.edit(result.edit)
    if result.edit_file:
        conversation.spawn(open_in_editor(conversation, result.edit_file))
    if result.choices is not None:
        _choose(conversation, command, result.choices)
    if result.page is not None:
        open_page(conversation, result.page)
    if result.secret is not None:
        conversation.spawn(_ask_secret(conversation, command, result))
    if result.outcome is not None:
        request_exit(conversation, result.outcome)
    conversation.request_redraw()


def _as_lines(command: Command, result: CommandResult) -> CommandResult:
    """Turn a list, a page or a file to edit into lines, for the plain terminal."""
    if (page := result.page) is not None:
        return structs.replace(result, title=page.title, rows=page.lines(), page=None)
    if (choices := result.choices) is not None:
        rows = _choice_lines(command, choices)
        return structs.replace(result, title=choices.title, rows=rows, choices=None)
    if file := result.edit_file:
        return structs.replace(result, notice=f"open it in your editor: {file}", edit_file="")
    return result


def _choice_lines(command: Command, choices: Choices) -> list[Line]:
    """A line for each row of a list: the command to type."""
    rows: list[Line] = []
    for row in choices.rows:
        details = [translate(text) for text in (row.label, row.note) if text and text != row.value]
        details += [translate("(now)")] if row.is_present else []
        rows.append(line(escape_line("  ".join((f"/{command.name} {row.value}", *details)))))
    last = KEEPS_LINE if choices.keeps else choices.hint or choices.lasts
    return [*rows, line(translate(last))] if last else rows


async def _ask_secret(conversation: Conversation, command: Command, result: CommandResult) -> None:
    """Ask for a secret below the scrollback, without an echo; the conversation never holds it."""
    question = result.secret
    if question is None:
        return
    if not is_terminal():
        conversation.notice(
            "a key is not read from here; `longrein login PROVIDER < FILE` reads one"
        )
        return
    try:
        text = await run_in_terminal(
            partial(read_secret, translate(question.text)), in_executor=True
        )
        conversation.notice(question.keep(text), done=True)
        if result.follow_up is not None:
            _apply(conversation, command, result.follow_up())
    except LongreinError as error:
        conversation.notice(str(error))


def edit_last_queued(conversation: Conversation) -> None:
    """Take the newest waiting message back into the input."""
    taken = conversation.context.queued_messages.take()
    if taken is None:
        conversation.warn(TOO_LATE)
    else:
        conversation.edit(conversation.context.command_line_for(taken))


def background(conversation: Conversation) -> None:
    """Move the running command to the background."""
    if not conversation.session.background():
        conversation.warn(NOTHING_RUNS)


def request_exit(conversation: Conversation, outcome: Outcome) -> None:
    """Leave; while tasks run, ask about them first. A second request leaves at once."""
    running = list(conversation.view.activity.tasks.values())
    if conversation.leaving is not None or not running:
        conversation.leave(conversation.leaving or outcome)
        return
    conversation.leaving = outcome
    if conversation.opened.app.leave_policy == "ask":
        conversation.choose(
            exit_question(running),
            exit_choices(len(running)),
            lambda choice: _exit_with(conversation, outcome, choice),
        )
    else:
        _exit_with(conversation, outcome, conversation.opened.app.leave_policy)


def _exit_with(conversation: Conversation, outcome: Outcome, choice: str) -> None:
    conversation.leaving = outcome if choice != "stay" else None
    if choice != "stay":
        conversation.spawn(_finish_exit(conversation, outcome, choice))


async def _finish_exit(conversation: Conversation, outcome: Outcome, choice: str) -> None:
    """Apply the answer about running tasks, then leave.

    Between turns the session stores the answer itself; during a turn it takes effect when the
    session is closed, so that the turn can be resumed.
    """
    tasks = counted(len(conversation.view.activity.tasks), "task")
    kept: Literal["stop", "keep"] = "keep" if choice == "keep" else "stop"
    conversation.warn(
        f"{tasks} kept running" if kept == "keep" else f"ending {tasks}; Ctrl-C leaves at once"
    )
    try:
        if not conversation.session.busy:
            await conversation.session.leave(kept)
        outcome = structs.replace(outcome, tasks=kept)
    except LongreinError as error:
        conversation.notice(str(error))
    conversation.leave(outcome)


# --- Lists ----------------------------------------------------------------------------------------


def _choose(conversation: Conversation, command: Command, choices: Choices) -> None:
    """Open the list of a command."""
    follow_up = choices.chosen or partial(command.run, conversation.context)
    wanted: set[str] = set()

    def want(value: str) -> None:
        if choices.preview is not None and value not in wanted:
            wanted.add(value)
            conversation.spawn(_load(conversation, chooser, value, choices.preview))

    chooser = Chooser(choices.title, choices.rows, KEEPS if choices.keeps else choices.lasts, want)
    chooser.keeps = choices.keeps
    conversation.open_chooser(
        chooser, lambda value: _run(conversation, command, lambda: follow_up(value))
    )


async def _load(
    conversation: Conversation,
    found: Chooser,
    value: str,
    preview: Callable[[str], Awaitable[Sequence[str]]],
) -> None:
    try:
        found.previews[value] = await preview(value)
    except LongreinError as error:
        found.previews[value] = (str(error),)
    conversation.request_redraw()
