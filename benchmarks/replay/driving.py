"""Drives the clearing policy over a recorded session and writes down what it changes, in the judge's trace format."""

from collections.abc import Callable
from typing import Any

from longrein.context.rental import Rental, decide, squeeze, view_tokens
from longrein.context.worth import Piece, Worth
from replay.recorded import Message, Recording

WATERMARK, GOAL = 0.92, 0.80
"""Shares of the window: above the first the view is brought down to the second."""
SEED_KEEPS, SEED_CHARS_MIN, SEED_THRESHOLD_TOKENS, SEED_INPUT_CHARS = 3, 100, 50_000, 80_000
"""What the founding documents say."""
KINDS = {"user": "user", "tool_call": "call", "tool_result": "result", "assistant_text": "text"}


def pieces(session: Recording) -> list[Piece]:
    """The messages of a session as the policy takes them; the handle is the place."""
    return [_piece(n, message) for n, message in enumerate(session.messages)]


def _piece(n: int, message: Message) -> Piece:
    kind = KINDS[message.kind]
    if message.output and message.name == "thinking":
        kind = "thinking"
    if message.kind != "tool_call" and message.args:
        raise ValueError("arguments without a call")
    return Piece(
        f"r{n}",
        kind,
        message.text,
        message.tokens,
        message.request,
        message.name,
        message.args,
        message.call or f"?{n}",
    )


def drive(session: Recording, rental: Rental, window: int, ttl_s: float = 0.0) -> list[dict[str, Any]]:
    """The lines of the trace between its header and its end. `ttl_s`: age at which a cache is cold; 0 for never."""
    worth, lines = Worth(), []
    todo = pieces(session)
    at, asked_at = 0, 0.0
    for request in range(session.requests):
        while at < len(todo) and _arrives(session.messages[at], request):
            worth.arrive(todo[at])
            at += 1
        worth.begin(request)
        now = session.messages[at - 1].at if at else 0.0
        cold = bool(ttl_s and asked_at and now - asked_at > ttl_s)
        asked_at = max(now, asked_at)
        plans = [decide(worth, rental, cold=cold)]
        if plans[0]:
            plans[0].take(worth)
        total = session.system_tokens + view_tokens(worth)
        if window and total > WATERMARK * window:
            plans.append(squeeze(worth, rental, total - GOAL * window))
            if plans[1]:
                plans[1].take(worth)
        shown: dict[str, str | None] = {}
        for plan in plans:
            for change in plan.changes if plan else ():
                shown[change.handle[1:]] = None if change.form == "folded" else change.text
        if shown:
            lines.append({"t": request, "show": shown})
        worth.was_sent()
    return lines


def keep_all(_session: Recording, _rental: Rental, _window: int, _ttl_s: float = 0.0) -> list[dict[str, Any]]:
    """Nothing is ever changed."""
    return []


def seed(session: Recording, _rental: Rental, _window: int, _ttl_s: float = 0.0) -> list[dict[str, Any]]:
    """The founding documents: results but the newest three become `[Previous: used X]`; at 50,000 tokens a summary."""
    lines: list[dict[str, Any]] = []
    shown: dict[int, int] = {}  # place -> characters that stand in the view
    results: list[int] = []
    at = 0
    for request in range(session.requests):
        before = at
        while at < len(session.messages) and _arrives(session.messages[at], request):
            message = session.messages[at]
            shown[at] = len(message.text) + len(message.args)
            if message.kind == "tool_result":
                results.append(at)
            at += 1
        line: dict[str, Any] = {"t": request}
        old = [n for n in results[:-SEED_KEEPS] if shown.get(n, 0) > SEED_CHARS_MIN and n < before]
        show: dict[str, str | None] = {str(n): f"[Previous: used {session.messages[n].name}]" for n in old}
        shown.update({int(n): len(text or "") for n, text in show.items()})
        if sum(shown.values()) / 4 > SEED_THRESHOLD_TOKENS:
            gone = [n for n in shown if n < before]
            show |= {str(n): None for n in gone}
            chars = min(SEED_INPUT_CHARS, sum(shown[n] for n in gone))
            line |= {"summary": "[[LLM-SUMMARY]]", "extra_output_tokens": 2000, "extra_input": chars // 3}
            shown = {n: size for n, size in shown.items() if n >= before}
        if show:
            lines.append(line | {"show": show})
    return lines


def _arrives(message: Message, request: int) -> bool:
    return message.request < request or (message.request == request and not message.output)


POLICIES: dict[str, Callable[[Recording, Rental, int, float], list[dict[str, Any]]]] = {
    "default": drive,
    "keep-all": keep_all,
    "seed": seed,
}
