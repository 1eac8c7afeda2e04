"""Check the four wires against recorded answers of real providers, from test fixtures of other
projects.

    git clone https://github.com/vercel/ai ../ai; git clone https://github.com/pydantic/pydantic-ai
    ../pydantic-ai .venv/bin/python -m lab.recorded ../ai/packages ../pydantic-ai/tests

Reads `*.chunks.txt` (the data of one event a line), `*.sse`, `*.json` and cassettes (`*.yaml`,
which needs PyYAML), finds the wire of each answer by its shape, and replays it whole and in random
cuts. Text and calls must equal a plain reading of the same record, wherever the network cuts. Files
and answers that are left out are counted with the reason; `--left-out` names each. The records stay
in the other projects; none is copied here.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from longrein.models import Failure, Reply
from longrein.models.catalog import make_wire
from longrein.models.http_model import read_body, read_events, read_rest
from longrein.models.transport import EventSplitter
from longrein.models.wire_base import WireTarget
from longrein_context.events import Text, ToolCall

Told = tuple[str, list[tuple[str, Any]]]
"""Visible text; name and arguments of each call."""


def main() -> None:
    """Replay each folder; exit code 1 when a record is read differently from its content."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--cuts", type=int, default=8, help="random ways to cut each stream")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--left-out", action="store_true", help="name what is left out")
    given = parser.parse_args()
    for folder in given.folders:
        if not folder.is_dir():
            parser.error(f"{folder} is no folder")
    counted: Counter[str] = Counter()
    wrong = 0
    for name, body in records(given.folders):
        events = [] if isinstance(body, LeftOut) else events_of(body)
        wire = wire_named(events)
        reason = body.reason if isinstance(body, LeftOut) else left_out(body, events, wire)
        if reason or isinstance(body, LeftOut):
            counted[f"left out: {reason}"] += 1
            if given.left_out:
                print(f"{name}: left out: {reason}")
            continue
        streamed = body.lstrip()[:1] not in (b"{", b"[")
        problem = judge(wire, body, events, streamed, Random(f"{given.seed} {name}"), given.cuts)
        counted[f"{wire}, {'streamed' if streamed else 'JSON'}"] += 1
        if problem:
            wrong += 1
            print(f"{name} ({wire}): {problem}")
    for what, count in sorted(counted.items()):
        print(f"{count:>5}  {what}")
    print(f"{wrong:>5}  read otherwise than they say")
    sys.exit(1 if wrong else 0)


# --- records --------------------------------------------------------------------------------------


class LeftOut(msgspec.Struct):
    """A file or an answer that is not replayed."""

    reason: str


Record = tuple[str, bytes | LeftOut]
"""Name and body of an answer."""


def records(folders: list[Path]) -> Iterator[Record]:
    """Yield each recorded answer, and each file and answer that is left out."""
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        if path.name.endswith(".chunks.txt"):
            yield from chunks(path)
        elif path.suffix in (".sse", ".json"):
            yield path.name, path.read_bytes()
        elif path.suffix in (".yaml", ".yml"):
            yield from cassette(path)
        else:
            yield path.name, LeftOut(f"file of another kind ({path.suffix or 'no suffix'})")


def chunks(path: Path) -> Iterator[Record]:
    """Yield the streams of a file with one event per line, each ended by its terminal event."""
    stream = b""
    for n, line in enumerate(line for line in path.read_bytes().split(b"\n") if line.strip()):
        stream += b"data: %b\n\n" % line
        if any(
            b'"type":"%b"' % end in line
            for end in (b"message_stop", b"response.completed", b"response.incomplete")
        ):
            yield f"{path.name} to line {n + 1}", stream
            stream = b""
    if stream:
        yield path.name, stream
    elif not path.read_bytes().strip():
        yield path.name, LeftOut("no content")


def cassette(path: Path) -> Iterator[Record]:
    """Yield the answers of a VCR cassette; those with another status than 200 are left out."""
    try:
        import yaml
    except ImportError:
        yield path.name, LeftOut("cassette, which needs PyYAML")
        return
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        read = yaml.load(path.read_bytes(), Loader=loader)
    except yaml.YAMLError:
        yield path.name, LeftOut("YAML that cannot be read")
        return
    entries = read.get("interactions") if isinstance(read, dict) else None
    if not entries:
        yield path.name, LeftOut("YAML without answers")
        return
    for n, entry in enumerate(entries):
        name = f"{path.stem} {n}"
        answer = entry.get("response", {})
        body = answer.get("parsed_body") or (answer.get("body") or {}).get("string")
        if isinstance(body, dict | list):
            body = json.dumps(body)
        status = answer.get("status", {}).get("code", 200)
        if status != 200:
            yield name, LeftOut(f"status {status}")
        elif not body:
            yield name, LeftOut("no content")
        else:
            yield name, body if isinstance(body, bytes) else body.encode()


