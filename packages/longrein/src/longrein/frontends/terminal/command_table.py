"""The slash commands: one table of names, help texts and functions, for the screen and the plain
terminal.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from longrein.agent import (
    BYPASS,
    Compact,
    OpenSession,
    SetModel,
    StopSubagent,
    StopTask,
    SubagentView,
    Uncompact,
    UserMessage,
    bypass_warning,
    working_agents,
)
from longrein.agent.extension_part import SlashCommand
from longrein.app.user_requests import mode_message, pin_message, unpin_message
from longrein.choices import MODE_TEXTS
from longrein.config.stored_keys import ProviderKey
from longrein.frontends.goals_command import goal_rows
from longrein.frontends.localization import translate
from longrein.frontends.provider_keys import (
    KEPT,
    VARIABLE,
    forget_key,
    ignored_key,
    key_of,
    key_question,
    prefer_key,
    providers_with_keys,
)
from longrein.frontends.reports.context import item_rows, reason_rows
from longrein.frontends.reports.cost import cost_rows, usage_rows
from longrein.frontends.secret_input import SecretQuestion
from longrein.frontends.terminal import task_rows, themes
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.command_types import (
    KEEP,
    Choices,
    Command,
    CommandContext,
    CommandResult,
    MaybeAwaitable,
    done,
    notice,
    without_keep,
)
from longrein.frontends.terminal.command_types import leave as _leave
from longrein.frontends.terminal.command_types import number as _number
from longrein.frontends.terminal.event_lines import (
    BESIDE,
    COLUMN,
    OPTIONAL,
    Line,
    Span,
    cells,
    line,
    pad,
    plain,
)
from longrein.frontends.terminal.keymap import SHORTCUTS, chosen_keys, key_rows
from longrein.frontends.terminal.page_view import Page
from longrein.frontends.terminal.prompt_commands import PROMPT_COMMANDS
from longrein.frontends.terminal.report_commands import REPORT_COMMANDS
from longrein.frontends.terminal.session_commands import SESSION_COMMANDS, rewind
from longrein.frontends.terminal.task_rows import OPEN
from longrein.options import MODES as EVERY_MODE
from longrein.permissions.hook_protocol import hook_line
from longrein.steps import human_text
from longrein.steps.human_text import escape, escape_line, joined, key_argument
from longrein.tools import SkillInfo
from longrein_context import Budget, Report, State
from longrein_context.events import Text, ToolCall, UsageError
from longrein_context.events.escape import shortened

MODES = ("default", "acceptEdits", "plan", "auto")
"""Modes that Shift-Tab cycles through. `dontAsk` and `bypassPermissions` must be typed."""
TAIL_LINES = 20
TAIL_LINES_MAX = 1_000

NOTHING_RUNS = "no command runs that could go to the background"
TOO_LATE = "that message waits no more: it has been delivered"


def _unknown(kind: str, wanted: str, known: Sequence[str]) -> str:
    names = escape_line(", ".join(known)) or "there are none"
    return f"no {kind} {escape_line(wanted) or translate('(say which)')}; known: {names}"


# --- Tasks, subagents, goals ----------------------------------------------------------------------


async def _tasks(context: CommandContext, argument: str) -> CommandResult:
    views = context.session.tasks()
    word, _, rest = argument.partition(" ")
    if not word:
        return CommandResult("background tasks", task_rows.task_list(views))
    wanted = rest.strip() if word == "stop" else word
    view = next((view for view in views if view.id == wanted), None)
    if view is None:
        return notice(_unknown("task", wanted, [view.id for view in views]))
    if word == "stop":
        if view.state not in OPEN:
            return notice(f"task {view.id} is over already: {view.state}")
        await context.session.tell(StopTask(view.id))
        return done(f"task {view.id} is being stopped")
    lines = min(_number(rest.strip()), TAIL_LINES_MAX) if rest.strip() else TAIL_LINES
    if lines < 0:
        return notice(f"say how many lines: /tasks {view.id} 50")
    tail = await context.opened.task_tail(view.id, lines)
    rows = [line("  ", row) for row in escape(tail).expandtabs(4).splitlines()] or [
        line(("dim", translate("  no output yet")))
    ]
    return CommandResult(f"task {view.id}", [task_rows.task_line(view), *rows])


async def _agents(context: CommandContext, argument: str) -> CommandResult:
    views = context.session.agents()
    word, _, rest = argument.partition(" ")
    if not word:
        return CommandResult("subagents", task_rows.agent_list(views))
    wanted, text = [*rest.split(None, 1), "", ""][:2] if word in ("stop", "tell") else (word, "")
    view = next((view for view in views if view.label in (wanted, f"a{wanted}")), None)
    if view is None:
        unknown = _unknown("subagent", wanted, [view.label for view in views])
        return notice(unknown, edit=f"/agents {argument}" if text else "")
    if word in ("stop", "tell"):
        return await _stop_or_tell(context, view, word, text.strip())
    known, now = (
        context.view.activity.subagents.get(view.child),
        context.session.state.children.get(view.child),
    )
    if known:
        task = known.started.task
    elif now:
        task = now.started.task
    else:
        task = ""
    report = now.ended.report if now and now.ended else ""
    acts = [*context.view.activity.acts.get(view.child, ())]
    rows, whole = task_rows.agent_page(view, task, report, acts), await _show(context, view.label)
    return CommandResult(f"subagent {view.label}", rows, page=whole.page)


async def _stop_or_tell(
    context: CommandContext, view: SubagentView, word: str, text: str
) -> CommandResult:
    again = f"/agents tell {view.label} {text}" if text else ""
    if view.state not in OPEN:
        return notice(
            f"{view.label} is over ({view.state}); ask the model to ask it again", edit=again
        )
    if word == "stop":
        await context.session.tell(StopSubagent(view.child))
        return done(f"{view.label} is being stopped; it reports what it has")
    if not text:
        return notice(f"say what: /agents tell {view.label} TEXT")
    stored = context.session.tell(UserMessage((Text(text),), "steer", view.child))
    waits = any(
        waiting.to == view.child and waiting.text == text for waiting in context.session.pending
    )
    await stored
    return CommandResult() if waits else CommandResult(edit=again)  # the subagent has just ended


def _call_text(state: State, call: ToolCall) -> str:
    """Name of a call and the argument that describes it."""
    return f"{call.name} {key_argument(call.arguments, state.traits_of(call.name).key_argument)}".rstrip()  # noqa: E501


def _running(session: OpenSession) -> list[Row]:
    calls = [(id_, now.call) for id_, now in session.state.calls.items() if now.started]
    return [
        *(Row(id_, _call_text(session.state, call), "call") for id_, call in calls),
        *(
            Row(v.label, f"{v.kind}: {v.description}", v.label)
            for v in session.agents()
            if v.state in OPEN
        ),
        *(Row(v.id, v.command, v.id) for v in session.tasks() if v.state in OPEN),
    ]


def _stop(context: CommandContext, wanted: str) -> MaybeAwaitable:
    rows = _running(context.session)
    if not wanted and rows:
        return CommandResult(choices=Choices("stop which?", rows))
    found = next((row for row in rows if row.value == wanted), None)
    if found is None:
        missing = (
            f"nothing that runs is called {escape_line(wanted)}; /stop lists what can be stopped"
        )
        return notice(missing if wanted else "nothing runs that could be stopped")
    if found.note == "call":
        context.session.cancel(wanted)
        return done(f"{found.label} is being stopped")
    is_agent = any(view.label == wanted for view in context.session.agents())
    return (_agents if is_agent else _tasks)(context, f"stop {wanted}")


async def _goals(context: CommandContext, argument: str) -> CommandResult:
    rows = await goal_rows(context.opened.goals, argument)
    return CommandResult("goals", [line(f"  {row}") for row in rows])


async def _login(context: CommandContext, argument: str) -> CommandResult:
    opened = context.opened
    place = opened.app.context
    provider, _, word = argument.partition(" ")
    if not provider:
        rows = [_key_row(key_of(place, name)) for name in providers_with_keys(place)]
        lasts = "the key is kept until /logout removes it"
        return CommandResult(choices=Choices("key of which provider?", rows, lasts=lasts))
    if word:
        told = prefer_key(place, provider, word.strip())
        return done(f"{told}{_next_request(context, provider)}")
    question = key_question(place, provider)

    def keep(text: str) -> str:
        told = question.keep(text)
        opened.hide_key(text.strip())
        is_used = key_of(place, provider).uses_kept
        return f"{told}{_next_request(context, provider)}" if is_used else told

    secret = SecretQuestion(question.text, keep)
    return CommandResult(secret=secret, follow_up=lambda: _which_key(context, provider))


def _key_row(found: ProviderKey) -> Row:
    source = found.source if found.key else "no key"
    return Row(found.provider, found.provider, joined(source, ignored_key(found), by="; "))


def _next_request(context: CommandContext, provider: str) -> str:
    if context.opened.renew_key(provider):
        return "; the next request uses it"
    return f"; /model chooses a model of {provider}"


def _which_key(context: CommandContext, provider: str) -> CommandResult:
    """Offer to use the key that was just kept, where a variable comes first."""
    found = key_of(context.opened.app.context, provider)
    if found.uses_kept or not found.variable:
        return CommandResult()
    rows = [
        Row(
            f"{provider} {KEPT}",
            "the key that you just entered",
            f"until longrein ends; unset {found.variable} to make it last",
        ),
        Row(f"{provider} {VARIABLE}", f"the key from {found.variable}", "as before"),
    ]
    return CommandResult(
        choices=Choices(f"{found.variable} is set and comes first; use which key now?", rows)
    )


async def _logout(context: CommandContext, provider: str) -> CommandResult:
    return done(forget_key(context.opened.app.context, provider))


# --- Messages -------------------------------------------------------------------------------------


def _queue(context: CommandContext, argument: str) -> CommandResult:
    drop, _, number = (
        argument.partition(" ") if argument.startswith("drop ") else ("", "", argument)
    )
    if not number:
        numbered = context.queued_messages.numbered()
        labels = {waiting.to: context.label(waiting.to) for _, waiting in numbered if waiting.to}
        return CommandResult("waiting messages", task_rows.queue_list(numbered, labels))
    if _number(number) < 0:
        return notice("say which: /queue NUMBER, /queue drop NUMBER; /queue lists them")
    taken = context.queued_messages.take(_number(number)) if _number(number) else None
    if taken is None:
        return notice(TOO_LATE)
    return (
        done(f"thrown away: {taken.text}")
        if drop
        else CommandResult(edit=context.command_line_for(taken))
    )


def _background(context: CommandContext, _: str) -> CommandResult:
    return notice("" if context.session.background() else NOTHING_RUNS)


# --- The session and its context ------------------------------------------------------------------


def _model(context: CommandContext, argument: str) -> CommandResult:
    names = context.opened.models()
    name, keeps = without_keep(argument)
    if name:
        full = context.opened.full_model(name)
        kept = context.opened.app.keep_setting(("model",), full) if keeps else ""
        return CommandResult(message=SetModel(full), notice=kept, is_done=True)
    if not names:
        return notice("say which: /model PROVIDER/MODEL")
    present = context.opened.model
    rows = [
        Row(name, name, model_note(context.opened.app.budget(name)), is_present=name == present)
        for name in names
    ]
    return CommandResult(choices=Choices("which model?", rows, keeps=True))


def model_note(budget: Budget) -> str:
    """Return the window and the price of a model in words."""
    window = f"{budget.window_tokens // 1_000:,}k window"
    price = budget.price
    if price is None:
        return f"{window}, price not known"
    if not price.input and not price.output:
        return f"{window}, costs nothing"
    return f"{window}, ${price.input:g} in and ${price.output:g} out per million tokens"


def _mode(context: CommandContext, mode: str) -> CommandResult:
    if not mode:
        present = context.session.state.mode
        rows = [
            Row(one, one, translate(MODE_TEXTS[one]).replace("`", ""), is_present=one == present)
            for one in EVERY_MODE
        ]
        lasts = "for this session; permission_mode in the settings makes it last"
        return CommandResult(choices=Choices("which mode?", rows, lasts=lasts))
    try:
        message = mode_message(mode)
    except UsageError as error:
        return notice(str(error))
    if mode == context.session.state.mode and not context.session.busy:
        return notice(f"the mode is {mode} already")
    return CommandResult(
        message=message,
        notice=bypass_warning(context.opened.app.is_root) if mode == BYPASS else "",
    )


def _clear(_: CommandContext, __: str) -> CommandResult:
    return _leave("new")


def _compact(context: CommandContext, focus: str) -> CommandResult:
    if focus == "--dry-run":
        rows = [line(escape_line(translate(row))) for row in context.opened.compaction_analysis()]
        return CommandResult("what a compaction would do now", rows)
    return _uncompact(context, "") if focus == "--undo" else CommandResult(message=Compact(focus))


def _uncompact(_: CommandContext, handle: str) -> CommandResult:
    seq = _number(handle.removeprefix("r")) if handle else 0
    if seq < 0:
        return notice("say which: /uncompact r412, or nothing for the last one")
    return CommandResult(message=Uncompact(seq))


def _context(context: CommandContext, handle: str) -> CommandResult:
    if handle:
        reasons = reason_rows(context.opened.line_reasons(handle))
        rows = [line(escape_line(head), COLUMN, escape_line(rest)) for head, rest in reasons]
        return CommandResult(f"why {escape_line(handle)} stands as it does", rows)
    report = context.opened.context_report()
    return CommandResult("what fills the context", context_lines(report))


async def _show(context: CommandContext, handle: str) -> CommandResult:
    from longrein.frontends.terminal.entry_pages import openable_rows, shown_page

    if handle:
        found = await context.opened.read_history(lambda past: shown_page(past, handle))
        return CommandResult(page=found) if isinstance(found, Page) else notice(found)
    rows = await context.opened.read_history(openable_rows)
    return (
        CommandResult(choices=Choices("open what?", rows))
        if rows
        else notice("there is nothing to open yet")
    )


def _pin(context: CommandContext, text: str) -> CommandResult:
    if not text:
        return _pins(context, "")
    try:
        message = pin_message(context.session.state, text)
    except UsageError as error:
        return notice(str(error))
    return CommandResult(message=message, notice=f"pinned: {escape_line(text)}", is_done=True)


def _unpin(context: CommandContext, number: str) -> CommandResult:
    try:
        message, pin = unpin_message(context.session.state, number.strip())
    except UsageError as error:
        return notice(str(error))
    return CommandResult(
        message=message, notice=f"no longer pinned: {escape_line(pin)}", is_done=True
    )


def _hooks(context: CommandContext, _: str) -> CommandResult:
    rows = [
        line(
            "  ",
            COLUMN,
            f"{'' if runs else translate('not confirmed: ')}{escape_line(hook_line(hook))}  ",
            ("dim", escape_line(hook.source)),
        )
        for hook, runs in context.opened.hooks()
    ]
    return CommandResult("hooks", rows or [line(("dim", translate("  no hook runs here")))])


def _pins(context: CommandContext, _: str) -> CommandResult:
    rows = [
        line(("name", f"  {n} "), COLUMN, escape_line(pin))
        for n, pin in enumerate(context.session.state.pins, 1)
    ]
    none = line(
        (
            "dim",
            translate(
                "  nothing is pinned; /pin TEXT keeps TEXT word for word through every compaction"
            ),
        )
    )
    return CommandResult("pinned", rows or [none])


async def _cost(context: CommandContext, _: str) -> CommandResult:
    session = context.session
    costs = await context.opened.read_history(lambda past: cost_rows(past.entries()))
    rows = usage_rows(costs, working_agents(session.state, session.agents()))
    by_model = [line(f"  {escape_line(row.name)}: ", COLUMN, row.figures) for row in costs]
    lines = [
        line(("dim", f"  {pad(translate(name), 20)}"), COLUMN, translate(value))
        for name, value in rows
    ]
    return CommandResult("what this session used", [*lines, *by_model])


BAR_CELLS = 24
"""Columns of the longest bar of `/context`."""


def context_lines(report: Report) -> list[Line]:
    """A bar for each module, the free space, then the largest items."""
    window = report.usable_tokens
    most = max(window, report.total_tokens, 1)
    shares = [(translate(name), count, "run") for name, count in report.modules()]
    shares.append((translate("free"), max(window - report.total_tokens, 0), "dim"))
    wide = max(5, *(cells(name) for name, _, _ in shares))
    rows = [
        line(
            f"  {pad(escape_line(name), wide)}  {human_text.tokens(count):>7} "
            f"{100 * count / most:>3.0f}% ",
            OPTIONAL,
            (style, ("█" * round(BAR_CELLS * count / most)).ljust(BAR_CELLS)),
        )
        for name, count, style in shares
    ]
    total = f"  {pad(translate('all'), wide)}  {human_text.tokens(report.total_tokens):>7}"
    of_window = translate(f"of {human_text.tokens(window)}")
    rows.append(line(("bold", f"{total} {of_window}"), OPTIONAL, ("bold", " tokens")))
    corrected = f"estimates are corrected by {report.factor:.2f} to match the provider's counts"
    rows.append(line("  ", COLUMN, ("dim", translate(corrected))))
    items = [
        line(("dim", escape_line(head)), COLUMN, ("dim", escape_line(rest)))
        for head, rest in item_rows(report)
    ]
    return rows + items


def _theme(context: CommandContext, argument: str) -> CommandResult:
    name, keeps = without_keep(argument)
    if context.window is None:
        return notice("colours are not used here")
    if name not in themes.NOTES:
        unknown = f"there is no theme {escape_line(name)}; " if name else ""
        present = context.window.theme
        rows = [
            Row(one, one, note, is_present=one == present) for one, note in themes.NOTES.items()
        ]
        return CommandResult(choices=Choices(f"{unknown}which theme?", rows, keeps=True))
    context.window.choose_theme(name)
    kept = context.opened.app.keep_setting(("terminal", "theme"), name) if keeps else ""
    return done(kept or f"theme {name}, until longrein ends; /theme {name} {KEEP} keeps it")


def _keys(context: CommandContext, _: str) -> CommandResult:
    rows = key_rows(chosen_keys(context.opened.app.context.settings))
    wide = max(cells(key) for key, _, _ in rows)
    shown = [
        line(
            ("name", f"  {pad(escape_line(key), wide)}  "),
            COLUMN,
            translate(what),
            ("dim", f"  {setting}" if setting else ""),
        )
        for key, what, setting in rows
    ]
    return CommandResult("keys; the settings that change them", shown)


def _help(context: CommandContext, _: str) -> CommandResult:
    return CommandResult(
        "commands",
        help_lines(context.opened.known_skills(), context.opened.slash_commands()),
    )


COMMANDS = (
    Command("help", "", "the commands, in groups", _help, ("?",)),
    Command("model", "[PROVIDER/MODEL [--keep]]", "change the model", _model),
    Command("mode", "[MODE]", "when you are asked; without MODE, choose", _mode),
    Command(
        "clear", "", "begin a new session; this one stays on disk", _clear, ("new",), idle_only=True
    ),
    Command(
        "rewind",
        "[N [files|only-files|show] | undo]",
        "go back to a prompt; the files too, if you like",
        rewind,
        idle_only=True,
    ),
    Command(
        "compact",
        "[FOCUS]",
        "make room now; FOCUS is kept, --dry-run only tells",
        _compact,
        idle_only=True,
    ),
    Command(
        "uncompact",
        "[rSEQ]",
        "undo a compaction; the last one, or that one",
        _uncompact,
        idle_only=True,
    ),
    Command("context", "[rN]", "what fills the context; why rN stands as it does", _context),
    Command(
        "show", "[rN | rN-rM | aN]", "open a result whole; also a diff, thought or subagent", _show
    ),
    Command("pin", "TEXT", "keep TEXT word for word; compactions spare it", _pin),
    Command("unpin", "NUMBER", "drop a pin", _unpin),
    Command("pins", "", "what is pinned", _pins),
    Command("theme", "[NAME [--keep]]", "change the colours; without NAME, choose", _theme),
    Command("cost", "", "what was used and spent", _cost),
    Command("tasks", "[ID | stop ID]", "background tasks; ID shows the end of its output", _tasks),
    Command(
        "agents",
        "[ID | stop ID | tell ID TEXT]",
        "subagents; ID shows its task, acts and report",
        _agents,
        many_lines=True,
    ),
    Command("goals", "[add TITLE | …]", "goals of the project; /goals help tells more", _goals),
    Command("hooks", "", "hooks that run; and the files they come from", _hooks),
    Command("keys", "", "what the keys do; and the settings that change them", _keys),
    Command("queue", "[N | drop N]", "messages that wait; N takes one back to the input", _queue),
    Command("stop", "[ID]", "stop what runs; one call, task or subagent", _stop),
    Command("background", "", "let a command go on; in the background", _background, ("bg",)),
    Command(
        "login", "[PROVIDER [kept | variable]]", "keep a provider's key; it is not shown", _login
    ),
    Command("logout", "[PROVIDER]", "remove a kept key", _logout),
    Command("exit", "", "leave; `longrein -c` goes on", lambda *_: _leave("exit"), ("quit",)),
    *SESSION_COMMANDS,
    *REPORT_COMMANDS,
    *PROMPT_COMMANDS,
)
BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


class ParsedCommand(msgspec.Struct, frozen=True):
    """A parsed command line."""

    command: Command | None
    """None for an unknown command."""
    name: str
    argument: str


def added_commands(added: Sequence[SlashCommand]) -> list[Command]:
    """Commands of extensions, without those that are messages."""

    def run(one: SlashCommand, _context: CommandContext, argument: str) -> CommandResult:
        try:
            found = one.run(argument) if one.run is not None else ()
        except UsageError as error:
            return notice(escape_line(str(error)))
        if isinstance(found, Sequence):
            title = translate(one.title)
            return CommandResult(title, [line(f"  {translate(row)}") for row in found])
        return CommandResult(message=found)

    return [
        Command(one.name, one.argument, one.summary, partial(run, one))
        for one in added
        if one.run is not None
    ]


def parse(
    text: str, custom: Sequence[SkillInfo] = (), added: Sequence[SlashCommand] = ()
) -> ParsedCommand | None:
    """Parse `text` as a command; None when it is a message, such as `/usr/bin/x fails`.

    `?` alone asks for the keys. A command of `custom` is a message, too: the session replaces it
    by its text. `added`: commands of extensions.
    """
    if text.strip() == SHORTCUTS:
        return ParsedCommand(BY_NAME["keys"], "keys", "")
    name, _, argument = text[1:].partition(" ")
    found = BY_NAME.get(name)
    if found is None:
        found = next((one for one in added_commands(added) if one.name == name), None)
    if found is None and any(command.name == name for command in custom):
        return None
    if not text.startswith("/") or not (found or name.replace("-", "").isalnum()):
        return None
    if "\n" in text and not (found and found.many_lines):
        return None
    return ParsedCommand(found, found.name if found else name, argument.strip())


def unknown_command_text(
    name: str, custom: Sequence[SkillInfo] = (), added: Sequence[SlashCommand] = ()
) -> str:
    """Error text for an unknown command, with the nearest name."""
    commands = (*COMMANDS, *added_commands(added))
    known = [*(command.name for command in commands), *(command.name for command in custom)]
    near = [other for other in known if other[:2] == name[:2] or name in other]
    hint = f"did you mean /{near[0]}?" if near else "/help lists them"
    return f"there is no command /{escape_line(name)}; {hint}"


HELP_GROUPS = {
    "session": "clear resume rewind fork rename copy export exit",
    "context": "compact uncompact context show pin unpin pins cost",
    "model and look": "model effort theme login logout",
    "permissions": "mode permissions hooks add-dir",
    "files": "init review diff memory goals skills",
    "tasks": "todos tasks agents queue stop background",
    "longrein itself": "status config doctor keys help",
}
"""Heading -> names of commands, in the order of use."""
HELP_NAME_CELLS, HELP_CELLS = 13, 39
"""Columns of a name, and of a name with its summary: two of them stand side by side."""


def help_lines(custom: Sequence[SkillInfo] = (), added: Sequence[SlashCommand] = ()) -> list[Line]:
    """All commands in groups, two in a row of 80 cells; those of extensions and files have a row
    each.
    """
    rows: list[Line] = []
    for title, names in HELP_GROUPS.items():
        commands = [BY_NAME[name] for name in names.split()]
        rows.append(line(("dim", translate(title))))
        rows += [_help_row(commands[at : at + 2]) for at in range(0, len(commands), 2)]
    others = [(f"/{one.name} {one.argument}", translate(one.summary)) for one in added]
    others += [(f"/{one.name} {one.argument_hint}", summary_of(one)) for one in custom]
    if others:
        rows.append(line(("dim", translate("of extensions and files"))))
    return [
        *rows,
        *(
            line(("name", f"  {pad(_shown(name), 24)}  "), COLUMN, escape_line(text))
            for name, text in others
        ),
        line(("dim", translate("keys: ? or /keys; all of a command: type / and its name"))),
    ]


def _help_row(commands: Sequence[Command]) -> Line:
    """One or two commands with the first half of their summaries."""
    spans: list[Span] = []
    for command in commands:
        if spans:
            spans.append((BESIDE, " " * (HELP_CELLS - cells(plain(tuple(spans))))))
        summary = translate(command.summary).replace("；", ";").partition(";")[0]
        spans += [("name", f"  {pad(f'/{command.name}', HELP_NAME_CELLS)}"), ("", summary)]
    return tuple(spans)


SUMMARY_CELLS = 50


def summary_of(command: SkillInfo) -> str:
    """Description of a skill or command of a file, cut to one line."""
    return shortened(escape_line(command.description), SUMMARY_CELLS)


def _shown(text: str) -> str:
    return shortened(escape_line(text), 76)


def next_mode(mode: str) -> str:
    """The mode that Shift-Tab selects after `mode`."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]
