"""The slash commands: one table of names, help texts and functions, for the screen and the plain terminal."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from longrein.agent import (
    Compact,
    InboxMessage,
    PendingMessage,
    Pin,
    Rewind,
    SessionPort,
    SetMode,
    SetModel,
    StopChild,
    StopTask,
    SubagentView,
    Uncompact,
    Unpin,
    UserMessage,
)
from longrein.context import Report, State
from longrein.events import Text, ToolCall
from longrein.frontends import text_format
from longrein.frontends.reports.context import item_rows, reason_rows
from longrein.frontends.reports.goals import goal_rows
from longrein.frontends.terminal import event_lines, task_rows
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.event_lines import Line, line
from longrein.frontends.terminal.interface import Outcome, TerminalFacts
from longrein.frontends.terminal.message_queue import MessageQueue
from longrein.frontends.terminal.task_rows import OPEN
from longrein.frontends.terminal.view_model import ViewModel
from longrein.frontends.text_format import escape, escape_line, key_argument

MODES = ("default", "acceptEdits", "plan")
"""Modes that Shift-Tab cycles through. `bypassPermissions` must be typed."""
EVERY_MODE = (*MODES, "bypassPermissions")
TAIL_LINES = 20
"""Default number of lines of a task's output."""
TAIL_LINES_MAX = 1_000
NUMBER_DIGITS_MAX = 15
HELP_CELLS = 24
"""Width of the first column of the help."""

NOTHING_RUNS = "no command runs that could go to the background"
TOO_LATE = "that message waits no more: it has been delivered"
NOTHING_SAID = "nothing was said yet, so there is nothing to go back to"


class Choices(msgspec.Struct, frozen=True):
    """A list to choose from. The plain terminal shows each row as the command to type."""

    title: str
    rows: Sequence[Row]
    chosen: "Callable[[str], MaybeAwaitable] | None" = None
    """Called with the value of a row; None: run the same command with the value as its argument."""
    hint: str = ""
    """Text under the rows on the plain terminal."""


class CommandResult(msgspec.Struct, frozen=True):
    """Output of a command, and the actions it asks for."""

    title: str = ""
    rows: Sequence[Line] = ()
    notice: str = ""
    """One line, in place of the rows."""
    edit: str = ""
    """Text for the input."""
    word: InboxMessage | None = None
    """A message to the session. Its effect arrives as an update, or is described by `notice`."""
    choices: Choices | None = None
    outcome: Outcome | None = None
    """Leave the session with this outcome."""


MaybeAwaitable = CommandResult | Awaitable[CommandResult]
"""Commands that need not wait return directly, so that messages reach the session in the order typed."""


class Command(msgspec.Struct, frozen=True):
    """One command."""

    name: str
    argument: str
    """Argument as shown in the help; '' for none."""
    summary: str
    run: "Callable[[CommandContext, str], MaybeAwaitable]"
    """Function of the context and the argument. May raise `LongreinError`."""
    idle_only: bool = False
    """Whether the screen refuses it while a turn runs. The plain terminal accepts it: its lines run ahead of turns."""
    many_lines: bool = False
    """Whether its argument may have several lines."""


