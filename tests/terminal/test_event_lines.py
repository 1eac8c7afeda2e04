"""Lines of events: expected text beside the event."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent import Answer, ReplyDelta, RetryPause
from longrein.context import Report, ReportRow
from longrein.events import (
    AnyEvent,
    Asked,
    AskFailed,
    Cleared,
    Entry,
    FilePut,
    Form,
    PermissionAnswered,
    PermissionAsked,
    Reminded,
    Replied,
    Restored,
    Rewound,
    Summarized,
    Text,
    Todo,
    ToolEnded,
    TurnEnded,
    UserSpoke,
)
from longrein.frontends import text_format
from longrein.frontends.terminal import event_lines
from longrein.frontends.terminal.approvals import Approval, Question, answer, choices, content_lines
from longrein.frontends.terminal.choice_list import Chooser, Row
from longrein.frontends.terminal.commands import (
    COMMANDS,
    context_lines,
    help_lines,
    next_mode,
    parse,
    unknown_command_text,
)
from longrein.frontends.terminal.event_lines import (
    GAP,
    NO_WRAP,
    Line,
    ansi,
    cells,
    change_lines,
    counts,
    crop,
    diff_lines,
    fit,
    fold,
    line,
    only_changes,
    plain,
    wrap,
)
from longrein.frontends.terminal.live_area import Figures, footer_line, state_line, state_word
from longrein.frontends.terminal.markdown import Block
from longrein.frontends.terminal.view_model import ViewModel
from longrein.models import TextDelta


def texts(rows: list[Line]) -> list[str]:
    return [plain(row).rstrip() for row in rows]


def check(rows: list[Line], *expected: str) -> None:
    assert texts(rows) == list(expected)


# --- What goes on ----------------------------------------------------------------------------------------------------

PAUSE = RetryPause(5, "overload", 529, 1, 10, 4.0, "Overloaded \x1b[31m\nreally")
FAILED = AskFailed(5, "overload", "Overloaded", 529)
LATER = "retrying in 3 s, attempt 2 of 10: Overloaded \\x1b[31m\\nreally"
NOW = "retrying, attempt 2 of 10: Overloaded \\x1b[31m\\nreally"


@pytest.mark.parametrize(
    ("heard", "footer", "told"),
    [
        ([Asked("turn", 1, 1)], "thinking", "thinking"),
        ([Asked("turn", 1, 1), FAILED], "thinking", "thinking"),
        ([Asked("turn", 1, 1), FAILED, PAUSE], "retrying", LATER),
        ([Asked("turn", 1, 1), FAILED, PAUSE, Asked("turn", 1, 1)], "retrying", LATER),  # it waits for its turn
        ([Asked("turn", 1, 1), FAILED, PAUSE, 5.0, Asked("turn", 1, 1)], "retrying", NOW),
        ([Asked("turn", 1, 1), FAILED, PAUSE, 5.0, Asked("turn", 1, 1), TextDelta("a")], "running", "writing"),
        ([Asked("turn", 1, 1), FAILED, PAUSE, 5.0, Asked("turn", 1, 1), FAILED], "thinking", "thinking"),
        ([Asked("turn", 1, 1), FAILED, PAUSE, TurnEnded("interrupted")], "idle", ""),
        ([Asked("summary", 1, 1)], "compacting", "compacting: summarising what is old"),
        ([msgspec.structs.replace(PAUSE, attempt=0, message="")], "retrying", "waiting 3 s for the provider: overload"),
        (
            [msgspec.structs.replace(PAUSE, attempt=0), 5.0],
            "retrying",
            "waiting for the provider: Overloaded \\x1b[31m",
        ),
    ],
)
def test_the_footer_says_that_a_request_is_made_again_until_the_model_answers(
    heard: list[AnyEvent | RetryPause | TextDelta | float], footer: str, told: str
) -> None:
    view, now_s = ViewModel(), 0.0
    view.apply(Entry(1, 0, UserSpoke((Text("go"),))), now_s)
    for seq, one in enumerate(heard, 2):
        if isinstance(one, float):
            now_s += one
            continue
        is_delta = isinstance(one, TextDelta)
        view.apply(
            ReplyDelta(seq - 1, [one]) if is_delta else one if isinstance(one, RetryPause) else Entry(seq, 0, one),
            now_s,
        )
    assert state_word(view) == footer
    assert plain(state_line(view, now_s + 1)).partition("  ")[0].lstrip("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ").startswith(told)


AHEAD = Asked("summary", 1, 1, reason="ahead")


@pytest.mark.parametrize(
    ("heard", "footer", "shown"),
    [
        (
            [Reminded("compact_refused", "", state="there is nothing \x1b[2J")],
            "idle",
            [r"! nothing was compacted: there is nothing \x1b[2J"],
        ),
        ([Restored(412)], "idle", ["context: the compaction r412 is undone; what it put away is shown again"]),
        ([Asked("summary", 1, 1)], "compacting", []),
        ([Asked("summary", 1, 1), Replied(2, (Text("prose"),), "end")], "idle", []),
        (
            [Asked("summary", 1, 1), AskFailed(2, "invalid", "no summary: the model declined")],
            "idle",
            ["the model wrote no summary  the model declined"],
        ),
        (
            [Asked("summary", 1, 1), AskFailed(2, "overload", "Over\x1b[2Jloaded")],
            "idle",
            [r"the model wrote no summary  Over\x1b[2Jloaded"],
        ),
        ([Asked("summary", 1, 1), AskFailed(2, "cancelled", "no longer needed")], "idle", []),
        # made ahead, beside a turn: neither the work nor its text are disturbed
        (
            [
                UserSpoke((Text("go"),)),
                AHEAD,
                Asked("turn", 1, 1),
                Replied(3, (Text("prose"),), "end"),
                Replied(4, (Text("Hello."),), "end"),
            ],
            "thinking",
            ["› go", "Hello."],
        ),
        ([UserSpoke((Text("go"),)), Asked("turn", 1, 1), AHEAD], "thinking", ["› go"]),
        (
            [UserSpoke((Text("go"),)), Asked("turn", 1, 1), AHEAD, AskFailed(4, "invalid", "it is empty")],
            "thinking",
            ["› go", "the model wrote no summary  it is empty"],
        ),
    ],
)
def test_what_a_compaction_does_is_said_and_never_taken_for_an_answer(
    heard: list[AnyEvent], footer: str, shown: list[str]
) -> None:
    view = ViewModel()
    pieces = [piece for seq, one in enumerate(heard, 2) for piece in view.apply(Entry(seq, 0, one), 0.0)]
    rows = [piece.text if isinstance(piece, Block) else plain(piece) for piece in pieces if piece]
    assert (state_word(view), [row for row in rows if row]) == (footer, shown)


# --- Calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "arguments", "expected"),
    [
        (("Read", "ok", "", 0), {"file_path": "a.py"}, ["● Read ok  a.py"]),
        (("Bash", "ok", "", 1_240), {"command": "ls"}, ["● Bash ok 1.2 s  ls"]),
        (("Bash", "ok", "", 185_000), {"command": "make\ntest"}, ["● Bash ok 3 m 05 s  make …"]),
        (("Bash", "denied", "no", 0), {"command": "rm"}, ["● Bash denied  rm"]),
        (("Bash", "not_run", "", 0), {}, ["● Bash not run"]),
        (("Bash", "interrupted", "half", 400), {"command": "x"}, ["● Bash interrupted 0.4 s  x", "  half"]),
        (("Bash", "failed", "1\n\n2\n3\n4\n5", 0), None, ["● Bash failed", "  1", "  2", "  3", "  … 2 more lines"]),
        (("Mcp", "ok", "", 0), {"n": 1, "word": "w"}, ["● Mcp ok  w"]),
        (("Glob", "ok", "", 0), {"path": "src", "pattern": "*.py"}, ["● Glob ok  src"]),
    ],
)
def test_a_call_is_one_line_with_its_state_as_a_word(
    end: tuple[Any, ...], arguments: dict[str, Any], expected: list[str]
) -> None:
    name, status, text, elapsed_ms = end
    check(event_lines.ended_lines(ToolEnded("c1.0", name, status, (Text(text),), elapsed_ms), arguments, ()), *expected)


def test_the_argument_that_the_tool_states_is_shown() -> None:
    lines = event_lines.ended_lines(ToolEnded("c1.0", "Ask", "ok", (), 0), {"path": "src", "b": "x"}, (), "b")
    check(lines, "● Ask ok  x")


def test_an_edit_shows_what_changed_and_how_much() -> None:
    arguments = {"file_path": "a.py", "old_string": "1\n2\n3\n4\n5\n6", "new_string": "1\n2\n3\n4\nfive\n6"}
    change = change_lines("Edit", arguments, None)
    end = ToolEnded("c1.0", "Edit", "ok", (), 0)
    check(
        event_lines.ended_lines(end, arguments, change),
        "● Edit ok +1 -1  a.py",
        "    ⋮",
        "    3",
        "    4",
        "  - 5",
        "  + five",
        "    6",
    )


# --- Other facts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            event_lines.todo_lines([Todo("a", "completed"), Todo("b", "in_progress"), Todo("c")]),
            ["[x] a", "[>] b", "[ ] c"],
        ),
        (event_lines.todo_lines([]), ["todo list emptied"]),
        (event_lines.user_lines(UserSpoke((Text("one\ntwo"),))), ["› one", "  two"]),
        (event_lines.user_lines(UserSpoke((Text("one\ntwo"),)), "at step 3"), ["› one  (at step 3)", "  two"]),
        (event_lines.ended_turn(TurnEnded("done")), []),
        (event_lines.ended_turn(TurnEnded("interrupted")), ["interrupted  say what to do instead"]),
        (event_lines.ended_turn(TurnEnded("limit", "50 turns")), ["stopped: limit  50 turns"]),
        (event_lines.failed_request(AskFailed(1, "network", message="gone"), shown=False), []),
        (
            event_lines.failed_request(AskFailed(1, "network", message="gone"), shown=True),
            ["the reply above was cut off  gone"],
        ),
        (event_lines.answered_lines(PermissionAnswered("c", "allow", "user"), "Bash"), []),
        (
            event_lines.answered_lines(PermissionAnswered("c", "allow", "user", "session", "Bash(ls)"), "Bash"),
            ["allowed for this session  Bash(ls)"],
        ),
        (
            event_lines.answered_lines(PermissionAnswered("c", "allow", "user", "always", "Edit"), ""),
            ["allowed always  Edit"],
        ),
        (event_lines.answered_lines(PermissionAnswered("c", "deny", "user", message="not so"), ""), ["no: not so"]),
        (
            event_lines.compaction_lines(Cleared((Form("r1", "placeholder", "…"),), "threshold", 12_300)),
            ["context: 1 old item shortened, about 12.3k tokens freed; every byte can be recalled"],
        ),
        (
            event_lines.compaction_lines(Summarized(2, 90, "all", "threshold", "prose")),
            ["context: entries 2 to 90 summarised; every byte can be recalled"],
        ),
        (
            event_lines.compaction_lines(Summarized(2, 90, "all", "threshold")),
            ["context: entries 2 to 90 summarised by the records alone, without the model; every byte can be recalled"],
        ),
        (
            event_lines.rewound_lines(
                Rewound(4, (FilePut("a", True), FilePut("b", False, "changed since"), FilePut("c", True, removed=True)))
            ),
            [
                "rewound  the conversation is again as it was at entry 4",
                "  put back  a",
                "  left as it is (changed since)  b",
                "  removed, it is new since then  c",
            ],
        ),
    ],
)
def test_facts_in_words(rows: list[Line], expected: list[str]) -> None:
    check(rows, *expected)


def test_a_long_prompt_is_folded() -> None:
    rows = event_lines.user_lines(UserSpoke((Text("\n".join(map(str, range(500)))),)))
    assert len(rows) == event_lines.USER_LINES_MAX
    assert plain(rows[-1]) == "  … 489 more lines"


@pytest.mark.parametrize(("count", "told"), [(0, "0"), (999, "999"), (12_345, "12.3k"), (1_234_567, "1.2M")])
def test_tokens(count: int, told: str) -> None:
    assert text_format.tokens(count) == told


@pytest.mark.parametrize(("usd", "told"), [(0, "$0.00"), (0.0012, "$0.0012"), (0.0123, "$0.01"), (12.5, "$12.50")])
def test_money(usd: float, told: str) -> None:
    assert text_format.money(usd) == told


# --- Differences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "rows", "told"),
    [
        ("a\nb", "a\nc", ["  a", "- b", "+ c"], "+1 -1"),
        ("a", "a\nb", ["  a", "+ b"], "+1 -0"),
        ("a\n", "a", ["  a", "-"], "+0 -1"),
        ("\tx", "\u202ex", ["-     x", r"+ \u202ex"], "+1 -1"),
    ],
)
def test_a_difference_line_by_line(old: str, new: str, rows: list[str], told: str) -> None:
    drawn = diff_lines(old, new)
    check(drawn, *rows)
    assert counts(drawn) == told


@given(*[st.lists(st.sampled_from("abc"), min_size=1, max_size=8).map("\n".join)] * 2)
def test_a_difference_holds_every_line_of_both_sides(old: str, new: str) -> None:
    rows = texts(diff_lines(old, new))
    assert [row[2:] for row in rows if row[0] in " -"] == old.split("\n")
    assert [row[2:] for row in rows if row[0] in " +"] == new.split("\n")


@pytest.mark.parametrize(
    ("name", "arguments", "known", "rows"),
    [
        ("Edit", {"old_string": "a", "new_string": "b"}, None, ["- a", "+ b"]),
        ("Edit", {"old_string": "", "new_string": "b\n"}, None, ["+ b"]),
        ("Edit", {"old_string": 1, "new_string": "b"}, None, []),
        ("Edit", None, None, []),
        ("Write", {"file_path": "f", "content": "x\ny"}, None, ["+ x", "+ y", "\\ no newline at the end"]),
        ("Write", {"file_path": "f", "content": "x\n\n"}, None, ["+ x", "+"]),
        ("Write", {"file_path": "f", "content": "x\nz"}, "x\ny", ["  x", "- y", "+ z"]),
        ("Bash", {"command": "ls"}, None, []),
    ],
)
def test_what_a_call_would_change(name: str, arguments: dict[str, Any], known: str | None, rows: list[str]) -> None:
    check(change_lines(name, arguments, lambda path: known), *rows)


def test_far_lines_are_left_out_of_what_was_done_only() -> None:
    old = "\n".join(map(str, range(20)))
    rows = diff_lines(old, old.replace("10", "ten"))
    assert len(rows) == 21
    kept = only_changes(rows)
    check(kept, "  ⋮", "  8", "  9", "- 10", "+ ten", "  11", "  12", "  ⋮")
    assert kept[0] == GAP


# --- Questions -------------------------------------------------------------------------------------------------------

ASKED = Question(PermissionAsked("c4.0", "Bash", "make test", "no rule allows this command", "Bash(make test)"))
BARE = Question(PermissionAsked("c4.0", "Bash", "make test", "no rule allows this command", ""))
CHILDS = Question(BARE.asked, None, "child-1", "a398 explore")


@pytest.mark.parametrize(
    ("question", "labels"),
    [
        (
            ASKED,
            "y yes, once; s yes, for this session: Bash(make test); a always: Bash(make test); n no; f no, and say why",
        ),
        (BARE, "y yes, once; n no; f no, and say why"),
    ],
)
def test_the_answers_say_what_they_store(question: Question, labels: str) -> None:
    assert "; ".join(f"{choice.key} {choice.label}" for choice in choices(question)) == labels


@pytest.mark.parametrize(
    ("question", "key", "word"),
    [
        (ASKED, "y", Answer("c4.0", "allow")),
        (ASKED, "s", Answer("c4.0", "allow", "session", "Bash(make test)")),
        (ASKED, "a", Answer("c4.0", "allow", "always", "Bash(make test)")),
        (ASKED, "n", Answer("c4.0", "deny")),
        (ASKED, "f", Answer("c4.0", "deny", message="because")),
        (ASKED, "x", None),
        (BARE, "s", None),
        (BARE, "a", None),
        (CHILDS, "y", Answer("c4.0", "allow", session="child-1")),
        (CHILDS, "f", Answer("c4.0", "deny", message="because", session="child-1")),
    ],
)
def test_a_key_is_the_answer_it_shows(question: Question, key: str, word: Answer | None) -> None:
    assert answer(question, key, "because" if key == "f" else "") == word


def test_an_edit_is_approved_with_all_its_arguments() -> None:
    arguments = {"file_path": "a.py", "replace_all": True, "old_string": "a", "new_string": "b"}
    question = Question(PermissionAsked("c4.0", "Edit", "{…}", "it changes a.py", ""), arguments)
    check(content_lines(question), "file_path: a.py", "replace_all: True", "- a", "+ b")


def test_what_is_approved_can_be_scrolled_to_its_last_byte_at_any_size() -> None:
    shown = "\n".join(f"{n} " + "日本" * n for n in range(60))
    for width, height in ((80, 24), (40, 12), (30, 14)):
        approval = Approval(BARE, content_lines(BARE))
        approval = Approval(BARE, [line(row) for row in shown.split("\n")])
        seen: dict[int, str] = {}
        for _ in range(400):
            rows = approval.draw(width, height)
            assert len(rows) <= height
            assert all(cells(plain(row)) <= width for row in rows if not plain(row).startswith("└"))
            body = [plain(row)[2:] for row in rows if plain(row).startswith("│ ")]
            seen |= dict(enumerate(body, approval.top))
            before = approval.top
            approval.scroll(approval.page)
            if approval.top == before:
                break
        assert "".join("".join(seen[n] for n in sorted(seen)).split()) == "".join(shown.split())


def test_a_question_says_that_more_follow() -> None:
    rows = texts(Approval(BARE, content_lines(BARE), waiting=2).draw(80, 20))
    assert rows[0] == "? Bash: no rule allows this command  (and 2 more)"
    assert rows[1] == "│ make test"
    assert texts(Approval(CHILDS, ()).draw(80, 20))[0] == "? a398 explore asks: Bash: no rule allows this command"


def test_a_list_keeps_the_marked_row_in_sight() -> None:
    chooser = Chooser("which?", [Row(str(n), f"row {n}", "note") for n in range(50)])
    chooser.move(30)
    rows = texts(chooser.draw(60, 10))
    assert len(rows) == 10
    assert "› row 30  note" in rows
    assert rows[-1].startswith("31 of 50")
    chooser.move(999)
    assert chooser.chosen == "49"
    chooser.move(-999)
    assert chooser.chosen == "0"


# --- Commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("/cost", "cost|"),
        ("/compact  keep the tests ", "compact|keep the tests"),
        ("/model a/b", "model|a/b"),
        ("/quit", "exit|"),
        ("/new", "clear|"),
        ("/nope x", "?nope|x"),
        ("/usr/bin/x fails", None),
        ("/cost\nmore", None),
        ("/agents tell a7 one\ntwo", "agents|tell a7 one\ntwo"),
        ("/bg", "background|"),
        ("/", None),
        ("cost", None),
        ("what is /cost", None),
    ],
)
def test_what_is_a_command(text: str, parsed: str | None) -> None:
    typed = parse(text)
    shown = typed and f"{'' if typed.command else '?'}{typed.name}|{typed.argument}"
    assert shown == parsed


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("comp", "there is no command /comp; did you mean /compact?"),
        ("nope", "there is no command /nope; /help lists them"),
        ("wind", "there is no command /wind; did you mean /rewind?"),
    ],
)
def test_an_unknown_command_names_the_nearest(name: str, told: str) -> None:
    assert unknown_command_text(name) == told


def test_help_names_every_command_and_fits_80_columns() -> None:
    rows = texts(help_lines())
    assert [row.split()[0] for row in rows if row.startswith("  /")] == [f"/{command.name}" for command in COMMANDS]
    assert [
        command.summary for command in COMMANDS if not any(row.endswith(f"  {command.summary}") for row in rows)
    ] == []
    assert max(map(cells, rows)) < 80


def test_modes_go_round_and_never_into_the_one_without_questions() -> None:
    assert [next_mode(mode) for mode in ("default", "acceptEdits", "plan", "bypassPermissions")] == [
        "acceptEdits",
        "plan",
        "default",
        "default",
    ]


def test_context_adds_up() -> None:
    rows = [
        ReportRow("system", "system", "", "", "full", 1_000, 0.0, goes=False, begins="You are"),
        ReportRow("calls and results", "result", "Read", "r7", "full", 4_000, 0.0123, goes=True, begins="def main"),
    ]
    told = texts(context_lines(Report(tuple(rows), 5_000, 5_000, 1.02, 10_000, 12_000)))
    assert [row.split("█")[0].split() for row in told] == [
        ["system", "1.0k", "10%"],
        ["calls", "and", "results", "4.0k", "40%"],
        ["free", "5.0k", "50%"],
        ["all", "5.0k", "of", "10.0k", "tokens"],
        ["estimates", "are", "corrected", "by", "1.02", "to", "match", "the", "provider's", "counts"],
        ["largest", "items", "(·", "=", "the", "next", "compaction", "takes", "it)"],
        ["·r7", "4,000", "$0.0123", "full", "Read", "def", "main"],
    ]


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (80, "idle · mock/small · default · context 42% · cache 91% · $1.20 · 2 queued"),
        (64, "idle · mock/small · default · context 42% · $1.20 · 2 queued"),
        (40, "idle · default · context 42% · $1.20"),
        (20, "idle · default"),
        (3, "id…"),
    ],
)
def test_a_narrow_footer_drops_the_least_urgent(width: int, told: str) -> None:
    footer = footer_line(Figures("mock/small", "default", 42, 91, 1.2, 2), "idle", width)
    assert plain(footer) == told


# --- Lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width", "rows"),
    [
        ("short", 10, ["short"]),
        ("two words", 6, ["two", "words"]),
        ("abcdefghijkl", 5, ["abcde", "fghij", "kl"]),
        ("全角文字", 5, ["全角", "文字"]),
        ("", 5, [""]),
        ("exact five", 5, ["exact", "five"]),
    ],
)
def test_wrapping_counts_cells(text: str, width: int, rows: list[str]) -> None:
    check(wrap(line(text), width), *rows)


@given(st.lists(st.text("ab 全é\u0301", max_size=20), min_size=1, max_size=4), st.integers(6, 30))
def test_wrapping_loses_nothing_and_fits(spans: list[str], width: int) -> None:
    rows = wrap(line(*spans), width)
    assert all(cells(plain(row)) <= width for row in rows)
    assert "".join(map(plain, rows)).replace(" ", "") == "".join(spans).replace(" ", "")


def test_a_call_is_cropped_and_prose_is_wrapped() -> None:
    assert texts(fit(line(NO_WRAP, "x" * 30), 10)) == ["x" * 9 + "…"]
    assert texts(fit(line("x" * 30), 10)) == ["x" * 10] * 3
    assert plain(crop(line("全角文字"), 6)) == "全角…"


def test_colour_is_never_the_only_sign() -> None:
    row = line(("bad", "failed"), " x")
    assert ansi(row) == "\x1b[31mfailed\x1b[0m x"
    assert ansi(row, colour=False) == "failed x"


def test_folding_says_how_much_it_hides() -> None:
    check(fold([line(str(n)) for n in range(9)], 4), "0", "1", "2", "… 6 more lines")
