"""Providers: a neutral request goes in, a stream of deltas comes out; one adapter per wire."""

import importlib
from typing import Any

from longrein.models.catalog import (
    Provider,
    known_models,
    known_provider,
    known_providers,
    look_up,
    model_budget,
    usual_price,
)
from longrein.models.cost import cost_usd, settled_usage
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
    "model_budget",
    "offered_models",
    "open_model",
    "pause_s",
    "read_script",
    "settled_usage",
    "usual_price",
    "wire_call_id",
]


_LATER = {"Script": "script", "ScriptedModel": "scripted", "read_script": "script"}
"""Public name -> where it stands, for what only the demo and tests need."""


def __getattr__(name: str) -> Any:
    """Names of `_LATER`, imported at first use."""
    if name in _LATER:
        return getattr(importlib.import_module(f"longrein.models.{_LATER[name]}"), name)
    raise AttributeError(f"longrein.models has no public name {name!r}")
