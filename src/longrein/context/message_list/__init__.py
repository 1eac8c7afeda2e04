"""The engine for the message list of another program: a list goes in, the list to be sent comes out. Pure."""

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
