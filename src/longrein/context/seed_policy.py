"""The profile `seed`: the founding documents' compaction, literally; the baseline that the default is held against.

Before every request all but the last three results longer than 100 characters become `[Previous: used X]`; above 50,000
estimated tokens (characters / 4) the first 80,000 characters of the conversation are summarised and everything is
replaced. It breaks the cache each turn and forgets what it clears; only the log still has it.

The documents' course changed with time. `seed` is its first text; `seed-later` and `seed-new` are its later ones, where
they say something else. `seed-framework` is the text for a framework that owns the tool loop (`turns`): between user
messages everything gives way to six cut turns at the end of the system prompt, within a turn nothing is touched. Where
the first text would end the program (a summary that fails, a request that does not fit) all of them do what the newest
one does, and in the last resort what the default does.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.context.decide import (
    Clear,
    Decision,
    Digest,
    Full,
    Nothing,
    Summarise,
    Swap,
    floor_diagnosis,
    has_overflowed,
    ready_swap,
)
from longrein.context.reminders import pending_notices
from longrein.context.state.reminder_kinds import ENDED, KINDS, Notice
from longrein.context.state.request import Budget, Item, Request
from longrein.context.state.state import FRAMEWORK_PROFILE, State
from longrein.context.summary.digest import build_digest
from longrein.events import (
    AnyEvent,
    Cleared,
    Document,
    Form,
    PrefixSet,
    Reminded,
    Replied,
    Summarized,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserSpoke,
    text_of,
)

# ---------------------------------------------------------------------------------------------------------------------
#
# The founding documents' compaction where a framework owns the tool loop: at the borders of user messages, on text.
#
# The framework calls tools inside one request of its own, so only what the user and the model said is recorded and
# only between user messages can anything be made smaller. These functions are that text literally, for a foreign loop
# and for the profile `seed-framework`; `longrein.context.Engine` is what to use instead.
#
#     if is_due(turns): turns = compacted(ask("", summary_request(turns)), path)
#     turns.append(("user", words))
#     turns.append(("assistant", ask(system_with(system, turns), words)))


TextTurn = tuple[str, str]
"""(role, content); the role is `user`, `assistant` or `system`."""
OPENING = "<conversation-context>"
"""First line of what the system prompt shows of earlier turns."""
FRAMED = "framework"
"""Reason of the `Summarized` by which earlier turns give way to `context_summary`."""

KEEP_RECENT = 3
"""Exchanges that the system prompt shows: twice as many turns."""
TURN_CHARS_MAX = 500
"""What it shows of each, a summary included."""
THRESHOLD_TOKENS = 50_000
"""Above this, at four characters each, everything is summarised before the next user message."""
TEXT_INPUT_CHARS_MAX = 80_000
"""Characters that the summariser gets."""
COMPACT_ANSWER = "Compression triggered. The conversation will be compacted after this answer."
"""What the model's own wish to compact answers; the focus it gave goes nowhere."""


def text_turns(state: State) -> list[TextTurn]:
    """What the framework's user would have recorded of a session: words, neither calls nor results."""
    turns: list[TextTurn] = []
    for item in state.items[state.context_items :]:
        if isinstance(item.part, Text) and item.kind in ("user", "text", "summary", "ack"):
            turns.append(("assistant" if item.mine else "user", item.part.text))
    return turns


def record_text_turn(state: State, event: AnyEvent) -> None:
    """Keep in `state.said` what that text's history holds: the user's messages, final answers, the last summary."""
    match event:
        case UserSpoke(parts=parts):
            state.said = [*state.said, ("user", text_of(parts))]
        case Replied(asked=asked, parts=parts) if asked != state.summarising_seq:
            if any(isinstance(part, ToolCall) for part in parts):
                return
            state.said = [*state.said, ("assistant", text_of(parts))]
        case Summarized(last=last, reason=reason, text=text) if reason != FRAMED:
            later = [word for word in state.words if word.seq > last]
            state.said = [("system", text), *state.said[len(state.said) - len(later) :]]
        case _:
            pass


def past_items(state: State) -> tuple[Item, ...]:
    """What stands before the user's last message; everything when no turn is open."""
    items = state.items[state.context_items :]
    begin = next((word.seq for word in reversed(state.words) if word.origin != "steer"), 0)
    return tuple(item for item in items if item.seqs[0] and (item.seqs[0] < begin or not state.turn_open))


