"""What was asked for, on stdout, whole."""

import io
import os
from typing import Any, BinaryIO

from longrein.events import LongreinError
from longrein.frontends.safe import escape_bytes


def show(text: str | bytes) -> None:
    """Write all of `text` to stdout, as UTF-8 whatever the locale; on a terminal escapes and controls are shown, not
    obeyed. Raises BrokenPipeError when its reader has left, and `LongreinError` where it takes no more, such as a full
    disk."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    try:
        data = escape_bytes(data) if os.isatty(1) else data
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise LongreinError(f"stdout cannot be written: {error.strerror}") from None


def stdout_file() -> BinaryIO:
    """stdout as a file for many lines; on a terminal it takes whole lines only. Closing it leaves stdout open."""
    return _Terminal() if os.isatty(1) else open(1, "wb", closefd=False)


class _Terminal(io.BytesIO):
    def write(self, data: Any, /) -> int:
        show(bytes(data))
        return len(data)
