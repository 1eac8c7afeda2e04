"""Clearing policy: its memory, the value of a line, and when clearing pays."""

import json

import msgspec
import pytest

from longrein.context.clearing import text_index as sheets
from longrein.context.clearing.line_value import (
    SizeEstimate,
    ValueModels,
    body_text,
    explain_lines,
    fill_gaps,
)
from longrein.context.clearing.needs import NeedsMemory
from longrein.context.clearing.rewrite import best_form, is_too_small, tokens_saved
from longrein.context.clearing.text_features import EDIT_CALL, PART_READ, READ, SourceItem
from longrein.context.clearing.timing import (
    ClearableKinds,
    ClearingPolicy,
    PolicySettings,
    plan_clearing,
    plan_shrinking,
    view_tokens,
)
from longrein.context.clearing.weights import TABLES

POLICY = ClearingPolicy(ValueModels(TABLES), nonce="a1b2c3")


class Story:
    """Items that arrive one after the other; a request is made after each result."""

    def __init__(self, policy: ClearingPolicy = POLICY) -> None:
        self.worth, self.policy, self.n, self.breaks = NeedsMemory(), policy, 0, 0
        self.put("user", "Please mend the ledger in src/ledger_book.py")
        self.ask()

    def put(
        self,
        kind: str,
        content: str = "",
        tool: str = "",
        arguments: str = "",
        call: str = "",
        **more: str,
    ) -> str:
        self.n += 1
        size = len(content or arguments) / 3 + (31 if kind in ("call", "result") else 4)
        handle = f"r{self.n}"
        self.worth.add(
            SourceItem(
                handle,
                kind,
                content,
                size,
                self.worth.now,
                tool,
                arguments,
                call,
                more.get("status", "ok"),
            )
        )
        return handle

    def ask(self) -> None:
        self.worth.mark_sent()

    def step(
        self, tool: str, arguments: dict[str, str], result: str, thought: str = "", **more: str
    ) -> str:
        if thought:
            self.put("thinking", thought)
        call = f"c{self.n}"
        self.put("call", "", tool, json.dumps(arguments), call)
        self.worth.now += 1  # the result is carried by the next request
        handle = self.put("result", result, tool, "", call, **more)
        self.worth.now -= 1
        self.worth.begin_request(self.worth.now + 1)
        plan = plan_clearing(self.worth, self.policy)
        if plan:
            plan.take(self.worth)
            self.breaks += 1
        self.ask()
        return handle

    def held(self, handle: str):
        return self.worth.items[self.worth.by_handle[handle]]

    def wander(self, steps: int) -> None:
        prose = (
            "and what it says here is of no use to anybody at all, whoever may come to read "
            "it one day"
        )
        for n in range(steps):
            text = "\n".join(f"    row_{n}_{k} = compute({k})  # {prose}, {k}" for k in range(40))
            self.step("Read", {"file_path": f"src/part_{self.n}_{n}.py"}, text)


def lines(*names: str) -> str:
    return "\n".join(f"def {name}_ledger_entry(book: Book) -> None:" for name in names)


def test_classes_and_references() -> None:
    story = Story()
    whole = story.step("Read", {"file_path": "src/ledger_book.py"}, lines("open", "close"))
    part = story.step("Read", {"file_path": "src/ledger_book.py", "offset": "3"}, lines("audit"))
    story.put(
        "call",
        "",
        "Edit",
        json.dumps({"file_path": "x.py", "old_string": lines("audit"), "new_string": "y"}),
        "e",
    )
    assert [story.held(h).cls for h in (whole, part)] == [READ, PART_READ]
    assert story.worth.items[-1].cls == EDIT_CALL
    assert story.held(part).last > story.held(whole).last


def test_a_file_read_again_supersedes_the_earlier_read() -> None:
    story = Story()
    first = story.step("Read", {"file_path": "src/ledger_book.py"}, lines("open"))
    second = story.step("Read", {"file_path": "src/ledger_book.py"}, lines("open"))
    assert story.held(first).superseded
    assert not story.held(second).superseded
    assert story.worth.newest["open_ledger_entry"] == story.held(second).n


def test_an_edit_marks_what_was_read_of_its_file() -> None:
    story = Story()
    read = story.step("Read", {"file_path": "src/ledger_book.py"}, lines("open"))
    story.step(
        "Edit", {"file_path": "src/ledger_book.py", "old_string": "a", "new_string": "b"}, "done"
    )
    assert story.held(read).edited


