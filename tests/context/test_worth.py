"""Clearing policy: its memory, the value of a line, and when clearing pays."""

import json
from typing import Any

import msgspec
import pytest

from longrein.context.clearing import rewrite
from longrein.context.clearing import text_index as sheets
from longrein.context.clearing.line_value import (
    ShortForm,
    SizeEstimate,
    ValueModels,
    body_text,
    explain_lines,
    fill_gaps,
    ideal_form,
)
from longrein.context.clearing.needs import NeedsMemory
from longrein.context.clearing.rewrite import (
    best_form,
    head,
    is_too_small,
    outcome_of,
    tokens_saved,
    trim,
)
from longrein.context.clearing.text_features import (
    EDIT_CALL,
    PART_READ,
    READ,
    ItemRecord,
    SourceItem,
)
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
        shown.append([(h.form, h.tokens, h.rows, h.body, h.gain) for h in story.worth.items])
        assert story.breaks
    assert shown[0] == shown[1]


def test_a_form_is_found_once_until_a_text_or_a_price_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = valued = 0

    def find(*about: Any) -> ShortForm:
        nonlocal valued
        valued += 1
        return ideal_form(*about)

    def check(builder: rewrite.PlanBuilder, record: ItemRecord) -> ShortForm:
        nonlocal asked
        asked += 1
        found = best_form(builder, record)
        now = (builder.memory, record, builder.values, builder.price, builder.measure)
        assert found == ideal_form(*now)
        return found

    monkeypatch.setattr(rewrite, "ideal_form", find)
    monkeypatch.setattr(rewrite, "best_form", check)
    dear = msgspec.structs.replace(POLICY, visibility=30.0, settings=PolicySettings(whole=0))
    for policy in (POLICY, dear):
        story = Story(policy)
        for n in range(4):
            new = new_text(9).replace("ledger", f"ledger_{n}")
            written = {"file_path": f"src/{n}.py", "new_string": new}
            plan = new + "\n\n" + new.replace("ledger", "journal")  # shows its lines until it folds
            story.step("Edit", written, "done", thought=plan)
            story.wander(11)
        plan_clearing(story.worth, policy, cold=True)
        for excess in (1e3, 1e4, 1e9):
            plan_shrinking(story.worth, policy, excess)
    assert valued < 0.9 * asked


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
    assert small > 25


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
    assert 'cleared: failed, 301 lines: boom; Recall("r3") brings all' in text
    assert "Bash:\nmake wrong\n→ failed, 301 lines: boom" in text


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
    texts = sheets.texts_of(story.held(read))
    shown = body_text(texts, [40, 41, 60], range(len(texts)), read, numbered=True)
    assert shown.split("\n") == [
        f"⋮ 40 lines, {read}",
        "41→    call_number_41(ledger_state)",
        "    call_number_42(ledger_state)",
        f"⋮ 18 lines, {read}",
        "61→    call_number_61(ledger_state)",
        f"⋮ 28 lines, {read}",
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
    new = next(rows for key, rows, _ in sheets.argument_rows(edit) if key == "new_string")
    assert set(new).issubset(rows) == is_whole
    assert set(rows).issubset(new), "what an edit has replaced is no longer in the file"


@pytest.mark.parametrize(
    ("kept", "alive", "filled"),
    [
        pytest.param([0, 2], range(3), [0, 1, 2], id="one line"),
        pytest.param([0, 3], range(4), [0, 1, 2, 3], id="two lines"),
        pytest.param([0, 4], range(5), [0, 4], id="three lines"),
        pytest.param([0, 3, 4], range(5), [0, 1, 2, 3, 4], id="a gap, then a run"),
        pytest.param([0, 2], [0, 2], [0, 2], id="nothing that is gone comes back"),
        pytest.param([], [], [], id="nothing"),
    ],
)
def test_gaps_that_are_filled(kept: list[int], alive: list[int], filled: list[int]) -> None:
    assert fill_gaps(kept, alive) == filled


def blocks(text: str, tool: str = "Read") -> list[str]:
    """Blocks of a result, each as its lines joined by `|`."""
    story = Story()
    held = story.held(story.step(tool, {"file_path": "src/a.py"}, text))
    found = sheets.blocks_of(held, story.worth.text_indexes.of(held))
    return ["|".join(text.split("\n")[first:end]) for first, end in found]


@pytest.mark.parametrize(
    ("text", "tool", "wanted"),
    [
        pytest.param("a\nb\n\nc", "Read", ["a|b", "c"], id="paragraphs"),
        pytest.param("\n\na\n\n\n", "Read", ["a"], id="blank lines belong to none"),
        pytest.param("a\nb", "Grep", ["a", "b"], id="each hit of a search"),
        pytest.param("", "Read", [], id="nothing"),
    ],
)
def test_a_block_is_what_a_reader_can_take_in(text: str, tool: str, wanted: list[str]) -> None:
    assert blocks(text, tool) == wanted


def test_a_long_paragraph_is_cut_where_it_is_least_indented() -> None:
    text = "\n".join(f"def f{n}():\n    x = {n}\n    y = x\n    return y" for n in range(5))
    found = blocks(text)
    assert "|".join(found) == text.replace("\n", "|")
    assert all(block.startswith("def ") for block in found)
    assert all(block.count("|") < sheets.BLOCK_ROWS_MAX for block in found)


OUTCOMES = [
    ("Bash", {"command": "make test"}, "3 failed, 9 passed in 0.3s", "failed"),
    ("Bash", {"command": "ls"}, "", "ok"),
    ("Glob", {"pattern": "*.py"}, "src/a.py", "ok"),
    ("Edit", {"file_path": "a", "old_string": "a\nb", "new_string": "a\nc"}, "x" * 200, "ok"),
    ("Edit", {"file_path": "a", "old_string": "a\nb", "new_string": "a"}, "x" * 200, "ok"),
    ("Read", {"file_path": "a"}, "line\n" * 40, "ok"),
    ("Task", {"prompt": "look"}, "First I looked.\n" * 40, "denied"),
]


def test_an_outcome_says_how_it_ended_and_the_line_that_tells_most() -> None:
    story = Story()
    told = [
        outcome_of(story.worth, story.held(story.step(tool, arguments, result, status=status)))
        for tool, arguments, result, status in OUTCOMES
    ]
    assert told == [
        "failed: 3 failed, 9 passed in 0.3s",
        "ok, no output",
        "ok: src/a.py",
        "ok, + c",
        "ok, - b",
        "ok, 41 lines",
        f"denied, 41 lines: {'First I looked. ' * 7}First I…",
    ]


LONG = "x" * 200
COMMIT = "git add a && git commit -m now && git status"
COMMITTED = f"[main ab12cd3] now\n 1 file changed\n{LONG}\nno changes added to commit"
LABELS = [
    (
        *("TaskUpdate", {"taskId": "8", "status": "completed"}, "set"),
        "taskId: 8|status: completed|→ ok: set",
    ),
    (
        *("Grep", {"pattern": "def a(", "output_mode": "content"}, ""),
        "def a(|output_mode: content|→ ok, no output",
    ),
    ("issue", {"number": 302}, "open", "number: 302|→ ok: open"),
    (
        "Read",
        {"file_path": "a/b", "offset": 30},
        "    30→a\n    31→b\n\nnote",
        "a/b|→ ok, lines 30-31",
    ),
    ("Bash", {"command": COMMIT}, COMMITTED, f"{COMMIT}|→ ok, 4 lines: [main ab12cd3] now"),
    ("Bash", {"command": "git -C a diff"}, f"-error\n{LONG}", "git -C a diff|→ ok, 2 lines"),
    (
        *("Bash", {"command": "bun run test"}, f"{LONG}\n 12 pass\n 0 fail\nRan 12"),
        "bun run test|→ ok, 4 lines: 0 failed, 12 passed",
    ),
    (
        *("Edit", {"file_path": "a/b", "old_string": "a", "new_string": "c"}, "done"),
        "a/b|→ ok: done, + c",
    ),
    (
        *("Write", {"file_path": "a/b", "content": "a\nc\n"}, "done"),
        "a/b|→ ok: done, 2 lines written",
    ),
]


@pytest.mark.parametrize(("tool", "arguments", "result", "wanted"), LABELS)
def test_a_label_says_what_was_done_on_what_and_with_what_outcome(
    tool: str, arguments: dict[str, str], result: str, wanted: str
) -> None:
    story = Story()
    held = story.held(story.step(tool, arguments, result))
    assert head(story.worth, held).split("\n")[1:] == wanted.split("|")


def test_what_is_whole_is_not_marked() -> None:
    story = Story()
    builder = story.policy.builder(story.worth)
    text = story.held(story.put("text", "Now I look at the tests."))
    text.tokens = 500.0
    trim(builder, text, 10.0)
    assert builder.plan() is None


def test_an_answer_stays_until_the_next_message_but_one() -> None:
    story = Story()
    plan = "\n\n".join(f"{n}. I would change part {n} of the ledger, slowly." for n in range(30))
    answer = story.put("text", plan)
    stays = []
    for words in ("Do all.", "And the tests?", "Thanks."):
        story.put("user", words)
        story.wander(12)
        stays.append(story.held(answer).form == "full")
    assert stays == [True, True, False]


def test_the_newest_todo_list_stays_whole() -> None:
    story = Story()
    todo = {"todos": [{"content": f"step {n} of the plan", "status": "open"} for n in range(40)]}
    story.wander(1)
    old = story.worth.items[story.held(story.step("TodoWrite", todo, "ok")).partner]
    new = story.worth.items[story.held(story.step("TodoWrite", todo, "ok")).partner]
    story.wander(20)
    plan = plan_shrinking(story.worth, POLICY, 1e9)
    assert plan is not None
    plan.take(story.worth)
    assert (old.form, new.form) == ("folded", "full")


def test_a_session_that_never_reuses_is_cleared_deeper() -> None:
    sizes = []
    for share in (0.0, PolicySettings().reuse_share):
        settings = PolicySettings(reuse_share=share)
        story = Story(msgspec.structs.replace(POLICY, settings=settings))
        for n in range(150):
            text = "\n".join(f"    row_{n}_{k} = compute_{k}_{n}(ledger)" for k in range(60))
            story.step("Read", {"file_path": f"src/part_{n}.py"}, text)
        sizes.append(view_tokens(story.worth))
    assert sizes[1] < 0.8 * sizes[0]
