"""Reaction to a shortage of memory: drop caches first, then compact the conversation harder.

Memory is bounded by design: the log and large content are on disk, and the window bounds the view.
This module handles limits lower than that. It checks between moves; the session continues, and the
user is told once.
"""

from collections.abc import Callable

from longrein.agent.session_part import SessionPart
from longrein.settings_schema import MIB
from longrein.tools import Blobs
from longrein.workspace import MemoryUse
from longrein_context.events import AnyPart, Document, Text

LOOK_EVERY_S = 1.0
"""Interval of checks while there is enough memory."""
EASE_EVERY_S = 1.0
"""Interval between drops of the caches."""
PRESSED_SHARE = 0.85
"""Share of the limit above which memory is short."""
CALM_SHARE = 0.75
"""Share of the limit below which it is no longer short."""
SPILL_CHARS_MIN = 256 * 1024
"""A longer text of a result goes into a blob; no request would show it whole."""
SPILL_HEAD_CHARS = 48_000
SPILL_TAIL_CHARS = 72_000
"""The two ends that stay in the entry; errors stand at the end."""


class MemoryPressure(SessionPart):
    """Detect and react to short memory.

    `use` measures it, `ease` drops caches, `notice` tells the user.
    """

    rank = 0

    def __init__(
        self,
        use: Callable[[], MemoryUse | None],
        ease: Callable[[], None],
        notice: Callable[[str], None],
        mono_s: Callable[[], float],
    ) -> None:
        self.pressed = False
        """True while memory is short even after dropping caches: the view must shrink."""
        self._use = use
        self._ease = ease
        self._notice = notice
        self._mono_s = mono_s
        self._look_s = self._ease_s = float("-inf")
        self._told = False

    async def collect(self) -> None:
        self.look()

    def look(self) -> None:
        """Measure and react; at most once a second while there is enough."""
        now = self._mono_s()
        if not self.pressed and now - self._look_s < LOOK_EVERY_S:
            return
        self._look_s = now
        use = self._use()
        if use is None or use.share < (CALM_SHARE if self.pressed else PRESSED_SHARE):
            self.pressed = False
            self._told = self._told and use is not None and use.share >= CALM_SHARE
            return
        if now - self._ease_s >= EASE_EVERY_S:
            self._ease_s = now
            before = use
            self._ease()
            use = self._use() or before
            if not self._told:
                self._told = True
                self._notice(_line(before, use))
        self.pressed = use.share >= PRESSED_SHARE


def _line(before: MemoryUse, after: MemoryUse) -> str:
    short = (
        f"memory is short: {before.used_bytes // MIB} of {before.limit_bytes // MIB} MB "
        f"({before.limit})"
    )
    if after.share < PRESSED_SHARE:
        return f"{short}; caches were dropped, {after.used_bytes // MIB} MB now"
    return (
        f"{short}; caches were dropped and the conversation is compacted harder; raise the "
        "limit if you can"
    )


def spill_long_texts(parts: tuple[AnyPart, ...], name: str, blobs: Blobs) -> tuple[AnyPart, ...]:
    """Move very long texts of a result into blobs, keeping their two ends."""
    if all(not isinstance(part, Text) or len(part.text) < SPILL_CHARS_MIN for part in parts):
        return parts
    return tuple(_spilled(part, name, blobs) if isinstance(part, Text) else part for part in parts)


def _spilled(part: Text, name: str, blobs: Blobs) -> AnyPart:
    text = part.text
    if len(text) < SPILL_CHARS_MIN:
        return part
    data = text.encode("utf-8", "surrogatepass")
    head = text[: text.rfind("\n", SPILL_HEAD_CHARS // 2, SPILL_HEAD_CHARS) + 1 or SPILL_HEAD_CHARS]
    start = len(text) - SPILL_TAIL_CHARS
    tail = text[text.find("\n", start, start + SPILL_TAIL_CHARS // 2) + 1 or start :]
    lines = text.count("\n") + (not text.endswith("\n"))
    return Document(blobs.put_blob(data), "text/plain", len(data), name, lines, head, tail)
