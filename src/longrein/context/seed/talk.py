"""The conversation as the founding documents hold it: a list of turns with a role and a content.

The profile `seed` counts and serialises this, never the view itself, so that its numbers are those of the documents.
"""

import re
from typing import Any

import msgspec

from longrein.context.request import Item
from longrein.context.state import State
from longrein.events import Document, Text, Thinking, ToolCall, ToolResult, text_of

SaidTurn = dict[str, Any]
"""`role` is `user` or `assistant`; `content` a text, or a list of blocks."""


def runs(state: State) -> list[list[Item]]:
    """The view after its static context in turns: neighbours of one side; a summary is a turn of its own."""
    found: list[list[Item]] = []
    for item in state.items[state.context_items :]:
        if not found or found[-1][-1].mine != item.mine or "summary" in (item.kind, found[-1][-1].kind):
            found.append([item])
        else:
            found[-1].append(item)
    return found


def talk(state: State) -> list[SaidTurn]:
    """The documents' list. Neither system text nor static context stands in it."""
    return [
        {"role": "assistant" if items[0].mine else "user", "content": _contents([_block(item) for item in items])}
        for items in runs(state)
    ]


def _contents(blocks: list[SaidTurn]) -> str | list[SaidTurn]:
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def _block(item: Item) -> SaidTurn:
    match item.part:
        case ToolCall(id, name, arguments):
            return {"type": "tool_use", "id": id, "name": name, "input": arguments or {}}
        case ToolResult(call, _, _, parts):
            return {"type": "tool_result", "tool_use_id": call, "content": text_of(parts)}
        case Text() | Thinking() | Document() as part:
            return {"type": "text", "text": text_of((part,))}
        case part:
            return {"type": "image", "blob": getattr(part, "blob", "")}


def as_json(value: Any) -> str:
    """`value` as the documents' `json.dumps` spells it: blanks after `,` and `:`, nothing but ASCII."""
    spelled: str = msgspec.json.format(msgspec.json.encode(value).decode(), indent=0)
    return re.sub("[^ -~]", _escaped, spelled)


def _escaped(found: "re.Match[str]") -> str:
    digits = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))
