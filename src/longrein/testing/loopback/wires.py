"""The wires by their paths, and what each says for an error that no rule caused."""

import re
from collections.abc import Callable

import msgspec

from longrein.testing.loopback import (
    anthropic,
    anthropic_stream,
    chat,
    chat_stream,
    gemini,
    gemini_stream,
    responses,
    responses_stream,
)
from longrein.testing.loopback.answering import Answering
from longrein.testing.loopback.judging import Asking, Case, Refused
from longrein.testing.loopback.limits import Rules
from longrein.testing.loopback.script import Turn


class Wire(msgspec.Struct, frozen=True):
    """One protocol."""

    name: str
    ask: Callable[[Case], Asking]
    """Takes a request apart and judges it."""
    refusal: Callable[[Refused], tuple[int, bytes]]
    """Status and body of an error."""
    events: Callable[[Turn, Answering], list[bytes]]
    """The whole stream of an answer."""
    error_event: Callable[[int, str, str], bytes]
    """(status, word, text) -> an error in mid-stream."""


_WIRES: tuple[tuple[str, Wire], ...] = (
    (
        r"(?:/v1)?/messages",
        Wire("anthropic", anthropic.ask, anthropic.refusal, anthropic_stream.events, anthropic_stream.error_event),
    ),
    (
        r"(?:/\w+)*/chat/completions",
        Wire("openai-chat", chat.ask, chat.refusal, chat_stream.events, chat_stream.error_event),
    ),
    (
        r"(?:/\w+)*/responses",
        Wire(
            "openai-responses", responses.ask, responses.refusal, responses_stream.events, responses_stream.error_event
        ),
    ),
    (
        r"(?:/\w+)*/models/(?P<model>[^/:]+):streamGenerateContent",
        Wire("gemini", gemini.ask, gemini.refusal, gemini_stream.events, gemini_stream.error_event),
    ),
)


def wire_of(path: str) -> tuple[Wire, str] | None:
    """The wire that is spoken at `path`, and the model that the path names."""
    for pattern, wire in _WIRES:
        if match := re.fullmatch(pattern, path.partition("?")[0]):
            return wire, match["model"] if "model" in match.re.groupindex else ""
    return None


_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "authorization", "api-key")
_NO_KEY = {
    "anthropic": Refused("invalid x-api-key", status=401, kind="authentication_error"),
    "gemini": Refused("API key not valid. Please pass a valid API key.", status=400),
}


def check_headers(wire: Wire, headers: dict[str, str], path: str, rules: Rules) -> None:
    """Refuses a wrong key and a missing version."""
    if rules.keys:
        given = [headers.get(name, "").removeprefix("Bearer ") for name in _KEY_HEADERS]
        given.append(path.rpartition("key=")[2])
        if not any(key in rules.keys for key in given):
            shown = next((key for key in given if key), "")[:4]
            raise _NO_KEY.get(wire.name) or Refused(
                f"Incorrect API key provided: {shown}***. You can find your API key at "
                "https://platform.openai.com/account/api-keys.",
                status=401,
                code="invalid_api_key",
            )
    if wire.name == "anthropic" and not rules.lenient and not headers.get("anthropic-version"):
        raise Refused("anthropic-version: header is required")


ERROR_TEXTS = {
    400: "Bad request",
    401: "invalid x-api-key",
    402: "Your credit balance is too low to access the API. Please go to Plans & Billing.",
    403: "Your API key does not have permission to use the specified resource.",
    404: "The requested resource could not be found.",
    408: "Request timed out",
    413: "Request exceeds the maximum size",
    429: "This request would exceed your organization's rate limit. Please try again later.",
    500: "Internal server error",
    502: "Bad gateway",
    503: "The service is temporarily unavailable.",
    504: "Timed out",
    529: "Overloaded",
}
"""Status -> what a provider says with it."""


def status_error(wire: Wire, status: int) -> bytes:
    """The body of an error that has nothing to do with the request."""
    return wire.refusal(Refused(ERROR_TEXTS.get(status, f"HTTP {status}"), status=status))[1]