class CommandContext:
    """Session, facts and view model for the commands, and the commands about background work and messages."""

    def __init__(self, session: SessionPort, facts: TerminalFacts, view: ViewModel) -> None:
        self.session, self.facts, self.view = session, facts, view
        self.queued_messages = MessageQueue(session)

    def label(self, child: str) -> str:
        """Label of a subagent; '' when unknown."""
        worker = self.view.activity.subagents.get(child)
        return worker.label if worker else next((v.label for v in self.session.agents() if v.child == child), "")

    def command_line_for(self, taken: PendingMessage) -> str:
        """Input text that sends a message again after it was taken back."""
        return f"/agents tell {self.label(taken.to)} {taken.text}" if taken.to else taken.text

    # --- Tasks -------------------------------------------------------------------------------------------------------

    async def tasks(self, argument: str) -> CommandResult:
        """/tasks: list tasks, show the end of a task's output, or stop a task."""
        views = self.session.tasks()
        word, _, rest = argument.partition(" ")
        if not word:
            return CommandResult("background tasks", task_rows.task_list(views))
        wanted = rest.strip() if word == "stop" else word
        view = next((one for one in views if one.id == wanted), None)
        if view is None:
            known = ", ".join(one.id for one in views) or "there are none"
            return CommandResult(notice=f"no task {escape_line(wanted) or '(say which)'}; known: {escape_line(known)}")
        if word == "stop":
            if view.state not in OPEN:
                return CommandResult(notice=f"task {view.id} is over already: {view.state}")
            await self.session.tell(StopTask(view.id))
            return CommandResult(notice=f"task {view.id} is being stopped")
        lines = min(_number(rest.strip()), TAIL_LINES_MAX) if rest.strip() else TAIL_LINES
        if lines < 0:
            return CommandResult(notice=f"say how many lines: /tasks {view.id} 50")
        tail = await self.facts.task_tail(view.id, lines)
        rows = [line("  ", row) for row in escape(tail).expandtabs(4).splitlines()]
        return CommandResult(
            f"task {view.id}", [task_rows.task_line(view), *(rows or [line(("dim", "  no output yet"))])]
        )

    # --- Subagents ---------------------------------------------------------------------------------------------------

    async def agents(self, argument: str) -> CommandResult:
        """/agents: list subagents, show one, stop one, or send one a message."""
        views = self.session.agents()
        word, _, rest = argument.partition(" ")
        if not word:
            return CommandResult("subagents", task_rows.agent_list(views))
        wanted, _, text = rest.strip().partition(" ") if word in ("stop", "tell") else (word, "", "")
        if word == "tell" and "\n" in wanted:
            wanted, _, text = rest.strip().partition("\n")
        view = next((one for one in views if one.label in (wanted, f"a{wanted}")), None)
        if view is None:
            known = ", ".join(one.label for one in views) or "there are none"
            back = f"/agents {argument}" if text else ""
            notice = f"no subagent {escape_line(wanted) or '(say which)'}; known: {escape_line(known)}"
            return CommandResult(notice=notice, edit=back)
        if word in ("stop", "tell"):
            return await self._stop_or_tell(view, word, text.strip())
        return self._agent_page(view)

    async def _stop_or_tell(self, view: SubagentView, word: str, text: str) -> CommandResult:
        again = f"/agents tell {view.label} {text}" if text else ""
        if view.state not in OPEN:
            return CommandResult(
                notice=f"{view.label} is over ({view.state}); ask the model to ask it again", edit=again
            )
        if word == "stop":
            await self.session.tell(StopChild(view.child))
            return CommandResult(notice=f"{view.label} is being stopped; it reports what it has")
        if not text:
            return CommandResult(notice=f"say what: /agents tell {view.label} TEXT")
        stored = self.session.tell(UserMessage((Text(text),), "steer", view.child))
        waits = any(one.to == view.child and one.text == text for one in self.session.pending)
        await stored
        return CommandResult() if waits else CommandResult(edit=again)  # the subagent has just ended

    def _agent_page(self, view: SubagentView) -> CommandResult:
        worker, now = self.view.activity.subagents.get(view.child), self.session.state.children.get(view.child)
        task = worker.started.task if worker else now.started.task if now else ""
        report = now.ended.report if now and now.ended else ""
        acts = [*self.view.activity.acts.get(view.child, ())]
        return CommandResult(f"subagent {view.label}", task_rows.agent_page(view, task, report, acts))

    # --- Stop --------------------------------------------------------------------------------------------------------

    def _call_text(self, call: ToolCall) -> str:
        stated = self.session.state.traits_of(call.name).key_argument
        return f"{call.name} {key_argument(call.arguments, stated)}".rstrip()

    def running(self) -> list[Row]:
        """Calls, subagents and tasks that can be stopped."""
        calls = [(call, one) for call, one in self.session.state.calls.items() if one.started]
        return [
            *(Row(call, self._call_text(one.call), "call") for call, one in calls),
            *(Row(v.label, f"{v.kind}: {v.description}", v.label) for v in self.session.agents() if v.state in OPEN),
            *(Row(v.id, v.command, v.id) for v in self.session.tasks() if v.state in OPEN),
        ]

    def stop(self, wanted: str) -> MaybeAwaitable:
        """/stop: stop a call, subagent or task; without an id, choose."""
        rows = self.running()
        if not wanted and rows:
            return CommandResult(choices=Choices("stop which?", rows))
        found = next((row for row in rows if row.value == wanted), None)
        if found is None:
            missing = f"nothing that runs is called {escape_line(wanted)}; /stop lists what can be stopped"
            return CommandResult(notice=missing if wanted else "nothing runs that could be stopped")
        if found.note == "call":
            self.session.cancel(wanted)
            return CommandResult(notice=f"{found.label} is being stopped")
        if any(view.label == wanted for view in self.session.agents()):
            return self.agents(f"stop {wanted}")
        return self.tasks(f"stop {wanted}")

    # --- Goals, messages ---------------------------------------------------------------------------------------------

    async def goals(self, argument: str) -> CommandResult:
        """/goals: list or change goals of the project."""
        if self.facts.goals is None:
            return CommandResult(notice="goals are kept by project, and here is none")
        return CommandResult("goals", [line(f"  {row}") for row in await goal_rows(self.facts.goals, argument)])

    def queue(self, argument: str) -> CommandResult:
        """/queue: list waiting messages, take one back, or drop one."""
        drop, _, number = argument.partition(" ") if argument.startswith("drop ") else ("", "", argument)
        if not number:
            numbered = self.queued_messages.numbered()
            labels = {one.to: self.label(one.to) for _, one in numbered if one.to}
            return CommandResult("waiting messages", task_rows.queue_list(numbered, labels))
        if _number(number) < 0:
            return CommandResult(notice="say which: /queue NUMBER, /queue drop NUMBER; /queue lists them")
        taken = self.queued_messages.take(_number(number)) if _number(number) else None
        if taken is None:
            return CommandResult(notice=TOO_LATE)
        return (
            CommandResult(notice=f"thrown away: {taken.text}")
            if drop
            else CommandResult(edit=self.command_line_for(taken))
        )

    def background(self, _: str) -> CommandResult:
        """/background: move the running command to the background."""
        return CommandResult(notice="" if self.session.background() else NOTHING_RUNS)


