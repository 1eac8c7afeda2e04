"""The context engine for a program's own loop, with a clock, a random sign and a log.

`engine` works for any loop that keeps a list of messages. The parts that only one framework needs
are modules of this package: `from longrein_context.integrations.langchain import
ContextMiddleware`.
"""

import importlib
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack

import msgspec

from longrein_context.events import AnyPart, Entry, UsageError
from longrein_context.message_list import (
    CLEARS,
    DICT_FORMAT,
    Engine,
    EngineEnvironment,
    MessageFormat,
    NeutralMessage,
    Summariser,
)
from longrein_context.overflow import is_overflow, limit_tokens, overflows
from longrein_context.state.request_types import Price

__all__ = ["Engine", "EngineLog", "EngineOptions", "StoredEngine", "did_not_fit", "engine"]


class EngineLog(Protocol):
    """Place where an engine keeps its entries, so that the conversation goes on after a restart."""

    entries: Sequence[Entry]
    """Entries kept until now, from the first."""

    def keep(self, entry: Entry) -> None:
        """Keep one more entry."""

    def close(self) -> None:
        """Write what is left. Idempotent."""


class StoredEngine(Engine):
    """Engine that may have a log of its own. Close it, or use `with`."""

    log: EngineLog | None = None
    """Where the entries are kept; None for an engine in memory."""

    def close(self) -> None:
        """Write the rest of the log and release it. Idempotent. Raises what the log raises."""
        if self.log is not None:
            self.log.close()

    def __enter__(self) -> "StoredEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EngineOptions(TypedDict, total=False):
    """Options of an engine, all by name."""

    window: int
    """Tokens of the model's context window."""
    max_output: int
    """Tokens of the model's longest answer."""
    price: Price | None
    """US dollars for a million tokens; None where no price is known."""
    cache_ttl_s: float | None
    """Seconds that the provider keeps a prompt cache; None for 300."""
    clears: Sequence[str]
    """Kinds of content that may be cleared: `exchange` for whole old replies with their thinking,
    calls and results; `result`, `call`, `text` and `thinking` in place.
    """
    visibility: float
    """How much to pay for fewer missing lines, in units of the usual price of one."""
    summarise: Summariser | None
    """Function from a list of messages to a model's prose."""
    shape: MessageFormat | None
    """Format of the messages of another library."""


_SESSION_NAMESPACE = uuid.UUID("6d0f9f4e-3f0b-5a43-9f65-5d7f0b8f2a10")
"""Namespace in which names of callers become session ids."""
KINDS = ("exchange", "result", "call", "text", "thinking")
"""Kinds of content that an engine may clear."""
CACHE_TTL_S = 300.0
"""Cache lifetime where none is known."""


def session_id(name: str) -> str:
    """Return the session id for `name`: a UUID as it is, a new one for '', else one derived from
    the name.
    """
    if not name:
        return str(uuid.uuid4())
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid5(_SESSION_NAMESPACE, name))


def engine(
    *, session: str = "", log: EngineLog | None = None, **options: Unpack[EngineOptions]
) -> StoredEngine:
    """Create the engine of one conversation, for a list of dicts or of LangChain's or Pydantic AI's
    messages.

    `options`: those of `EngineOptions`; `window` and `max_output` are needed. `session`: UUID of
    the conversation, or any name; '' for a new one. `log`: where its entries are kept.
    Raises `UsageError` for an invalid argument.

        engine(window=200_000, max_output=8_192).prepare([{"role": "user", "content": "Hello."}])
    """
    check_options(options)
    ttl_s = options.get("cache_ttl_s")
    environment = EngineEnvironment(session_id(session), uuid.uuid4().hex[:8], now_us)
    if log is not None:
        environment = msgspec.structs.replace(environment, entries=log.entries, keep=log.keep)
    made = StoredEngine(
        options["window"],
        options["max_output"],
        price=options.get("price"),
        cache_ttl_s=CACHE_TTL_S if ttl_s is None else ttl_s,
        clears=options.get("clears", CLEARS),
        summarise=options.get("summarise"),
        shape=options.get("shape") or MixedFormat(),
        environment=environment,
    )
    made.budget = msgspec.structs.replace(made.budget, visibility=options.get("visibility", 1.0))
    made.log = log
    return made


