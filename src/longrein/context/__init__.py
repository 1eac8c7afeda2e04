"""The engine: the log goes in, requests and decisions come out. Pure: no clock, no disk, no loop."""

import importlib
from typing import Any

from longrein.context.catalogue import KINDS
from longrein.context.decide import (
    PREPARE,
    Clear,
    Decision,
    Digest,
    Full,
    Nothing,
    Summarise,
    Swap,
    decide,
    is_cold,
    next_to_go,
    window_of,
)
from longrein.context.digest import prose_problem, summarized
from longrein.context.features import call_content, features
from longrein.context.fold import History, advance, fold, step
from longrein.context.forms import births
from longrein.context.noticed import happened
from longrein.context.reminders import due
from longrein.context.render import output_limit, render, render_summary, reserve_usd
from longrein.context.report import Report, Shown, report
from longrein.context.request import Budget, Item, Price, Request
from longrein.context.seed import decide_seed, render_seed_summary, seed_summarized
from longrein.context.state import OpenCall, Seen, State
from longrein.context.tokens import arguments_text, estimate_text

__all__ = [
    "KINDS",
    "PREPARE",
    "Budget",
    "Clear",
    "Decision",
    "Digest",
    "Engine",
    "Full",
    "History",
    "Item",
    "Nothing",
    "OpenCall",
    "Price",
    "Report",
    "Request",
    "Seen",
    "Shown",
    "State",
    "Summarise",
    "Swap",
    "advance",
    "arguments_text",
    "births",
    "call_content",
    "decide",
    "decide_seed",
    "due",
    "estimate_text",
    "features",
    "fold",
    "happened",
    "is_cold",
    "next_to_go",
    "output_limit",
    "prose_problem",
    "render",
    "render_seed_summary",
    "render_summary",
    "report",
    "reserve_usd",
    "seed_summarized",
    "step",
    "summarized",
    "window_of",
]


def __getattr__(name: str) -> Any:
    """`Engine`, imported at first use: no part of longrein's own loop needs it."""
    if name == "Engine":
        return importlib.import_module("longrein.context.listed").Engine
    raise AttributeError(f"longrein.context has no public name {name!r}")
