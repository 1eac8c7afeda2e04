"""Small transcripts in the documented shapes, and a session that is resumed from one."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from longrein.agent import UserMessage
from longrein.extensions.transcripts.import_transcript import find_format
from longrein.extensions.transcripts.log_builder import LogBuilder, Transcript
from longrein.testing import MemoryDisk, ScriptedModel, open_test_session, says
from longrein.testing.store import SESSION
from longrein_context.events import Entry, Opened, Text, redactor
from tests.tables import record

CLAUDE_ID = "0b8a6a0e-52a5-4a39-93f9-1d4f6a2b7c11"
CODEX_ID = "019a2d7a-41c4-78b1-b7cc-a45d62a89cd5"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # noqa: E501
Line = dict[str, Any]


# --- Claude Code ----------------------------------------------------------------------------------


class ClaudeFile:
    """Lines of a Claude Code transcript, each the child of the one before unless told otherwise."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(self, kind: str, content: Any = None, *, parent: str | None = "", **more: Any) -> str:
        """Add a line; return its uuid."""
        number = len(self.lines) + 1
        uuid = f"u{number}"
        line: Line = {
            "type": kind,
            "uuid": uuid,
            "parentUuid": (self.lines[-1]["uuid"] if self.lines else None)
            if parent == ""
            else parent,
            "sessionId": CLAUDE_ID,
            "cwd": "/home/me/shop",
            "version": "2.1.0",
            "gitBranch": "main",
            "isSidechain": False,
            "timestamp": f"2026-10-01T10:00:{number:02d}.000Z",
        }
        if content is not None:
            line["message"] = {"role": kind, "content": content}
        line.update(more)
        self.lines.append(line)
        return uuid

    def said(self, content: Any, **more: Any) -> str:
        return self.add("user", content, **more)

    def reply(self, message: str, *blocks: Line, **more: Any) -> str:
        uuid = self.add("assistant", list(blocks), **more)
        self.lines[-1]["message"] |= record(
            id=message, model="claude-sonnet-4-5", usage={"input_tokens": 9}
        )
        return uuid

    def result(self, call: str, content: Any, *, parent: str | None = "", **more: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": content, **more}
        return self.add("user", [block], parent=parent, toolUseResult={"stdout": "whatever"})


def text(words: str) -> Line:
    return {"type": "text", "text": words}


def thinks(words: str) -> Line:
    return {"type": "thinking", "thinking": words, "signature": "c2lnbmVk"}


def uses(call: str, name: str, **arguments: Any) -> Line:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


# --- Codex ----------------------------------------------------------------------------------------


def codex(kind: str, second: int = 0, **payload: Any) -> Line:
    return {"timestamp": f"2026-10-02T09:00:{second:02d}.000Z", "type": kind, "payload": payload}


def item(kind: str, second: int = 0, **fields: Any) -> Line:
    return codex("response_item", second, **{"type": kind, **fields})


def message(role: str, words: str, second: int = 0) -> Line:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", second, role=role, content=[{"type": kind, "text": words}])


# --- Reading and resuming -------------------------------------------------------------------------


def built(
    lines: Sequence[Line], secrets: Sequence[str] = ()
) -> tuple[list[Entry], Transcript, dict[str, bytes]]:
    """Read lines; return the entries, what was taken, and the blobs."""
    blobs: dict[str, bytes] = {}

    def put_blob(data: bytes) -> str:
        name = f"{len(blobs):064x}"
        blobs[name] = data
        return name

    form = find_format(lines, "t.jsonl")
    found = Transcript(form.AGENT)
    builder = LogBuilder(
        Opened(1, SESSION, "n0nce", ("/w",), "/w"),
        put_blob,
        redactor(secrets, "n0nce"),
        found.taken,
    )
    form.read(lines, builder, found)
    builder.end_turn()
    return builder.entries, found, blobs


async def resumed(entries: Iterable[Entry], words: str = "go on") -> ScriptedModel:
    """Resume a session with these entries for one turn; the model refuses what a provider would
    refuse.
    """
    disk, model = MemoryDisk(SESSION), ScriptedModel(says("I go on."))
    log = disk.open()
    await asyncio.wrap_future(log.append(list(entries), flush=True))
    await log.close()
    session = open_test_session(model, disk=disk)
    session.tell(UserMessage((Text(words),)))
    await session.run(once=True)
    await session.close()
    return model


def write(path: Path, lines: Iterable[Line | bytes]) -> Path:
    path.write_bytes(
        b"".join(
            (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines
        )
    )
    return path
