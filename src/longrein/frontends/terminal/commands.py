"""The commands that begin with `/`: their table, and what was typed as one of them."""

from collections.abc import Sequence

import msgspec

from longrein.agent import Compact, Pin, Uncompact, Unpin, Word
from longrein.context import Report, State
from longrein.frontends import amounts
from longrein.frontends.context_page import item_rows
from longrein.frontends.safe import escape_line
from longrein.frontends.terminal import drawing
from longrein.frontends.terminal.lines import Line, line

MODES = ("default", "acceptEdits", "plan")
"""What Shift-Tab goes through. `bypassPermissions` must be asked for by name."""


class Command(msgspec.Struct, frozen=True):
    """One command."""

    name: str
    argument: str
    """How its argument is called in the help; '' for none."""
    told: str
    idle_only: bool = False
    """Whether it cannot be given while a turn goes on."""
    many_lines: bool = False
    """Whether its argument may have several lines."""


COMMANDS = (
    Command("help", "", "commands and keys"),
    Command("model", "[PROVIDER/MODEL]", "change the model"),
    Command("mode", "[MODE]", "permissions: default, acceptEdits, plan, bypassPermissions"),
    Command("clear", "", "begin a new session; this one stays on disk", idle_only=True),
    Command("resume", "[ID]", "go on with another session", idle_only=True),
    Command("rewind", "", "go back to before something you said", idle_only=True),
    Command("compact", "[FOCUS]", "make room now; FOCUS is what to keep; --dry-run only tells", idle_only=True),
    Command("uncompact", "[rSEQ]", "undo the last compaction, or that one", idle_only=True),
    Command("context", "[rN]", "what fills the context; with a handle, why its lines are shown"),
    Command("pin", "TEXT", "keep TEXT word for word through every compaction"),
    Command("unpin", "NUMBER", "drop a pin"),
    Command("pins", "", "what is pinned"),
    Command("cost", "", "what was used and spent"),
    Command("tasks", "[stop ID | ID [N]]", "background tasks; ID shows the end of its output"),
    Command("agents", "[stop ID | tell ID TEXT | ID]", "subagents; tell one something, stop one", many_lines=True),
    Command("goals", "[add TITLE | done N | …]", "goals of the project; /goals help lists what can be done"),
    Command("queue", "[N | drop N]", "messages that wait; N takes one back into the input"),
    Command("stop", "[ID]", "stop one thing that runs: a call, a task, a subagent; without ID, choose"),
    Command("background", "", "send the running command to the background (Ctrl-B)"),
    Command("exit", "", "leave; `longrein -c` goes on"),
)

BESIDE = ("tasks", "agents", "goals", "queue", "stop", "background")
"""Those about what works beside the conversation."""

KEYS = (
    ("Enter", "send; while a turn goes on: queue for after it"),
    ("Ctrl-S", "steer: send into the turn that goes on"),
    ("Ctrl-B", "send the running command to the background (in tmux press it twice)"),
    ("Alt-Enter, Ctrl-J", "new line"),
    ("Esc, Ctrl-C", "interrupt; Ctrl-C twice leaves"),
    ("↑ on an empty line", "take a queued message back; else history"),
    ("Shift-Tab", "next permission mode"),
    ("@", "complete a file name"),
    ("Ctrl-L", "redraw"),
    ("Ctrl-Z", "stop longrein until `fg`, while commands go on"),
    ("Ctrl-D", "leave"),
)


class Typed(msgspec.Struct, frozen=True):
    """A command as it was typed."""

    command: Command | None
    """None for an unknown one."""
    name: str
    argument: str


def parse(text: str) -> Typed | None:
    """The command in `text`; None when it is something to say (`/usr/bin/x fails` is)."""
    if not text.startswith("/"):
        return None
    name, _, argument = text[1:].partition(" ")
    if not name.replace("-", "").isalnum():
        return None
    name = {"quit": "exit", "new": "clear", "?": "help", "bg": "background"}.get(name, name)
    found = next((command for command in COMMANDS if command.name == name), None)
    if "\n" in text and not (found and found.many_lines):
        return None
    return Typed(found, name, argument.strip())


