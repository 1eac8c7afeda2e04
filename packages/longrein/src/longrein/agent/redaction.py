"""Replacement of secrets in events, inbox messages and blobs before they are folded or stored."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from longrein.models import (
    CallDelta,
    Delta,
    Failure,
    Reply,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from longrein.store import BlobWriter, Log
from longrein_context.events import ProviderBlock, Replied, Thinking, ToolCall, storable
from longrein_context.events.redact import known_forms, split_start, split_tail
from longrein_context.events.redact_stream import StreamRedactor

Redact = Callable[[str], str]
S = TypeVar("S", bound=msgspec.Struct)

NAMES = frozenset(
    """
    session nonce parent label child call id running handle again provider model wire tools deferred
    TaskStarted.task TaskEnded.task StopTask.task ToolSpec.name ToolCall.name ToolResult.name ToolStarted.name
    ToolEnded.name PermissionAsked.name HookAnswered.event
    roots cwd path Summarized.files SubagentEnded.files sources worktree hash blob before over partial output
    profile kind purpose origin stop status verdict by scope decision mode form policy promoted media owner grant usage
    how to lines source
    """.split()  # noqa: E501, SIM905
)
"""Fields that hold names, which are never changed. All other fields are text."""


def redacted(event: S, redact: Redact) -> S:
    """Return an event or inbox message that the log can hold, with its secrets replaced; the same
    object when nothing was changed.
    """
    return _redacted(storable(event), redact)


def _redacted(event: S, redact: Redact) -> S:
    changed = {}
    for name in _texts(type(event)):
        old = getattr(event, name)
        new = _clean(old, redact)
        if new is not old:
            changed[name] = new
    if not changed:
        return event
    clean = msgspec.structs.replace(event, **changed)
    if isinstance(event, Replied) and isinstance(clean, Replied):
        return msgspec.structs.replace(clean, blocks=_blocks(event, clean))
    return clean


def changed_calls(said: Replied, clean: Replied) -> dict[str, ToolCall]:
    """Return the calls whose arguments held a secret, by id, as the model made them."""
    pairs = zip(said.parts, clean.parts, strict=True)
    return {old.id: old for old, new in pairs if isinstance(old, ToolCall) and old is not new}


@cache
def _texts(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of `kind` that may hold text."""
    names = (
        field.name for field in msgspec.structs.fields(kind) if field.type not in (int, float, bool)
    )
    return tuple(
        name for name in names if name not in NAMES and f"{kind.__name__}.{name}" not in NAMES
    )


def _clean(value: Any, redact: Redact) -> Any:
    """Redact the texts in `value`; return the same object when nothing was replaced."""
    if isinstance(value, str):
        clean = redact(value)
        return value if clean == value else clean
    if isinstance(value, ToolCall):
        return _call(value, redact)
    if isinstance(value, msgspec.Struct):
        return _redacted(value, redact)
    if isinstance(value, tuple | list):
        items = [_clean(item, redact) for item in value]
        return (
            value
            if all(new is old for new, old in zip(items, value, strict=True))
            else type(value)(items)
        )
    if isinstance(value, dict):
        pairs = [(_clean(key, redact), _clean(item, redact)) for key, item in value.items()]
        same = all(
            key is old and item is value[old] for (key, item), old in zip(pairs, value, strict=True)
        )
        return value if same else dict(pairs)
    return value


def _call(call: ToolCall, redact: Redact) -> ToolCall:
    """Redact a call's arguments; drop the text as received if it held a secret and could be
    parsed.
    """
    try:
        arguments = _clean(call.arguments, redact)
    except RecursionError:  # nested too deep to visit each value
        return _deep_call(call, redact)
    received = redact(call.received)
    if arguments is call.arguments and received == call.received:
        return call
    return msgspec.structs.replace(
        call, arguments=arguments, received=received if arguments is None else ""
    )


