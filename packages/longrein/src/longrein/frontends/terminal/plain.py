"""The plain terminal: the conversation without redrawing, for pipes, dumb terminals and screen
readers.

Each line is written once. What the user types is read as lines.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence

from prompt_toolkit.buffer import Buffer

from longrein.agent import BYPASS
from longrein.app import AppSession
from longrein.frontends.localization import translate
from longrein.frontends.loop_streams import read_lines
from longrein.frontends.stdio import STDIN_BYTES_MAX
from longrein.frontends.terminal.answering import ENTER
from longrein.frontends.terminal.approvals import Approval, QuestionForm, rule_lines
from longrein.frontends.terminal.choice_list import Chooser
from longrein.frontends.terminal.command_types import Outcome
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.event_lines import NO_WRAP, Line, fit, indented, line, plain
from longrein.frontends.terminal.input_prefixes import is_memory_line, note_lines
from longrein.frontends.terminal.key_handlers import (
    cancel_current,
    send,
    send_denial_reason,
    submit_form,
    take_row,
)
from longrein.frontends.terminal.markdown_blocks import Block
from longrein.frontends.terminal.view_model import Piece
from longrein.steps.human_text import escape, escape_line
from longrein_context.events import UsageError

NOBODY = "stdin has ended, so nobody can approve this"
"""Message to the model with a denial after the end of stdin."""


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
        self.closed = False
        self.last = ""

    @property
    def columns(self) -> int:
        """Columns of the terminal; 0 where the output is none, and lines are not wrapped."""
        try:
            return os.get_terminal_size(self._fd).columns
        except OSError:
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


class PlainConversation(Conversation):
    """A conversation whose input is the lines of a file descriptor."""

    reads_lines = True
    cut_hint = "  say something to go on with it"

    def __init__(
        self, opened: AppSession, mono_s: Callable[[], float], *, interactive: bool
    ) -> None:
        super().__init__(opened, mono_s)
        self.out = PlainOutput(1, sys.stdout.encoding or "ascii")
        self.view.draws_live_rows = False
        self.context.window = None
        self.interactive = interactive
        """True if a person types, so that prompts are written."""
        self.stdin_ended = False
        self.left = asyncio.Event()
        self._written: Approval | None = None
        """The question that was written last."""

    def _new_buffer(self) -> Buffer:
        """Return an empty buffer, in which nobody types."""
        return Buffer()

    def leave(self, outcome: Outcome) -> None:
        """End the conversation. The first outcome counts."""
        self.outcome = self.outcome or outcome
        self.left.set()

    def signalled(self, number: int) -> None:
        """Stop what runs with Ctrl-C; else leave."""
        is_left = number != signal.SIGINT or self.leaving is not None
        if is_left or not cancel_current(self):
            self.leave(Outcome("exit", code=128 + number))

    # --- Writing ----------------------------------------------------------------------------------

    def print_header(self) -> None:
        self.show([*self.header(), line(self.hint())])

    def show(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            for row in self._rows(piece):
                self.out.put(plain(row).rstrip() + "\n")
        if self.out.closed:
            self.leave(Outcome("exit", code=1))
        self.request_redraw()

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

    def warn(self, text: str) -> None:
        self.notice(text)

    def edit(self, text: str) -> None:
        self.notice("taken back; say it again as it shall be:", done=True)
        self.show([line(escape(text))])

    async def redraw_loop(self) -> None:
        """Redraw on requests, but while a command runs only after it: it may ask for a secret."""
        while True:
            await self._news.wait()
            while self._tasks:
                await asyncio.wait(self._tasks)
            self._news.clear()
            self.redraw()

    def redraw(self) -> None:
        """Write a question that has come up, then the prompt; leave at the end of stdin."""
        if not self.view.live or self.outcome is not None:
            return
        self._follow_questions()
        is_idle = not (
            self.view.busy or self.session.busy or self.session.pending or self.view.user_commands
        )
        is_asked = self.approval is not None or self.chooser is not None
        prompt = self.prompt()
        if self.stdin_ended and self.approval is not None:
            self._deny(self.approval, NOBODY)
        elif self.stdin_ended and is_idle:
            self.leave(Outcome("exit"))
        elif self.interactive and (is_idle or is_asked) and self.out.last != prompt:
            self.out.put(prompt)

    def prompt(self) -> str:
        if self.feedback is not None and not self.writes_answer:
            return f"{translate('why not')}> "
        if self.approval is not None or self.chooser is not None:
            return "answer> "
        mode = self.session.state.mode
        return f"\n{mode}> " if mode == BYPASS else "\n> "

    def focus(self) -> None:
        """Write the question whole, once."""
        approval = self.approval
        if approval is None or approval is self._written:
            return
        self._written = approval
        self.guard.drawn(self.mono_s())
        approval.drawn.update(range(-approval.lines_above, len(approval.content)))
        question = approval.question
        reason = escape_line(translate(question.asked.reason))
        self.show(
            [
                (),
                line(f"? {translate(question.title)}: {reason}"),
                *indented(approval.content, "| "),
                *rule_lines(question),
            ]
        )
        self._show_choices(approval)

    def _show_choices(self, approval: Approval) -> None:
        form = approval.form
        marked = "" if form is not None else approval.answers.chosen
        keys = [
            line(f"{'›' if row.value == marked else ' '} {row.value}  {translate(row.label)}")
            for row in approval.answers.rows
        ]
        self.show([*keys, *(form.lines() if form is not None else ())])

    def open_chooser(self, chooser: Chooser, chosen: Callable[[str], None]) -> None:
        """Write a list, which the next line chooses from; where nobody types, leave."""
        if not self.interactive:
            self.leave(self.leaving or Outcome("exit"))
            return
        self._show_list(chooser)
        super().open_chooser(chooser, chosen)

    def _show_list(self, chooser: Chooser) -> None:
        rows = [
            line(f"{'›' if row is chooser.marked else ' '} {row.value}  {translate(row.label)}")
            for row in chooser.rows
        ]
        self.show([line(translate(chooser.title)), *rows])

    # --- Reading ----------------------------------------------------------------------------------

    async def read_input(self, fd: int) -> None:
        """Handle the lines of `fd`, each after what the one before has started; then wait for the
        end of the conversation.
        """
        async for raw in read_lines(fd, blank=self.interactive):
            if len(raw) > STDIN_BYTES_MAX:
                raise UsageError("a line on stdin is longer than 10 MB")
            text = raw.decode("utf-8", "replace").replace("\0", "\ufffd").strip()
            self.out.last = text  # the terminal has echoed it
            self._take(text)
            while self._tasks:
                await asyncio.wait(self._tasks)
            self.request_redraw()
        self.stdin_ended = True
        self.request_redraw()
        await self.left.wait()

    def _take(self, text: str) -> None:
        if self.chooser is not None:
            if (row := self.chooser.by_line(text)) is None:
                self._show_list(self.chooser)
            else:
                self.chooser.mark(row)
                self.close_chooser(chosen=True)
        elif self.feedback is not None:
            send_denial_reason(self, text)
        elif self.approval is not None:
            self._answer(self.approval, text)
        elif not text:
            pass  # Enter alone says nothing
        elif self.interactive and self.guard.swallows(ENTER, self.mono_s(), ""):
            self.notice(f"typed in one go with the answer, so it was not sent: {text}")
        elif is_memory_line(text):
            self.show(note_lines(self.opened.app.note_files(), text))
        else:
            send(self, text)

    def _answer(self, approval: Approval, text: str) -> None:
        """Answer a question with a row of its list; `f REASON` says why not, `o WORDS` answers a
        question of the model in words. Anything else asks again, and so does what was typed before
        the question stood.
        """
        key, _, words = text.partition(" ")
        form = approval.form
        row = approval.answers.by_line(text) if form is None or text in ("n", "f", "o") else None
        if self.interactive and not self.question_is_ready:
            self.notice("typed before the question stood here, so it answers nothing")
            self._show_choices(approval)
        elif key.lower() == "f" and words:
            self._deny(approval, words.strip())
        elif row is not None:
            take_row(self, row)
        elif form is not None and (form.take(text) or self._in_words(form, key, words)):
            if not form.is_done:
                self.show(form.lines())
            submit_form(self)
        else:
            self._show_choices(approval)

    @staticmethod
    def _in_words(form: QuestionForm, key: str, words: str) -> bool:
        """Answer with `o WORDS`; False for another line."""
        if key.lower() != "o" or not words:
            return False
        form.say(words.strip())
        return True

    def _deny(self, approval: Approval, reason: str) -> None:
        self.begin_denial_reason(approval.question)
        send_denial_reason(self, reason)
