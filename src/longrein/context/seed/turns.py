"""The founding documents' compaction where a framework owns the tool loop: at the borders of user messages, on text.

The framework calls tools inside one request of its own, so only what the user and the model said is recorded and only
between user messages can anything be made smaller. These functions are that text literally, for a foreign loop and for
the profile `seed-framework`; `longrein.context.Engine` is what to use instead.

    if is_due(turns): turns = compacted(ask("", summary_request(turns)), path)
    turns.append(("user", words))
    turns.append(("assistant", ask(system_with(system, turns), words)))
"""

from collections.abc import Sequence

from longrein.context.request import Item
from longrein.context.state import State
from longrein.events import AnyEvent, Replied, Summarized, Text, ToolCall, UserSpoke, text_of

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
INPUT_CHARS_MAX = 80_000
"""Characters that the summariser gets."""
TOLD = "Compression triggered. The conversation will be compacted after this answer."
"""What the model's own wish to compact answers; the focus it gave goes nowhere."""


def text_turns(state: State) -> list[TextTurn]:
    """What the framework's user would have recorded of a session: words, neither calls nor results."""
    turns: list[TextTurn] = []
    for item in state.items[state.context_items :]:
        if isinstance(item.part, Text) and item.kind in ("user", "text", "summary", "ack"):
            turns.append(("assistant" if item.mine else "user", item.part.text))
    return turns


def record(state: State, event: AnyEvent) -> None:
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
    return f"Summarize this conversation for continuity. Include: {points}.\n\n{spelled[:INPUT_CHARS_MAX]}"


def compacted(summary: str, transcript: str) -> list[TextTurn]:
    """What the history becomes. `transcript`: where the whole was written before."""
    return [("system", f"[Conversation compressed. Transcript: {transcript}]\n\n{summary}")]
