"""What folding a log gives."""

from longrein.context.request import Item
from longrein.events import PrefixSet, Todo, Usage


class State:
    """The fold of a log. `step` owns it and may change it in place; everybody else reads.

    What frontends may read is below; the rest is the engine's.
    """

    session: str = ""
    nonce: str = ""
    roots: tuple[str, ...] = ()
    cwd: str = ""
    mode: str = "default"
    profile: str = "default"
    todos: tuple[Todo, ...] = ()
    pins: tuple[str, ...] = ()
    prefix: PrefixSet | None = None
    seq: int = 0
    """Last entry folded."""
    items: list[Item]
    """The view."""
    view_tokens: int = 0
    """Tokens of the next request's input: usage of the last reply plus an estimate of what followed."""
    usage: Usage = Usage()
    """All that was used, together."""
    last_usage: Usage = Usage()
    """Of the last reply."""
    spent_usd: float = 0.0
    """All that was spent; lost requests counted as spent."""
    turn_open: bool = False
    """Whether a turn is going on (or was cut by a crash)."""
    steps: int = 0
    """Requests of purpose turn since the user last spoke."""
    breaks: int = 0
    """Entries so far that changed what had been sent."""
    asks: int = 0
    """Requests of purpose turn so far."""
