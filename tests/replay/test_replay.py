"""Replay of a recorded session: aligned by request, priced by hand, no output seen too early."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from lab import simulate
from lab.inspector_session import SampleLogs, SampleSession
from lab.replay import (
    NAMES,
    POLICIES,
    PRICES,
    Change,
    CostAccount,
    PolicyReplay,
    Recording,
    of_entries,
    read_recording,
)
from lab.replay.costs import Row
from longrein.app.run_context import named_budget, read_run_context
from longrein.extensions.inspector.inspection import SessionInspector
from longrein.options import Options
from longrein_context import Budget, Clear, Nothing, State
from longrein_context.events import Cleared, Form, PrefixSet, UsageError, decode_entry, encode_entry

GOLDEN = Path(__file__).parents[1] / "store" / "golden_v1.jsonl"
BUDGET = Budget(200_000, 16_000)


def line(role: str, kind: str, step: int, **more: object) -> dict[str, object]:
    return {"role": role, "kind": kind, "step": step, "text": "", **more}


def made(results: list[str], system: int = 2_000) -> bytes:
    """A session that reads one file a step and then says what it found."""
    rows: list[dict[str, object]] = [
        {"type": "header", "name": "made", "system_tokens_est": system}
    ]
    rows.append(line("user", "user", 0, text="look at them all"))
    for n, text in enumerate(results):
        arguments = json.dumps({"file_path": f"/w/file_{n}.py"})
        rows.append(line("assistant", "tool_call", n, name="Read", args=arguments, call_id=f"t{n}"))
        rows.append(line("tool", "tool_result", n + 1, name="Read", text=text, call_id=f"t{n}"))
    rows.append(
        line("assistant", "assistant_text", len(results), text="compute_total is in file_0")
    )
    return "\n".join(map(json.dumps, rows)).encode()


def replayed(recording: Recording, policy: str = "keep-all") -> tuple[Row, list[Change]]:
    drive, seen = PolicyReplay(recording, POLICIES[policy], BUDGET), []
    account = CostAccount(policy, recording, PRICES["anthropic"])
    for change in drive.changes():
        account.request(change, drive.tokens, drive.summary_tokens)
        seen.append(change)
    return account.row, seen


def test_keeping_everything_costs_what_it_costs() -> None:
    account, changes = replayed(
        read_recording("made.jsonl", made(["def compute_total(rows): ...\n" * 40] * 3))
    )
    assert [change.show for change in changes] == [{}, {}, {}, {}]
    assert account.cost == pytest.approx(account.keep_all)
    assert account.breaks == 0


def test_the_price_of_two_requests_by_hand() -> None:
    recording = read_recording("made.jsonl", made(["x" * 281]))
    user, call, result, text = (item.tokens for item in recording.items)
    account, _ = replayed(recording)
    first = 1.25 * (2_000 + user) + 5 * call
    second = 0.1 * (2_000 + user) + 1.25 * (call + result) + 5 * text
    assert account.cost == pytest.approx(first + second)


def test_what_is_hidden_and_then_used_is_lost_and_what_is_shown_elsewhere_is_not() -> None:
    recording = read_recording("made.jsonl", made(["compute_total = 1", "other_thing = 2"]))

    def hide_first(state: State, budget: Budget, now_us: int) -> Clear | Nothing:
        done = any(item.form != "full" for item in state.items)
        if done or len(state.items) < 5:
            return Nothing("")
        handle = next(item.handle for item in state.items if item.kind == "result")
        return Clear(Cleared((Form(handle, "placeholder", "gone"),), "rent"))

    drive, priced = (
        PolicyReplay(recording, hide_first, BUDGET),
        CostAccount("", recording, PRICES["anthropic"]),
    )
    for change in drive.changes():
        priced.request(change, drive.tokens, drive.summary_tokens)
    account = priced.row
    assert (account.uses, account.kept) == (2, 1), (
        "file_0 stands in the call's argument, compute_total nowhere"
    )
    assert (account.tool_uses, account.tool_kept) == (1, 0)
    assert account.breaks == 1


def test_the_documents_clear_each_turn_and_break_the_cache_each_turn() -> None:
    account, changes = replayed(
        read_recording("made.jsonl", made([f"line_{n} = {n}\n" * 60 for n in range(12)])), "seed"
    )
    assert sum(bool(change.show) for change in changes) == 9, "all but the first three and the last"
    assert account.breaks == 9


def test_the_engine_never_sees_what_a_request_does_not_contain() -> None:
    recording = read_recording("made.jsonl", made([f"result_{n}" for n in range(5)]))
    seen: list[int] = []

    def count(state: State, budget: Budget, now_us: int) -> Nothing:
        seen.append(sum(item.kind == "result" and item.seqs[0] > 0 for item in state.items))
        return Nothing("")

    list(PolicyReplay(recording, count, BUDGET).changes())
    assert seen == [0, 1, 2, 3, 4, 5]


def test_our_own_log_is_a_recording_too() -> None:
    recording = of_entries(
        "golden", [decode_entry(row) for row in GOLDEN.read_bytes().splitlines()]
    )
    assert recording.requests == 1
    assert [item.kind for item in recording.items] == ["user"] * 2 + ["assistant_text"] * 2 + [
        "tool_call"
    ] * 2
    account, _ = replayed(recording)
    assert account.cost == pytest.approx(account.keep_all)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"not json", b'{"type":"header"}\n{"role":"user"}', b"\x1f\x8bnot gzip"]
)
def test_what_is_no_recorded_session_is_said_in_one_line(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"odd\.jsonl is no recorded session"):
        read_recording("odd.jsonl", data)


def test_simulate_prints_a_line_for_each_session_and_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGREIN_STATE_DIR", str(tmp_path / "state"))
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_bytes(
            made([f"{name}_{n} = {n}\n" * 90 for n in range(8)])
        )
    assert simulate.main([str(tmp_path), "--prices", "openai10"]) == 0
    table = capfd.readouterr().out.splitlines()
    assert [row.split()[:2] for row in table[1:-1]] == [
        [policy, session] for policy in NAMES for session in ("one", "two", "all")
    ]
    words = [str(tmp_path / "one.jsonl"), "--policy", "keep-all", "--json"]
    assert simulate.main(words) == 0
    row = json.loads(capfd.readouterr().out)[0]
    assert row["policy"] == "keep-all"
    assert row["cost"] == row["keep_all"]
    assert simulate.main([str(GOLDEN), "--policy", "default"]) == 0


SERVED = """
[providers.served]
wire = "{wire}"
base_url = "http://127.0.0.1:9"

