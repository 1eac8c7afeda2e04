"""Build a log from the transcript of another agent: messages, replies, results and summaries, in
order.

The transcript names calls in its own way; here each call gets the id that longrein would have given
it. Each call gets exactly one result, because providers refuse a conversation without. Secrets are
replaced before anything is stored.
"""

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from longrein.agent.redaction import Redact, redacted
from longrein_context.events import (
    AT_MAX,
    AnyEvent,
    AnyPart,
    Asked,
    Document,
    Entry,
    Image,
    Opened,
    Replied,
    Rewound,
    Summarized,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UserSpoke,
    call_id,
    decode_object,
    is_too_deep,
)

TEXT_CHARS_MAX = 60_000
"""A longer text becomes a document, of which the model sees both ends."""
END_CHARS = 4_000
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
NO_RESULT = "interrupted: the transcript holds no result of this call"


class ForeignCall(msgspec.Struct, frozen=True):
    """A call with the id that the transcript gives it."""

    id: str
    name: str
    arguments: Any
    """The arguments as an object, or as JSON text."""


ReplyPart = Text | Thinking | ForeignCall


class Transcript(msgspec.Struct):
    """Contents read from a file, with counts of what was taken over and left out."""

    agent: str
    session: str = ""
    """Id in the other agent."""
    cwd: str = ""
    """Folder in which the other agent worked."""
    taken: Counter[str] = msgspec.field(default_factory=Counter)
    """Items taken over: `message`, `reply`, `call`, `summary` -> number."""
    left_out: Counter[str] = msgspec.field(default_factory=Counter)
    """Items that cannot be taken over -> number."""
    bad_lines: int = 0
    """Lines that are no JSON object."""


class LogBuilder:
    """Collects the entries of a new session."""

    def __init__(
        self, opened: Opened, put_blob: Callable[[bytes], str], redact: Redact, taken: Counter[str]
    ) -> None:
        self.entries: list[Entry] = []
        self._put_blob = put_blob
        self._redact = redact
        self._taken = taken
        self._at = 0
        self._open: dict[str, ToolCall] = {}
        self._prompts: list[int] = []
        self._in_turn = False
        self._append(opened)

    def at(self, stamp: Any) -> None:
        """Set the time of the next entries from ISO 8601 text; an unreadable one keeps the last
        time.
        """
        try:
            at = round(datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp() * 1e6)
        except (ValueError, OverflowError):
            return
        self._at = min(max(0, at), AT_MAX)

    def user(self, parts: Sequence[AnyPart]) -> None:
        """Add a message of the user. Nothing happens without content."""
        kept = tuple(
            part for part in parts if not (isinstance(part, Text) and not part.text.strip())
        )
        if not kept:
            return
        self.end_turn()
        self._prompts.append(self._append(UserSpoke(kept)))
        self._in_turn = True
        self._taken["message"] += 1

    def reply(self, parts: Sequence[ReplyPart], model: str = "") -> None:
        """Add a reply of the model. Nothing happens without content."""
        kept = [part for part in parts if isinstance(part, ForeignCall) or part.text.strip()]
        if not kept:
            return
        self.close_calls()
        asked = self._append(Asked("turn", self._seq, 0))
        made: list[AnyPart] = []
        calls: dict[str, ToolCall] = {}
        for part in kept:
            if isinstance(part, ForeignCall):
                call = _call(call_id(asked, len(calls)), part)
                calls[part.id or call.id] = call
                made.append(call)
            else:
                made.append(part)
        stop = "calls" if calls else "end"
        self._append(
            Replied(asked, tuple(made), stop, model=clean(model), estimated=("input", "output"))
        )
        self._open, self._in_turn = calls, True
        self._taken["reply"] += 1
        self._taken["call"] += len(calls)

    def result(self, call: str, parts: Sequence[AnyPart], status: str = "ok") -> bool:
        """Add the result of a call; return False when no such call waits."""
        made = self._open.pop(call, None)
        if made is None:
            return False
        self._append(ToolStarted(made.id, made.name))
        self._append(ToolEnded(made.id, made.name, status, tuple(parts) or (Text("(no output)"),)))
        return True

    def summary(self, text: str) -> None:
        """Replace all that came before by a summary, as the other agent did."""
        if self._seq < 2 or not text.strip():
            return
        self.close_calls()
        shown = (
            f"Summary of the conversation so far, made by the agent that led it:\n\n{clean(text)}"
        )
        self._append(Summarized(2, self._seq, shown, "request", prose=clean(text)))
        self._taken["summary"] += 1

    def rewind(self, prompts: int) -> None:
        """Take back the last `prompts` messages of the user, with all that followed them."""
        prompts = min(prompts, len(self._prompts))
        if prompts > 0:
            self.end_turn()
            first = self._prompts[-prompts]
            del self._prompts[-prompts:]
            self._append(Rewound(first - 1))

    def end_turn(self, reason: str = "done") -> None:
        self.close_calls()
        if self._in_turn:
            self._append(TurnEnded(reason))
            self._in_turn = False

    def close_calls(self) -> None:
        """Give every call that waits a result that says there is none."""
        for call in list(self._open):
            self.result(call, (Text(NO_RESULT),), "interrupted")

    def text(self, text: str) -> AnyPart:
        """Return the part for a text: a document for a very long one."""
        text = self._redact(clean(text))
        if len(text) <= TEXT_CHARS_MAX:
            return Text(text)
        data = text.encode()
        lines = text.count("\n") + 1
        return Document(
            self._put_blob(data),
            "text/plain",
            len(data),
            "",
            lines,
            text[:END_CHARS],
            text[-END_CHARS:],
        )

    def image(self, media: Any, data: Any) -> AnyPart:
        """Return the part for an image in base64; a text when it cannot be read."""
        try:
            raw = (
                base64.b64decode(data, validate=True)
                if media in IMAGES and isinstance(data, str)
                else b""
            )
        except (binascii.Error, ValueError):
            raw = b""
        return (
            Image(self._put_blob(raw), str(media), len(raw))
            if raw
            else Text("[an image that could not be read]")
        )

    @property
    def _seq(self) -> int:
        return len(self.entries)

    def _append(self, event: AnyEvent) -> int:
        self.entries.append(Entry(self._seq + 1, self._at, redacted(event, self._redact)))
        return self._seq


def _call(name: str, call: ForeignCall) -> ToolCall:
    given = call.arguments
    received = ""
    if isinstance(given, str):
        received = clean(given)
        given = decode_object(received or "{}")
    if not isinstance(given, dict) or is_too_deep(given):
        return ToolCall(
            name, clean(call.name) or "unknown", None, received or str(given)[:TEXT_CHARS_MAX]
        )
    return ToolCall(name, clean(call.name) or "unknown", cleaned(given))


def clean(text: str) -> str:
    """Replace what no provider accepts: NUL and halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def cleaned(value: Any) -> Any:
    """Apply `clean` to every text in a JSON value."""
    match value:
        case str():
            return clean(value)
        case list():
            return [cleaned(one) for one in value]
        case dict():
            return {clean(str(key)): cleaned(one) for key, one in value.items()}
        case _:
            return value
