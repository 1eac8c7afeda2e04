"""Token estimates: classes of text, calibration by the provider's counts, and counts that cannot
be true.
"""

import pytest
from benchmarks.context.counting import DENSE, DIALECTS, WIDE
from benchmarks.context.estimates import REACH, compare_estimates, session
from benchmarks.context.material import KINDS, text

from longrein.context import estimate_text
from longrein.context.state.token_estimate import TokenGauge
from longrein.context.state.view import count_prefix
from longrein.events import Document, Image, Text, ToolCall, ToolResult
from tests.context.random_session import RandomSession


def test_A5_an_empty_text_costs_nothing_and_a_letter_something() -> None:
    assert (estimate_text(""), estimate_text("a"), estimate_text("\n")) == (0, 1, 1)


@pytest.mark.parametrize(
    ("what", "sample", "least", "most"),
    [
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
    ],
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


@pytest.mark.parametrize(
    "part",
    [
        Image("b" * 64, "image/png", 9_000, 1_000, 1_000),
        Image("b" * 64, "image/png", 9_000),
        Document("b" * 64, "text/plain", 10**6, "log", 10**4, "head " * 100, "tail " * 100),
        ToolCall("c1.0", "Edit", {"file_path": "a.py", "new_string": "x = 1\n" * 50}),
        ToolResult(
            "c1.0",
            "Read",
            "ok",
            (Text("x = 1\n" * 50), Image("b" * 64, "image/png", 9_000, 750, 100)),
        ),
    ],
)
def test_every_part_has_its_price(part: object) -> None:
    assert TokenGauge().tokens_of(part) > 100


def test_what_comes_and_goes_leaves_the_gauge_as_it_was() -> None:
    for seed in range(6):
        walk = RandomSession(seed, "default", 12_000).run(60)
        gauge, prefix = walk.state.gauge, walk.state.prefix
        assert prefix is not None
        fixed = estimate_text(prefix.system)
        fixed += sum(
            estimate_text(tool.name + tool.description + str(tool.schema)) + 6
            for tool in prefix.tools
        )
        assert gauge.raw == fixed + sum(item.tokens for item in walk.state.items), f"seed {seed}"


def test_counting_the_view_anew_equals_the_single_changes() -> None:
    for seed in range(6):
        state = RandomSession(seed, "default", 12_000).run(60).state
        gauge = state.gauge
        raw, tokens, whole, fresh = gauge.raw, gauge.tokens, gauge.whole, gauge.fresh
        gauge.drop_all()
        count_prefix(state, 1)
        for item in state.conversation:
            gauge.add_part(item.part, item.tokens)
        assert gauge.raw == raw, f"seed {seed}"
        assert gauge.tokens == pytest.approx(tokens, abs=1), f"seed {seed}"
        assert gauge.whole == pytest.approx(whole, abs=1e-6), f"seed {seed}"
        assert gauge.fresh == pytest.approx(fresh, abs=1e-6), f"seed {seed}"
