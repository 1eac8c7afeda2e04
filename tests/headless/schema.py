"""JSON schemas of the stream-json lines: the published fields, and that what is required is
there.
"""

from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]

UUID = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
COUNT = {"type": "integer", "minimum": 0}
USD = {"type": "number", "minimum": 0}
MAYBE_TEXT = {"type": ["string", "null"]}
NULL = {"type": "null"}
OBJECT = {"type": "object"}


def const(value: str) -> Schema:
    return {"const": value}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def all_of(names: str, schema: Schema) -> Schema:
    """Properties of one kind."""
    return dict.fromkeys(names.split(), schema)


def obj(required: Schema, optional: Schema | None = None) -> Schema:
    properties = required | (optional or {})
    return OBJECT | {
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def line(kind: str, required: Schema, optional: Schema | None = None) -> Schema:
    return obj({"type": const(kind), **required, "uuid": UUID, "session_id": UUID}, optional)


def system(subtype: str, required: Schema, optional: Schema | None = None) -> Schema:
    return line("system", {"subtype": const(subtype), **required}, optional)


USAGE = obj(
    all_of("input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens", COUNT),
    {"server_tool_use": obj({"web_search_requests": COUNT})},
)
TEXT_BLOCK = obj({"type": const("text"), "text": TEXT})
REPLY_BLOCK = {
    "oneOf": [
        TEXT_BLOCK,
        obj({"type": const("thinking"), "thinking": TEXT, "signature": TEXT}),
        obj({"type": const("tool_use"), "id": TEXT, "name": TEXT, "input": OBJECT}),
    ]
}
RESULT_BLOCK = obj(
    {"type": const("tool_result"), "tool_use_id": TEXT, "content": TEXT}, {"is_error": FLAG}
)
STOP = {"enum": ["end_turn", "tool_use", "max_tokens", "refusal", None]}
ENDED = {"stop_reason": STOP, "stop_sequence": NULL}
MESSAGE = obj(
    {"id": TEXT, "type": const("message"), "role": const("assistant"), "model": TEXT}
    | {"content": array(REPLY_BLOCK), **ENDED, "usage": USAGE}
)
USER_MESSAGE = obj({"role": const("user"), "content": array({"oneOf": [RESULT_BLOCK, TEXT_BLOCK]})})
ERROR = {
    "enum": [
        *("authentication_failed", "billing_error", "rate_limit", "invalid_request"),
        *("server_error", "max_output_tokens", "unknown"),
    ]
}
PARENT = {"parent_tool_use_id": MAYBE_TEXT}
"""null in the session itself, the `Agent` call's id in a subagent."""
TASK_USAGE = obj(all_of("total_tokens tool_uses duration_ms", COUNT))
DELTA = {
    "oneOf": [
        obj({"type": const("text_delta"), "text": TEXT}),
        obj({"type": const("thinking_delta"), "thinking": TEXT}),
        obj({"type": const("input_json_delta"), "partial_json": TEXT}),
    ]
}
RAW_EVENT = {
    "oneOf": [
        obj({"type": const("message_start"), "message": MESSAGE}),
        obj({"type": const("content_block_start"), "index": COUNT, "content_block": REPLY_BLOCK}),
        obj({"type": const("content_block_delta"), "index": COUNT, "delta": DELTA}),
        obj({"type": const("content_block_stop"), "index": COUNT}),
        obj({"type": const("message_delta"), "delta": obj(ENDED), "usage": USAGE}),
        obj({"type": const("message_stop")}),
    ]
}
MODEL_USAGE = obj(
    all_of(
        "inputTokens outputTokens cacheReadInputTokens cacheCreationInputTokens webSearchRequests",
        COUNT,
    )
    | {"costUSD": USD, "contextWindow": COUNT, "maxOutputTokens": COUNT}
)
RESULT = line(
    "result",
    {
        "subtype": {
            "enum": ["success", "error_max_turns", "error_during_execution", "error_max_budget_usd"]
        },
        "is_error": FLAG,
        **all_of("duration_ms duration_api_ms num_turns", COUNT),
        "stop_reason": STOP,
        "total_cost_usd": USD,
        "usage": USAGE,
        "modelUsage": OBJECT | {"additionalProperties": MODEL_USAGE},
        "permission_denials": array(
            obj({"tool_name": TEXT, "tool_use_id": TEXT, "tool_input": OBJECT}, {"agent": TEXT})
        ),
    },
    {"result": TEXT, "errors": array(TEXT) | {"minItems": 1}},
) | {
    "if": {"properties": {"subtype": const("success")}},
    "then": {"required": ["result"], "properties": {"is_error": {"const": False}}},
    "else": {"required": ["errors"], "properties": {"is_error": {"const": True}}},
}
INIT = {
    **all_of(
        "cwd model output_style apiKeySource claude_code_version longrein_version sandbox", TEXT
    ),
    **all_of("tools slash_commands agents skills left_out", array(TEXT)),
    "mcp_servers": array(obj({"name": TEXT, "status": TEXT})),
    "permissionMode": {
        "enum": ["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"]
    },
    "plugins": {"type": "array"},
}
RETRY = {
    **all_of("attempt max_retries retry_delay_ms", COUNT),
    "error_status": {"type": ["integer", "null"]},
    "error": ERROR,
}
TASK_TYPE = {"enum": ["local_bash", "local_agent", "remote_agent"]}
COMPACTION = obj({"trigger": {"enum": ["manual", "auto"]}, "pre_tokens": COUNT})
LINES: dict[str, Schema] = {
    "system/init": system("init", INIT),
    "system/status": system(
        "status", {"status": {"enum": ["compacting", None]}}, {"permissionMode": TEXT}
    ),
    "system/compact_boundary": system("compact_boundary", {"compact_metadata": COMPACTION}),
    "system/api_retry": system("api_retry", RETRY),
    "system/session_state_changed": system(
        "session_state_changed",
        {"state": {"enum": ["idle", "running", "requires_action"]}},
        {"sdk_host_only": FLAG},
    ),
    "system/informational": system("informational", all_of("content level", TEXT)),
    "system/permission_denied": system(
        "permission_denied", all_of("tool_name tool_use_id decision_reason message", TEXT)
    ),
    "system/task_started": system(
        "task_started",
        {**all_of("task_id description", TEXT), "task_type": TASK_TYPE, "is_backgrounded": FLAG},
        {"tool_use_id": TEXT, "spawn_depth": COUNT},
    ),
    "system/task_progress": system(
        "task_progress",
        {**all_of("task_id description", TEXT), "usage": TASK_USAGE},
        {"last_tool_name": TEXT},
    ),
    "system/task_notification": system(
        "task_notification",
        {
            **all_of("task_id output_file summary", TEXT),
            "status": {"enum": ["completed", "failed", "stopped"]},
        },
        {"tool_use_id": TEXT, "usage": TASK_USAGE},
    ),
    "assistant": line("assistant", {"message": MESSAGE, **PARENT}, {"error": ERROR}),
    "user": line(
        "user",
        {"message": USER_MESSAGE, **PARENT},
        {"tool_use_result": OBJECT, "isSynthetic": FLAG, "origin": OBJECT},
    ),
    "stream_event": line("stream_event", {"event": RAW_EVENT, **PARENT}),
    "result": RESULT,
    "control_response": obj(
        {
            "type": const("control_response"),
            "response": {
                "oneOf": [
                    obj({"subtype": const("error"), "request_id": TEXT, "error": TEXT}),
                    obj({"subtype": const("success"), "request_id": TEXT, "response": OBJECT}),
                ]
            },
        }
    ),
    "control_request": obj(
        {"type": const("control_request"), "request_id": TEXT, "request": OBJECT}
    ),
    "control_cancel_request": obj({"type": const("control_cancel_request"), "request_id": TEXT}),
}
VALIDATORS = {name: Draft202012Validator(schema) for name, schema in LINES.items()}


def validate(data: dict[str, Any]) -> str:
    """Raise unless `data` is a line of the stream; gives its kind: `system/init`, `assistant`, …"""
    kind = f"system/{data['subtype']}" if data["type"] == "system" else str(data["type"])
    assert kind in VALIDATORS, f"unknown line {kind}"
    VALIDATORS[kind].validate(data)
    return kind
