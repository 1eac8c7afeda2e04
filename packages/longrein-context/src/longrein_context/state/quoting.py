"""Text from outside in what the harness writes: quoted, without markers, tags and characters
that cannot be seen.
"""

import re

from longrein_context.events import AnyPart, Text, marker_sign, without_sign
from longrein_context.events.escape import escape

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


def closed_note(text: str, nonce: str) -> str:
    """Return a note of the harness; one of several lines with a mark of its end.

    Several wires join a note and the user's words to one text.
    """
    is_open = "\n" in text and text.startswith(f"[{marker_sign(nonce)}")
    return f"{text}\n[{marker_sign(nonce)} end]" if is_open else text


def user_part(part: AnyPart, nonce: str) -> AnyPart:
    """Return a part of the user's words in which the harness's sign, if it occurs, is broken."""
    if not isinstance(part, Text) or marker_sign(nonce) not in part.text:
        return part
    return Text(without_sign(part.text, nonce))


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
    return _FOREIGN.sub(lambda match: f"{match[0]}·", without_sign(text, nonce))
