"""Message lists in the forms of three wires, and the invariants of every sent list."""

import json
from typing import Any

from tests.tables import record

Chat = list[dict[str, Any]]


class Wire:
    """Form in which a caller of one provider writes its list."""

    def user(self, text: str) -> Chat:
        return [{"role": "user", "content": text}]

    def calls(self, *calls: tuple[str, str]) -> Chat: ...

    def results(self, *results: tuple[str, str]) -> Chat: ...

    def asked(self, one: dict[str, Any]) -> list[str]: ...

    def answered(self, one: dict[str, Any]) -> list[str]: ...


class OpenAIChat(Wire):
    def calls(self, *calls: tuple[str, str]) -> Chat:
        asked = [
            {
                "id": id_,
                "type": "function",
                "function": {"name": "Read", "arguments": json.dumps({"path": path})},
            }
            for id_, path in calls
        ]
        return [{"role": "assistant", "content": None, "tool_calls": asked}]

    def results(self, *results: tuple[str, str]) -> Chat:
        return [{"role": "tool", "tool_call_id": id_, "content": text} for id_, text in results]

    def asked(self, one: dict[str, Any]) -> list[str]:
        return [call["id"] for call in one.get("tool_calls", ())]

    def answered(self, one: dict[str, Any]) -> list[str]:
        return [one["tool_call_id"]] if one["role"] == "tool" else []


class Anthropic(Wire):
    def calls(self, *calls: tuple[str, str]) -> Chat:
        blocks = [
            {"type": "tool_use", "id": id_, "name": "Read", "input": {"path": path}}
            for id_, path in calls
        ]
        return [{"role": "assistant", "content": [{"type": "text", "text": "I look."}, *blocks]}]

    def results(self, *results: tuple[str, str]) -> Chat:
        blocks = [
            {"type": "tool_result", "tool_use_id": id_, "content": text} for id_, text in results
        ]
        return [{"role": "user", "content": blocks}]

    def asked(self, one: dict[str, Any]) -> list[str]:
        return [b["id"] for b in self._blocks(one) if b["type"] == "tool_use"]

    def answered(self, one: dict[str, Any]) -> list[str]:
        return [b["tool_use_id"] for b in self._blocks(one) if b["type"] == "tool_result"]

    def _blocks(self, one: dict[str, Any]) -> Chat:
        return one["content"] if isinstance(one["content"], list) else []


class Responses(Wire):
    def calls(self, *calls: tuple[str, str]) -> Chat:
        thought = record(
            type="reasoning", id="rs", summary=[{"type": "summary_text", "text": "Hm."}]
        )
        return [
            thought,
            *(
                {
                    "type": "function_call",
                    "call_id": id_,
                    "name": "Read",
                    "arguments": json.dumps({"path": path}),
                }
                for id_, path in calls
            ),
        ]

    def results(self, *results: tuple[str, str]) -> Chat:
        return [
            {"type": "function_call_output", "call_id": id_, "output": text}
            for id_, text in results
        ]

    def asked(self, one: dict[str, Any]) -> list[str]:
        return [one["call_id"]] if one.get("type") == "function_call" else []

    def answered(self, one: dict[str, Any]) -> list[str]:
        return [one["call_id"]] if one.get("type") == "function_call_output" else []


WIRES: tuple[Wire, ...] = (OpenAIChat(), Anthropic(), Responses())


def check_paired(wire: Wire, chat: Chat) -> None:
    """Check that every call has its result after it and every result its call before it (law 3)."""
    waiting: list[str] = []
    for one in chat:
        for id_ in wire.answered(one):
            assert id_ in waiting, f"the result of {id_} has lost its call"
            waiting.remove(id_)
        waiting += wire.asked(one)
    assert not waiting, f"no results for {waiting}"


def tokens(chat: Chat) -> int:
    """Estimate the tokens that a provider would count."""
    return len(json.dumps(chat, ensure_ascii=False)) // 4


def big(name: str, lines: int = 60) -> str:
    """Return a result of unique lines of about 20 tokens."""
    return "\n".join(
        f"def {name}_{n}(value): return value * {n} + {len(name)}" for n in range(lines)
    )
