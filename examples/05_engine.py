"""The engine alone, without a loop: facts go in, a view, a decision and a request come out."""

from longrein_context import Budget, Price, decide, fold, render
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Entry,
    Opened,
    PrefixSet,
    Text,
    UserSpoke,
)

facts: list[AnyEvent] = [
    Opened(SCHEMA_VERSION, "00000000-0000-4000-8000-000000000005", "n0nce", ("/work",), "/work"),
    PrefixSet("start", "house", "small", "openai-chat", "You are terse."),
    UserSpoke((Text("Why is the sky blue?"),)),
]
state = fold([Entry(seq, 0, fact) for seq, fact in enumerate(facts, 1)])
budget = Budget(window_tokens=8_000, max_output_tokens=1_000, price=Price(1, 4))

print("view:    ", [(item.handle, item.kind, item.tokens) for item in state.items])
print("decision:", decide(state, budget))
print(
    "request: ",
    len(render(state, budget).items),
    "block, at most",
    render(state, budget).max_output_tokens,
    "out",
)
