"""Names that cross a wire: our call ids in each provider's alphabet, tool names, and which models are one family."""

import re

TOOL_NAME_CHARS_MAX = 64
"""The shortest limit among providers."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NOT_NAME = r"[^a-zA-Z0-9_-]"
_DATED = r"(-20\d{2}-?\d{2}-?\d{2}|-\d{4}|-latest|-preview(-\d{2}-\d{2,4})?|-exp)+$"


def wire_call_id(call: str) -> str:
    """Our call id `c5.0` as `c5_0`: letters, digits and `_` are what every provider takes."""
    return call.replace(".", "_")


def short_call_id(call: str) -> str:
    """Our call id `c5.0` as the nine letters and digits that Mistral's models demand.

    Six for the seq and three for the index, to the base of 36.
    """
    seq, _, index = call.removeprefix("c").partition(".")
    return _based(seq, 6) + _based(index, 3)


def _based(number: str, width: int) -> str:
    value, text = int(number) if number.isdecimal() else 0, ""
    for _ in range(width):
        value, digit = divmod(value, 36)
        text = _DIGITS[digit] + text
    return text


def wire_tool_name(name: str) -> str:
    """A tool name that providers take back: a model may have invented one they would refuse in every later request."""
    if name.isidentifier() and name.isascii() and len(name) <= TOOL_NAME_CHARS_MAX:
        return name
    return re.sub(_NOT_NAME, "_", name)[:TOOL_NAME_CHARS_MAX] or "unnamed"


def family(model: str) -> str:
    """What a model and its dated, tagged or routed spellings have in common.

    `anthropic/claude-sonnet-4.5:thinking` and `claude-sonnet-4-5-20250929` are both `claude-sonnet-4-5`. Signed or
    encrypted reasoning goes back only inside a family.
    """
    name = model.lower().rsplit("/", 1)[-1].split(":", 1)[0].split("@", 1)[0].replace(".", "-")
    return re.sub(_DATED, "", name) or name
