"""The engine under somebody else's loop: a list of messages goes in, the list to be sent comes out.

The caller goes on appending to its own list and never has to cut it. Before each request it asks `prepare` what to
send: the same messages, with those that the policy cleared or summarised replaced, the rest untouched, so that the
provider's cache holds. Nothing is lost: the placeholders name handles, and `recall` brings the original back.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

import msgspec

from longrein.context.decide import Clear, Decision, Digest, Full, Nothing, Summarise, Swap, decide, window_of
from longrein.context.fold import advance, fold
from longrein.context.message_list.intake import Intake, message_digest
from longrein.context.message_list.message_formats import DICT_FORMAT, MessageFormat, usage_of
from longrein.context.message_list.render import ListRenderer, OutgoingMessage, original, page
from longrein.context.state.request import Budget, Price
from longrein.context.state.state import State
from longrein.context.summary.digest import instruction, prose_problem, summarized
from longrein.context.truncation import births
from longrein.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    AskFailed,
    Entry,
    Opened,
    PrefixSet,
    Recalled,
    Reminded,
    Replied,
    Text,
    ToolError,
    ToolSpec,
    UsageError,
)

ROUNDS_MAX = 8
"""Decisions before one request; a policy that wants more has its say at the next."""
NO_SESSION = "00000000-0000-4000-8000-000000000000"
RECALL = "Recall"
"""Name of the tool that placeholders speak of."""
RECALL_DESCRIPTION = (
    "Bring back the original of something that was shortened, cleared or summarised in this conversation. Markers name "
    "handles: r412, or r412.2 for its second part. You get a page of about 16,000 characters and how to get the next. "
    "Use it rather than repeating a call or guessing."
)
RECALL_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "handle": {"type": "string", "description": "Such as r412 or r412.2."},
        "lines": {"type": "string", "description": 'Such as "100-200" or "100-"; default from the start.'},
    },
    "required": ["handle"],
}

Summariser = Callable[[list[Any]], str | Awaitable[str]]
"""Gets the list to be sent plus one message with the instruction; gives a model's prose, or an awaitable of it."""


class EngineEnvironment(msgspec.Struct, frozen=True):
    """What an engine without clock, disk and chance is given of the world."""

    session: str = NO_SESSION
    """UUID."""
    nonce: str = ""
    """Random sign that the engine's own markers carry; '' derives one from the first messages."""
    now_us: Callable[[], int] = lambda: 0
    """Microseconds UTC; 0 when unknown, the provider's cache then counts as warm."""
    entries: Sequence[Entry] = ()
    """The log to go on with, whole, from entry 1."""
    keep: Callable[[Entry], None] = lambda _: None
    """Is given each new entry."""


