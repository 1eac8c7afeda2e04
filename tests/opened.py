"""Count the files that this process opens: a measure of work that does not depend on the machine's load."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_watching: list[list[tuple[str, bool]]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event == "open" and isinstance(arguments[0], str | bytes):
        path = arguments[0].decode(errors="replace") if isinstance(arguments[0], bytes) else arguments[0]
        _watching[-1].append((path, threading.current_thread() is threading.main_thread()))


sys.addaudithook(_hook)


@contextmanager
def files_opened() -> Iterator[list[tuple[str, bool]]]:
    """Each file opened inside the block: its path, and whether the main thread did it."""
    found: list[tuple[str, bool]] = []
    _watching.append(found)
    try:
        yield found
    finally:
        _watching.pop()
