"""The engine under somebody else's loop: a list of messages in, the list to be sent out. Pure like all of `context`."""

from longrein.context.message_list.engine import RECALL, RECALL_SAYS, RECALL_TAKES, Engine, Outside, Summariser
from longrein.context.message_list.message_formats import DICTS, Dicts, Said, Shape, usage_of

__all__ = [
    "DICTS",
    "RECALL",
    "RECALL_SAYS",
    "RECALL_TAKES",
    "Dicts",
    "Engine",
    "Outside",
    "Said",
    "Shape",
    "Summariser",
    "usage_of",
]
