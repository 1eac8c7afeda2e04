"""Builder of session logs for tests: one method call per step; `state` is the fold of the log."""

from longrein.context import State, fold
from longrein.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    Entry,
    FileChanged,
    FileSeen,
    Opened,
    PrefixSet,
    Replied,
    Text,
    ToolCall,
    ToolEnded,
    ToolSpec,
    ToolStarted,
    TurnEnded,
    UserSpoke,
    call_id,
)

SESSION = "00000000-0000-4000-8000-00000000d1a0"


class LogBuilder:
    """The entries written so far. Every method returns the seq of its last entry."""

    def __init__(self, *pins: str, root: str = "/w") -> None:
        self.entries: list[Entry] = []
        self.write(Opened(SCHEMA_VERSION, SESSION, "n0nce", (root,), root, pins=pins))
        self.write(PrefixSet("start", "mock", "small", "anthropic", "Be good.", (ToolSpec("Read", "reads", {}),)))

    def write(self, *events: AnyEvent) -> int:
        for event in events:
            self.entries.append(Entry(len(self.entries) + 1, 1_000_000 * len(self.entries), event))
        return len(self.entries)

    @property
    def seq(self) -> int:
        return len(self.entries)

    @property
    def state(self) -> State:
        return fold(self.entries)

    def user(self, text: str, origin: str = "prompt") -> int:
        return self.write(UserSpoke((Text(text),), origin))

    def says(self, text: str) -> int:
        """Write a reply without a call, which ends the turn."""
        asked = self.write(Asked("turn", self.seq, 2))
        return self.write(Replied(asked, (Text(text),), "end"), TurnEnded("done"))

    def call(self, tool: str, result: str, status: str = "ok", *facts: AnyEvent, **arguments: object) -> int:
        """Write one step with one call."""
        asked = self.write(Asked("turn", self.seq, 2))
        call = ToolCall(call_id(asked, 0), tool, arguments)
        self.write(Replied(asked, (call,), "calls"), ToolStarted(call.id, tool))
        return self.write(*facts, ToolEnded(call.id, tool, status, (Text(result),)))

    def bash(self, command: str, output: str, code: int = 0) -> int:
        text = f"{output}\n[exit code {code}]" if code else output
        return self.call("Bash", text, "failed" if code else "ok", command=command)

    def read(self, path: str, content: str, hash_: str = "a" * 64, **more: object) -> int:
        return self.call("Read", content, "ok", FileSeen(path, hash_, whole=not more), file_path=path, **more)

    def edit(self, path: str, old: str = "x", new: str = "y", hash_: str = "b" * 64) -> int:
        changed = FileChanged(path, hash_, "agent")
        return self.call("Edit", "done", "ok", changed, file_path=path, old_string=old, new_string=new)
