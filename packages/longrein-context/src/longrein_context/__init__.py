"""Context engine: which messages a model is sent, so that a conversation never ends.

`engine` makes the engine of one conversation, for any loop that keeps a list of messages. Below it
are pure functions from a log to requests and compaction decisions; none uses a clock, the disk or
an event loop. Each name is imported at first use.
"""

from typing import TYPE_CHECKING

from longrein_context.lazy_names import names_at_first_use

__version__ = "0.1.0"

if TYPE_CHECKING:
    from longrein_context.analysis import (
        Analysis as Analysis,
        analyse as analyse,
        analysis_lines as analysis_lines,
    )
    from longrein_context.clear_items import (
        line_reasons as line_reasons,
        use_tables as use_tables,
    )
    from longrein_context.clearing.line_value import (
        LineReason as LineReason,
    )
    from longrein_context.clearing.text_features import (
        ESCAPED_ENDS_MAX as ESCAPED_ENDS_MAX,
        call_content as call_content,
        features as features,
        is_escaped_line as is_escaped_line,
        unescape_lines as unescape_lines,
    )
    from longrein_context.decisions import (
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
    from longrein_context.state_fold import (
        KeptStates as KeptStates,
        StoredLog as StoredLog,
        advance as advance,
        fold as fold,
        state_at as state_at,
        step as step,
    )
    from longrein_context.fold_notices import (
        external_event as external_event,
        is_repeated as is_repeated,
    )
    from longrein_context.integrations import (
        EngineLog as EngineLog,
        EngineOptions as EngineOptions,
        StoredEngine as StoredEngine,
        did_not_fit as did_not_fit,
        engine as engine,
    )
    from longrein_context.message_list import (
        Engine as Engine,
    )
    from longrein_context.reminders import (
        due_reminders as due_reminders,
        duration_words as duration_words,
        pending_notices as pending_notices,
    )
    from longrein_context.context_report import (
        Report as Report,
        ReportRow as ReportRow,
        reading_place as reading_place,
        report as report,
        schema_diagnosis as schema_diagnosis,
        specs_by_server as specs_by_server,
    )
    from longrein_context.request_rendering import (
        OUTPUT_TOKENS_MIN as OUTPUT_TOKENS_MIN,
        output_limit as output_limit,
        render as render,
        render_summary as render_summary,
        request_tokens as request_tokens,
        reserve_usd as reserve_usd,
    )
    from longrein_context.seed_policy import (
        DOCUMENT_NAMES as DOCUMENT_NAMES,
        build_seed_summary as build_seed_summary,
        decide_seed as decide_seed,
        render_seed_summary as render_seed_summary,
        seed_reminders as seed_reminders,
        transcript_lines as transcript_lines,
    )
    from longrein_context.snapshot_codec import (
        decode_state as decode_state,
        encode_state as encode_state,
    )
    from longrein_context.state.ledger import (
        FileUse as FileUse,
        Ledger as Ledger,
    )
    from longrein_context.state.quoting import (
        neutralize_markers as neutralize_markers,
    )
    from longrein_context.state.reminder_kinds import (
        KINDS as KINDS,
        PROGRAM_KINDS as PROGRAM_KINDS,
    )
    from longrein_context.state.repetition import (
        PERIODS as PERIODS,
    )
    from longrein_context.state.request_types import (
        Budget as Budget,
        COMPACT_SHARE as COMPACT_SHARE,
        Item as Item,
        PREPARE_SHARE as PREPARE_SHARE,
        Price as Price,
        Request as Request,
    )
    from longrein_context.state.state import (
        KnownFile as KnownFile,
        OpenCall as OpenCall,
        State as State,
        SubagentState as SubagentState,
        TaskState as TaskState,
        settled_usd as settled_usd,
        task_usd as task_usd,
    )
    from longrein_context.state.token_estimate import (
        arguments_text as arguments_text,
        estimate_part as estimate_part,
        estimate_text as estimate_text,
        spec_tokens as spec_tokens,
    )
    from longrein_context.state.view import (
        find_visible_reading as find_visible_reading,
    )
    from longrein_context.summary.chunked_summary import (
        chunk_requests as chunk_requests,
        fits_in_window as fits_in_window,
        merge_request as merge_request,
        summary_chunks as summary_chunks,
    )
    from longrein_context.summary.grounding_check import (
        Claim as Claim,
        ClaimLookup as ClaimLookup,
    )
    from longrein_context.summary.prompt import (
        prose_problem as prose_problem,
    )
    from longrein_context.summary.late_lines import (
        reexpand_lines as reexpand_lines,
    )
    from longrein_context.summary.summary_text import (
        FileBlock as FileBlock,
        build_summary as build_summary,
        claim_lookup as claim_lookup,
        event_texts as event_texts,
    )
    from longrein_context.truncation import (
        births as births,
        births_gain as births_gain,
    )

__getattr__ = names_at_first_use(
    __name__,
    {
        "analysis": "Analysis analyse analysis_lines",
        "clear_items": "line_reasons use_tables",
        "clearing.line_value": "LineReason",
        "clearing.text_features": (
            "ESCAPED_ENDS_MAX call_content features is_escaped_line unescape_lines"
        ),
        "decisions": (
            "Clear Decision Digest Full Nothing Summarise Swap decide "
            "decide_without_money is_useful named_window next_compacted window_of"
        ),
        "state_fold": "KeptStates StoredLog advance fold state_at step",
        "fold_notices": "external_event is_repeated",
        "integrations": "EngineLog EngineOptions StoredEngine did_not_fit engine",
        "message_list": "Engine",
        "reminders": "due_reminders duration_words pending_notices",
        "context_report": (
            "Report ReportRow reading_place report schema_diagnosis specs_by_server"
        ),
        "request_rendering": (
            "OUTPUT_TOKENS_MIN output_limit render render_summary request_tokens reserve_usd"
        ),
        "seed_policy": (
            "DOCUMENT_NAMES build_seed_summary decide_seed render_seed_summary seed_reminders "
            "transcript_lines"
        ),
        "snapshot_codec": "decode_state encode_state",
        "state.ledger": "FileUse Ledger",
        "state.quoting": "neutralize_markers",
        "state.reminder_kinds": "KINDS PROGRAM_KINDS",
        "state.repetition": "PERIODS",
        "state.request_types": "Budget COMPACT_SHARE Item PREPARE_SHARE Price Request",
        "state.state": "KnownFile OpenCall State SubagentState TaskState settled_usd task_usd",
        "state.token_estimate": "arguments_text estimate_part estimate_text spec_tokens",
        "state.view": "find_visible_reading",
        "summary.chunked_summary": "chunk_requests fits_in_window merge_request summary_chunks",
        "summary.grounding_check": "Claim ClaimLookup",
        "summary.prompt": "prose_problem",
        "summary.late_lines": "reexpand_lines",
        "summary.summary_text": "FileBlock build_summary claim_lookup event_texts",
        "truncation": "births births_gain",
    },
)
