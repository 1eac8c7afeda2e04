"""The engine: the log goes in, requests and decisions come out. Pure: no clock, no disk, no loop."""

from longrein.context.decide import Clear, Decision, Digest, Full, Nothing, Summarise, Swap, decide, is_cold, window_of
from longrein.context.digest import prose_problem, summarized
from longrein.context.fold import History, advance, fold, step
from longrein.context.forms import births
from longrein.context.render import output_limit, render, render_summary, reserve_usd
from longrein.context.report import report
from longrein.context.request import Budget, Item, Price, Request
from longrein.context.seed import decide_seed, render_seed_summary, seed_summarized
from longrein.context.state import OpenCall, Seen, State
from longrein.context.tokens import estimate_text

__all__ = [
    "Budget",
    "Clear",
    "Decision",
    "Digest",
    "Full",
    "History",
    "Item",
    "Nothing",
    "OpenCall",
    "Price",
    "Request",
    "Seen",
    "State",
    "Summarise",
    "Swap",
    "advance",
    "births",
    "decide",
    "decide_seed",
    "estimate_text",
    "fold",
    "is_cold",
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
