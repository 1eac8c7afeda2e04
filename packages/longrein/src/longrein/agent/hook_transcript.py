"""The conversation as JSON lines, as hooks of other agents read it at `transcript_path`.

One line for each message, reply and result, appended when hooks are told of an event. The file is a
copy: the log is the memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from longrein_context.events import (
    AnyPart,
    Entry,
    Replied,
    Text,
    ToolCall,
    ToolEnded,
    UserSpoke,
    entry_uuid,
    text_of,
)

AppendTranscript = Callable[[str, bytes, bool], str]
"""(name, lines, True to begin anew) -> path of the file; '' where it cannot be written."""


class HookTranscript:
    """The transcript of one session."""

    def __init__(self, append: AppendTranscript | None, label: str) -> None:
        self._append, self._label = append, label
        self._last = 0
        self._parent: str | None = None
        self.path = ""
        """The file; '' before the first `update`, and where none can be written."""

    def update(self, entries_from: Callable[[int], Sequence[Entry]], session: str, cwd: str) -> str:
        """Append what is new and return the path."""
        if self._append is None:
            return ""
        new = entries_from(self._last + 1)
        data = b"".join(self._lines(new, session, cwd))
        if data or not self.path:
            self.path = self._append(self._label, data, self._last == 0)
        self._last = new[-1].seq if new else self._last
        return self.path

    def _lines(self, entries: Iterable[Entry], session: str, cwd: str) -> Iterator[bytes]:
        for entry in entries:
            said = _message(entry)
            if said is None:
                continue
            uuid = entry_uuid(session, entry.seq)
            line = {
                "type": said["role"],
                "uuid": uuid,
                "parentUuid": self._parent,
                "sessionId": session,
                "timestamp": datetime.fromtimestamp(entry.at / 1e6, UTC).isoformat(
                    timespec="milliseconds"
                ),
                "cwd": cwd,
                "isSidechain": bool(self._label),
                "message": said,
            }
            self._parent = uuid
            yield msgspec.json.encode(_plain(line)) + b"\n"


def _message(entry: Entry) -> dict[str, Any] | None:
    """Return the message that an entry stands for; None for any other entry."""
    match entry.event:
        case UserSpoke(parts=parts):
            return {"role": "user", "content": text_of(parts)}
        case Replied(parts=parts, model=model, stop=stop) if stop != "interrupted":
            content = [block for part in parts if (block := _block(part)) is not None]
            return {"role": "assistant", "model": model, "content": content} if content else None
        case ToolEnded(call=call, status=status, parts=parts):
            result = {
                "type": "tool_result",
                "tool_use_id": call,
                "content": text_of(parts),
                "is_error": status != "ok",
            }
            return {"role": "user", "content": [result]}
        case _:
            return None


def _block(part: AnyPart) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolCall(id=call, name=name, arguments=arguments):
            return {"type": "tool_use", "id": call, "name": name, "input": arguments or {}}
        case _:
            return None


def _plain(value: Any) -> Any:
    """Return a value without texts that UTF-8 cannot hold, such as names of files that are no
    UTF-8.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