def events_of(body: bytes) -> list[Any]:
    """Return the events, or the one body, as plain values; [] when it is not JSON."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n")
    if text.lstrip()[:1] in ("{", "["):
        lines = [text]
    else:
        lines = [
            line[5:]
            for line in text.split("\n")
            if line.startswith("data:") and line[5:].strip() != "[DONE]"
        ]
    try:
        values = [json.loads(line) for line in lines]
    except ValueError:
        return []
    return values[0] if len(values) == 1 and isinstance(values[0], list) else values


def wire_named(events: list[Any]) -> str:
    """Return the wire of these events, by their shape; '' for none."""
    for event in (event for event in events if isinstance(event, dict)):
        kind = str(event.get("type", ""))
        if kind in ("message_start", "message") and ("message" in event or "content" in event):
            return "anthropic"
        if kind.startswith("response.") or event.get("object") == "response":
            return "openai-responses"
        if "candidates" in event:
            return "gemini"
        for choice in event.get("choices") or []:
            if "delta" in choice or "message" in choice:
                return "openai-chat"
    return ""


def left_out(body: bytes, events: list[Any], wire: str) -> str:
    """Return the reason for which an answer cannot be judged; '' for none."""
    if not body.strip():
        return "no content"
    if not events:
        return "not JSON"
    if not wire:
        return "of no wire of ours"
    if b'"willContinue"' in body:
        return "arguments in pieces, which longrein never requests"
    return "shortened by its owner" if is_shortened(events) else ""


def is_shortened(events: list[Any]) -> bool:
    """Return whether the pieces of a text are not the start of that text."""
    deltas, whole = dict[Any, str](), dict[Any, str]()
    for event in events:
        if event.get("type") == "response.output_text.delta":
            deltas[event["output_index"]] = deltas.get(event["output_index"], "") + event["delta"]
        elif (
            event.get("type") == "response.output_item.done"
            and event["item"].get("type") == "message"
        ):
            whole[event["output_index"]] = "".join(
                part.get("text", "") for part in event["item"].get("content", [])
            )
    return any(not whole.get(at, text).startswith(text) for at, text in deltas.items())


# --- replaying ------------------------------------------------------------------------------------


def judge(
    wire: str, body: bytes, events: list[Any], streamed: bool, random: Random, cuts: int
) -> str:
    """Return the difference between the adapter's reading and the record; '' for none."""
    expected = EXPECTED[wire](events)
    end = replayed(wire, [body]) if streamed else whole(wire, body)
    failed = isinstance(end, Failure) and (
        expected != ("", []) or end.kind not in ("empty", *FAILED)
    )
    if (
        isinstance(end, Failure)
        and failed
        and not any(is_error_event(event) for event in events)
        and not has_two_messages(events)
    ):
        return f"{end.kind}: {end.message}; expected was {expected!r:.200}"
    if isinstance(end, Reply) and summary_of(end) != expected:
        return f"read was {summary_of(end)!r:.300}; expected {expected!r:.300}"
    for n in range(cuts if streamed else 0):
        ends = (b"\n", b"\r\n", b"\r")[n % 3]
        pieces = cut(body.replace(b"\r\n", b"\n").replace(b"\n", ends), random)
        if replayed(wire, pieces) != end:
            return f"cut into {len(pieces)} pieces it is another reply"
    return ""


FAILED = ("server", "overload", "rate", "invalid", "refused")
"""Kinds of a failure that an error in the stream may lead to."""


def is_error_event(event: Any) -> bool:
    """Return whether an event is an error."""
    response = event.get("response") if isinstance(event.get("response"), dict) else event
    return bool(event.get("error") or event.get("type") == "error" or response.get("error"))


def has_two_messages(events: list[Any]) -> bool:
    """Return whether the events are of two messages (a gateway that asked again in mid-stream)."""
    return (
        len({event["message"]["id"] for event in events if event.get("type") == "message_start"})
        > 1
    )


