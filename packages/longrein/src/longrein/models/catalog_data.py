"""Tables of `catalog`: figures of the providers' own pages in November 2026. Settings override
them.

Prices are US dollars for a million tokens: (input, output, cache read, cache write). If a price
rises with the length of the prompt, the table holds the price of the shorter range, except for a
step at 100k tokens or below. Discounts with an end date are left out.
"""

ModelRow = tuple[str, int, int, tuple[float, ...], float, int, bool]
"""Sold by, window tokens, largest output tokens, prices, cache TTL in seconds, smallest
cacheable prefix, prefill.
"""


def _claude(
    window: int, output: int, input_usd: float, *, read: float = 0.1, least: int = 1024
) -> ModelRow:
    """Claude: writes to the five-minute cache cost a quarter more than input, reads a share of
    input.
    """
    prices = (input_usd, 5 * input_usd, round(read * input_usd, 4), 1.25 * input_usd)
    return ("anthropic", window, output, prices, 300.0, least, False)


def _gpt(input_usd: float, output_usd: float, read_usd: float) -> ModelRow:
    """GPT from 5.6 on: 1.05M tokens; cache writes cost a quarter more than input; the cache
    lasts half an hour.
    """
    prices = (input_usd, output_usd, read_usd, 1.25 * input_usd)
    return ("openai", 1_050_000, 128_000, prices, 1800.0, 1024, False)


def _openai(
    window: int, output: int, input_usd: float, output_usd: float, read_usd: float
) -> ModelRow:
    return ("openai", window, output, (input_usd, output_usd, read_usd), 600.0, 1024, False)


def _gemini(
    output: int, input_usd: float, output_usd: float, read_usd: float, *, least: int = 4096
) -> ModelRow:
    return ("gemini", 1_048_576, output, (input_usd, output_usd, read_usd), 300.0, least, False)


def _open(sold_by: str, window: int, output: int, *prices: float) -> ModelRow:
    """An open model, at the prices of the company that made it; other hosts have other prices."""
    return (sold_by, window, output, prices, 600.0, 64, False)


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
    "claude-haiku-5-5": _claude(1_000_000, 128_000, 0.5),
    # OpenAI
    "gpt-6-1-sol": _gpt(2.0, 10.0, 0.1),
    "gpt-6-astra": _gpt(10.0, 50.0, 1.0),
    "gpt-6-sol": _gpt(2.0, 10.0, 0.2),
    "gpt-6-luna": _gpt(0.1, 0.5, 0.01),
    "gpt-5-6-sol": _gpt(4.0, 20.0, 0.4),
    "gpt-5-6-terra": _gpt(2.0, 12.0, 0.2),
    "gpt-5-6-luna": _gpt(0.2, 1.2, 0.02),
    "gpt-5-5": _openai(1_050_000, 128_000, 5.0, 30.0, 0.5),
    "gpt-5-4": _openai(1_050_000, 128_000, 2.5, 15.0, 0.25),
    "gpt-5-4-mini": _openai(400_000, 128_000, 0.75, 4.5, 0.075),
    "gpt-5-4-nano": _openai(400_000, 128_000, 0.2, 1.25, 0.02),
    "gpt-5-3-codex": _openai(400_000, 128_000, 1.75, 14.0, 0.175),
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
    "gemini-3-8-flash": _gemini(65_536, 1.5, 7.5, 0.15),
    "gemini-3-1-pro": _gemini(65_536, 2.0, 12.0, 0.2),
    "gemini-3-pro": _gemini(65_536, 2.0, 12.0, 0.2),
    "gemini-3-flash": _gemini(65_536, 0.5, 3.0, 0.05),
    "gemini-3": ("gemini", 1_048_576, 65_536, (), 300.0, 4096, False),
    "gemini-2-5-pro": _gemini(65_536, 1.25, 10.0, 0.125, least=2048),
    "gemini-2-5-flash": _gemini(65_536, 0.3, 2.5, 0.03, least=1024),
    "gemini-2-5-flash-lite": _gemini(65_536, 0.1, 0.4, 0.01, least=1024),
    # open models, by the company that made them; without prices where none was found
    "deepseek-v4-pro": _open("deepseek", 1_000_000, 384_000, 0.435, 0.87, 0.003625),
    "deepseek-v4-flash": _open("deepseek", 1_000_000, 384_000, 0.14, 0.28, 0.0028),
    "deepseek-v4": _open("deepseek", 1_000_000, 384_000),
    "deepseek": _open("deepseek", 128_000, 8_192),
    "kimi-k3": _open("moonshot", 1_048_576, 65_536, 3.0, 15.0, 0.3),
    "kimi-k2": _open("moonshot", 262_144, 32_768),
    "qwen3-8": _open("qwen", 1_000_000, 65_536),
    "qwen3-7": _open("qwen", 1_000_000, 65_536),
    "qwen3-6": _open("qwen", 1_000_000, 65_536),
    "qwen3-coder-plus": _open("qwen", 1_000_000, 65_536),
    "qwen3-coder": _open("qwen", 262_144, 65_536),
    "qwen3": _open("qwen", 131_072, 32_768),
    "glm-5-3": _open("zai", 1_000_000, 131_072),
    "glm-5-2": _open("zai", 1_000_000, 131_072),
    "glm-5": _open("zai", 200_000, 131_072),
    "glm-4": _open("zai", 200_000, 131_072),
    "minimax-m3": _open("minimax", 1_000_000, 131_072),
    "minimax-m2": _open("minimax", 204_800, 131_072),
    "grok-4": _open("xai", 256_000, 32_768),
    "grok-4-5": _open("xai", 500_000, 32_768),
    "grok-4-6": _open("xai", 500_000, 32_768),
    "grok-4-7": _open("xai", 500_000, 32_768),
    "mistral-large": _open("mistral", 262_144, 32_768, 0.5, 1.5),
    "mistral-medium": _open("mistral", 131_072, 32_768),
    "devstral": _open("mistral", 262_144, 32_768),
    "codestral": _open("mistral", 256_000, 32_768),
    "gpt-oss": _open("openai-open", 131_072, 32_768),
    "llama-4": _open("meta", 131_072, 8_192),
    "gemma": _open("google-open", 131_072, 8_192),
}
"""Family (as `naming.family` gives it) -> figures. The longest name that a model begins with
wins.
"""

