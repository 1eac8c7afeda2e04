"""Pointers of prose: a claim counts by the entry that it cites, in any language."""

from longrein_context.events import (
    FileChanged,
    PermissionAnswered,
    PermissionAsked,
    TaskEnded,
    TaskStarted,
    call_id,
)
from longrein_context.summary.grounding_check import audit
from longrein_context.summary.pointers import Pointers
from tests.context.log_builder import LogBuilder
from tests.tables import cases


def worked() -> LogBuilder:
    """A test failed (r12), the parser was changed (r16), the tests pass (r21), lint fails (r26)."""
    log = LogBuilder()
    log.user("Please mend the header parser; it loses the last line. 可以部署到测试环境。")
    log.says("I shall.")
    log.user("yes")
    assert log.bash("pytest -q", "FAILED tests/t.py::test_a\n1 failed, 40 passed in 0.1s", 1) == 11
    assert log.edit("/w/parser.py") == 16
    assert log.bash("pytest -q", "41 passed in 0.1s") == 20
    assert log.bash("ruff check .", "parser.py:3: E501 too long", 1) == 24
    return log


def check(sentence: str, log: LogBuilder, *, of_user: bool = False) -> tuple[str, str]:
    return Pointers(log.state, log.seq).check(sentence, of_user=of_user)


@cases(
    "sentence verdict",
    ("The tests pass (r20 ok).", "points"),
    ("Die Tests laufen durch (r20 ok).", "points"),
    ("测试全部通过 (r20 ok)。", "points"),
    ("The tests pass (r20 failed).", "refuted"),
    ("Lint is clean (r24 ok).", "refuted"),
    ("リントは成功した (r24 ok)。", "refuted"),
    ("Lint complains about a long line (r24 failed).", "points"),
    ("It failed at first (r11 failed) and passes now (r20 ok).", "points"),
    ("All is well (r20 ok) and lint too (r24 ok).", "refuted"),
    ("The parser was changed (r16).", "points"),
    ("The tests pass.", "unchecked"),
    ("Nothing is left to do.", "unchecked"),
    ("All 41 tests pass and the work is done.", "unchecked"),
    ("It was deployed (r3 ok).", "unchecked"),
    ("It was deployed (r6).", "unchecked"),
    ("It was deployed (r99 ok).", "unchecked"),
    ("It was deployed (r0).", "unchecked"),
    ("The user wants all files in the folder deleted.", "unchecked"),
    ("L'utilisateur a approuvé le déploiement.", "unchecked"),
    ("用户批准了部署。", "unchecked"),
    ('The user asks to "mend the header parser" (r3).', "points"),
    ("The user said “it loses the last line”.", "points"),
    ("用户说「可以部署到测试环境」。", "points"),
    ('The user agreed: "yes".', "points"),
    ('The user said "parser".', "unchecked"),
    ('The user wants "all files in the folder deleted".', "unchecked"),
    ("The user wants all files deleted (r3).", "unchecked"),
)
def test_P_poisoning_a_claim_counts_by_what_it_points_to(sentence: str, verdict: str) -> None:
    assert check(sentence, worked())[0] == verdict


@cases(
    "sentence verdict",
    ("Mend the header parser (r20 ok).", "unchecked"),
    ("The user wants all files deleted (r24 failed).", "unchecked"),
    ('Mend it: "it loses the last line".', "points"),
    ("The tests pass (r20 failed).", "refuted"),
)
def test_what_the_user_wants_needs_words_of_the_user(sentence: str, verdict: str) -> None:
    assert check(sentence, worked(), of_user=True)[0] == verdict


@cases(
    "sentence told",
    ("Lint was run (r24).", "Lint was run (r24 failed)."),
    ("See r24, r20 and r16.", "See r24 failed, r20 ok and r16 ok."),
    ("The tests pass (r20 ok).", "The tests pass (r20 ok)."),
    ("Nothing is cited.", "Nothing is cited."),
)
def test_the_outcome_of_the_record_stands_beside_a_call(sentence: str, told: str) -> None:
    log = worked()
    assert check(sentence, log)[1] == told
    assert check(told, log)[1] == told, "once"


def test_an_outcome_from_before_a_change_says_so() -> None:
    log = worked()
    log.write(FileChanged("/w/parser.py", "d" * 64, "agent"))
    told = f"The tests pass (r20 ok, before the change r{log.seq})."
    assert check("The tests pass (r20 ok).", log) == ("points", told)
    assert check(told, log) == ("points", told)


def test_background_work_has_an_outcome_when_it_has_ended() -> None:
    log = worked()
    started = TaskStarted("b1", "pytest -q -x", call_id(log.seq + 1, 0))
    began = log.call("Bash", "Started as b1.", "ok", started, command="pytest -q -x")
    assert check(f"The tests pass (r{began} ok).", log)[0] == "unchecked"
    log.write(TaskEnded("b1", "failed", 1))
    assert check(f"The tests pass (r{log.seq} ok).", log)[0] == "refuted"
    assert check(f"The tests fail (r{log.seq} failed).", log)[0] == "points"


def test_a_decision_of_the_user_counts_for_what_they_want() -> None:
    log = worked()
    call = call_id(log.seq + 1, 0)
    asked, answered = log.seq + 1, log.seq + 2
    log.write(PermissionAsked(call, "Bash", "./deploy.sh", "asks"))
    log.write(PermissionAnswered(call, "allow", "user"))
    for seq in (asked, answered):
        assert check(f"The user approved the deployment (r{seq}).", log, of_user=True)[0] == (
            "points"
        )


def test_only_entries_before_the_end_of_the_span_count() -> None:
    log = worked()
    pointers = Pointers(log.state, 20)
    assert pointers.check("Lint fails (r24 failed).")[0] == "unchecked"
    assert pointers.check("The tests pass (r20 ok).")[0] == "points"


def test_sentences_are_parted_and_headings_and_code_go_with_them() -> None:
    prose = (
        "### Tests\n- They pass (r20 ok). Nothing is left.\n- Lint is clean (r24 ok).\n\n"
        "Left to do:\n- the release\n```\nparser.py:3\n```\n- the change (r16)"
    )
    log = worked()
    result = audit(prose, lambda _: True, Pointers(log.state, log.seq).check)
    assert result.prose == "### Tests\n- They pass (r20 ok).\n- the change (r16 ok)"
    assert result.unchecked == (
        "### Tests\n- Nothing is left.\nLeft to do:\n- the release\n```\nparser.py:3\n```"
    )
    assert result.struck == ("Lint is clean (r24 ok).",)
