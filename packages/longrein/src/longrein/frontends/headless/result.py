"""The end of a run: the `result` line, an error line for stderr, and the exit code. Pure."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from longrein.frontends.headless.run_state import DeniedCall, RunState, Stop
from longrein.frontends.headless.stream_json_blocks import STOPS, Line, tail, tool_input, usage_line
from longrein.permissions import unseen_note
from longrein.permissions.rule_evaluation import flag_rule
from longrein_context import Budget
from longrein_context.events import RETRYABLE, PermissionAsked

SUBTYPES = {
    "limit": "error_max_turns",
    "budget": "error_max_budget_usd",
    "unstructured": "error_max_structured_output_retries",
}
"""`TurnEnded.reason` -> subtype of the result; other reasons but `done` and `blocked` are
execution errors.
"""

BLOCKED = 3
LIMIT = 4
TRY_AGAIN = 75


def exit_code(run_state: RunState, stop: Stop) -> int:
    """Exit code of the run."""
    if stop.signal:
        return 128 + stop.signal
    if stop.error is not None:
        return stop.error.exit_code
    if stop.write_error or run_state.ended is None:
        return 1
    match _reason(run_state):
        case "done":
            return 0
        case "blocked":
            return BLOCKED
        case "limit" | "budget":
            return LIMIT
        case "error" if run_state.failure and run_state.failure[1].kind in RETRYABLE - {"empty"}:
            return TRY_AGAIN
        case _:
            return 1


UNSTRUCTURED = "the model gave no answer that fits --json-schema"


def _reason(run_state: RunState) -> str:
    """Return why the turn ended.

    A turn is blocked if a hook stopped it, or if nobody could approve the call that it ended on. A
    rule, a hook, the mode or the program that denies a call has decided, and the turn went on.
    """
    if run_state.unstructured:
        return "unstructured"
    if run_state.ended is None:
        return "error"
    is_stopped = run_state.unapproved is not None or bool(run_state.ended.message)
    if run_state.ended.reason == "blocked" and not is_stopped:
        return "done"
    return run_state.ended.reason


def error_line(run_state: RunState, stop: Stop) -> str:
    """Error line for stderr; '' for a success and for a closed stdout."""
    if stop.error is not None:
        return str(stop.error)
    if stop.write_error:
        return (
            "" if stop.write_error == "closed" else f"stdout cannot be written: {stop.write_error}"
        )
    code = exit_code(run_state, stop)
    if (
        code == BLOCKED
        and run_state.unapproved
        and not (run_state.ended and run_state.ended.message)
    ):
        return _blocked(run_state.unapproved)
    return _reason_text(run_state, stop) if code else ""


def draw_result(session: str, run_state: RunState, stop: Stop, model_usage: Line, key: str) -> Line:
    """The `result` line; `key` makes its id unique in the session."""
    reason = _reason(run_state)
    cut = bool(stop.signal or stop.error or stop.write_error)
    fine = reason == "done" and not cut
    line: Line = {
        "type": "result",
        "subtype": "success"
        if fine
        else SUBTYPES.get("" if cut else reason, "error_during_execution"),
        "is_error": not fine,
        "duration_ms": (run_state.last_at - run_state.first_at) // 1000,
        "duration_api_ms": run_state.asking_us // 1000,
        "num_turns": run_state.replies,
    }
    if fine or (reason == "blocked" and not cut):
        line["result"] = run_state.text
    if run_state.structured is not None:
        line["structured_output"] = run_state.structured
    if not fine:
        line["errors"] = [error_line(run_state, stop) or _reason_text(run_state, stop)]
    line |= {
        "stop_reason": STOPS.get(run_state.reply.stop) if run_state.reply else None,
        "total_cost_usd": sum(cost for _, cost in run_state.spent.values()),
        "usage": usage_line(run_state.usage),
        "modelUsage": model_usage,
        "permission_denials": [_denial(denial) for denial in run_state.denials],
    }
    return line | tail(session, key)


def _reason_text(run_state: RunState, stop: Stop) -> str:
    if run_state.unstructured and not stop.signal:
        return UNSTRUCTURED
    if stop.signal:
        return "interrupted: the session is saved, `longrein -p -c` goes on with it"
    if run_state.ended is None:
        return "the turn did not end: the session is saved, `longrein -p -c` goes on with it"
    if run_state.ended.message:
        return run_state.ended.message
    if run_state.failure:
        return run_state.failure[1].message or run_state.failure[1].kind
    return f"stopped: {run_state.ended.reason}"


_ASKS_EACH_TIME = re.compile("the rule .* asks|a hook asks")
"""Reasons of questions that no rule answers."""


def _ways(asked: PermissionAsked, arguments: Mapping[str, Any]) -> list[str]:
    """Return the flags of which each would allow a call; none where only a person can."""
    rules = [flag_rule(rule) for rule in asked.suggestion.splitlines()]
    ways = ["--permission-mode acceptEdits"] if asked.edits else []
    if rules:
        ways.append(f"--allowedTools '{','.join(rules)}'")
    is_asked_each_time = arguments.get("outside_sandbox") or _ASKS_EACH_TIME.search(asked.reason)
    if not ways and asked.name == "Bash" and not is_asked_each_time:
        ways.append(f"--allowedTools Bash, as every command is ({asked.reason})")
    return ways


def _blocked(denial: DeniedCall) -> str:
    assert denial.asked is not None
    note = unseen_note(denial.call.arguments or {})
    shown = denial.asked.shown.removeprefix(note).strip().splitlines()
    first = (shown[0] if shown else "")[:100]
    ways = _ways(denial.asked, denial.call.arguments or {})
    way = f"allow it with {' or '.join(ways)}"
    if not ways:
        way = f"{denial.asked.reason}; to approve it, go on with `longrein -r`"
    return f"blocked: {denial.call.name} needs permission ({first}): {way}"


def _denial(denial: DeniedCall) -> Line:
    call = denial.call
    line: Line = {"tool_name": call.name, "tool_use_id": call.id, "tool_input": tool_input(call)}
    return {**line, "agent": denial.agent} if denial.agent else line


def draw_model_usage(run_state: RunState, budget_of: Callable[[str], Budget]) -> Line:
    """Use of each model, by its name."""
    lines: Line = {}
    for model, (used, cost) in run_state.spent.items():
        budget = budget_of(model)
        lines[model] = {
            "inputTokens": used.input_tokens,
            "outputTokens": used.output_tokens,
            "cacheReadInputTokens": used.cache_read_tokens,
            "cacheCreationInputTokens": used.cache_write_tokens,
            "webSearchRequests": used.web_searches,
            "costUSD": cost,
            "contextWindow": budget.window_tokens,
            "maxOutputTokens": budget.max_output_tokens,
        }
    return lines
