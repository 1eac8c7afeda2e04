"""Context engine: pure functions from the session log to requests and compaction decisions.

No module of this package uses a clock, the disk or an event loop.
"""

from typing import TYPE_CHECKING

from longrein.lazy_names import names_at_first_use
from longrein.context.decide import (
    Clear as Clear,
    Decision as Decision,
    Digest as Digest,
    Full as Full,
    Nothing as Nothing,
    Summarise as Summarise,
    Swap as Swap,
    decide as decide,
    decide_without_money as decide_without_money,
    is_useful as is_useful,
    named_window as named_window,
    next_compacted as next_compacted,
    window_of as window_of,
)
from longrein.context.fold import (
    History as History,
    StoredLog as StoredLog,
    TooEarly as TooEarly,
    advance as advance,
    fold as fold,
    fold_on as fold_on,
    fold_without as fold_without,
    go_back as go_back,
    state_at as state_at,
    step as step,
)
from longrein.context.fold_notices import external_event as external_event
from longrein.context.fold_notices import is_repeated as is_repeated
from longrein.context.reminders import (
    due_reminders as due_reminders,
    duration_words as duration_words,
    pending_notices as pending_notices,
)
from longrein.context.state.quoting import neutralize_markers as neutralize_markers
from longrein.context.request_rendering import (
    OUTPUT_TOKENS_MIN as OUTPUT_TOKENS_MIN,
    output_limit as output_limit,
    render as render,
    render_summary as render_summary,
    request_tokens as request_tokens,
    reserve_usd as reserve_usd,
)
from longrein.context.report import (
    Report as Report,
    ReportRow as ReportRow,
    reading_place as reading_place,
    report as report,
    schema_diagnosis as schema_diagnosis,
    specs_by_server as specs_by_server,
)
from longrein.context.seed_policy import (
    DOCUMENT_NAMES as DOCUMENT_NAMES,
    build_seed_summary as build_seed_summary,
    decide_seed as decide_seed,
    render_seed_summary as render_seed_summary,
    seed_reminders as seed_reminders,
)
from longrein.context.state.ledger import FileUse as FileUse, Ledger as Ledger
from longrein.context.state.reminder_kinds import KINDS as KINDS
from longrein.context.state.reminder_kinds import PROGRAM_KINDS as PROGRAM_KINDS
from longrein.context.state.repetition import PERIODS as PERIODS
from longrein.context.state.request_types import (
    COMPACT_SHARE as COMPACT_SHARE,
    PREPARE_SHARE as PREPARE_SHARE,
    Budget as Budget,
    Item as Item,
    Price as Price,
    Request as Request,
)
from longrein.context.state.state import (
    KnownFile as KnownFile,
    OpenCall as OpenCall,
    State as State,
    SubagentState as SubagentState,
    TaskState as TaskState,
    settled_usd as settled_usd,
    task_usd as task_usd,
)
from longrein.context.state.token_estimate import (
    arguments_text as arguments_text,
    estimate_part as estimate_part,
    estimate_text as estimate_text,
    spec_tokens as spec_tokens,
)
from longrein.context.state.view import find_visible_reading as find_visible_reading
from longrein.context.truncation import births as births, births_gain as births_gain

if TYPE_CHECKING:
    from longrein.context.analysis import (
        Analysis as Analysis,
        analyse as analyse,
        analysis_lines as analysis_lines,
    )
    from longrein.context.clear_items import line_reasons as line_reasons, use_tables as use_tables
    from longrein.context.clearing.text_features import (
        ESCAPED_ENDS_MAX as ESCAPED_ENDS_MAX,
        call_content as call_content,
        features as features,
        is_escaped_line as is_escaped_line,
        unescape_lines as unescape_lines,
    )
    from longrein.context.clearing.line_value import LineReason as LineReason
    from longrein.context.message_list import Engine as Engine
    from longrein.context.snapshot_codec import (
        decode_state as decode_state,
        encode_state as encode_state,
    )
    from longrein.context.summary.grounding_check import Claim as Claim, ClaimLookup as ClaimLookup
    from longrein.context.summary.chunked_summary import (
        chunk_requests as chunk_requests,
        fits_in_window as fits_in_window,
        merge_request as merge_request,
        summary_chunks as summary_chunks,
    )
    from longrein.context.summary.summary_text import (
        FileBlock as FileBlock,
        build_summary as build_summary,
        claim_lookup as claim_lookup,
        event_texts as event_texts,
    )
    from longrein.context.summary.prompt import prose_problem as prose_problem
    from longrein.context.summary.reexpand import reexpand_lines as reexpand_lines

__getattr__ = names_at_first_use(
    __name__,
    {
        "analysis": "Analysis analyse analysis_lines",
        "clear_items": "line_reasons use_tables",
        "clearing.text_features": "ESCAPED_ENDS_MAX call_content features is_escaped_line "
        "unescape_lines",
        "clearing.line_value": "LineReason",
        "message_list": "Engine",
        "snapshot_codec": "decode_state encode_state",
        "summary.audit": "Claim ClaimLookup",
        "summary.chunked_summary": "chunk_requests fits_in_window merge_request summary_chunks",
        "summary.summary_text": "FileBlock build_summary claim_lookup event_texts",
        "summary.prompt": "prose_problem",
        "summary.reexpand": "reexpand_lines",
    },
)
