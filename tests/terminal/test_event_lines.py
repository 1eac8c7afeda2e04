"""Lines of events: expected text beside the event."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent import Answer, ReplyDelta, RetryPause, SessionUpdate, approval_digest
from longrein.frontends.terminal import event_lines
from longrein.frontends.terminal.approvals import (
    Approval,
    Question,
    answer,
    choices,
    content_lines,
    rule_lines,
)
from longrein.frontends.terminal.choice_list import Chooser, Row
from longrein.frontends.terminal.event_lines import (
    GAP,
    NO_WRAP,
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
from longrein.frontends.terminal.live_area import (
    Figures,
    footer_line,
    silence_text,
    state_line,
    state_word,
)
from longrein.frontends.terminal.view_model import ViewModel
from longrein.models import TextDelta
from longrein.steps import human_text
from longrein_context.events import (
    AnyEvent,
    Asked,
    AskFailed,
    Cleared,
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
    TodoSet,
    ToolCall,
    ToolEnded,
    TurnEnded,
    UserSpoke,
)
from tests.terminal.scripted_session import PREFIX, apply, texts

# --- What goes on ---------------------------------------------------------------------------------

GO = UserSpoke((Text("go"),))
ASK = Asked("turn", 1, 1)
PAUSE = RetryPause(5, "overload", 529, 1, 10, 4.0, "Overloaded \x1b[31m\nreally")
OTHERS = msgspec.structs.replace(PAUSE, attempt=0)
FAILED = AskFailed(5, "overload", "Overloaded", 529)
WHY = "attempt 2 of 10: Overloaded \\x1b[31m\\nreally"


@pytest.mark.parametrize(
    ("heard", "footer", "phase"),
    [
        ([ASK], "thinking", "thinking"),
        ([ASK, FAILED], "thinking", "thinking"),
        ([ASK, FAILED, PAUSE], "retrying", f"retrying in 3 s, {WHY}"),
        ([ASK, FAILED, PAUSE, ASK], "retrying", f"retrying in 3 s, {WHY}"),  # it waits for its turn
        ([ASK, FAILED, PAUSE, 5.0, ASK], "retrying", f"retrying, {WHY}"),
        ([ASK, FAILED, PAUSE, 5.0, ASK, ReplyDelta(4, [TextDelta("a")])], "running", "writing"),
        ([ASK, FAILED, PAUSE, 5.0, ASK, FAILED], "thinking", "thinking"),
        ([ASK, FAILED, PAUSE, TurnEnded("interrupted")], "idle", ""),
        ([Asked("summary", 1, 1)], "compacting", "compacting: summarising what is old"),
        (
            [msgspec.structs.replace(OTHERS, message="")],
            "retrying",
            "waiting 3 s for the provider: overload",
        ),
        ([OTHERS, 5.0], "retrying", "waiting for the provider: Overloaded \\x1b[31m"),
    ],
)
def test_the_footer_says_that_a_request_is_made_again_until_the_model_answers(
    heard: list[AnyEvent | SessionUpdate | float], footer: str, phase: str
) -> None:
    view = ViewModel()
    apply(view, GO, *heard)
    assert state_word(view) == footer
    now_s = sum(pause for pause in heard if isinstance(pause, float)) + 1
    assert plain(state_line(view, now_s)).partition("  ")[0].lstrip("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ").startswith(phase)


def test_a_silence_is_told_after_five_seconds() -> None:
    view = ViewModel()
    apply(view, GO, Asked("turn", 3, 2))
    assert silence_text(view, view.heard_s + 4.9) == ""
    assert silence_text(view, view.heard_s + 5) == "no answer yet, asked 5 s ago"


SUMMARY, AHEAD = Asked("summary", 1, 1), Asked("summary", 1, 1, reason="ahead")
NO_SUMMARY = "the model wrote no summary  "


@pytest.mark.parametrize(
    ("heard", "footer", "shown"),
    [
        (
            [Reminded("compact_refused", "", state="there is nothing \x1b[2J")],
            "idle",
            [r"! nothing was compacted: there is nothing \x1b[2J"],
        ),
        (
            [Restored(412)],
            "idle",
            ["context: the compaction r412 is undone; what it put away is shown again"],
        ),
        ([SUMMARY], "compacting", []),
        ([SUMMARY, Replied(1, (Text("prose"),), "end")], "idle", []),
        (
            [SUMMARY, AskFailed(1, "invalid", "no summary: it declined")],
            "idle",
            [f"{NO_SUMMARY}it declined"],
        ),
        (
            [SUMMARY, AskFailed(1, "overload", "Over\x1b[2Jloaded")],
            "idle",
            [rf"{NO_SUMMARY}Over\x1b[2Jloaded"],
        ),
        ([SUMMARY, AskFailed(1, "cancelled", "no longer needed")], "idle", []),
        # made ahead, beside a turn: neither the work nor its text are disturbed
        (
            [
                GO,
                AHEAD,
                ASK,
                Replied(2, (Text("prose"),), "end"),
                Replied(3, (Text("Hello."),), "end"),
            ],
            "thinking",
            ["› go", "Hello."],
        ),
        ([GO, ASK, AHEAD], "thinking", ["› go"]),
        (
            [GO, ASK, AHEAD, AskFailed(3, "invalid", "it is empty")],
            "thinking",
            ["› go", f"{NO_SUMMARY}it is empty"],
        ),
    ],
)
def test_what_a_compaction_does_is_said_and_never_taken_for_an_answer(
    heard: list[AnyEvent], footer: str, shown: list[str]
) -> None:
    view = ViewModel()
    assert (apply(view, *heard), state_word(view)) == (shown, footer)


# --- Calls and other events -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "arguments", "expected"),
    [
        (("Read", "ok", "", 0), {"file_path": "a.py"}, ["● Read ok  a.py"]),
        (("Bash", "ok", "", 1_240), {"command": "ls"}, ["● Bash ok 1.2 s  ls"]),
        (("Bash", "ok", "", 185_000), {"command": "make\ntest"}, ["● Bash ok 3 m 05 s  make …"]),
        (("Bash", "denied", "no", 0), {"command": "rm"}, ["● Bash denied  rm"]),
        (("Bash", "not_run", "", 0), {}, ["● Bash not run"]),
        (
            ("Bash", "interrupted", "half", 400),
            {"command": "x"},
            ["● Bash interrupted 0.4 s  x", "  half"],
        ),
        (
            ("Bash", "failed", "1\n\n2\n3\n4\n5", 0),
            None,
            ["● Bash failed", *(f"  {n}" for n in range(1, 6))],
        ),
        (
            (
                "Read",
                "failed",
                '[not-found] No such file: a. Here: b. Next: call Read with b "b".',
                0,
            ),
            {"file_path": "a"},
            ["● Read failed  a", "  No such file: a. Here: b."],
        ),
        (
            (
                "Bash",
                "failed",
                "x\n[timed out after 9 s and was ended; timeout may be up to 99 ms]",
                0,
            ),
            {"command": "x"},
            ["● Bash failed  x", "  x", "  [timed out after 9 s and was ended]"],
        ),
        (
            ("AskUserQuestion", "ok", "The user answered:\n\nWhich?\nblue", 0),
            {"questions": []},
            ["● AskUserQuestion ok", "  The user answered:", "  Which?", "  blue"],
        ),
        (("Mcp", "ok", "", 0), {"n": 1, "word": "w"}, ["● Mcp ok  w"]),
        (
            ("Glob", "ok", "", 0),
            {"path": "src", "pattern": "*.py"},
            ["● Glob ok nothing found  *.py in src"],
        ),
        (
            ("Edit", "ok", "", 0),
            {
                "file_path": "a.py",
                "old_string": "1\n2\n3\n4\n5\n6",
                "new_string": "1\n2\n3\n4\nfive\n6",
            },
            ["● Edit ok +1 -1  a.py", "    ⋮", "    3", "    4", "  - 5", "  + five", "    6"],
        ),
    ],
)
def test_a_call_is_one_line_with_its_state_as_a_word(
    end: tuple[str, str, str, int], arguments: dict[str, Any], expected: list[str]
) -> None:
    name, status, text, elapsed_ms = end
    call = ToolCall("c1.0", name, arguments)
    assert (
        apply(
            ViewModel(),
            PREFIX,
            Replied(2, (call,), "calls"),
            ToolEnded("c1.0", name, status, (Text(text),), elapsed_ms),
            TurnEnded("done"),
        )
        == expected
    )


RECALLED = "every byte can be recalled"
FULL = "the window was nearly full"
PUT = (FilePut("a", True), FilePut("b", False, "changed since"), FilePut("c", True, removed=True))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            TodoSet((Todo("a", "completed"), Todo("b", "in_progress"), Todo("c"))),
            ["[x] a", "[>] b", "[ ] c"],
        ),
        (TodoSet(()), ["todo list emptied"]),
        (UserSpoke((Text("one\ntwo"),)), ["› one", "  two"]),
        (TurnEnded("done"), []),
        (TurnEnded("interrupted"), ["interrupted  say what to do instead"]),
        (TurnEnded("limit", "50 turns"), ["stopped: limit  50 turns"]),
        (AskFailed(1, "network", message="gone"), []),
        (PermissionAnswered("c", "allow", "user"), []),
        (
            PermissionAnswered("c", "allow", "user", "session", "Bash(ls)"),
            [
                "allowed for this session  Bash(ls)",
                "  /permissions remove Bash(ls) takes it back",
            ],
        ),
        (
            PermissionAnswered("c", "allow", "user", "always", "Edit"),
            ["allowed always  Edit", "  /permissions remove Edit takes it back"],
        ),
        (PermissionAnswered("c", "deny", "user", message="not so"), ["no: not so"]),
        (
            Cleared((Form("r1", "placeholder", "…"),), "watermark", 12_300),
            [f"context: 1 old item shortened, about 12.3k tokens freed: {FULL}; {RECALLED}"],
        ),
        (
            Summarized(2, 90, "all", "watermark", "prose"),
            [f"context: entries 2 to 90 summarised: {FULL}; {RECALLED}"],
        ),
        (
            Summarized(2, 90, "all", "watermark"),
            [
                (
                    "context: entries 2 to 90 summarised by the records alone, without the model: "
                    f"{FULL}; {RECALLED}"
                )
            ],
        ),
        (
            Rewound(4, PUT),
            [
                "rewound  the conversation is again as it was at entry 4",
                "  put back  a",
                "  left as it is (changed since)  b",
                "  removed, it is new since then  c",
            ],
        ),
    ],
)
def test_events_in_words(event: AnyEvent, expected: list[str]) -> None:
    assert apply(ViewModel(), event) == expected


def test_a_reply_that_was_cut_off_is_marked() -> None:
    begun = ReplyDelta(1, [TextDelta("It ")])
    rows = apply(ViewModel(), ASK, begun, AskFailed(1, "network", message="gone"))
    assert rows == ["It", "the reply above was cut off  gone"]


def test_a_steering_message_says_at_which_step_it_was_delivered() -> None:
    rows = apply(
        ViewModel(),
        GO,
        ASK,
        Replied(2, (Text("It is so."),), "calls"),
        UserSpoke((Text("faster"),), "steer"),
    )
    assert rows[-1] == "› faster  (delivered at step 2)"


def test_a_prompt_is_folded_and_says_when_it_was_delivered() -> None:
    rows = texts(
        event_lines.user_lines(UserSpoke((Text("\n".join(map(str, range(500)))),)), "at step 3")
    )
    assert len(rows) == event_lines.USER_LINES_MAX
    assert (rows[0], rows[1], rows[-1]) == ("› 0  (at step 3)", "  1", "  … 489 more lines")


def test_figures() -> None:
    assert [human_text.tokens(count) for count in (0, 999, 12_345, 1_234_567)] == [
        "0",
        "999",
        "12.3k",
        "1.2M",
    ]
    assert [human_text.money(usd) for usd in (0, 0.0012, 0.0123, 12.5)] == [
        "$0.00",
        "$0.0012",
        "$0.01",
        "$12.50",
    ]
    sizes = [human_text.size(count) for count in (0, 999, 1_000, 12_345_678, 10_000_000_000)]
    assert sizes == ["0 B", "999 B", "1.0 kB", "12.3 MB", "10.0 GB"]


@pytest.mark.parametrize(
    ("seconds", "elapsed", "live"),
    [
        (0.01, "", "0 s"),
        (0.4, "0.4 s", "0 s"),
        (12, "12 s", "12 s"),
        (185, "3 m 05 s", "3 m"),
        (7_500, "2 h 05 m", "2 h 05 m"),
        (-5, "", "0 s"),
    ],
)
def test_times(seconds: float, elapsed: str, live: str) -> None:
    assert (human_text.elapsed(seconds), human_text.live_elapsed(seconds)) == (elapsed, live)


# --- Differences ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "rows", "count"),
    [
        ("a\nb", "a\nc", ["  a", "- b", "+ c"], "+1 -1"),
        ("a", "a\nb", ["  a", "+ b"], "+1 -0"),
        ("a\n", "a", ["  a", "-"], "+0 -1"),
        ("\tx", "\u202ex", ["-     x", r"+ \u202ex"], "+1 -1"),
    ],
)
def test_a_difference_line_by_line(old: str, new: str, rows: list[str], count: str) -> None:
    drawn = diff_lines(old, new)
    assert (texts(drawn), counts(drawn)) == (rows, count)


@given(*[st.lists(st.sampled_from("abc"), min_size=1, max_size=8).map("\n".join)] * 2)
def test_a_difference_holds_every_line_of_both_sides(old: str, new: str) -> None:
    rows = texts(diff_lines(old, new))
    assert [row[2:] for row in rows if row[0] in " -"] == old.split("\n")
    assert [row[2:] for row in rows if row[0] in " +"] == new.split("\n")


PATCH = """*** Begin Patch
*** Update File: a.py
*** Move to: b.py
 def f():
