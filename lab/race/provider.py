"""Loopback provider of the race: Chat Completions and Responses, with a prompt cache and a window
of its own.

Each session has its own URL, `/SESSION/v1`. A request without tools, or whose tools must not be
called, asks for a summary. A prompt that does not fit is refused with status 400 as OpenAI does.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from lab.race.model import Answer, Block, ScriptedModel
from lab.race.tokens import MESSAGE_OVERHEAD, count_tokens
from lab.race.wires import (
    chat_reply,
    compacted,
    read_chat_message,
    read_responses_item,
    responses_reply,
    too_long,
)
from longrein.testing.loopback.http_connection import Connection

MAX_OUTPUT = 4_096
"""Tokens of the window that are reserved for an answer."""


@dataclass
class Request:
    """Request as the provider billed it."""

    kind: str
    """`step`, `repair`, `summary` or `refused`."""
    prompt: int
    cached: int
    output: int
    step: int
    changed: str = ""
    """Cause of a broken cache: the first message that an earlier request showed otherwise."""


class _Counted(msgspec.Struct, frozen=True):
    digest: int
    tokens: int
    block: Block


@dataclass
class ServedSession:
    """Session at the provider."""

    model: ScriptedModel
    window: int
    requests: list[Request] = field(default_factory=list)
    cut_next: bool = False
    """Set by a loop that knows no other way after a refusal: the oldest half of its list is left
    out from now on.
    """
    _prefixes: set[int] = field(default_factory=set)
    _counted: dict[bytes, _Counted] = field(default_factory=dict)
    _cut_at: int | None = None  # Digest of the first message that is sent after a cut
    _last: list[int] = field(default_factory=list)

    @property
    def limit(self) -> int:
        """Largest prompt in tokens."""
        return self.window - MAX_OUTPUT

    def count(self, raw: bytes, wire: str) -> _Counted:
        """Return the counted form of a message, from the memo if it was seen before."""
        found = self._counted.get(raw)
        if found is None:
            one = json.loads(raw)
            block = read_responses_item(one) if wire == "responses" else read_chat_message(one)
            tokens = count_tokens(block.text) + MESSAGE_OVERHEAD * (1 + len(block.calls))
            found = self._counted[raw] = _Counted(hash(raw), tokens, block)
        return found

    def cut(self, messages: list[_Counted]) -> list[_Counted]:
        """Leave out what an earlier cut has left out, and the oldest half when `cut_next` is
        set.
        """
        front = next((n for n, one in enumerate(messages) if one.block.role != "system"), 0) + 1
        at = next((n for n, one in enumerate(messages) if one.digest == self._cut_at), front)
        if self.cut_next:
            self.cut_next = False
            goal = self.limit // 2
            size = sum(one.tokens for one in messages[:front])
            at = len(messages)
            while at > front and size + messages[at - 1].tokens <= goal:
                at -= 1
                size += messages[at].tokens
            while at < len(messages) - 1 and messages[at].block.role == "tool":
                at += 1
            at = min(at, len(messages) - 1)
            self._cut_at = messages[at].digest
        return messages if at <= front else [*messages[:front], *messages[at:]]

    def cached_tokens(
        self, head: bytes, head_tokens: int, messages: Sequence[_Counted], *, keep: bool
    ) -> int:
        """Return how many tokens of a prompt are in the cache; with `keep` the prompt enters the
        cache.
        """
        chain, cached, hit, chains = hash(head), 0, True, []
        sizes = [head_tokens, *(one.tokens for one in messages)]
        for digest, size in zip([0, *(one.digest for one in messages)], sizes, strict=True):
            chain = hash((chain, digest))
            chains.append(chain)
            hit = hit and chain in self._prefixes
            cached += size if hit else 0
        if keep:
            self._prefixes.update(chains)
        return cached

    def change(self, messages: Sequence[_Counted]) -> str:
        """Describe the first message that the last step showed otherwise; '' when this prompt
        only appends.
        """
        last, self._last = self._last, [one.digest for one in messages]
        at = next(
            (n for n, one in enumerate(last) if n >= len(messages) or messages[n].digest != one),
            len(last),
        )
        if at == len(last):
            return ""
        shown = messages[at].block if at < len(messages) else None
        what = f"{shown.role} {shown.text[:60]!r}" if shown else "the end"
        return f"message {at + 1} of {len(last)}, now {what}"


class RaceProvider:
    """HTTP server for any number of sessions. Use as an async context manager."""

    def __init__(self) -> None:
        self.sessions: dict[str, ServedSession] = {}
        self.url = ""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "RaceProvider":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = Connection(reader, writer)
        try:
            while (request := await connection.read_request()) is not None:
                head, body = request
                path = head.target.decode()
                status, answer = self._answer(path, body)
                await connection.send(status, {}, json.dumps(answer).encode())
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    def _answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        _, name, _, wire = path.split("/", 3)
        session = self.sessions[name]
        if wire == "chat/completions":
            return serve(session, "chat", msgspec.json.decode(body, type=_ChatRequest).parts())
        request = msgspec.json.decode(body, type=_ResponsesRequest)
        return serve(
            session, "compact" if wire.endswith("compact") else "responses", request.parts()
        )


class _Parts(msgspec.Struct):
    head: bytes
    messages: list[bytes]
    tools: frozenset[str]
    asks_summary: bool


class _ChatRequest(msgspec.Struct):
    messages: list[msgspec.Raw]
    tools: list[msgspec.Raw] = []
    tool_choice: Any = None

    def parts(self) -> _Parts:
        names = frozenset(str(json.loads(bytes(tool))["function"]["name"]) for tool in self.tools)
        summary = not names or self.tool_choice == "none"
        return _Parts(
            b"".join(map(bytes, self.tools)), list(map(bytes, self.messages)), names, summary
        )


class _ResponsesRequest(msgspec.Struct):
    input: str | list[msgspec.Raw] = ""
    instructions: str | None = None
    tools: list[msgspec.Raw] = []
    tool_choice: Any = None

    def parts(self) -> _Parts:
        names = frozenset(str(json.loads(bytes(tool))["name"]) for tool in self.tools)
        if isinstance(self.input, str):
            messages = [json.dumps({"role": "user", "content": self.input}).encode()]
        else:
            messages = list(map(bytes, self.input))
        head = (self.instructions or "").encode() + b"".join(map(bytes, self.tools))
        return _Parts(head, messages, names, not names or self.tool_choice == "none")


def serve(session: ServedSession, wire: str, parts: _Parts) -> tuple[int, dict[str, Any]]:
    """Answer one request of a session; return status and body."""
    family = "chat" if wire == "chat" else "responses"
    messages = session.cut([session.count(raw, family) for raw in parts.messages])
    head_tokens = count_tokens(parts.head.decode("utf-8", "replace"))
    prompt = head_tokens + sum(one.tokens for one in messages)
    step = session.model.at
    if prompt > session.limit and wire != "compact":
        session.requests.append(Request("refused", prompt, 0, 0, step))
        return 400, too_long(session.limit, prompt)
    blocks = [one.block for one in messages]
    asks_summary = parts.asks_summary or wire == "compact"
    cached = session.cached_tokens(parts.head, head_tokens, messages, keep=not asks_summary)
    if asks_summary:
        text = session.model.summary("\n".join(block.text for block in blocks), session.limit // 10)
        answer, kind, changed = Answer(text), "summary", ""
    else:
        changed = session.change(messages)
        answer, kind = session.model.answer(blocks, parts.tools)
    session.requests.append(Request(kind, prompt, cached, answer.tokens, step, changed))
    usage = (prompt, cached, answer.tokens)
    number = len(session.requests)
    if wire == "compact":
        return 200, compacted(parts.messages, answer.text, number, usage)
    return 200, (chat_reply if wire == "chat" else responses_reply)(answer, number, usage)
