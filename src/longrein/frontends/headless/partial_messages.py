"""Partial messages: a streamed reply as events of the Messages API (blocks open, take deltas, close)."""

from collections.abc import Iterable, Iterator, Sequence

from longrein.agent import FromSubagent, ReplyDelta
from longrein.context import State
from longrein.events import ChildStarted, Replied, Text, Thinking, ToolCall, Usage, call_id
from longrein.frontends.headless.run_state import RunState, Subagent
from longrein.frontends.headless.stream_json_blocks import STOPS, Line, message_id, usage_line
from longrein.models import CallDelta, TextDelta, ThinkingDelta

Delta = TextDelta | ThinkingDelta | CallDelta


class PartialReply:
    """Progress of one streamed reply."""

    def __init__(self, asked: int) -> None:
        self.asked = asked
        self.lines = 0
        """Number of events written."""
        self.blocks = 0
        """Number of blocks begun."""
        self.kind = ""
        """Kind of the open text block: `text`, `thinking` or none."""
        self.calls: dict[int, int] = {}
        """Call index -> block. Calls stay open to the end, as their deltas may alternate."""


class PartialMessages:
    """Makes `stream_event` lines of one reply at a time; a new request drops the last reply."""

    def __init__(self) -> None:
        self._reply: PartialReply | None = None
        self._early_deltas: list[Delta] = []
        """Deltas that arrived before their `Asked`, so that their purpose is not known yet."""

    def draw(self, heard: ReplyDelta, run_state: RunState) -> list[Line]:
        """Lines of a batch of deltas; none for a summary."""
        if heard.asked not in run_state.open_requests:
            self._early_deltas += heard.deltas
            return []
        if run_state.purpose(heard.asked) == "summary":
            return []
        return self._lines(heard.asked, run_state, self._events(heard.asked, heard.deltas, run_state))

    def open(self, asked: int, purpose: str, run_state: RunState) -> list[Line]:
        """Lines of deltas that arrived before request `asked` was stored."""
        early, self._early_deltas = self._early_deltas, []
        return (
            self._lines(asked, run_state, self._events(asked, early, run_state)) if early and purpose == "turn" else []
        )

    def close(self, reply: Replied, run_state: RunState) -> list[Line]:
        """Lines that end the reply; the whole reply when none of it was streamed."""
        if run_state.purpose(reply.asked) == "summary":
            return []
        deltas = () if self._is_open(reply.asked) else _deltas(reply)
        lines = self._lines(reply.asked, run_state, [*self._events(reply.asked, deltas, run_state), *self._end(reply)])
        self._reply = None
        return lines

    def forget(self) -> None:
        """Drop the partial reply of a failed request."""
        self._reply, self._early_deltas = None, []

    def _is_open(self, asked: int) -> bool:
        return self._reply is not None and self._reply.asked == asked

    def _events(self, asked: int, deltas: Iterable[Delta], run_state: RunState) -> Iterator[Line]:
        if not self._is_open(asked):
            self._reply = PartialReply(asked)
            yield {"type": "message_start", "message": _empty_message(asked, run_state)}
        reply = self._reply
        assert reply is not None
        for delta in _merge_deltas(deltas):
            if isinstance(delta, CallDelta):
                yield from _call(reply, delta, run_state)
            else:
                yield from _prose(reply, delta)

    def _end(self, reply: Replied) -> Iterator[Line]:
        partial = self._reply
        assert partial is not None
        yield from _stop_prose(partial)
        for block in partial.calls.values():
            yield {"type": "content_block_stop", "index": block}
        change = {"stop_reason": STOPS.get(reply.stop), "stop_sequence": None}
        yield {"type": "message_delta", "delta": change, "usage": usage_line(reply.usage)}
        yield {"type": "message_stop"}

    def _lines(self, asked: int, run_state: RunState, events: Iterable[Line]) -> list[Line]:
        lines: list[Line] = []
        for event in events:
            reply = self._reply
            assert reply is not None
            ends = run_state.tail(f"stream.{asked}.{reply.lines}")
            reply.lines += 1
            lines.append({"type": "stream_event", "event": event, "parent_tool_use_id": run_state.parent, **ends})
        return lines


def _empty_message(asked: int, run_state: RunState) -> Line:
    return {
        "id": message_id(run_state.session, asked),
        "type": "message",
        "role": "assistant",
        "model": run_state.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_line(Usage()),
    }


