"""Open a model from its options, and ask a server which models it offers. The only module that
knows all wires.
"""

from typing import Any

import msgspec

from longrein.events import SettingsError
from longrein.models.catalog import look_up
from longrein.models.model_port import Clock, Model, ModelOptions, ReadBlob
from longrein.models.wire_base import Wire, WireTarget

CLEARS: dict[str, tuple[str, ...]] = {
    "anthropic": ("exchange", "result", "call", "text", "old thinking"),
    "openai-chat": ("exchange", "result", "call", "text", "thinking"),
    "openai-responses": ("exchange", "result", "call", "text", "old thinking"),
    "gemini": ("exchange", "result", "text", "old call", "old thinking"),
}
"""Kinds of items that may be cleared on a wire. The Messages API and the Responses API want the
thinking of the running turn with its calls; a Gemini signature belongs to one call, and only
those of the running turn are required.
"""


def open_model(options: ModelOptions, read_blob: ReadBlob, clock: Clock) -> Model:
    """Open the model that `options` describe. Opens no socket; reads a file only for a scripted
    model.

    Raises `SettingsError` for an unknown wire and for a script that cannot be read.
    """
    if options.wire == "scripted":
        from longrein.models.scripted import ScriptedModel, load_script

        return ScriptedModel(load_script(options.base_url, _read_file), options, clock)
    if options.wire not in CLEARS:
        known = ", ".join((*CLEARS, "scripted"))
        raise SettingsError(
            f"provider {options.provider!r} has the unknown wire {options.wire!r}; wires are "
            f"{known}"
        )
    from longrein.models.http_model import HttpModel

    budget = options.budget or look_up(options.provider, options.model)
    budget = msgspec.structs.replace(budget, clears=CLEARS[options.wire])
    target = WireTarget(
        options.wire, options.model, read_blob, host_of(options.base_url), options.effort
    )
    if not options.text_tools:
        return HttpModel(make_wire(target), options, budget, clock)
    from longrein.models.text_tool_calls import STOPS, TextToolModel

    return TextToolModel(
        HttpModel(make_wire(msgspec.structs.replace(target, stops=STOPS)), options, budget, clock)
    )


def make_wire(target: WireTarget) -> Wire:
    """Make the wire that `target` names. A wire is imported when it is used, because imports are
    slow.
    """
    match target.wire:
        case "anthropic":
            from longrein.models.anthropic import Anthropic

            return Anthropic(target)
        case "openai-chat":
            from longrein.models.openai_chat import OpenAIChat

            return OpenAIChat(target)
        case "openai-responses":
            from longrein.models.openai_responses import OpenAIResponses

            return OpenAIResponses(target)
        case _:
            from longrein.models.gemini import Gemini

            return Gemini(target)


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def host_of(url: str) -> str:
    """Return the host in `url`, without port and credentials."""
    rest = url.split("://", 1)[-1].split("/", 1)[0].rsplit("@", 1)[-1]
    return rest.rsplit(":", 1)[0].lower() if not rest.startswith("[") else rest.split("]")[0] + "]"


# --- Models of a local server ---------------------------------------------------------------------
#
# A local server on its usual port is found without settings.


LIST_CONNECT_S = 0.2
"""Connect timeout; a server on this machine accepts at once."""
LIST_TIMEOUT_S = 1.0
"""Answer timeout; a server that is loading a model answers late."""
LIST_BYTES_MAX = 4 << 20
"""Longest list that is read."""
_OTHER_USES = ("embed", "rerank", "whisper", "tts", "clip")


class _Offer(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Offers(msgspec.Struct):
    data: list[_Offer] | None = None
    models: list[_Offer] | None = None


def offered_models(base_url: str) -> tuple[str, ...]:
    """Ask the server at `base_url` for its chat models; () if no server answers in time.

    Blocks for at most `LIST_CONNECT_S + LIST_TIMEOUT_S`. Never raises for errors of the server.
    """
    import httpx2

    timeout = httpx2.Timeout(LIST_TIMEOUT_S, connect=LIST_CONNECT_S)
    try:
        with (
            httpx2.Client(
                verify=base_url.startswith("https:"), trust_env=False, timeout=timeout
            ) as client,
            client.stream("GET", f"{base_url.rstrip('/')}/models") as response,
        ):
            return _names(_body(response)) if response.status_code == 200 else ()
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return ()


def _body(response: Any) -> bytes:
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > LIST_BYTES_MAX:
            return b""
    return body


def _names(body: bytes) -> tuple[str, ...]:
    try:
        offers = msgspec.json.decode(body, type=_Offers)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    names = [offer.id or offer.name for offer in offers.data or offers.models or ()]
    return tuple(
        name for name in names if name and not any(word in name.lower() for word in _OTHER_USES)
    )
