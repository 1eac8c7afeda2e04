"""What a headless run is told about the session and about how to speak."""

from collections.abc import Callable
from typing import Literal

import msgspec


class SessionFacts(msgspec.Struct, frozen=True):
    """What stands in the `system/init` line and is not in the log's events as they come."""

    session: str
    """UUID of the session."""
    cwd: str
    """Folder commands start in."""
    model: str
    """`provider/model`."""
    tools: tuple[str, ...]
    """Names of the tools, in their order."""
    mode: str
    """Permission mode."""
    version: str
    """Version of longrein."""
    api_key_source: str = "none"
    """Name of the variable the key came from, or `none`."""
    window_tokens: int = 0
    """Context window of the model."""
    max_output_tokens: int = 0
    """Largest output of the model."""
    sizes: Callable[[str], tuple[int, int]] = lambda _: (0, 0)
    """(context window, largest output) of another model that came to work: the fallback, a subagent's."""
    notes: tuple[str, ...] = ()
    """What happened before anybody listened (a repair at open, a degraded mode), a line each."""
    nested: bool = False
    """Whether a command of another longrein started this one: what it leaves running ends with that one."""


class Style(msgspec.Struct, frozen=True):
    """How the run speaks."""

    output: Literal["text", "json", "stream-json"] = "text"
    """What stdout carries."""
    partial: bool = False
    """`stream-json`: whether the reply is drawn while it grows."""
    background: str = "exit"
    """What becomes of background work when the answer is done: `exit` leaves it, `drain` waits for its end, `steer`
    lets each end begin a turn."""
    background_s: float = 600.0
    """How long it is waited for at most."""
    verbose: bool = False
    """Whether stderr carries a line for each call, retry and notice."""