def _merge_deltas(deltas: Iterable[Delta]) -> list[Delta]:
    """Merge adjacent text deltas, so that one read from the network gives one line."""
    merged: list[Delta] = []
    texts: list[str] = []
    for delta in deltas:
        last = merged[-1] if merged else None
        if isinstance(delta, TextDelta | ThinkingDelta) and type(last) is type(delta):
            texts.append(delta.text)
            continue
        _append_text(merged, texts)
        merged.append(delta)
    _append_text(merged, texts)
    return merged


def _append_text(merged: list[Delta], texts: list[str]) -> None:
    """Append `texts` to the last delta of `merged`."""
    if texts:
        last = merged[-1]
        assert isinstance(last, TextDelta | ThinkingDelta)
        merged[-1] = type(last)(last.text + "".join(texts))
        texts.clear()


def _call(reply: PartialReply, delta: CallDelta, run_state: RunState) -> Iterator[Line]:
    yield from _stop_prose(reply)
    block = reply.calls.get(delta.index)
    if block is None:
        block = reply.calls[delta.index] = reply.blocks
        reply.blocks += 1
        name = run_state.qualified_id(call_id(reply.asked, delta.index))
        start = {"type": "tool_use", "id": name, "name": delta.name, "input": {}}
        yield {"type": "content_block_start", "index": block, "content_block": start}
    if delta.json:
        change = {"type": "input_json_delta", "partial_json": delta.json}
        yield {"type": "content_block_delta", "index": block, "delta": change}


def _prose(reply: PartialReply, delta: TextDelta | ThinkingDelta) -> Iterator[Line]:
    kind = "text" if isinstance(delta, TextDelta) else "thinking"
    if reply.kind != kind:
        yield from _stop_prose(reply)
        reply.kind = kind
        reply.blocks += 1
        empty = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
        yield {"type": "content_block_start", "index": reply.blocks - 1, "content_block": empty}
    change = {"type": f"{kind}_delta", kind: delta.text}
    yield {"type": "content_block_delta", "index": reply.blocks - 1, "delta": change}


def _stop_prose(reply: PartialReply) -> Iterator[Line]:
    if reply.kind:
        reply.kind = ""
        yield {"type": "content_block_stop", "index": reply.blocks - 1}


def _deltas(reply: Replied) -> Sequence[Delta]:
    """Deltas of a whole reply, as if it had been streamed."""
    deltas: list[Delta] = []
    for part in reply.parts:
        match part:
            case Text(text):
                deltas.append(TextDelta(text))
            case Thinking(text):
                deltas.append(ThinkingDelta(text))
            case ToolCall():
                index = int(part.id.rpartition(".")[2])
                received = part.received or _compact(part)
                deltas.append(CallDelta(index, part.name, received))
            case _:
                pass
    return deltas


def _compact(call: ToolCall) -> str:
    from msgspec.json import encode

    return encode(call.arguments).decode()


# --- Subagents of a run -------------------------


class SubagentStreams:
    """Run state and partial messages of each subagent of a session."""

    def __init__(self, root: RunState, state: State) -> None:
        """`state` is the state of the session at the start of the run; it names earlier subagents."""
        self._root = root
        self._states: dict[str, RunState] = {}
        self._partials: dict[str, PartialMessages] = {}
        for child, now in state.children.items():
            root.children[child] = Subagent(f"a{now.seq}", now.started.call, now.started)

    def run_state(self, heard: FromSubagent) -> RunState:
        """Run state of the subagent of an update."""
        found = self._states.get(heard.child)
        if found is None:
            child = self._known(heard)
            found = self._states[heard.child] = RunState(heard.child, child.started.model, self._root, child)
        return found

    def partial(self, heard: FromSubagent) -> PartialMessages:
        """Partial messages of the subagent of an update."""
        return self._partials.setdefault(heard.child, PartialMessages())

    def _known(self, heard: FromSubagent) -> Subagent:
        """The subagent as its parent started it; if that start was not seen, with the call of its ancestor."""
        for run_state in (self._root, *self._states.values()):
            if heard.child in run_state.children:
                return run_state.children[heard.child]
        top = heard.label.partition(".")[0]
        ancestor = next((child for child in self._root.children.values() if child.label == top), None)
        return Subagent(heard.label, ancestor.call if ancestor else "", ChildStarted(heard.child, heard.kind))
