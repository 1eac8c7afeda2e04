"""`longrein.engine`: figures of known models, and errors for invalid arguments."""

from typing import Any

import pytest

import longrein
from longrein import UsageError
from longrein.models import known_models, model_budget
from longrein_context import Price
from tests.tables import cases


@cases(
    "model window max_output",
    ("openai/gpt-5", 400_000, 32_000),
    ("gpt-5", 400_000, 32_000),
    ("anthropic/claude-sonnet-4-5", 200_000, 32_000),
    ("claude-sonnet-4-5-20250929", 200_000, 32_000),
    ("openrouter/anthropic/claude-sonnet-4.5", 200_000, 32_000),
)
def test_a_model_is_known_by_its_name(model: str, window: int, max_output: int) -> None:
    budget = longrein.engine(model).budget
    assert (budget.window_tokens, budget.max_output_tokens) == (window, max_output)


@pytest.mark.parametrize("model", known_models())
def test_every_model_of_the_table_makes_an_engine(model: str) -> None:
    engine = longrein.engine(model)
    assert engine.prepare([{"role": "user", "content": "Hello."}]) == [
        {"role": "user", "content": "Hello."}
    ]


def test_an_argument_stands_in_place_of_what_is_known() -> None:
    known = model_budget("anthropic", "claude-sonnet-4-5")
    assert known is not None
    engine = longrein.engine(
        "anthropic/claude-sonnet-4-5", window=50_000, price=Price(1.0, 2.0), cache_ttl_s=3600
    )
    assert (engine.budget.window_tokens, engine.budget.max_output_tokens) == (50_000, 12_500)
    assert (engine.budget.price, engine.budget.cache_ttl_s) == (Price(1.0, 2.0), 3600)
    assert longrein.engine("openai/gpt-5", visibility=2.5).budget.visibility == 2.5
    engine = longrein.engine("anthropic/claude-sonnet-4-5")
    assert (engine.budget.price, engine.budget.cache_ttl_s) == (known.price, known.cache_ttl_s)


@cases(
    "arguments line",
    (
        {},
        (
            'engine needs the name of a model, engine("openai/gpt-5"), or window=… and '
            "max_output=… in tokens"
        ),
    ),
    (
        {"model": "acme/9000"},
        "nothing is known of the model 'acme/9000': give window=… and max_output=…, in tokens",
    ),
    (
        {"model": 200_000},
        "engine takes the name of a model first: write engine(window=200000, max_output=...)",
    ),
    (
        {"window": 200_000},
        "engine needs max_output=…, the tokens of the longest answer in a window of 200000",
    ),
    ({"window": -1, "max_output": 1}, "window is a number of tokens above 0, not -1"),
    ({"window": 1e5, "max_output": 1}, "window is a number of tokens above 0, not 100000.0"),
    (
        {"window": 8_000, "max_output": 8_000},
        "max_output 8000 leaves no room in a window of 8000 tokens",
    ),
    ({"window": 8_000, "max_output": -5}, "max_output is a number of tokens, not -5"),
    ({"visibility": 0}, "visibility is a number above 0, not 0"),
    ({"cache_ttl_s": -1}, "cache_ttl_s is a number of seconds, not -1"),
    ({"cache_ttl_s": float("nan")}, "cache_ttl_s is a number of seconds, not nan"),
    ({"clears": "result"}, "clears is a list of texts, not a text: write clears=['result']"),
    (
        {"clears": ["results"]},
        "clears takes exchange, result, call, text, thinking, not ['results']",
    ),
    ({"price": 3.0}, "price is a longrein_context.Price, not 3.0"),
    ({"summarise": "shorter"}, "summarise is a function from a list of messages to text"),
)
def test_an_argument_that_cannot_be_is_refused(arguments: dict[str, Any], line: str) -> None:
    sizes = (
        {}
        if {"model", "window"} & set(arguments) or not arguments
        else {"window": 8_000, "max_output": 1_000}
    )
    with pytest.raises(UsageError) as refused:
        longrein.engine(**{**sizes, **arguments})
    assert str(refused.value) == line
