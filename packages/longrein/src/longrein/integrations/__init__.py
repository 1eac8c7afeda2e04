"""The context engine for a program's own loop, with what longrein knows of models and a place on
disk. The engine itself is `longrein_context.integrations.engine`.
"""

from typing import Unpack

from longrein.integrations.engine_log import SessionEngineLog
from longrein.models import model_budget
from longrein_context import Budget
from longrein_context.events import UsageError
from longrein_context.integrations import (
    Engine,
    EngineOptions,
    StoredEngine,
    check_options,
    did_not_fit,
    now_us,
    session_id,
)
from longrein_context.integrations import engine as engine_without_model

__all__ = ["Engine", "StoredEngine", "did_not_fit", "engine"]


def engine(
    model: str = "", *, state_dir: str = "", session: str = "", **options: Unpack[EngineOptions]
) -> StoredEngine:
    """Create the engine of one conversation, for a list of dicts or of LangChain's or Pydantic AI's
    messages.

    `model`, such as `"openai/gpt-5"`, sets window, output limit, price and cache lifetime where
    they are known; other arguments override these. `options`: those of `EngineOptions`: `window`,
    `max_output`, `price`, `cache_ttl_s`, `clears`, `visibility`, `summarise`, `shape`.
    `state_dir`: folder to store the log in. `session` (a UUID, or any name): conversation
    to continue from `state_dir` after a restart. Raises `UsageError` for an invalid argument,
    `SessionBusy` when another process has the session open, `StoreDamaged`, `StoreFull`.
    """
    if model:
        options = _with_known(_known(model), options)
    elif not options.get("window"):
        raise UsageError(
            'engine needs the name of a model, engine("openai/gpt-5"), or window=… and '
            "max_output=… in tokens"
        )
    check_options(options)  # a wrong one is told before a log is made
    id_ = session_id(session)
    log = SessionEngineLog(state_dir, id_, now_us) if state_dir else None
    return engine_without_model(session=id_, log=log, **options)


def _with_known(known: Budget, options: EngineOptions) -> EngineOptions:
    """Return the options with what is known of the model where nothing is given."""
    given: EngineOptions = {**options}
    given["window"] = options.get("window") or known.window_tokens
    given["max_output"] = options.get("max_output") or min(
        known.max_output_tokens, given["window"] // 4
    )
    if options.get("price") is None:
        given["price"] = known.price
    if options.get("cache_ttl_s") is None:
        given["cache_ttl_s"] = known.cache_ttl_s
    return given


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
