"""The engine under somebody else's loop, with a clock, a random sign and a place on disk.

`engine` is for any loop that keeps a list of messages. The adapters for `pydantic-ai`, `langchain` and `openai-agents`
are modules of this package, each imported by whoever has that library: `from longrein.library.langchain import …`.
"""

import time
import uuid
from collections.abc import Sequence

from longrein.context import Price
from longrein.context.listed import DICTS, Engine, Outside, Shape, Summariser
from longrein.library.kept import Kept, session_of
from longrein.models import kind_of, limit_tokens

__all__ = ["Engine", "KeptEngine", "did_not_fit", "engine"]


class KeptEngine(Engine):
    """An engine whose log is on disk, a session like any other. Close it, or use it with `with`."""

    kept: Kept
    """Where the log is."""

    def close(self) -> None:
        """Put on disk what is not there yet and release the session. Idempotent. Raises `StoreFull`."""
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
) -> Engine:
    """An engine for one conversation.

    `window`, `max_output`: tokens. `clears`: kinds of content that may be cleared, of `result`, `call`, `text` and
    `thinking`. `summarise`: gets a list of messages, gives a model's prose. With `state_dir` the log is kept there and
    a `KeptEngine` comes back; `session` (a UUID, or any name) then goes on with a conversation after a restart. Raises
    `SessionBusy` when another process has that session, `StoreDamaged`, `StoreFull`.
    """
    nonce = uuid.uuid4().hex[:8]
    if not state_dir:
        outside = Outside(session=session_of(session), nonce=nonce, now_us=_now_us)
        return Engine(window, max_output, price=price, clears=clears, summarise=summarise, shape=shape, outside=outside)
    kept = Kept(state_dir, session_of(session), _now_us)
    outside = Outside(kept.session, nonce, _now_us, kept.entries, kept.keep)
    made = KeptEngine(window, max_output, price=price, clears=clears, summarise=summarise, shape=shape, outside=outside)
    made.kept = kept
    return made


def did_not_fit(engine: Engine, error: BaseException) -> bool:
    """Whether `error`, of any provider's library, says that the list was too long; `engine` is told then.

    Prepare the same list again when it was, and raise `error` on when it was not.
    """
    body = getattr(error, "body", None)
    text = f"{error} {body}" if body else str(error)
    if kind_of(getattr(error, "status_code", None) or 400, text) != "overflow":
        return False
    engine.refused(str(error)[:400], limit_tokens(text))
    return True


def _now_us() -> int:
    return time.time_ns() // 1000
