"""The context engine for a program's own loop, with a clock, a random sign and a place on disk.

`engine` works for any loop that keeps a list of messages. The parts that only one framework needs
are modules of this package: `from longrein.integrations.langchain import ContextMiddleware`.
"""

import importlib
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longrein.context import Budget, Price
from longrein.context.message_list import (
    CLEARS,
    DICT_FORMAT,
    Engine,
    EngineEnvironment,
    MessageFormat,
    NeutralMessage,
    Summariser,
)
from longrein.events import AnyPart, UsageError
from longrein.integrations.engine_log import EngineLog, session_id
from longrein.models import kind_of, limit_tokens, model_budget

__all__ = ["Engine", "StoredEngine", "did_not_fit", "engine"]


class StoredEngine(Engine):
    """Engine whose log may be stored as a session. Close it, or use `with`."""

    log: EngineLog | None = None
    """The stored log; None for an engine in memory."""

    def close(self) -> None:
        """Write the rest of the log and release the session. Idempotent. Raises `StoreFull`."""
        if self.log is not None:
            self.log.close()

    def __enter__(self) -> "StoredEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


KINDS = ("exchange", "result", "call", "text", "thinking")
"""Kinds of content that an engine may clear."""


def engine(  # noqa: PLR0913 - all options of a conversation
    model: str = "",
    *,
    window: int = 0,
    max_output: int = 0,
    price: Price | None = None,
    cache_ttl_s: float | None = None,
    clears: Sequence[str] = CLEARS,
    visibility: float = 1.0,
    summarise: Summariser | None = None,
    shape: MessageFormat | None = None,
    state_dir: str = "",
    session: str = "",
) -> StoredEngine:
    """Create the engine of one conversation, for a list of dicts or of LangChain's or Pydantic AI's
    messages.

    `model`, such as `"openai/gpt-5"`, sets window, output limit, price and cache lifetime where
    they are known; other arguments override these. `window`, `max_output`: tokens. `price`: US
    dollars for a million tokens. `cache_ttl_s`: seconds that the provider keeps a prompt cache.
    `clears`: kinds of content that may be cleared: `exchange` for whole old replies with their
    thinking, calls and results; `result`, `call`, `text` and `thinking` in place. `visibility`: how
    much to pay for fewer missing lines, in units of the usual price of one. `summarise`:
    function from a list of messages to a model's prose. `shape`: format of the messages of another
    library. `state_dir`: folder to store the log in. `session` (a UUID, or any name): conversation
    to continue from `state_dir` after a restart. Raises `UsageError` for an invalid argument,
    `SessionBusy` when another process has the session open, `StoreDamaged`, `StoreFull`.
    """
    known = _known(model) if model else None
    window = window or (known.window_tokens if known else 0)
    max_output = max_output or (min(known.max_output_tokens, window // 4) if known else 0)
    price = price if price is not None or known is None else known.price
    if cache_ttl_s is None:
        cache_ttl_s = known.cache_ttl_s if known else 300.0
    _check(window, max_output, cache_ttl_s, clears, visibility, price, summarise)
    environment = EngineEnvironment(session_id(session), uuid.uuid4().hex[:8], _now_us)
    log = EngineLog(state_dir, environment.session, _now_us) if state_dir else None
    if log is not None:
        environment = msgspec.structs.replace(environment, entries=log.entries, keep=log.keep)
    made = StoredEngine(
        window,
        max_output,
        price=price,
        cache_ttl_s=cache_ttl_s,
        clears=clears,
        summarise=summarise,
        shape=shape or MixedFormat(),
        environment=environment,
    )
    made.budget = msgspec.structs.replace(made.budget, visibility=visibility)
    made.log = log
    return made


def _known(model: str) -> Budget:
    """Return the budget of `provider/model`, or of a model name alone. Raises `UsageError` for
    an unknown model.
    """
    if not isinstance(model, str):
        raise UsageError(
            f"engine takes the name of a model first: write engine(window={model!r}, "
            "max_output=...)"
        )
    provider, slash, name = model.partition("/")
    known = model_budget(provider, name) if slash else model_budget("", model)
    if known is None:
        raise UsageError(
            f"nothing is known of the model {model!r}: give window=… and max_output=…, in tokens"
        )
    return known


def _check(
    window: int,
    max_output: int,
    cache_ttl_s: float,
    clears: Sequence[str],
    visibility: float,
    price: Price | None,
    summarise: Summariser | None,
) -> None:
    """Raise `UsageError` for the first invalid argument."""
    kinds = (clears,) if isinstance(clears, str) else tuple(clears)
    rules = (
        (
            not window,
            (
                'engine needs the name of a model, engine("openai/gpt-5"), or window=… and '
                "max_output=… in tokens"
            ),
        ),
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
        (not cache_ttl_s >= 0, f"cache_ttl_s is a number of seconds, not {cache_ttl_s!r}"),
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
            f"price is a longrein.context.Price, not {price!r}",
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
    "langchain_core": "longrein.integrations.langchain",
    "pydantic_ai": "longrein.integrations.pydantic_ai",
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
    kind = kind_of(status, text) if status else kind_of(400, text or "an error without words")
    if kind != "overflow":
        return False
    engine.refused(str(error)[:400], limit_tokens(text))
    return True


def _now_us() -> int:
    return time.time_ns() // 1000
