"""The context engine for a program's own loop, with a clock, a nonce and a place on disk.

`engine` works for any loop that keeps a list of messages. The parts that only one framework needs are modules of this
package: `from longrein.integrations.langchain import ContextMiddleware`.
"""

import importlib
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longrein.context import Budget, Price
from longrein.context.message_list import (
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
    """An engine that may have a place on disk, where its log is a session like any other. Close it, or use `with`."""

    log: EngineLog | None = None
    """Where the log is; None in memory."""

    def close(self) -> None:
        """Put on disk what is not there yet and release the session. Idempotent. Raises `StoreFull`."""
        if self.log is not None:
            self.log.close()

    def __enter__(self) -> "StoredEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


KINDS = ("result", "call", "text", "thinking")
"""Kinds of content that an engine may clear."""


def engine(  # noqa: PLR0913 - all that a conversation can differ in
    model: str = "",
    *,
    window: int = 0,
    max_output: int = 0,
    price: Price | None = None,
    cache_ttl_s: float | None = None,
    clears: Sequence[str] = ("result",),
    summarise: Summariser | None = None,
    shape: MessageFormat | None = None,
    state_dir: str = "",
    session: str = "",
) -> StoredEngine:
    """Make the engine of one conversation, for a message list of dicts, of LangChain's or of Pydantic AI's objects.

    `model`, such as `"openai/gpt-5"`, gives window, output limit, price and cache lifetime as far as they are known;
    each argument that is given stands in place of what is known. `window`, `max_output`: tokens. `price`: US dollars
    for a million tokens. `cache_ttl_s`: seconds that the provider keeps a prompt cache. `clears`: kinds of content
    that may be cleared, of `result`, `call`, `text` and `thinking`. `summarise`: gets a list of messages, gives a
    model's prose. `shape`: how messages of another library are read. With `state_dir` the log is kept there, and
    `session` (a UUID, or any name) goes on with a conversation after a restart. Raises `UsageError` for an argument
    that cannot be, `SessionBusy` when another process has that session, `StoreDamaged`, `StoreFull`.
    """
    known = _known(model) if model else None
    window = window or (known.window_tokens if known else 0)
    max_output = max_output or (min(known.max_output_tokens, window // 4) if known else 0)
    price = price if price is not None or known is None else known.price
    if cache_ttl_s is None:
        cache_ttl_s = known.cache_ttl_s if known else 300.0
    _check(window, max_output, cache_ttl_s, clears, price, summarise)
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
    made.log = log
    return made


def _known(model: str) -> Budget:
    """Window, price and cache of `provider/model`, or of a model name alone. Raises `UsageError` for an unknown one."""
    if not isinstance(model, str):
        raise UsageError(f"engine takes the name of a model first: write engine(window={model!r}, max_output=...)")
    provider, slash, name = model.partition("/")
    known = model_budget(provider, name) if slash else model_budget("", model)
    if known is None:
        raise UsageError(f"nothing is known of the model {model!r}: give window=… and max_output=…, in tokens")
    return known


def _check(
    window: int,
    max_output: int,
    cache_ttl_s: float,
    clears: Sequence[str],
    price: Price | None,
    summarise: Summariser | None,
) -> None:
    """Raises `UsageError` for the first argument that cannot be."""
    kinds = (clears,) if isinstance(clears, str) else tuple(clears)
    rules = (
        (
            not window,
            'engine needs the name of a model, engine("openai/gpt-5"), or window=… and max_output=… in tokens',
        ),
        (not isinstance(window, int) or window < 0, f"window is a number of tokens above 0, not {window!r}"),
        (not max_output, f"engine needs max_output=…, the tokens of the longest answer in a window of {window}"),
        (not isinstance(max_output, int) or max_output < 0, f"max_output is a number of tokens, not {max_output!r}"),
        (max_output >= window, f"max_output {max_output} leaves no room in a window of {window} tokens"),
        (not cache_ttl_s >= 0, f"cache_ttl_s is a number of seconds, not {cache_ttl_s!r}"),
        (isinstance(clears, str), f"clears is a list of texts, not a text: write clears=[{clears!r}]"),
        (not set(kinds) <= set(KINDS), f"clears takes {', '.join(KINDS)}, not {sorted(set(kinds) - set(KINDS))}"),
        (price is not None and not isinstance(price, Price), f"price is a longrein.context.Price, not {price!r}"),
        (summarise is not None and not callable(summarise), "summarise is a function from a list of messages to text"),
    )
    for wrong, line in rules:
        if wrong:
            raise UsageError(line)


class MixedFormat:
    """Reads each message in the format of the library that its class comes from; dicts and the rest as wires do.

    An adapter is imported when its library's first message is seen, so that the library has been imported before.
    """

    def __init__(self) -> None:
        self._formats: dict[type, MessageFormat] = {}
        self._last: MessageFormat = DICT_FORMAT

    def read(self, one: Any) -> NeutralMessage:
        """See `ShortForm.read`."""
        self._last = self._of(one)
        return self._last.read(one)

    def rewrite(self, one: Any, changes: Mapping[int, AnyPart | None]) -> Any:
        """See `ShortForm.rewrite`."""
        return self._of(one).rewrite(one, changes)

    def tell(self, text: str) -> Any:
        """A message of the library that the last one read came from."""
        return self._last.tell(text)

    def _of(self, one: Any) -> MessageFormat:
        kind = type(one)
        if kind not in self._formats:
            packages = [base.__module__.partition(".")[0] for base in kind.__mro__]
            adapter = next((ADAPTERS[home] for home in packages if home in ADAPTERS), "")
            self._formats[kind] = importlib.import_module(adapter).FORMAT if adapter else DICT_FORMAT
        return self._formats[kind]


ADAPTERS = {"langchain_core": "longrein.integrations.langchain", "pydantic_ai": "longrein.integrations.pydantic_ai"}
"""Top package of a framework's message classes -> the module that knows them."""


def did_not_fit(engine: Engine, error: BaseException) -> bool:
    """Whether `error`, of any provider's library, says that the list was too long; `engine` is told then.

    Prepare the same list again when it was, and raise `error` on when it was not.
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
