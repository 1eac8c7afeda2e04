"""The engine under somebody else's loop, with a clock, a random sign and a place on disk.

`engine` is for any loop that keeps a list of messages. The adapters for `pydantic-ai`, `langchain` and `openai-agents`
are modules of this package, each imported by whoever has that library: `from longrein.library.langchain import …`.
"""

import time
import uuid
from collections.abc import Sequence

import msgspec

from longrein.context import Price
from longrein.context.listed import DICTS, Engine, Outside, Shape, Summariser
from longrein.library.kept import Kept, session_of
from longrein.models import kind_of, limit_tokens

__all__ = ["Engine", "KeptEngine", "did_not_fit", "engine"]


class KeptEngine(Engine):
    """An engine that may have a place on disk, where its log is a session like any other. Close it, or use `with`."""

    kept: Kept | None = None
    """Where the log is; None in memory."""

    def close(self) -> None:
        """Put on disk what is not there yet and release the session. Idempotent. Raises `StoreFull`."""
        if self.kept is not None:
            self.kept.close()

    def __enter__(self) -> "KeptEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def engine(
    window: int,
    max_output: int,
    *,
    price: Price | None = None,
    clears: Sequence[str] = ("result",),
    summarise: Summariser | None = None,
    shape: Shape = DICTS,
    state_dir: str = "",
    session: str = "",
) -> KeptEngine:
    """An engine for one conversation.

    `window`, `max_output`: tokens. `clears`: kinds of content that may be cleared, of `result`, `call`, `text` and
    `thinking`. `summarise`: gets a list of messages, gives a model's prose. With `state_dir` the log is kept there, and
    `session` (a UUID, or any name) goes on with a conversation after a restart. Raises `SessionBusy` when another
    process has that session, `StoreDamaged`, `StoreFull`.
    """
    outside = Outside(session_of(session), uuid.uuid4().hex[:8], _now_us)
    kept = Kept(state_dir, outside.session, _now_us) if state_dir else None
    if kept is not None:
        outside = msgspec.structs.replace(outside, entries=kept.entries, keep=kept.keep)
    made = KeptEngine(window, max_output, price=price, clears=clears, summarise=summarise, shape=shape, outside=outside)
    made.kept = kept
    return made


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