def replayed(wire: str, pieces: list[bytes]) -> Reply | Failure:
    """Read a stream in these pieces with the adapter."""
    reader, splitter = new_reader(wire), EventSplitter()
    for piece in pieces:
        _, final = read_events(reader, splitter.feed(piece))
        if final is not None:
            return final
    _, final = read_rest(reader, splitter.flush())
    if final is None and wire == "openai-chat" and reader.builder.stop:
        return reader.finish()  # a record without `[DONE]`
    return final or reader.builder.failure(
        "truncated", "the stream ended before the model had finished"
    )


def whole(wire: str, body: bytes) -> Reply | Failure:
    """Read an answer of one JSON body with the adapter."""
    return read_body(new_reader(wire), body)[1] or Failure("invalid", "no answer of a model's")


def new_reader(wire: str) -> Any:
    return make_wire(WireTarget(wire, "recorded", lambda _: b"")).reader()


def cut(body: bytes, random: Random) -> list[bytes]:
    """Cut `body` into up to forty pieces of random length."""
    places = sorted(random.randrange(len(body) + 1) for _ in range(random.randrange(40)))
    return [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]


def summary_of(reply: Reply) -> Told:
    """Return text and calls of a reply."""
    text = "".join(part.text for part in reply.parts if isinstance(part, Text))
    return text.strip(), [
        (part.name, part.arguments) for part in reply.parts if isinstance(part, ToolCall)
    ]


# --- what the records themselves say, read as plainly as can be -----------------------------------


def _anthropic(events: list[Any]) -> Told:
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.get("type") == "message":
            blocks |= {n: dict(block) for n, block in enumerate(event["content"])}
        elif event.get("type") == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event.get("type") == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            elif delta["type"] == "input_json_delta":
                block["json"] = block.get("json", "") + delta["partial_json"]
    text = "".join(
        block["text"]
        for block in blocks.values()
        if block["type"] == "text" and block["text"].strip()
    )
    calls = [block for block in blocks.values() if block["type"] == "tool_use"]
    return text.strip(), [
        (call["name"], object_in(call.get("json")) or call["input"]) for call in calls
    ]


def _chat(events: list[Any]) -> Told:
    text, calls = "", list[tuple[str, list[Any]]]()
    by_index: dict[Any, int] = {}
    for event in events:
        for choice in (event.get("choices") or [])[:1]:
            delta = choice.get("delta") or choice.get("message") or {}
            content = delta.get("content") or delta.get("refusal") or ""
            text += (
                content
                if isinstance(content, str)
                else "".join(part.get("text") or "" for part in content)
            )
            for call in delta.get("tool_calls") or []:
                if call.get("index") is None:  # whole, in one piece
                    calls.append(
                        (call["function"]["name"], [call["function"].get("arguments") or ""])
                    )
                    continue
                key = (call.get("index"), call.get("id")) if call.get("id") else None
                if key is not None and key not in by_index:
                    by_index[key] = by_index[(call.get("index"),)] = len(calls)
                    calls.append((call["function"]["name"], []))
                at = by_index[key] if key else by_index[(call.get("index"),)]
                calls[at][1].append(call["function"].get("arguments") or "")
    answer = re.sub(r"\A\s*<think>.*?(</think>|\Z)", "", text, flags=re.DOTALL)
    return answer.strip(), [
        (name, pieces[0] if isinstance(pieces[0], dict) else object_in("".join(pieces)))
        for name, pieces in calls
    ]


def _responses(events: list[Any]) -> Told:
    items: list[dict[str, Any]] = []
    for event in events:
        if event.get("type") == "response.output_item.done":
            items.append(event["item"])
        elif event.get("object") == "response":
            items = event["output"]
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    calls = [
        (item["name"], object_in(item["arguments"]))
        for item in items
        if item["type"] == "function_call"
    ]
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts).strip(), calls


def _gemini(events: list[Any]) -> Told:
    text, calls = "", []
    for event in events:
        for candidate in (event.get("candidates") or [])[:1]:
            for part in (candidate.get("content") or {}).get("parts") or []:
                text += part.get("text", "") if not part.get("thought") else ""
                if call := part.get("functionCall"):
                    calls.append((call["name"], call.get("args") or {}))
    return text.strip(), calls


def object_in(text: str | None) -> Any:
    """Return the JSON in `text`; {} for none, None for invalid JSON."""
    try:
        return json.loads(text) if text and text.strip() else {}
    except ValueError:
        return None


EXPECTED = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}

if __name__ == "__main__":
    main()
