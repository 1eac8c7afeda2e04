"""The engine: the log goes in, requests and decisions come out. Pure: no clock, no disk, no loop."""

import importlib
from typing import Any

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
    named_window,
    next_to_go,
    unpaid,
    window_of,
)
from longrein.context.fold import History, advance, fold, step
from longrein.context.forms import births, born_gain
from longrein.context.reminding.catalogue import KINDS
from longrein.context.reminding.noticed import happened
from longrein.context.reminding.reminders import due, outside, quoted, untold
from longrein.context.render import OUTPUT_TOKENS_MIN, output_limit, render, render_summary, request_tokens, reserve_usd
from longrein.context.report import Report, Shown, report
from longrein.context.request import Budget, Item, Price, Request
from longrein.context.schemas import by_server, schema_diagnosis, spec_tokens
from longrein.context.seed.background import seed_due
from longrein.context.seed.policy import decide_seed, render_seed_summary, seed_summarized
from longrein.context.snapshot import decode_state, encode_state
from longrein.context.standing import standing
from longrein.context.state import ChildNow, OpenCall, Seen, State, TaskNow
from longrein.context.summary.audit import Claim, Covered
from longrein.context.summary.chunks import chunk_requests, fits_whole, merge_request, summary_chunks
from longrein.context.summary.digest import FileBlock, covering, event_texts, part_texts, prose_problem, summarized
from longrein.context.summary.records import FileUse, Ledger
from longrein.context.tokens import arguments_text, estimate_part, estimate_text
from longrein.context.trail import PERIODS

__all__ = [
    "KINDS",
    "OUTPUT_TOKENS_MIN",
    "PERIODS",
    "PREPARE",
    "Analysis",
    "Budget",
    "ChildNow",
    "Claim",
    "Clear",
    "Covered",
    "Decision",
    "Digest",
    "Engine",
    "FileBlock",
    "FileUse",
    "Full",
    "History",
    "Item",
    "Ledger",
    "Nothing",
    "OpenCall",
    "Price",
    "Reason",
    "Report",
    "Request",
    "Seen",
    "Shown",
    "State",
    "Summarise",
    "Swap",
    "TaskNow",
    "advance",
    "analyse",
    "analysis_lines",
    "arguments_text",
    "births",
    "born_gain",
    "by_server",
    "call_content",
    "chunk_requests",
    "covering",
    "decide",
    "decide_seed",
    "decode_state",
    "due",
    "encode_state",
    "estimate_part",
    "estimate_text",
    "event_texts",
    "features",
    "fits_whole",
    "fold",
    "happened",
    "is_cold",
    "merge_request",
    "named_window",
    "next_to_go",
    "output_limit",
    "outside",
    "part_texts",
    "prose_problem",
    "quoted",
    "reasons",
    "reexpanded",
    "render",
    "render_seed_summary",
    "render_summary",
    "report",
    "request_tokens",
    "reserve_usd",
    "schema_diagnosis",
    "seed_due",
    "seed_summarized",
    "spec_tokens",
    "standing",
    "step",
    "summarized",
    "summary_chunks",
    "unpaid",
    "untold",
    "use_tables",
    "window_of",
]


_LATER = {
    "Analysis": ("summary.analysis", "Analysis"),
    "Engine": ("listed", "Engine"),
    "Reason": ("worth.bodies", "Reason"),
    "analyse": ("summary.analysis", "analyse"),
    "analysis_lines": ("summary.analysis", "lines"),
    "call_content": ("worth.features", "call_content"),
    "features": ("worth.features", "features"),
    "reasons": ("clearing", "reasons"),
    "reexpanded": ("summary.reexpand", "reexpanded"),
    "use_tables": ("clearing", "use_tables"),
}
"""Public name -> where it stands, for what no turn of longrein's own loop needs."""


def __getattr__(name: str) -> Any:
    """Names of `_LATER`, imported at first use."""
    if name in _LATER:
        module, there = _LATER[name]
        return getattr(importlib.import_module(f"longrein.context.{module}"), there)
    raise AttributeError(f"longrein.context has no public name {name!r}")
