"""Catalog: spellings of model names, budgets, and the cost of a request."""

import pytest

from longrein.models import (
    ModelOptions,
    cost_usd,
    family,
    known_models,
    known_provider,
    known_providers,
    look_up,
    open_model,
    usual_price,
)
from longrein_context import Budget, Price
from longrein_context.events import SettingsError, Usage
from tests.models.http_server import BLOBS, FixedClock


@pytest.mark.parametrize(("name", "expected"), [
    ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
    ("anthropic/claude-sonnet-4.5:thinking", "claude-sonnet-4-5"),
    ("claude-opus-4-5@20251101", "claude-opus-4-5"),
    ("gpt-6.1-sol-2026-09-29", "gpt-6-1-sol"),
    ("gemini-3-pro-preview", "gemini-3-pro"),
    ("gemini-2.5-pro-preview-05-06", "gemini-2-5-pro"),
    ("devstral-latest", "devstral"),
    ("qwen3:8b", "qwen3"),
    ("o3", "o3"),
    ("", ""),
])  # fmt: skip
def test_spellings_of_one_family(name: str, expected: str) -> None:
    assert family(name) == expected


@pytest.mark.parametrize(("provider", "model", "window", "price"), [
    ("anthropic", "claude-sonnet-4-5-20250929", 200_000, Price(3.0, 15.0, 0.3, 3.75)),
    ("anthropic", "claude-opus-5-5", 1_000_000, Price(4.0, 20.0, 0.2, 5.0)),
    ("openrouter", "anthropic/claude-opus-5.5", 1_000_000, Price(4.0, 20.0, 0.2, 5.0)),
    ("openai", "gpt-5-mini-2025-08-07", 400_000, Price(0.25, 2.0, 0.025)),
    ("openai", "gpt-6.1-sol", 1_050_000, Price(2.0, 10.0, 0.1, 2.5)),
    ("gemini", "gemini-2.5-flash-lite", 1_048_576, Price(0.1, 0.4, 0.01)),
    ("deepseek", "deepseek-v4-pro", 1_000_000, Price(0.435, 0.87, 0.003625)),
    ("together", "deepseek-v4-pro", 1_000_000, None),  # another host, another price
    ("ollama", "qwen3:8b", 32_768, Price(0.0, 0.0)),  # started with less than the model could take
    ("ollama", "never-heard-of", 32_768, Price(0.0, 0.0)),
    ("mine", "never-heard-of", 128_000, None),
])  # fmt: skip
def test_what_a_model_offers_and_costs(
    provider: str, model: str, window: int, price: Price | None
) -> None:
    budget = look_up(provider, model)
    assert (budget.window_tokens, budget.price) == (window, price)
    assert 0 < budget.max_output_tokens <= 32_000


def test_every_row_makes_sense() -> None:
    for model in known_models():
        assert family(model) == model, "the table is keyed by family"
        budget = look_up("anthropic", model)
        assert budget.window_tokens >= 128_000
        assert budget.max_output_tokens * 4 <= budget.window_tokens
        if budget.price is not None:
            assert 0 <= budget.price.cache_read <= budget.price.input <= budget.price.cache_write
            assert budget.price.input < budget.price.output


def test_cost_counts_the_four_kinds_apart_and_an_unknown_price_as_nothing() -> None:
    usage = Usage(1_000_000, 2_000_000, 3_000_000, 4_000_000, 1_000_000)
    assert cost_usd(Price(3.0, 15.0, 0.3, 3.75), usage) == pytest.approx(3.0 + 0.6 + 11.25 + 60.0)
    assert cost_usd(Price(2.0, 10.0), usage) == pytest.approx(2.0 + 0.4 + 6.0 + 40.0)
    assert cost_usd(None, usage) == 0.0
    hour = Usage(cache_write_tokens=1_000_000, cache_write_hour_tokens=400_000)
    assert cost_usd(Price(3.0, 15.0, 0.3, 3.75), hour) == pytest.approx(0.6 * 3.75 + 0.4 * 6.0)


@pytest.mark.parametrize(
    ("provider", "model", "prices", "expected"),
    [
        ("anthropic", "claude-of-next-year", (4.0, 20.0), Price(4.0, 20.0, 0.4, 5.0, assumed=True)),
        ("mine", "claude-sonnet-5", (4.0, 20.0), Price(4.0, 20.0, 0.4, 5.0, assumed=True)),
        ("openai-chat", "gpt-of-next-year", (4.0, 20.0), Price(4.0, 20.0, 0.4, 4.0, assumed=True)),
        ("deepseek", "deepseek-v5", (1.0, 2.0), Price(1.0, 2.0, 0.02, 1.0, assumed=True)),
        ("mistral", "mistral-large", (0.5, 1.5), Price(0.5, 1.5, 0.05, 0.5, assumed=True)),
        ("mine", "never-heard-of", (1.0, 5.0), Price(1.0, 5.0, 0.1, 1.0, assumed=True)),
        ("mine", "never-heard-of", (1.0, 5.0, 0.5), Price(1.0, 5.0, 0.5)),
        ("mine", "no-cache-at-all", (1.0, 5.0, 1.0, 1.0), Price(1.0, 5.0, 1.0, 1.0)),
        (
            "anthropic",
            "claude-of-next-year",
            (4.0, 20.0, -1.0, 8.0),
            Price(4.0, 20.0, 0.4, 8.0, assumed=True),
        ),
        ("mine", "free", (0.0, 0.0), Price(0.0, 0.0, 0.0, 0.0, assumed=True)),
    ],
)
def test_cache_prices_that_nobody_gave_are_those_of_the_family(
    provider: str, model: str, prices: tuple[float, ...], expected: Price
) -> None:
    price = usual_price(provider, model, prices)
    assert price == expected
    assert bool(price.note) == (price.assumed and price.input > 0), "what is assumed is said"


def test_the_providers_that_are_found_without_a_file() -> None:
    names = [provider.name for provider in known_providers()]
    assert names[:4] == ["anthropic", "openai", "gemini", "openrouter"]
    assert {p.name: p.base_url for p in known_providers() if p.local} == {
        "ollama": "http://127.0.0.1:11434/v1",
        "lmstudio": "http://127.0.0.1:1234/v1",
        "llamacpp": "http://127.0.0.1:8080/v1",
        "vllm": "http://127.0.0.1:8000/v1",
    }
    openai = known_provider("openai")
    found = (openai.wire, openai.keys, openai.url_keys)
    assert found == ("openai-responses", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",))
    assert known_provider("nobody") is None
    for provider in known_providers():
        options = ModelOptions(
            provider.name, provider.model or "m", provider.wire, provider.base_url
        )
        model = open_model(options, BLOBS.__getitem__, FixedClock())
        assert model.name == f"{provider.name}/{provider.model or 'm'}"
        if provider.model and provider.name in ("anthropic", "openai", "gemini"):
            assert model.budget.price is not None, "what is used unasked must have a price"


def test_what_the_settings_say_goes_first_and_an_unknown_wire_is_named() -> None:
    budget = Budget(1000, 100)
    options = ModelOptions("mock", "small", "openai-chat", "http://127.0.0.1:1", budget=budget)
    assert open_model(options, BLOBS.__getitem__, FixedClock()).budget == budget
    wrong = ModelOptions("mock", "small", "morse", "http://127.0.0.1:1")
    with pytest.raises(SettingsError) as raised:
        open_model(wrong, BLOBS.__getitem__, FixedClock())
    assert str(raised.value) == (
        "provider 'mock' has the unknown wire 'morse'; "
        "wires are anthropic, openai-chat, openai-responses, gemini, scripted"
    )