def past_turns(state: State) -> list[TextTurn]:
    """The same as text; steering in the middle of a turn goes with that turn."""
    begin = next((word.seq for word in reversed(state.words) if word.origin != "steer"), 0)
    present = sum(word.seq >= begin for word in state.words) if state.turn_open else 0
    return state.said[: len(state.said) - present]


def is_due(turns: Sequence[TextTurn], wanted: bool = False) -> bool:
    """Whether to compact now. `wanted`: the model asked for it since the last user message."""
    return wanted or sum(len(content) for _, content in turns) // 4 > THRESHOLD_TOKENS


def context_summary(turns: Sequence[TextTurn]) -> str:
    """The last exchanges, cut, for the end of the system prompt; '' without any."""
    if not turns:
        return ""
    lines = [f"{role}: {content[:TURN_CHARS_MAX]}" for role, content in turns[-2 * KEEP_RECENT :]]
    return "\n".join([OPENING, *lines, "</conversation-context>"])


def system_with(system: str, turns: Sequence[TextTurn]) -> str:
    """The system prompt of the next request: another one each time, so that no cache holds."""
    shown = context_summary(turns)
    return f"{system}\n\n{shown}" if shown else system


def summary_request(turns: Sequence[TextTurn]) -> str:
    """The one user message that asks for a summary: three points, then the beginning of the conversation."""
    spelled = "\n".join(f"{role}: {content}" for role, content in turns)
    points = "1) what was accomplished, 2) the current state, 3) key decisions"
    return f"Summarize this conversation for continuity. Include: {points}.\n\n{spelled[:TEXT_INPUT_CHARS_MAX]}"


def compacted_turns(summary: str, transcript: str) -> list[TextTurn]:
    """What the history becomes. `transcript`: where the whole was written before."""
    return [("system", f"[Conversation compressed. Transcript: {transcript}]\n\n{summary}")]


# --- The conversation as the founding documents hold it: a list of turns with a role and a content -------------------
#
# The profile `seed` counts and serialises this, never the view itself, so that its numbers are those of the
# documents.


JsonTurn = dict[str, Any]
"""`role` is `user` or `assistant`; `content` a text, or a list of blocks."""


def group_turns(state: State) -> list[list[Item]]:
    """The view after its static context in turns: neighbours of one side; a summary is a turn of its own."""
    found: list[list[Item]] = []
    for item in state.items[state.context_items :]:
        if not found or found[-1][-1].mine != item.mine or "summary" in (item.kind, found[-1][-1].kind):
            found.append([item])
        else:
            found[-1].append(item)
    return found


def conversation_as_list(state: State) -> list[JsonTurn]:
    """The documents' list. Neither system text nor static context stands in it."""
    return [
        {"role": "assistant" if items[0].mine else "user", "content": _contents([_block(item) for item in items])}
        for items in group_turns(state)
    ]


def _contents(blocks: list[JsonTurn]) -> str | list[JsonTurn]:
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def _block(item: Item) -> JsonTurn:
    match item.part:
        case ToolCall(id, name, arguments):
            return {"type": "tool_use", "id": id, "name": name, "input": arguments or {}}
        case ToolResult(call, _, _, parts):
            return {"type": "tool_result", "tool_use_id": call, "content": text_of(parts)}
        case Text() | Thinking() | Document() as part:
            return {"type": "text", "text": text_of((part,))}
        case part:
            return {"type": "image", "blob": getattr(part, "blob", "")}


def as_json(value: Any) -> str:
    """`value` as the documents' `json.dumps` spells it: blanks after `,` and `:`, nothing but ASCII."""
    spelled: str = msgspec.json.format(msgspec.json.encode(value).decode(), indent=0)
    return re.sub("[^ -~]", _escaped, spelled)


def _escaped(found: "re.Match[str]") -> str:
    digits = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))


# --- policy ----------------------------------------------------------------------------------------------------------


INPUT_CHARS_MAX = 80_000
"""Characters of the conversation that the summariser gets."""
SUMMARY_TOKENS_MAX = 2_000
"""Its output limit."""
INSTRUCTION = (
    "Summarize this conversation for continuity. Include: "
    "1) what was accomplished, 2) current state, 3) key decisions.\n\n"
)
ACKNOWLEDGED = "Understood. Continuing."
COMPACT = "Compact"
"""Tool by which the model asks for room."""
MICRO = "micro_compact"
"""Reason of the clearing before each request; nothing is shown of it."""
FAILURES_MAX = 3
"""Summaries that may fail in a row; then there is no automatic one any more."""
OVERFLOW_RETRIES = 1
"""Requests made again after a summary because one did not fit; then the digest takes over."""
OVERFLOW_KEEPS = 5
"""Turns that such a summary leaves verbatim."""
PREVIEW_CHARS = 2_000
"""What is still shown of a result that was put aside."""


