"""Providers: a neutral request goes in, a stream of deltas comes out; one adapter per wire."""

from longrein.models.catalog import Provider, known_models, known_provider, known_providers, look_up
from longrein.models.cost import cost_usd
from longrein.models.failures import kind_of, limit_tokens
from longrein.models.naming import family, wire_call_id
from longrein.models.opening import open_model
from longrein.models.port import (
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
)
from longrein.models.probe import offered_models
from longrein.models.retry import ATTEMPTS_MAX, pause_s
from longrein.models.script import Script, read_script
from longrein.models.scripted import ScriptedModel

__all__ = [
    "ATTEMPTS_MAX",
    "CallDelta",
    "Clock",
    "Delta",
    "Failure",
    "Model",
    "ModelOptions",
    "Provider",
    "ReadBlob",
    "Reply",
    "Script",
    "ScriptedModel",
    "TextDelta",
    "ThinkingDelta",
    "cost_usd",
    "family",
    "kind_of",
    "known_models",
    "known_provider",
    "known_providers",
    "limit_tokens",
    "look_up",
    "offered_models",
    "open_model",
    "pause_s",
    "read_script",
    "wire_call_id",
]
