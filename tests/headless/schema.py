"""JSON schemas of the stream-json lines: the published fields, and that what is required is there."""

from typing import Any

from jsonschema import Draft202012Validator

UUID = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
MAYBE_TEXT = {"type": ["string", "null"]}
TEXTS = {"type": "array", "items": TEXT}


def obj(required: dict[str, Any], optional: dict[str, Any] | None = None, *, more: bool = False) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": more,
    }


def line(kind: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return obj({"type": {"const": kind}, **required, "uuid": UUID, "session_id": UUID}, optional)


def system(subtype: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return line("system", {"subtype": {"const": subtype}, **required}, optional)


USAGE = obj(
    {
        "input_tokens": COUNT,
        "output_tokens": COUNT,
        "cache_creation_input_tokens": COUNT,
        "cache_read_input_tokens": COUNT,
    }
)
TEXT_BLOCK = obj({"type": {"const": "text"}, "text": TEXT})
REPLY_BLOCK = {
    "oneOf": [
        TEXT_BLOCK,
        obj({"type": {"const": "thinking"}, "thinking": TEXT, "signature": TEXT}),
        obj({"type": {"const": "tool_use"}, "id": TEXT, "name": TEXT, "input": {"type": "object"}}),
    ]
}
RESULT_BLOCK = obj(
    {"type": {"const": "tool_result"}, "tool_use_id": TEXT, "content": TEXT}, {"is_error": {"type": "boolean"}}
)
STOP = {"enum": ["end_turn", "tool_use", "max_tokens", "refusal", None]}
MESSAGE = obj(
    {
        "id": TEXT,
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": TEXT,
        "content": {"type": "array", "items": REPLY_BLOCK},
        "stop_reason": STOP,
        "stop_sequence": {"type": "null"},
        "usage": USAGE,
    }
)
ERROR = {
    "enum": [
        "authentication_failed",
        "billing_error",
        "rate_limit",
        "invalid_request",
        "server_error",
        "max_output_tokens",
        "unknown",
    ]
}
PARENT = {"parent_tool_use_id": MAYBE_TEXT}
"""null in the session itself, the `Agent` call's id in a subagent."""
TASK_USAGE = obj({"total_tokens": COUNT, "tool_uses": COUNT, "duration_ms": COUNT})
RAW_EVENT = {
    "oneOf": [
        obj({"type": {"const": "message_start"}, "message": MESSAGE}),
        obj({"type": {"const": "content_block_start"}, "index": COUNT, "content_block": REPLY_BLOCK}),
        obj(
            {
                "type": {"const": "content_block_delta"},
                "index": COUNT,
                "delta": {
                    "oneOf": [
                        obj({"type": {"const": "text_delta"}, "text": TEXT}),
                        obj({"type": {"const": "thinking_delta"}, "thinking": TEXT}),
                        obj({"type": {"const": "input_json_delta"}, "partial_json": TEXT}),
                    ]
                },
            }
        ),
        obj({"type": {"const": "content_block_stop"}, "index": COUNT}),
        obj(
            {
                "type": {"const": "message_delta"},
                "delta": obj({"stop_reason": STOP, "stop_sequence": {"type": "null"}}),
                "usage": USAGE,
            }
        ),
        obj({"type": {"const": "message_stop"}}),
    ]
}
RESULT = line(
    "result",
    {
        "subtype": {"enum": ["success", "error_max_turns", "error_during_execution", "error_max_budget_usd"]},
        "is_error": {"type": "boolean"},
        "duration_ms": COUNT,
        "duration_api_ms": COUNT,
        "num_turns": COUNT,
        "stop_reason": STOP,
        "total_cost_usd": {"type": "number", "minimum": 0},
        "usage": USAGE,
        "modelUsage": {
            "type": "object",
            "additionalProperties": obj(
                {
                    "inputTokens": COUNT,
                    "outputTokens": COUNT,
                    "cacheReadInputTokens": COUNT,
                    "cacheCreationInputTokens": COUNT,
                    "webSearchRequests": COUNT,
                    "costUSD": {"type": "number", "minimum": 0},
                    "contextWindow": COUNT,
                    "maxOutputTokens": COUNT,
                }
            ),
        },
        "permission_denials": {
            "type": "array",
            "items": obj({"tool_name": TEXT, "tool_use_id": TEXT, "tool_input": {"type": "object"}}, {"agent": TEXT}),
        },
    },
    {"result": TEXT, "errors": {"type": "array", "items": TEXT, "minItems": 1}},
) | {
    "if": {"properties": {"subtype": {"const": "success"}}},
    "then": {"required": ["result"], "properties": {"is_error": {"const": False}}},
    "else": {"required": ["errors"], "properties": {"is_error": {"const": True}}},
}

SCHEMAS: dict[str, dict[str, Any]] = {
    "system/init": system(
        "init",
        {
            "cwd": TEXT,
            "tools": TEXTS,
            "mcp_servers": {"type": "array", "items": obj({"name": TEXT, "status": TEXT})},
            "model": TEXT,
            "permissionMode": {"enum": ["default", "acceptEdits", "plan", "bypassPermissions"]},
            "slash_commands": TEXTS,
            "agents": TEXTS,
            "skills": TEXTS,
            "plugins": {"type": "array"},
            "output_style": TEXT,
            "apiKeySource": TEXT,
            "claude_code_version": TEXT,
            "longrein_version": TEXT,
        },
    ),
    "system/status": system("status", {"status": {"enum": ["compacting", None]}}, {"permissionMode": TEXT}),
    "system/compact_boundary": system(
        "compact_boundary", {"compact_metadata": obj({"trigger": {"enum": ["manual", "auto"]}, "pre_tokens": COUNT})}
    ),
    "system/api_retry": system(
        "api_retry",
        {
            "attempt": COUNT,
            "max_retries": COUNT,
            "retry_delay_ms": COUNT,
            "error_status": {"type": ["integer", "null"]},
            "error": ERROR,
        },
    ),
    "system/informational": system("informational", {"content": TEXT, "level": TEXT}),
    "system/permission_denied": system(
        "permission_denied", {"tool_name": TEXT, "tool_use_id": TEXT, "decision_reason": TEXT, "message": TEXT}
    ),
    "system/task_started": system(
        "task_started",
        {
            "task_id": TEXT,
            "description": TEXT,
            "task_type": {"enum": ["local_bash", "local_agent", "remote_agent"]},
            "is_backgrounded": {"type": "boolean"},
        },
        {"tool_use_id": TEXT, "spawn_depth": COUNT},
    ),
    "system/task_progress": system(
        "task_progress",
        {"task_id": TEXT, "description": TEXT, "usage": TASK_USAGE},
        {"last_tool_name": TEXT},
    ),
    "system/task_notification": system(
        "task_notification",
        {
            "task_id": TEXT,
            "status": {"enum": ["completed", "failed", "stopped"]},
            "output_file": TEXT,
            "summary": TEXT,
        },
        {"tool_use_id": TEXT, "usage": TASK_USAGE},
    ),
    "assistant": line("assistant", {"message": MESSAGE, **PARENT}, {"error": ERROR}),
    "user": line(
        "user",
        {
            "message": obj(
                {
                    "role": {"const": "user"},
                    "content": {"type": "array", "items": {"oneOf": [RESULT_BLOCK, TEXT_BLOCK]}},
                }
            ),
            **PARENT,
        },
        {"tool_use_result": {"type": "object"}, "isSynthetic": {"type": "boolean"}, "origin": {"type": "object"}},
    ),
    "stream_event": line("stream_event", {"event": RAW_EVENT, **PARENT}),
    "result": RESULT,
    "control_response": obj(
        {
            "type": {"const": "control_response"},
            "response": obj({"subtype": {"const": "error"}, "request_id": TEXT, "error": TEXT}),
        }
    ),
}
VALIDATORS = {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()}


def kind_of(data: dict[str, Any]) -> str:
    """`system/init`, `assistant`, …"""
    return f"system/{data['subtype']}" if data["type"] == "system" else str(data["type"])


def validate(data: dict[str, Any]) -> str:
    """Raise unless `data` is a line of the stream; gives its kind."""
    kind = kind_of(data)
    assert kind in VALIDATORS, f"unknown line {kind}"
    VALIDATORS[kind].validate(data)
    return kind
