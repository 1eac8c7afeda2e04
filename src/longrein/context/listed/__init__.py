"""The engine under somebody else's loop: a list of messages in, the list to be sent out. Pure like all of `context`."""

from longrein.context.listed.chat import Said, Shape
from longrein.context.listed.dicts import DICTS, Dicts
from longrein.context.listed.engine import RECALL, RECALL_SAYS, RECALL_TAKES, Engine, Outside, Summariser
from longrein.context.listed.spending import usage_of

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
