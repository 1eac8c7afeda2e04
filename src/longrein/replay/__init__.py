"""Recorded sessions through any policy, offline: what it would have cost and what it would have forgotten."""

from longrein.replay.accounting import PRICES, Account, Rates
from longrein.replay.driving import POLICIES, Change, Drive
from longrein.replay.logged import of_entries
from longrein.replay.page import Row, as_json, as_table
from longrein.replay.recorded import Item, Recording, base_name, read_recording

__all__ = [
    "POLICIES",
    "PRICES",
    "Account",
    "Change",
    "Drive",
    "Item",
    "Rates",
    "Recording",
    "Row",
    "as_json",
    "as_table",
    "base_name",
    "of_entries",
    "read_recording",
]