-    return 1
+    return 2
@@ def g():
+    x\x1b[2J
*** Delete File: c.py
*** Add File: d.py
+new
*** End Patch"""
PATCH_ROWS = [
    "Update a.py -> b.py", "@@", "  def f():", "-     return 1", "+     return 2", "@@ def g():",
    r"+     x\x1b[2J", "Delete c.py", "- gone", "Add d.py", "+ new",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "known", "rows"),
    [
        ("Edit", {"old_string": "a", "new_string": "b"}, None, ["- a", "+ b"]),
        ("Edit", {"old_string": "", "new_string": "b\n"}, None, ["+ b"]),
        ("Edit", {"old_string": 1, "new_string": "b"}, None, []),
        ("Edit", None, None, []),
        (
            "Write",
            {"file_path": "f", "content": "x\ny"},
            None,
            ["+ x", "+ y", "\\ no newline at the end"],
        ),
        ("Write", {"file_path": "f", "content": "x\n\n"}, None, ["+ x", "+"]),
        ("Write", {"file_path": "f", "content": "x\nz"}, "x\ny", ["  x", "- y", "+ z"]),
        ("Bash", {"command": "ls"}, None, []),
        ("apply_patch", {"input": PATCH}, "gone\n", PATCH_ROWS),
        ("apply_patch", {"input": "no patch"}, None, []),
    ],
)
def test_what_a_call_would_change(
    name: str, arguments: dict[str, Any], known: str | None, rows: list[str]
) -> None:
    assert texts(change_lines(name, arguments, lambda path: known)) == rows


def test_far_lines_are_left_out_of_what_was_done_only() -> None:
    old = "\n".join(map(str, range(20)))
    rows = diff_lines(old, old.replace("10", "ten"))
    assert len(rows) == 21
    kept = only_changes(rows)
    assert texts(kept) == ["  ⋮", "  8", "  9", "- 10", "+ ten", "  11", "  12", "  ⋮"]
    assert kept[0] == GAP


# --- Questions and lists --------------------------------------------------------------------------

ASKED = Question(
    PermissionAsked("c4.0", "Bash", "make test", "no rule allows this command", "Bash(make test)")
)
BARE = Question(PermissionAsked("c4.0", "Bash", "make test", "no rule allows this command", ""))
EDITS = Question(PermissionAsked("c4.0", "Bash", "git commit", "it changes a file", edits=True))
CHILDS = Question(BARE.asked, None, "child-1", "a398 explore")


def test_the_answers_say_what_they_store() -> None:
    labels = [
        "; ".join(f"{choice.value} {choice.label}" for choice in choices(question))
        for question in (ASKED, BARE, EDITS)
    ]
    assert labels == [
        (
            "y yes, once; s yes, for this session: Bash(make test); a always: Bash(make test); n "
            "no; "
            "f no, and say why"
        ),
        "y yes, once; n no; f no, and say why",
        "y yes, once; m yes, and all edits of this session; n no; f no, and say why",
    ]


@pytest.mark.parametrize(
    ("question", "key", "message"),
    [
        (ASKED, "y", Answer("c4.0", "allow")),
        (ASKED, "s", Answer("c4.0", "allow", "session", "Bash(make test)")),
        (ASKED, "a", Answer("c4.0", "allow", "always", "Bash(make test)")),
        (ASKED, "n", Answer("c4.0", "deny")),
        (ASKED, "f", Answer("c4.0", "deny", message="because")),
        (ASKED, "x", None),
        (ASKED, "m", None),
        (EDITS, "m", Answer("c4.0", "allow")),
        (BARE, "s", None),
        (BARE, "a", None),
        (CHILDS, "y", Answer("c4.0", "allow", session="child-1")),
        (CHILDS, "f", Answer("c4.0", "deny", message="because", session="child-1")),
    ],
)
def test_a_key_is_the_answer_it_shows(question: Question, key: str, message: Answer | None) -> None:
    told = answer(question, key, "because" if key == "f" else "")
    assert told == (
        message and msgspec.structs.replace(message, digest=approval_digest(question.asked))
    )


def test_several_rules_are_listed_before_they_are_granted() -> None:
    rules = [f"Bash(make t{n}:*)" for n in range(5)]
    question = Question(PermissionAsked("c4.0", "Bash", "make t0; …", "no rule", "\n".join(rules)))
    assert texts(rule_lines(question)) == [f"  rule: {rule}" for rule in rules]
    assert [choice.label for choice in choices(question)][1:3] == [
        "yes, for this session: these 5 rules",
        "always: these 5 rules",
    ]
    drawn = texts(Approval(question, content_lines(question)).draw(60, 12))
    assert [row for row in drawn if "rule: " in row] == [f"  rule: {rule}" for rule in rules]


def test_an_edit_is_approved_with_all_its_arguments() -> None:
    arguments = {"file_path": "a.py", "replace_all": True, "old_string": "a", "new_string": "b"}
    question = Question(PermissionAsked("c4.0", "Edit", "{…}", "it changes a.py", ""), arguments)
    assert texts(content_lines(question)) == ["file_path: a.py", "replace_all: True", "- a", "+ b"]
    asked = PermissionAsked("c4.0", "apply_patch", "{…}", "it changes a.py", "")
    question = Question(asked, {"input": PATCH})
    note, *rows = texts(content_lines(question, lambda _: "gone\n"))
    assert (note[:28], rows) == ("[1 character that cannot be ", PATCH_ROWS)
    drawn = texts(Approval(question, content_lines(question)).draw(60, 5))
    assert drawn[0] == "? apply_patch: a.py, b.py, c.py, d.py: it changes a.py"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (30, 14)])
def test_what_is_approved_can_be_scrolled_to_its_last_byte_at_any_size(
    width: int, height: int
) -> None:
    content = [f"{n} " + "日本" * n for n in range(60)]
    approval = Approval(BARE, [line(row) for row in content])
    seen: dict[int, str] = {}
    for _ in range(400):
        rows = approval.draw(width, height)
        assert len(rows) <= height
        assert all(cells(plain(row)) <= width for row in rows if not plain(row).startswith("└"))
        seen |= dict(
            enumerate([plain(row)[2:] for row in rows if plain(row).startswith("│ ")], approval.top)
        )
        before = approval.top
        approval.scroll(approval.page)
        if approval.top == before:
            break
    assert "".join("".join(seen[n] for n in sorted(seen)).split()) == "".join(
        "".join(content).split()
    )


def test_a_question_says_that_more_follow() -> None:
    rows = texts(Approval(BARE, content_lines(BARE), waiting=2).draw(80, 20))
    assert rows[:2] == ["? Bash: no rule allows this command  (1 of 3)", "│ make test"]
    assert (
        texts(Approval(CHILDS, ()).draw(80, 20))[0]
        == "? a398 explore asks: Bash: no rule allows this command"
    )


def test_a_list_keeps_the_marked_row_in_sight() -> None:
    chooser = Chooser("which?", [Row(str(n), f"row {n}", "note") for n in range(50)])
    chooser.move(30)
    rows = texts(chooser.draw(60, 10))
    assert len(rows) == 10
    assert "› row 30  note" in rows
    assert rows[-1].startswith("31 of 50")
    for by, chosen in ((999, "49"), (-999, "0")):
        chooser.move(by)
        assert chooser.chosen == chosen


# --- The footer and lines -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "mode", "sandbox", "footer"),
    [
        (80, "default", "", "idle · mock/small · context 31k (42%) · cache 91% · $1.20 · 2 queued"),
        (70, "default", "", "idle · mock/small · context 31k (42%) · cache 91% · $1.20 · 2 queued"),
        (66, "default", "", "idle · mock/small · context 31k (42%) · $1.20 · 2 queued"),
        (
            80,
            "acceptEdits",
            "no sandbox",
            "idle · mock/small · acceptEdits · context 31k (42%) · $1.20 · no sandbox",
        ),
        (
            66,
            "acceptEdits",
            "no network",
            "idle · mock/small · acceptEdits · context 31k (42%) · $1.20",
        ),
        (40, "default", "no sandbox", "idle · mock/small · context 31k (42%)"),
        (40, "plan", "no sandbox", "idle · mock/small · plan"),
        (24, "plan", "", "idle · mock/small · plan"),
        (20, "default", "", "idle · mock/small"),
        (15, "default", "", "idle · …k/small"),
        (3, "default", "", "id…"),
    ],
)
def test_a_narrow_footer_drops_the_least_urgent_and_never_the_mode(
    width: int, mode: str, sandbox: str, footer: str
) -> None:
    figures = Figures("mock/small", mode, 31_200, 42, 91, 1.2, 2, sandbox=sandbox)
    assert plain(footer_line(figures, "idle", width)) == footer


def test_a_narrow_footer_keeps_the_end_of_a_long_model_and_never_hides_a_mode() -> None:
    for mode in ("plan", "acceptEdits", "bypassPermissions"):
        figures = Figures("anthropic/claude-sonnet-4-5-20250929", mode, 9, 1, 1, 1, 0)
        shown = plain(footer_line(figures, "running", 40))
        assert shown.endswith(f" · {mode}")
        assert "0929 · " in shown


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
    assert texts(wrap(line(text), width)) == rows


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
    assert [ansi(row), ansi(row, colour=False)] == ["\x1b[31mfailed\x1b[0m x", "failed x"]


def test_folding_says_how_much_it_hides() -> None:
    assert texts(fold([line(str(n)) for n in range(9)], 4)) == ["0", "1", "2", "… 6 more lines"]
