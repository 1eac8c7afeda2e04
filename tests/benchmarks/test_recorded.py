"""Replay of recorded answers: which records it accepts, and that it reports differences."""

import json
from pathlib import Path

import pytest

from lab import recorded
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
