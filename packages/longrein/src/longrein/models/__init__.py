"""Model providers: send a neutral request, receive a stream of deltas. One module per wire."""

from typing import TYPE_CHECKING

from longrein.models.catalog import (
    CLEARS,
    Provider,
    cost_usd,
    is_trained_on_patches,
    known_models,
    known_provider,
    known_providers,
    look_up,
    model_budget,
    open_model,
    settled_usage,
    usual_price,
)
from longrein.models.failures import ATTEMPTS_MAX, pause_s
from longrein.models.local_server import ServedModel, find_served, offered_models
from longrein.models.model_port import (
    TEXT_WIRE,
    CallDelta,
    Clock,
    Delta,
    Failure,
    Model,
    ModelOptions,
    ReadBlob,
    Reply,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
    forget_encoded,
    key_source,
    served_as,
)
from longrein.models.wire_base import WEB_SEARCH, can_search_web, family, wire_call_id
from longrein_context.lazy_names import names_at_first_use

if TYPE_CHECKING:
    from longrein.models.scripted import ScriptFile, ScriptFileModel, read_script
    from longrein.models.text_tool_calls import balanced_object, repair_arguments

__getattr__ = names_at_first_use(
    __name__,
    {
        "scripted": "ScriptFile ScriptFileModel read_script",
        "text_tool_calls": "balanced_object repair_arguments",
    },
)

__all__ = [
    "ATTEMPTS_MAX",
    "CLEARS",
    "TEXT_WIRE",
    "WEB_SEARCH",
    "CallDelta",
    "Clock",
    "Delta",
    "Failure",
    "Model",
    "ModelOptions",
    "Provider",
    "ReadBlob",
    "Reply",
    "ScriptFile",
    "ScriptFileModel",
    "ServedModel",
    "TextDelta",
    "ThinkingDelta",
    "UsageDelta",
    "balanced_object",
    "can_search_web",
    "cost_usd",
    "family",
    "find_served",
    "forget_encoded",
    "is_trained_on_patches",
    "key_source",
    "known_models",
    "known_provider",
    "known_providers",
    "look_up",
    "model_budget",
    "offered_models",
    "open_model",
    "pause_s",
    "read_script",
    "repair_arguments",
    "served_as",
    "settled_usage",
    "usual_price",
    "wire_call_id",
]
