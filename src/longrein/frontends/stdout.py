"""What was asked for, on stdout, whole."""

import os

from longrein.events import LongreinError


def show(text: str | bytes) -> None:
    """Write all of `text` to stdout, as UTF-8 whatever the locale. Raises BrokenPipeError when its reader has left, and
    `LongreinError` where it takes no more, such as a full disk."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise LongreinError(f"stdout cannot be written: {error.strerror}") from None