class SeedVariant(msgspec.Struct, frozen=True):
    """What one text of the course says. 0: it does not know such a limit."""

    keep_recent: int = 3
    """Results left alone."""
    clear_chars_min: int = 100
    """Contents longer than this are cleared."""
    preserved: tuple[str, ...] = ()
    """Tools whose results are never cleared and do not count as recent."""
    threshold: int = 50_000
    """Above this estimate everything is summarised."""
    chars_per_unit: int = 4
    """Characters for one of the estimate."""
    result_chars_max: int = 0
    """A longer result is put aside before it is first sent."""
    results_chars_max: int = 0
    """Results of one step that together are longer are put aside, biggest first."""
    turns_max: int = 0
    """Above so many turns the middle goes."""
    head_turns: int = 3
    """Turns before the middle."""
    tail_turns: int = 47
    """Turns after it."""
    reference_only: bool = False
    """Whether a summary is marked as data, with the user's request verbatim before it, and knows a focus."""


SEED_VARIANTS = {
    "seed": SeedVariant(),
    "seed-later": SeedVariant(preserved=("Read",), reference_only=True),
    "seed-new": SeedVariant(
        clear_chars_min=120,
        threshold=50_000,
        chars_per_unit=1,
        result_chars_max=30_000,
        results_chars_max=200_000,
        turns_max=50,
        reference_only=True,
    ),
}
"""Profile -> its text of the course."""


def variant_of(state: State) -> SeedVariant:
    """The text that the session's profile names; the first one for any other."""
    return SEED_VARIANTS.get(state.profile, SEED_VARIANTS["seed"])


def decide_seed(state: State, budget: Budget) -> Decision:
    """Large results aside, the middle out, `micro_compact`, then `auto_compact`; a wish of the model or user first."""
    if state.profile == FRAMEWORK_PROFILE:
        return _decide_framed(state, budget)
    variant = variant_of(state)
    swap = ready_swap(state, state.summary_of.reason if state.summary_of else "watermark")
    if swap is not None:
        return msgspec.structs.replace(swap, prose=_reference(state, swap.prose)) if variant.reference_only else swap
    if state.compact_wanted is not None:
        return _on_request(state, budget)
    forms = _trim_large_results(state, variant)
    if forms:
        return Clear(Cleared(forms, "tool_result_budget"))
    return _snip(state, variant) or _micro(state, variant) or _auto(state, budget, variant)


# --- layer 1 -----------------------------------------------------------------------------------------------------


def _micro(state: State, variant: SeedVariant) -> Clear | None:
    results = [item for item in state.items if isinstance(item.part, ToolResult)]
    counted = [item for item in results if _name(item) not in variant.preserved]
    forms = tuple(
        Form(item.handle, "placeholder", f"[Previous: used {_name(item)}]")
        for item in counted[: -variant.keep_recent]
        if item.form != "placeholder" and len(_content(item)) > variant.clear_chars_min
    )
    return Clear(Cleared(forms, MICRO)) if forms else None


def _name(item: Item) -> str:
    return item.part.name if isinstance(item.part, ToolResult) else ""


def _content(item: Item) -> str:
    """The content that the course looks at: a text. A list of blocks, as with an image, is never touched."""
    parts = item.part.parts if isinstance(item.part, ToolResult) else ()
    return text_of(parts) if all(isinstance(part, Text | Document) for part in parts) else ""


def _trim_large_results(state: State, variant: SeedVariant) -> tuple[Form, ...]:
    """New results that are too large, alone or together."""
    if not variant.result_chars_max:
        return ()
    new = [item for item in state.items if isinstance(item.part, ToolResult) and item.seqs[0] > state.sent_reach]
    whole = sorted((item for item in new if item.form == "full"), key=lambda item: -len(_content(item)))
    left, forms = sum(len(_content(item)) for item in new), []
    for item in whole:
        content = _content(item)
        if len(content) > variant.result_chars_max or (
            left > variant.results_chars_max and len(content) > PREVIEW_CHARS
        ):
            text = _preview(item.handle, content)
            left += len(text) - len(content)
            forms.append(Form(item.handle, "trimmed", text))
    return tuple(forms)


