"""Recorded sessions through any policy, offline: what it would have cost and what it would have forgotten."""

from longrein.replay.costs import PRICES, CostAccount, Rates, Row, as_json, as_table
from longrein.replay.drive import POLICIES, Change, PolicyReplay
from longrein.replay.recording import Item, Recording, base_name, of_entries, read_recording

__all__ = [
    "POLICIES",
    "PRICES",
    "Change",
    "CostAccount",
    "Item",
    "PolicyReplay",
    "Rates",
    "Recording",
    "Row",
    "as_json",
    "as_table",
    "base_name",
    "of_entries",
    "read_recording",
]