def _deep_call(call: ToolCall, redact: Redact) -> ToolCall:
    """Redact the arguments as JSON text; drop arguments that JSON cannot hold."""
    try:
        text = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return msgspec.structs.replace(call, arguments=None, received=redact(call.received))
    clean = redact(text)
    return call if clean == text else msgspec.structs.replace(call, arguments=None, received=clean)


def _blocks(said: Replied, clean: Replied) -> tuple[ProviderBlock, ...]:
    """Return the provider's blocks without those that hold a secret.

    A block of redacted thinking is dropped too: its signature would no longer match.
    """
    thought = [
        n
        for n, part in enumerate(said.parts)
        if isinstance(part, Thinking) and part is not clean.parts[n]
    ]
    blocks = zip(said.blocks, clean.blocks, strict=True)
    return tuple(old for old, new in blocks if old is new and old.part not in thought)


# --- Streaming text -------------------------------------------------------------------------------


GrowingDelta = TextDelta | ThinkingDelta | CallDelta


class DeltaRedactor:
    """Redacts the deltas of one answer; a possible beginning of a secret waits for the next
    delta of its part.
    """

    def __init__(self, redact: Redact, secrets: Sequence[str], *, words: bool) -> None:
        """`words`: see `StreamRedactor`."""
        self._stream = StreamRedactor(redact, secrets, words)
        self._last: GrowingDelta | None = None

    def take(self, deltas: Sequence[Delta]) -> list[GrowingDelta]:
        """Return what can be shown now. A reply or a failure ends the answer and is left out."""
        shown: list[GrowingDelta] = []
        for delta in deltas:
            if isinstance(delta, Reply | Failure):
                return [*shown, *self._rest()]
            if isinstance(delta, UsageDelta):
                continue
            if _part_of(delta) != _part_of(self._last):
                shown += self._rest()
            self._last = delta
            text = delta.json if isinstance(delta, CallDelta) else delta.text
            clean = self._stream.take(text.encode("utf-8", "surrogatepass"))
            shown += self._made(delta, clean)
        return shown

    def _rest(self) -> list[GrowingDelta]:
        if self._last is None:
            return []
        last = (
            msgspec.structs.replace(self._last, name="")
            if isinstance(self._last, CallDelta)
            else self._last
        )
        return self._made(last, self._stream.rest())

    def _made(self, delta: GrowingDelta, data: bytes) -> list[GrowingDelta]:
        text = data.decode("utf-8", "surrogatepass")
        if isinstance(delta, CallDelta):
            return [msgspec.structs.replace(delta, json=text)] if text or delta.name else []
        return [msgspec.structs.replace(delta, text=text)] if text else []


def _part_of(delta: GrowingDelta | None) -> tuple[object, int]:
    return type(delta), delta.index if isinstance(delta, CallDelta) else 0


# --- Redacting blob store -------------------------------------------------------------------------


SHAPES_BYTES_MAX = 1024 * 1024
"""In longer content only known secrets are replaced: searching for token shapes costs 4 ms a MB
and more.
"""
LINE_BYTES_MAX = 64 * 1024
"""A longer line is scanned in pieces."""
_OF_TOKENS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_KEY, _KEY_END = b"-----BEGIN ", b"-----END "


class RedactingBlobs:
    """Blob store for tools that replaces secrets."""

    def __init__(self, log: Log, redact: Callable[[str], str], secrets: Sequence[str]) -> None:
        self._log = log
        self._redact = redact
        marked = ((form, redact(form)) for form in known_forms(secrets))
        self._known = [(form.encode(), mark.encode()) for form, mark in marked if mark != form]

    def put_blob(self, data: bytes) -> str:
        """Store `data` without its secrets; return the hash of what was stored."""
        clean = replace_secrets(data, self._known)
        return self._log.put_blob(self._scanned(clean) if len(clean) <= SHAPES_BYTES_MAX else clean)

    def _scanned(self, data: bytes) -> bytes:
        """Replace everything with the shape of a secret; return the same object when there is
        nothing.
        """
        text = data.decode("utf-8", "surrogateescape")
        safe = self._redact(text)
        return data if safe is text else safe.encode("utf-8", "surrogateescape")

    def read_blob(self, blob: str) -> bytes:
        return self._log.read_blob(blob)

    def blob_path(self, blob: str) -> str:
        return self._log.blob_path(blob)

    def new_blob(self) -> BlobWriter:
        """Open a growing blob; secrets split over two writes are replaced too."""
        return RedactingBlobWriter(self._log.new_blob(), self._known, self._scanned)


