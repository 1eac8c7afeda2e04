"""Plain policies, and the account of what they lose: priced by hand."""

import json

import pytest

from lab.replay import (
    PRICES,
    Change,
    CostAccount,
    PlainReplay,
    Recording,
    Row,
    find_uses,
    read_recording,
)
from lab.replay.plain_policies import PLAIN, PROSE
from tests.replay.test_replay import line, made


def replayed(policy: str, recording: Recording, window: int) -> tuple[Row, list[Change]]:
    replay, seen = PlainReplay(recording, PLAIN[policy], window), []
    account = CostAccount(policy, recording, PRICES["anthropic"], window=window)
    for change in replay.changes():
        account.request(change, replay.tokens, replay.summary_tokens)
        seen.append(change)
    return account.row, seen


def hide(recording: Recording, at: int, places: list[int]) -> Row:
    """Figures when these items show nothing from request `at` on."""
    tokens, account = (
        [item.tokens for item in recording.items],
        CostAccount("", recording, PRICES["anthropic"]),
    )
    for t in range(recording.requests):
        change = Change(t, dict.fromkeys(places) if t == at else {})
        if t == at:
            tokens = [0 if n in places else size for n, size in enumerate(tokens)]
        account.request(change, tokens, 0)
    return account.row


def test_a_summary_replaces_everything_but_the_newest_exchange_when_the_window_is_full() -> None:
    recording = read_recording(
        "made.jsonl", made([f"line_number_{n} = {n}\n" * 200 for n in range(60)])
    )
    row, changes = replayed("summary-92", recording, 40_000)
    first = next(change for change in changes if change.summary)
    assert first.summary == PROSE
    assert sorted(first.show) == list(range(max(first.show) + 1)), (
        "everything that the request before showed"
    )
    assert row.summaries == sum(bool(change.summary) for change in changes) > 1
    assert row.failures == 0
    assert row.peak <= 40_000
    assert replayed("summary-92", recording, 200_000)[0].breaks == 0


def test_results_are_cleared_in_batches_that_save_much() -> None:
    results = [f"line_number_{n} = {n}\n" * 800 for n in range(20)]
    row, changes = replayed("batch", read_recording("made.jsonl", made(results)), 200_000)
    batches = [change for change in changes if change.show]
    assert [change.reason for change in batches] == ["batch"] * row.breaks
    assert row.breaks == 2
    assert {text for change in batches for text in change.show.values()} == {
        "[801 lines of old output were cleared]"
    }
    assert row.summaries == 0


@pytest.mark.parametrize("policy", PLAIN)
def test_a_plain_policy_sees_no_future(policy: str) -> None:
    results = [f"line_number_{n} = {n}\n" * 600 for n in range(20)]
    whole, half = (
        list(PlainReplay(read_recording("m", made(some)), PLAIN[policy], 60_000).changes())
        for some in (results, results[:12])
    )
    assert [(c.show, c.summary) for c in half] == [(c.show, c.summary) for c in whole[: len(half)]]


def test_the_price_of_a_lost_use_by_hand() -> None:
    recording = read_recording("made.jsonl", made(["compute_total = 1", "other = 2"]))
    row = hide(recording, 2, [2])
    result = recording.items[2].tokens
    mean = row.carried / 3
    recall = 5 * 80 + 0.1 * (mean + result * 1) + 1.25 * result
    assert row.recalls == 1
    assert row.with_recalls == pytest.approx(row.cost + recall)
    assert (row.id_uses, row.id_kept, row.line_uses) == (1, 0, 0)


def test_a_model_s_summary_keeps_a_share_of_what_it_read() -> None:
    results = ["compute_total = 1\n" * 300, *(f"line_number_{n} = {n}\n" * 100 for n in range(3))]
    recording = read_recording("made.jsonl", made(results))
    row, changes = replayed("summary-92", recording, 6_000)
    assert any(change.summary for change in changes)
    assert row.tool_uses - row.tool_kept == pytest.approx(0.7)
    assert row.recalls == pytest.approx(row.uses - row.kept)


OLD = "    total = compute_total(rows)\n    return total"
EDITS: dict[str, tuple[list[int], int]] = {
    "shown": ([], 1),
    "hidden": ([2], 0),
    "the call is hidden, the result stands": ([1], 1),
}


@pytest.mark.parametrize("case", EDITS)
def test_the_old_text_of_an_edit_must_stand_whole(case: str) -> None:
    places, kept = EDITS[case]
    rows = [
        json.loads(row)
        for row in made(["   1\tdef f(rows):\n" + OLD.replace("    ", "   2\t    ")]).splitlines()
    ]
    arguments = json.dumps({"file_path": "/w/file_0.py", "old_string": OLD, "new_string": "x"})
    rows.append(line("assistant", "tool_call", 2, name="Edit", args=arguments, call_id="e"))
    recording = read_recording("made.jsonl", "\n".join(map(json.dumps, rows)).encode())
    assert [len(edits) for edits in find_uses(recording).edits] == [0, 0, 1]
    row = hide(recording, 2, places)
    assert (row.edit_uses, row.edit_kept) == (1, kept)


def test_prices_may_be_changed_afterwards() -> None:
    recording = read_recording("made.jsonl", made(["compute_total = 1", "other = 2"]))
    account = CostAccount("", recording, PRICES["anthropic"])
    for t in range(recording.requests):
        account.request(Change(t), [item.tokens for item in recording.items], 0)
    again = CostAccount("", recording, PRICES["local"])
    for t in range(recording.requests):
        again.request(Change(t), [item.tokens for item in recording.items], 0)
    assert account.row_at(PRICES["local"]) == again.row
    assert again.row.cost == 2_000 + sum(item.tokens for item in recording.items[:-1]), (
        "each token is computed once"
    )
