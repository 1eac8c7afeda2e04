"""Control requests between longrein and the program that runs it, over the same lines as the
messages.

Both sides ask and answer: `{"type": "control_request", "request_id": …, "request": {"subtype": …}}`
and `{"type": "control_response", "response": {"subtype": "success" | "error", "request_id": …}}`.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from longrein.frontends.headless.stream_json_blocks import Line


class ControlError(Exception):
    """A control request that failed; its text is one line for the user."""


class ControlRequest(msgspec.Struct, frozen=True):
    """A request of the program."""

    id: str
    request: Mapping[str, Any]

    @property
    def subtype(self) -> str:
        return str(self.request.get("subtype") or "")


class ControlResponse(msgspec.Struct, frozen=True):
    """The program's answer to a request of longrein."""

    id: str
    response: Any = None
    error: str = ""
    """Reason why the request failed; '' for a success."""


def success_line(request: str, response: Mapping[str, Any]) -> Line:
    """Return the line that answers control request `request`."""
    answer = {"subtype": "success", "request_id": request, "response": dict(response)}
    return {"type": "control_response", "response": answer}


def error_line(request: str, error: str) -> Line:
    """Return the line that refuses control request `request`."""
    return {
        "type": "control_response",
        "response": {"subtype": "error", "request_id": request, "error": error},
    }


class ControlChannel:
    """Sends requests to the program and matches its answers to them."""

    def __init__(self, put: Callable[[Line], None]) -> None:
        """`put` writes one line to the program."""
        self._put = put
        self._waiting: dict[str, asyncio.Future[ControlResponse]] = {}
        self._count = 0
        self._closed = ""

    @property
    def is_closed(self) -> bool:
        return bool(self._closed)

    async def request(self, subtype: str, fields: Mapping[str, Any]) -> Any:
        """Send a request and return its answer. Raises `ControlError`.

        There is no time limit, as a person may have to answer. A request that is cancelled here is
        cancelled there.
        """
        if self._closed:
            raise ControlError(self._closed)
        self._count += 1
        number = f"longrein_{self._count}"
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._put(
            {
                "type": "control_request",
                "request_id": number,
                "request": {"subtype": subtype, **fields},
            }
        )
        try:
            response = await answer
        except asyncio.CancelledError:
            self._put({"type": "control_cancel_request", "request_id": number})
            raise
        finally:
            self._waiting.pop(number, None)
        if response.error:
            raise ControlError(response.error)
        return response.response

    def receive(self, response: ControlResponse) -> None:
        """Take an answer; one to no open request is ignored."""
        waiting = self._waiting.get(response.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(response)

    def close(self, why: str) -> None:
        """Fail the open requests and all later ones: nobody will answer."""
        self._closed = self._closed or why
        for number, waiting in self._waiting.items():
            if not waiting.done():
                waiting.set_result(ControlResponse(number, error=why))


class ControlOptions(msgspec.Struct, frozen=True):
    """Parts that serve a program which runs longrein."""

    channel: ControlChannel | None = None
    """For requests to the program, if the caller has begun to use one."""
    waits: bool = False
    """True if a turn that was cut is continued by the first message only, and not at once."""
    terminal_commands: Callable[[], Collection[str]] = tuple
    """Names of the slash commands of the terminal."""


NO_PROGRAM = ControlOptions()
