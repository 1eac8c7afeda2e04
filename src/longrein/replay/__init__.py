"""Replay of recorded sessions under any context policy, offline: cost, and share of later needs still shown."""

from longrein.replay.costs import PRICES, CostAccount, Rates, as_json, as_table
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
    "as_json",
    "as_table",
    "base_name",
    "of_entries",
    "read_recording",
]
