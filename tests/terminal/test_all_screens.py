"""Every screen at 40, 80, 120 and 200 columns, with colours, without and on the plain terminal: no
word is broken, no row is wider than the window, no row of a table runs on under its first column.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from longrein.agent import ReplyDelta
from longrein.app.run_context import read_run_context
from longrein.commands.trust import trust_screen
from longrein.frontends.terminal.command_table import COMMANDS, help_lines
from longrein.frontends.terminal.event_lines import cells, plain
from longrein.frontends.terminal.markdown_blocks import Block
from longrein.frontends.terminal.page_view import PageView
from longrein.models import TextDelta
from longrein.options import Options
from longrein_context.events import (
    AnyEvent,
    PermissionAsked,
    Replied,
    Text,
    Todo,
    TodoSet,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UserSpoke,
)
from tests.terminal.opened_session import OpenedSession
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.scripted_session import NullScreen, ScriptedSession
from tests.terminal.scripted_terminal import MARKDOWN, Goals, echo
from tests.terminal.test_commands import RecordedConversation

SIZES = {40: 12, 80: 24, 120: 40, 200: 60}
WIDE = 2_000
"""Columns at which no text is wrapped."""
LEAVING = ("exit", "clear", "fork", "resume", "doctor")
"""Commands that leave, or look at this machine."""
COLOUR = re.compile(r"\x1b\[[\d;]*m")
LONG = " && ".join(f"make target-{n} VERBOSE={n}" for n in range(9))
RULES = "Bash(make target:*)\nBash(git push:*)"
QUESTION = {
    "question": "Which colours shall the rows of the new report have from now on?",
    "options": [
        {"label": "red and green", "description": "as the rows of a change have them today"},
        {"label": "none", "description": "for screen readers and for terminals without colours"},
    ],
}


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"c.{name}", name, arguments)


def made(*calls: ToolCall) -> list[AnyEvent]:
    return [Replied(1, calls, "calls"), *(ToolStarted(one.id, one.name) for one in calls)]


def ended(name: str, text: str, status: str = "ok") -> ToolEnded:
    return ToolEnded(f"c.{name}", name, status, (Text(text),), 1_200)


READ, GREP, BASH = (
    call("Read", file_path="a.py"),
    call("Grep", pattern="def"),
    call("Bash", command=LONG),
)
EDIT = call("Edit", file_path="src/app.py", old_string="a = 1\nb = 2", new_string="a = 1\nb = 3")
NUMBERED = "\n".join(
    f"{n} lines of an output that is wide enough for a small window" for n in range(40)
)
TEXT = MARKDOWN.split("| ")[0].replace("👩‍👩‍👧", "")
"""A reply without the emoji whose cells each library counts in its own way."""
OF_SMALL_WINDOWS = [
    *("│", "type,", "↑", "↓,", "Enter,", "Esc"),  # of a list: the whole row, and short keys
    "v",
    "all",
    "yes",
    "session",
    "always",
    "why",
    "not",
    "more",
    "subagents:",
    "running;",
    "Bash",
    "AskUserQuestion",
]
"""Words of what small windows alone have: short labels, and the count of rows that are left out."""
TODOS = TodoSet(
    tuple(Todo(f"step {n} of a plan with a rather long text", "pending") for n in range(9))
)
EVENTS: dict[str, list[AnyEvent]] = {
    "a prompt": [UserSpoke((Text("a question of the user that is wider than a small window is"),))],
    "reads and searches": [*made(READ, GREP), ended("Read", "1\ta"), ended("Grep", "a.py")],
    "long output": [*made(BASH), ended("Bash", f"{NUMBERED}\n[exit code 3]", "failed")],
    "a change": [*made(EDIT), ended("Edit", "done")],
    "the todo list": [TODOS],
    "a turn that was stopped": [TurnEnded("limit", "50 requests of this turn are used up by now")],
}


class Screen(NullScreen):
    """A conversation on a window that takes no bytes."""

    def __init__(self, columns: int, colour: bool) -> None:
        from prompt_toolkit.data_structures import Size

        self.size = Size(rows=SIZES.get(columns, 60), columns=columns)
        self.session = ScriptedSession(echo)
        environ = {} if colour else {"NO_COLOR": "1"}
        opened = OpenedSession(self.session, "/work/project", environ)
        opened.goals = Goals()
        self.conversation = RecordedConversation(opened, self, lambda: 0.0)
        self.view = self.conversation.view
        self.view.live = True
        self.written: list[str] = []

    def write(self, rows: Sequence[str]) -> None:
        self.written += rows

    commit = write

    def printed(self, events: Sequence[AnyEvent]) -> list[str]:
        """What these events print."""
        pieces: list[Any] = []
        for event in (*events, TurnEnded("done")):
            self.session.append(event)
            pieces += self.view.apply(self.session.entries[-1], 0.0)
        return self.paint(pieces)

    def paint(self, pieces: Sequence[Any]) -> list[str]:
        rows: list[str] = []
        for piece in pieces:
            self.written.clear()
            self.conversation.show([piece])
            self.conversation.redraw()
            drawn = [*self.written]
            rows += drawn
            if not isinstance(piece, Block) and plain(piece).startswith("  "):
                further = [COLOUR.sub("", row) for row in drawn[1:]]
                assert all(row.startswith("  ") for row in further), f"a wrapped row: {drawn}"
        return rows

    def panel(self) -> list[str]:
        """The rows above the input, the placeholder and the footer."""
        width, conversation = self.size.columns - 1, self.conversation
        conversation.redraw()
        rows = conversation.panel_lines(width, self.size.rows - 4)
        return [plain(row) for row in (*rows, conversation.footer(width))]

    def run(self, text: str) -> list[str]:
        """What a command prints, and its list."""
        asyncio.run(self.conversation.run(text))
        chooser = self.conversation.chooser
        listed = chooser.draw(self.size.columns - 1, self.size.rows) if chooser else []
        shown = [*self.conversation.shown]
        self.conversation.redraw()
        return [*self.paint(shown), *map(plain, listed)]


def screens(columns: int, *, colour: bool) -> Iterator[tuple[str, list[str]]]:
    """Each screen with its rows."""

    def screen() -> Screen:
        return Screen(columns, colour)

    start = screen()
    start.conversation.print_header()
    yield "the start", [*start.written, *start.panel()]
    for name, events in EVENTS.items():
        yield name, screen().printed(events)
    streaming = screen()
    streaming.printed(EVENTS["a prompt"])
    pieces = streaming.view.apply(ReplyDelta(1, [TextDelta(TEXT)]), 0.0)
    yield "streaming", [*streaming.paint(pieces), *streaming.panel()]
    for name, asked in {
        "a question": PermissionAsked("c.Bash", "Bash", LONG, "no rule allows it", RULES),
        "a question of the model": PermissionAsked("c.AskUserQuestion", "AskUserQuestion", "", ""),
    }.items():
        asking = screen()
        for event in (*made(BASH, call("AskUserQuestion", questions=[QUESTION])), asked):
            asking.session.append(event)
            asking.view.apply(asking.session.entries[-1], 0.0)
        yield name, asking.panel()
        if asking.conversation.approval is not None:
            page = PageView(asking.conversation.approval.whole)
            drawn = [plain(row) for row in page.draw(columns - 1, 200)[1:-1]]
            yield f"{name}, whole", "\n".join(drawn).rstrip().split("\n")
    many = screen()
    for n in range(4):
        many.session.start_child(f"s{n}", "explore", f"look at part {n} of the whole project")
        many.session.start_task(f"b{n}", f"make target-{n}")
        many.session.show_child(f"s{n}", steps=3, tokens=12_345, last="Read src/app.py")
    for entry in many.session.entries:
        many.view.apply(entry, 0.0)
    yield "subagents and tasks", many.panel()
    for text in ("/agents", "/tasks"):
        yield f"{text} with some", many.run(text)
    for command in COMMANDS:
        if command.name not in LEAVING:
            yield f"/{command.name}", screen().run(f"/{command.name}")


def words(rows: Sequence[str]) -> list[str]:
    """Words of rows; what a crop has cut is none."""
    found: list[str] = []
    for row in rows:
        parts = COLOUR.sub("", row).split()
        if parts[:1] == ["└"]:  # it says which rows are in the window, and is never wrapped
            continue
        found += [part for part in parts if not part.endswith("…")]
    return found


def broken(rows: Sequence[str], whole: Sequence[str], columns: int) -> list[str]:
    """Words of the rows that are none of the whole text; one longer than a row may be broken."""
    known = words(whole)
    fits, long = (
        {*known, *OF_SMALL_WINDOWS},
        " ".join(word for word in known if cells(word) > columns // 2),
    )
    return [word for word in words(rows) if word not in fits and word not in long]


def check(name: str, rows: Sequence[str], whole: Sequence[str], columns: int) -> None:
    bare = [COLOUR.sub("", row) for row in rows]
    assert not any("\x1b" in row for row in bare), name
    assert [row for row in bare if cells(row) >= columns] == [], name
    assert broken(rows, whole, columns) == [], name
    assert ("", "") not in pairwise(bare), f"{name}: two blank rows"


@pytest.fixture(scope="module")
def whole() -> dict[bool, dict[str, list[str]]]:
    """Each screen at a width where nothing is wrapped, with colours (True) and without."""
    return {colour: dict(screens(WIDE, colour=colour)) for colour in (True, False)}


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("columns", SIZES)
def test_every_screen_fits_and_breaks_no_word(
    columns: int, colour: bool, whole: dict[bool, dict[str, list[str]]]
) -> None:
    for name, rows in screens(columns, colour=colour):
        check(name, rows, whole[colour][name], columns)
        assert colour or not any("\x1b" in row for row in rows), name


@pytest.mark.parametrize("columns", [40, 80])
def test_the_plain_terminal_breaks_no_word(columns: int, tmp_path: Path) -> None:
    whole = [plain(row) for row in help_lines()]
    with PseudoTerminal("echo", tmp_path, columns, 200, ARGS="plain") as tty:
        tty.until(lambda: tty.lines()[tty.screen.cursor.y] == ">").send("/help\r")
        tty.until(lambda: whole[-1].split()[-1] in " ".join(tty.lines()))
        rows = tty.lines()
        start = next(n for n, row in enumerate(rows) if row.startswith("> /help"))
        shown = [row for row in rows[start + 1 :] if row != ">"]
        assert broken(shown, whole, columns) == []
        assert tty.leave() == []


@pytest.mark.parametrize("columns", SIZES)
def test_the_trust_screen_fits_and_breaks_no_word(columns: int, tmp_path: Path) -> None:
    for name, text in {
        "AGENTS.md": "Be kind.",
        ".claude/settings.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": '
        '"make lint && make test"}]}]}}',
        ".claude/agents/reviewer.md": "---\nname: reviewer\ndescription: reviews\n"
        "tools: Read, Grep, Glob, Bash\n---\nReview it.\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    environ = {"HOME": str(tmp_path.parent / "home"), "LONGREIN_STATE_DIR": str(tmp_path / "state")}
    context = read_run_context(Options(), environ, folder=str(tmp_path))
    whole = trust_screen(context, WIDE)
    assert len(whole) > 3, "a row for each file"
    check("trust", trust_screen(context, columns - 1), whole, columns)
