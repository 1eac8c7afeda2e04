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
from lab.replay.recorded_decisions import OWN, OwnDecisions
from lab.replay.recording import (
    Item,
    Recorder,
    Recording,
    base_name,
    numbered_steps,
    of_entries,
    of_steps,
    read_recording,
)
from lab.replay.uses import Uses, find_uses

__all__ = [
    "NAMES",
    "OWN",
    "PLAIN",
    "POLICIES",
    "PRICES",
    "Change",
    "CostAccount",
    "Item",
    "OwnDecisions",
    "PlainReplay",
    "PolicyReplay",
    "Rates",
    "Recorder",
    "Recording",
    "Row",
    "Tokens",
    "Uses",
    "as_json",
    "as_table",
    "base_name",
    "find_uses",
    "numbered_steps",
    "of_entries",
    "of_steps",
    "read_recording",
    "replay_of",
    "total",
]
