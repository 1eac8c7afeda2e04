"""Errors by which providers say that a request does not fit the window, in their own words."""

import re

OVERFLOW_SPELLINGS: tuple[tuple[str, str], ...] = (
    ("Anthropic", r"prompt is too long"),
    ("Anthropic, with the output limit", r"exceed(s)? (the )?context (limit|window|length)"),
    ("Anthropic, bytes", r"request_too_large|request exceeds the maximum size"),
    ("OpenAI", r"context_length_exceeded|maximum context length"),
    ("OpenAI Responses", r"exceeds the context window|exceeds? the model'?s? context"),
    ("OpenAI, one string", r"string_above_max_length|string too long"),
    ("Gemini", r"input token count.{0,40}exceeds the maximum"),
    ("Gemini, old", r"exceeds the maximum number of tokens|exceeds the max(imum)? tokens"),
    ("xAI", r"maximum prompt length is"),
    ("Groq", r"reduce the length of the messages"),
    ("OpenRouter", r"endpoint'?s? maximum context|is \d[\d,]* tokens.{0,60}requested about"),
    ("GitHub Copilot", r"prompt token count of [\d,]+ exceeds the limit"),
    (
        "Mistral",
        r"too large for model with .{0,20}maximum context|tokens? .{0,40}too large for model",
    ),
    ("Moonshot", r"exceeded model token limit"),
    ("MiniMax", r"context window exceeds limit"),
    ("Amazon Bedrock", r"input is too long|too many input tokens"),
    (
        "Together, vLLM",
        r"inputs?`? (tokens )?\+ ?`?max_new_tokens`? must be|longer than the maximum model length",
    ),
    ("llama.cpp", r"exceed_context_size|exceeds? the available context size"),
    ("LM Studio", r"greater than the context length|context length of only|context overflow"),
    ("Ollama", r"prompt too long; exceeded|exceeded max context length|input length exceeds"),
    (
        "DeepSeek, Qwen",
        r"range of input length should be|max(imum)? (input|message) (length|tokens) ",
    ),
    ("Z.ai", r"model_context_window_exceeded|prompt exceeds max length"),
    ("Cohere", r"too many tokens"),
    (
        "Cerebras",
        r"please reduce (the length|your prompt)|token limit exceeded|exceeds? .{0,20}token limit",
    ),
    (
        "any",
        (
            r"context (window|length|size) .{0,20}exceeded|exceeded .{0,30}context "
            r"(window|length|size)"
        ),
    ),
)
"""(provider, pattern): texts of a 400, 413 or 422 that mean that the request does not fit the
window.
"""
_LIMIT = "|".join(
    rf"(?:{words.replace('#', '([0-9][0-9,_]{3,11})')})"
    for words in (
        r"> ?#",
        r"context length (?:is|of)(?: only)? #",
        r"# maximum context length",
        r"maximum (?:prompt|model|context|input) length (?:is|of) #",
        r"maximum number of tokens allowed \(#",
        r"exceeds the limit of #",
        r"token limit: ?#",
        r"should be \[1, #",
        r"available context size \(#",
        r'n_ctx"?: ?#',
        r"(?:must be <=|cannot exceed) #",
    )
)
"""Patterns of the window in an overflow error. Strict, because a wrong figure would shrink the
session.
"""


OVERLOADS = (503, 529)
"""Statuses of a server that is busy, whatever it says."""


def overflows(status: int, text: str) -> bool:
    """Return whether an error answer says that the request was too long. The status decides first,
    the text only refines it. No body at all is what some servers send then.
    """
    if status == 413 or (status == 400 and not text.strip()):
        return True
    if status not in (400, 422) and (status < 500 or status in OVERLOADS):
        return False
    return is_overflow(text)


def is_overflow(text: str) -> bool:
    """Return whether an error's text says that the request was too long."""
    return any(
        re.search(pattern, text, re.IGNORECASE | re.DOTALL) for _, pattern in OVERFLOW_SPELLINGS
    )


def limit_tokens(text: str) -> int:
    """Return the window that an overflow error names; 0 if it names none that is plausible."""
    found = re.search(_LIMIT, text, re.IGNORECASE | re.DOTALL)
    digits = next(filter(None, found.groups()), "0") if found else "0"
    value = int(digits.replace(",", "").replace("_", ""))
    return value if 1_000 <= value <= 100_000_000 else 0
