"""What the loop needs of a model: a request goes in, batches of deltas come out, and the last one says how it ended.

The outside world fails as data: `Model.stream` never raises for what a provider or the network does.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from longrein.context import Budget, Request
from longrein.events import AnyPart, ProviderBlock, Usage


class TextDelta(msgspec.Struct, frozen=True):
    """More of the visible text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """More reasoning text."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """A call begins (`name` set) or its arguments grow."""

    index: int
    """Which call of this reply, from 0."""
    name: str = ""
    """Tool name, in the first delta of a call."""
    json: str = ""
    """More of the arguments as received."""


class Reply(msgspec.Struct, frozen=True):
    """The last delta of a request that was answered. Calls carry no id yet: `ToolCall.id` is ''."""

    parts: tuple[AnyPart, ...]
    """Text, thinking and calls in order."""
    stop: str
    """`end`, `calls`, `length` or `refusal`."""
    usage: Usage
    """As the provider counted; all zero when it did not say."""
    blocks: tuple[ProviderBlock, ...] = ()
    """Provider blocks, by index into `parts`."""
    model: str = ""
    """Model that answered."""


class Failure(msgspec.Struct, frozen=True):
    """The last delta of a request that was not."""

    kind: str
    """A `FailureKind`."""
    message: str
    """One line: what the provider or the network said."""
    status: int = 0
    """HTTP status, 0 for none."""
    retry_after_s: float = -1.0
    """What the provider asked us to wait; negative: nothing."""
    limit_tokens: int = 0
    """Window named in an overflow error; 0: none."""
    partial: tuple[AnyPart, ...] = ()
    """What had arrived; its calls never run."""
    usage: Usage = Usage()
    """As far as it is known."""


Delta = TextDelta | ThinkingDelta | CallDelta | Reply | Failure


class Model(Protocol):
    """One model of one provider. Built once, used for many requests, one at a time or several."""

    name: str
    """`provider/model`."""
    provider: str
    model: str
    wire: str
    budget: Budget

    def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """Send `request`, yield what arrives, one sequence per network read.

        The last element of the last sequence is a `Reply` or a `Failure`; nothing comes after it. Closing the
        iterator (`aclose`) or cancelling the task closes the connection and yields no more. Never raises for what
        the outside does. Never retries: when to ask again is a decision of the loop, folded from the log.
        """
        ...

    async def aclose(self) -> None:
        """Close idle connections."""
        ...


class ModelOptions(msgspec.Struct, frozen=True):
    """All that is needed to open a model. Put together by `config` and `app`."""

    provider: str
    """Name in the settings."""
    model: str
    """Id as the provider knows it."""
    wire: str
    """`anthropic`, `openai-chat`, `openai-responses`, `gemini` or `scripted`."""
    base_url: str
    """Without a trailing slash; for `scripted` the path of the script."""
    api_key: str = ""
    """May be empty for local servers."""
    budget: Budget | None = None
    """What the settings say; None: the table's figures."""
    text_tools: bool = False
    """Use the text tool-call protocol (no native calls)."""
    idle_timeout_s: float = 120.0
    """Longest silence in mid-stream; five times as long for the first byte."""
    content_timeout_s: float = 900.0
    """Longest time without anything of the answer itself: comments, pings and empty events are none."""
    connect_timeout_s: float = 20.0
    """Longest wait for a connection."""
    headers: tuple[tuple[str, str], ...] = ()
    """Extra headers."""
    effort: str = ""
    """How hard to think: `none`, `minimal`, `low`, `medium`, `high`, `max`; empty: as the provider does by default."""
    proxy: str = ""
    """URL of a proxy for `https` addresses, from `HTTPS_PROXY`; loopback never uses one."""


class Clock(Protocol):
    """The part of a clock that a model needs."""

    def wall_us(self) -> int:
        """Microseconds UTC: for a `Retry-After` date."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait: for the delays of a scripted model."""
        ...


ReadBlob = Callable[[str], bytes]
"""Bytes of a blob by its hash; for images and documents."""
