"""Partial messages: a streamed reply as events of the Messages API (blocks open, take deltas,
close).
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from longrein.frontends.headless.run_state import RunState, Subagent
from longrein.frontends.headless.stream_json_blocks import (
    STOPS,
    Line,
    assistant_message,
    usage_line,
)
from longrein.models import CallDelta, TextDelta, ThinkingDelta
from longrein.steps import Agent, RequestStep, StreamStep
from longrein_context import State
from longrein_context.events import Replied, SubagentStarted, Text, Thinking, ToolCall, call_id

Delta = TextDelta | ThinkingDelta | CallDelta


class PartialReply:
    """Progress of one streamed reply, as events of the Messages API."""

    def __init__(self, asked: int, run_state: RunState) -> None:
        self.asked, self._run_state = asked, run_state
        self.started = False
        self.lines = 0
        self._blocks = 0
        self._kind = ""
        """Kind of the open text block: `text`, `thinking` or none."""
        self._calls: dict[int, int] = {}
        """Call index -> block. Calls stay open to the end, as their deltas may alternate."""

    def events(self, deltas: Iterable[Delta]) -> Iterator[Line]:
        if not self.started:
            self.started = True
            message = assistant_message(
                self._run_state.session, self.asked, self._run_state.model, []
            )
            yield {"type": "message_start", "message": message}
        for delta in _merge_deltas(deltas):
            yield from self._call(delta) if isinstance(delta, CallDelta) else self._prose(delta)

    def end(self, reply: Replied) -> Iterator[Line]:
        yield from self._stop_prose()
        for block in self._calls.values():
            yield {"type": "content_block_stop", "index": block}
        change = {"stop_reason": STOPS.get(reply.stop), "stop_sequence": None}
        yield {"type": "message_delta", "delta": change, "usage": usage_line(reply.usage)}
        yield {"type": "message_stop"}

    def _call(self, delta: CallDelta) -> Iterator[Line]:
        yield from self._stop_prose()
        if delta.index not in self._calls:
            self._calls[delta.index] = self._blocks
            call = self._run_state.qualified_id(call_id(self.asked, delta.index))
            yield self._start({"type": "tool_use", "id": call, "name": delta.name, "input": {}})
        if delta.json:
            change = {"type": "input_json_delta", "partial_json": delta.json}
            yield {
                "type": "content_block_delta",
                "index": self._calls[delta.index],
                "delta": change,
            }

    def _prose(self, delta: TextDelta | ThinkingDelta) -> Iterator[Line]:
        kind = "text" if isinstance(delta, TextDelta) else "thinking"
        if self._kind != kind:
            yield from self._stop_prose()
            self._kind = kind
            yield self._start(
                {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
            )
        change = {"type": f"{kind}_delta", kind: delta.text}
        yield {"type": "content_block_delta", "index": self._blocks - 1, "delta": change}

    def _start(self, block: Line) -> Line:
        self._blocks += 1
        return {"type": "content_block_start", "index": self._blocks - 1, "content_block": block}

    def _stop_prose(self) -> Iterator[Line]:
        if self._kind:
            self._kind = ""
            yield {"type": "content_block_stop", "index": self._blocks - 1}


class PartialMessages:
    """Makes `stream_event` lines of one reply at a time; a new request drops the last reply."""

    def __init__(self) -> None:
        self._reply: PartialReply | None = None

    def draw(self, step: StreamStep, run_state: RunState) -> list[Line]:
        """Lines of a batch of deltas; none for a summary."""
        if step.purpose == "summary":
            return []
        reply = self._of(step.request, run_state)
        return _lines(reply, run_state, reply.events(step.deltas))

    def close(self, step: RequestStep, replied: Replied, run_state: RunState) -> list[Line]:
        """Lines that end the reply; the whole reply when none of it was streamed."""
        if step.purpose == "summary":
            return []
        reply, self._reply = self._of(replied.asked, run_state), None
        deltas = () if reply.started else _deltas(replied)
        return _lines(reply, run_state, [*reply.events(deltas), *reply.end(replied)])

    def forget(self) -> None:
        """Drop the partial reply of a failed request."""
        self._reply = None

    def _of(self, asked: int, run_state: RunState) -> PartialReply:
        if self._reply is None or self._reply.asked != asked:
            self._reply = PartialReply(asked, run_state)
        return self._reply


def _lines(reply: PartialReply, run_state: RunState, events: Iterable[Line]) -> list[Line]:
    lines: list[Line] = []
    for event in events:
        tail = run_state.tail(f"stream.{reply.asked}.{reply.lines}")
        lines.append(
            {"type": "stream_event", "event": event, "parent_tool_use_id": run_state.parent, **tail}
        )
        reply.lines += 1
    return lines


def _merge_deltas(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Merge adjacent text deltas, so that one read from the network gives one line."""
    for kind, group in groupby(deltas, type):
        if kind is CallDelta:
            yield from group
        else:
            yield kind("".join(delta.text for delta in group if not isinstance(delta, CallDelta)))


def _deltas(reply: Replied) -> Iterator[Delta]:
    """Deltas of a whole reply, as if it had been streamed."""
    for part in reply.parts:
        match part:
            case Text(text):
                yield TextDelta(text)
            case Thinking(text):
                yield ThinkingDelta(text)
            case ToolCall():
                index = int(part.id.rpartition(".")[2])
                yield CallDelta(
                    index, part.name, part.received or msgspec.json.encode(part.arguments).decode()
                )


# --- Subagents of a run ---------------------------------------------------------------------------


class SubagentStreams:
    """Run state and partial messages of a session and each of its subagents."""

    def __init__(self, root: RunState, state: State) -> None:
        """`state` is the state of the session at the start of the run; it names earlier
        subagents.
        """
        self._root = root
        self._states: dict[str, RunState] = {}
        self._partials: dict[str, PartialMessages] = {}
        for subagent, now in state.children.items():
            root.children[subagent] = Subagent(f"a{now.seq}", now.started.call, now.started)

    def run_state(self, agent: Agent) -> RunState:
        if not agent.session:
            return self._root
        if agent.session not in self._states:
            subagent = self._known(agent)
            self._states[agent.session] = RunState(
                agent.session, subagent.started.model, self._root, subagent
            )
        return self._states[agent.session]

    def partial(self, agent: Agent) -> PartialMessages:
        return self._partials.setdefault(agent.session, PartialMessages())

    def _known(self, agent: Agent) -> Subagent:
        """The subagent as its parent started it; if that start was not seen, with the call of
        its ancestor.
        """
        for run_state in (self._root, *self._states.values()):
            if agent.session in run_state.children:
                return run_state.children[agent.session]
        top = agent.label.partition(".")[0]
        ancestor = next(
            (subagent for subagent in self._root.children.values() if subagent.label == top), None
        )
        call = ancestor.call if ancestor else ""
        return Subagent(agent.label, call, SubagentStarted(agent.session, agent.kind))