def replace_secrets(data: bytes, known: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Replace each known secret by its marker."""
    for secret, mark in known:
        if secret in data:
            data = data.replace(secret, mark)
    return data


class RedactingBlobWriter:
    """Writer of a growing blob that holds back bytes which may begin a secret.

    The first MB is scanned line by line; in the rest only known secrets are replaced.
    """

    def __init__(
        self,
        writer: BlobWriter,
        known: Sequence[tuple[bytes, bytes]],
        clean: Callable[[bytes], bytes],
    ) -> None:
        self._writer = writer
        self._known = known
        self._clean = clean
        self._forms = [secret.decode() for secret, _ in known]
        self._held_bytes = max((len(secret) for secret, _ in known), default=1) - 1
        self._held = b""
        self._unscanned = SHAPES_BYTES_MAX

    @property
    def path(self) -> str:
        return self._writer.path

    @property
    def size_bytes(self) -> int:
        """Bytes so far."""
        return self._writer.size_bytes + len(self._held)

    def write(self, data: bytes) -> None:
        """Append `data`. Raises OSError (full disk)."""
        data = self._held + data if self._held else data
        if self._unscanned > 0:
            cut = self._whole(data, _scannable(data))
            self._unscanned -= cut
            self._writer.write(self._clean(replace_secrets(data[:cut], self._known)))
        else:
            data = replace_secrets(data, self._known)
            cut = max(0, len(data) - self._held_bytes)
            self._writer.write(data[:cut])
        self._held = data[cut:]

    def _whole(self, data: bytes, cut: int) -> int:
        """Return `cut`, or an earlier place if a known secret that is split by a line break may
        begin there.
        """
        if not self._forms or not cut:
            return cut
        chars = 4 * self._held_bytes
        end = data[max(0, cut - chars) : cut].decode("utf-8", "ignore")
        start = len(end) - split_tail(end, self._forms, len(end))
        around = end + data[cut : cut + chars].decode("utf-8", "ignore")
        start = min(start, split_start(around, len(end), self._forms, chars))
        held = len(end[start:].encode())
        return cut - held if cut - held > 0 or len(data) <= LINE_BYTES_MAX else cut

    def pieces(self) -> Iterator[bytes]:
        """Implement `store.BlobWriter.pieces`; the held bytes come last, not redacted."""
        yield from self._writer.pieces()
        yield self._held

    def finish(self) -> str:
        """Finish the blob; return its hash."""
        if self._held:
            self._writer.write(self._clean(replace_secrets(self._held, self._known)))
        return self._writer.finish()

    def discard(self) -> None:
        """Discard the blob."""
        self._writer.discard()


def _scannable(data: bytes) -> int:
    """Return a length at which `data` can be cut without splitting a secret.

    Cuts at the end of a line, before an unfinished key; a very long line is cut at the end of a
    word, or anywhere when it is one word.
    """
    cut = data.rfind(b"\n") + 1
    key = data.rfind(_KEY, 0, cut)
    if key >= 0 and data.find(_KEY_END, key, cut) < 0:
        cut = key
    if len(data) - cut <= LINE_BYTES_MAX:
        return cut
    word = len(data.rstrip(_OF_TOKENS))
    return word if len(data) - word <= LINE_BYTES_MAX else len(data)
