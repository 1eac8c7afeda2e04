"""Redaction of a stream: text that may be the beginning of a secret is held back until the rest
has come.
"""

import codecs
from collections.abc import Callable, Sequence

from longrein_context.events.redact import (
    PLACE_WORDS,
    beginnings,
    known_forms,
    overlap,
    split_start,
    split_tail,
)

HOLD_CHARS_MAX = 1 << 14
"""Longest secret; a private key of 16,384 bits is shorter."""
_TOKEN_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~:"
_DIGITS_AND_JOINTS = frozenset("0123456789_-")
"""A word with one of these may be a token without a literal beginning, or the name before one."""
_TOKEN_BEGINS_CHARS = 16
_KEY, _KEY_END = "-----BEGIN ", "-----END "


class StreamRedactor:
    """Redacts a stream of bytes; the possible beginning of a secret waits until it is complete."""

    def __init__(self, redact: Callable[[str], str], secrets: Sequence[str], words: bool) -> None:
        """`secrets` are known values. With `words` the user has own patterns, so the last word
        is held.
        """
        self._redact = redact
        self._secrets = list(known_forms(secrets))
        self._split_chars = 4 * max(map(len, self._secrets), default=0)
        self._beginnings = beginnings()
        self._words = words
        self.held = b""
        """Bytes held back, not redacted."""

    def take(self, data: bytes) -> bytes:
        """Add `data` and return what can be given out now."""
        data = self.held + data
        text, whole = codecs.utf_8_decode(
            data, "surrogateescape", False
        )  # up to an incomplete last character
        end = self._settled(text)
        if len(text) - end > HOLD_CHARS_MAX:
            end = len(text)
        self.held = text[end:].encode("utf-8", "surrogateescape") + data[whole:]
        return self._redact(text[:end]).encode("utf-8", "surrogateescape")

    def rest(self) -> bytes:
        """Return what was held back, at the end."""
        text, self.held = self.held.decode("utf-8", "surrogateescape"), b""
        return self._redact(text).encode("utf-8", "surrogateescape")

    def _settled(self, text: str) -> int:
        """End of the part that no later byte can turn into a secret and that cuts none in two."""
        known = max((overlap(text, secret) for secret in self._secrets), default=0)
        known = max(
            known, split_tail(text, self._secrets, self._split_chars) if self._secrets else 0
        )
        low = text[-max(map(len, PLACE_WORDS)) :].lower()
        begun = max(overlap(text, _KEY), *(overlap(low, word) for word in PLACE_WORDS))
        recent = max(0, len(text) - HOLD_CHARS_MAX - 1)
        end, before = len(text) - max(known, begun), -1
        while end != before:
            before = end
            end = min(self._before_word(text, recent, end), self._before_known(text, end))
            end = min(end, _before_place(text, recent, end), _before_key(text, recent, end))
        return end

    def _before_word(self, text: str, recent: int, end: int) -> int:
        """Start of the word around `end` if it may be a token, else `end`."""
        last = text[recent:end]
        kept = (
            last.rstrip(_TOKEN_CHARS)
            if not self._words
            else last[: max(map(last.rfind, " \n\t\r")) + 1]
        )
        run = last[len(kept) :]
        more = text[end : end + _TOKEN_BEGINS_CHARS]
        suspect = (
            self._words
            or not _DIGITS_AND_JOINTS.isdisjoint(run)
            or any(_within(run + more, b) for b in self._beginnings)
        )
        if not suspect and end + len(more) == len(text):
            suspect = any(_at_end(run + more, word) for word in self._beginnings)
        return end - len(last) + len(kept) if suspect else end

    def _before_known(self, text: str, end: int) -> int:
        """Start of a known secret around `end`, else `end`."""
        for secret in self._secrets:
            at = text.rfind(secret, max(0, end - len(secret) + 1), end + len(secret) - 1)
            if 0 <= at < end:
                return at
        return split_start(text, end, self._secrets, self._split_chars) if end < len(text) else end


def _before_place(text: str, recent: int, end: int) -> int:
    """Start of a word on the line of `end` that a secret may follow, else `end`."""
    line = max(text.rfind("\n", recent, end) + 1, recent)
    low = text[line:end].lower()
    found = [at for at in map(low.find, PLACE_WORDS) if at >= 0]
    return line + len(low[: min(found)].rstrip(_TOKEN_CHARS)) if found else end


def _before_key(text: str, recent: int, end: int) -> int:
    """Start of a key that has not ended before `end`, else `end`."""
    key = text.rfind(_KEY, recent, end)
    if key < 0:
        return end
    closing = text.find(_KEY_END, key)
    closed = text.find("-----", closing + len(_KEY_END)) if closing >= 0 else -1
    return end if 0 <= closed <= end - 5 else key


def _within(run: str, word: str) -> bool:
    """Tell whether `word` occurs in `run`, not inside another word."""
    at = run.find(word)
    while at > 0 and run[at - 1].isalnum():
        at = run.find(word, at + 1)
    return at >= 0


def _at_end(run: str, word: str) -> bool:
    size = overlap(run, word)
    return size > 0 and not run[-size - 1 : -size].isalnum()
