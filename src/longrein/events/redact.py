"""Redaction of secrets before anything is stored: known secrets, and text in the form of a token.

Imports the standard library only, since the supervisor loads this file by its path. Secrets are replaced by a marker as
in `ids.marker`. Its digest distinguishes secrets; it is salted with the session's nonce and reveals nothing.
"""

import hashlib
import re
from collections.abc import Callable, Sequence

SECRET_CHARS_MIN = 8  # Minimum length of a secret: replacing a shorter value would garble ordinary text

_RUN_MIN = 20  # Every token form below has at least this many consecutive letters, digits, `_` and `-`
_MASK = bytes(0x61 if chr(b).isascii() and (chr(b).isalnum() or b in b"_-") else 0x20 for b in range(256))
_RUN = b"a" * _RUN_MIN
_BEGINNING = rb"sk-|gh[pousr]_|github_pat_|A[KS]IA|eyJ|AIza|xox[abeprs]-|glpat-|npm_|hf_|pypi-|xai-|gsk_"


_SHAPES = (
    r"sk-[A-Za-z0-9_-]{17,}",
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"A[KS]IA[0-9A-Z]{16}(?![A-Za-z0-9])",
    r"AIza[A-Za-z0-9_-]{35}",
    r"xox[abeprs]-[A-Za-z0-9-]{15,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"npm_[A-Za-z0-9]{30,}",
    r"hf_[A-Za-z0-9]{30,}",
    r"pypi-[A-Za-z0-9_-]{16,}",
    r"(?:xai-|gsk_)[A-Za-z0-9]{20,}",
    r"eyJ[A-Za-z0-9_-]{17,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}",
)
_TOKEN = r"(?<![A-Za-z0-9])(?:" + "|".join(_SHAPES) + ")"
_HEADER = r"(?i:authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token|digest)\s{1,3})?)([^\s\"'\[\]]{8,})"
_KEY = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
_PASSES_MAX = 4
"""Maximum number of passes: a replacement can uncover an adjacent token. More than two have not been seen."""


def redactor(secrets: Sequence[str], nonce: str, patterns: Sequence[str] = ()) -> Callable[[str], str]:
    """Return a function that replaces secrets in a text by markers; it returns the same object without secrets.

    `secrets`: known values. `patterns`: the user's own regular expressions. Idempotent, and deterministic for a nonce,
    so that a resumed session stores the same bytes.
    """
    frame = f"[longrein:{nonce} secret: "
    known = sorted({s for s in secrets if len(s) >= SECRET_CHARS_MIN and s not in frame}, key=lambda s: (-len(s), s))
    own = [re.compile(pattern) for pattern in patterns]

    def marked(secret: str) -> str:
        return f"{frame}{hashlib.sha256((nonce + secret).encode('utf-8', 'surrogatepass')).hexdigest()[:8]}]"

    def redact(text: str) -> str:
        for secret in known:
            if secret in text:
                text = text.replace(secret, marked(secret))
        for pattern in own:
            text = _outside(pattern, text, frame, marked)
        return _tokens_out(text, frame, marked) if suspicious(text) else text

    return redact


def redact(text: str, secrets: Sequence[str], nonce: str) -> str:
    """Replace secrets in `text`. For many texts use one `redactor`."""
    return redactor(secrets, nonce)(text)


def suspicious(text: str) -> bool:
    """Return True if `text` may contain a secret. About 1 µs per kB for ordinary text."""
    if "PRIVATE KEY-----" in text or "uthorization" in text or "UTHORIZATION" in text:
        return True
    data = text.encode("utf-8", "surrogatepass")
    mask = data.translate(_MASK)
    start = mask.find(_RUN)
    while start >= 0:
        end = mask.find(b" ", start)
        end = len(mask) if end < 0 else end
        if _may_begin(data, start, end) and re.compile(_BEGINNING).search(data, start, end):
            return True
        start = mask.find(_RUN, end)
    return False


def _may_begin(data: bytes, start: int, end: int) -> bool:
    """Return True if a range may match `_BEGINNING`: a fast test, ten times faster than the full search."""
    find = data.find
    return (
        find(b"-", start, end) >= 0
        or find(b"_", start, end) >= 0
        or find(b"A", start, end) >= 0
        or find(b"eyJ", start, end) >= 0
    )


def _tokens_out(text: str, frame: str, marked: Callable[[str], str]) -> str:
    for _ in range(_PASSES_MAX):
        before = text
        for shape in (_KEY, _HEADER, _TOKEN):
            text = _outside(re.compile(shape), text, frame, marked)
        if text == before:
            break
    return text


def _outside(pattern: re.Pattern[str], text: str, frame: str, marked: Callable[[str], str]) -> str:
    """Replace matches of `pattern`, or of its first group if it has one, except inside a marker."""

    def replaced(match: re.Match[str]) -> str:
        group = 1 if pattern.groups and match[1] is not None else 0
        secret = match[group]
        if not secret or secret.startswith("[longrein:"):
            return match[0]
        return match[0].replace(secret, marked(secret)) if group else marked(secret)

    pieces = re.split("(" + re.escape(frame) + r"[0-9a-f]{8}\])", text)
    return "".join(piece if i % 2 else pattern.sub(replaced, piece) for i, piece in enumerate(pieces))