def _preview(handle: str, content: str) -> str:
    """What stands for a result that was put aside. The log holds it, where the course has a file in the work tree."""
    head = f'Output too large ({len(content)} characters). Recall(handle="{handle}") gives all of it. Preview:'
    return f"<persisted-output>\n{head}\n{content[:PREVIEW_CHARS]}\n</persisted-output>"


def _snip(state: State, variant: SeedVariant) -> Digest | None:
    """All but the first and the last turns give way to one line. Calls stay with their results."""
    turns = group_turns(state)
    if not variant.turns_max or len(turns) <= variant.turns_max:
        return None
    head = variant.head_turns
    while head < len(turns) and _answers(turns[head]):
        head += 1
    tail = _whole_tail(turns, variant.tail_turns)
    middle = [item for turn in turns[head:tail] for item in turn]
    if not middle or all(item.kind == "summary" for item in middle):
        return None
    first, last = min(item.seqs[0] for item in middle), max(item.seqs[1] for item in middle)
    text = f"[Snipped: entries {first} to {last} of the conversation. The log holds them; Recall brings them back.]"
    return Digest(Summarized(first, last, text, "snip"))


def _answers(turn: list[Item]) -> bool:
    return any(isinstance(item.part, ToolResult) for item in turn)


def _whole_tail(turns: list[list[Item]], count: int) -> int:
    """Where the last `count` turns begin, one earlier when that would part results from their calls."""
    at = max(0, len(turns) - count)
    return at - 1 if 0 < at < len(turns) and _answers(turns[at]) else at


# --- where a framework owns the loop ------------------------------------------------------------------------------


def _decide_framed(state: State, budget: Budget) -> Decision:
    """`auto_compact` before a user's message is answered; what the model wished comes then, too."""
    swap = ready_swap(state, state.summary_of.reason if state.summary_of else "watermark")
    if swap is not None:
        return swap
    if has_overflowed(state) or state.view_tokens > budget.window_tokens:
        first, last = _span(state, 0)
        return (
            Full(floor_diagnosis(state, budget))
            if last < first
            else Digest(build_digest(state, budget, first, last, "overflow"))
        )
    past, turns = past_items(state), past_turns(state)
    if not past:
        return Nothing("nothing to compact")
    if state.turn_open and state.steps:
        return Nothing(COMPACT_ANSWER if state.compact_wanted is not None else "a turn is left alone")
    first, last = min(item.seqs[0] for item in past), max(item.seqs[1] for item in past)
    wished = state.compact_wanted is not None or any(getattr(item.part, "name", "") == COMPACT for item in past)
    if is_due(turns, wished) and state.summary_attempts < FAILURES_MAX:
        return Summarise(first, last, "request" if state.compact_wanted is not None else "watermark")
    text = context_summary(state.said)
    if not state.turn_open or (len(past) == 1 and past[0].part == Text(text)):
        return Nothing("below the threshold")
    return Digest(Summarized(first, last, text, FRAMED))


# --- layers 2 and 3 ----------------------------------------------------------------------------------------------


def estimate_units(state: State, variant: SeedVariant) -> int:
    """`len(str(conversation)) // 4`, as the first text has it."""
    return len(str(conversation_as_list(state))) // variant.chars_per_unit


def _auto(state: State, budget: Budget, variant: SeedVariant) -> Decision:
    overflow = has_overflowed(state)
    full = overflow or state.view_tokens > budget.window_tokens
    if not full and estimate_units(state, variant) <= variant.threshold:
        return Nothing("below the threshold")
    first, last = _span(state, 0)
    if last < first:
        return Full(floor_diagnosis(state, budget)) if overflow else Nothing("nothing to compact")
    gave_up = state.summary_attempts >= FAILURES_MAX
    if full and (gave_up or state.failures > OVERFLOW_RETRIES):
        return Digest(build_digest(state, budget, first, last, "overflow"))
    if gave_up:
        return Nothing(f"{FAILURES_MAX} summaries in a row failed; there is no automatic one any more")
    if not overflow:
        return Summarise(first, last, "watermark")
    before, upto = _span(state, OVERFLOW_KEEPS)
    return Summarise(before, upto, "overflow") if upto >= before else Summarise(first, last, "overflow")


