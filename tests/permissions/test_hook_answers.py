"""What the output of a hook decides, by its event."""

import json
from typing import Any

import pytest

from longrein.permissions.hook_protocol import (
    EVENTS,
    NO_REASON,
    Hook,
    HookAnswer,
    hook_line,
    matcher_problem,
    merge_answers,
    read_answer,
)

LONG = 200_000
REFUSED = {
    "PreToolUse": "deny",
    "UserPromptSubmit": "block",
    "PostToolUse": "block",
    "PostToolUseFailure": "block",
    "PostToolBatch": "stop",
    "Stop": "block",
    "SubagentStop": "block",
    "PreCompact": "block",
}
"""Event that a hook can refuse -> decision."""
BY_DECISION = [event for event in EVENTS if event not in ("PreToolUse", "PermissionRequest")]
QUESTION = "PermissionRequest"


def answer(event: str, told: dict[str, Any]) -> HookAnswer:
    return read_answer(event, 0, json.dumps(told), "")


def extra(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


@pytest.mark.parametrize("event", BY_DECISION)
@pytest.mark.parametrize("word", ["", "approve", "allow", "none", "block", "deny", "maybe"])
def test_a_word_refuses_what_can_be_refused(event: str, word: str) -> None:
    found = answer(event, {"decision": word, "reason": "because"})
    refuses = event in REFUSED and word in ("block", "deny")
    assert found.decision == (REFUSED[event] if refuses else "none")
    assert found.reason == ("because" if refuses else "")
    wrong = event in REFUSED and word == "maybe"
    assert found.problem == (f"'maybe' is no decision for {event}" if wrong else "")


@pytest.mark.parametrize("event", BY_DECISION)
def test_a_changed_output_is_kept_whatever_is_decided(event: str) -> None:
    for word in ("", "maybe", "block"):
        for name in ("updatedToolOutput", "updatedMCPToolOutput"):
            found = answer(event, {"decision": word, **extra(event, **{name: ["new"]})})
            assert found.updated_output == ["new"]


@pytest.mark.parametrize("event", EVENTS)
def test_exit_code_2_refuses_with_the_text_of_the_hook(event: str) -> None:
    found = read_answer(event, 2, "never read", " why \n")
    silent = read_answer(event, 2, "", "")
    if event in REFUSED:
        assert (found.decision, found.reason) == (REFUSED[event], "why")
        assert (silent.decision, silent.reason) == (REFUSED[event], NO_REASON)
    else:
        assert (found.decision, found.message) == ("none", "why")
        assert silent.message == f"exit code 2, which means nothing for {event}"


@pytest.mark.parametrize(("code", "stderr", "problem"), [
    (1, "first\nsecond", "exit code 1: first"),
    (3, "", "exit code 3, without a text"),
    (-9, "x" * 600, f"exit code -9: {'x' * 500}"),
])  # fmt: skip
def test_another_exit_code_is_a_problem_alone(code: int, stderr: str, problem: str) -> None:
    found = read_answer("PreToolUse", code, '{"decision": "deny"}', stderr)
    assert found == HookAnswer(problem=problem)


@pytest.mark.parametrize(
    ("fields", "decision", "reason", "problem"),
    [
        ({}, "none", "", ""),
        ({"permissionDecision": "none"}, "none", "", ""),
        ({"permissionDecision": "allow"}, "allow", "", ""),
        ({"permissionDecision": "approve"}, "allow", "", ""),
        ({"permissionDecision": "deny"}, "deny", NO_REASON, ""),
        ({"permissionDecision": "block"}, "deny", NO_REASON, ""),
        ({"permissionDecision": "ask"}, "ask", NO_REASON, ""),
        ({"permissionDecision": "defer"}, "ask", NO_REASON, ""),
        ({"permissionDecision": "deny", "permissionDecisionReason": "no"}, "deny", "no", ""),
        (
            {"permissionDecision": "perhaps"},
            "ask",
            "a hook answered 'perhaps', which is no decision",
            "'perhaps' is no decision on a call, so the user is asked",
        ),
        ({"permissionDecision": 7}, "none", "", "permissionDecision is no text"),
        ({"updatedInput": []}, "none", "", "updatedInput is no object"),
    ],
)
def test_a_decision_on_a_call(
    fields: dict[str, Any], decision: str, reason: str, problem: str
) -> None:
    found = answer("PreToolUse", extra("PreToolUse", **fields))
    assert (found.decision, found.reason, found.problem) == (decision, reason, problem)
    changed = answer("PreToolUse", extra("PreToolUse", **{"updatedInput": {"a": 1}, **fields}))
    assert changed.updated_input == (None if "updatedInput" in fields else {"a": 1})


def test_a_decision_on_a_call_in_the_older_words() -> None:
    told = {"decision": "block", "reason": "old", "updated_input": {"a": 1}}
    found = answer("PreToolUse", told)
    assert (found.decision, found.reason, found.updated_input) == ("deny", "old", {"a": 1})
    newer = extra("PreToolUse", permissionDecision="allow", updatedInput={"b": 2})
    found = answer("PreToolUse", {**told, **newer})
    assert (found.decision, found.updated_input) == ("allow", {"b": 2}), "the newer words count"


@pytest.mark.parametrize(("said", "decision", "reason", "changed", "problem"), [
    (None, "none", "", None, ""),
    ({}, "none", "", None, ""),
    ({"behavior": "allow"}, "allow", "", None, ""),
    ({"behavior": "allow", "updatedInput": {"a": 1}}, "allow", "", {"a": 1}, ""),
    ({"behavior": "deny", "updatedInput": {"a": 1}}, "deny", NO_REASON, None, ""),
    ({"behavior": "deny", "message": "no"}, "deny", "no", None, ""),
    ({"behavior": "deny", "interrupt": True}, "stop", NO_REASON, None, ""),
    ({"behavior": "deny", "interrupt": "yes"}, "deny", NO_REASON, None, ""),
    ({"behavior": "perhaps"}, "none", "", None, "'perhaps' is no behavior"),
    ("deny", "none", "", None, "decision is no object"),
])  # fmt: skip
def test_an_answer_to_a_question(
    said: Any, decision: str, reason: str, changed: Any, problem: str
) -> None:
    found = answer(QUESTION, extra(QUESTION, decision=said) if said is not None else {})
    assert (found.decision, found.reason, found.updated_input) == (decision, reason, changed)
    assert found.problem == problem


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("how", [{"continue": False}, {"halt": True}])
def test_a_hook_ends_the_turn(event: str, how: dict[str, Any]) -> None:
    found = answer(event, {**how, "stopReason": "enough"})
    assert (found.decision, found.reason) == ("stop", "enough")
    assert answer(event, {"continue": True, "halt": False}).decision == "none"


def test_the_end_of_the_turn_keeps_an_earlier_reason() -> None:
    found = answer("Stop", {"continue": False, "decision": "block", "reason": "because"})
    assert (found.decision, found.reason) == ("stop", "because")


@pytest.mark.parametrize("event", EVENTS)
def test_texts_for_the_model_and_the_user(event: str) -> None:
    told = {**extra(event, additionalContext="c"), "context": "old", "systemMessage": "m"}
    found = answer(event, told)
    assert (found.context, found.message, found.problem) == ("c", "m", "")
    assert answer(event, {"context": "old"}).context == "old"
    plain = read_answer(event, 0, " words \n", "")
    named = event in ("SessionStart", "UserPromptSubmit")
    assert plain == HookAnswer(context="words" if named else "")


def test_fields_for_another_event_count_for_nothing() -> None:
    found = answer("PreToolUse", extra("Stop", permissionDecision="allow", additionalContext="c"))
    assert (found.decision, found.context) == ("none", "")
    assert found.problem == "hookSpecificOutput is for 'Stop', not for PreToolUse"
    assert answer("Stop", {"hookSpecificOutput": 7}).problem == "hookSpecificOutput is no object"


@pytest.mark.parametrize("over", [0, 1])
def test_a_long_text_is_cut(over: int) -> None:
    found = read_answer("Stop", 2, "", "x" * (LONG + over))
    assert found.reason == "x" * LONG + "\n… (cut)" * over


def test_a_wrong_matcher_is_named() -> None:
    for matcher in ("", "*", "Edit|Write", "mcp__.*"):
        assert matcher_problem(matcher) == ""
    endless = ("a{99999999999}", "(" * 3_000 + ")" * 3_000, f"a{{{'1' * 5_000}}}")
    for matcher in ("(", "**", "[a", *endless):
        assert matcher_problem(matcher) == f"the matcher {matcher!r} is no regular expression"


@pytest.mark.parametrize(("fields", "line"), [
    ({}, "PreToolUse: ./guard.sh"),
    ({"matcher": "Bash"}, "PreToolUse Bash: ./guard.sh"),
    ({"condition": "Bash(rm *)"}, "PreToolUse if Bash(rm *): ./guard.sh"),
    ({"matcher": "Bash", "condition": "Bash(x)"}, "PreToolUse Bash if Bash(x): ./guard.sh"),
    ({"words": ("a", "b c")}, "PreToolUse: a b c"),
    ({"kind": "prompt"}, "PreToolUse: prompt: ./guard.sh"),
    ({"kind": "agent"}, "PreToolUse: agent: ./guard.sh"),
    ({"kind": "http"}, "PreToolUse: ./guard.sh"),
])  # fmt: skip
def test_a_hook_is_told_in_a_line(fields: dict[str, Any], line: str) -> None:
    assert hook_line(Hook("PreToolUse", "./guard.sh", "file", **fields)) == line


def test_of_several_answers_the_strictest_counts() -> None:
    order = ("none", "allow", "ask", "block", "deny", "stop")
    for at, strict in enumerate(order):
        for weak in order[: at + 1]:
            pair = HookAnswer(weak, "weak"), HookAnswer(strict, "strict")
            for answers in (pair, pair[::-1]):
                found = merge_answers(answers)
                assert found.decision == strict
                both = "\n".join(one.reason for one in answers)
                assert found.reason == (both if weak == strict else "strict")
    assert merge_answers(()) == HookAnswer()


def test_texts_of_several_answers_are_joined_and_the_last_change_counts() -> None:
    first = HookAnswer("allow", "", "c", "m", "p", {"a": 1}, "x")
    second = HookAnswer("allow", "", "d", "m", "", {"a": 2}, ["y"])
    found = merge_answers([first, second, HookAnswer()])
    assert found == HookAnswer("allow", "", "c\nd", "m", "p", {"a": 2}, ["y"])
    for decision in ("deny", "stop"):
        assert merge_answers([first, HookAnswer(decision)]).updated_input is None
    assert merge_answers([first, HookAnswer("block")]).updated_input == {"a": 1}


def test_an_output_that_is_no_json_is_ignored_and_that_is_said() -> None:
    for output in ("{", "{'a': 1}", "{" * 100_000):
        found = read_answer("PreToolUse", 0, output, "")
        assert found.decision == "none"
        assert found.problem.startswith("its output begins with { but is no JSON (")
        assert found.problem.endswith("); it was ignored")


def test_a_long_decision_is_shown_in_part() -> None:
    found = answer("PreToolUse", extra("PreToolUse", permissionDecision="x" * 70))
    assert found.reason == f"a hook answered '{'x' * 60}', which is no decision"
