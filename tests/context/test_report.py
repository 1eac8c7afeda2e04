"""`/context`: every token of the next request has a row, and the rows add up to the provider's
count exactly.
"""

import json
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.replay import POLICIES, PolicyReplay, read_recording
from longrein.frontends.reports.context import as_json, as_text, reason_rows
from longrein_context import Budget, Price, State, line_reasons, next_compacted, report
from longrein_context.context_report import MODULES, Report
from longrein_context.events import PrefixSet, ToolSpec, ToolTraits, text_of
from longrein_context.state.token_estimate import estimate_text
from tests.context.random_session import RandomSession
from tests.tables import split_words


def walked(seed: int, moves: int = 120) -> tuple[State, Budget]:
    walk = RandomSession(seed, window=20_000).run(moves)
    return walk.state, walk.budget


def told(seed: int) -> tuple[State, Report]:
    state, budget = walked(seed)
    return state, report(state, budget, next_compacted(state, budget))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 500))
def test_E1_the_rows_add_up_to_the_view_and_the_modules_to_the_rows(seed: int) -> None:
    state, page = told(seed)
    assert sum(row.tokens for row in page.shown) == page.total_tokens == state.view_tokens
    assert sum(tokens for _, tokens in page.modules()) == page.total_tokens
    assert [name for name, _ in page.modules()] == [
        name for name in MODULES if name in dict(page.modules())
    ]


def test_E1_each_module_stands_there_iff_it_has_content() -> None:
    walk = RandomSession(3, window=20_000)
    assert [name for name, _ in report(walk.state, walk.budget).modules()] == [
        "system",
        "environment",
    ]
    _, page = next(pair for pair in map(told, range(3, 60)) if pair[0].ledger_text)
    assert [name for name, _ in page.modules()] == list(MODULES)


def test_E1_a_cleared_item_is_shown_in_its_form_and_what_goes_next_is_marked() -> None:
    state, page = told(3)
    forms = {row.handle: row.form for row in page.shown if row.handle and row.form != "folded"}
    assert forms == {item.handle: item.form for item in state.items if item.handle}
    assert any(row.goes for row in page.shown)
    assert all(row.usd >= 0 for row in page.shown)


def parts_of_two_files() -> Iterator[dict[str, object]]:
    """A recording that reads two files from their ends to their beginnings, in parts."""
    yield {"type": "header", "system_tokens_est": 2_000}
    yield {"role": "user", "kind": "user", "step": 0, "text": "look at both"}
    for n in range(40):
        path, first = f"/w/{'ab'[n % 2]}.tsv", 600 - n // 2 * 30
        arguments = json.dumps({"path": path, "offset": first, "limit": 30})
        call = {"name": "Read", "call_id": f"t{n}", "text": ""}
        yield {"role": "assistant", "kind": "tool_call", "step": n, "args": arguments, **call}
        lines = (f"{at:6}\t{at % 7}\tdef f_{path[3]}_{at}(x)" for at in range(first, first + 30))
        told = {**call, "text": "\n".join(lines)}
        yield {"role": "tool", "kind": "tool_result", "step": n + 1, **told}
    yield {"role": "assistant", "kind": "assistant_text", "step": 40, "text": "f_a_30 is it"}


def test_each_part_of_a_file_has_its_own_row_when_it_is_cleared() -> None:
    recording = read_recording("made", b"\n".join(map(msgspec.json.encode, parts_of_two_files())))
    price = Price(3, 15, 0.3, 3.75)
    replay = PolicyReplay(recording, POLICIES["default"], Budget(20_000, 8_000, price))
    tools = (ToolSpec("Read", "reads", {}, ToolTraits(kind="read")),)
    replay.tell(PrefixSet("start", "made", "made", "scripted", "word " * 2_000, tools))
    for _ in replay.changes():
        pass
    page = report(replay.state, replay.budget)
    rows = [row for row in page.shown if row.kind == "result"]
    assert {row.form for row in rows} >= {"trimmed", "folded", "full"}
    assert [row.begins for row in rows] == [
        f"w/{'ab'[n % 2]}.tsv:{600 - n // 2 * 30}–{629 - n // 2 * 30}" for n in range(40)
    ]
    assert len({row.handle for row in rows}) == 40
    texts = {item.handle: estimate_text(text_of((item.part,))) for item in replay.state.items}
    host = next(row for row in rows if row.form == "trimmed")
    assert host.tokens < 60 < replay.state.gauge.scale(texts[host.handle]), "without the history"
    assert sum(row.tokens for row in page.shown) == page.total_tokens


def test_the_price_so_far_is_one_write_and_a_read_for_each_later_request() -> None:
    walk = RandomSession(5, window=200_000).run(60)
    price = Price(3, 15, 0.3, 3.75)
    page = report(walk.state, Budget(200_000, 8_000, price))
    first = next(item for item in walk.state.items if item.kind == "user")
    row = next(row for row in page.shown if row.handle == first.handle)
    carried = sum(seq > first.key[0] for seq in walk.state.asked_seqs)
    scaled = walk.state.gauge.scale(first.tokens)
    assert row.usd == pytest.approx(scaled * (3.75 + 0.3 * (carried - 1)) / 1e6)


def test_the_json_page_has_the_fields_that_other_clients_read() -> None:
    state, page = told(3)
    read = json.loads(as_json(page, state, "mock/small"))
    assert set(
        split_words("""
        categories totalTokens maxTokens rawMaxTokens percentage model gridRows
    """)
    ) <= set(read)
    assert read["totalTokens"] == page.total_tokens
    used = [c for c in read["categories"] if c["name"] not in ("Free space", "Autocompact buffer")]
    assert sum(c["tokens"] for c in used) == page.total_tokens
    assert sum(c["tokens"] for c in read["categories"]) == max(
        page.usable_tokens, page.total_tokens
    )
    assert [len(row) for row in read["gridRows"]] == [10] * 10
    assert sum(item["tokens"] for item in read["items"]) == page.total_tokens


def test_the_text_page_names_modules_and_largest_items() -> None:
    _, page = told(3)
    text = as_text(page)
    assert "calls and results" in text
    assert "usable tokens" in text
    assert "the next compaction takes it" in text


def test_what_is_assumed_of_cache_prices_is_said() -> None:
    state, budget = walked(3)
    for price, said in (
        (Price(3, 15, 0.3, 3.75), False),
        (Price(3, 15), True),
        (Price(3, 15, 0.3, 3.75, True), True),
    ):
        page = report(state, msgspec.structs.replace(budget, price=price))
        assert ("cache prices are not known" in as_text(page)) == said
        assert ("note" in json.loads(as_json(page, state, "mock/small"))) == said


def test_why_a_line_stays_is_said_line_by_line() -> None:
    state, budget = walked(5)
    handle = next(
        item.handle for item in state.items if item.kind == "result" and item.form == "full"
    )
    found = line_reasons(state, budget, handle)
    assert found
    rows = reason_rows(found)
    assert all(head.split()[0] in ("keep", "clear") for head, _ in rows[1:])
    assert "nothing with that handle" in reason_rows(line_reasons(state, budget, "r99999"))[0][1]
