"""The ledger: records proved by entries, never by the claims of a model."""

import pytest

from longrein_context import State
from longrein_context.events import (
    FileChanged,
    PermissionAnswered,
    PermissionAsked,
    Reminded,
    Rewound,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Text,
    Todo,
    TodoSet,
    ToolCall,
    ToolEnded,
    call_id,
)
from longrein_context.state.command_results import code_of, gist, read_tests
from longrein_context.state.ledger import record_event, record_result
from longrein_context.summary import summary_text as ledger_lines
from tests.context.log_builder import LogBuilder
from tests.tables import cases, read_rows


def check(lines: list[str], *expected: str) -> None:
    assert lines == list(expected)


# --- files ----------------------------------------------------------------------------------------


def test_A_f20_each_file_line_names_its_content_and_the_entries_that_prove_it() -> None:
    log = LogBuilder()
    log.user("mend it")
    log.read("/w/src/a.py", "1\tx", "a" * 64)
    log.edit("/w/src/a.py", hash_="b" * 64)
    log.edit("/w/src/a.py", hash_="c" * 64)
    log.read("/w/b.py", "1\tx", "d" * 64, offset=40, limit=20)
    log.write(
        FileChanged("/w/made.txt", "e" * 64, "command"), FileChanged("/w/notes.md", "", "user")
    )
    check(
        ledger_lines.file_lines(log.state),
        "- notes.md: changed by somebody else r25, it is gone",
        "- made.txt: changed by a command r24, sha256 eeeeeeeeeeee",
        "- src/a.py: changed by you 2 times, last r17 (+ y), sha256 cccccccccccc",
        "- b.py: read in part r22, sha256 dddddddddddd",
    )
    assert log.state.ledger.files["/w/b.py"].lines == (40, 20)


# --- commands, and the poison ---------------------------------------------------------------------


def test_P_poisoning_what_the_model_claims_without_a_call_never_enters() -> None:
    log = LogBuilder()
    log.user("run the tests")
    log.says("I ran `pytest -q`: all 41 tests pass, and I changed src/fake.py.")
    state = log.state
    assert (
        ledger_lines.command_lines(state)
        == ledger_lines.file_lines(state)
        == ledger_lines.error_lines(state)
        == []
    )


def test_P_poisoning_a_failed_result_never_reads_as_success() -> None:
    log = LogBuilder()
    log.bash("make", "cc: all good, everything passed\nmake: *** error 2", 2)
    log.call("WebFetch", "no route", "failed", url="https://x.test")
    log.call("Bash", "Denied: no", "denied", command="rm -rf /")
    log.call("Bash", "not run: the user went back", "not_run", command="ls")
    log.call(
        "Bash",
        "half\n[interrupted by the user; the command was ended]",
        "interrupted",
        command="sleep 9",
    )
    check(
        ledger_lines.command_lines(log.state),
        "- r22 Bash `sleep 9` → interrupted; it may have had effects",
        "- r18 Bash `ls` → not run",
        "- r14 Bash `rm -rf /` → denied, not run",
        "- r10 WebFetch `https://x.test` → FAILED",
        "- r6 Bash `make` → FAILED, exit code 2",
    )


def test_P_a_later_fact_supersedes_an_earlier_one_of_the_same_call() -> None:
    log = LogBuilder()
    log.bash("make", "error: no rule", 2)
    log.bash("ls", "a")
    log.bash("make", "done")
    check(
        ledger_lines.command_lines(log.state),
        '- r14 Bash `make` (2 times, this is the last) → exit code 0: "done"',
        "- r10 Bash `ls` → exit code 0",
    )


def test_E12_an_error_and_what_fixed_it() -> None:
    log = LogBuilder()
    log.bash("make", "a.c:3: error: no semicolon\nmake: stopped", 2)
    log.bash("make", "a.c:4: error: no brace\nmake: stopped", 2)
    log.edit("/w/a.c")
    log.edit("/w/a.c", hash_="c" * 64)
    log.bash("cargo run", "thread panicked: panic at 3", 101)
    log.bash("make", "ok")
    check(
        ledger_lines.error_lines(log.state),
        '- r24 Bash `cargo run` failed: "thread panicked: panic at 3"; it has not succeeded since',
        '- r6 Bash `make` failed 2 times, last r10: "a.c:4: error: no brace"; '
        "it succeeded r28, after changes to a.c r19",
    )


