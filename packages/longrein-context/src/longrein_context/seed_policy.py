"""Profile `seed`: the founding documents' compaction, literally, as the baseline for the default
profile.

Before every request all but the last three results longer than 100 characters become `[Previous:
used X]`. Above 50,000 estimated tokens (characters / 4) the first 80,000 characters of the
conversation are summarised and everything is replaced. This breaks the cache each turn and forgets
what it clears; only the log still has it.

The documents exist in several versions. `seed` is the first; `seed-later` and `seed-new` are later
ones where they differ. `seed-framework` is the version for a framework that owns the tool loop:
between user messages everything is replaced by six cut turns at the end of the system prompt,
within a turn nothing changes. Where the first version would end the program (a failed summary, a
request that does not fit), all profiles do what the newest version does, and as a last resort what
the default profile does.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from longrein_context.decisions import (
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
from longrein_context.events import (
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
    TurnEnded,
    UserSpoke,
    text_of,
)
from longrein_context.reminders import pending_notices
from longrein_context.state.reminder_kinds import ENDED, KINDS, Notice
from longrein_context.state.request_types import Budget, Item, Request
from longrein_context.state.state import FRAMEWORK_PROFILE, State
from longrein_context.state.view import span_of

# --- Compaction where a framework owns the tool loop ----------------------------------------------
#
# The framework calls tools inside one request of its own. So only user messages and answers are
# recorded, and only between user messages can anything be shortened.


TextTurn = tuple[str, str]  # (role, content); the role is `user`, `assistant` or `system`
OPENING = "<conversation-context>"  # First line of the earlier turns in the system prompt
FRAMED = "framework"  # Reason of the `Summarized` that replaces earlier turns by `context_summary`

KEEP_RECENT = 3  # Exchanges shown in the system prompt: twice as many turns
TURN_CHARS_MAX = 500  # Characters shown of each turn, a summary included
# Above this, at four characters each, everything is summarised before the next user message
THRESHOLD_TOKENS = 50_000
COMPACT_ANSWER = "Compression triggered. The conversation will be compacted after this answer."
"""Answer to the model's own request to compact; the focus it gave is ignored."""


def record_text_turn(state: State, event: AnyEvent) -> None:
    """Keep the documents' history in `state.said`: user messages, final answers, the last
    summary.
    """
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
        case TurnEnded() if _wishes(state, _last_message(state)):
            state.compact_wanted = ""
        case _:
            pass


def _wishes(state: State, since: int) -> bool:
    """Return whether the model has called `compact` since an entry."""
    calls = [item.part for item in state.conversation if item.seqs[0] > since]
    return any(isinstance(part, ToolCall) and part.name == COMPACT for part in calls)


def _last_message(state: State) -> int:
    """Return the entry of the user's last message. Steering messages belong to their turn."""
    return next((word.seq for word in reversed(state.words) if word.origin != "steer"), 0)


def past_turns(state: State) -> list[TextTurn]:
    """Return the turns before the user's last message; all turns if no turn is open."""
    present = (
        sum(word.seq >= _last_message(state) for word in state.words) if state.turn_open else 0
    )
    return state.said[: len(state.said) - present]


def context_summary(turns: Sequence[TextTurn]) -> str:
    """Return the last exchanges, cut, for the end of the system prompt; '' without any."""
    if not turns:
        return ""
    lines = [f"[{role}]: {content[:TURN_CHARS_MAX]}" for role, content in turns[-2 * KEEP_RECENT :]]
    return "\n".join([OPENING, *lines, "</conversation-context>"])


def summary_request(turns: Sequence[TextTurn]) -> str:
    """Return the user message that requests a summary: three points, then the start of the
    conversation.
    """
    spelled = "\n".join(f"{role}: {content}" for role, content in turns)
    points = "1) what was accomplished, 2) the current state, 3) key decisions"
    return (
        "Summarize this conversation for continuity. Include: "
        f"{points}.\n\n{spelled[:INPUT_CHARS_MAX]}"
    )


# --- The documents' message list ------------------------------------------------------------------
#
# The profile `seed` counts and serialises this list, not the view, so that its numbers are those of
# the documents.


JsonTurn = dict[str, Any]  # `role` is `user` or `assistant`; `content` a text, or a list of blocks


def group_turns(state: State) -> list[list[Item]]:
    """Group the view after its static context into turns of one side; a summary is a turn of its
    own.
    """
    found: list[list[Item]] = []
    for item in state.conversation:
        if (
            not found
            or found[-1][-1].mine != item.mine
            or "summary" in (item.kind, found[-1][-1].kind)
        ):
            found.append([item])
        else:
            found[-1].append(item)
    return found


