"""Output is redacted piece by piece: what may be the beginning of a secret is held back until the rest has come."""

import re
from collections.abc import Callable, Sequence

HOLD_CHARS_MAX = 1 << 14
"""No secret is longer; a private key of 16,384 bits is not."""
_BEGINNINGS = (
    "sk-",
    "gh",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "xox",
    "glpat-",
    "npm_",
    "hf_",
    "pypi-",
    "xai-",
    "gsk_",
)
_OF_TOKENS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_KEY, _KEY_END, _HEADER = "-----BEGIN ", "-----END ", "authorization"


class Holding:
    """Redacts a stream of bytes. What a token, a header or a key may begin with stays until it is whole."""

    def __init__(self, redact: Callable[[str], str], secrets: Sequence[str], words: bool) -> None:
        """`secrets` are the known values; with `words` the user has patterns of his own, so the last word is held."""
        self._redact = redact
        self._secrets = [secret for secret in secrets if secret]
        self._token = re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(_BEGINNINGS) + ")")
        self._words = words
        self.held = b""
        """Not given out yet, as it came."""

    def take(self, data: bytes) -> bytes:
        """What can be given out now."""
        text = (self.held + data).decode("utf-8", "surrogateescape")
        end = self._settled(text)
        if len(text) - end > HOLD_CHARS_MAX:
            end = len(text)
        self.held = text[end:].encode("utf-8", "surrogateescape")
        return self._redact(text[:end]).encode("utf-8", "surrogateescape")

    def rest(self) -> bytes:
        """What was held back, at the end."""
        text, self.held = self.held.decode("utf-8", "surrogateescape"), b""
        return self._redact(text).encode("utf-8", "surrogateescape")

    def _settled(self, text: str) -> int:
        """Where the part ends that no later byte can turn into a secret."""
        recent = max(0, len(text) - HOLD_CHARS_MAX - 1)
        end = self._last_run(text, recent)
        line = max(text.rfind("\n", recent) + 1, recent)
        header = text[line:].lower().rfind(_HEADER)
        if header >= 0:
            end = min(end, line + header)
        key = text.rfind(_KEY, recent)
        if key >= 0 and text.find(_KEY_END, key) < 0:
            end = min(end, key)
        known = max((_overlap(text, secret) for secret in self._secrets), default=0)
        begun = max(_overlap(text, _KEY), _overlap(text[-len(_HEADER) :].lower(), _HEADER))
        return min(end, len(text) - known, len(text) - begun)

    def _last_run(self, text: str, recent: int) -> int:
        """Where the last word begins if it may be a token, else the end."""
        last = text[recent:]
        kept = last.rstrip(_OF_TOKENS) if not self._words else last[: _last_blank(last) + 1]
        run = last[len(kept) :]
        if self._words or self._token.search(run) or any(_at_end(run, word) for word in _BEGINNINGS):
            return len(text) - len(run)
        return len(text)


def _last_blank(text: str) -> int:
    return max(map(text.rfind, " \n\t\r"))


def _overlap(text: str, word: str) -> int:
    """How many characters at the end of `text` are the beginning, not the whole, of `word`."""
    return next((size for size in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:size])), 0)


def _at_end(run: str, word: str) -> bool:
    size = _overlap(run, word)
    return size > 0 and not run[-size - 1 : -size].isalnum()
