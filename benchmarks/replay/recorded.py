"""Reads recorded sessions in the neutral format: JSON lines, a header, then one message a line.

Messages of the recording harness' own compaction are left out. An input belongs to the first request whose step is not
below its own; request `t` contains the inputs of requests up to `t` and the outputs of those before it.
"""

import gzip
import json
from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

OVERHEAD_TOKENS = {"tool_result": 31, "tool_call": 31, "assistant_text": 4, "user": 4}
CHARS_PER_TOKEN = {"tool_result": 2.81, "tool_call": 3.15, "assistant_text": 2.5, "user": 3.2}


class Message(NamedTuple):
    """One recorded message."""

    request: int
    """Outputs: the request that produced it; inputs: the first request that contains it."""
    output: bool
    kind: str
    """`user`, `assistant_text`, `tool_call` or `tool_result`."""
    name: str
    """Tool name; `thinking` for reasoning."""
    text: str
    args: str
    tokens: float
    call: str
    at: float
    """Seconds since the epoch; 0 when unknown."""


class Recording(NamedTuple):
    """One session."""

    name: str
    system_tokens: float
    messages: list[Message]
    requests: int


def recordings(folder: Path) -> list[Path]:
    """The session files of a folder, or the one file."""
    if folder.is_file():
        return [folder]
    return sorted(p for p in folder.glob("*.jsonl*") if p.suffix in (".jsonl", ".gz"))


def base_name(path: Path) -> str:
    """A file's name without its suffixes."""
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def read(path: Path) -> Recording:
    """One session, its messages in the order in which requests saw them."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not rows or rows[0].get("type") != "header":
        raise ValueError(f"{path.name}: the first line is not a session header")
    kept = list(_kept(rows[1:]))
    steps = sorted({row["step"] for row in kept if row["role"] == "assistant"})
    messages = []
    for row in kept:
        request = bisect_left(steps, row["step"])
        if request < len(steps):
            messages.append(_message(request, row))
    messages.sort(key=lambda m: (m.request, m.output))
    return Recording(base_name(path), float(rows[0]["system_tokens_est"]), messages, len(steps))


def _kept(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    after = False
    for row in rows:
        flag = row.get("flag")
        if flag == "compact_boundary":
            after = True
        elif flag != "compact_summary" and not (flag == "attachment" and after):
            after = after and row["role"] != "assistant"
            yield row


def _message(request: int, row: dict[str, Any]) -> Message:
    text, args, tokens = row.get("text") or "", row.get("args") or "", row.get("tokens_est")
    if tokens is None:
        tokens = max(1, round(len(text + args) / CHARS_PER_TOKEN[row["kind"]]) + OVERHEAD_TOKENS[row["kind"]])
    return Message(
        request,
        row["role"] == "assistant",
        row["kind"],
        row.get("name") or "",
        text,
        args,
        int(tokens),
        row.get("call_id") or "",
        _seconds(row.get("ts")),
    )


def _seconds(value: Any) -> float:
    try:
        return datetime.fromisoformat(str(value).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
