"""Replay of recorded answers: which records it accepts, and that it reports differences."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import recorded
from tests.models.provider_streams import STREAMS

CONTENT = json.dumps(
    {"content": [{"type": "output_text", "text": "Hello 你好"}]}, ensure_ascii=False
)[1:-1]
RECORDS = {
    wire: stream.replace(b'"id": "m1"}', f'"id": "m1", {CONTENT}}}'.encode())
    for wire, stream in STREAMS["text"].items()
}


def replay(folder: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> int | str | None:
    monkeypatch.setattr("sys.argv", ["recorded", str(folder), *flags])
    with pytest.raises(SystemExit) as ended:
        recorded.main()
    return ended.value.code


def lines(stream: bytes) -> bytes:
    """Return the data of each event, one per line."""
    events = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: ")]
    return b"\n".join(event for event in events if event != b"[DONE]")


def test_records_of_each_wire_are_found_and_read_as_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for wire, stream in RECORDS.items():
        (tmp_path / f"{wire}.chunks.txt").write_bytes(lines(stream))
        (tmp_path / f"{wire}.sse").write_bytes(stream)
    (tmp_path / "whole.json").write_text(json.dumps({"choices": [{"message": {"content": "hi"}}]}))
    tagged = {"content": "<think>\nhm</think>\n\nhi"}
    (tmp_path / "tagged.json").write_text(json.dumps({"choices": [{"message": tagged}]}))
    (tmp_path / "other.json").write_text('{"data": [{"embedding": [1]}]}')
    assert replay(tmp_path, monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "    2  anthropic, streamed",
        "    2  gemini, streamed",
        "    1  left out: of no wire of ours",
        "    2  openai-chat, JSON",
        "    2  openai-chat, streamed",
        "    2  openai-responses, streamed",
        "    0  read otherwise than they say",
    ]


PIECES = {"functionCall": {"name": "A", "willContinue": True}}
DELTA = {"type": "response.output_text.delta", "output_index": 0, "delta": "abc"}
SHORT = {"type": "message", "content": [{"type": "output_text", "text": "a…"}]}
DONE = {"type": "response.output_item.done", "output_index": 0, "item": SHORT}
CASSETTE = """
interactions:
- response: {status: {code: 429}, body: {string: '{"error": "slow"}'}}
- response: {status: {code: 200}, body: {string: ''}}
"""
LEFT_OUT = {
    "notes.md": ("# x", "file of another kind (.md)"),
    "LICENSE": ("x", "file of another kind (no suffix)"),
    "page.json": ("<html>", "not JSON"),
    "empty.json": (" ", "no content"),
    "empty.chunks.txt": ("\n", "no content"),
    "other.json": ('{"data": []}', "of no wire of ours"),
    "pieces.json": (
        json.dumps({"candidates": [{"content": {"parts": [PIECES]}}]}),
        "arguments in pieces, which longrein never requests",
    ),
    "short.sse": (
        f"data: {json.dumps(DELTA)}\n\ndata: {json.dumps(DONE)}\n\n",
        "shortened by its owner",
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_is_counted_and_named_with_its_reason(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, reason = LEFT_OUT[name]
    (tmp_path / name).write_text(text)
    assert replay(tmp_path, monkeypatch, "--left-out") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: left out: {reason}",
        f"    1  left out: {reason}",
        "    0  read otherwise than they say",
    ]


def test_what_is_left_out_of_cassettes_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("yaml", reason="cassettes need PyYAML")
    (tmp_path / "a.yaml").write_text(CASSETTE)
    (tmp_path / "b.yaml").write_text("a: [")
    (tmp_path / "c.yml").write_text("a: 1")
    assert replay(tmp_path, monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "    1  left out: YAML that cannot be read",
        "    1  left out: YAML without answers",
        "    1  left out: no content",
        "    1  left out: status 429",
        "    0  read otherwise than they say",
    ]


def test_cassettes_without_pyyaml_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "a.yaml").write_text(CASSETTE)
    assert replay(tmp_path, monkeypatch) == 0
    assert "    1  left out: cassette, which needs PyYAML" in capsys.readouterr().out


def test_a_folder_that_does_not_exist_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(tmp_path / "none", monkeypatch) == 2
    assert "none is no folder" in capsys.readouterr().err


def test_a_record_that_is_read_otherwise_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = STREAMS["text"]["anthropic"]
    (tmp_path / "cut.sse").write_bytes(whole[: whole.index(b"event: message_delta")])
    assert replay(tmp_path, monkeypatch) == 1
    said = capsys.readouterr().out
    assert (
        "cut.sse (anthropic): truncated: the stream ended before the model had finished; expected "
        "was" in said
    )
