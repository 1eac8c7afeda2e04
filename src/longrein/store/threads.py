"""Work that takes its time, beside the event loop and the writer: each in a thread of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], name: str) -> "Future[T]":
    """Begin `work` in a thread called `longrein-<name>`; resolves as it does.

    Whoever stops waiting lets the thread finish.
    """
    future: Future[T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:  # the thread's end is the caller's news, whatever it is
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=f"longrein-{name}", daemon=True).start()
    return future
