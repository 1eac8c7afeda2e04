"""From options to a model: the one place that knows all wires."""

from collections.abc import Callable

import msgspec

from longrein.events import SettingsError
from longrein.models.anthropic import Anthropic
from longrein.models.catalog import look_up
from longrein.models.gemini import Gemini
from longrein.models.http_model import HttpModel
from longrein.models.openai_chat import OpenAIChat
from longrein.models.openai_responses import OpenAIResponses
from longrein.models.port import Clock, Model, ModelOptions, ReadBlob
from longrein.models.script import load_script
from longrein.models.scripted import ScriptedModel
from longrein.models.text_tools import STOPS, TextTools
from longrein.models.wire import Facing, Wire

WIRES: dict[str, Callable[[Facing], Wire]] = {
    "anthropic": Anthropic,
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "gemini": Gemini,
}
"""Wire name -> what speaks it."""
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
        return ScriptedModel(load_script(options.base_url, _file), options, clock)
    make = WIRES.get(options.wire)
    if make is None:
        known = ", ".join((*WIRES, "scripted"))
        raise SettingsError(f"provider {options.provider!r} has the unknown wire {options.wire!r}; wires are {known}")
    stops = STOPS if options.text_tools else ()
    facing = Facing(options.wire, options.model, read_blob, host_of(options.base_url), options.effort, stops)
    budget = options.budget or look_up(options.provider, options.model)
    budget = msgspec.structs.replace(budget, clears=CLEARS[options.wire])
    model = HttpModel(make(facing), options, budget, clock)
    return TextTools(model) if options.text_tools else model


def _file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def host_of(url: str) -> str:
    """The host in `url`, without port and credentials."""
    rest = url.split("://", 1)[-1].split("/", 1)[0].rsplit("@", 1)[-1]
    return rest.rsplit(":", 1)[0].lower() if not rest.startswith("[") else rest.split("]")[0] + "]"
