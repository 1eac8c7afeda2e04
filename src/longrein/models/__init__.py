"""Providers: a neutral request goes in, a stream of deltas comes out; one adapter per wire."""

from longrein.models.port import (
    CallDelta,
    Delta,
    Failure,
    Model,
    ModelOptions,
    ReadBlob,
    Reply,
    TextDelta,
    ThinkingDelta,
)

__all__ = [
    "CallDelta",
    "Delta",
    "Failure",
    "Model",
    "ModelOptions",
    "ReadBlob",
    "Reply",
    "TextDelta",
    "ThinkingDelta",
]
