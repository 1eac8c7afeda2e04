r"""Text from outside never reaches the terminal raw: what is unseen, or would move the cursor, is shown as `\x1b`."""

from longrein.permissions import escape

__all__ = ["escape", "escape_line"]


def escape_line(text: str) -> str:
    r"""`text` escaped for one line: newline and tab are written as `\n` and a space."""
    return escape(text).replace("\n", "\\n").replace("\t", " ")
