"""Overflow errors of providers: (status, body) as each provider sends it. `{used}` and `{limit}`
are tokens.
"""

import msgspec


def _openai(
    text: str, code: str | None = "context_length_exceeded", kind: str = "invalid_request_error"
) -> str:
    error = {"message": text, "type": kind, "param": "messages", "code": code}
    return msgspec.json.encode({"error": error}).decode()


def _gemini(text: str) -> str:
    return msgspec.json.encode(
        {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}
    ).decode()


def _error(text: str) -> str:
    return msgspec.json.encode({"error": text}).decode()


def _plain(text: str) -> str:
    return msgspec.json.encode({"error": {"message": text}}).decode()


def _anthropic(kind: str, text: str) -> str:
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": text}}).decode()


def _object(text: str, **fields: object) -> str:
    return msgspec.json.encode({"object": "error", "message": text, **fields}).decode()


OVERFLOWS: dict[str, tuple[int, str]] = {
    "anthropic": (
        400,
        _anthropic("invalid_request_error", "prompt is too long: {used} tokens > {limit} maximum"),
    ),
    "anthropic-output": (
        400,
        _anthropic(
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: {used} + 20000 > {limit}, "
            "decrease input length or `max_tokens` and try again",
        ),
    ),
    "anthropic-bytes": (413, _anthropic("request_too_large", "Request exceeds the maximum size")),
    "bedrock": (400, '{"message":"Input is too long for requested model."}'),
    "openai": (
        400,
        _openai(
            "This model's maximum context length is {limit} tokens. However, your messages "
            "resulted in {used} tokens. "
            "Please reduce the length of the messages."
        ),
    ),
    "openai-responses": (
        400,
        _openai(
            "Your input exceeds the context window of this model. Please adjust your input and "
            "try again."
        ),
    ),
    "gemini": (
        400,
        _gemini(
            "The input token count ({used}) exceeds the maximum number of tokens allowed ({limit})."
        ),
    ),
    "xai": (
        400,
        _plain(
            "This model's maximum prompt length is {limit} but the request contains {used} tokens."
        ),
    ),
    "groq": (400, _openai("Please reduce the length of the messages or completion.")),
    "openrouter": (
        400,
        _plain(
            "This endpoint's maximum context length is {limit} tokens. However, you requested "
            "about {used} tokens. "
            "Please reduce the length of either one, or use the middle-out transform."
        ),
    ),
    "copilot": (400, _plain("prompt token count of {used} exceeds the limit of {limit}")),
    "mistral": (
        400,
        _object(
            "Prompt contains {used} tokens and 0 draft tokens, too large for model with {limit} "
            "maximum context length",
            type="invalid_request_error",
        ),
    ),
    "moonshot": (400, _plain("Invalid request: Your request exceeded model token limit: {limit}")),
    "minimax": (400, _plain("invalid params, context window exceeds limit (2013)")),
    "together": (
        422,
        _plain(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {limit}. "
            "Given: {used} `inputs`"
        ),
    ),
    "vllm": (
        400,
        _object(
            "This model's maximum context length is {limit} tokens. However, you requested {used} "
            "tokens in the "
            "messages, Please reduce the length of the messages.",
            type="BadRequestError",
            code=400,
        ),
    ),
    "llama.cpp": (
        400,
        msgspec.json.encode(
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                }
            }
        ).decode(),
    ),
    "lm-studio": (
        400,
        _error(
            "Trying to keep the first {used} tokens when context the overflows. However, the "
            "model is loaded with "
            "context length of only {limit} tokens, which is not enough"
        ),
    ),
    "ollama": (400, '{"error":"prompt too long; exceeded max context length by 12 tokens"}'),
    "deepseek": (
        400,
        _openai("Range of input length should be [1, {limit}]", "invalid_parameter_error"),
    ),
    "cerebras": (400, ""),
    "z.ai": (400, '{"error":{"code":"1261","message":"Prompt exceeds max length"}}'),
    "cohere": (
        400,
        '{"message":"too many tokens: total number of tokens in the prompt cannot exceed {limit}"}',
    ),
}
"""Provider -> (status, body) of its overflow error."""


def overflow(name: str, used: int, limit: int) -> tuple[int, bytes]:
    """Return status and body of the overflow error `name`."""
    status, body = OVERFLOWS[name]
    return status, body.replace("{used}", str(used)).replace("{limit}", str(limit)).encode()