# --- Session commands ------------------------------------------------------------------------------------------------


def _help(_: CommandContext, __: str) -> CommandResult:
    return CommandResult("commands and keys", help_lines())


def _model(context: CommandContext, name: str) -> CommandResult:
    names = context.facts.models()
    if name or not names:
        return CommandResult(word=SetModel(name)) if name else CommandResult(notice="say which: /model PROVIDER/MODEL")
    return CommandResult(choices=Choices("which model?", [Row(one, one) for one in names]))


def _mode(context: CommandContext, mode: str) -> CommandResult:
    if not mode:
        return CommandResult(choices=Choices("which mode?", [Row(one, one) for one in EVERY_MODE]))
    if mode not in EVERY_MODE:
        return CommandResult(notice=f"there is no mode {escape_line(mode)}; it is one of {', '.join(EVERY_MODE)}")
    if mode == context.session.state.mode and not context.session.busy:
        return CommandResult(notice=f"the mode is {mode} already")
    return CommandResult(word=SetMode(mode))


def _clear(_: CommandContext, __: str) -> CommandResult:
    return CommandResult(outcome=Outcome("new"))


def _exit(_: CommandContext, __: str) -> CommandResult:
    return CommandResult(outcome=Outcome("exit"))


def _resume(context: CommandContext, session: str) -> MaybeAwaitable:
    return CommandResult(outcome=Outcome("switch", session)) if session else _sessions(context)


async def _sessions(context: CommandContext) -> CommandResult:
    rows = await context.facts.sessions() if context.facts.sessions is not None else ()
    others = [Row(r.id, r.title or "(nothing said yet)", r.when) for r in rows if r.id != context.session.id]
    if not others:
        return CommandResult(notice="there is no other session of this folder")
    return CommandResult(choices=Choices("which session?", others))


def _rewind(context: CommandContext, argument: str) -> CommandResult:
    seq, _, rest = argument.partition(" ")
    said = next((prompt for prompt in context.view.prompts if prompt.seq == _number(seq)), None)
    if said is not None and rest.strip() in ("", "files"):
        return CommandResult(word=Rewind(said.seq - 1, bool(rest)), edit=said.text)
    if not context.view.prompts:
        return CommandResult(notice=NOTHING_SAID)
    rows = [Row(str(one.seq), one.text.partition("\n")[0][:300]) for one in reversed(context.view.prompts)]
    hint = (
        f"with the word files (/rewind {rows[0].value} files) files go back too, where they are as longrein wrote them"
    )
    return CommandResult(choices=Choices("go back to before which of your words?", rows, _rewind_what, hint))


def _rewind_what(seq: str) -> CommandResult:
    rows = [
        Row(seq, "the conversation only", "files stay as they are"),
        Row(f"{seq} files", "the conversation and the files", "where they are still as longrein wrote them"),
    ]
    return CommandResult(choices=Choices("what goes back?", rows))


