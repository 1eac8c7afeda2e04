"""The engine for the message list of another program: a list goes in, the list to be sent comes
out. Pure.
"""

from longrein_context.message_list.message_list_engine import (
    CLEARS as CLEARS,
    RECALL as RECALL,
    RECALL_DESCRIPTION as RECALL_DESCRIPTION,
    RECALL_SCHEMA as RECALL_SCHEMA,
    Engine as Engine,
    EngineEnvironment as EngineEnvironment,
    Summariser as Summariser,
)
from longrein_context.message_list.message_formats import (
    DICT_FORMAT as DICT_FORMAT,
    DictFormat as DictFormat,
    MessageFormat as MessageFormat,
    NeutralMessage as NeutralMessage,
    usage_of as usage_of,
)