class Engine:
    """One conversation. Not for two threads at once."""

    def __init__(
        self,
        window: int,
        max_output: int,
        *,
        price: Price | None = None,
        cache_ttl_s: float = 300.0,
        clears: Sequence[str] = ("result",),
        summarise: Summariser | None = None,
        shape: MessageFormat = DICT_FORMAT,
        environment: EngineEnvironment | None = None,
    ) -> None:
        """`window`, `max_output`: tokens, as the model's page says. `clears`: kinds of content that may be cleared, of
        `result`, `call`, `text` and `thinking`. `summarise`: asks a model; without it a digest made by code stands in.
        """
        self.budget = Budget(window, max_output, price, cache_ttl_s, clears=tuple(clears))
        """Window, output reserve and prices."""
        self._summarise, self._shape = summarise, shape
        self._environment = environment or EngineEnvironment()
        self.entries: list[Entry] = list(self._environment.entries)
        """The log: all that was ever said, with every original."""
        self.state: State = fold(self.entries)
        """What the log folds to."""
        self._intake = Intake(shape, self._append, lambda: self.state)
        self._intake.recover(self.entries)
        if self.state.summarising is not None:
            self._append(AskFailed(self.state.summarising_seq, "lost", "the process ended while a summary was written"))
        self._renderer = ListRenderer(shape)
        self._tools: tuple[ToolSpec, ...] = ()
        self._prose = ""
        self._sent: list[Any] = []
        self.why = ""
        """Why the context was left as it is, or changed, at the last `prepare`."""

    # --- before and after a request ------------------------------------------------------------------------------

    def prepare(self, chat: Sequence[Any], tools: Sequence[Any] = ()) -> list[Any]:
        """The list to be sent in place of `chat`, the caller's whole and ever growing list.

        Between two breaks each answer begins with all of the one before. `tools`: their schemas as they are sent, so
        that they are counted. Raises `UsageError` for a message that cannot be read; a summariser that raises is a
        failed attempt.
        """
        work = self._work(chat, tools)
        try:
            for request in work:
                self._prose = self._written(request)
        finally:
            work.close()
        return self._sent

    async def aprepare(self, chat: Sequence[Any], tools: Sequence[Any] = ()) -> list[Any]:
        """`prepare` for an async loop: a summariser that gives an awaitable is awaited."""
        work = self._work(chat, tools)
        try:
            for request in work:
                self._prose = await self._awaited(request)
        finally:
            work.close()  # when this is cancelled, the attempt at a summary ends here
        return self._sent

    def observe(self, reply: Any) -> None:
        """What the provider counted, once an answer has come: its usage, or the whole answer that holds it.

        Any of the spellings of OpenAI, Anthropic, LangChain and Pydantic AI, as dict or object. It calibrates the
        estimates; without it they are guesses from characters.
        """
        self._intake.usage = usage_of(reply) or self._intake.usage

    def refused(self, message: str, window: int = 0) -> None:
        """The provider said that the last list does not fit. The next `prepare` of the same list gives a shorter one.

        `window`: tokens, where the error names them.
        """
        if self.state.asked is not None:
            self._append(AskFailed(self.state.asked_seq, "overflow", message, limit_tokens=window))

    def compact(self, focus: str = "") -> None:
        """Make room at the next `prepare`; `focus` is what a summary should keep above all."""
        self._append(Reminded("compact", "", state=focus))

    # --- originals -----------------------------------------------------------------------------------------------

    def recall(self, handle: str, lines: str = "") -> str:
        """One page of an original, for the model. What cannot be recalled is said in the answer."""
        try:
            text = page(original(self.entries, handle), handle.strip(), lines)
        except ToolError as error:
            return str(error)
        self._append(Recalled("", handle, lines=lines, size_bytes=len(text.encode("utf-8", "replace"))))
        return text

    def original(self, handle: str) -> str:
        """The whole text that `handle` (`r12`, `r12.2`) names. Raises `ToolError` when it names nothing."""
        return original(self.entries, handle)

    def recall_tool(self, wire: str = "openai-chat") -> dict[str, Any]:
        """The tool to offer the model; its calls are answered by `recall(handle, lines)`.

        `wire`: `openai-chat`, `openai-responses` or `anthropic`.
        """
        named = {"name": RECALL, "description": RECALL_DESCRIPTION}
        if wire == "anthropic":
            return {**named, "input_schema": dict(RECALL_SCHEMA)}
        function = {**named, "parameters": dict(RECALL_SCHEMA)}
        return (
            {"type": "function", **function}
            if wire == "openai-responses"
            else {"type": "function", "function": function}
        )

    # --- looking -------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """Tokens that the next request's input will have."""
        return self.state.view_tokens

    @property
    def room(self) -> int:
        """Tokens left before the usable window is full; negative when it is overfull."""
        return window_of(self.state, self.budget).usable_tokens - self.state.view_tokens

    @property
    def notes(self) -> list[str]:
        """What a person should know, a line each: a list that was changed, a request that cannot fit."""
        return self._intake.notes

    # --- the work ------------------------------------------------------------------------------------------------

    def _append(self, event: AnyEvent) -> int:
        entry = Entry(len(self.entries) + 1, self._environment.now_us(), event)
        self.entries.append(entry)
        self.state = advance(self.state, entry, lambda to: self.entries[:to])
        self._environment.keep(entry)
        return entry.seq

    def _work(self, chat: Sequence[Any], tools: Sequence[Any]) -> Generator[list[Any], None, None]:
        """Take in, make room, ask. Yields what a summariser is to be sent and finds its prose in `_prose`."""
        before = self.state.seq
        self._intake.take(chat, lambda system: self._begin(chat, system, tools))
        if self.state.seq > before or self.state.asked is None or self.state.compact_wanted is not None:
            self._intake.settle("it was not sent")
            yield from self._make_room(chat)
            self._intake.ask(whole=False)
            state = self.state
            forms = births(state, window_of(state, self.budget))
            self._append(Asked("turn", state.seq, state.prefix_seq, forms, state.view_tokens))
        view = self._view(chat)
        self._intake.given, self._intake.given_said = [one.taken for one in view], [one.said for one in view]
        self._sent = [one.one for one in view]

    def _begin(self, chat: Sequence[Any], system: str, tools: Sequence[Any]) -> None:
        """What stands before the conversation, when it is new or another."""
        specs = tuple(map(_spec, tools)) if tools else self._tools
        self._tools = specs
        prefix = self.state.prefix
        if prefix is None:
            nonce = self._environment.nonce or "".join(message_digest(self._shape.read(one))[:4] for one in chat[:2])
            self._append(Opened(SCHEMA_VERSION, self._environment.session, nonce, (), ""))
        if prefix is None or (prefix.system, prefix.tools) != (system, specs):
            self._append(PrefixSet("start" if prefix is None else "tools", "", "", "listed", system, specs))

    def _make_room(self, chat: Sequence[Any]) -> Generator[list[Any], None, None]:
        able = self._summarise is not None
        for _ in range(ROUNDS_MAX):
            wish = _decision(self.state, self.budget, self._environment.now_us())
            self.why = type(wish).__name__.lower()
            match wish:
                case Clear(event) | Digest(event):
                    self._append(event)
                case Swap():
                    self._swap(wish)
                case Summarise() if able:
                    yield from self._ask_for_summary(chat, wish)
                case Summarise(reason="request"):
                    self._swap(Swap(wish.first, wish.last, wish.reason, "", 0))
                case Summarise():
                    self.why = "a summary would be prepared now, but there is nobody to write one"
                    return
                case Full(message):
                    self.notes.append(message)
                    return
                case Nothing(why):
                    self.why = why
                    return

    def _ask_for_summary(self, chat: Sequence[Any], wish: Summarise) -> Generator[list[Any], None, None]:
        state = self.state
        asked = Asked("summary", state.seq, state.prefix_seq, (), state.view_tokens)
        seq = self._append(
            msgspec.structs.replace(asked, focus=wish.focus, first=wish.first, last=wish.last, reason=wish.reason)
        )
        self._prose = ""
        try:
            yield [*(one.one for one in self._view(chat)), self._shape.tell(instruction(wish.focus))]
        finally:
            problem = prose_problem(self.state, self.budget, self._prose, "end", 0)
            failed = AskFailed(seq, "invalid", f"no summary: {problem}")
            self._append(failed if problem else Replied(seq, (Text(self._prose),), "end"))

    def _written(self, request: list[Any]) -> str:
        """The caller's summariser; whatever it raises is a failed attempt, for the session has to go on."""
        try:
            prose = self._summarise(request) if self._summarise is not None else ""
        except Exception as error:
            return self._unwritten(error)
        if isinstance(prose, str):
            return prose
        raise UsageError("the summariser of this engine gives an awaitable; call `await engine.aprepare(...)`")

    async def _awaited(self, request: list[Any]) -> str:
        try:
            prose = self._summarise(request) if self._summarise is not None else ""
            return prose if isinstance(prose, str) else await prose
        except Exception as error:
            return self._unwritten(error)

    def _unwritten(self, error: Exception) -> str:
        self.notes.append(f"no summary: {type(error).__name__}: {error}")
        return ""

    def _swap(self, ready: Swap) -> None:
        asks = (ready.asked,) if ready.asked else ()
        span = (ready.first, ready.last)
        self._append(summarized(self.state, self.budget, span, ready.reason, ready.prose, asks))

    def _view(self, chat: Sequence[Any]) -> list[OutgoingMessage]:
        said = [one if one is not None else self._shape.read(chat[n]) for n, one in enumerate(self._intake.said)]
        return self._renderer.show(self.state, chat, self._intake.taken, said)


def _decision(state: State, budget: Budget, now_us: int) -> Decision:
    """The policy. The one place here that knows how it is called."""
    return decide(state, budget, now_us)


def _spec(tool: Any) -> ToolSpec:
    """A tool's schema in any of the wires' spellings."""
    fields = tool.get("function", tool)
    schema = fields.get("parameters") or fields.get("input_schema") or {}
    return ToolSpec(str(fields.get("name")), str(fields.get("description") or ""), schema)