def test_the_old_is_cleared_in_few_breaks_and_the_newest_two_stay() -> None:
    story = Story()
    story.wander(45)
    full = [h.n for h in story.worth.items if h.piece.kind == "result" and h.form == "full"]
    assert 1 <= story.breaks <= 25
    assert story.worth.results[-2:] == full[-2:]
    assert view_tokens(story.worth) < 0.7 * sum(h.piece.tokens for h in story.worth.items)
    assert story.worth.items[0].form == "full"


def test_what_is_counted_as_visible_is_what_is_shown() -> None:
    story = Story()
    story.wander(45)
    assert story.breaks
    count: dict[str, int] = {}
    for held in story.worth.items:
        for feature in held.shown:
            count[feature] = count.get(feature, 0) + 1
    assert count == story.worth.visible


def test_a_plan_changes_nothing_until_it_is_taken() -> None:
    story = Story()
    story.wander(12)
    before = [(h.tokens, h.form, h.shown, h.rows) for h in story.worth.items]
    visible = dict(story.worth.visible)
    plan = plan_shrinking(story.worth, POLICY, 1e9)
    assert plan is not None
    assert before == [(h.tokens, h.form, h.shown, h.rows) for h in story.worth.items]
    assert visible == story.worth.visible
    size = view_tokens(story.worth)
    plan.take(story.worth)
    assert view_tokens(story.worth) < size


def test_lines_that_are_read_again_are_valued_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for rows in (sheets.ROWS_CACHED_MAX, 1):
        monkeypatch.setattr(sheets, "ROWS_CACHED_MAX", rows)
        story = Story()
        story.wander(45)
        shown.append(
            [(h.form, h.tokens, h.rows, h.words, h.body, h.gain) for h in story.worth.items]
        )
        assert story.breaks
    assert shown[0] == shown[1]


def test_what_is_too_small_to_be_looked_at_would_save_nothing() -> None:
    story = Story()
    story.step(
        "Read",
        {"file_path": "src/ledger_book.py"},
        lines("open", "close", "audit", "merge"),
        "I look at it",
    )
    story.step(
        "Write",
        {"file_path": "src/new_book.py", "content": lines("open", "split", "merge")},
        "done",
    )
    story.step("Bash", {"command": "make check"}, "boom\n" * 300, status="failed")
    story.wander(20)
    builder, small = POLICY.builder(story.worth), 0
    for held in story.worth.items:
        for least in (1.0, 20.0, 60.0):
            if is_too_small(builder, held, least):
                small += 1
                assert tokens_saved(builder, held) <= least
    assert small > 40


def test_calls_and_results_go_together() -> None:
    story = Story()
    story.wander(40)
    plan = plan_shrinking(story.worth, POLICY, 1e9)
    if plan:
        plan.take(story.worth)
    for held in story.worth.items:
        if held.piece.kind == "result":
            assert (held.form == "folded") == (story.worth.items[held.partner].form == "folded")


def test_a_failed_call_says_so_in_its_ledger() -> None:
    story = Story()
    story.step("Bash", {"command": "make check"}, "boom\n" * 300, status="failed")
    story.step("Bash", {"command": "make other"}, "fine\n" * 300)
    story.step("Bash", {"command": "make wrong"}, "boom\n" * 300, status="failed")
    story.wander(12)
    plan = plan_shrinking(story.worth, POLICY, 1e9)
    assert plan is not None
    text = "\n".join(change.text for change in plan.changes)
    assert 'cleared: failed, 301 lines, Recall("r3")' in text
    assert "Bash make wrong failed, 301 lines" in text


def test_numbered_lines_show_the_first_number_of_a_run() -> None:
    story = Story()
    source = "\n".join(f"{n:6}→    call_number_{n}(ledger_state)" for n in range(1, 90))
    read = story.step("Read", {"file_path": "src/a.py"}, source)
    story.wander(4)
    edit = {
        "file_path": "src/a.py",
        "old_string": "    call_number_41(ledger_state)\n    call_number_42(ledger_state)",
    }
    story.step("Edit", {**edit, "new_string": "    pass"}, "done")
    story.step("Bash", {"command": "echo call_number_41 call_number_42 call_number_43"}, "ok")
    story.wander(10)
    sheet = story.worth.text_indexes.of(story.held(read))
    assert sheet.numbered
    assert body_text(story.held(read), sheet, [40, 41, 60], ()).split("\n") == [
        "41→    call_number_41(ledger_state)",
        "    call_number_42(ledger_state)",
        "…",
        "61→    call_number_61(ledger_state)",
    ]


