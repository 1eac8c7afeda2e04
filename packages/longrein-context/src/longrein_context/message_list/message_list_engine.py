"""Context engine for the message list of another program.

The caller appends to its own list and never cuts it. Before each request it calls `prepare`, which
returns the same messages with the cleared and summarised ones replaced. The others are untouched,
so that the provider's cache holds. Placeholders name handles, and `recall` brings the original
back.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

import msgspec

from longrein_context.decisions import (
    Clear,
    Digest,
    Full,
    Nothing,
    Summarise,
    Swap,
    decide,
    decide_without_money,
    window_of,
)
from longrein_context.events import (
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
from longrein_context.message_list.intake import Intake, message_digest
from longrein_context.message_list.message_formats import (
    DICT_FORMAT,
    MessageFormat,
    NeutralMessage,
    read_message,
    usage_of,
)
from longrein_context.message_list.render import (
    ListRenderer,
    OutgoingMessage,
    kept_parts,
    original,
    page,
    page_chars,
    unread_tokens,
)
from longrein_context.state.request_types import Budget, Price
from longrein_context.state.state import State
from longrein_context.state_fold import KeptStates, advance, fold
from longrein_context.summary.prompt import (
    prose_problem,
    records_tokens,
    summary_instruction,
)
from longrein_context.summary.summary_text import build_summary, records_for_summariser
from longrein_context.truncation import births

ROUNDS_MAX = 8  # Decisions before one request. Further changes wait for the next request.
NO_SESSION = "00000000-0000-4000-8000-000000000000"
RECALL = "Recall"  # Name of the tool that placeholders mention
RECALL_DESCRIPTION = (
    "Bring back the original of something that was shortened, cleared or summarised in this "
    "conversation. Markers name "
    "handles: r412, or r412.2 for its second part. You get a page of up to 16,000 characters and "
    "how to get the next. "
    "Use it rather than repeating a call or guessing."
)
RECALL_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "handle": {"type": "string", "description": "Such as r412 or r412.2."},
        "lines": {
            "type": "string",
            "description": 'Such as "100-200" or "100-"; default from the start.',
        },
    },
    "required": ["handle"],
}

Summariser = Callable[[list[Any]], str | Awaitable[str]]
"""Function from the list to be sent, plus one message with the instruction, to a model's prose
or its awaitable.
"""


CLEARS = ("exchange", "result", "call", "text")
"""Units that every known protocol lets go: thinking leaves only with the whole reply that it
belongs to.
"""


class EngineEnvironment(msgspec.Struct, frozen=True):
    """Session id, sign, clock and log of an engine, which itself uses no clock, disk or
    randomness.
    """

    session: str = NO_SESSION  # UUID of the session
    nonce: str = (
        ""  # Random sign of the engine's own markers; '' derives one from the first messages
    )
    now_us: Callable[[], int] = lambda: 0
    """Microseconds UTC; 0 when unknown, in which case the provider's cache counts as warm."""
    entries: Sequence[Entry] = ()  # The whole log to continue, from entry 1
    keep: Callable[[Entry], None] = lambda _: None  # Called with each new entry


