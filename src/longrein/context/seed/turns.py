"""The founding documents' compaction where a framework owns the tool loop: at the borders of user messages, on text.

The framework calls tools inside one request of its own, so only what the user and the model said is recorded and only
between user messages can anything be made smaller. These functions are that text literally, for a foreign loop and as
a baseline; `longrein.context.Engine` is what to use instead.

    if is_due(turns): turns = compacted(ask("", summary_request(turns)), path)
    turns.append(("user", words))
    turns.append(("assistant", ask(system_with(system, turns), words)))
"""

from collections.abc import Sequence

from longrein.context.state import State
from longrein.events import Text

TextTurn = tuple[str, str]
"""(role, content); the role is `user`, `assistant` or `system`."""

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


def is_due(turns: Sequence[TextTurn], wanted: bool = False) -> bool:
    """Whether to compact now. `wanted`: the model asked for it since the last user message."""
    return wanted or sum(len(content) for _, content in turns) // 4 > THRESHOLD_TOKENS


def context_summary(turns: Sequence[TextTurn]) -> str:
    """The last exchanges, cut, for the end of the system prompt; '' without any."""
    if not turns:
        return ""
    lines = [f"{role}: {content[:TURN_CHARS_MAX]}" for role, content in turns[-2 * KEEP_RECENT :]]
    return "\n".join(["<conversation-context>", *lines, "</conversation-context>"])


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
