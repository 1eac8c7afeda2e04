"""The end of a run: one `result` line, one line on stderr when it did not go well, one exit code. Pure."""

import msgspec

from longrein.events import RETRYABLE, LongreinError
from longrein.frontends.headless.run_state import DeniedCall, RunState, SessionFacts
from longrein.frontends.headless.stream_json_blocks import STOPS, Line, tail, tool_input, usage_line

SUBTYPES = {"limit": "error_max_turns", "budget": "error_max_budget_usd"}
"""`TurnEnded.reason` to the subtype of the result; all others but `done` and `blocked` are errors of the run."""

BLOCKED, LIMIT, TRY_AGAIN = 3, 4, 75
"""Exit codes; 0, 1 and 2 are as everywhere."""


class Stop(msgspec.Struct, frozen=True):
    """What ended the run from outside; all empty when nothing did."""

    signal: int = 0
    """Signal that came."""
    error: LongreinError | None = None
    """Error of ours that the loop raised."""
    deaf: str = ""
    """Why stdout takes no more; `closed` when its reader simply left."""


def exit_code(tally: RunState, stop: Stop) -> int:
    """Exit code of the run."""
    if stop.signal:
        return 128 + stop.signal
    if stop.error is not None:
        return stop.error.exit_code
    if stop.deaf or tally.ended is None:
        return 1
    match tally.ended.reason:
        case "done":
            return 0
        case "blocked":
            return BLOCKED
        case "limit" | "budget":
            return LIMIT
        case "error" if tally.failure and tally.failure[1].kind in RETRYABLE:
            return TRY_AGAIN
        case _:
            return 1


def error_line(tally: RunState, stop: Stop) -> str:
    """The line for stderr; '' when all went well or nobody needs to be told."""
    if stop.error is not None:
        return str(stop.error)
    if stop.deaf:
        return "" if stop.deaf == "closed" else f"stdout cannot be written: {stop.deaf}"
    code = exit_code(tally, stop)
    if code == BLOCKED and tally.denials:
        return _blocked(tally.denials[-1])
    return _reason_text(tally, stop) if code else ""


def draw_result(facts: SessionFacts, tally: RunState, stop: Stop, key: str) -> Line:
    """The `result` line; `key` tells it from the other results of the session."""
    reason = tally.ended.reason if tally.ended else "error"
    cut = bool(stop.signal or stop.error or stop.deaf)
    fine = reason in ("done", "blocked") and not cut
    line: Line = {
        "type": "result",
        "subtype": "success" if fine else "error_during_execution" if cut else _subtype(reason),
        "is_error": not fine,
        "duration_ms": (tally.last_at - tally.first_at) // 1000,
        "duration_api_ms": tally.asking_us // 1000,
        "num_turns": tally.replies,
    }
    line |= {"result": tally.text} if fine else {"errors": [error_line(tally, stop) or _reason_text(tally, stop)]}
    line |= {
        "stop_reason": STOPS.get(tally.reply.stop) if tally.reply else None,
        "total_cost_usd": tally.cost_usd,
        "usage": usage_line(tally.usage),
        "modelUsage": _model_usage(facts, tally),
        "permission_denials": [_denial(denial) for denial in tally.denials],
    }
    return line | tail(facts.session, key)


def _subtype(reason: str) -> str:
    return SUBTYPES.get(reason, "error_during_execution")


def _reason_text(tally: RunState, stop: Stop) -> str:
    if stop.signal:
        return "interrupted: the session is saved, `longrein -c` goes on with it"
    if tally.ended is None:
        return "the turn did not end: the session is saved, `longrein -c` goes on with it"
    if tally.ended.message:
        return tally.ended.message
    return tally.failure[1].message or tally.failure[1].kind if tally.failure else f"stopped: {tally.ended.reason}"


def _blocked(denial: DeniedCall) -> str:
    who = f"{denial.agent}: " if denial.agent else ""
    if denial.asked is None:
        return f"blocked: {who}{denial.call.name} is not permitted here, by a rule or by the mode"
    shown = denial.asked.shown.splitlines()
    first = (shown[0] if shown else "")[:100]
    rule, why = denial.asked.suggestion, denial.asked.reason
    way = f"allow it with --allowedTools '{rule}'" if rule else f"{why}; to approve it, go on with `longrein -c`"
    return f"blocked: {who}{denial.call.name} needs permission ({first}): {way}"


def _denial(denial: DeniedCall) -> Line:
    call = denial.call
    line: Line = {"tool_name": call.name, "tool_use_id": call.id, "tool_input": tool_input(call)}
    return {**line, "agent": denial.agent} if denial.agent else line


def _model_usage(facts: SessionFacts, tally: RunState) -> Line:
    """By model."""
    own = (facts.window_tokens, facts.max_output_tokens)
    sizes = {model: own if model == facts.model else facts.sizes(model) for model in tally.spent}
    return {
        model: {
            "inputTokens": used.input_tokens,
            "outputTokens": used.output_tokens,
            "cacheReadInputTokens": used.cache_read_tokens,
            "cacheCreationInputTokens": used.cache_write_tokens,
            "webSearchRequests": 0,
            "costUSD": cost,
            "contextWindow": sizes[model][0],
            "maxOutputTokens": sizes[model][1],
        }
        for model, (used, cost) in tally.spent.items()
    }