def _compact(context: CommandContext, focus: str) -> CommandResult:
    if focus == "--dry-run":
        rows = [line(escape_line(row)) for row in context.facts.analysis()]
        return CommandResult("what a compaction would do now", rows)
    return _uncompact(context, "") if focus == "--undo" else CommandResult(word=Compact(focus))


def _uncompact(_: CommandContext, handle: str) -> CommandResult:
    seq = _number(handle.removeprefix("r")) if handle else 0
    return (
        CommandResult(word=Uncompact(seq))
        if seq >= 0
        else CommandResult(notice="say which: /uncompact r412, or nothing for the last one")
    )


def _context(context: CommandContext, handle: str) -> CommandResult:
    if handle:
        rows = [line(escape_line(row)) for row in reason_rows(context.facts.reasons(handle))]
        return CommandResult(f"why {escape_line(handle)} stands as it does", rows)
    report = context.facts.context_report()
    return (
        CommandResult("what fills the context", context_lines(report))
        if report
        else CommandResult(notice="nothing is known of it yet")
    )


def _pin(context: CommandContext, text: str) -> CommandResult:
    if not text:
        return _pins(context, "")
    if text in context.session.state.pins:
        return CommandResult(notice=f"it is pinned already: {escape_line(text)}")
    return CommandResult(word=Pin(text), notice=f"pinned: {escape_line(text)}")


def _unpin(context: CommandContext, number: str) -> CommandResult:
    pins, n = context.session.state.pins, _number(number)
    if n < 0:
        return CommandResult(notice="say which: /unpin NUMBER; /pins lists them")
    if not 0 < n <= len(pins):
        return CommandResult(notice=f"there is no pin {n}; /pins lists them")
    return CommandResult(word=Unpin(n), notice=f"no longer pinned: {escape_line(pins[n - 1])}")


def _pins(context: CommandContext, _: str) -> CommandResult:
    return CommandResult("pinned", pin_lines(context.session.state.pins))


def _cost(context: CommandContext, _: str) -> CommandResult:
    return CommandResult("what this session used", cost_lines(context.session.state))


