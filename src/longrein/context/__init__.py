"""The engine: the log goes in, requests and decisions come out. Pure: no clock, no disk, no loop."""

from longrein.context.request import Budget, Item, Price, Request
from longrein.context.state import State

__all__ = ["Budget", "Item", "Price", "Request", "State"]
