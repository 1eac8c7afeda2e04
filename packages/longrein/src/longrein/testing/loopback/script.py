"""Scripts of the loopback provider: turns that are played once each, with faults before or inside
them.

A script is one JSON object; every field but `turns` may be left out:

    {
      "turns": [
        {
          "match": "fix the test",
          "thinking": "I look first.",
          "text": "I look.",
          "calls": [
            {"name": "Read", "arguments": {"file_path": "a.py"}},
            {"name": "Bash", "raw": "{\\"comm"}
          ],
          "deltas": 3,
          "fault": {"status": 529, "times": 2}
        },
        {
          "when": "count the files",
          "text": "42",
          "usage": {"output": 7},
          "delay_s": 0.1,
          "stop": "end"
        }
      ],
      "summaries": [{"match": "CONTEXT CHECKPOINT", "text": "…"}],
      "order": "arrival",
      "rules": {"accepts_prefill": true},
      "limits": {"window_tokens": 8000}
    }

`match` is in the text since the model's last reply, `when` in the first message, for another
conversation. `deltas` are the pieces of the text or their number. Summaries are tried first, need a
match, and the last one repeats. With the order `position`, turn n answers the request that holds n
replies. The other fields are those of `Rules` and `Limits`.

The first unused turn whose `match` and `when` fit is played, so a later turn may overtake an
earlier one that waits for its text. A turn with a fault is repeated, `times` times with the fault
and then without, until a request shows that its reply was accepted. A turn that has only a fault is
used up by it.
"""

from collections.abc import Callable

import msgspec

from longrein.models.scripted import PIECE_CHARS, ScriptedCall, ScriptedReply, split_text


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules in which real servers differ. `lenient` switches all validation off, for benchmarks."""

    lenient: bool = False
    """Accept every request that can be parsed, of any size."""
    accepts_prefill: bool = False
    """True if a request may end with the assistant's side."""
    alternation: bool = True
    """Anthropic and Gemini: refuse two messages of one role in a row."""
    user_first: bool = True
    """True if the first message after the system's must be the user's."""
    short_ids: bool = False
    """Chat: call ids must be nine letters and digits, as Mistral demands."""
    counts_output: bool = False
    """True if the output limit counts against the window, as with older models and most local
    servers.
    """
    keys: tuple[str, ...] = ()
    """Accepted keys; () accepts every request."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the model. A token is 4 bytes of the request's blocks."""

    window_tokens: int = 200_000
    """Context window in tokens."""
    output_tokens_max: int = 0
    """Largest output limit a request may ask for; 0: any."""
    request_bytes_max: int = 32_000_000
    """Largest body in bytes."""
    cache_min_tokens: int = 1_024
    """Shortest prefix that is cached."""
    cache_ttl_s: float = 300.0
    """Lifetime of a cached prefix after its last use, in seconds; a block marked `1h` lives an
    hour.
    """
    depth_max: int = 100
    """Deepest nesting of JSON."""


class Call(ScriptedCall, frozen=True, forbid_unknown_fields=True):
    """A tool call."""

    id: str = ""
    """Id of the provider; empty: made in the form of the wire."""


class Count(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token counts that replace counted ones; negative: as counted. The kinds do not overlap."""

    input: int = -1
    cache_read: int = -1
    cache_write: int = -1
    output: int = -1
    reasoning: int = -1


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault of a turn, for the first `times` requests that get the turn."""

    kind: str = ""
    """Fault kind, a key of `FAULT_KINDS`; empty: an error with `status`."""
    status: int = 0
    """HTTP status of an error; without `body` the wire makes the body."""
    headers: dict[str, str] = {}
    """Headers of the answer, such as `retry-after`."""
    body: str | None = None
    """Body of an error, or text of a `garbage` line."""
    at: int = 0
    """`cut`, `stall`: bytes of the stream before the fault. `garbage`, `error`: events before
    the fault.
    """
    how: str = "reset"
    """`cut`: `reset` (RST), `close` (FIN without the last chunk) or `end` (a proper end of the
    body).
    """
    bytes: int = 1
    """`drip`: bytes in one write."""
    stall_s: float = 0.0
    """`stall`: duration; 0: until the client disconnects."""
    ping_s: float = 0.0
    """`stall`: interval of comment lines; 0: no comments."""
    name: str = ""
    """`overflow`: key of `OVERFLOWS`; empty: the wire's own. `error`: error type of the wire."""
    times: int = 1
    """Number of requests with the fault; 0: all."""


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
"""Fault kind -> description."""


class Turn(ScriptedReply, frozen=True, forbid_unknown_fields=True):
    """An answer."""

    calls: tuple[Call, ...] = ()
    match: str | Callable[..., bool] = ""
    """Text that the messages since the last reply must contain, or `(Received) -> bool`."""
    when: str = ""
    """Text that the first message of the conversation must contain."""
    searches: tuple[str, ...] = ()
    """Queries that the provider searches the web for before the text, if the request offers its
    search.
    """
    usage: Count | None = None
    """Token counts that replace counted ones."""
    fault: Fault | None = None
    deltas: int | tuple[str, ...] = 0
    """Number of pieces of the text (0: pieces of `PIECE_CHARS`), or the pieces themselves."""
    repeat: int = 1
    """Repetitions of the text, for long streams."""
    batch: int = 1
    """Events in one write; 0: all in one."""

    @property
    def bare(self) -> bool:
        """True if the turn holds only a fault."""
        return not (self.text or self.thinking or self.calls or self.deltas or self.stop)


class Play(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole script."""

    turns: tuple[Turn, ...] = ()
    summaries: tuple[Turn, ...] = ()
    order: str = "arrival"
    rules: Rules = Rules()
    limits: Limits = Limits()
    note: str = ""
    """Remark for readers of the file."""


class _FileTurn(Turn, frozen=True, forbid_unknown_fields=True):
    """A turn in a file, where `match` is always text."""

    match: str = ""


class _FileScript(Play, frozen=True, forbid_unknown_fields=True):
    turns: tuple[_FileTurn, ...] = ()
    summaries: tuple[_FileTurn, ...] = ()


def read_play(data: bytes) -> Play:
    """Parse the script in `data`. Raises `ValueError` that names the mistake."""
    try:
        play = msgspec.json.decode(data, type=_FileScript)
    except msgspec.DecodeError as error:
        raise ValueError(f"this is no script for the loopback provider: {error}") from None
    for turn in (*play.turns, *play.summaries):
        check_turn(turn)
    return play


def check_turn(turn: Turn) -> None:
    """Raise `ValueError` for an unknown fault kind or stop reason."""
    fault = turn.fault
    if fault is not None and (fault.kind or "status") not in FAULT_KINDS:
        raise ValueError(
            f"a script's fault is of the unknown kind {fault.kind!r}; kinds are "
            f"{', '.join(FAULT_KINDS)}"
        )
    if turn.stop not in ("", "end", "calls", "length", "refusal"):
        raise ValueError(
            f"a script's turn stops with {turn.stop!r}; words are end, calls, length, refusal"
        )


def text_pieces(turn: Turn) -> list[str]:
    """Return the streamed pieces of the text."""
    if isinstance(turn.deltas, tuple):
        return [piece for piece in turn.deltas if piece]
    text = turn.text * turn.repeat
    size = PIECE_CHARS if turn.deltas <= 0 else max(1, -(-len(text) // turn.deltas))
    return split_text(text, size)


def stop_of(turn: Turn) -> str:
    """Return the stop reason."""
    return turn.stop or ("calls" if turn.calls else "end")
