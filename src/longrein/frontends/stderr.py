"""One line for the person, on stderr."""

import os


def say(line: str) -> None:
    """Write `line` to stderr, whatever the locale and whatever stands in it; nothing when stderr is gone."""
    shown = "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in line)
    data = f"longrein: {shown}\n".encode("utf-8", "replace")
    try:
        os.write(2, data)
    except OSError:
        return