class Engine:
    """Engine of one conversation. Not thread-safe."""

    def __init__(
        self,
        window: int,
        max_output: int,
        *,
        price: Price | None = None,
        cache_ttl_s: float = 300.0,
        clears: Sequence[str] = CLEARS,
        summarise: Summariser | None = None,
        shape: MessageFormat = DICT_FORMAT,
        environment: EngineEnvironment | None = None,
    ) -> None:
        """Create an engine for a model with these limits.

        `window`, `max_output`: tokens, as the model's page says. `clears`: kinds of content that
        may be cleared, see `Budget.clears`. `summarise`: asks a model for a summary; without it
        code writes one.
        """
        self.budget = Budget(window, max_output, price, cache_ttl_s, clears=tuple(clears))
        """Window, output reserve and prices."""
        self._summarise, self._shape = summarise, shape
        self._environment = environment or EngineEnvironment()
        self.entries: list[Entry] = list(self._environment.entries)  # The log, with every original
        self.state: State = fold(self.entries)  # The folded log
        self._log = KeptStates(lambda first, last: self.entries[first - 1 : last])
        self._intake = Intake(shape, self._append, lambda: self.state)
        self._intake.recover(self.entries)
        if self.state.summarising is not None:
            self._append(
                AskFailed(
                    self.state.summarising_seq,
                    "lost",
                    "the process ended while a summary was written",
                )
            )
        self._renderer = ListRenderer(shape)
        self._tools: tuple[ToolSpec, ...] = ()
        self._prose = ""
        self._sent: list[Any] = []
        self._unread_tokens = 0  # Tokens of the list that the state does not count
        self.why = ""  # Reason for the last decision of `prepare`

    # --- Requests ---------------------------------------------------------------------------------

    def prepare(self, chat: Sequence[Any], tools: Sequence[Any] = ()) -> list[Any]:
        """Return the list to be sent in place of `chat`, the caller's whole and growing list.

        Between two breaks each answer begins with all of the one before. `tools`: schemas of the
        tools as they are sent, so that they are counted. Raises `UsageError` for a message that
        cannot be read. An exception of the summariser counts as a failed attempt.
        """
        work = self._prepare_steps(chat, tools)
        try:
            for request in work:
                self._prose = self._prose_from(request)
        finally:
            work.close()
        return self._sent

    async def aprepare(self, chat: Sequence[Any], tools: Sequence[Any] = ()) -> list[Any]:
        """Prepare the list in an async loop; awaits a summariser that returns an awaitable. See
        `prepare`.
        """
        work = self._prepare_steps(chat, tools)
        try:
            for request in work:
                self._prose = await self._awaited_prose_from(request)
        finally:
            work.close()  # a cancellation ends the attempt at a summary here
        return self._sent

    def observe(self, reply: Any) -> None:
        """Take the token usage of an answer: the usage itself, or the answer that holds it.

        Accepts the forms of OpenAI, Anthropic, LangChain and Pydantic AI, as dict or object. The
        usage calibrates the token estimates, which are otherwise derived from characters.
        """
        self._intake.usage = usage_of(reply) or self._intake.usage

    def refused(self, message: str, window: int = 0) -> None:
        """Record that the provider refused the last list as too long. The next `prepare` returns a
        shorter list.

        `window`: tokens, where the error names them.
        """
        if self.state.asked is not None:
            read = max(1, window - self._unread_tokens) if window else 0
            self._append(AskFailed(self.state.asked_seq, "overflow", message, limit_tokens=read))

    def compact(self, focus: str = "") -> None:
        """Make room at the next `prepare`. `focus`: what a summary should keep above all."""
        self._append(Reminded("compact", "", state=focus))

    # --- Originals --------------------------------------------------------------------------------

    def recall(self, handle: str, lines: str = "") -> str:
        """Return one page of an original, for the model. Errors are returned as text."""
        try:
            text = page(
                original(self.entries, handle), handle.strip(), lines, page_chars(self.budget)
            )
        except ToolError as error:
            return str(error)
        self._append(
            Recalled("", handle, lines=lines, size_bytes=len(text.encode("utf-8", "replace")))
        )
        return text

    def original(self, handle: str) -> str:
        """Return the whole text of a handle (`r12`, `r12.2`). Raises `ToolError` when it names
        nothing.
        """
        return original(self.entries, handle)

    def recall_tool(self, wire: str = "openai-chat") -> dict[str, Any]:
        """Return the schema of the tool `Recall`. Answer its calls with `recall(handle, lines)`.

        `wire`: `openai-chat`, `openai-responses` or `anthropic`.
        """
        named = {"name": RECALL, "description": RECALL_DESCRIPTION}
        if wire == "anthropic":
            return {**named, "input_schema": dict(RECALL_SCHEMA)}
        function = {**named, "parameters": dict(RECALL_SCHEMA)}
        return {"type": "function"} | (
            function if wire == "openai-responses" else {"function": function}
        )

    # --- Size and notes ---------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """Input tokens of the next request."""
        return self.state.view_tokens + self._unread_tokens

    @property
    def room(self) -> int:
        """Tokens left before the usable window is full; negative when it is overfull."""
        return window_of(self.state, self._budget_left).usable_tokens - self.state.view_tokens

    @property
    def notes(self) -> list[str]:
        """Lines for the user: a list that was changed, a request that cannot fit."""
        return self._intake.notes

    # --- Private steps ----------------------------------------------------------------------------

    @property
    def _budget_left(self) -> Budget:
        """The budget without the tokens of what is sent unread."""
        if not self._unread_tokens:
            return self.budget
        window = max(2, self.budget.window_tokens - self._unread_tokens)
        output = min(self.budget.max_output_tokens, window - 1)
        return msgspec.structs.replace(self.budget, window_tokens=window, max_output_tokens=output)

    def _append(self, event: AnyEvent) -> int:
        entry = Entry(len(self.entries) + 1, self._environment.now_us(), event)
        self.entries.append(entry)
        self.state = advance(self.state, entry, self._log)
        self._log.keep(self.state)
        self._environment.keep(entry)
        return entry.seq

    def _prepare_steps(
        self, chat: Sequence[Any], tools: Sequence[Any]
    ) -> Generator[list[Any], None, None]:
        """Take in the list, make room and append the request. Yields requests for a summary;
        prose is in `_prose`.
        """
        before = self.state.seq
        self._intake.take(chat, lambda system: self._append_prefix(chat, system, tools))
        if (
            self.state.seq > before
            or self.state.asked is None
            or self.state.compact_wanted is not None
        ):
            self._intake.fail_open_request("it was not sent")
            yield from self._make_room(chat)
            self._intake.append_request(whole=False)
            state = self.state
            forms = births(state, window_of(state, self._budget_left))
            self._append(Asked("turn", state.seq, state.prefix_seq, forms, state.view_tokens))
        view = self._view(chat)
        self._intake.given, self._intake.given_said = (
            [one.taken for one in view],
            [one.said for one in view],
        )
        self._sent = [one.one for one in view]

    def _append_prefix(self, chat: Sequence[Any], system: str, tools: Sequence[Any]) -> None:
        """Append the system text and tools when they are new or have changed."""
        specs = tuple(map(_spec, tools)) if tools else self._tools
        self._tools = specs
        prefix = self.state.prefix
        if prefix is None:
            nonce = self._environment.nonce or "".join(
                message_digest(read_message(self._shape, one))[:4] for one in chat[:2]
            )
            self._append(Opened(SCHEMA_VERSION, self._environment.session, nonce, (), ""))
        if prefix is None or (prefix.system, prefix.tools) != (system, specs):
            self._append(
                PrefixSet("start" if prefix is None else "tools", "", "", "listed", system, specs)
            )

    def _make_room(self, chat: Sequence[Any]) -> Generator[list[Any], None, None]:
        able = self._summarise is not None
        for _ in range(ROUNDS_MAX):
            if self._intake.has_unread:
                taken, said = self._intake.taken, self._said(chat)
                self._unread_tokens = unread_tokens(self.state, taken, said)
            wish = decide(self.state, self._budget_left, self._environment.now_us())
            self.why = type(wish).__name__.lower()
            match wish:
                case Clear(event) | Digest(event):
                    self._append(event)
                case Swap():
                    self._append_summary(wish)
                case Summarise() if able:
                    yield from self._ask_for_summary(chat, wish)
                case Summarise(reason="request"):
                    self._append_digest(wish)
                case Summarise():
                    self.why = "a summary is due, but the engine has no summariser"
                    return
                case Full(message):
                    self.notes.append(message)
                    return
                case Nothing(why):
                    self.why = why
                    return

    def _ask_for_summary(
        self, chat: Sequence[Any], wish: Summarise
    ) -> Generator[list[Any], None, None]:
        state = self.state
        asked = Asked("summary", state.seq, state.prefix_seq, (), state.view_tokens)
        seq = self._append(
            msgspec.structs.replace(
                asked, focus=wish.focus, first=wish.first, last=wish.last, reason=wish.reason
            )
        )
        self._prose = ""
        records = records_for_summariser(state, records_tokens(self.budget, state.view_tokens))
        try:
            yield [
                *(one.one for one in self._view(chat)),
                self._shape.tell(summary_instruction(wish.focus, records=records)),
            ]
        finally:
            problem = prose_problem(self.state, self.budget, self._prose, "end", 0)
            failed = AskFailed(seq, "invalid", f"no summary: {problem}")
            self._append(failed if problem else Replied(seq, (Text(self._prose),), "end"))

    def _prose_from(self, request: list[Any]) -> str:
        """Call the summariser. An exception counts as a failed attempt."""
        try:
            prose = self._summarise(request) if self._summarise is not None else ""
        except Exception as error:
            return self._note_failure(error)
        if isinstance(prose, str):
            return prose
        raise UsageError(
            "the summariser of this engine gives an awaitable; call `await engine.aprepare(...)`"
        )

    async def _awaited_prose_from(self, request: list[Any]) -> str:
        try:
            prose = self._summarise(request) if self._summarise is not None else ""
            return prose if isinstance(prose, str) else await prose
        except Exception as error:
            return self._note_failure(error)

    def _note_failure(self, error: Exception) -> str:
        self.notes.append(f"no summary: {type(error).__name__}: {error}")
        return ""

    def _append_digest(self, wish: Summarise) -> None:
        """Make room on request without a summariser, or note why that is impossible."""
        found = decide_without_money(self.state, self.budget, wish)
        if isinstance(found, Digest):
            self._append(found.event)
            return
        self.why = found.why
        self._append(Reminded("compact_refused", "", state=found.why))

    def _append_summary(self, ready: Swap) -> None:
        asks = (ready.asked,) if ready.asked else ()
        span = (ready.first, ready.last)
        self._append(build_summary(self.state, self.budget, span, ready.reason, ready.prose, asks))

    def _view(self, chat: Sequence[Any]) -> list[OutgoingMessage]:
        said = self._said(chat)
        kept = kept_parts(said) if self._intake.has_unread else {}
        return self._renderer.show(self.state, chat, self._intake.taken, said, kept)

    def _said(self, chat: Sequence[Any]) -> list[NeutralMessage]:
        return [
            one if one is not None else read_message(self._shape, chat[n])
            for n, one in enumerate(self._intake.said)
        ]


def _spec(tool: Any) -> ToolSpec:
    """Convert a tool schema of any wire."""
    fields = tool.get("function", tool)
    schema = fields.get("parameters") or fields.get("input_schema") or {}
    return ToolSpec(str(fields.get("name")), str(fields.get("description") or ""), schema)
