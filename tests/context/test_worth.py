"""Clearing policy: its memory, the value of a line, and when clearing pays."""

import json

import msgspec
import pytest

from longrein_context.clearing import line_index as sheets
from longrein_context.clearing.line_value import SizeEstimate, ValueModels, body_text, explain_lines
from longrein_context.clearing.needs import NeedsMemory
from longrein_context.clearing.rewrite import best_form, head, outcome_of
from longrein_context.clearing.text_features import SourceItem
from longrein_context.clearing.timing import (
    ClearingPolicy,
    PolicySettings,
    plan_clearing,
    plan_shrinking,
    view_tokens,
)
from longrein_context.clearing.weights import TABLES
from tests.tables import cases, record

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


def test_the_old_is_cleared_in_few_breaks_and_the_newest_two_stay() -> None:
    story = Story()
    story.wander(45)
    full = [h.n for h in story.worth.items if h.piece.kind == "result" and h.form == "full"]
    assert 1 <= story.breaks <= 25
    assert story.worth.results[-2:] == full[-2:]
    assert view_tokens(story.worth) < 0.7 * sum(h.piece.tokens for h in story.worth.items)
    assert story.worth.items[0].form == "full"


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


def new_text(count: int) -> str:
    body = "\n".join(
        f"    if audit_ledger_entry(book, {n}):\n        return None\n    }}\n"
        for n in range(count)
    )
    return f"def close_ledger_entry(book: Book) -> None:\n{body}\n}}"


@cases(
    "lines_written idle settings is_whole",
    pytest.param(4, 5, {}, True, id="a recent edit"),
    pytest.param(4, 19, {}, True, id="an edit of 19 requests ago"),
    pytest.param(4, 20, {}, False, id="an edit of 20 requests ago"),
    pytest.param(120, 5, {}, False, id="an edit of more than 2,000 tokens"),
    pytest.param(4, 5, {"whole": 0}, False, id="the window forces it"),
)
def test_the_new_text_of_a_recent_edit_stays_whole(
    lines_written: int, idle: int, settings: dict[str, int], is_whole: bool
) -> None:
    policy = msgspec.structs.replace(POLICY, settings=PolicySettings(**settings))
    story, old = Story(policy), "\n".join(f"was_never_mentioned_again({n})" for n in range(9))
    written = record(
        file_path="src/ledger_book.py", old_string=old, new_string=new_text(lines_written)
    )
    edit = story.worth.items[story.held(story.step("Edit", written, "done")).partner]
    story.worth.begin_request(edit.born + idle)
    rows = best_form(policy.builder(story.worth), edit).rows
    new = next(rows for key, rows, _ in sheets.argument_rows(edit) if key == "new_string")
    assert set(new).issubset(rows) == is_whole
    assert set(rows).issubset(new), "what an edit has replaced is no longer in the file"


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
