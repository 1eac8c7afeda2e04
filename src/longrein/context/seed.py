"""The profile `seed`: the founding documents' compaction, literally; the baseline that the default is held against.

Before every request all but the last three results longer than 100 characters become `[Previous: used X]`; above 50,000
estimated tokens (characters / 4) the first 80,000 characters of the conversation are summarised and everything is
replaced. It breaks the cache each turn and forgets what it clears; only the log still has it.
"""

import msgspec

from longrein.context.decide import (
    SUMMARY_ATTEMPTS_MAX,
    Clear,
    Decision,
    Digest,
    Full,
    Nothing,
    Summarise,
    Swap,
    floor_diagnosis,
    overflowed,
    ready,
)
from longrein.context.digest import digest
from longrein.context.request import Budget, Item, Request
from longrein.context.state import State
from longrein.context.tokens import arguments_text
from longrein.events import Cleared, Form, PrefixSet, Summarized, Text, ToolCall, ToolResult, text_of

KEEP_RECENT = 3
"""Results left alone."""
CLEAR_CHARS_MIN = 100
"""Contents longer than this are cleared."""
THRESHOLD_TOKENS = 50_000
"""Above this everything is summarised."""
INPUT_CHARS_MAX = 80_000
"""Characters of the conversation that the summariser gets."""
SUMMARY_TOKENS_MAX = 2_000
"""Its output limit."""
INSTRUCTION = (
    "Summarize this conversation for continuity. Include: "
    "1) what was accomplished, 2) current state, 3) key decisions.\n\n"
)
ACKNOWLEDGED = "Understood. Continuing."


def decide_seed(state: State, budget: Budget) -> Decision:
    """`micro_compact`, then `auto_compact`, then the documents' manual one."""
    swap = ready(state, state.summary_of.reason if state.summary_of else "watermark")
    if swap is not None:
        return swap
    if state.compact_wanted is None:
        forms = _micro(state)
        if forms:
            return Clear(Cleared(forms, "micro_compact"))
    over = state.compact_wanted is not None or _estimate(state) > THRESHOLD_TOKENS
    overflow = overflowed(state)
    if not (over or overflow or state.view_tokens > budget.window_tokens):
        return Nothing("below the threshold")
    conversation = state.items[state.context_items :]
    if not conversation or (conversation[0].kind == "summary" and len(conversation) <= 2):
        return Full(floor_diagnosis(state, budget)) if overflow else Nothing("nothing to compact")
    first, last = conversation[0].seqs[0], state.seq
    if state.summary_attempts < SUMMARY_ATTEMPTS_MAX:
        return Summarise(first, last, "request" if state.compact_wanted is not None else "watermark")
    return Digest(digest(state, budget, first, last, "watermark"))


def _micro(state: State) -> tuple[Form, ...]:
    results = [item for item in state.items if isinstance(item.part, ToolResult)]
    old = results[:-KEEP_RECENT]
    return tuple(
        Form(item.handle, "placeholder", f"[Previous: used {item.part.name}]")
        for item in old
        if isinstance(item.part, ToolResult) and item.form != "placeholder"
        if len(text_of(item.part.parts)) > CLEAR_CHARS_MIN
    )


def _estimate(state: State) -> int:
    return len(_conversation(state)) // 4


def _conversation(state: State) -> str:
    """The view as JSON text, as the documents serialise it."""
    rows = [{"role": "assistant" if item.mine else "user", "content": _content(item)} for item in state.items]
    return msgspec.json.encode(rows).decode()


def _content(item: Item) -> str:
    part = item.part
    return f"{part.name}({arguments_text(part)})" if isinstance(part, ToolCall) else text_of((part,))


def render_seed_summary(state: State) -> Request:
    """One user message: the instruction and the first 80,000 characters."""
    if state.prefix is None:
        raise AssertionError("a request needs a PrefixSet before it")
    bare = PrefixSet("start", state.prefix.provider, state.prefix.model, state.prefix.wire, "")
    text = INSTRUCTION + _conversation(state)[:INPUT_CHARS_MAX]
    item = Item((state.seq, 0, -1), "user", (state.seq, state.seq), "", Text(text))
    return Request(state.session, bare, 0, (item,), (), SUMMARY_TOKENS_MAX, "summary")


def seed_summarized(budget: Budget, swap: Swap) -> Summarized:
    """The documents' two fake turns; as one user message where a request may not end with the assistant."""
    text, asks = f"[Compressed]\n\n{swap.prose}", (swap.asked,)
    if budget.accepts_prefill:
        return Summarized(swap.first, swap.last, text, swap.reason, swap.prose, asks=asks, reply=ACKNOWLEDGED)
    return Summarized(swap.first, swap.last, f"{text}\n\n{ACKNOWLEDGED}", swap.reason, swap.prose, asks=asks)
