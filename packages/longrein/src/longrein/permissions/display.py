r"""Safe display of text from outside: `escape` for every screen, `visible` for text that a person
must approve.

Both write invisible and cursor-moving characters as `\x1b`, `\u202e`, `\U000e0041`. Letters of
every script and emoji with their joiners are kept.
"""

import re
from typing import Any

from longrein_context.events.escape import JOINERS, SELECTORS, count_unseen, escape, written

_BLANKS = r"[ \t\u3000]{33,}"
_LINES = r"\n(?:[ \t]*\n){3,}"
_KEPT = "\n\t\u3000" + JOINERS + SELECTORS


def visible(text: str) -> str:
    """Return `text` for approval: escaped, with long gaps replaced by their length.

    Also escapes blanks that a shell takes for letters (U+00A0), and characters that the terminal
    may not be able to show (unassigned, private).
    """
    text = escape(text)
    if not (text.isascii() or text.isprintable()):
        text = "".join(c if c.isprintable() or c in _KEPT else written(c) for c in text)
    text = re.compile(_LINES).sub(lambda m: f"\n[{m[0].count(chr(10))} line breaks]\n", text)
    return re.compile(_BLANKS).sub(lambda m: f" [{len(m[0])} blanks] ", text)


def shown_call(arguments: dict[str, Any]) -> str:
    """Return the text that the user approves: the command alone, or each argument with its name.

    Characters that cannot be seen are written out, and a first line tells their number.
    """
    note, text = unseen_note(arguments), _shown_arguments(arguments)
    return f"{note}\n{text}" if note else text


def unseen_note(arguments: dict[str, Any]) -> str:
    """Return a line with the number of characters that cannot be seen; '' for none."""
    count = sum(count_unseen(str(part)) for pair in arguments.items() for part in pair)
    return (
        f"[{count} character{'s' * (count > 1)} that cannot be seen, written out below]"
        if count
        else ""
    )


def _shown_arguments(arguments: dict[str, Any]) -> str:
    if isinstance(arguments.get("command"), str):
        rest = {
            k: v for k, v in arguments.items() if k not in ("command", "description", "timeout")
        }
        return "\n".join(
            [
                visible(arguments["command"]),
                *(_argument(k, v) for k, v in rest.items() if v is not None),
            ]
        )
    return "\n".join(_argument(k, v) for k, v in arguments.items() if v is not None)


def _argument(name: str, value: object) -> str:
    text = visible(value if isinstance(value, str) else repr(value))
    return f"{visible(name)}:\n{text}" if "\n" in text else f"{visible(name)}: {text}"
