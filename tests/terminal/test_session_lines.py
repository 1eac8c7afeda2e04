"""Lines about compactions and money, the searchable list, and the clipboard."""

import os
import pty
from pathlib import Path

import pytest
from msgspec.structs import replace

from longrein.frontends.reports.cost import cost_rows
from longrein.frontends.terminal.choice_list import ChoiceList, Chooser, Row
from longrein.frontends.terminal.clipboard import copy, osc52, programs, takes_osc52
from longrein.frontends.terminal.event_lines import plain
from longrein.frontends.terminal.view_model import ViewModel
from longrein.steps.human_text import age, counted, money, tokens
from longrein.steps.steps import COMPACTION_REASONS
from longrein_context import Price, State, fold
from longrein_context.events import (
    AnyEvent,
    Asked,
    Cleared,
    Entry,
    Form,
    ModeSet,
    PrefixSet,
    Replied,
    Restored,
    SubagentEnded,
    Summarized,
    Text,
    TurnEnded,
    Usage,
    UsageError,
    UserSpoke,
)
from tests.terminal.scripted_session import apply, texts

pytestmark = pytest.mark.anyio

LONG = "a line of some words\n" * 2_000
TALK = (
    PrefixSet("start", "mock", "small", "anthropic", "You help."),
    UserSpoke((Text("go"),)),
    Asked("turn", 2, 1, estimate_tokens=42_000),
    Replied(3, (Text(LONG),), "end"),
    TurnEnded("done"),
    UserSpoke((Text("on"),)),
    Asked("turn", 6, 1, estimate_tokens=42_000),
    Replied(7, (Text("done"),), "end"),
    TurnEnded("done"),
)
CLEARED = Cleared((Form("r4", "trimmed", "x"),), "watermark", 31_000)
SUMMARY = (Asked("summary", 9, 1, reason="request"), Replied(10, (Text("s"),), "end", cost_usd=0.5))
UNDO = "; every byte can be recalled, /uncompact undoes it"
PRICE = Price(1_000, 0, cache_read=100, cache_write=1_100)
"""A token more in the cache costs a tenth of a cent, reading it a hundredth of a cent."""


def compacted(price: Price | None, *events: AnyEvent) -> tuple[str, State]:
    """The line of a compaction after `TALK`, and the state after it."""
    view = ViewModel()
    state = fold(Entry(n, n, event) for n, event in enumerate((*TALK, *events), 1))
    view.live, view.context_now = True, lambda: (state, price)
    return apply(view, *TALK, *events)[-1], state


@pytest.mark.parametrize(
    ("events", "line"),
    [
        (
            (CLEARED,),
            "context: 42.0k → {now} tokens; 1 old item shortened: the window was nearly full",
        ),
        (
            (*SUMMARY, Summarized(2, 5, "s", "request", prose="s")),
            (
                "context: 42.0k → {now} tokens; entries 2 to 5 summarised: you asked for it; the "
                "summary cost $0.50"
            ),
        ),
        (
            (Summarized(2, 5, "s", "overflow"),),
            (
                "context: 42.0k → {now} tokens; entries 2 to 5 summarised by the records alone, "
                "without the model: the request did not fit the window"
            ),
        ),
    ],
    ids=["cleared", "summarised", "digest"],
)
def test_a_compaction_says_its_tokens_and_money(events: tuple[AnyEvent, ...], line: str) -> None:
    said, state = compacted(None, *events)
    assert said == line.format(now=tokens(state.view_tokens)) + UNDO


@pytest.mark.parametrize("reason", ["rent", "watermark", "cold"])
def test_a_clearing_says_what_the_break_costs_and_what_it_saves(reason: str) -> None:
    """What follows the first change is written anew, unless the cache was cold; each later request
    reads less.
    """
    said, state = compacted(PRICE, replace(CLEARED, reason=reason))
    after = state.gauge.scale(sum(item.tokens for item in state.items if 4 <= item.seqs[0] <= 6))
    paid = f"the break costs {money(after / 1_000)}, " if reason != "cold" else ""
    assert said.endswith(f"; {paid}each further request $3.10 less{UNDO}")
    assert COMPACTION_REASONS[reason] in said


def test_what_was_compacted_and_is_shown_again_says_so() -> None:
    said, state = compacted(PRICE, CLEARED, Restored(10))
    assert said == (
        "context: the compaction r10 is undone; what it put away is shown again; "
        f"{tokens(state.view_tokens)} tokens now"
    )


def test_cost_is_summed_by_model_and_purpose() -> None:
    used = Usage(1_000, 9_000, 0, 300)
    events = (
        PrefixSet("start", "mock", "small", "anthropic", ""),
        Asked("turn", 1, 1),
        Replied(2, (), "end", used, cost_usd=0.5),
        PrefixSet("model", "mock", "large", "anthropic", ""),
        Asked("summary", 4, 4),
        Replied(5, (), "end", used, cost_usd=0.02),
        Asked("turn", 6, 4),
        Replied(7, (), "end", used, cost_usd=2.0),
        SubagentEnded("c", "done", usage=used, cost_usd=0.1, steps=3),
    )
    rows = cost_rows(Entry(n, 0, event) for n, event in enumerate(events, 1))
    tail = "10.0k in (90% from cache), 300 out"
    assert [f"{row.name}: {row.figures}" for row in rows] == [
        f"mock/large  turn: 1 request, {tail}, $2.00",
        f"mock/small  turn: 1 request, {tail}, $0.50",
        f"subagents: 3 requests, {tail}, $0.10",
        f"mock/large  summary: 1 request, {tail}, $0.02",
    ]


ROWS = [
    Row("1111", "mend the parser", "3 h ago · main"),
    Row("2222", "日本語 title", "2 days ago · topic"),
    Row("3333", "once only", "just now", "one-shot runs (-p)"),
]


