"""The table behind `catalog`: figures as the providers' own pages gave them in November 2026. Settings override them.

Prices are US dollars for a million tokens: (input, output, cache read, cache write). Prices that rise with the length
of the prompt are given for the shorter range.
"""

ModelRow = tuple[str, int, int, tuple[float, ...], float, int, bool]
"""Sold by, window tokens, largest output tokens, prices, cache TTL in seconds, smallest cacheable prefix, prefill."""


def _claude(window: int, output: int, input_usd: float, *, read: float = 0.1, least: int = 1024) -> ModelRow:
    """Writes to the five-minute cache cost a quarter more than input; reads a share of it."""
    prices = (input_usd, 5 * input_usd, round(read * input_usd, 4), 1.25 * input_usd)
    return ("anthropic", window, output, prices, 300.0, least, False)


def _openai(window: int, output: int, input_usd: float, output_usd: float, read_usd: float) -> ModelRow:
    return ("openai", window, output, (input_usd, output_usd, read_usd), 600.0, 1024, False)


def _gemini(output: int, input_usd: float, output_usd: float, read_usd: float) -> ModelRow:
    return ("google", 1_048_576, output, (input_usd, output_usd, read_usd), 300.0, 2048, False)


def _open(sold_by: str, window: int, output: int, *prices: float, ttl_s: float = 600.0) -> ModelRow:
    return (sold_by, window, output, prices, ttl_s, 64, True)


MODELS: dict[str, ModelRow] = {
    # Anthropic
    "claude-fable-5-1": _claude(1_000_000, 128_000, 10.0, read=0.025),
    "claude-fable-5": _claude(1_000_000, 128_000, 10.0),
    "claude-opus-5-5": _claude(1_000_000, 128_000, 4.0, read=0.05),
    "claude-opus-5": _claude(1_000_000, 128_000, 5.0),
    "claude-opus-4-8": _claude(1_000_000, 128_000, 5.0),
    "claude-opus-4-7": _claude(1_000_000, 128_000, 5.0, least=4096),
    "claude-opus-4-6": _claude(1_000_000, 128_000, 5.0, least=4096),
    "claude-opus-4-5": _claude(200_000, 64_000, 5.0, least=4096),
    "claude-opus-4-1": _claude(200_000, 32_000, 15.0),
    "claude-opus-4": _claude(200_000, 32_000, 15.0),
    "claude-sonnet-5-5": _claude(1_000_000, 128_000, 2.0, read=0.05),
    "claude-sonnet-5": _claude(1_000_000, 128_000, 2.0),
    "claude-sonnet-4-6": _claude(1_000_000, 64_000, 3.0, least=2048),
    "claude-sonnet-4-5": _claude(200_000, 64_000, 3.0),
    "claude-sonnet-4": _claude(200_000, 64_000, 3.0),
    "claude-haiku-4-5": _claude(200_000, 64_000, 1.0, least=4096),
    # OpenAI
    "gpt-5-2": _openai(400_000, 128_000, 1.75, 14.0, 0.175),
    "gpt-5-1": _openai(400_000, 128_000, 1.25, 10.0, 0.125),
    "gpt-5": _openai(400_000, 128_000, 1.25, 10.0, 0.125),
    "gpt-5-mini": _openai(400_000, 128_000, 0.25, 2.0, 0.025),
    "gpt-5-nano": _openai(400_000, 128_000, 0.05, 0.4, 0.005),
    "gpt-4-1": _openai(1_047_576, 32_768, 2.0, 8.0, 0.5),
    "gpt-4-1-mini": _openai(1_047_576, 32_768, 0.4, 1.6, 0.1),
    "gpt-4-1-nano": _openai(1_047_576, 32_768, 0.1, 0.4, 0.025),
    "gpt-4o": _openai(128_000, 16_384, 2.5, 10.0, 1.25),
    "gpt-4o-mini": _openai(128_000, 16_384, 0.15, 0.6, 0.075),
    "o3": _openai(200_000, 100_000, 2.0, 8.0, 0.5),
    "o4-mini": _openai(200_000, 100_000, 1.1, 4.4, 0.275),
    # Google
    "gemini-3-pro": _gemini(65_536, 2.0, 12.0, 0.2),
    "gemini-3-flash": _gemini(65_536, 0.5, 3.0, 0.05),
    "gemini-2-5-pro": _gemini(65_536, 1.25, 10.0, 0.125),
    "gemini-2-5-flash": _gemini(65_536, 0.3, 2.5, 0.03),
    "gemini-2-5-flash-lite": _gemini(65_536, 0.1, 0.4, 0.01),
}

ALIASES: dict[str, tuple[str, ...]] = {"google": ("gemini",), "moonshot": ("kimi",), "openai": ("openai-chat",)}
"""Seller -> other names under which the same prices hold."""

PROVIDERS: tuple[tuple[str, str, str, tuple[str, ...], tuple[str, ...], str], ...] = (
    (
        "anthropic",
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
        "claude-sonnet-5-5",
    ),
    ("openai", "openai-responses", "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), "gpt-5.2"),
    (
        "gemini",
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GEMINI_BASE_URL",),
        "gemini-3-pro-preview",
    ),
    (
        "openrouter",
        "openai-chat",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        (),
        "anthropic/claude-sonnet-5.5",
    ),
    ("deepseek", "openai-chat", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), (), "deepseek-chat"),
    ("moonshot", "openai-chat", "https://api.moonshot.ai/v1", ("MOONSHOT_API_KEY", "KIMI_API_KEY"), (), "kimi-k2.6"),
    ("mistral", "openai-chat", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), (), "devstral-latest"),
    ("xai", "openai-chat", "https://api.x.ai/v1", ("XAI_API_KEY",), (), "grok-4"),
    (
        "qwen",
        "openai-chat",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ("DASHSCOPE_API_KEY",),
        (),
        "qwen3-coder-plus",
    ),
    ("zai", "openai-chat", "https://api.z.ai/api/paas/v4", ("ZAI_API_KEY", "ZHIPUAI_API_KEY"), (), "glm-4.7"),
    ("minimax", "openai-chat", "https://api.minimax.io/v1", ("MINIMAX_API_KEY",), (), "MiniMax-M2.5"),
    ("groq", "openai-chat", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), (), "openai/gpt-oss-120b"),
    ("cerebras", "openai-chat", "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",), (), "gpt-oss-120b"),
    ("together", "openai-chat", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",), (), "openai/gpt-oss-120b"),
    ("fireworks", "openai-chat", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",), (), ""),
    ("ollama", "openai-chat", "http://127.0.0.1:11434/v1", (), ("OLLAMA_HOST",), ""),
    ("lmstudio", "openai-chat", "http://127.0.0.1:1234/v1", (), (), ""),
    ("llamacpp", "openai-chat", "http://127.0.0.1:8080/v1", (), (), ""),
    ("vllm", "openai-chat", "http://127.0.0.1:8000/v1", (), (), ""),
)
"""Name, wire, address, key variables, address variables, model when none is named; in the order they are looked for."""