[models."served/own"]
window = {window}
max_output = {output}
price_input = 2
price_output = 6
price_cache_read = 0.5
price_cache_write = 2
"""


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "gemini"])
@pytest.mark.parametrize("window", [40_000, 90_000])
def test_simulate_takes_the_facts_of_the_session_and_says_what_the_inspector_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    wire: str,
    window: int,
) -> None:
    for name, value in (
        ("HOME", "."),
        ("LONGREIN_STATE_DIR", "state"),
        ("XDG_CONFIG_HOME", "config"),
    ):
        monkeypatch.setenv(name, str(tmp_path / value))
    config = tmp_path / "config/longrein/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(SERVED.format(wire=wire, window=window, output=window // 8))
    sample = SampleSession(window=window).grow(620)
    model = {"provider": "served", "model": "own", "wire": wire}
    sample.entries = [
        replace(entry, event=replace(entry.event, **model))
        if isinstance(entry.event, PrefixSet)
        else entry
        for entry in sample.entries
    ]
    exported = tmp_path / "sample.jsonl"
    exported.write_bytes(b"\n".join(map(encode_entry, sample.entries)))
    run_context = read_run_context(Options())
    inspector = SessionInspector(SampleLogs(sample), lambda name: named_budget(run_context, name))
    inspector.read()
    page = inspector.inspection()
    assert page.window_tokens == window
    sent = sum(one.input + one.cache_read + one.cache_write for one in page.requests)
    share = sum(one.cache_read for one in page.requests) / sent

    assert simulate.main([str(exported)]) == 0
    *table, about = capfd.readouterr().out.splitlines()
    cells = {row.split()[0]: row.split()[2:] for row in table[1:]}
    breaks = sum(one.break_ is not None for one in page.requests)
    assert list(cells) == ["paid", *NAMES]
    assert cells["paid"][0] == str(len(page.requests))
    assert cells["paid"][3] == f"{share:.3f}"
    assert cells["paid"][-3] == str(breaks)
    assert about == f"window {window:,}, prices served/own, wire {wire}"
    assert simulate.main([str(exported), "--policy", "default", "--json"]) == 0
    _, own = json.loads(capfd.readouterr().out)
    words = ["--policy", "default", "--json", "--window", "24000", "--wire", wire]
    assert simulate.main([str(exported), *words]) == 0
    _, other = json.loads(capfd.readouterr().out)
    assert other["peak"] <= 24_000 < own["peak"] <= window