def test_a_list_is_narrowed_by_words_in_any_order() -> None:
    wanted: list[str] = []
    found = Chooser("which?", ROWS, want=wanted.append)
    found.previews["1111"] = ["mock/small, 3 requests", "› mend it"]
    assert texts(found.draw(80, 20)) == [
        "which?  ▏",
        "› mend the parser  3 h ago · main",
        "  日本語 title  2 days ago · topic",
        "  ── one-shot runs (-p) ──",
        "  once only  just now",
        "  │ mock/small, 3 requests",
        "  │ › mend it",
        "1 of 3; type to search, ↑ ↓ move, Enter chooses, Esc leaves",
    ]
    for query, values in (
        ("topic 日", ["2222"]),
        ("PARSER main", ["1111"]),
        ("one-shot", ["3333"]),
        ("33", ["3333"]),
        ("", ["1111", "2222", "3333"]),
        ("zz", []),
    ):
        found.search(query)
        assert [row.value for row in found.rows] == values
    assert found.chosen == ""
    assert "nothing fits" in plain(found.draw(80, 20)[1])
    found.move(1)
    found.search("title")
    found.draw(80, 20)
    assert (found.chosen, wanted) == ("2222", ["2222"])


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("", "stop"),
        ("2", "keep"),
        ("keep", "keep"),
        ("LEAVE", "keep"),
        ("sta", "stay"),
        ("st", ""),
        ("4", ""),
        ("yes", ""),
    ],
)
def test_a_row_is_named_by_its_place_its_value_or_its_first_letters(typed: str, value: str) -> None:
    rows = [Row("stop", "stop it"), Row("keep", "leave it running"), Row("stay", "stay")]
    found = ChoiceList(rows).by_line(typed)
    assert (found.value if found else "") == value
    if typed.isdigit():
        chooser = Chooser("what?", rows)
        chooser.search(typed)
        assert chooser.chosen == value


@pytest.mark.parametrize(("width", "height"), [(24, 8), (40, 12), (200, 60), (10, 3)])
def test_a_list_fits_its_room(width: int, height: int) -> None:
    found = Chooser("which session?", ROWS * 40, want=lambda _: None)
    found.previews = {row.value: ["x" * 300] * 20 for row in ROWS}
    for _ in range(50):
        found.move(1)
        rows = texts(found.draw(width, height))
        assert len(rows) <= max(height, 3)
        assert any(row.startswith("›") for row in rows)


@pytest.mark.parametrize(
    ("environ", "takes"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "SSH_TTY": "/dev/pts/1"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "6800"}, False),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"TERM": "screen", "TMUX": "/tmp/tmux"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_terminals_that_take_the_clipboard(environ: dict[str, str], takes: bool) -> None:
    assert takes_osc52(environ) is takes


async def test_copy_goes_by_the_terminal_else_by_a_program_else_says_so(tmp_path: Path) -> None:
    main, sub = pty.openpty()
    assert await copy("héllo", {"TERM": "xterm"}, sub) == "by the terminal"
    assert os.read(main, 100) == osc52("héllo").encode() == b"\x1b]52;c;aMOpbGxv\x07"
    program = tmp_path / "xclip"
    program.write_text(f'#!/bin/sh\ncat > {tmp_path}/copied; echo "$@" >> {tmp_path}/copied\n')
    program.chmod(0o755)
    environ = {"TERM": "linux", "DISPLAY": ":0", "PATH": f"{tmp_path}:/bin:/usr/bin"}
    assert programs(environ)[0] == ["xclip", "-selection", "clipboard"]
    assert await copy("to x", environ, sub) == "by xclip"
    assert (tmp_path / "copied").read_text() == "to x-selection clipboard\n"
    with pytest.raises(UsageError, match="no clipboard is here"):
        await copy("x", {"TERM": "linux", "PATH": str(tmp_path / "nowhere")}, sub)
    with pytest.raises(UsageError, match="too long for the terminal's clipboard"):
        await copy("x" * 80_000, {"TERM": "xterm", "PATH": str(tmp_path / "nowhere")}, sub)
    os.close(main)
    os.close(sub)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "just now"),
        (-5, "just now"),
        (90, "1 m ago"),
        (7_200, "2 h ago"),
        (86_400, "1 day ago"),
        (86_400 * 21, "3 weeks ago"),
    ],
)
def test_ages(seconds: int, said: str) -> None:
    assert age(seconds * 1_000_000) == said


def test_a_mode_of_a_key_is_shown_by_the_footer_alone() -> None:
    view = ViewModel()
    view.silent_modes, view.mode_wanted = {"acceptEdits", "plan"}, "plan"
    assert apply(view, ModeSet("acceptEdits")) == []
    assert view.mode_wanted == "plan", "the footer shows it until it is in force"
    assert apply(view, ModeSet("plan")) == []
    assert (view.mode_wanted, view.silent_modes) == ("", set())
    assert apply(view, ModeSet("plan")) == ["mode: plan"]
    view.silent_modes, view.mode_wanted = {"auto"}, "auto"
    assert apply(view, ModeSet("default")) == ["mode: default"], "of a command or a tool"
    assert (view.mode_wanted, view.silent_modes) == ("", set())


@pytest.mark.parametrize(
    ("count", "noun", "shown"),
    [
        *((1, noun, f"1 {noun}") for noun in ("model", "entry", "search", "more line")),
        *((0, "model", "0 models"), (2, "entry", "2 entries"), (3, "search", "3 searches")),
        *((2, "more line", "2 more lines"), (4, "query", "4 queries")),
    ],
)
def test_a_count_has_the_noun_in_its_number(count: int, noun: str, shown: str) -> None:
    assert counted(count, noun) == shown