def conversation_as_list(state: State) -> list[JsonTurn]:
    """Return the documents' message list, without system text and static context."""
    found: list[JsonTurn] = []
    for items in group_turns(state):
        blocks = [_block(item) for item in items]
        content = blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks
        found.append({"role": "assistant" if items[0].mine else "user", "content": content})
    return found


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
    """Encode `value` like the documents' `json.dumps`: blanks after `,` and `:`, only ASCII."""
    spelled: str = msgspec.json.format(msgspec.json.encode(value).decode(), indent=0)
    return re.sub("[^ -~]", _escaped, spelled)


def _escaped(found: "re.Match[str]") -> str:
    digits = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))


# --- Policy ---------------------------------------------------------------------------------------

INPUT_CHARS_MAX = 80_000  # Characters of the conversation given to the summariser
SUMMARY_TOKENS_MAX = 2_000  # Output limit of the summariser
INSTRUCTION = (
    "Summarize this conversation for continuity. Include: "
    "1) what was accomplished, 2) current state, 3) key decisions.\n\n"
)
ACKNOWLEDGED = "Understood. Continuing."
COMPACT = "compact"  # Tool by which the model requests a compaction
MICRO = (
    "micro_compact"  # Reason of the clearing before each request, which is not shown to the user
)
FAILURES_MAX = 3  # Consecutive failed summaries after which there is no automatic one any more
OVERFLOW_RETRIES = (
    1  # Requests retried after a summary because one did not fit; then a digest is made
)
OVERFLOW_KEEPS = 5  # Turns that such a summary leaves verbatim
PREVIEW_CHARS = 2_000  # Characters shown of a trimmed result


class SeedVariant(msgspec.Struct, frozen=True):
    """Limits of one version of the documents. 0: the version has no such limit."""

    keep_recent: int = 3  # Results left alone
    clear_chars_min: int = 100  # Longer contents are cleared
    preserved: tuple[
        str, ...
    ] = ()  # Tools whose results are never cleared and do not count as recent
    threshold: int = 50_000  # Estimate above which everything is summarised
    chars_per_unit: int = 4  # Characters per unit of the estimate
    result_chars_max: int = 0  # A longer result is trimmed before it is first sent
    results_chars_max: int = (
        0  # Results of one step that are longer together are trimmed, largest first
    )
    turns_max: int = 0  # Number of turns above which the middle is removed
    head_turns: int = 3  # Turns kept before the middle
    tail_turns: int = 47  # Turns kept after it
    reference_only: bool = False
    """True if a summary is marked as data, follows the user's request verbatim, and has a focus."""


SEED_VARIANTS = {
    "seed": SeedVariant(),
    "seed-later": SeedVariant(preserved=("read_file",), reference_only=True),
    "seed-new": SeedVariant(
        clear_chars_min=120,
        chars_per_unit=1,
        result_chars_max=30_000,
        results_chars_max=200_000,
        turns_max=50,
        reference_only=True,
    ),
}
"""Profile -> its version of the documents."""


def variant_of(state: State) -> SeedVariant:
    """Return the variant of the session's profile; the first one for any other profile."""
    return SEED_VARIANTS.get(state.profile, SEED_VARIANTS["seed"])


def decide_seed(state: State, budget: Budget) -> Decision:
    """Decide like the documents: trim results, remove the middle, `micro_compact`, `auto_compact`.

    A request of the model or the user comes first.
    """
    if state.profile == FRAMEWORK_PROFILE:
        return _decide_framed(state, budget)
    variant = variant_of(state)
    swap = ready_swap(state, state.summary_of.reason if state.summary_of else "watermark")
    if swap is not None:
        return swap
    if state.compact_wanted is not None:
        return _on_request(state, budget)
    forms = _trim_large_results(state, variant)
    if forms:
        return Clear(Cleared(forms, "tool_result_budget"))
    return _snip(state, variant) or _micro(state, variant) or _auto(state, budget, variant)


# --- Layer 1: clear, trim, snip -------------------------------------------------------------------


def _micro(state: State, variant: SeedVariant) -> Clear | None:
    results = [item for item in state.items if isinstance(item.part, ToolResult)]
    counted = [item for item in results if _name(item) not in variant.preserved]
    forms = tuple(
        Form(item.handle, "placeholder", f"[Previous: used {_name(item)}]")
        for item in counted[: -variant.keep_recent]
        if item.form != "placeholder" and len(_content(item)) > variant.clear_chars_min
    )
    return Clear(Cleared(forms, MICRO)) if forms else None


