"""The plain terminal: lines in, lines out, no redrawing. For pipes, dumb terminals and screen
readers.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

from longrein.agent import (
    BYPASS,
    Answer,
    FromSubagent,
    RetryPause,
    SessionPort,
    SessionUpdate,
    SetMode,
    UserMessage,
    UserNotice,
)
from longrein.app import AppSession
from longrein.frontends.localization import translate
from longrein.frontends.loop_streams import cancel_all, read_lines, signal_handlers
from longrein.frontends.secret_input import SecretQuestion, read_secret
from longrein.frontends.stdio import STDIN_BYTES_MAX
from longrein.frontends.terminal import command_actions, command_table, event_lines
from longrein.frontends.terminal.approvals import (
    ALL_EDITS,
    Question,
    answer,
    choices,
    content_lines,
    form_answer,
    question_form,
    rule_lines,
)
from longrein.frontends.terminal.command_types import (
    Choices,
    Command,
    CommandContext,
    CommandResult,
    Outcome,
)
from longrein.frontends.terminal.event_lines import NO_WRAP, Line, fit, indented, line, plain
from longrein.frontends.terminal.input_prefixes import is_memory_line, is_user_command, note_lines
from longrein.frontends.terminal.markdown_blocks import Block
from longrein.frontends.terminal.start_notices import chosen_line, start_notices
from longrein.frontends.terminal.view_model import Piece, ViewModel
from longrein.steps import Projection
from longrein.steps.human_text import activity_text, escape, escape_line
from longrein_context.events import Entry, LongreinError, Text, UsageError

NOBODY = "stdin has ended, so nobody can approve this"
"""Message to the model with a denial after the end of stdin."""

INVITATION = "\n> "
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# --- Plain output ---------------------------------------------------------------------------------


_ASCII = str.maketrans(
    {
        "●": "*",
        "○": "o",
        "›": ">",
        "…": "...",
        "·": "-",
        "─": "-",
        "│": "|",
        "█": "#",
        "⋮": ":",
        "↑": "^",
        "↓": "v",
        "–": "-",
        "→": "->",
    }
)


class PlainOutput:
    """Output to `fd` in an encoding that may be ASCII only. Writes nothing after an error."""

    def __init__(self, fd: int, encoding: str) -> None:
        self._fd, self._encoding = fd, encoding
        self._wide = encoding.lower().replace("-", "") == "utf8"
        self._is_terminal = os.isatty(fd)
        self.closed = False
        self.last = ""

    @property
    def columns(self) -> int:
        """Columns of the terminal; 0 where the output is none, and lines are not wrapped."""
        if not self._is_terminal:
            return 0
        try:
            return os.get_terminal_size(self._fd).columns
        except OSError:  # the terminal is gone
            return 0

    def put(self, text: str) -> None:
        """Write escaped `text`; characters missing in the encoding become ASCII or `\\uXXXX`."""
        self.last = text
        known = text if self._wide else text.translate(_ASCII)
        data = known.encode(self._encoding, "backslashreplace")
        try:
            while data and not self.closed:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self.closed = True


async def run_plain(
    opened: AppSession,
    *,
    prompt: str,
    choosing: bool,
    mono_s: Callable[[], float],
    fd: int = 0,
) -> Outcome:
    """Read lines from `fd` until they end and the session is idle, or the user leaves."""
    out = PlainOutput(1, sys.stdout.encoding or "ascii")
    conversation = _PlainConversation(opened, out, mono_s, interactive=os.isatty(fd))
    acts = (
        conversation.print_updates(),
        conversation.run_session(prompt, choosing=choosing),
        conversation.exited.wait(),
        conversation.read_input(fd),
    )
    with signal_handlers({number: partial(conversation.signalled, number) for number in SIGNALS}):
        tasks = [asyncio.ensure_future(act) for act in acts]
        try:
            await asyncio.wait(tasks[:3], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # ends the loop before the cancel, which a tool may take for an interrupt
            await opened.session.close(conversation.outcome.end_reason)
            await cancel_all(tasks)
    return conversation.outcome


class _PlainConversation:
    def __init__(
        self,
        opened: AppSession,
        out: PlainOutput,
        mono_s: Callable[[], float],
        *,
        interactive: bool,
    ) -> None:
        self.opened = opened
        self.session: SessionPort = opened.session
        self.out = out
        self.mono_s = mono_s
        self.view = ViewModel(opened.file_text)
        self.view.draws_live_rows = False
        self.view.tokens_now = lambda: self.session.state.view_tokens
        self.interactive = interactive
        """True if a person types, so that prompts are printed."""
        self.stdin_ended = False
        self.exited = asyncio.Event()
        self.outcome = Outcome("exit")
        self.context = CommandContext(opened, self.view)
        self._shown_question: Question | None = None
        self._explaining = False
        """True if the next line is the reason of a denial."""
        self._commands: list[asyncio.Task[None]] = []
        """Commands of the user (`!`)."""
        self._leaving: Outcome | None = None
        """Outcome of the pending exit, while the user decides about running tasks."""

    def print(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            for row in self._rows(piece):
                self.out.put(plain(row).rstrip() + "\n")
        if self.out.closed:
            self.exit(Outcome("exit", code=1))

    def _rows(self, piece: Piece) -> list[Line]:
        """Rows of a piece, whole; on a terminal no word is broken by its edge."""
        width = self.out.columns
        if isinstance(piece, Block):
            rows = [line(row) for row in escape(piece.text).split("\n")]
            if piece.kind == "fence" and width:
                rows = [line("  ", *row) for row in rows[1:-1]]
        else:
            rows = [tuple(span for span in piece if span != NO_WRAP)]
        return [part for row in rows for part in fit(row, width)] if width else rows

    def exit(self, outcome: Outcome) -> None:
        if not self.exited.is_set():
            self.outcome = outcome
            self.exited.set()

    def signalled(self, number: int) -> None:
        running = [command for command in self._commands if not command.done()]
        if number == signal.SIGINT and running:
            running[-1].cancel()
        elif number == signal.SIGINT and self.session.busy:
            self.session.interrupt()
        else:
            self.exit(Outcome("exit", code=128 + number))

    async def print_updates(self) -> None:
        """Print updates; the history of a resumed session is folded but not printed."""
        opened = self.opened
        chosen = translate(chosen_line(opened.model, opened.key_source))
        head = (
            f"longrein {opened.app.version}, {chosen}, {self.session.state.cwd}; /help "
            "lists commands"
        )
        notices = map(event_lines.notice_line, start_notices(opened))
        self.print([line(escape(translate(head))), *notices])
        start = self.session.state.seq
        self.view.live = start == 0
        if self.view.live:
            self._print_prompt()
        async for heard in self.session.follow(self.view.resume(self.session.state)):
            pieces = self.view.apply(heard, self.mono_s())
            if self.view.live:
                self.print([*pieces, *_live_lines(heard)])
                await self._ask()
                if isinstance(heard, Entry | UserNotice):
                    self._print_prompt_when_idle()
            elif isinstance(heard, Entry) and heard.seq >= start:
                self.view.go_live(busy=self.session.busy, now_s=self.mono_s())  # not printed
                cut = self.session.state.turn_open and not self.session.busy
                if cut and not self.view.questions:
                    self.print(
                        [
                            line(
                                translate(
                                    "the last turn was cut off; say something to go on with it"
                                )
                            )
                        ]
                    )
                self._print_prompt()
                await self._ask()

    def _print_prompt_when_idle(self) -> None:
        if not self.view.busy and not self.session.busy and not self.session.pending:
            self._print_prompt()
            if self.stdin_ended:
                self.exit(Outcome("exit"))

    def _print_prompt(self) -> None:
        mode = self.session.state.mode
        invitation = f"\n{mode}> " if mode == BYPASS else INVITATION
        if self.interactive and not self.view.busy and self.out.last != invitation:
            self.out.put(invitation)

    async def _ask(self) -> None:
        question = next(iter(self.view.questions), None)
        if question is None or question is self._shown_question:
            return
        self._shown_question, self._explaining = question, False
        content = content_lines(question, self.opened.file_text)
        reason = escape_line(translate(question.asked.reason))
        head = line(f"? {translate(question.title)}: {reason}")
        self.print([(), head, *indented(content, "| ")])
        self.print(rule_lines(question))
        self.print(
            [line(f"  {choice.value}  {translate(choice.label)}") for choice in choices(question)]
        )
        self._form = question_form(question)
        self.print(self._form.lines() if self._form else ())
        if self.stdin_ended:
            await self._deny(question, NOBODY)
        elif self.interactive:
            self.out.put("answer> ")

    async def _deny(self, question: Question, message: str) -> None:
        await self.session.tell(
            Answer(question.asked.call, "deny", message=message, session=question.session)
        )

    async def run_session(self, prompt: str, *, choosing: bool) -> None:
        if prompt:
            try:
                await self._say(prompt)
            except LongreinError as error:  # a command of a file that cannot be used
                self.print([event_lines.notice_line(str(error))])
        elif choosing:
            await self._run_command(command_table.BY_NAME["resume"], "")
        await self.session.run(once=False)

    async def read_input(self, fd: int) -> None:
        """Handle lines until stdin ends; then leave once the session is idle."""
        async for raw in read_lines(fd):
            if len(raw) > STDIN_BYTES_MAX:
                raise UsageError("a line on stdin is longer than 10 MB")
            text = raw.decode("utf-8", "replace").replace("\0", "\ufffd").strip()
            self.out.last = text  # the terminal has echoed it
            try:
                await self._line(text)
            except LongreinError as error:
                self.print([event_lines.notice_line(str(error))])
        self.stdin_ended = True
        await asyncio.gather(*self._commands)
        for question in self.view.questions:
            await self._deny(question, NOBODY)
        if not self.session.busy and not self.session.pending:
            self.exit(Outcome("exit"))

    async def _line(self, text: str) -> None:
        question = next(
            (asked for asked in self.view.questions if asked is self._shown_question), None
        )
        known = (self.opened.known_skills(), self.opened.slash_commands())
        typed = command_table.parse(text, *known)
        if self._leaving is not None:
            await self._exit_with(text.lower())
        elif question is not None:
            await self._answer(question, text)
        elif is_user_command(text):
            self._start_command(text[1:].strip())
        elif is_memory_line(text):
            self.print(note_lines(self.opened.app.note_files(), text))
            self._print_prompt()
        elif typed is None:
            await self._say(text)
        elif typed.command is None:
            self.print(
                [event_lines.notice_line(command_table.unknown_command_text(typed.name, *known))]
            )
            self._print_prompt()
        else:
            await self._run_command(typed.command, typed.argument)

    async def _answer(self, question: Question, text: str) -> None:
        """Answer with the key of a choice; `f REASON` and any other text deny with that reason."""
        key, _, reason = text.partition(" ")
        if key.lower() == "f" and not self._explaining:
            text = reason.strip()
            if not text:
                self._explaining = True
                self.out.put(f"{translate('why not')}> ")
                return
            self._explaining = True
        message: Answer | None = None
        if not self._explaining and self._form is not None and text.lower() != "n":
            self._form.take(text)
            if not self._form.is_done:
                self.print(self._form.lines())
                self.out.put("answer> ")
                return
            message = form_answer(question, self._form)
        elif not self._explaining:
            message = answer(question, text.lower())
        self._explaining = False
        self.view.remove_question(question)
        if message is None:
            await self._deny(question, text)
        else:
            if message.arguments is None and text.lower() == ALL_EDITS:
                await self.session.tell(SetMode("acceptEdits"))
            await self.session.tell(message)
        await self._ask()

    async def _request_exit(self, outcome: Outcome) -> None:
        """Leave; while tasks run, ask an interactive user about them first."""
        running = list(self.view.activity.tasks.values())
        policy = self.opened.app.leave_policy
        if not running or not self.interactive:
            self.exit(outcome)
            return
        self._leaving = outcome
        if policy != "ask":
            await self._exit_with(policy)
            return
        choices = command_actions.exit_choices(len(running))
        self.print(
            [
                line(command_actions.exit_question(running)),
                *(line(f"  {c.value}  {translate(c.label)}") for c in choices),
            ]
        )
        self.out.put("answer> ")

    async def _exit_with(self, choice: str) -> None:
        """Handle the answer about running tasks; any other text means `stay`."""
        outcome, self._leaving = self._leaving, None
        if outcome is None or choice not in ("stop", "keep"):
            self._print_prompt()
            return
        self.print([line(command_actions.exit_progress(len(self.view.activity.tasks), choice))])
        self.exit(await command_actions.choose_task_fate(self.session, outcome, choice))

    async def _say(self, text: str) -> None:
        attached = self.opened.attachments().read(text)
        self.print([event_lines.notice_line(note) for note in attached.notes])
        parts = (Text(text), *attached.parts)
        await self.session.tell(UserMessage(parts, "queued" if self.session.busy else "prompt"))

    def _start_command(self, command: str) -> None:
        """Run a command of the user beside the input, so that Ctrl-C can stop it."""
        self.view.commands_shown.append(command)
        self._commands.append(asyncio.ensure_future(self._run_user_command(command)))

    async def _run_user_command(self, command: str) -> None:
        try:
            ran = await self.session.run_command(command, "user")
            self.print(event_lines.user_command_lines(command, ran.output, ran.status))
        except LongreinError as error:
            self.view.commands_shown.remove(command)
            self.print([event_lines.notice_line(str(error))])
        self._print_prompt()

    async def _run_command(self, command: Command, argument: str) -> None:
        result = command.run(self.context, argument)
        if not isinstance(result, CommandResult):
            result = await result
        if result.message is not None:
            await self.session.tell(result.message)
        self.print(result.rows)
        if result.notice:
            self.print([event_lines.notice_line(result.notice)])
        if result.edit:
            self.print(
                [
                    event_lines.notice_line("taken back; say it again as it shall be:"),
                    line(escape(result.edit)),
                ]
            )
        if result.edit_file:
            self.print([event_lines.notice_line(f"open it in your editor: {result.edit_file}")])
        if result.page is not None:
            self.print([line(result.page.title), *result.page.lines()])
        if result.choices is not None:
            self.print(_choice_lines(command, result.choices))
        if result.secret is not None:
            await self._ask_secret(command, result, result.secret)
        if result.outcome is not None:
            await self._request_exit(result.outcome)
        elif result.message is None:  # the effect of a message arrives as an update
            self._print_prompt()

    async def _ask_secret(
        self, command: Command, result: CommandResult, question: SecretQuestion
    ) -> None:
        """Ask for a secret without an echo; only a person at a terminal is asked."""
        if not self.interactive:
            said = "a key is not read from here: longrein login PROVIDER < FILE"
            self.print([event_lines.notice_line(said)])
            return
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(None, read_secret, translate(question.text))
        self.print([event_lines.notice_line(question.keep(text))])
        more = result.follow_up() if result.follow_up is not None else CommandResult()
        if more.choices is not None:
            self.print([line(translate(more.choices.title)), *_choice_lines(command, more.choices)])


def _live_lines(heard: SessionUpdate) -> list[Line]:
    """Lines of what the screen shows in its live rows."""
    match heard:
        case FromSubagent(label=label, heard=Entry()):
            acts = filter(None, map(activity_text, Projection().read(heard)))
            return [line(f"  {escape_line(label)} {act}") for act in acts]
        case RetryPause():
            return [line(event_lines.retry_text(heard, heard.delay_s))]
        case _:
            return []


def _choice_lines(command: Command, choices: Choices) -> list[Line]:
    """A line for each row: the command to type."""
    rows: list[Line] = []
    for row in choices.rows:
        details = [translate(text) for text in (row.label, row.note) if text and text != row.value]
        details += [translate("(now)")] if row.is_present else []
        rows.append(line(escape_line("  ".join((f"/{command.name} {row.value}", *details)))))
    last = choices.hint or choices.lasts
    return [*rows, line(translate(last))] if last else rows
