"""`longrein doctor --live` over each wire: what works, is broken, or is not offered."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longrein.testing.loopback import Call, Count, Fault, Received, Turn
from tests.e2e.harness import CliHarness, Provider

WIRES = {"anthropic": "", "openai-chat": "/v1", "openai-responses": "/v1", "gemini": "/v1beta"}
NAMES = ["text", "tool call", "parallel calls", "thinking", "cache", "image"]
FIGURES = """
[models."served/one"]
window = 100000
max_output = 8192
price_input = 3
price_output = 15
price_cache_read = 0.3
price_cache_write = 3.75
"""
Answer = Callable[[Received], Turn]


def call(word: str) -> Call:
    return Call(name="report", arguments={"word": word})


def good(request: Received) -> Turn:
    """What a model that does everything answers."""
    said = request.said
    if "twice" in said:
        return Turn(calls=(call("left"), call("right")))
    if "`report` once" in said:
        return Turn(calls=(call("reins"),))
    if "colour" in said:
        return Turn(text="Red.")
    if "17 * 23" in said:
        return Turn(thinking="391 and 399.", text="399")
    return Turn(text="ready")


def but(words: str, turn: Turn) -> Answer:
    """The same, but for the request with these words."""
    return lambda request: turn if words in request.said else good(request)


def refusing(status: int, text: str) -> Turn:
    body = json.dumps({"error": {"message": text, "type": "invalid_request_error"}})
    return Turn(fault=Fault(status=status, body=body))


def check(
    cli: CliHarness, answer: Answer, wire: str = "openai-chat", more: str = FIGURES
) -> tuple[int, dict[str, Any]]:
    """Run the checks; return the exit code and what is printed as JSON."""
    with Provider(script=answer) as provider:
        lines = provider.settings(wire).replace(provider.url, provider.url + WIRES[wire])
        cli.settings(lines + more, "served/one")
        done = cli.run("doctor", "--live", "--json")
        assert not provider.refused
    return done.code, json.loads(done.text)


def states(report: dict[str, Any]) -> list[str]:
    assert [one["name"] for one in report["checks"]] == NAMES
    return [one["state"] for one in report["checks"]]


@pytest.mark.parametrize("wire", WIRES)
def test_a_model_that_does_everything_is_well_over_each_wire(cli: CliHarness, wire: str) -> None:
    code, report = check(cli, good, wire)
    assert states(report) == ["ok"] * 6, report
    assert code == 0
    first, cached = report["checks"][0], report["checks"][4]
    assert first["input_tokens"] == cached["input_tokens"] > 1_024 > first["cached_tokens"]
    assert cached["cached_tokens"] > 0.8 * cached["input_tokens"]
    assert 0 < report["spent_usd"] < report["limit_usd"] < 1
    assert report["estimated_usd"] < report["limit_usd"]


BROKEN: dict[str, tuple[str, Turn, str]] = {
    "no text": ("ready", Turn(fault=Fault(kind="empty")), "text"),
    "calls as text": ("`report` once", Turn(text='report(word="reins")'), "tool call"),
    "drops parallel calls": ("twice", Turn(calls=(call("left"),)), "parallel calls"),
    "answers 400 to thinking": ("17 * 23", refusing(400, "Bad request"), "thinking"),
    "never caches": ("ready", Turn(text="ready", usage=Count(cache_read=0)), "cache"),
    "refuses images": ("colour", refusing(400, "cannot parse content"), "image"),
}
NOTES = {
    "calls as text": 'no call came; the answer was: report(word="reins"). `text_tools = true` ',
    "drops parallel calls": "1 of 2 calls came in one reply",
    "answers 400 to thinking": "Bad request (HTTP 400)",
    "never caches": "the same request again read nothing from the cache",
    "refuses images": "cannot parse content (HTTP 400)",
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", BROKEN)
def test_what_a_gateway_breaks_fails_alone(cli: CliHarness, wire: str, kind: str) -> None:
    words, turn, name = BROKEN[kind]
    code, report = check(cli, but(words, turn), wire)
    failed = {one["name"]: one["note"] for one in report["checks"] if one["state"] != "ok"}
    expected = {name, "cache"} if kind == "no text" else {name}
    assert set(failed) == expected
    assert failed[name].startswith(NOTES.get(kind, ""))
    assert code == 1


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_is_closed_in_the_middle_fails(cli: CliHarness, wire: str) -> None:
    cut = Turn(text="ready " * 200, fault=Fault(kind="cut", at=500, how="close"))
    code, report = check(cli, lambda _request: cut, wire)
    assert states(report) == ["failed"] * 6
    assert {one["note"] for one in report["checks"]} == {
        "the stream was cut before the model had finished"
    }
    assert code == 1


def test_what_the_model_does_not_claim_may_be_missing(cli: CliHarness) -> None:
    def plain(request: Received) -> Turn:
        if "colour" in request.said:
            return refusing(400, "This model does not support image input")
        if "17 * 23" in request.said:
            return refusing(400, "Unrecognized request argument supplied: reasoning_effort")
        answer = good(request)
        return Turn(text=answer.text, calls=answer.calls, usage=Count(cache_read=0))

    code, report = check(cli, plain, more="")
    assert states(report) == ["ok", "ok", "ok", "not offered", "not offered", "not offered"]
    assert report["estimated_usd"] is report["spent_usd"] is None
    assert code == 0
    claimed = FIGURES + 'effort = "high"\n'
    code, report = check(cli, plain, more=claimed)
    assert states(report)[3:] == ["failed", "failed", "not offered"]
    assert code == 1


def test_the_rows_the_cost_first_and_nothing_is_stored(cli: CliHarness) -> None:
    with Provider(script=but("twice", Turn(calls=(call("left"),)))) as provider:
        cli.settings(provider.settings("openai-chat") + FIGURES, "served/one")
        done = cli.run("doctor", "--live")
    first, *rows, last = done.text.splitlines()
    assert first.startswith("6 requests to served/one: about $0.0")
    assert first.endswith(". Nothing is stored.")
    assert [row[:16].strip() for row in rows if row[0] != " "] == NAMES
    assert "1 of 2 calls came in one reply" in rows[3]
    assert last.startswith("spent: $0.0")
    assert max(map(len, done.text.splitlines())) <= 80
    assert len(provider.requests) == 6
    assert (cli.sessions, os.path.exists(cli.state)) == ([], False)


def test_a_wrong_key_or_no_server_ends_the_checks(cli: CliHarness) -> None:
    with Provider(keys=("right",)) as provider:
        cli.settings(provider.settings("openai-chat"), "served/one")
        refused = cli.run("doctor", "--live")
        assert len(provider.requests) == 1
    stopped = cli.run("doctor", "--live")
    for done, words in ((refused, "the provider refused the key"), (stopped, "is the server")):
        assert done.code == 1
        assert words in " ".join(done.text.split())
        assert done.text.count("not asked") == 5


def test_without_a_model_the_three_lines_are_shown(cli: CliHarness, tmp_path: Path) -> None:
    cli.settings(model="anthropic/claude-sonnet-5-5")
    done = cli.run("doctor", "--live")
    assert done.code == 1
    assert done.err.startswith("longrein: No key for anthropic: `longrein login anthropic`")


def test_the_findings_as_json(cli: CliHarness) -> None:
    done = cli.run("doctor", "--json")
    assert done.code == 0
    found = json.loads(done.text)
    assert {one["state"] for one in found} <= {"ok", "note", "missing"}
    assert next(one for one in found if one["name"] == "model")["text"].startswith("play/one")
