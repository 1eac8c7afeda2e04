"""The engine: the log goes in, requests and decisions come out. Pure: no clock, no disk, no loop."""

from longrein.context.analysis import Analysis, analyse, analysis_lines
from longrein.context.clear_items import reasons, use_tables
from longrein.context.clearing.features import call_content, features
from longrein.context.clearing.line_value import LineReason
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
from longrein.context.message_list import Engine
from longrein.context.reminder_events import happened
from longrein.context.reminders import due, outside, quoted, untold
from longrein.context.render import OUTPUT_TOKENS_MIN, output_limit, render, render_summary, request_tokens, reserve_usd
from longrein.context.report import Report, Shown, by_server, report, schema_diagnosis, spec_tokens
from longrein.context.seed_policy import decide_seed, render_seed_summary, seed_due, seed_summarized
from longrein.context.snapshot import decode_state, encode_state
from longrein.context.state.ledger import FileUse, Ledger
from longrein.context.state.reminder_kinds import KINDS
from longrein.context.state.repetition import PERIODS
from longrein.context.state.request import Budget, Item, Price, Request
from longrein.context.state.state import ChildNow, OpenCall, Seen, State, TaskNow
from longrein.context.state.token_estimate import arguments_text, estimate_part, estimate_text
from longrein.context.state.view import standing
from longrein.context.summary.audit import Claim, Covered
from longrein.context.summary.chunked_summary import chunk_requests, fits_whole, merge_request, summary_chunks
from longrein.context.summary.digest import FileBlock, covering, event_texts, part_texts, prose_problem, summarized
from longrein.context.summary.reexpand import reexpanded
from longrein.context.truncation import births, born_gain

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
    "LineReason",
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
