"""Spans and metrics of a session by the OpenTelemetry conventions for generative AI.

A turn is one `invoke_agent` span, with a `chat` span for each request and an `execute_tool` span
for each call. A subagent is an `invoke_agent` span below the call that started it. Times are those
of the log. No text of a conversation is recorded unless the user asks for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec

from longrein.agent import SessionUpdate
from longrein.steps import (
    BreakStep,
    CallStep,
    CompactionStep,
    FileStep,
    NoticeStep,
    Projection,
    PromptStep,
    QuestionStep,
    RequestStep,
    SettingStep,
    Step,
    StreamStep,
    SubagentStep,
    TaskStep,
    TextStep,
    ThinkingStep,
    TurnEndStep,
)
from longrein_context.events import (
    AnyPart,
    Asked,
    AskFailed,
    PrefixSet,
    Replied,
    SubagentStarted,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    Usage,
    counts_of,
    text_of,
)

DURATION_BUCKETS = tuple(0.01 * 2**n for n in range(14))
"""Seconds: 0.01, 0.02, 0.04 … 81.92."""
TOKEN_BUCKETS = tuple(4**n for n in range(14))
"""Tokens: 1, 4, 16 … 67108864."""
CHUNK_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
"""Seconds between pieces of a streamed reply."""
PROVIDERS: Mapping[str, str] = {
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}
"""Provider as longrein names it -> as the conventions do, where they differ."""
FINISH = {
    "end": "stop",
    "calls": "tool_call",
    "calls_in_text": "tool_call",
    "length": "length",
    "refusal": "content_filter",
}
AGENT = "longrein"


class AgentTrace:
    """Open spans of one agent: the session or a subagent."""

    def __init__(self, session: str, name: str) -> None:
        self.session, self.name = session, name
        self.span: Any = None
        self.began_ns = 0
        self.usage = Usage()
        self.cost_usd = 0.0
        self.prefix: PrefixSet | None = None
        self.chats: dict[int, tuple[Any, int]] = {}
        """Seq of the `Asked` -> span and start."""
        self.tools: dict[str, tuple[Any, int]] = {}
        """Call id -> span and start."""
        self.pieces: dict[int, tuple[int, int]] = {}
        """Seq of the `Asked` -> times of the first and the last piece of its reply, nanoseconds
        UTC.
        """


class Tracer:
    """Turns updates of a session into spans and metrics. For one thread at a time."""

    def __init__(
        self, tracer: Any, meter: Any, session: str, prefix: PrefixSet | None, *, content: bool
    ) -> None:
        """`tracer` and `meter` are those of the OpenTelemetry API; `content`: record what is
        said.
        """
        from opentelemetry import trace

        self._api = trace
        self._tracer = tracer
        self._content = content
        self._root = AgentTrace(session, AGENT)
        self._root.prefix = prefix
        self._agents = {session: self._root}
        self._projection = Projection()
        seconds = {"unit": "s", "explicit_bucket_boundaries_advisory": list(DURATION_BUCKETS)}
        chunk = {"unit": "s", "explicit_bucket_boundaries_advisory": list(CHUNK_BUCKETS)}
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used",
            explicit_bucket_boundaries_advisory=list(TOKEN_BUCKETS),
        )
        self._durations = {
            "chat": meter.create_histogram("gen_ai.client.operation.duration", **seconds),
            "invoke_agent": meter.create_histogram("gen_ai.invoke_agent.duration", **seconds),
            "execute_tool": meter.create_histogram("gen_ai.execute_tool.duration", **seconds),
        }
        self._first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk", **chunk
        )
        self._next_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_per_output_chunk", **chunk
        )

    def hear(self, update: SessionUpdate, now_ns: int) -> None:
        """Record one update of the session or of a subagent, which came at `now_ns` (nanoseconds
        UTC).
        """
        for step in self._projection.read(update):
            self._step(self._agent(step), step, now_ns)

    def _agent(self, step: Step) -> AgentTrace:
        session = step.agent.session
        if not session:
            return self._root
        return self._agents.setdefault(session, AgentTrace(session, step.agent.kind))

    def end(self, at_ns: int) -> None:
        """End all open spans, such as at the end of the process."""
        for agent in reversed(list(self._agents.values())):
            self._end_agent(agent, at_ns, "interrupted" if agent.span is not None else "")

    # --- Steps

    def _step(  # noqa: C901, PLR0912 - a case for each step
        self, agent: AgentTrace, step: Step, now_ns: int
    ) -> None:
        at_ns = step.at * 1000
        match step:
            case StreamStep(request=request):
                self._piece(agent, request, now_ns)
            case BreakStep(prefix=prefix) if prefix:
                agent.prefix = prefix
            case PromptStep(message=said) if agent is self._root or agent.span is not None:
                self._begin_agent(agent, at_ns)
                self._record(agent.span, "gen_ai.input.messages", [_message("user", said.parts)])
            case RequestStep(reply=reply) if reply:
                self._end_chat(agent, reply, at_ns)
            case RequestStep(failure=failure) if failure:
                self._fail_chat(agent, failure, at_ns)
            case RequestStep(asked=asked) if asked:
                self._begin_agent(agent, at_ns)
                self._begin_chat(agent, step.seq, asked, at_ns)
            case CallStep(ended=result) if result:
                self._end_tool(agent, result, at_ns)
            case CallStep(phase="started"):
                self._begin_tool(agent, step, at_ns)
            case SubagentStep(session=session, ended=end) if end:
                if session in self._agents:
                    error = "" if end.status == "done" else end.status
                    self._end_agent(self._agents[session], at_ns, error)
            case SubagentStep(started=start) if start:
                self._begin_subagent(agent, start, at_ns)
            case TurnEndStep(reason=reason) if agent is self._root:
                self._end_agent(agent, at_ns, "" if reason == "done" else reason)
            case PromptStep() | TextStep() | ThinkingStep() | RequestStep() | CallStep():
                pass
            case QuestionStep() | TaskStep() | SubagentStep() | FileStep() | SettingStep():
                pass
            case NoticeStep() | BreakStep() | CompactionStep() | TurnEndStep():
                pass
            case _:
                assert_never(step)

    # --- Agents

    def _begin_agent(self, agent: AgentTrace, at_ns: int, parent: Any = None) -> None:
        if agent.span is not None:
            return
        if parent is None and agent is not self._root:
            parent = self._root.span
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent.name,
            "gen_ai.agent.id": agent.session,
            "gen_ai.conversation.id": self._root.session,
            **self._model(agent),
        }
        agent.span = self._begin(f"invoke_agent {agent.name}", attributes, at_ns, parent)
        agent.began_ns = at_ns
        agent.usage, agent.cost_usd = Usage(), 0.0
        if agent.prefix is not None:
            system = [{"type": "text", "content": agent.prefix.system}]
            self._record(agent.span, "gen_ai.system_instructions", system)

    def _begin_subagent(self, parent: AgentTrace, event: SubagentStarted, at_ns: int) -> None:
        subagent = self._agents.setdefault(event.child, AgentTrace(event.child, event.kind))
        provider, _, model = event.model.partition("/")
        if subagent.prefix is None and model:
            subagent.prefix = PrefixSet("start", provider, model, "", "")
        above = parent.tools.get(event.call, (parent.span, 0))[0]
        self._begin_agent(subagent, at_ns, above)

    def _end_agent(self, agent: AgentTrace, at_ns: int, error: str) -> None:
        for span, _ in (*agent.chats.values(), *agent.tools.values()):
            self._end(span, at_ns, "interrupted")
        agent.chats = {}
        agent.tools = {}
        agent.pieces = {}
        if agent.span is None:
            return
        for name, value in _usage_attributes(agent.usage).items():
            agent.span.set_attribute(name, value)
        agent.span.set_attribute("longrein.cost_usd", agent.cost_usd)
        self._end(agent.span, at_ns, error)
        labels = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent.name}
        self._measure("invoke_agent", at_ns - agent.began_ns, labels, error)
        agent.span = None

    # --- Requests

    def _begin_chat(self, agent: AgentTrace, seq: int, event: Asked, at_ns: int) -> None:
        attributes = {**self._chat_labels(agent), "gen_ai.conversation.id": self._root.session}
        attributes |= {"gen_ai.request.stream": True, "longrein.purpose": event.purpose}
        name = f"chat {attributes.get('gen_ai.request.model', '')}".rstrip()
        agent.chats[seq] = self._begin(name, attributes, at_ns, agent.span, client=True), at_ns

    def _piece(self, agent: AgentTrace, asked: int, now_ns: int) -> None:
        """Record a piece of a reply. Its `Asked` may not be committed yet."""
        first_ns, last_ns = agent.pieces.get(asked, (now_ns, 0))
        if last_ns:
            self._next_chunk.record(max(0, now_ns - last_ns) / 1e9, self._chat_labels(agent))
        agent.pieces[asked] = first_ns, now_ns

    def _end_chat(self, agent: AgentTrace, event: Replied, at_ns: int) -> None:
        span, began_ns = agent.chats.pop(event.asked, (None, at_ns))
        if span is None:
            return
        usage = counts_of(event.usage)
        agent.usage, agent.cost_usd = agent.usage + usage, agent.cost_usd + max(0.0, event.cost_usd)
        for name, value in _usage_attributes(usage).items():
            span.set_attribute(name, value)
        span.set_attribute("gen_ai.response.finish_reasons", [FINISH.get(event.stop, event.stop)])
        if event.model:
            span.set_attribute("gen_ai.response.model", event.model)
        message = {
            **_message("assistant", event.parts),
            "finish_reason": FINISH.get(event.stop, event.stop),
        }
        self._record(span, "gen_ai.output.messages", [message])
        self._end(span, at_ns)
        labels = self._chat_labels(agent, event.model)
        first_ns = agent.pieces.pop(event.asked, (0, 0))[0]
        if first_ns:
            self._first_chunk.record(max(0, first_ns - began_ns) / 1e9, labels)
        self._measure("chat", at_ns - began_ns, labels)
        self._tokens.record(usage.context_tokens, {**labels, "gen_ai.token.type": "input"})
        self._tokens.record(usage.output_tokens, {**labels, "gen_ai.token.type": "output"})

    def _fail_chat(self, agent: AgentTrace, event: AskFailed, at_ns: int) -> None:
        span, began_ns = agent.chats.pop(event.asked, (None, at_ns))
        if span is not None:
            error = str(event.status) if event.status else event.kind
            self._end(span, at_ns, error)
            self._measure("chat", at_ns - began_ns, self._chat_labels(agent), error)

    # --- Calls

    def _begin_tool(self, agent: AgentTrace, step: CallStep, at_ns: int) -> None:
        started = step.started
        name = started.name if started else step.made.name
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": step.id,
            "gen_ai.conversation.id": self._root.session,
        }
        span = self._begin(f"execute_tool {name}", attributes, at_ns, agent.span)
        agent.tools[step.id] = span, at_ns
        changed = started.arguments if started else None
        given = changed if changed is not None else step.made.arguments
        self._record(span, "gen_ai.tool.call.arguments", given)

    def _end_tool(self, agent: AgentTrace, event: ToolEnded, at_ns: int) -> None:
        span, began_ns = agent.tools.pop(event.call, (None, at_ns))
        if span is None:  # denied or not run
            return
        error = "" if event.status == "ok" else event.status
        self._record(span, "gen_ai.tool.call.result", text_of(event.parts))
        self._end(span, at_ns, error)
        labels = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": event.name}
        self._measure("execute_tool", at_ns - began_ns, labels, error)

    # --- Spans and metrics

    def _begin(
        self,
        name: str,
        attributes: Mapping[str, Any],
        at_ns: int,
        parent: Any,
        *,
        client: bool = False,
    ) -> Any:
        kind = self._api.SpanKind.CLIENT if client else self._api.SpanKind.INTERNAL
        context = self._api.set_span_in_context(parent) if parent is not None else None
        return self._tracer.start_span(name, context, kind, attributes, start_time=at_ns)

    def _end(self, span: Any, at_ns: int, error: str = "") -> None:
        if error:
            span.set_attribute("error.type", error)
            span.set_status(self._api.StatusCode.ERROR, error)
        span.end(at_ns)

    def _measure(
        self, operation: str, spent_ns: int, labels: Mapping[str, Any], error: str = ""
    ) -> None:
        self._durations[operation].record(
            max(0, spent_ns) / 1e9, {**labels, **({"error.type": error} if error else {})}
        )

    def _record(self, span: Any, name: str, value: Any) -> None:
        """Record content, if the user asked for that."""
        if self._content and value is not None:
            text = (
                value
                if isinstance(value, str)
                else msgspec.json.encode(value).decode("utf-8", "replace")
            )
            span.set_attribute(name, text)

    def _model(self, agent: AgentTrace) -> dict[str, Any]:
        prefix = agent.prefix or self._root.prefix
        if prefix is None:
            return {}
        provider = PROVIDERS.get(prefix.provider, prefix.provider)
        return {
            "gen_ai.provider.name": provider,
            "gen_ai.system": provider,  # the older name, which some tools still read
            "gen_ai.request.model": prefix.model,
        }

    def _chat_labels(self, agent: AgentTrace, answered: str = "") -> dict[str, Any]:
        labels = {"gen_ai.operation.name": "chat", **self._model(agent)}
        return {**labels, "gen_ai.response.model": answered} if answered else labels


def _usage_attributes(usage: Usage) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": usage.context_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def _message(role: str, parts: Sequence[AnyPart]) -> dict[str, Any]:
    return {"role": role, "parts": [made for part in parts if (made := _part(part)) is not None]}


def _part(part: AnyPart) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "content": text}
        case Thinking(text):
            return {"type": "reasoning", "content": text}
        case ToolCall():
            return {
                "type": "tool_call",
                "id": part.id,
                "name": part.name,
                "arguments": part.arguments,
            }
        case _:
            return None
