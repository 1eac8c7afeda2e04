"""Logs of sessions for tests: `EventLog` of any events, `LogBuilder` with one method call per
step.
"""

from longrein_context import KeptStates, State, advance
from longrein_context.events import (
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


class EventLog:
    """The entries added so far and their fold."""

    start_us, step_us = 0, 1_000_000

    def __init__(self, *events: AnyEvent) -> None:
        self.entries: list[Entry] = []
        self.log = KeptStates(lambda first, last: self.entries[first - 1 : last])
        self.state = State()
        self.add(*events)

    def add(self, *events: AnyEvent) -> int:
        """Append `events`; return the seq of the last entry."""
        for event in events:
            entry = Entry(self.seq + 1, self.start_us + self.step_us * self.seq, event)
            self.state = advance(self.state, entry, self.log)
            self.log.keep(self.state)
            self.entries.append(entry)
        return self.seq

    @property
    def seq(self) -> int:
        return len(self.entries)


class LogBuilder(EventLog):
    """Every method returns the seq of its last entry."""

    def __init__(self, *pins: str, root: str = "/w") -> None:
        super().__init__()
        self.write(Opened(SCHEMA_VERSION, SESSION, "n0nce", (root,), root, pins=pins))
        self.write(
            PrefixSet(
                "start", "mock", "small", "anthropic", "Be good.", (ToolSpec("Read", "reads", {}),)
            )
        )

    def write(self, *events: AnyEvent) -> int:
        return self.add(*events)

    def user(self, text: str, origin: str = "prompt") -> int:
        return self.write(UserSpoke((Text(text),), origin))

    def says(self, text: str) -> int:
        """Write a reply without a call, which ends the turn."""
        asked = self.write(Asked("turn", self.seq, 2))
        return self.write(Replied(asked, (Text(text),), "end"), TurnEnded("done"))

    def call(
        self, tool: str, result: str, status: str = "ok", *facts: AnyEvent, **arguments: object
    ) -> int:
        """Write one step with one call."""
        asked = self.write(Asked("turn", self.seq, 2))
        call = ToolCall(call_id(asked, 0), tool, arguments)
        self.write(Replied(asked, (call,), "calls"), ToolStarted(call.id, tool))
        return self.write(*facts, ToolEnded(call.id, tool, status, (Text(result),)))

    def bash(self, command: str, output: str, code: int = 0) -> int:
        text = f"{output}\n[exit code {code}]" if code else output
        return self.call("Bash", text, "failed" if code else "ok", command=command)

    def read(self, path: str, content: str, hash_: str = "a" * 64, **more: object) -> int:
        return self.call(
            "Read", content, "ok", FileSeen(path, hash_, whole=not more), file_path=path, **more
        )

    def edit(self, path: str, old: str = "x", new: str = "y", hash_: str = "b" * 64) -> int:
        changed = FileChanged(path, hash_, "agent")
        return self.call(
            "Edit", "done", "ok", changed, file_path=path, old_string=old, new_string=new
        )
