"""Output is redacted piece by piece: what may be the beginning of a secret is held back until the rest has come."""

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
_TOKEN_BEGINS_CHARS = 16
_KEY, _KEY_END, _HEADER = "-----BEGIN ", "-----END ", "authorization"


class Holding:
    """Redacts a stream of bytes. What a token, a header or a key may begin with stays until it is whole."""

    def __init__(self, redact: Callable[[str], str], secrets: Sequence[str], words: bool) -> None:
        """`secrets` are the known values; with `words` the user has patterns of his own, so the last word is held."""
        self._redact = redact
        self._secrets = [secret for secret in secrets if secret]
        self._words = words
        self.held = b""
        """Not given out yet, as it came."""

    def take(self, data: bytes) -> bytes:
        """What can be given out now."""
        data = self.held + data
        whole = _whole_characters(data)
        text = data[:whole].decode("utf-8", "surrogateescape")
        end = self._settled(text)
        if len(text) - end > HOLD_CHARS_MAX:
            end = len(text)
        self.held = text[end:].encode("utf-8", "surrogateescape") + data[whole:]
        return self._redact(text[:end]).encode("utf-8", "surrogateescape")

    def rest(self) -> bytes:
        """What was held back, at the end."""
        text, self.held = self.held.decode("utf-8", "surrogateescape"), b""
        return self._redact(text).encode("utf-8", "surrogateescape")

    def _settled(self, text: str) -> int:
        """Where the part ends that no later byte can turn into a secret, and that cuts none in two."""
        known = max((_overlap(text, secret) for secret in self._secrets), default=0)
        begun = max(_overlap(text, _KEY), _overlap(text[-len(_HEADER) :].lower(), _HEADER))
        recent = max(0, len(text) - HOLD_CHARS_MAX - 1)
        end, before = len(text) - max(known, begun), -1
        while end != before:
            before = end
            end = min(self._before_word(text, recent, end), self._before_known(text, end))
            end = min(end, _before_header(text, recent, end), _before_key(text, recent, end))
        return end

    def _before_word(self, text: str, recent: int, end: int) -> int:
        """Where the word around `end` begins if it may be a token, else `end`."""
        last = text[recent:end]
        kept = last.rstrip(_OF_TOKENS) if not self._words else last[: max(map(last.rfind, " \n\t\r")) + 1]
        run = last[len(kept) :]
        if end == len(text):
            suspect = self._words or any(_at_end(run, word) for word in _BEGINNINGS)
        else:
            run, suspect = run + text[end : end + _TOKEN_BEGINS_CHARS], self._words
        return end - len(last) + len(kept) if suspect or any(_within(run, word) for word in _BEGINNINGS) else end

    def _before_known(self, text: str, end: int) -> int:
        """Where a known secret around `end` begins, else `end`."""
        for secret in self._secrets:
            at = text.rfind(secret, max(0, end - len(secret) + 1), end + len(secret) - 1)
            if 0 <= at < end:
                return at
        return end


def _whole_characters(data: bytes) -> int:
    """How many bytes there are before a character of which only the beginning has come."""
    for back in range(1, min(3, len(data)) + 1):
        first = data[-back]
        if first >= 0xC0:
            return len(data) - back if back < (2 if first < 0xE0 else 3 if first < 0xF0 else 4) else len(data)
        if first < 0x80:
            break
    return len(data)


def _before_header(text: str, recent: int, end: int) -> int:
    """Where a header on the line that `end` is in begins, else `end`."""
    line = max(text.rfind("\n", recent, end) + 1, recent)
    found = text[line:end].lower().rfind(_HEADER)
    return line + found if found >= 0 else end


def _before_key(text: str, recent: int, end: int) -> int:
    """Where a key that has not ended before `end` begins, else `end`."""
    key = text.rfind(_KEY, recent, end)
    if key < 0:
        return end
    closing = text.find(_KEY_END, key)
    closed = text.find("-----", closing + len(_KEY_END)) if closing >= 0 else -1
    return end if 0 <= closed <= end - 5 else key


def _overlap(text: str, word: str) -> int:
    """How many characters at the end of `text` are the beginning, not the whole, of `word`."""
    return next((size for size in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:size])), 0)


def _within(run: str, word: str) -> bool:
    """Whether `word` stands in `run`, not in the middle of another word."""
    at = run.find(word)
    while at > 0 and run[at - 1].isalnum():
        at = run.find(word, at + 1)
    return at >= 0


def _at_end(run: str, word: str) -> bool:
    size = _overlap(run, word)
    return size > 0 and not run[-size - 1 : -size].isalnum()