def unknown(name: str) -> str:
    """The line for a command that there is not."""
    near = [command.name for command in COMMANDS if command.name[:2] == name[:2] or name in command.name]
    hint = f"did you mean /{near[0]}?" if near else "/help lists them"
    return f"there is no command /{escape_line(name)}; {hint}"


def help_lines() -> list[Line]:
    """All commands and keys."""
    rows: list[Line] = []
    for command in COMMANDS:
        rows.append(line(("name", f"  /{command.name} {command.argument}".ljust(27) + " "), command.told))
    rows.append(())
    return rows + [line(("name", f"  {key}".ljust(28)), told) for key, told in KEYS]


def cost_lines(state: State) -> list[Line]:
    """What the session used."""
    used = state.usage
    share = f" ({100 * used.cache_read_tokens / used.context_tokens:.0f}% of input)" if used.context_tokens else ""
    rows = (
        ("requests", str(state.asks)),
        ("input, not cached", amounts.tokens(used.input_tokens)),
        ("read from cache", amounts.tokens(used.cache_read_tokens) + share),
        ("written to cache", amounts.tokens(used.cache_write_tokens)),
        ("output", amounts.tokens(used.output_tokens)),
        ("spent", amounts.money(drawing.spent_usd(state))),
    )
    return [line(("dim", f"  {name:<20}"), value) for name, value in rows]


def context_lines(report: Report) -> list[Line]:
    """A row a module with a bar, what is free, then the largest items."""
    modules, window = report.modules(), report.usable_tokens
    most = max(window, report.total_tokens, 1)
    wide = max([len(name) for name, _ in modules] + [5])
    rows = [_share(name, count, most, wide, "run") for name, count in modules]
    rows.append(_share("free", max(window - report.total_tokens, 0), most, wide, "dim"))
    total = f"{amounts.tokens(report.total_tokens):>7} of {amounts.tokens(window)} tokens"
    rows.append(line(("bold", f"  {'all'.ljust(wide)}  {total}")))
    rows.append(line(("dim", f"  guesses × {report.factor:.2f} are the provider's count")))
    return rows + [line(("dim", escape_line(row))) for row in item_rows(report)]


def pin_lines(pins: Sequence[str]) -> list[Line]:
    """The pinned constraints, numbered."""
    rows = [line(("name", f"  {n} "), escape_line(pin)) for n, pin in enumerate(pins, 1)]
    return rows or [line(("dim", "  nothing is pinned; /pin TEXT keeps TEXT word for word through every compaction"))]


def _share(name: str, count: int, most: int, wide: int, style: str) -> Line:
    bar = "█" * round(24 * count / most)
    return line(
        f"  {escape_line(name).ljust(wide)}  {amounts.tokens(count):>7} {100 * count / most:>3.0f}% ", (style, bar)
    )


def next_mode(mode: str) -> str:
    """The mode after `mode`."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]


def compaction_word(name: str, argument: str) -> Word | str | None:
    """The word that a command about compaction or pins is, or what is wrong with it; None for other commands."""
    match name:
        case "compact" if argument == "--undo":
            return Uncompact()
        case "compact" if argument != "--dry-run":
            return Compact(argument)
        case "uncompact" if not argument or argument.lstrip("r").isdecimal():
            return Uncompact(int(argument.lstrip("r") or 0))
        case "uncompact":
            return "say which: /uncompact r412, or nothing for the last one"
        case "pin" if argument:
            return Pin(argument)
        case "unpin" if argument.isdecimal():
            return Unpin(int(argument))
        case "unpin":
            return "say which: /unpin NUMBER; /pins lists them"
        case _:
            return None