DOCUMENT_NAMES = {
    "Bash": "bash",
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "Compact": "compact",
}
"""Tool -> its name in the documents, which have no others."""


def shown_call(state: State, call: ToolCall) -> ToolCall:
    """Return a call under the name that its tool is offered by: in these profiles that of the
    documents.
    """
    name = DOCUMENT_NAMES.get(call.name) if state.profile.startswith("seed") else None
    return msgspec.structs.replace(call, name=name) if name else call


def _name(item: Item) -> str:
    return item.part.name if isinstance(item.part, ToolResult) else ""


def _content(item: Item) -> str:
    """Return the text of a result; '' for one with other blocks, such as an image, which is
    never changed.
    """
    parts = item.part.parts if isinstance(item.part, ToolResult) else ()
    return text_of(parts) if all(isinstance(part, Text | Document) for part in parts) else ""


def _trim_large_results(state: State, variant: SeedVariant) -> tuple[Form, ...]:
    """Return the forms of new results that are too large, alone or together."""
    if not variant.result_chars_max:
        return ()
    new = [
        item
        for item in state.items
        if isinstance(item.part, ToolResult) and item.seqs[0] > state.sent_reach
    ]
    whole = sorted(
        (item for item in new if item.form == "full"), key=lambda item: -len(_content(item))
    )
    left, forms = sum(len(_content(item)) for item in new), []
    for item in whole:
        content = _content(item)
        surplus = left > variant.results_chars_max and len(content) > PREVIEW_CHARS
        if surplus or len(content) > variant.result_chars_max:
            text = _preview(item.handle, content)
            left += len(text) - len(content)
            forms.append(Form(item.handle, "trimmed", text))
    return tuple(forms)


def _preview(handle: str, content: str) -> str:
    """Return the text of a trimmed result. The log holds it; the documents use a file in the
    work tree.
    """
    head = (
        f'Output too large ({len(content)} characters). Recall(handle="{handle}") gives all of '
        "it. Preview:"
    )
    return f"<persisted-output>\n{head}\n{content[:PREVIEW_CHARS]}\n</persisted-output>"


def _snip(state: State, variant: SeedVariant) -> Digest | None:
    """Replace all but the first and the last turns by one line. Calls stay with their results."""
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
    text = (
        f"[Snipped: entries {first} to {last} of the conversation. The log holds them; Recall "
        "brings them back.]"
    )
    return Digest(Summarized(first, last, text, "snip"))


def _answers(turn: list[Item]) -> bool:
    return any(isinstance(item.part, ToolResult) for item in turn)


def _whole_tail(turns: list[list[Item]], count: int) -> int:
    """Return where the last `count` turns begin, one earlier if that would part results from
    their calls.
    """
    at = max(0, len(turns) - count)
    return at - 1 if 0 < at < len(turns) and _answers(turns[at]) else at


# --- Profile seed-framework -----------------------------------------------------------------------


def _decide_framed(state: State, budget: Budget) -> Decision:
    """Run `auto_compact` before a user message is answered, also for requests of the model."""
    swap = ready_swap(state, state.summary_of.reason if state.summary_of else "watermark")
    if swap is not None:
        return swap
    if has_overflowed(state) or state.view_tokens > budget.window_tokens:
        first, last = _span(state, 0)
        if last < first:
            return Full(floor_diagnosis(state, budget))
        return _digest(state, budget, first, last, "overflow")
    begin, turns = _last_message(state), past_turns(state)
    items = [item for item in state.conversation if item.seqs[0]]
    past = [item for item in items if item.seqs[0] < begin or not state.turn_open]
    if not past:
        return Nothing("nothing to compact")
    if state.turn_open and state.steps:
        return Nothing(
            COMPACT_ANSWER if state.compact_wanted is not None else "a turn is left alone"
        )
    first, last = min(item.seqs[0] for item in past), max(item.seqs[1] for item in past)
    wished = state.compact_wanted is not None or any(
        getattr(item.part, "name", "") == COMPACT for item in past
    )
    large = sum(len(content) for _, content in turns) // 4 > THRESHOLD_TOKENS
    if (wished or large) and state.summary_attempts < FAILURES_MAX:
        return Summarise(
            first, last, "request" if state.compact_wanted is not None else "watermark"
        )
    text = context_summary(state.said)
    if not state.turn_open or (len(past) == 1 and past[0].part == Text(text)):
        return Nothing("below the threshold")
    return Digest(Summarized(first, last, text, FRAMED))


# --- Layers 2 and 3: summaries --------------------------------------------------------------------