def test_E12_failing_tests_until_a_run_of_the_same_command_counts_no_failure() -> None:
    log = LogBuilder()
    log.bash(
        "pytest -q",
        "FAILED tests/t.py::test_a - assert 1 == 2\nFAILED tests/t.py::test_b\n2 failed in 0.1s",
        1,
    )
    log.bash("pytest -q tests/t.py::test_a", "1 passed in 0.1s")
    failing = ["- test failing: tests/t.py::test_a r6", "- test failing: tests/t.py::test_b r6"]
    assert [
        line for line in ledger_lines.error_lines(log.state) if "test failing" in line
    ] == failing
    log.edit("/w/t.py")
    log.bash("pytest -q", "2 passed in 0.1s")
    state = log.state
    assert [line for line in ledger_lines.error_lines(state) if "- test" in line] == [
        "- test failed r6, no longer r19: tests/t.py::test_a",
        "- test failed r6, no longer r19: tests/t.py::test_b",
    ]
    assert ledger_lines.command_lines(state)[0] == (
        "- r19 Bash `pytest -q` (2 times, this is the last) → exit code 0; pytest: 0 failed, 2 "
        "passed"
    )


def test_P_a_pipe_that_hides_the_exit_code_does_not_hide_the_failure() -> None:
    log = LogBuilder()
    log.bash("pytest -q | tail -3", "FAILED tests/t.py::test_a\n1 failed, 8 passed in 0.1s")
    state = log.state
    assert ledger_lines.command_lines(state) == [
        "- r6 Bash `pytest -q | tail -3` → exit code 0; pytest: 1 failed, 8 passed"
    ]
    assert "it has not succeeded since" in ledger_lines.error_lines(state)[0]


SHAPES = read_rows(r"""
pytest -q => ..F⏎FAILED t.py::test_x - assert 1⏎ERROR b.py⏎1 failed, 2 passed, 1 error in 0.12s =>
    2 2 => -t.py::test_x -b.py
python -m pytest -v =>
    t.py::a PASSED  [ 50%]⏎t.py::b[x y] FAILED [100%]⏎=== 1 failed, 1 passed in 1.2s === =>
    1 1 => +t.py::a -t.py::b[x y]
cd x && uv run pytest => ===== 3 passed, 1 skipped in 0.01s ===== => 3 0 => none
python -m unittest =>
    FAIL: test_a (m.C.test_a)⏎---⏎⏎Ran 5 tests in 0.001s⏎⏎FAILED (failures=1, errors=2) =>
    2 3 => -test_a (m.C.test_a)
python manage.py test => Ran 2 tests in 0.1s⏎⏎OK => 2 0 => none
go test ./... =>
    --- FAIL: TestX (0.00s)⏎--- PASS: TestY (0.0s)⏎FAIL⏎FAIL	a/b	0.01s⏎ok  	a/c	0.02s⏎FAIL =>
    1 1 => -TestX +TestY
cargo test =>
    test a::b ... ok⏎test a::c ... FAILED⏎⏎test result: FAILED. 1 passed; 1 failed; 0 ignored =>
    1 1 => +a::b -a::c
npx jest =>
    FAIL src/a.js⏎    ✓ adds (3 ms)⏎    ✕ breaks (1 ms)⏎⏎Tests:       1 failed, 1 passed, 2 total =>
    1 1 => -src/a.js +adds -breaks
npx vitest run => ⏎ FAIL  src/a.test.ts⏎ Tests  1 failed | 4 passed (5)⏎ => 4 1 => -src/a.test.ts
npm test => ⏎  3 passing (12ms)⏎  1 failing⏎ => 3 1 => none
node --test => ok 1 - adds⏎not ok 2 - breaks⏎# pass 1⏎# fail 1 => 1 1 => +adds -breaks
cat test.log => 3 passed in 0.1s => none => none
echo '3 passed in 0.1s' # test => 3 passed in 0.1s => none => none
make check => nothing to be done => none => none
""")


