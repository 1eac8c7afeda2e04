r"""Text from outside never reaches the terminal raw: what is unseen, or would move the cursor, is shown as `\x1b`."""

from longrein.permissions import escape

__all__ = ["escape", "escape_bytes", "escape_line"]


def escape_line(text: str) -> str:
    r"""`text` escaped for one line: newline and tab are written as `\n` and a space."""
    return escape(text).replace("\n", "\\n").replace("\t", " ")


def escape_bytes(data: bytes) -> bytes:
    r"""UTF-8 for a terminal, where bytes go as they are to files and pipes: text, or JSON, whose values stay the same.

    Everything unseen is written as `\u001b`, what needs more digits as two of these; CRLF becomes a newline.
    """
    return escape(data.decode("utf-8", "replace").replace("\r\n", "\n"), _as_json).encode()


def _as_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