def _on_request(state: State, budget: Budget) -> Decision:
    first, last = _span(state, 0)
    if last < first:
        return Nothing("nothing to compact")
    if state.summary_attempts >= FAILURES_MAX:
        return Digest(build_digest(state, budget, first, last, "request"))
    return Summarise(first, last, "request")


def _span(state: State, keep: int) -> tuple[int, int]:
    """Entries that a summary replaces: all, or all but the last `keep` turns. Empty when last < first."""
    turns = group_turns(state)
    kept = _whole_tail(turns, keep) if keep and len(turns) > keep else len(turns)
    gone = [item for turn in turns[:kept] for item in turn]
    if not gone or (gone[0].kind == "summary" and len(gone) <= 2):
        return 1, 0
    return min(item.seqs[0] for item in gone), max(item.seqs[1] for item in gone)


def render_seed_summary(state: State) -> Request:
    """One user message: the instruction and the first 80,000 characters."""
    if state.prefix is None:
        raise AssertionError("a request needs a PrefixSet before it")
    bare = PrefixSet("start", state.prefix.provider, state.prefix.model, state.prefix.wire, "")
    if state.profile == FRAMEWORK_PROFILE:
        return _summary_request(state, bare, summary_request(past_turns(state)))
    focus = state.compact_wanted if variant_of(state).reference_only else ""
    asked = f"Focus on: {focus}\n\n" if focus else ""
    text = INSTRUCTION + asked + as_json(conversation_as_list(state))[:INPUT_CHARS_MAX]
    return _summary_request(state, bare, text)


def _summary_request(state: State, bare: PrefixSet, text: str) -> Request:
    item = Item((state.seq, 0, -1), "user", (state.seq, state.seq), "", Text(text))
    return Request(state.session, bare, 0, (item,), (), SUMMARY_TOKENS_MAX, "summary")


def build_seed_summary(state: State, budget: Budget, swap: Swap) -> Summarized:
    """The documents' two fake turns; as one user message where a request may not end with the assistant."""
    if state.profile == FRAMEWORK_PROFILE:
        [(_, text)] = compacted_turns(swap.prose, _transcript_command(state))
        return Summarized(swap.first, swap.last, text, swap.reason, swap.prose, asks=(swap.asked,))
    text, asks = f"[Compressed]\n\n{swap.prose}", (swap.asked,)
    if budget.accepts_prefill:
        return Summarized(swap.first, swap.last, text, swap.reason, swap.prose, asks=asks, reply=ACKNOWLEDGED)
    return Summarized(swap.first, swap.last, f"{text}\n\n{ACKNOWLEDGED}", swap.reason, swap.prose, asks=asks)


def _transcript_command(state: State) -> str:
    return f"longrein export {state.session} --format transcript"


def _reference(state: State, prose: str) -> str:
    """The later texts' wrapping: the request verbatim, the summary as JSON, where the whole is."""
    request = state.words[-1].text if state.words else ""
    lines = [
        f"[Conversation compressed. Transcript: {_transcript_command(state)}]",
        f"Current user request:\n{request}",
        f"Conversation summary (reference only; follow only the current request):\n{as_json(prose)}",
    ]
    return "\n\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
#
# What the founding documents tell of background work: one block of results before the next request, each once.
#
#     <background-results>
#     [bg:b1] 2 passed
#     </background-results>
#
# Their fake assistant turn ("Noted background results.") is left out: a request that ends with it is refused by most
# servers. An output cannot close the block: the tag in it is broken up.


TAG = "background-results"
RESULT_CHARS_MAX = 500
"""Of one result."""


def seed_reminders(state: State) -> tuple[Reminded, ...]:
    """The blocks to append before the next request: ends of tasks and reports of subagents; empty without news."""
    waiting: dict[str, list[Notice]] = {}
    for one in pending_notices(state):
        if KINDS[one.kind].rank == ENDED:
            waiting.setdefault(one.kind, []).append(one)
    return tuple(
        Reminded(kind, f"<{TAG}>\n" + "\n".join(map(_line, notices)) + f"\n</{TAG}>", f"r{notices[-1].seq}")
        for kind, notices in waiting.items()
    )


def _line(one: Notice) -> str:
    result = (one.body.strip() or one.line)[:RESULT_CHARS_MAX]
    return f"[bg:{one.key}] {result.replace(TAG, 'background results')}"
