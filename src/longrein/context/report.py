"""Where the tokens are: for `/context`."""

from longrein.context.state import State
from longrein.context.tokens import ITEM_TOKENS, estimate_text

KINDS = {
    "context": "instructions and environment",
    "user": "your messages",
    "reminder": "notes of the harness",
    "text": "answers",
    "thinking": "thinking",
    "call": "tool calls",
    "result": "tool results",
    "summary": "summary of earlier work",
    "ack": "answers",
}


def report(state: State) -> list[tuple[str, int]]:
    """(category, tokens) of the next request, calibrated."""
    sizes: dict[str, int] = {}
    if state.prefix is not None:
        sizes["system text"] = estimate_text(state.prefix.system)
        sizes["tools"] = sum(
            estimate_text(t.name + t.description + str(t.schema)) + ITEM_TOKENS for t in state.prefix.tools
        )
    for item in state.items:
        sizes[KINDS[item.kind]] = sizes.get(KINDS[item.kind], 0) + item.tokens
    return [(name, state.gauge.scale(raw)) for name, raw in sizes.items() if raw]