@pytest.mark.parametrize(("command", "output", "counts", "verdicts"), SHAPES)
def test_the_shapes_of_test_runners(command: str, output: str, counts: str, verdicts: str) -> None:
    """`counts`: passed and failed; `verdicts`: names, `+` for one that passed."""
    found = read_tests(command, output)
    if counts == "none":
        assert found is None
        return
    assert found is not None
    assert found.counts is not None
    assert f"{found.counts.passed} {found.counts.failed}" == counts
    told = " ".join(f"{'-+'[passed]}{name}" for name, passed in found.verdicts.items())
    assert (told or "none") == verdicts


def test_exit_codes_come_from_our_own_note_alone() -> None:
    for text, status, code in [
        ("fine", "ok", 0),
        ("no\n[exit code 3]", "failed", 3),
        ("no\n[exit code 127 (command not found)]", "failed", 127),
        ("no\n[exit code 2]\n[current folder is now /w/src]", "failed", 2),
        (
            "[exit code 0]\n[timed out after 2 s and was ended; timeout may be up to 9 ms]",
            "failed",
            None,
        ),
        ("[exit code 7]\nprinted after it\n[ended by signal SIGKILL]", "failed", None),
    ]:
        assert code_of(text, status) == code, text
    assert gist("a\nValueError: x\nb\n[exit code 1]") == "ValueError: x"
    assert (
        gist("a.py:12: E501 too long\nmake: *** [lint] Error 1\n[exit code 2]")
        == "a.py:12: E501 too long"
    )
    assert gist("make: *** [lint] Error 1\n[exit code 2]") == "make: *** [lint] Error 1"
    assert gist("[timed out after 2 s and was ended]") == "[timed out after 2 s and was ended]"


# --- the user, tasks, pins ------------------------------------------------------------------------


def test_decisions_of_the_user_but_not_of_rules_and_hooks() -> None:
    state = State()
    for seq, event in enumerate(
        (
            PermissionAsked("c1.0", "Bash", "git push", "asks"),
            PermissionAnswered("c1.0", "deny", "user", message="never push"),
            PermissionAsked("c1.1", "Bash", "make", "asks"),
            PermissionAnswered("c1.1", "allow", "user", "session", "Bash(make:*)"),
            PermissionAnswered("c1.2", "allow", "hook"),
        ),
        3,
    ):
        record_event(state.ledger, seq, event)
    answered = ToolEnded("c8.0", "AskUserQuestion", "ok", (Text("Use PostgreSQL"),))
    record_result(
        state.ledger,
        11,
        ToolCall("c8.0", "AskUserQuestion", {"question": "Which database?"}),
        answered,
        quiet=False,
    )
    check(
        ledger_lines.decision_lines(state),
        "- asked by AskUserQuestion, the user answered: Use PostgreSQL (r11)",
        "- the user allowed Bash: make, for this session (rule Bash(make:*)) (r5, r6)",
        "- the user denied Bash: git push; they said: never push (r3, r4)",
    )


def test_E13_what_runs_what_is_open_and_where_it_stands() -> None:
    log = LogBuilder()
    log.write(
        TodoSet((Todo("read"), Todo("write", "in_progress"))),
        TaskStarted("t1", "make watch"),
        TaskStarted("t2", "make serve"),
        SubagentStarted("s-1", "explore"),
        TaskEnded("t1", "failed", 2, "exit"),
        SubagentEnded("s-1", "done", "three uses of parse"),
        Reminded("nested_memory", "…", "/w/src", "/w/src/AGENTS.md"),
    )
    state = log.state
    check(
        ledger_lines.pending_lines(state),
        "The todo list (r3):",
        "- [pending] read",
        "- [in_progress] write",
        "- task t2 still runs since r5: make serve",
    )
    check(
        ledger_lines.ended_lines(state),
        "- subagent `explore` (r6) ended r8: done: three uses of parse",
        "- task `make watch` (r4) ended r7: failed, exit code 2, exit",
    )
    assert (
        "- told earlier, read it again where it matters: /w/src/AGENTS.md r9"
        in ledger_lines.status_lines(state)
    )