def _number(text: str) -> int:
    """`text` as a number; -1 when it is not a number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX else -1


COMMANDS = (
    Command("help", "", "commands and keys", _help),
    Command("model", "[PROVIDER/MODEL]", "change the model", _model),
    Command("mode", "[MODE]", "which calls are asked about; without MODE, choose", _mode),
    Command("clear", "", "begin a new session; this one stays on disk", _clear, idle_only=True),
    Command("resume", "[ID]", "go on with another session", _resume, idle_only=True),
    Command("rewind", "[N [files]]", "go back to before something you said", _rewind, idle_only=True),
    Command("compact", "[FOCUS]", "make room now, keeping FOCUS; --dry-run only tells", _compact, idle_only=True),
    Command("uncompact", "[rSEQ]", "undo the last compaction, or that one", _uncompact, idle_only=True),
    Command("context", "[rN]", "what fills the context; why rN stands as it does", _context),
    Command("pin", "TEXT", "keep TEXT word for word through compactions", _pin),
    Command("unpin", "NUMBER", "drop a pin", _unpin),
    Command("pins", "", "what is pinned", _pins),
    Command("cost", "", "what was used and spent", _cost),
    Command("tasks", "[ID | stop ID]", "background tasks; ID shows the end of its output", CommandContext.tasks),
    Command(
        "agents",
        "[ID | stop ID | tell ID TEXT]",
        "subagents; ID shows its task, acts and report",
        CommandContext.agents,
        many_lines=True,
    ),
    Command("goals", "[add TITLE | …]", "goals of the project; /goals help tells more", CommandContext.goals),
    Command("queue", "[N | drop N]", "messages that wait; N takes one back to the input", CommandContext.queue),
    Command("stop", "[ID]", "stop one call, task or subagent that runs", CommandContext.stop),
    Command("background", "", "send the running command to the background", CommandContext.background),
    Command("exit", "", "leave; `longrein -c` goes on", _exit),
)

KEYS = (
    ("Enter", "send; while a turn goes on: queue for after it"),
    ("Ctrl-S", "steer: send into the turn that goes on"),
    ("Ctrl-B", "background the running command (in tmux: twice)"),
    ("Alt-Enter, Ctrl-J", "new line"),
    ("Esc, Ctrl-C", "interrupt; Ctrl-C twice leaves"),
    ("↑ on an empty line", "take a queued message back; else history"),
    ("Shift-Tab", "next permission mode"),
    ("@", "complete a file name"),
    ("Ctrl-L", "redraw"),
    ("Ctrl-Z", "stop longrein until `fg`, while commands go on"),
    ("Ctrl-D", "leave"),
)


class ParsedCommand(msgspec.Struct, frozen=True):
    """A parsed command line."""

    command: Command | None
    """None for an unknown command."""
    name: str
    argument: str


def parse(text: str) -> ParsedCommand | None:
    """Parse `text` as a command; None when it is a message, such as `/usr/bin/x fails`."""
    if not text.startswith("/"):
        return None
    name, _, argument = text[1:].partition(" ")
    if not name.replace("-", "").isalnum():
        return None
    name = {"quit": "exit", "new": "clear", "?": "help", "bg": "background"}.get(name, name)
    found = next((command for command in COMMANDS if command.name == name), None)
    if "\n" in text and not (found and found.many_lines):
        return None
    return ParsedCommand(found, name, argument.strip())


def command_named(name: str) -> Command:
    """The command called `name`."""
    return next(command for command in COMMANDS if command.name == name)


def unknown_command_text(name: str) -> str:
    """Error text for an unknown command, with the nearest name."""
    near = [command.name for command in COMMANDS if command.name[:2] == name[:2] or name in command.name]
    hint = f"did you mean /{near[0]}?" if near else "/help lists them"
    return f"there is no command /{escape_line(name)}; {hint}"


def help_lines() -> list[Line]:
    """All commands and keys in two columns that fit 80 cells; a long name gets a line of its own."""
    rows: list[Line] = []
    for command in COMMANDS:
        rows += _help_rows(f"/{command.name} {command.argument}".rstrip(), command.summary)
    rows.append(())
    return rows + [row for key, summary in KEYS for row in _help_rows(key, summary)]


def _help_rows(name: str, summary: str) -> list[Line]:
    if len(name) <= HELP_CELLS:
        return [line(("name", f"  {name.ljust(HELP_CELLS)}  "), summary)]
    return [line(("name", f"  {name}")), line(" " * (HELP_CELLS + 4), summary)]


def cost_lines(state: State) -> list[Line]:
    """Requests, tokens and money that the session used."""
    used = state.usage
    share = f" ({100 * used.cache_read_tokens / used.context_tokens:.0f}% of input)" if used.context_tokens else ""
    rows = (
        ("requests", str(state.asks)),
        ("input, not cached", text_format.tokens(used.input_tokens)),
        ("read from cache", text_format.tokens(used.cache_read_tokens) + share),
        ("written to cache", text_format.tokens(used.cache_write_tokens)),
        ("output", text_format.tokens(used.output_tokens)),
        ("spent", text_format.money(event_lines.spent_usd(state))),
    )
    return [line(("dim", f"  {name:<20}"), value) for name, value in rows]


def context_lines(report: Report) -> list[Line]:
    """One bar for each module, the free space, then the largest items."""
    modules, window = report.modules(), report.usable_tokens
    most = max(window, report.total_tokens, 1)
    wide = max([len(name) for name, _ in modules] + [5])
    rows = [_share(name, count, most, wide, "run") for name, count in modules]
    rows.append(_share("free", max(window - report.total_tokens, 0), most, wide, "dim"))
    total = f"{text_format.tokens(report.total_tokens):>7} of {text_format.tokens(window)} tokens"
    rows.append(line(("bold", f"  {'all'.ljust(wide)}  {total}")))
    rows.append(line(("dim", f"  estimates are corrected by {report.factor:.2f} to match the provider's counts")))
    return rows + [line(("dim", escape_line(row))) for row in item_rows(report)]


def pin_lines(pins: Sequence[str]) -> list[Line]:
    """The pinned constraints, numbered."""
    rows = [line(("name", f"  {n} "), escape_line(pin)) for n, pin in enumerate(pins, 1)]
    return rows or [line(("dim", "  nothing is pinned; /pin TEXT keeps TEXT word for word through every compaction"))]


def _share(name: str, count: int, most: int, wide: int, style: str) -> Line:
    bar = "█" * round(24 * count / most)
    return line(
        f"  {escape_line(name).ljust(wide)}  {text_format.tokens(count):>7} {100 * count / most:>3.0f}% ", (style, bar)
    )


def next_mode(mode: str) -> str:
    """The mode that Shift-Tab selects after `mode`."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]
