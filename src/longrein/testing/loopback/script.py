"""What the provider answers: turns in order, each played once, with faults before or inside them.

A script is one JSON object; every field but `turns` may be left out:

    {
      "turns": [
        {"match": "fix the test",          // stands in what was said since the model's last reply
         "thinking": "I look first.", "text": "I look.",
         "calls": [{"name": "Read", "arguments": {"file_path": "a.py"}}, {"name": "Bash", "raw": "{\\"comm"}],
         "deltas": 3,                      // pieces of the text: how many, or the pieces themselves
         "fault": {"status": 529, "times": 2}},
        {"when": "count the files",        // stands in the first message: a turn of another conversation
         "text": "42", "usage": {"output": 7}, "delay_s": 0.1, "stop": "end"}
      ],
      "summaries": [{"match": "CONTEXT CHECKPOINT", "text": "…"}],   // tried first; need a match; the last one repeats
      "order": "arrival",                  // or "position": turn n answers the request that holds n replies
      "rules": {"accepts_prefill": true},  // see `limits.Rules`
      "limits": {"window_tokens": 8000}    // see `limits.Limits`
    }

The turn played is the first unused one whose `match` and `when` fit, so a later turn may overtake an earlier one that
waits for its words. A turn with a fault comes again, for the first `times` with the fault and then as it should be,
until a request shows that its reply was taken; a turn that has nothing but its fault is used up by it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from longrein.testing.loopback.validation import Limits, Rules

PIECE_CHARS = 24
"""Length of a piece of streamed text, about six tokens."""


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tool call."""

    name: str
    """Tool name."""
    arguments: dict[str, Any] = {}
    """Arguments."""
    raw: str | None = None
    """Text in their place, which may be no JSON."""
    id: str = ""
    """The provider's id; empty: dealt in the wire's own form."""


class Count(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens in place of counted ones; negative: as counted. The kinds do not overlap."""

    input: int = -1
    cache_read: int = -1
    cache_write: int = -1
    output: int = -1
    reasoning: int = -1


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong with a turn, for the first `times` requests that get it."""

    kind: str = ""
    """One of `FAULT_KINDS`; empty with a `status`: that error."""
    status: int = 0
    """HTTP status of an error; the body is the wire's own for it unless `body` is given."""
    headers: dict[str, str] = {}
    """Headers of the answer, such as `retry-after`."""
    body: str | None = None
    """Body of an error, or what a `garbage` line holds."""
    at: int = 0
    """`cut`, `stall`: bytes of the stream that come before. `garbage`, `error`: events that come before."""
    how: str = "reset"
    """`cut`: `reset` (RST), `close` (FIN without the last chunk) or `end` (a proper end of the body)."""
    bytes: int = 1
    """`drip`: bytes in one write."""
    stall_s: float = 0.0
    """`stall`: how long; 0: until the client goes away."""
    ping_s: float = 0.0
    """`stall`: a comment line comes this often; 0: nothing does."""
    name: str = ""
    """`overflow`: whose spelling, a key of `OVERFLOWS`; empty: the wire's own. `error`: an error word of the wire."""
    times: int = 1
    """Requests that suffer; 0: each one."""


FAULT_KINDS = {
    "status": "an HTTP error",
    "cut": "the connection ends in the middle of the stream",
    "stall": "the stream goes silent, the socket stays open",
    "garbage": "a line that is not of the protocol",
    "drip": "the stream comes in small pieces",
    "error": "an error event in the middle of the stream",
    "no_end": "the terminal event is missing",
    "empty": "an answer with neither text nor call",
    "bad_json": "the arguments of the last call are cut",
    "duplicate_ids": "all calls have one id",
    "missing_ids": "no call has an id",
    "overflow": "the context does not fit, in a real provider's words",
}
"""Kind -> what happens."""


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    match: str | Callable[..., bool] = ""
    """Stands in what was said since the last reply, or `(Received) -> bool`."""
    when: str = ""
    """Stands in the first message of the conversation."""
    stop: str = ""
    """`end`, `calls`, `length` or `refusal`; empty: what fits."""
    usage: Count | None = None
    """In place of what is counted."""
    fault: Fault | None = None
    delay_s: float = 0.0
    """Before the first byte of the answer."""
    pace_s: float = 0.0
    """Before each further write."""
    deltas: int | tuple[str, ...] = 0
    """Pieces of the text: how many (0: of `PIECE_CHARS`), or the pieces themselves."""
    repeat: int = 1
    """The text this many times over: for long streams."""
    batch: int = 1
    """Events in one write; 0: all in one."""

    @property
    def bare(self) -> bool:
        """Whether it holds nothing but its fault."""
        return not (self.text or self.thinking or self.calls or self.deltas or self.stop)


class Play(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole script."""

    turns: tuple[Turn, ...] = ()
    summaries: tuple[Turn, ...] = ()
    order: str = "arrival"
    rules: Rules = Rules()
    limits: Limits = Limits()
    note: str = ""
    """For people."""


class _FileTurn(Turn, frozen=True, forbid_unknown_fields=True):
    """A turn in a file: no functions there."""

    match: str = ""


class _FileScript(Play, frozen=True, forbid_unknown_fields=True):
    turns: tuple[_FileTurn, ...] = ()
    summaries: tuple[_FileTurn, ...] = ()


def read_play(data: bytes) -> Play:
    """The script in `data`. Raises `ValueError` that says what is wrong in it."""
    try:
        play = msgspec.json.decode(data, type=_FileScript)
    except msgspec.DecodeError as error:
        raise ValueError(f"this is no script for the loopback provider: {error}") from None
    for turn in (*play.turns, *play.summaries):
        check_turn(turn)
    return play


def check_turn(turn: Turn) -> None:
    """Raises `ValueError` for words that are none of the script's."""
    fault = turn.fault
    if fault is not None and (fault.kind or "status") not in FAULT_KINDS:
        raise ValueError(f"a script's fault is of the unknown kind {fault.kind!r}; kinds are {', '.join(FAULT_KINDS)}")
    if turn.stop not in ("", "end", "calls", "length", "refusal"):
        raise ValueError(f"a script's turn stops with {turn.stop!r}; words are end, calls, length, refusal")


def text_pieces(turn: Turn) -> list[str]:
    """The text as it is streamed."""
    if isinstance(turn.deltas, tuple):
        return [piece for piece in turn.deltas if piece]
    text = turn.text * turn.repeat
    size = PIECE_CHARS if turn.deltas <= 0 else max(1, -(-len(text) // turn.deltas))
    return split_text(text, size)


def split_text(text: str, size: int = PIECE_CHARS) -> list[str]:
    """`text` in pieces of `size` characters."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def stop_of(turn: Turn) -> str:
    """Why it stops."""
    return turn.stop or ("calls" if turn.calls else "end")


def arguments_of(call: Call) -> str:
    """The arguments as the model wrote them."""
    return msgspec.json.encode(call.arguments).decode() if call.raw is None else call.raw
