"""A session on one terminal: view model, question panel and input, redrawn at most ten times a
second.

Methods never wait for the session: messages go to it in tasks, in the order in which they were
sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs
from prompt_toolkit.buffer import Buffer

from longrein.agent import (
    BYPASS,
    Answer,
    InboxMessage,
    OpenSession,
    SubagentView,
    UserMessage,
    session_usd,
)
from longrein.app import AppSession
from longrein.config import shorten_home
from longrein.frontends.localization import translate
from longrein.frontends.terminal import event_lines, live_area, task_rows
from longrein.frontends.terminal.answering import ENTER, KeyGuard
from longrein.frontends.terminal.approvals import Approval, Question, content_lines
from longrein.frontends.terminal.choice_list import Chooser, Row
from longrein.frontends.terminal.command_types import CommandContext, Outcome
from longrein.frontends.terminal.custom_status_line import SessionTotals, StatusLine
from longrein.frontends.terminal.drafts import (
    ESCAPE_AGAIN,
    Draft,
    DraftFile,
    message_parts,
    save_draft,
    save_draft_later,
)
from longrein.frontends.terminal.event_lines import Line, ansi, fit, line
from longrein.frontends.terminal.input_completion import (
    InputCompleter,
    Pastes,
    Pictures,
    ProjectHistory,
)
from longrein.frontends.terminal.input_prefixes import UserCommands
from longrein.frontends.terminal.keymap import SHORTCUTS, chosen_keys, shortcut_rows
from longrein.frontends.terminal.live_area import figures, footer_line, state_word
from longrein.frontends.terminal.markdown_blocks import Block
from longrein.frontends.terminal.screen import Screen
from longrein.frontends.terminal.start_notices import (
    assumed_window,
    chosen_line,
    confinement,
    later_notices,
    start_notices,
)
from longrein.frontends.terminal.terminal_input import KeyProtocol
from longrein.frontends.terminal.view_model import EMPTY, Piece, ViewModel
from longrein.frontends.terminal.window import Activity, TerminalWindow
from longrein.steps.human_text import counted, escape_line
from longrein_context.events import LongreinError

if TYPE_CHECKING:
    from longrein.frontends.terminal.markdown import MarkdownPainter
    from longrein.frontends.terminal.pager import Pager

FRAME_S = 0.1
PANEL_ROWS_MIN = 6
"""Rows that a question or a list keeps before an empty line or a waiting message gets one."""
TITLE_CHARS_MAX = 200
AGAIN_S = 3.0
"""Seconds in which a second Ctrl-C leaves, when no other key comes between."""


class Conversation:
    """View model, panel and input of one session on one terminal."""

    screen: Screen
    """Set once, before anything is shown."""
    reads_lines = False
    """True where nothing is drawn again and lines are read, not keys."""
    cut_hint = "  Enter goes on with it"
    starts_with_list = False
    """True until the list of sessions is left that stands before the conversation."""
    asked_back = ""
    """The line of the input about which the user was asked back; Enter again sends it."""
    again_s = AGAIN_S
    """Seconds in which a second Ctrl-C or Esc counts, when no other key comes between."""

    def __init__(self, opened: AppSession, mono_s: Callable[[], float]) -> None:
        self.opened = opened
        self.session: OpenSession = opened.session
        self.colour = not opened.app.context.environ.get("NO_COLOR")
        self.model = opened.model
        """`provider/model` at the start; later changes come from the log."""
        self.mono_s = mono_s
        self.view = ViewModel(opened.file_text)
        self.view.context_now = lambda: (self.session.state, opened.budget.price)
        self.context = CommandContext(opened, self.view)
        self.pastes = Pastes()
        self.history_file = opened.app.kept_file("history")
        self.buffer = self._new_buffer()
        self.buffer.on_text_changed += lambda _: self._draft_changed()
        self.guard = KeyGuard()
        """Which keys answer a question."""
        self.approval: Approval | None = None
        self.chooser: Chooser | None = None
        self._chosen: Callable[[str], None] = lambda _: None
        self.feedback: Question | None = None
        """The question that is being denied; the input holds the reason."""
        self._draft = ""
        self.user_commands = UserCommands(self)
        self.pictures = Pictures(lambda path: opened.attachments().image(path))
        self.drafts = DraftFile(opened.app.kept_file("drafts"))
        self.draft_timer: asyncio.TimerHandle | None = None
        self.keyboard: KeyProtocol | None = None
        """None until the screen stands."""
        self.escaped = False
        """True if the last key was an Esc that did nothing."""
        self.flash = ""
        """A hint above the input until the next key."""
        self.warned = False
        """True if the hint was on the screen when the last key came."""
        self.pager: Pager | None = None
        """The page that fills the screen; None while the conversation is visible."""
        self.paged_approval: Approval | None = None
        """The question that this page shows; None for other pages."""
        self.todos_pinned = False
        self.outcome: Outcome | None = None
        self.leaving: Outcome | None = None
        """Outcome of the pending exit, while the user decides about running tasks."""
        self.ready = asyncio.Event()
        self._make_surroundings()
        self._painter: MarkdownPainter | None = None
        self._outbox: list[Piece] = []
        self._live: list[Line] = []
        """Live rows of the last redraw. A key press redraws these and does not run ahead of the
        finished pieces.
        """
        self._news = asyncio.Event()
        self._ticking: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def _new_buffer(self) -> Buffer:
        """Return the buffer of the input, which completes words and knows earlier prompts."""
        return Buffer(
            completer=InputCompleter(
                self.opened.complete_files, self.opened.slash_commands, self.opened.known_skills
            ),
            complete_while_typing=True,
            history=ProjectHistory(self.history_file),
            multiline=True,
        )

    def _make_surroundings(self) -> None:
        context = self.opened.app.context
        options = context.settings.terminal
        self.totals = SessionTotals()
        self.window = TerminalWindow(
            self._write_raw,
            options,
            context.environ,
            self.mono_s,
            enabled=self.colour and bool(context.environ),
        )
        self.context.window = self.window if self.colour else None
        self.status_line = StatusLine(
            self.opened.status_command(),
            options,
            lambda: self.totals.data(self.title, self.opened.wall_us()),
            self.request_redraw,
            self.notice,
        )

    # --- Showing ----------------------------------------------------------------------------------

    def print_header(self) -> None:
        """Print the first rows, so that the redrawn area never begins at the top of the
        terminal.
        """
        self.screen.write([text for row in self.header() for text in self._paint(row)])

    def header(self) -> list[Line]:
        opened = self.opened
        cwd = escape_line(shorten_home(self.session.state.cwd, opened.app.context.home))
        head = line(("bold", "longrein"), ("dim", f" {opened.app.version} · {cwd} · /help"))
        chosen = translate(chosen_line(opened.model, opened.key_source))
        assumed = translate(assumed_window(opened.model, opened.budget))
        model = line(("dim", escape_line(chosen)), ("warn", escape_line(assumed)))
        return [head, model, *map(event_lines.notice_line, start_notices(opened))]

    async def show_later_notices(self) -> None:
        for text in await later_notices(self.opened.app):
            self.notice(text)

    def show_history(self, pieces: Sequence[Piece]) -> None:
        if self.view.prompts:
            prompts = counted(len(self.view.prompts), "prompt")
            self.show([EMPTY, line(("dim", f"── session {self.session.id[:8]}, {prompts} ──"))])
        self.show(pieces)
        if self.session.state.turn_open and not self.session.busy and not self.view.questions:
            self.show(
                [
                    EMPTY,
                    line(
                        ("warn", translate("the last turn was cut off")),
                        ("dim", translate(self.cut_hint)),
                    ),
                ]
            )

    def show(self, pieces: Sequence[Piece]) -> None:
        self._outbox += pieces
        self.request_redraw()

    def notice(self, text: str, *, done: bool = False) -> None:
        self.show(self.view.spaced("note", [event_lines.notice_line(text, done=done)]))

    def request_redraw(self) -> None:
        self._news.set()

    async def redraw_loop(self) -> None:
        """Redraw on requests and while a turn runs; never when idle."""
        loop = asyncio.get_running_loop()
        while True:
            await self._news.wait()
            self._news.clear()
            self.redraw()
            await asyncio.sleep(FRAME_S)
            moves = (self.view.busy and self.view.phase != "waiting") or bool(
                self.view.user_commands
            )
            if moves or self._waits_for_quiet:
                loop.call_later(FRAME_S, self._news.set)
            elif tick_s := self._tick_s():
                if self._ticking is not None:
                    self._ticking.cancel()
                self._ticking = loop.call_later(tick_s, self._news.set)

    def _tick_s(self) -> float:
        """Return the seconds until the next redraw while nothing moves; 0 for none."""
        if self.window.call_pending:
            return 1.0
        return live_area.tick_s(self.view, self._agents(), self.opened.wall_us(), self.mono_s())

    def redraw(self) -> None:
        if self.screen.is_lent and self.pager is None:
            return
        self._follow_questions()
        self._update_surroundings()
        if self.pager is not None:
            if self.paged_approval is not None and self.paged_approval is not self.approval:
                self.pager.close()
            self.pager.update()
            return
        pieces, self._outbox = self._outbox, []
        rows = [row for piece in pieces for row in self._paint(piece)]
        size = self.screen.size
        now = live_area.DrawContext(
            self.mono_s(), self.opened.wall_us(), size.columns - 1, size.rows
        )
        self._live = live_area.live_rows(self.view, self._agents(), now)
        if rows:
            self.screen.commit(rows)
        else:
            self.screen.redraw()

    def _paint(self, piece: Piece) -> list[str]:
        width = self.screen.size.columns - 1
        if isinstance(piece, Block):
            return self.markdown_painter().paint(piece, width)
        return [ansi(row, colour=self.colour) for row in fit(piece, width)]

    def markdown_painter(self) -> "MarkdownPainter":
        """Return the painter of replies, made at the first call."""
        if self._painter is None:
            from longrein.frontends.terminal.markdown import (
                MarkdownPainter,
            )  # imports rich: not before the prompt

            self._painter = MarkdownPainter(colour=self.colour)
        return self._painter

    # --- Around the screen ------------------------------------------------------------------------

    def _write_raw(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone
            self.screen.app.output.write_raw(text)
            self.screen.app.output.flush()

    @property
    def title(self) -> str:
        """Title of the session: the first line of its first prompt; '' before it."""
        return (
            self.view.prompts[0].text.strip().partition("\n")[0][:TITLE_CHARS_MAX]
            if self.view.prompts
            else ""
        )

    def _update_surroundings(self) -> None:
        """Show the present state in the window's title, its progress and the status line."""
        view, state = self.view, self.session.state
        question = next(iter(view.questions), None)
        if question:
            word = "waiting"
        elif view.busy:
            word = "working"
        else:
            word = ""
        activity = Activity(
            self.title,
            word,
            question.title if question else "",
            question.key if question else None,
            view.turn_since_s,
        )
        self.window.update(activity)
        self.status_line.update((state.seq, state.mode, self.title))

    def heard(self, answer: str) -> None:
        """Take what the terminal tells of itself."""
        if self.window.heard(answer):
            self.request_redraw()

    @contextmanager
    def another_program_has_the_terminal(self) -> Iterator[None]:
        self.window.leave()
        try:
            yield
        finally:
            self.window.enter()
            self.request_redraw()

    # --- Questions and lists ----------------------------------------------------------------------

    @property
    def _panel_wanted(self) -> bool:
        return self.feedback is None and (self.approval is not None or self.chooser is not None)

    def _follow_questions(self) -> None:
        """Show the first open question, and focus it once the user has stopped typing."""
        questions = self.view.questions
        if not questions:
            if self.approval is not None:
                self.guard.appeared()
            self.approval = None
            self.end_denial_reason()
        elif self.approval is None or self.approval.question.key not in [
            question.key for question in questions
        ]:
            self.end_denial_reason()
            self.approval = Approval(
                questions[0], content_lines(questions[0], self.opened.file_text)
            )
            self.guard.appeared()
        if self.approval is not None:
            self.approval.waiting = len(questions) - 1
        self.focus()

    @property
    def question_is_ready(self) -> bool:
        """True if keys answer the question on the screen."""
        return self.approval is not None and self.guard.is_ready(self.buffer.text, self.mono_s())

    @property
    def _waits_for_quiet(self) -> bool:
        """True if the question gets the keys after a while without any."""
        return (
            self._panel_wanted
            and not self.screen.panel_has_focus
            and not self.guard.blocks(self.buffer.text)
        )

    @property
    def subagent_question_has_focus(self) -> bool:
        return (
            self.approval is not None
            and bool(self.approval.question.session)
            and self.approval.ready
        )

    def key_pressed(self) -> None:
        self.warned, self.flash, self.escaped = (
            bool(self.flash),
            "",
            self.flash == ESCAPE_AGAIN,
        )
        save_draft_later(self)
        if not self.screen.panel_has_focus:
            self.guard.typed(self.buffer.text, self.mono_s())

    def swallows(self, key: str) -> bool:
        """Return True if `key` belongs to the last answer: it neither answers nor writes."""
        if self.chooser is not None or self.feedback is not None:
            return False
        if key != ENTER and not (len(key) == 1 and key.isprintable()):
            return False
        at_question = self.screen.panel_has_focus or self.pager is not None
        return self.guard.swallows(key, self.mono_s(), None if at_question else self.buffer.text)

    def swallow(self, key: str) -> None:
        """Drop a key that `swallows` has named."""
        self.guard.swallow(key, self.mono_s())
        self.request_redraw()

    def give_keys(self) -> bool:
        """Let the question have the keys, while the draft stays; False if it has them or there is
        none.
        """
        is_given = (
            self.approval is not None
            and self.chooser is None
            and self.feedback is None
            and self.guard.give(self.buffer.text)
        )
        self.request_redraw()
        return is_given

    def _draft_changed(self) -> None:
        if self.approval is not None:
            self.request_redraw()

    def warn(self, text: str) -> None:
        """Show `text` above the input until the next key, at most `again_s` seconds."""
        self.flash = text
        self.request_redraw()
        asyncio.get_running_loop().call_later(self.again_s, self._clear_flash, text)

    def _clear_flash(self, text: str) -> None:
        if self.flash == text:
            self.flash = ""
            self.request_redraw()

    def focus(self) -> None:
        """Focus the panel or the input, whichever should have the keys now."""
        self.screen.focus(
            panel=self._panel_wanted and (bool(self.chooser) or self.question_is_ready)
        )
        if self.approval is not None:
            self.approval.ready = self.screen.panel_has_focus
            self.approval.explaining = self.feedback is not None

    def choose(self, title: str, rows: Sequence[Row], chosen: Callable[[str], None]) -> None:
        self.open_chooser(Chooser(title, rows), chosen)

    def open_chooser(self, chooser: Chooser, chosen: Callable[[str], None]) -> None:
        """Open a list; `chosen` is called with the value of the chosen row."""
        self.chooser, self._chosen = chooser, chosen
        self.redraw()

    def close_chooser(self, *, chosen: bool, word: str = "") -> None:
        """Leave a list. `word`: follows the chosen value."""
        chooser, self.chooser = self.chooser, None
        if chooser is not None and chosen and chooser.rows:
            self._chosen(f"{chooser.chosen} {word}".rstrip())
        elif chooser is not None:
            self.leaving = None
            if self.starts_with_list:
                self.leave(Outcome("exit"))
        self.starts_with_list = False
        self.redraw()

    def begin_denial_reason(self, question: Question) -> None:
        """Let the user type the reason of a denial; the draft in the input is kept."""
        self.feedback, self._draft = question, self.buffer.text
        self.buffer.reset()

    def submit_answer(self, question: Question, answer: Answer, pressed: str = "") -> None:
        """Send the answer to a question. `pressed`: the key that has answered; '' for Enter."""
        self.view.remove_question(question)
        self.guard.answered(pressed, self.mono_s())
        self.tell(answer)

    def end_denial_reason(self) -> None:
        """Put the kept draft back into the input."""
        if self.feedback is not None:
            self.feedback = None
            self.buffer.reset()
            self.buffer.insert_text(self._draft)

    # --- Messages to the session ------------------------------------------------------------------

    def tell(self, message: InboxMessage) -> None:
        """Put a message into the session's inbox now; a `LongreinError` becomes a notice."""
        try:
            stored = self.session.tell(message)
        except LongreinError as error:
            self.notice(str(error))
            return
        self.spawn(self._stored(stored))

    async def _stored(self, stored: Awaitable[None]) -> None:
        try:
            await stored
        except LongreinError as error:
            self.notice(str(error))
        self.request_redraw()

    def edit(self, text: str) -> None:
        self.buffer.cursor_position = 0
        drafted = "\n" if self.buffer.text else ""
        self.buffer.insert_text(self.pastes.fold(text) + drafted)
        self.request_redraw()

    def say(self, text: str, *, steer: bool = False) -> None:
        """Send the user's text: as a prompt when idle, else queued, or with the next request
        (`steer`).
        """
        sent = self.pastes.expand(text).encode("utf-8", "replace").decode().replace("\0", "\ufffd")
        parts = tuple(message_parts(self, sent))
        self.buffer.history.append_string(sent)
        self.drafts.save(Draft())
        if self.approval is not None:
            self.guard.sent()
        busy = self.session.busy or any(not waiting.to for waiting in self.session.pending)
        how: Literal["prompt", "steer", "queued"] = "prompt"
        if busy:
            how = "steer" if steer else "queued"
        self.tell(UserMessage(parts, how))

    def spawn(self, act: Coroutine[Any, Any, None]) -> None:
        """Run `act` as a task that is referenced until it ends."""
        task = asyncio.get_running_loop().create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self, outcome: Outcome) -> None:
        """Close the screen. The first outcome counts."""
        self.outcome = self.outcome or outcome
        app = self.screen.app
        save_draft(self)
        if app.is_running and not app.is_done:
            self.chooser = self.approval = None
            self._outbox += [*self.view.close_groups(), *self.view.finish_reply()]
            if self.pager is not None:
                self.pager.close()
            with suppress(OSError):  # the terminal is gone
                self.redraw()
            app.exit()

    def print_resume_hint(self) -> None:
        """Print how to resume, after the screen is closed; an empty line before another session."""
        output = self.screen.app.output
        if self.outcome is None or self.outcome.kind != "exit":
            output.write("\n")
        elif self.view.prompts:
            cut = [
                f"a{subagent.seq}"
                for subagent in self.session.state.children.values()
                if subagent.ended is None
            ]
            more = (
                f", and with {counted(len(cut), 'subagent')} at work ({', '.join(cut)})"
                if cut
                else ""
            )
            more += ", and with what still waits to be said" if self.session.pending else ""
            output.write(
                translate(
                    f"session {self.session.id[:8]} is kept; `longrein -c` goes on with it{more}"
                )
                + "\n"
            )
            if self.outcome.tasks == "keep":
                output.write(translate("its tasks go on; `longrein tasks` lists them") + "\n")
        output.flush()

    @property
    def draft_text(self) -> str:
        """The unsent message, also while the input holds the reason of a denial."""
        return self._draft if self.feedback is not None else self.buffer.text

    @contextmanager
    def keyboard_paused(self) -> Iterator[None]:
        """Give the keyboard to another program."""
        with self.keyboard.paused() if self.keyboard is not None else nullcontext():
            yield

    # --- Drawing ----------------------------------------------------------------------------------

    def prompt(self) -> str:
        return (
            f"{translate('answer' if self.writes_answer else 'why not')} › "
            if self.feedback
            else "› "
        )

    @property
    def writes_answer(self) -> bool:
        return (
            self.approval is not None
            and self.approval.form is not None
            and self.approval.form.writing
        )

    def hint(self) -> str:
        if self.feedback:
            return "" if self.writes_answer else translate("what to do instead")
        if self.approval is not None and self.chooser is None:
            return self._question_hint(self.approval)
        if self._panel_wanted:
            return ""
        return translate(
            "Enter queues, Ctrl-S steers"
            if self.view.busy
            else "say something, / commands, @ files"
        )

    def _question_hint(self, approval: Approval) -> str:
        """Return the effect of Enter at the question, or the key that leads back to it."""
        if not approval.ready:
            return translate("Esc to answer") if self.guard.blocks("") else ""
        row = approval.choice_list.marked
        if row is None or (approval.form is not None and approval.form.takes_several):
            return ""
        return translate(f"Enter: {escape_line(translate(row.label))}")

    def panel_lines(self, width: int, room: int) -> list[Line]:
        """Rows above the input, at most `room`."""
        waiting = [waiting for _, waiting in self.context.queued_messages.numbered()]
        labels = {message.to: self.context.label(message.to) for message in waiting if message.to}
        below = live_area.waiting_rows(waiting, labels, width)
        below += [line(("warn", translate(self.flash)))] if self.flash else []
        if panel := self.chooser or self.approval:
            below = below[: max(room - PANEL_ROWS_MIN, 0)]
            if panel is self.approval and self.buffer.text and not self.feedback and room > 1:
                below = [*self._draft_lines(), *below]
            room -= len(below)
            gap = [EMPTY] * (room > PANEL_ROWS_MIN)
            if self.approval is not None:
                self.approval.rows_above = len(gap)
            return [*gap, *panel.draw(width, room - len(gap)), *below]
        if self.buffer.text == SHORTCUTS and not self.feedback:
            keys = chosen_keys(self.opened.app.context.settings)
            return shortcut_rows(keys, width, room)
        below = [
            *live_area.pinned_todos(
                self.session.state.todos if self.todos_pinned else (), room, width
            ),
            *below,
        ]
        room -= len(below)
        return [*(self._live[-room:] if room > 0 else ()), *below]

    def _draft_lines(self) -> list[Line]:
        """A line that the draft keeps the keys, while it does."""
        is_blocked = self.guard.blocks(self.buffer.text)
        return [line(("warn", translate("draft in the input: Esc to answer")))] * is_blocked

    def panel_drawn(self, rows: int) -> None:
        """Take note that the first `rows` rows above the input stand on the screen."""
        if self.approval is not None and self.chooser is None:
            self.approval.mark_drawn(rows)
            if rows > self.approval.rows_above:
                self.guard.drawn(self.mono_s())

    def _agents(self) -> Sequence[SubagentView]:
        """Subagents with their last acts; empty when there never were any."""
        activity = self.view.activity
        views = self.session.agents() if activity.subagents else ()
        return [
            structs.replace(v, last=activity.acts[v.child][-1]) if activity.acts.get(v.child) else v
            for v in views
        ]

    def footer(self, width: int) -> Line:
        window = self.opened.budget.usable_tokens
        agents = sum(view.state in task_rows.OPEN for view in self._agents())
        background = task_rows.counts(len(self.view.activity.tasks), agents)
        queued = len(self.session.pending)
        sandbox = confinement(self.opened)
        usd = session_usd(self.session.state, self.session.agents())
        now = figures(self.session.state, self.model, window, queued, usd, background, sandbox)
        if (wanted := self.view.mode_wanted) not in ("", now.mode) and now.mode != BYPASS:
            now = structs.replace(now, mode=f"{now.mode} → {wanted}")
        vim = self.screen.vim_mode
        head = (("bold", vim), ("dim", " · ")) if vim else ()
        return (*head, *footer_line(now, state_word(self.view), width - len(vim) - 3 * bool(vim)))