ALIASES: dict[str, tuple[str, ...]] = {
    "anthropic": ("openrouter",),
    "openai": ("openai-chat", "openrouter"),
    "gemini": ("google", "openrouter"),
    "moonshot": ("kimi",),
}
"""Seller -> other names under which the same prices hold. A router hands on the prices of the
closed models.
"""

PROVIDERS: tuple[tuple[str, str, str, tuple[str, ...], tuple[str, ...], str], ...] = (
    (
        "anthropic",
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
        "claude-sonnet-5-5",
    ),
    (
        "openai",
        "openai-responses",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL",),
        "gpt-6.1-sol",
    ),
    (
        "gemini",
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GEMINI_BASE_URL",),
        "gemini-3.8-flash",
    ),
    (
        "openrouter",
        "openai-chat",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        (),
        "anthropic/claude-sonnet-5.5",
    ),
    (
        "deepseek",
        "openai-chat",
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        (),
        "deepseek-v4-pro",
    ),
    (
        "moonshot",
        "openai-chat",
        "https://api.moonshot.ai/v1",
        ("MOONSHOT_API_KEY", "KIMI_API_KEY"),
        (),
        "kimi-k3",
    ),
    (
        "mistral",
        "openai-chat",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        (),
        "devstral-latest",
    ),
    ("xai", "openai-chat", "https://api.x.ai/v1", ("XAI_API_KEY",), (), "grok-4.7"),
    (
        "qwen",
        "openai-chat",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ("DASHSCOPE_API_KEY",),
        (),
        "qwen3-coder-plus",
    ),
    (
        "zai",
        "openai-chat",
        "https://api.z.ai/api/paas/v4",
        ("ZAI_API_KEY", "ZHIPUAI_API_KEY"),
        (),
        "glm-5.3",
    ),
    ("minimax", "openai-chat", "https://api.minimax.io/v1", ("MINIMAX_API_KEY",), (), "MiniMax-M3"),
    (
        "groq",
        "openai-chat",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        (),
        "openai/gpt-oss-120b",
    ),
    (
        "cerebras",
        "openai-chat",
        "https://api.cerebras.ai/v1",
        ("CEREBRAS_API_KEY",),
        (),
        "gpt-oss-120b",
    ),
    (
        "together",
        "openai-chat",
        "https://api.together.xyz/v1",
        ("TOGETHER_API_KEY",),
        (),
        "openai/gpt-oss-120b",
    ),
    (
        "fireworks",
        "openai-chat",
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY",),
        (),
        "",
    ),
    ("ollama", "openai-chat", "http://127.0.0.1:11434/v1", (), ("OLLAMA_HOST",), ""),
    ("lmstudio", "openai-chat", "http://127.0.0.1:1234/v1", (), (), ""),
    ("llamacpp", "openai-chat", "http://127.0.0.1:8080/v1", (), (), ""),
    ("vllm", "openai-chat", "http://127.0.0.1:8000/v1", (), (), ""),
)
"""Name, wire, address, key variables, address variables, default model; in the order of search."""
