"""Run slow work in a thread of its own, beside the event loop and the writer thread."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(work: Callable[[], T], name: str) -> "Future[T]":
    """Start `work` in a daemon thread called `longrein-<name>`; return a future of its result.

    Cancelling the future does not stop the thread once `work` has begun.
    """
    future: Future[T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:  # every error, also SystemExit, belongs to the caller
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=f"longrein-{name}", daemon=True).start()
    return future