def check_options(options: EngineOptions) -> None:
    """Raise `UsageError` for the first invalid option."""
    if unknown := sorted(set(options) - set(EngineOptions.__annotations__)):
        raise UsageError(
            f"engine takes no {unknown[0]}; it takes {', '.join(EngineOptions.__annotations__)}"
        )
    window, max_output = options.get("window", 0), options.get("max_output", 0)
    price, summarise = options.get("price"), options.get("summarise")
    clears, visibility = options.get("clears", CLEARS), options.get("visibility", 1.0)
    ttl_s = options.get("cache_ttl_s")
    kinds = (clears,) if isinstance(clears, str) else tuple(clears)
    rules = (
        (not window, "engine needs window=… and max_output=…, in tokens"),
        (
            not isinstance(window, int) or window < 0,
            f"window is a number of tokens above 0, not {window!r}",
        ),
        (
            not max_output,
            f"engine needs max_output=…, the tokens of the longest answer in a window of {window}",
        ),
        (
            not isinstance(max_output, int) or max_output < 0,
            f"max_output is a number of tokens, not {max_output!r}",
        ),
        (
            max_output >= window,
            f"max_output {max_output} leaves no room in a window of {window} tokens",
        ),
        (
            ttl_s is not None and not ttl_s >= 0,
            f"cache_ttl_s is a number of seconds, not {ttl_s!r}",
        ),
        (not visibility > 0, f"visibility is a number above 0, not {visibility!r}"),
        (
            isinstance(clears, str),
            f"clears is a list of texts, not a text: write clears=[{clears!r}]",
        ),
        (
            not set(kinds) <= set(KINDS),
            f"clears takes {', '.join(KINDS)}, not {sorted(set(kinds) - set(KINDS))}",
        ),
        (
            price is not None and not isinstance(price, Price),
            f"price is a longrein_context.Price, not {price!r}",
        ),
        (
            summarise is not None and not callable(summarise),
            "summarise is a function from a list of messages to text",
        ),
    )
    for wrong, line in rules:
        if wrong:
            raise UsageError(line)


class MixedFormat:
    """Format that reads each message by the library of its class; dicts and other objects as wires
    do.

    An adapter is imported at the first message of its library, which has been imported by then.
    """

    def __init__(self) -> None:
        self._formats: dict[type, MessageFormat] = {}
        self._last: MessageFormat = DICT_FORMAT

    def read(self, one: Any) -> NeutralMessage:
        self._last = self._of(one)
        return self._last.read(one)

    def rewrite(self, one: Any, changes: Mapping[int, AnyPart | None]) -> Any:
        return self._of(one).rewrite(one, changes)

    def tell(self, text: str) -> Any:
        """Return a user message of the library that the last message came from."""
        return self._last.tell(text)

    def _of(self, one: Any) -> MessageFormat:
        kind = type(one)
        if kind not in self._formats:
            packages = [base.__module__.partition(".")[0] for base in kind.__mro__]
            adapter = next((ADAPTERS[home] for home in packages if home in ADAPTERS), "")
            self._formats[kind] = (
                importlib.import_module(adapter).FORMAT if adapter else DICT_FORMAT
            )
        return self._formats[kind]


ADAPTERS = {
    "langchain_core": "longrein_context.integrations.langchain",
    "pydantic_ai": "longrein_context.integrations.pydantic_ai",
}
"""Top package of a framework's message classes -> the adapter module."""


def did_not_fit(engine: Engine, error: BaseException) -> bool:
    """Return whether a provider's error says that the list was too long; if so, report it to
    `engine`.

    After True prepare the same list again; after False raise `error` on.
    """
    body = getattr(error, "body", None)
    text = f"{error} {body}" if body else str(error)
    status = getattr(error, "status_code", None)
    if not (overflows(status, text) if status else is_overflow(text)):
        return False
    engine.refused(str(error)[:400], limit_tokens(text))
    return True


def now_us() -> int:
    """Microseconds UTC."""
    return time.time_ns() // 1000
