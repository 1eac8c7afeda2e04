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
    overflowed,
    ready,
)
from longrein.context.request import Budget, Item, Request
from longrein.context.seed.talk import as_json, runs, talk
from longrein.context.seed.turns import (
    FRAMED,
    TOLD,
    compacted,
    context_summary,
    is_due,
    past_items,
    past_turns,
    summary_request,
)
from longrein.context.state import FRAMEWORK, State
from longrein.context.summary.digest import digest
from longrein.events import Cleared, Document, Form, PrefixSet, Summarized, Text, ToolResult, text_of

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


class Course(msgspec.Struct, frozen=True):
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


COURSES = {
    "seed": Course(),
    "seed-later": Course(preserved=("Read",), reference_only=True),
    "seed-new": Course(
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


def course_of(state: State) -> Course:
    """The text that the session's profile names; the first one for any other."""
    return COURSES.get(state.profile, COURSES["seed"])


def decide_seed(state: State, budget: Budget) -> Decision:
    """Large results aside, the middle out, `micro_compact`, then `auto_compact`; a wish of the model or user first."""
    if state.profile == FRAMEWORK:
        return _decide_framed(state, budget)
    course = course_of(state)
    swap = ready(state, state.summary_of.reason if state.summary_of else "watermark")
    if swap is not None:
        return msgspec.structs.replace(swap, prose=_reference(state, swap.prose)) if course.reference_only else swap
    if state.compact_wanted is not None:
        return _on_request(state, budget)
    forms = _put_aside(state, course)
    if forms:
        return Clear(Cleared(forms, "tool_result_budget"))
    return _snip(state, course) or _micro(state, course) or _auto(state, budget, course)


# --- layer 1 -----------------------------------------------------------------------------------------------------


def _micro(state: State, course: Course) -> Clear | None:
    results = [item for item in state.items if isinstance(item.part, ToolResult)]
    counted = [item for item in results if _name(item) not in course.preserved]
    forms = tuple(
        Form(item.handle, "placeholder", f"[Previous: used {_name(item)}]")
        for item in counted[: -course.keep_recent]
        if item.form != "placeholder" and len(_content(item)) > course.clear_chars_min
    )
    return Clear(Cleared(forms, MICRO)) if forms else None


def _name(item: Item) -> str:
    return item.part.name if isinstance(item.part, ToolResult) else ""


def _content(item: Item) -> str:
    """The content that the course looks at: a text. A list of blocks, as with an image, is never touched."""
    parts = item.part.parts if isinstance(item.part, ToolResult) else ()
    return text_of(parts) if all(isinstance(part, Text | Document) for part in parts) else ""


def _put_aside(state: State, course: Course) -> tuple[Form, ...]:
    """New results that are too large, alone or together."""
    if not course.result_chars_max:
        return ()
    new = [item for item in state.items if isinstance(item.part, ToolResult) and item.seqs[0] > state.sent_reach]
    whole = sorted((item for item in new if item.form == "full"), key=lambda item: -len(_content(item)))
    left, forms = sum(len(_content(item)) for item in new), []
    for item in whole:
        content = _content(item)
        if len(content) > course.result_chars_max or (left > course.results_chars_max and len(content) > PREVIEW_CHARS):
            text = _preview(item.handle, content)
            left += len(text) - len(content)
            forms.append(Form(item.handle, "trimmed", text))
    return tuple(forms)


def _preview(handle: str, content: str) -> str:
    """What stands for a result that was put aside. The log holds it, where the course has a file in the work tree."""
    head = f'Output too large ({len(content)} characters). Recall(handle="{handle}") gives all of it. Preview:'
    return f"<persisted-output>\n{head}\n{content[:PREVIEW_CHARS]}\n</persisted-output>"


def _snip(state: State, course: Course) -> Digest | None:
    """All but the first and the last turns give way to one line. Calls stay with their results."""
    turns = runs(state)
    if not course.turns_max or len(turns) <= course.turns_max:
        return None
    head = course.head_turns
    while head < len(turns) and _answers(turns[head]):
        head += 1
    tail = _whole_tail(turns, course.tail_turns)
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
    swap = ready(state, state.summary_of.reason if state.summary_of else "watermark")
    if swap is not None:
        return swap
    if overflowed(state) or state.view_tokens > budget.window_tokens:
        first, last = _span(state, 0)
        return (
            Full(floor_diagnosis(state, budget))
            if last < first
            else Digest(digest(state, budget, first, last, "overflow"))
        )
    past, turns = past_items(state), past_turns(state)
    if not past:
        return Nothing("nothing to compact")
    if state.turn_open and state.steps:
        return Nothing(TOLD if state.compact_wanted is not None else "a turn is left alone")
    first, last = min(item.seqs[0] for item in past), max(item.seqs[1] for item in past)
    wished = state.compact_wanted is not None or any(getattr(item.part, "name", "") == COMPACT for item in past)
    if is_due(turns, wished) and state.summary_attempts < FAILURES_MAX:
        return Summarise(first, last, "request" if state.compact_wanted is not None else "watermark")
    text = context_summary(state.said)
    if not state.turn_open or (len(past) == 1 and past[0].part == Text(text)):
        return Nothing("below the threshold")
    return Digest(Summarized(first, last, text, FRAMED))


# --- layers 2 and 3 ----------------------------------------------------------------------------------------------


def estimate(state: State, course: Course) -> int:
    """`len(str(conversation)) // 4`, as the first text has it."""
    return len(str(talk(state))) // course.chars_per_unit


def _auto(state: State, budget: Budget, course: Course) -> Decision:
    overflow = overflowed(state)
    full = overflow or state.view_tokens > budget.window_tokens
    if not full and estimate(state, course) <= course.threshold:
        return Nothing("below the threshold")
    first, last = _span(state, 0)
    if last < first:
        return Full(floor_diagnosis(state, budget)) if overflow else Nothing("nothing to compact")
    gave_up = state.summary_attempts >= FAILURES_MAX
    if full and (gave_up or state.failures > OVERFLOW_RETRIES):
        return Digest(digest(state, budget, first, last, "overflow"))
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
        return Digest(digest(state, budget, first, last, "request"))
    return Summarise(first, last, "request")


def _span(state: State, keep: int) -> tuple[int, int]:
    """Entries that a summary replaces: all, or all but the last `keep` turns. Empty when last < first."""
    turns = runs(state)
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
    if state.profile == FRAMEWORK:
        return _summary_request(state, bare, summary_request(past_turns(state)))
    focus = state.compact_wanted if course_of(state).reference_only else ""
    asked = f"Focus on: {focus}\n\n" if focus else ""
    text = INSTRUCTION + asked + as_json(talk(state))[:INPUT_CHARS_MAX]
    return _summary_request(state, bare, text)


def _summary_request(state: State, bare: PrefixSet, text: str) -> Request:
    item = Item((state.seq, 0, -1), "user", (state.seq, state.seq), "", Text(text))
    return Request(state.session, bare, 0, (item,), (), SUMMARY_TOKENS_MAX, "summary")


def seed_summarized(state: State, budget: Budget, swap: Swap) -> Summarized:
    """The documents' two fake turns; as one user message where a request may not end with the assistant."""
    if state.profile == FRAMEWORK:
        [(_, text)] = compacted(swap.prose, _transcript(state))
        return Summarized(swap.first, swap.last, text, swap.reason, swap.prose, asks=(swap.asked,))
    text, asks = f"[Compressed]\n\n{swap.prose}", (swap.asked,)
    if budget.accepts_prefill:
        return Summarized(swap.first, swap.last, text, swap.reason, swap.prose, asks=asks, reply=ACKNOWLEDGED)
    return Summarized(swap.first, swap.last, f"{text}\n\n{ACKNOWLEDGED}", swap.reason, swap.prose, asks=asks)


def _transcript(state: State) -> str:
    return f"longrein export {state.session} --format transcript"


def _reference(state: State, prose: str) -> str:
    """The later texts' wrapping: the request verbatim, the summary as JSON, where the whole is."""
    request = state.words[-1].text if state.words else ""
    lines = [
        f"[Conversation compressed. Transcript: {_transcript(state)}]",
        f"Current user request:\n{request}",
        f"Conversation summary (reference only; follow only the current request):\n{as_json(prose)}",
    ]
    return "\n\n".join(lines)
