"""Count work independently of the load of the machine: files opened, functions called, operations
run."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_watching: list[list[tuple[str, bool]]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if len(_watching) > 1 and event == "open" and isinstance(arguments[0], str | bytes):
        path = (
            arguments[0].decode(errors="replace")
            if isinstance(arguments[0], bytes)
            else arguments[0]
        )
        _watching[-1].append((path, threading.current_thread() is threading.main_thread()))


@contextmanager
def files_opened() -> Iterator[list[tuple[str, bool]]]:
    """Record each file that this process opens inside the block: (path, whether the main thread
    opened it).
    """
    if not _watching:
        _watching.append([])
        sys.addaudithook(_hook)  # an audit hook cannot be removed
    found: list[tuple[str, bool]] = []
    _watching.append(found)
    try:
        yield found
    finally:
        _watching.pop()


@contextmanager
def functions_called(counts: list[int]) -> Iterator[None]:
    """Append to `counts` the number of functions that this thread calls inside the block, Python
    and C.
    """
    count = 0

    def hook(_frame: object, kind: str, _argument: object) -> None:
        nonlocal count
        count += kind in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        yield
    finally:
        sys.setprofile(before)
        counts.append(count)


@contextmanager
def operations_run(counts: list[int]) -> Iterator[None]:
    """Append to `counts` the number of bytecode operations that this thread runs inside the block.

    Loops count however they are written; a call into C counts as one.
    """
    count = 0

    def watch(frame: FrameType, kind: str, _argument: object) -> object:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += kind == "opcode"
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)
        counts.append(count)
