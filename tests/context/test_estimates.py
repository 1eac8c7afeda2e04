"""Token estimates: classes of text, calibration by the provider's counts, and counts that cannot
be true.
"""

import pytest

from lab.context.counting import DENSE, DIALECTS, WIDE
from lab.context.estimates import REACH, compare_estimates, session
from lab.context.material import KINDS, text
from longrein_context import estimate_text
from longrein_context.events import Text
from longrein_context.state.token_estimate import TokenGauge
from tests.tables import cases


def test_A5_an_empty_text_costs_nothing_and_a_letter_something() -> None:
    assert (estimate_text(""), estimate_text("a"), estimate_text("\n")) == (0, 1, 1)


@cases(
    "what sample least most",
    (
        "English: 100 tokens are about 75 words",
        "the quick brown fox jumps over a lazy dog " * 100,
        900,
        1_250,
    ),
    ("3,000 CJK characters", "会话永远不会用完" * 375, 2_000, 4_500),
    ("base64", "QmFzZTY0IGlzIGRlbnNlIGFuZCBoYXJkIHRvIHJlYWQ" * 100, 2_000, 3_600),
    (
        "code",
        "def step(state, entry):\n    state.seq = entry.seq\n    return state\n" * 100,
        1_600,
        2_600,
    ),
    ("timestamps", "2026-03-01 12:04:07,123 INFO worker-3\n" * 100, 1_400, 2_600),
    ("a million of one letter", "a" * 1_000_000, 60_000, 300_000),
)
def test_A5_before_any_count(what: str, sample: str, least: int, most: int) -> None:
    assert least <= estimate_text(sample) <= most, what


def test_a_long_text_is_guessed_from_pieces_of_it() -> None:
    part = text("files", 9_000, __import__("random").Random(1))
    whole = estimate_text(part) * 50
    assert estimate_text(part * 50) == pytest.approx(whole, rel=0.1)


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k in ("prose", "cjk", "code", "base64", "files")]
)
def test_A5_after_five_calls_the_estimate_is_within_ten_percent(kind: str) -> None:
    for dialect in (WIDE, DENSE):
        found = compare_estimates(kind, session([kind], dialect, calls=9))
        assert found.view <= REACH, found
        assert found.factor <= REACH, found


def test_A5_scripts_are_learned_apart() -> None:
    for dialect in DIALECTS:
        found = compare_estimates("mixed", session(["code", "cjk", "base64"], dialect, calls=12))
        assert found.view <= REACH, found
        assert found.factor <= REACH, found


def test_one_wild_count_is_passed_over_and_another_tokenizer_believed() -> None:
    gauge = TokenGauge()
    for n in range(6):
        gauge.add_part(Text("def f(x): return x\n" * 200), 1_400)
        gauge.calibrate(1_500 * (n + 1), gauge.raw)
    before = gauge.tokens
    gauge.calibrate(17, gauge.raw)
    assert gauge.tokens == before
    for _ in range(4):  # everything costs three times as much now, and goes on doing so
        gauge.add_part(Text("def f(x): return x\n" * 200), 1_400)
        gauge.calibrate(round(3.2 * gauge.raw), gauge.raw)
    assert gauge.tokens == pytest.approx(3.2 * gauge.raw, rel=0.02)
