"""Exports, imports and transcripts."""

import io
import json
import os
from pathlib import Path

import pytest

from longrein.store import export_jsonl, read_entries, write_transcript
from longrein_context.events import (
    Document,
    Entry,
    Interrupted,
    Replied,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolStarted,
    decode_entry,
    encode_entry,
)
from tests.store.fixtures import ID, add, entries, entry, new_log, opened, said

pytestmark = pytest.mark.anyio


async def test_an_export_is_our_jsonl_and_comes_back(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, [*entries(1, 3), entry(4, "火\n\u2028" * 30_000)])
        out = io.BytesIO()
        assert export_jsonl(log.reader, out) == 4
        found = out.getvalue().splitlines()
        assert found == [encode_entry(one) for one in read_entries(str(tmp_path), ID)]


def talk() -> list[Entry]:
    calls = (ToolCall("c3.0", "Read", {"file_path": "a"}), ToolCall("c3.1", "Bash", None, '{"comm'))
    document = Document("ab" * 32, "text/plain", 90_000, head="top", tail="end")
    events = [
        opened(),
        said("mend it"),
        Replied(3, (Thinking("hm"), Text("Looking."), *calls), "calls"),
        ToolStarted("c3.0", "Read"),
        ToolEnded("c3.1", "Bash", "failed", (Text("bad arguments"),)),
        ToolEnded("c3.0", "Read", "ok", (Text("1\tx"), document)),
        Replied(7, (Text("Done 火."),), "end"),
        Interrupted("[interrupted by the user]"),
    ]
    return [Entry(seq, 1_760_000_000_000_000 + seq, event) for seq, event in enumerate(events, 1)]


TRANSCRIPT = """\
{"role":"user","content":"mend it"}
{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Looking."},\
{"type":"tool_use","id":"c3.0","name":"Read","input":{"file_path":"a"}},\
{"type":"tool_use","id":"c3.1","name":"Bash","input":{}}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c3.0","content":[{"type":"text","text":"1\\tx"},\
{"type":"text","text":"top\\nend\\n[text/plain, 90000 bytes, blob BLOB]"}]},\
{"type":"tool_result","tool_use_id":"c3.1","content":"bad arguments","is_error":true}]}
{"role":"assistant","content":[{"type":"text","text":"Done 火."}]}
{"role":"user","content":"[interrupted by the user]"}
"""


def test_A7_the_transcript_of_the_documents(tmp_path: Path) -> None:
    place = str(tmp_path / ".transcripts")
    path = write_transcript(place, talk())
    assert path == f"{place}/transcript_1760000000.jsonl"
    text = Path(path).read_text(encoding="utf-8")
    assert text.replace("ab" * 32, "BLOB") == TRANSCRIPT
    assert all(set(json.loads(line)) == {"role", "content"} for line in text.splitlines())
    assert (os.stat(path).st_mode & 0o777, os.stat(place).st_mode & 0o777) == (0o600, 0o700)


def test_A7_two_transcripts_of_one_second_are_two_files(tmp_path: Path) -> None:
    names = [Path(write_transcript(str(tmp_path), talk())).name for _ in range(3)]
    assert names == [
        "transcript_1760000000.jsonl",
        "transcript_1760000000-2.jsonl",
        "transcript_1760000000-3.jsonl",
    ]


def test_entries_decode_from_the_lines_of_an_export() -> None:
    assert [decode_entry(encode_entry(one)) for one in talk()] == talk()
