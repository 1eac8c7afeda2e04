"""S074, S077: text from outside is escaped before the terminal sees it."""

import re
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent import FromSubagent, PendingMessage, SubagentView
from longrein.frontends.goals_command import goal_line
from longrein.frontends.terminal import (
    call_lines,
    command_actions,
    event_lines,
    live_area,
    task_rows,
)
from longrein.frontends.terminal.approvals import Approval, Question, content_lines
from longrein.frontends.terminal.command_table import unknown_command_text
from longrein.frontends.terminal.event_lines import Line, cells, plain
from longrein.frontends.terminal.markdown import MarkdownPainter
from longrein.frontends.terminal.markdown_blocks import Block
from longrein.frontends.terminal.task_rows import BackgroundActivity, KnownSubagent, RunningTask
from longrein.steps import Projection
from longrein.steps.human_text import escape, escape_line
from longrein.tools import TaskView
from longrein_context.events import (
    Entry,
    Goal,
    PermissionAsked,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Text,
    Todo,
    ToolEnded,
    UserSpoke,
)

SGR = re.compile(r"\x1b\[[\d;]*m")
EVIL = "a\x1b]52;c;aGk=\x07\x1b[2J\x1bc\x9b31m\x00\r\x7f\u202e\u200b\ufeff\U000e0041z"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),  # writes the clipboard
        ("\x1b]0;title\x1b[21t", r"\x1b]0;title\x1b[21t"),  # title reported back as if typed
        ("\x1b]8;;http://x\x1b\\link", r"\x1b]8;;http://x\x1b\link"),
        ("\x1b[2J\x1bc\x1bP$q\x1b\\", r"\x1b[2J\x1bc\x1bP$q\x1b" + "\\"),  # clear, reset, DCS
        ("\x9b31m", r"\x9b31m"),  # CSI in one C1 character
        ("\x07" * 3, r"\x07\x07\x07"),
        ("over\rwritten\b", r"over\x0dwritten\x08"),
        ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
        ("\U000e0041\U000e007f", r"\U000e0041\U000e007f"),  # tags
        ("zero\u200bwidth\u2060\ufeff\xad", r"zero\u200bwidth\u2060\ufeff\xad"),
        ("fill\u3164\u115f\u2800", r"fill\u3164\u115f\u2800"),
        ("lone \ud800", r"lone \ud800"),
        ("a\u200db", r"a\u200db"),  # a joiner that joins nothing
        ("a\ufe0f", r"a\ufe0f"),
    ],
)
def test_S074_S077_what_is_unseen_is_written_out(raw: str, shown: str) -> None:
    assert escape(raw) == shown


@pytest.mark.parametrize(
    "text", ["日本語 中文 한국어", "👩‍👩‍👧 ❤️ 1️⃣ 🏳️‍🌈", "نص عربي", "हिन्दी क्‍ष", "e\u0301", "a\tb\nc"]
)
def test_S077_scripts_and_emoji_are_untouched(text: str) -> None:
    assert escape(text) == text


def test_what_must_stay_on_one_line_does() -> None:
    assert escape_line("a\nb\tc\x1b") == r"a\nb c\x1b"


def harmless(text: str) -> bool:
    return not any(
        unicodedata.category(char) in ("Cc", "Cs") for char in text if char not in "\n\t"
    )


@given(st.text(st.one_of(st.sampled_from(EVIL + "&#x1b;`*|>-\n "), st.characters()), max_size=60))
def test_S074_markdown_brings_no_control_character_but_its_colours(text: str) -> None:
    for colour in (True, False):
        for width in (80, 12):
            for row in MarkdownPainter(colour=colour).paint(Block("paragraph", text), width):
                bare = SGR.sub("", row) if colour else row
                assert harmless(bare)
                assert "\n" not in bare


def test_S074_character_references_are_no_way_around() -> None:
    [row] = MarkdownPainter(colour=False).paint(Block("paragraph", "x&#27;]0;t&#7;y &#x202e;"), 80)
    assert row == "x\ufffd]0;t\ufffdy \\u202e"  # CommonMark has no reference to a control character


