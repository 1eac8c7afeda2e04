"""Context engine: pure functions from the session log to requests and compaction decisions.

No module of this package uses a clock, the disk or an event loop.
"""

from longrein.context.analysis import Analysis, analyse, analysis_lines
from longrein.context.clear_items import line_reasons, use_tables
from longrein.context.clearing.features import call_content, features
from longrein.context.clearing.line_value import LineReason
from longrein.context.decide import (
    PREPARE_SHARE,
    Clear,
    Decision,
    Digest,
    Full,
    Nothing,
    Summarise,
    Swap,
    decide,
    decide_without_money,
    is_cold,
    named_window,
    next_compacted,
    window_of,
)
from longrein.context.fold import History, advance, fold, step
from longrein.context.message_list import Engine
from longrein.context.reminder_events import external_event
from longrein.context.reminders import due_reminders, neutralize_markers, pending_notices, quote_external
from longrein.context.render import OUTPUT_TOKENS_MIN, output_limit, render, render_summary, request_tokens, reserve_usd
from longrein.context.report import Report, ReportRow, report, schema_diagnosis, spec_tokens, specs_by_server
from longrein.context.seed_policy import build_seed_summary, decide_seed, render_seed_summary, seed_reminders
from longrein.context.snapshot import decode_state, encode_state
from longrein.context.state.ledger import FileUse, Ledger
from longrein.context.state.reminder_kinds import KINDS
from longrein.context.state.repetition import PERIODS
from longrein.context.state.request import Budget, Item, Price, Request
from longrein.context.state.state import KnownFile, OpenCall, State, SubagentState, TaskState
from longrein.context.state.token_estimate import arguments_text, estimate_part, estimate_text
from longrein.context.state.view import find_visible_reading
from longrein.context.summary.audit import Claim, ClaimLookup
from longrein.context.summary.chunked_summary import chunk_requests, fits_in_window, merge_request, summary_chunks
from longrein.context.summary.digest import (
    FileBlock,
    build_summary,
    claim_lookup,
    event_texts,
    part_texts,
    prose_problem,
)
from longrein.context.summary.reexpand import reexpand_lines
from longrein.context.truncation import births, births_gain

__all__ = [
    "KINDS",
    "OUTPUT_TOKENS_MIN",
    "PERIODS",
    "PREPARE_SHARE",
    "Analysis",
    "Budget",
    "Claim",
    "ClaimLookup",
    "Clear",
    "Decision",
    "Digest",
    "Engine",
    "FileBlock",
    "FileUse",
    "Full",
    "History",
    "Item",
    "KnownFile",
    "Ledger",
    "LineReason",
    "Nothing",
    "OpenCall",
    "Price",
    "Report",
    "ReportRow",
    "Request",
    "State",
    "SubagentState",
    "Summarise",
    "Swap",
    "TaskState",
    "advance",
    "analyse",
    "analysis_lines",
    "arguments_text",
    "births",
    "births_gain",
    "build_seed_summary",
    "build_summary",
    "call_content",
    "chunk_requests",
    "claim_lookup",
    "decide",
    "decide_seed",
    "decide_without_money",
    "decode_state",
    "due_reminders",
    "encode_state",
    "estimate_part",
    "estimate_text",
    "event_texts",
    "external_event",
    "features",
    "find_visible_reading",
    "fits_in_window",
    "fold",
    "is_cold",
    "line_reasons",
    "merge_request",
    "named_window",
    "neutralize_markers",
    "next_compacted",
    "output_limit",
    "part_texts",
    "pending_notices",
    "prose_problem",
    "quote_external",
    "reexpand_lines",
    "render",
    "render_seed_summary",
    "render_summary",
    "report",
    "request_tokens",
    "reserve_usd",
    "schema_diagnosis",
    "seed_reminders",
    "spec_tokens",
    "specs_by_server",
    "step",
    "summary_chunks",
    "use_tables",
    "window_of",
]
