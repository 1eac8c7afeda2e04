"""Replay of a recorded session by the engine itself, one request at a time.

Items become events, `step` folds them, the policy decides, and its decisions are folded too. A
request's recorded output becomes known only after the request was shown.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from lab.replay.plain_policies import (
    PLAIN,
    PROSE,
    SUMMARY_TOKENS,
    Change,
    PlainReplay,
)
from lab.replay.recording import Item, Kind, Recording, count_tokens
from longrein_context import (
    Budget,
    Clear,
    Decision,
    Digest,
    Nothing,
    State,
    Summarise,
    Swap,
    build_seed_summary,
    build_summary,
    decide,
    decide_seed,
    step,
)
from longrein_context.clearing.text_features import PLAN_TOOLS, kind_of_name, touched_paths
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    AnyPart,
    Asked,
    Cleared,
    Entry,
    FileChanged,
    Opened,
    PrefixSet,
    Replied,
    Summarized,
    Text,
    Thinking,
    Todo,
    TodoSet,
    ToolCall,
    ToolEnded,
    Usage,
    UserSpoke,
    call_id,
    decode_object,
)

Policy = Callable[[State, Budget, int], Decision]
"""Function from (state, budget, time in microseconds or 0) to a decision."""
POLICIES: dict[str, Policy] = {
    "default": decide,
    "seed": lambda state, budget, _now_us: decide_seed(state, budget),
    "keep-all": lambda _state, _budget, _now_us: Nothing("everything is kept"),
}
FAILED = ("Exit code ", "<tool_use_error>")
"""Starts of recorded results of calls that failed; recordings hold no status."""
DECISIONS_MAX = 20
"""Decisions before one request; a policy that wants more runs in circles."""


class PolicyReplay:
    """Replay of one session under one policy."""

    def __init__(
        self, recording: Recording, policy: Policy, budget: Budget, *, timed: bool = False
    ) -> None:
        self.recording = recording
        self.policy = policy
        self.budget = budget
        self.timed = timed
        self.state = State()
        self.tokens = [item.tokens for item in recording.items]
        """Tokens of each item as it is shown."""
        self.gone: set[int] = set()
        self.summary_tokens = self._owed = 0
        self.places: dict[str, int] = {}
        """Handle of each item that was told -> its position in the recording."""
        self._calls: dict[str, str] = {}
        self._at = 0
        self.tell(Opened(SCHEMA_VERSION, recording.name, "5e55", ("/",), "/"))
        system = "word " * max(1, recording.system_tokens - 10)
        self.tell(PrefixSet("start", "recorded", "recorded", "scripted", system))

    def tell(self, event: AnyEvent, at_us: int = 0) -> int:
        """Fold an event; return its seq."""
        self.state = step(self.state, Entry(self.state.seq + 1, at_us or self.state.seq, event))
        return self.state.seq

    def changes(self) -> Iterator[Change]:
        """Yield one change for each request, in order, also empty ones."""
        items, self._at = self.recording.items, 0
        for t in range(self.recording.requests):
            while (
                self._at < len(items)
                and not items[self._at].output
                and items[self._at].request <= t
            ):
                self._hear(self._at)
                self._at += 1
            for call in list(
                self.state.calls
            ):  # the result was not recorded; a request has no open calls
                self.tell(ToolEnded(call, self.state.calls[call].call.name, "interrupted", ()))
            outputs = self._at
            while self._at < len(items) and items[self._at].output and items[self._at].request == t:
                self._at += 1
            change = Change(t, {})
            self._decide(change, outputs)
            if (
                t == self.recording.requests - 1
            ):  # a summary that was prepared and not used is paid for, too
                change.asked_tokens, self._owed = change.asked_tokens + self._owed, 0
            yield change
            self._answer(outputs, self._at)

    # --- Events for the engine --------------------------------------------------------------------

    def _hear(self, place: int) -> None:
        item = self.recording.items[place]
        call = self._calls.pop(item.call, "") if item.kind == "tool_result" else ""
        if call in self.state.calls:
            made = self.state.calls[call].call
            status = "failed" if item.text.startswith(FAILED) else "ok"
            if status == "ok":
                self._tell_effects(made, item)
            name = item.name or made.name
            seq = self.tell(ToolEnded(call, name, status, (Text(item.text),)))
        else:
            seq = self.tell(UserSpoke((Text(item.text),)))
        self.places[f"r{seq}"] = place

    def _tell_effects(self, call: ToolCall, result: Item) -> None:
        """Tell what a call changed, as a session of longrein's own would: its file, or the todo
        list.
        """
        arguments = call.arguments or {}
        if kind_of_name(call.name) in ("edit", "write") and (paths := touched_paths(arguments)):
            content = sha256(f"{self.state.seq} {result.text}".encode()).hexdigest()
            self.tell(FileChanged(paths[0], content, "agent"))
        todos = arguments.get("todos")
        if call.name.lower() in PLAN_TOOLS and isinstance(todos, list):
            self.tell(TodoSet(tuple(map(_todo, todos))))

    def _decide(self, change: Change, known: int) -> None:
        now_us = self._now_us(known)
        for _ in range(DECISIONS_MAX):
            decision = self.policy(self.state, self.budget, now_us)
            match decision:
                case Clear(event):
                    self._clear(event, change)
                case Digest(event):
                    self._summed(event, change)
                case Summarise():
                    self._summarise(decision)
                case Swap():
                    self._swap(decision, change)
                case _:
                    return

    def _now_us(self, known: int) -> int:
        """Return the time of the request: that of its first output."""
        if not self.timed or known >= len(self.recording.items):
            return 0
        return self.recording.items[known].at_us

    def _answer(self, first: int, end: int) -> None:
        carried = self.recording.system_tokens + self.summary_tokens + sum(self.tokens[:first])
        asked = self.tell(Asked("turn", self.state.seq, 2), self._now_us(first))
        items = self.recording.items[first:end]
        parts: list[AnyPart] = []
        made = [self._part(item, asked, parts) for item in items]
        seq = self.tell(
            Replied(asked, tuple(parts), "calls" if made else "end", Usage(carried, 0, 0, 10))
        )
        for n in range(end - first):
            self.places[f"r{seq}.{n + 1}"] = first + n

    def _part(self, item: Item, asked: int, parts: list[AnyPart]) -> bool:
        if item.kind != "tool_call":
            parts.append(Thinking(item.text) if item.thinking else Text(item.text))
            return False
        call = call_id(asked, sum(isinstance(part, ToolCall) for part in parts))
        self._calls[item.call or call] = call
        parts.append(ToolCall(call, item.name, decode_object(item.text), item.text))
        return True

    # --- Decisions of the policy ------------------------------------------------------------------

    def _clear(self, event: Cleared, change: Change) -> None:
        for form in event.forms:
            if (place := self.places.get(form.handle)) is not None:
                text = None if form.form == "folded" else form.text
                change.show[place] = text
                self._shown(place, text)
        change.reason = change.reason or event.reason
        self.tell(event)

    def _shown(self, place: int, text: str | None) -> None:
        kind: Kind = self.recording.items[place].kind
        self.tokens[place] = 0 if text is None else count_tokens(kind, text)
        if text is None:
            self.gone.add(place)

    def _summarise(self, wish: Summarise) -> None:
        span = {"first": wish.first, "last": wish.last, "reason": wish.reason}
        asked = self.tell(Asked("summary", self.state.sent_reach, 2, **span))  # type: ignore[arg-type]
        self.tell(Replied(asked, (Text(PROSE),), "end"))
        self._owed += SUMMARY_TOKENS

    def _swap(self, ready: Swap, change: Change) -> None:
        change.asked_tokens, self._owed = change.asked_tokens + self._owed, 0
        if self.policy is POLICIES["seed"]:
            self._summed(build_seed_summary(self.state, self.budget, ready), change)
            return
        span = (ready.first, ready.last)
        self._summed(
            build_summary(self.state, self.budget, span, ready.reason, PROSE, (ready.asked,)),
            change,
        )

    def _summed(self, event: Summarized, change: Change) -> None:
        for handle, place in self.places.items():
            seq = int(handle[1:].partition(".")[0])
            if event.first <= seq <= event.last and place not in self.gone:
                change.show[place] = None
                self._shown(place, None)
        change.summary, change.reason = event.text, change.reason or event.reason
        words = SUMMARY_TOKENS if PROSE in event.text else 0
        self.summary_tokens = words + count_tokens("assistant_text", event.text.replace(PROSE, ""))
        self.tell(event)


def _todo(given: Any) -> Todo:
    named = given if isinstance(given, dict) else {"content": given}
    return Todo(str(named.get("content", "")), str(named.get("status", "pending")))


NAMES = (*POLICIES, *PLAIN)
"""All policies."""


def replay_of(
    name: str, recording: Recording, budget: Budget, *, timed: bool = False
) -> PolicyReplay | PlainReplay:
    """Open the replay of a session under the policy of this name. Raises `KeyError` for an
    unknown name.
    """
    if name in PLAIN:
        return PlainReplay(recording, PLAIN[name], budget.window_tokens)
    return PolicyReplay(recording, POLICIES[name], budget, timed=timed)
