"""From options to a model: the one place that knows all wires."""

import importlib
from typing import Any

import msgspec

from longrein.events import SettingsError
from longrein.models.catalog import look_up
from longrein.models.port import Clock, Model, ModelOptions, ReadBlob
from longrein.models.wire import Wire, WireTarget

WIRES = {
    "anthropic": ("anthropic", "Anthropic"),
    "openai-chat": ("openai_chat", "OpenAIChat"),
    "openai-responses": ("openai_responses", "OpenAIResponses"),
    "gemini": ("gemini", "Gemini"),
}
"""Wire name -> what speaks it, imported when it is chosen: a session has one, and each is dear."""
CLEARS: dict[str, tuple[str, ...]] = {
    "anthropic": ("result", "call", "text", "old thinking"),
    "openai-chat": ("result", "call", "text", "thinking"),
    "openai-responses": ("result", "text"),
    "gemini": ("result", "text", "old thinking"),
}
"""What a wire tolerates being cleared. Signed thinking of the running turn must stay on the Messages API; a reasoning
item of the Responses API must be followed by its call; a signature of Gemini belongs to the very call it came with."""


def open_model(options: ModelOptions, read_blob: ReadBlob, clock: Clock) -> Model:
    """The model that `options` describe. Opens no socket and reads no file but a script.

    Raises `SettingsError` for a wire that does not exist and for a script that cannot be read.
    """
    if options.wire == "scripted":
        played: Model = _import("scripted").ScriptedModel(
            _import("scripted").load_script(options.base_url, _read_file), options, clock
        )
        return played
    if options.wire not in WIRES:
        known = ", ".join((*WIRES, "scripted"))
        raise SettingsError(f"provider {options.provider!r} has the unknown wire {options.wire!r}; wires are {known}")
    text_tools = _import("text_tool_calls") if options.text_tools else None
    stops = text_tools.STOPS if text_tools else ()
    target = WireTarget(options.wire, options.model, read_blob, host_of(options.base_url), options.effort, stops)
    budget = options.budget or look_up(options.provider, options.model)
    budget = msgspec.structs.replace(budget, clears=CLEARS[options.wire])
    model: Model = _import("http_model").HttpModel(make_wire(target), options, budget, clock)
    return text_tools.TextToolModel(model) if text_tools else model


def make_wire(target: WireTarget) -> Wire:
    """What speaks the wire that `facing` names."""
    module, name = WIRES[target.wire]
    wire: Wire = getattr(_import(module), name)(target)
    return wire


def _import(name: str) -> Any:
    return importlib.import_module(f"longrein.models.{name}")


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def host_of(url: str) -> str:
    """The host in `url`, without port and credentials."""
    rest = url.split("://", 1)[-1].split("/", 1)[0].rsplit("@", 1)[-1]
    return rest.rsplit(":", 1)[0].lower() if not rest.startswith("[") else rest.split("]")[0] + "]"


# ---------------------------------------------------------------------------------------------------------------------
#
# Asking a server which models it offers: how a local one on its usual port is found without any settings.


LIST_CONNECT_S = 0.2
"""A server on this machine accepts at once or is not there."""
LIST_TIMEOUT_S = 1.0
"""A server that is loading a model answers late."""
LIST_BYTES_MAX = 4 << 20
"""A longer list is none."""
_OTHER_USES = ("embed", "rerank", "whisper", "tts", "clip")


class _Offer(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Offers(msgspec.Struct):
    data: list[_Offer] | None = None
    models: list[_Offer] | None = None


def offered_models(base_url: str) -> tuple[str, ...]:
    """Names of the models that the server at `base_url` offers for conversation; () where none answers in time.

    Blocks for at most `CONNECT_S + ANSWER_S`. Never raises for what the server does.
    """
    import httpx2

    timeout = httpx2.Timeout(LIST_TIMEOUT_S, connect=LIST_CONNECT_S)
    try:
        with (
            httpx2.Client(verify=base_url.startswith("https:"), trust_env=False, timeout=timeout) as client,
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
    return tuple(name for name in names if name and not any(word in name.lower() for word in _OTHER_USES))
