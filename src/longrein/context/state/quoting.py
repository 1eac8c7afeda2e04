"""Text from outside in what the harness writes: quoted, without markers, tags and characters
that cannot be seen.
"""

import re

from longrein.events import marker_sign
from longrein.events.escape import escape

_QUOTES = (
    " ",
    "+",
    "-",
)  # First characters of diff lines. Such lines cannot be taken for the harness's own.


def quote_external(text: str, nonce: str) -> str:
    """Quote external `text` so that no line looks like the harness's own; a diff stays as it is."""
    safe = neutralize_markers(text, nonce)
    lines = safe.split("\n") if safe else []
    if all(line.startswith(_QUOTES) for line in lines):
        return safe
    return "\n".join(f"| {line}" for line in lines)


_FOREIGN = re.compile(
    r"<(?=\s{0,3}[/｜|]?\s{0,3}(?:system-?_?reminder|tool_?(?:results?|responses?|outputs?|calls?|use)|function_?(?:calls?|results?)|"
    r"invoke\b|antml|im_(?:start|end)|(?:start|end)_of_turn)|[|｜]|<SYS>>|</SYS>>)|"
    r"\[(?=/?INST\]|longrein:)",
    re.IGNORECASE,
)
"""Beginnings of tags and tokens by which harnesses and chat templates speak to a model,
longrein's own among them.
"""


def neutralize_markers(text: str, nonce: str) -> str:
    """Break the harness's sign, with any nonce, and tags and tokens of other harnesses, in `text`
    (rule 8).

    Characters that cannot be seen are written out.
    """
    text = escape(text)
    sign = marker_sign(nonce)
    if sign in text:
        text = text.replace(sign, f"{sign[0]}·{sign[1:]}")
    return _FOREIGN.sub(lambda match: f"{match[0]}·", text)
