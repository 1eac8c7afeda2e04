"""The model interface: a request goes in, batches of deltas come out, the last delta is a `Reply`
or a `Failure`.

Errors of a provider or the network are values: `Model.stream` never raises for them.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from longrein_context import Budget, Request
from longrein_context.events import AnyPart, ProviderBlock, Usage


class TextDelta(msgspec.Struct, frozen=True):
    """More of the visible text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """More reasoning text."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """The start of a call (`name` set), or more of its arguments."""

    index: int
    """Index of the call in this reply, from 0."""
    name: str = ""
    """Tool name, in the first delta of a call."""
    json: str = ""
    """More of the arguments as received."""


class UsageDelta(msgspec.Struct, frozen=True):
    """Tokens that the provider has counted up to now, in place of an earlier count."""

    usage: Usage


TEXT_WIRE = "text"
"""Wire of a provider block that holds what the model wrote in a text for a part."""


class Reply(msgspec.Struct, frozen=True):
    """Last delta of an answered request. Calls have no id yet: `ToolCall.id` is ''."""

    parts: tuple[AnyPart, ...]
    """Text, thinking and calls in order."""
    stop: str
    """`end`, `calls`, `length`, `refusal`, or `calls_in_text` of calls that stand in a text."""
    usage: Usage
    """Tokens as the provider counted them; all zero when it sent no usage."""
    blocks: tuple[ProviderBlock, ...] = ()
    """Provider blocks, by index into `parts`."""
    model: str = ""
    """Model that answered."""


class Failure(msgspec.Struct, frozen=True):
    """Last delta of a request that failed."""

    kind: str
    """A `FailureKind`."""
    message: str
    """Error text of the provider or the network, one line."""
    status: int = 0
    """HTTP status, 0 for none."""
    retry_after_s: float = -1.0
    """Wait that the provider asked for, in seconds; negative: none."""
    limit_tokens: int = 0
    """Window named in an overflow error; 0: none."""
    partial: tuple[AnyPart, ...] = ()
    """Parts that had arrived; calls among them never run."""
    usage: Usage = Usage()
    """Tokens counted before the failure."""
    attempts_max: int = 0
    """Attempts that are worth while after this failure; 0: as many as usual."""


Delta = TextDelta | ThinkingDelta | CallDelta | UsageDelta | Reply | Failure


class Model(Protocol):
    """A model of one provider. Used for many requests, also concurrently."""

    name: str
    """`provider/model`."""
    provider: str
    model: str
    wire: str
    budget: Budget

    def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """Send `request` and yield its deltas, one sequence per network read.

        The last element of the last sequence is a `Reply` or a `Failure`. Closing the iterator
        (`aclose`) or cancelling the task closes the connection. Never raises for errors of the
        provider or the network. Never retries: the agent loop decides that from the log.
        """
        ...

    async def aclose(self) -> None:
        """Close idle connections."""
        ...


class ModelOptions(msgspec.Struct, frozen=True):
    """Everything needed to open a model, as settings and flags give it."""

    provider: str
    """Name in the settings."""
    model: str
    """Id as the provider knows it, unless `served_as` has that."""
    wire: str
    """`anthropic`, `openai-chat`, `openai-responses`, `gemini` or `scripted`."""
    base_url: str
    """Without a trailing slash; for `scripted` the path of the script."""
    api_key: str = ""
    """May be empty for local servers."""
    key_source: str = "none"
    """Place of the key, for display: a variable, the keyring, a file; `none` without a key."""
    key_advice: str = ""
    """What to do when the provider refuses the key; '' for the usual advice."""
    budget: Budget | None = None
    """Budget from the settings; None: the figures of the catalog."""
    text_tools: bool = False
    """Use the text tool-call protocol (no native calls)."""
    idle_timeout_s: float = 120.0
    """Longest silence inside a stream; five times as long for the first byte."""
    content_timeout_s: float = 900.0
    """Longest time without content of the reply. Comments, pings and empty events do not count
    as content.
    """
    connect_timeout_s: float = 20.0
    """Longest wait for a connection."""
    headers: tuple[tuple[str, str], ...] = ()
    """Extra headers."""
    effort: str = ""
    """Reasoning effort: `none`, `minimal`, `low`, `medium`, `high`, `max`; empty: the provider's
    default.
    """
    has_pauses: bool = False
    """True where a person answers, so that minutes may pass between two requests."""
    served_as: str = ""
    """Id as the server knows it, where the user wrote another name; else empty."""
    proxy: str = ""
    """URL of a proxy for `https` addresses, from `HTTPS_PROXY`; loopback never uses one."""


class Clock(Protocol):
    """Source of time. A virtual clock lets a whole session run thousands of times faster."""

    def wall_us(self) -> int:
        """Microseconds since 1970 UTC."""
        ...

    def mono_s(self) -> float:
        """Seconds on the monotonic clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        ...


ReadBlob = Callable[[str], bytes]
"""Read a blob by its hash, for images and documents."""


def key_source(model: Model) -> str:
    """Return the place of the key that a model sends, for display; `none` without a key."""
    return str(getattr(model, "key_source", "none"))


def served_as(model: Model) -> str:
    """Return the id that a model has on its server if the user wrote another; '' if not."""
    return str(getattr(model, "served_as", ""))


def forget_encoded(model: Model) -> None:
    """Drop the requests that a model keeps encoded, if it keeps any."""
    forget = getattr(model, "forget", None)
    if forget is not None:
        forget()