def test_why_says_what_it_is_that_keeps_a_line() -> None:
    story = Story()
    read = story.step(
        "Read", {"file_path": "src/ledger_book.py"}, lines("open", "close", "audit", "merge")
    )
    story.step("Bash", {"command": "grep -n close_ledger_entry -r ."}, "nothing")
    found = explain_lines(
        story.worth, story.held(read), POLICY.values, POLICY.price(story.worth), SizeEstimate()
    )
    assert [reason.line for reason in found] == lines("open", "close", "audit", "merge").split("\n")
    assert [reason.why for reason in found[:2]] == [
        "next to a name that was mentioned",
        "a name in it was mentioned",
    ]
    assert found[1].chance > found[3].chance


def test_a_recall_is_a_need() -> None:
    story = Story()
    story.wander(45)
    cleared = next(h for h in story.worth.items if h.piece.kind == "result" and h.form != "full")
    story.worth.record_recall(cleared.piece.handle)
    assert cleared.last == story.worth.now


@pytest.mark.parametrize("kinds", [("result",), ("result", "text"), ("result", "thinking")])
def test_only_what_is_tolerated_is_touched(kinds: tuple[str, ...]) -> None:
    story = Story(
        ClearingPolicy(ValueModels(TABLES), clearable=ClearableKinds(kinds, exchanges=False))
    )
    story.wander(20)
    plan = plan_shrinking(story.worth, story.policy, 1e9)
    assert plan is not None
    plan.take(story.worth)
    assert {h.piece.kind for h in story.worth.items if h.form != "full"} <= set(kinds)


def new_text(count: int) -> str:
    body = "\n".join(
        f"    if audit_ledger_entry(book, {n}):\n        return None\n    }}\n"
        for n in range(count)
    )
    return f"def close_ledger_entry(book: Book) -> None:\n{body}\n}}"


@pytest.mark.parametrize(
    ("lines_written", "idle", "settings", "is_whole"),
    [
        pytest.param(4, 5, {}, True, id="a recent edit"),
        pytest.param(4, 19, {}, True, id="an edit of 19 requests ago"),
        pytest.param(4, 20, {}, False, id="an edit of 20 requests ago"),
        pytest.param(120, 5, {}, False, id="an edit of more than 2,000 tokens"),
        pytest.param(4, 5, {"whole": 0}, False, id="the window forces it"),
    ],
)
def test_the_new_text_of_a_recent_edit_stays_whole(
    lines_written: int, idle: int, settings: dict[str, int], is_whole: bool
) -> None:
    policy = msgspec.structs.replace(POLICY, settings=PolicySettings(**settings))
    story, old = Story(policy), "\n".join(f"was_never_mentioned_again({n})" for n in range(9))
    written = {
        "file_path": "src/ledger_book.py",
        "old_string": old,
        "new_string": new_text(lines_written),
    }
    edit = story.worth.items[story.held(story.step("Edit", written, "done")).partner]
    story.worth.begin_request(edit.born + idle)
    rows = best_form(policy.builder(story.worth), edit).rows
    assert set(sheets.new_text_rows(edit)).issubset(rows) == is_whole


LONG = "a line that is long enough to be valued, number {}"


@pytest.mark.parametrize(
    ("text", "kept", "worthy", "filled"),
    [
        pytest.param("LLL", [0, 2], [], [0, 1, 2], id="one line"),
        pytest.param("LLLL", [0, 3], [], [0, 3], id="two lines of no value"),
        pytest.param("L}}L", [0, 3], [], [0, 1, 2, 3], id="two braces"),
        pytest.param("L}L}L", [0, 4], [], [0, 4], id="a line of no value between braces"),
        pytest.param("L}L}L", [0, 4], [2], [0, 1, 2, 3, 4], id="a line that another item shows"),
        pytest.param("L}}}}L", [0, 5], [], [0, 5], id="four lines"),
        pytest.param("L}}LL", [0, 3, 4], [], [0, 1, 2, 3, 4], id="a gap, then a run"),
    ],
)
def test_gaps_that_are_filled(
    text: str, kept: list[int], worthy: list[int], filled: list[int]
) -> None:
    story = Story()
    handle = story.step(
        "Bash",
        {"command": "x"},
        "\n".join(LONG.format(n) if c == "L" else c for n, c in enumerate(text)),
    )
    index = story.worth.text_indexes.of(story.held(handle))
    assert fill_gaps(kept, range(len(text)), index, worthy) == filled
    assert fill_gaps(kept, kept, index, worthy) == kept, "nothing that is gone comes back"
