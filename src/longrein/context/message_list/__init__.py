"""The engine under somebody else's loop: a list of messages in, the list to be sent out. Pure like all of `context`."""

from longrein.context.message_list.engine import (
    RECALL,
    RECALL_DESCRIPTION,
    RECALL_SCHEMA,
    Engine,
    EngineEnvironment,
    Summariser,
)
from longrein.context.message_list.message_formats import (
    DICT_FORMAT,
    DictFormat,
    MessageFormat,
    NeutralMessage,
    usage_of,
)

__all__ = [
    "DICT_FORMAT",
    "RECALL",
    "RECALL_DESCRIPTION",
    "RECALL_SCHEMA",
    "DictFormat",
    "Engine",
    "EngineEnvironment",
    "MessageFormat",
    "NeutralMessage",
    "Summariser",
    "usage_of",
]