def rows_of_everything() -> list[Line]:
    spoke = Entry(1, 0, UserSpoke((Text(EVIL),), "steer"))
    [step] = Projection().read(FromSubagent("s", EVIL, EVIL, spoke))
    who = BackgroundActivity().apply(step)
    arguments = {"file_path": EVIL, "old_string": EVIL, "new_string": EVIL + "\n" + EVIL}
    question = Question(PermissionAsked("c1.0", EVIL, EVIL, EVIL, EVIL))
    edit = Question(PermissionAsked("c1.0", "Edit", EVIL, EVIL, ""), arguments)
    task, child = TaskStarted(EVIL, EVIL), SubagentStarted("s", EVIL, description=EVIL, note=EVIL)
    view = SubagentView(EVIL, "s", EVIL, EVIL, EVIL, last=escape_line(EVIL), model=EVIL)
    return [
        *who,
        task_rows.started_task(task, waited=False),
        *task_rows.ended_task(TaskEnded(EVIL, EVIL, cause=EVIL, tail=EVIL), task),
        *task_rows.started_subagent(child, EVIL),
        *task_rows.ended_subagent(
            SubagentEnded("s", EVIL, message=EVIL, worktree=EVIL), KnownSubagent(EVIL, child)
        ),
        *task_rows.live_agents([msgspec.structs.replace(view, state="asking")], 4),
        *task_rows.live_tasks({"b": RunningTask(task, 0)}, 9, 80),
        *task_rows.agent_page(view, EVIL, EVIL, [escape_line(EVIL)]),
        *task_rows.task_list(
            [TaskView(EVIL, EVIL, EVIL, cause=EVIL, handle=EVIL, waits_for_input=EVIL)]
        ),
        *task_rows.queue_list([(1, PendingMessage(1, "steer", EVIL, "s"))], {"s": EVIL}),
        *live_area.waiting_rows([PendingMessage(1, "steer", EVIL, "s")], {"s": EVIL}, 200),
        event_lines.wake_line(EVIL),
        (("", command_actions.exit_question([RunningTask(task, 0)])),),
        *((("", row),) for row in (goal_line(Goal(1, EVIL, EVIL, owner=EVIL)),)),
        *call_lines.ended_lines(
            ToolEnded("c1.0", EVIL, "failed", (Text(EVIL),)), {"command": EVIL}, ()
        ),
        *event_lines.todo_lines((Todo(EVIL),)),
        event_lines.notice_line(EVIL),
        *Approval(question, content_lines(question)).draw(60, 20),
        *Approval(edit, content_lines(edit)).draw(60, 20),
        ((("", unknown_command_text(EVIL))),),
    ]


def test_S074_S077_every_line_is_escaped_where_it_is_made() -> None:
    for row in rows_of_everything():
        text = plain(row)
        assert escape(text) == text
        assert "\n" not in text
        assert "\r" not in text


def test_S077_an_approval_shows_the_override_it_approves() -> None:
    question = Question(PermissionAsked("c1.0", "Bash", "rm \u202e fdsa", "why", ""))
    assert any(
        r"rm \u202e fdsa" in plain(row)
        for row in Approval(question, content_lines(question)).draw(80, 20)
    )


@pytest.mark.parametrize("width", [8, 20, 40, 80, 200])
def test_no_row_of_markdown_is_wider_than_the_screen(width: int) -> None:
    painter = MarkdownPainter(colour=False)
    blocks = [
        "全角文字" * 30,
        "x" * 300,
        "- " + "日本 word " * 20,
        "| 名前 | what |\n|--|--|\n| " + "読む" * 9 + " | " + "reads " * 9 + "|",
    ]
    for text in [*blocks, "```py\n" + "足す = 1  # " * 12 + "\n```", "# " + "見出し" * 20]:
        rows = painter.paint(Block("paragraph", text), width)
        assert max(map(cells, rows)) <= width