# --- bounded, and kept ----------------------------------------------------------------------------


# --- what goes on after its result ----------------------------------------------------------------


def background(
    log: LogBuilder, command: str, task: str, result: str = "Started in the background as b1."
) -> int:
    call = call_id(log.seq + 1, 0)
    return log.call(
        "Bash",
        result,
        "ok",
        TaskStarted(task, command, call),
        command=command,
        run_in_background=True,
    )


ENDS = [
    (
        TaskEnded("b1", "done", 0, "exit", tail="2 passed in 0.1s"),
        "exit code 0; pytest: 0 failed, 2 passed",
        False,
    ),
    (
        TaskEnded("b1", "failed", 3, "exit", tail="1 failed, 1 passed in 0.1s"),
        "FAILED, exit code 3",
        True,
    ),
    (
        TaskEnded("b1", "done", 0, "exit", tail="1 failed, 1 passed in 0.1s"),
        "exit code 0; pytest: 1 failed",
        True,
    ),
    (TaskEnded("b1", "timed_out", None, "timeout"), "FAILED, timed out", True),
    (TaskEnded("b1", "killed", None, "SIGKILL"), "killed", True),
    (TaskEnded("b1", "lost"), "lost, nobody knows how it ended", True),
]


@pytest.mark.parametrize(("end", "told", "trouble"), ENDS)
@cases("result", "Started in the background as b1.", "2 passed in 0.1s\n[not over after 120 s]")
def test_a_command_in_the_background_is_no_success_before_it_has_ended(
    result: str, end: TaskEnded, told: str, trouble: bool
) -> None:
    """Started there or promoted: its result says that it began, also when it printed what looks
    like an end.
    """
    log = LogBuilder()
    background(log, "pytest -q", "b1", result)
    assert ledger_lines.command_lines(log.state) == [
        "- r7 Bash `pytest -q` → went on in the background as b1; not over yet"
    ]
    assert log.state.ledger.troubles == log.state.ledger.tests == {}
    seq = log.write(end)
    line = ledger_lines.command_lines(log.state)[0]
    assert line.startswith(f"- r7 Bash `pytest -q` → in the background, ended r{seq}: {told}")
    assert bool(ledger_lines.error_lines(log.state)) == trouble


def test_an_error_stands_until_the_background_run_has_succeeded() -> None:
    log = LogBuilder()
    log.bash("make", "error: no rule", 2)
    background(log, "make", "b1")
    assert "has not succeeded since" in ledger_lines.error_lines(log.state)[0]
    log.write(TaskEnded("b1", "done", 0, "exit"))
    assert "it succeeded r" in ledger_lines.error_lines(log.state)[0]


def test_subagents_in_the_background_are_done_when_all_of_them_are() -> None:
    log = LogBuilder()
    call = call_id(log.seq + 1, 0)
    starts = (
        SubagentStarted("s-1", "explore", call, background=True),
        SubagentStarted("s-2", "explore", call, index=1),
    )
    log.call("Agent", "They work.", "ok", *starts, prompt="look")
    log.write(SubagentEnded("s-1", "limit", "half", message="out of time"))
    assert "FAILED, stopped by a limit" in ledger_lines.command_lines(log.state)[0]
    seq = log.write(SubagentEnded("s-2", "done", "all"))
    assert ledger_lines.command_lines(log.state) == [
        f"- r8 Agent `look` → in the background, ended r{seq}: FAILED, stopped by a limit"
    ]


def test_how_a_background_command_ended_stands_after_a_rewind() -> None:
    log = LogBuilder()
    log.user("one")
    background(log, "make", "b1")
    to = log.says("started")
    log.user("two")
    log.write(TaskEnded("b1", "failed", 2, "exit", tail="error: no rule"))
    log.says("it failed")
    log.write(Rewound(to))
    assert "FAILED, exit code 2" in ledger_lines.command_lines(log.state)[0]
