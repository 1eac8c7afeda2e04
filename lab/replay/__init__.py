"""Replay of recorded sessions under any context policy, offline: cost, and share of later needs
still shown.
"""

from lab.replay.costs import (
    PRICES,
    CostAccount,
    Rates,
    Row,
    Tokens,
    as_json,
    as_table,
    total,
)
from lab.replay.drive import NAMES, POLICIES, PolicyReplay, replay_of
from lab.replay.plain_policies import PLAIN, Change, PlainReplay
from lab.replay.recording import (
    Item,
    Recording,
    base_name,
    of_entries,
    read_recording,
)
from lab.replay.uses import Uses, find_uses

__all__ = [
    "NAMES",
    "PLAIN",
    "POLICIES",
    "PRICES",
    "Change",
    "CostAccount",
    "Item",
    "PlainReplay",
    "PolicyReplay",
    "Rates",
    "Recording",
    "Row",
    "Tokens",
    "Uses",
    "as_json",
    "as_table",
    "base_name",
    "find_uses",
    "of_entries",
    "read_recording",
    "replay_of",
    "total",
]