def estimate_units(state: State, variant: SeedVariant) -> int:
    """Estimate like the first version: `len(str(conversation)) // 4`."""
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
        return _digest(state, budget, first, last, "overflow")
    if gave_up:
        return Nothing(
            f"{FAILURES_MAX} summaries in a row failed; there is no automatic one any more"
        )
    if not overflow:
        return Summarise(first, last, "watermark")
    before, upto = _span(state, OVERFLOW_KEEPS)
    return (
        Summarise(before, upto, "overflow")
        if upto >= before
        else Summarise(first, last, "overflow")
    )


def _on_request(state: State, budget: Budget) -> Decision:
    first, last = _span(state, 0)
    if last < first:
        return Nothing("nothing to compact")
    if state.summary_attempts >= FAILURES_MAX:
        return _digest(state, budget, first, last, "request")
    return Summarise(first, last, "request")


def _digest(state: State, budget: Budget, first: int, last: int, reason: str) -> Digest:
    from longrein_context.summary.summary_text import build_digest

    return Digest(build_digest(state, budget, first, last, reason))


def _span(state: State, keep: int) -> tuple[int, int]:
    """Return the entries that a summary replaces: all, or all but the last `keep` turns. Empty
    if last < first.
    """
    turns = group_turns(state)
    kept = _whole_tail(turns, keep) if keep and len(turns) > keep else len(turns)
    gone = [item for turn in turns[:kept] for item in turn]
    return span_of(gone)


def render_seed_summary(state: State) -> Request:
    """Render the summary request: one user message with the instruction and the first 80,000
    characters.
    """
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


def transcript_lines(state: State) -> str:
    """Return the documents' transcript: the message list before a compaction, a line of JSON for
    each message.
    """
    turns = conversation_as_list(state)
    if state.profile == FRAMEWORK_PROFILE:
        turns = [{"role": role, "content": content} for role, content in past_turns(state)]
    return "".join(f"{as_json(turn)}\n" for turn in turns)


def build_seed_summary(
    state: State, budget: Budget, swap: Swap, transcript: str = ""
) -> Summarized:
    """Return the documents' two fake turns; one user message if a request may not end with the
    assistant. `transcript`: path of the written transcript; '' if there is none.
    """
    where = transcript or f"longrein export {state.session} --format transcript"
    line = f"[Conversation compressed. Transcript: {where}]"
    if variant_of(state).reference_only:
        swap = msgspec.structs.replace(swap, prose=_reference(state, line, swap.prose))
    if state.profile == FRAMEWORK_PROFILE:
        text = f"{line}\n\n{swap.prose}"
        return Summarized(swap.first, swap.last, text, swap.reason, swap.prose, asks=(swap.asked,))
    text, asks = f"[Compressed]\n\n{swap.prose}", (swap.asked,)
    if budget.accepts_prefill:
        return Summarized(
            swap.first, swap.last, text, swap.reason, swap.prose, asks=asks, reply=ACKNOWLEDGED
        )
    return Summarized(
        swap.first, swap.last, f"{text}\n\n{ACKNOWLEDGED}", swap.reason, swap.prose, asks=asks
    )


def _reference(state: State, line: str, prose: str) -> str:
    """Wrap a summary like the later versions: request verbatim, summary as JSON, where the whole
    is stored.
    """
    request = state.words[-1].text if state.words else ""
    lines = [
        line,
        f"Current user request:\n{request}",
        (
            "Conversation summary (reference only; follow only the current "
            f"request):\n{as_json(prose)}"
        ),
    ]
    return "\n\n".join(lines)


# --- Results of background work -------------------------------------------------------------------
#
# Before the next request the documents append one block of results, each result once:
#
# <background-results>
# [bg:b1] 2 passed
# </background-results>
#
# Their fake assistant turn ("Noted background results.") is left out, because most servers refuse a
# request that ends with it. The tag is removed from outputs, so that none can close the block.

TAG = "background-results"
RESULT_CHARS_MAX = 500  # Characters of one result


def seed_reminders(state: State) -> tuple[Reminded, ...]:
    """Return the reminders before the next request: ends of tasks and subagents; () without
    news.
    """
    waiting: dict[str, list[Notice]] = {}
    for one in pending_notices(state):
        if KINDS[one.kind].rank == ENDED:
            waiting.setdefault(one.kind, []).append(one)
    return tuple(
        Reminded(
            kind,
            f"<{TAG}>\n" + "\n".join(map(_line, notices)) + f"\n</{TAG}>",
            f"r{notices[-1].seq}",
        )
        for kind, notices in waiting.items()
    )


def _line(one: Notice) -> str:
    result = (one.body.strip() or one.line)[:RESULT_CHARS_MAX]
    return f"[bg:{one.key}] {result.replace(TAG, 'background results')}"
