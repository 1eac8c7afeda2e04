"""The commands that begin with `/`: their table, and what was typed as one of them."""

import msgspec

from longrein.context import State
from longrein.frontends.terminal import drawing
from longrein.frontends.terminal.lines import Line, line
from longrein.frontends.terminal.safe import escape_line

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


COMMANDS = (
    Command("help", "", "commands and keys"),
    Command("model", "[PROVIDER/MODEL]", "change the model"),
    Command("mode", "[MODE]", "permissions: default, acceptEdits, plan, bypassPermissions"),
    Command("clear", "", "begin a new session; this one stays on disk", idle_only=True),
    Command("resume", "[ID]", "go on with another session", idle_only=True),
    Command("rewind", "", "go back to before something you said", idle_only=True),
    Command("compact", "[FOCUS]", "make room now; FOCUS is what to keep", idle_only=True),
    Command("context", "", "what fills the context"),
    Command("cost", "", "what was used and spent"),
    Command("exit", "", "leave; `longrein -c` goes on"),
)

KEYS = (
    ("Enter", "send; while a turn goes on: queue for after it"),
    ("Ctrl-S", "steer: send into the turn that goes on"),
    ("Alt-Enter, Ctrl-J", "new line"),
    ("Esc, Ctrl-C", "interrupt; Ctrl-C twice leaves"),
    ("↑ on an empty line", "take a queued message back; else history"),
    ("Shift-Tab", "next permission mode"),
    ("@", "complete a file name"),
    ("Ctrl-L", "redraw"),
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
    if not text.startswith("/") or "\n" in text:
        return None
    name, _, argument = text[1:].partition(" ")
    if not name.replace("-", "").isalnum():
        return None
    name = {"quit": "exit", "new": "clear", "?": "help"}.get(name, name)
    found = next((command for command in COMMANDS if command.name == name), None)
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
        rows.append(line(("name", f"  /{command.name} {command.argument}".ljust(28)), command.told))
    rows.append(())
    return rows + [line(("name", f"  {key}".ljust(28)), told) for key, told in KEYS]


def cost_lines(state: State) -> list[Line]:
    """What the session used."""
    used = state.usage
    share = f" ({100 * used.cache_read_tokens / used.context_tokens:.0f}% of input)" if used.context_tokens else ""
    rows = (
        ("requests", str(state.asks)),
        ("input, not cached", drawing.tokens(used.input_tokens)),
        ("read from cache", drawing.tokens(used.cache_read_tokens) + share),
        ("written to cache", drawing.tokens(used.cache_write_tokens)),
        ("output", drawing.tokens(used.output_tokens)),
        ("spent", drawing.money(drawing.spent_usd(state))),
    )
    return [line(("dim", f"  {name:<20}"), value) for name, value in rows]


def context_lines(report: list[tuple[str, int]], window: int) -> list[Line]:
    """A row a category with a bar, and what is free."""
    total = sum(count for _, count in report)
    most = max(window, total, 1)
    wide = max([len(name) for name, _ in report] + [5])
    rows = [_share(name, count, most, wide, "run") for name, count in report]
    rows.append(_share("free", max(window - total, 0), most, wide, "dim"))
    rows.append(line(("bold", f"  {'all'.ljust(wide)}  {drawing.tokens(total):>7} of {drawing.tokens(window)} tokens")))
    return rows


def _share(name: str, count: int, most: int, wide: int, style: str) -> Line:
    bar = "█" * round(24 * count / most)
    return line(
        f"  {escape_line(name).ljust(wide)}  {drawing.tokens(count):>7} {100 * count / most:>3.0f}% ", (style, bar)
    )


def next_mode(mode: str) -> str:
    """The mode after `mode`."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]
