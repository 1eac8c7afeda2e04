"""Event types, content parts, ids, usage, errors, and their JSON form."""

from typing import TYPE_CHECKING

from longrein_context.lazy_names import names_at_first_use

if TYPE_CHECKING:
    from longrein_context.events.codec import (
        decode_entry as decode_entry,
        decode_event as decode_event,
        encode_entry as encode_entry,
        encode_event as encode_event,
        storable as storable,
    )
    from longrein_context.events.content import (
        ATTACHED as ATTACHED,
        CALL_TOOL as CALL_TOOL,
        DEPTH_MAX as DEPTH_MAX,
        TOO_DEEP as TOO_DEEP,
        AnyPart as AnyPart,
        Document as Document,
        Image as Image,
        ProviderBlock as ProviderBlock,
        Text as Text,
        Thinking as Thinking,
        ToolCall as ToolCall,
        ToolResult as ToolResult,
        decode_json as decode_json,
        decode_object as decode_object,
        is_too_deep as is_too_deep,
        positive_number as positive_number,
        text_of as text_of,
        unwrapped as unwrapped,
        without_attachments as without_attachments,
    )
    from longrein_context.events.errors import (
        BudgetError as BudgetError,
        LongreinError as LongreinError,
        ModelUnknown as ModelUnknown,
        SessionBusy as SessionBusy,
        SessionClosed as SessionClosed,
        SessionError as SessionError,
        SessionReadOnly as SessionReadOnly,
        SessionTakenOver as SessionTakenOver,
        SessionUnknown as SessionUnknown,
        SettingsError as SettingsError,
        StoreDamaged as StoreDamaged,
        StoreFull as StoreFull,
        ToolError as ToolError,
        TurnFailed as TurnFailed,
        UsageError as UsageError,
    )
    from longrein_context.events.events import (
        AT_MAX as AT_MAX,
        PAID_EVENTS as PAID_EVENTS,
        RETRYABLE as RETRYABLE,
        SCHEMA_VERSION as SCHEMA_VERSION,
        AnyEvent as AnyEvent,
        AskFailed as AskFailed,
        Asked as Asked,
        CheckpointTaken as CheckpointTaken,
        Cleared as Cleared,
        CwdSet as CwdSet,
        Entry as Entry,
        FailureKind as FailureKind,
        FileChanged as FileChanged,
        FilePut as FilePut,
        FileSeen as FileSeen,
        Form as Form,
        Goal as Goal,
        GoalChanged as GoalChanged,
        Grant as Grant,
        HookAnswered as HookAnswered,
        Interrupted as Interrupted,
        ModeSet as ModeSet,
        Opened as Opened,
        Parent as Parent,
        PermissionAnswered as PermissionAnswered,
        PermissionAsked as PermissionAsked,
        PinsSet as PinsSet,
        PrefixSet as PrefixSet,
        Recalled as Recalled,
        Reminded as Reminded,
        Replied as Replied,
        Restored as Restored,
        Rewound as Rewound,
        Schedule as Schedule,
        SchedulesSet as SchedulesSet,
        SourceFile as SourceFile,
        SubagentEnded as SubagentEnded,
        SubagentStarted as SubagentStarted,
        Summarized as Summarized,
        TaskEnded as TaskEnded,
        TaskStarted as TaskStarted,
        TitleSet as TitleSet,
        Todo as Todo,
        TodoSet as TodoSet,
        ToolEnded as ToolEnded,
        ToolSpec as ToolSpec,
        ToolStarted as ToolStarted,
        ToolTraits as ToolTraits,
        TurnEnded as TurnEnded,
        Usage as Usage,
        UserSpoke as UserSpoke,
        counts_of as counts_of,
        is_count as is_count,
        kind_of as kind_of,
        parts_for_model as parts_for_model,
        usd_of as usd_of,
    )
    from longrein_context.events.ids import (
        Handle as Handle,
        call_id as call_id,
        entry_uuid as entry_uuid,
        framed as framed,
        marker as marker,
        marker_sign as marker_sign,
        parse_handle as parse_handle,
        without_sign as without_sign,
    )
    from longrein_context.events.redact import redactor as redactor

__getattr__ = names_at_first_use(
    __name__,
    {
        "codec": "decode_entry decode_event encode_entry encode_event storable",
        "content": (
            "ATTACHED CALL_TOOL DEPTH_MAX TOO_DEEP AnyPart Document Image ProviderBlock Text "
            "Thinking ToolCall ToolResult decode_json decode_object is_too_deep positive_number "
            "text_of unwrapped without_attachments"
        ),
        "errors": (
            "BudgetError LongreinError ModelUnknown SessionBusy SessionClosed SessionError "
            "SessionReadOnly SessionTakenOver SessionUnknown SettingsError StoreDamaged "
            "StoreFull ToolError TurnFailed UsageError"
        ),
        "events": (
            "AT_MAX PAID_EVENTS RETRYABLE SCHEMA_VERSION AnyEvent AskFailed Asked CheckpointTaken "
            "Cleared CwdSet Entry FailureKind FileChanged FilePut FileSeen Form Goal "
            "GoalChanged Grant HookAnswered Interrupted ModeSet Opened Parent "
            "PermissionAnswered PermissionAsked PinsSet PrefixSet Recalled Reminded Replied "
            "Restored Rewound Schedule SchedulesSet SourceFile SubagentEnded SubagentStarted "
            "Summarized TaskEnded TaskStarted TitleSet Todo TodoSet ToolEnded ToolSpec "
            "ToolStarted ToolTraits TurnEnded Usage UserSpoke counts_of is_count kind_of "
            "parts_for_model usd_of"
        ),
        "ids": "Handle call_id entry_uuid framed marker marker_sign parse_handle without_sign",
        "redact": "redactor",
    },
)
