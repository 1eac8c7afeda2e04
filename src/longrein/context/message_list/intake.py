"""Taking somebody else's list in: each new message becomes facts, and what the facts are called is remembered.

A list may also have changed behind the engine's back. Where it still is what the engine itself gave out, it goes on
with that; else it goes back to the last point at which both agree, and says so.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from longrein.context.message_list.message_formats import MessageFormat, NeutralMessage
from longrein.context.state.state import State
from longrein.events import (
    AnyEvent,
    AnyPart,
    Asked,
    AskFailed,
    Entry,
    ProviderBlock,
    Reminded,
    Replied,
    Rewound,
    Text,
    ToolCall,
    ToolEnded,
    ToolResult,
    TurnEnded,
    Usage,
    UserSpoke,
    call_id,
)

LISTED = "listed"
"""Kind of the `Reminded` that says what a message of the list became; it has no text, so no model sees it."""
RELISTED = "relisted"
"""Kind of the `Reminded` that says the same for the whole list, when the caller goes on with what it was given."""
FIRST_SEQ = 2
"""`Opened` and `PrefixSet`: what stands before the first message."""
_NO_RESULT = "(no result came of this call)"


class TakenMessage(msgspec.Struct, frozen=True):
    """What a message of the list became."""

    digest: str
    """Of its reading: equal messages, equal digests."""
    handles: tuple[str, ...]
    """Handle of each part; '' for one that is no item of the view."""
    seqs: tuple[int, ...]
    """Entry of each part."""
    seq: int = 0
    """Last entry that it became."""
    calm: bool = False
    """Whether the list may be gone back to here: no call waits for its result."""
    fixed: bool = False
    """Whether it is always shown as it is."""


class Intake:
    """Everything taken in so far, in the order of the list."""

    def __init__(self, shape: MessageFormat, append: Callable[[AnyEvent], int], state: Callable[[], State]) -> None:
        self._shape, self._append, self._state = shape, append, state
        self.taken: list[TakenMessage] = []
        """One for each message of the caller's list."""
        self.said: list[NeutralMessage | None] = []
        """Their readings; None after a restart, until they are read again."""
        self.given: list[TakenMessage] = []
        """The same for the list that the engine gave out last."""
        self.given_said: list[NeutralMessage] = []
        self.usage: Usage | None = None
        """What was counted for the request that is not yet answered."""
        self.notes: list[str] = []
        """What a person should know, a line each."""
        self._calls: dict[str, str] = {}  # provider's id -> ours
        self._seen: list[tuple[Any, NeutralMessage]] = []  # what was read last, so that a message is read once

    # --- after a restart -----------------------------------------------------------------------------------------

    def recover(self, entries: Sequence[Entry]) -> None:
        """Learn from a stored log what the list became."""
        for entry in entries:
            match entry.event:
                case Reminded(kind="listed", state=state):
                    taken = msgspec.json.decode(state, type=TakenMessage)
                    self.taken.append(msgspec.structs.replace(taken, seq=entry.seq))
                    self.said.append(None)
                case Reminded(kind="relisted", state=state):
                    self.taken = msgspec.json.decode(state, type=list[TakenMessage])
                    self.said = [None] * len(self.taken)
                case Rewound(to=to):
                    self._cut(next((n for n, t in enumerate(self.taken) if t.seq > to), len(self.taken)))
                case Replied(parts=parts, blocks=blocks):
                    self._calls.update(
                        (block.raw, part.id)
                        for block in blocks
                        if isinstance(part := parts[block.part], ToolCall) and block.wire == LISTED
                    )
                case _:
                    pass

    def _cut(self, length: int) -> None:
        del self.taken[length:]
        del self.said[length:]

    # --- new messages --------------------------------------------------------------------------------------------

    def take(self, chat: Sequence[Any], begin: Callable[[str], None]) -> None:
        """Take in what is new in `chat`; `begin` is told the system text of the whole list before that."""
        read = self._read(chat)
        begin("\n\n".join(text for n, one in enumerate(read) if (text := _system_of(one, read, n))))
        known = self._known(read)
        if known < len(self.taken):
            self._go_back(known)
        at = len(self.taken)
        while at < len(read):
            at = self._take_replies(read, at) if read[at].side == "assistant" else self._take_one(read, at)

    def _read(self, chat: Sequence[Any]) -> list[NeutralMessage]:
        """Every message read; comparing a dict with a copy that shares its strings is much cheaper than reading it."""
        pairs = self._seen
        del pairs[len(chat) :]
        for n, one in enumerate(chat):
            if n < len(pairs) and type(one) is dict and pairs[n][0] == one:
                continue
            pairs[n : n + 1] = [(copy_containers(one), self._shape.read(one))]
        return [said for _, said in pairs]

    def _known(self, read: Sequence[NeutralMessage]) -> int:
        """How many messages of the list are the ones already taken in."""
        common = _common_length(read, self.said, self.taken)
        if (
            common < len(self.taken)
            and self.given
            and _common_length(read, self.given_said, self.given) == len(self.given)
        ):
            self._adopt()
            return len(self.taken)
        self.said[:common] = read[:common]
        return common

    def _adopt(self) -> None:
        """The caller keeps what the engine gave out: from now on that is the list."""
        pairs = zip(self.given, self.given_said, strict=True)
        self.taken = [msgspec.structs.replace(taken, digest=message_digest(said)) for taken, said in pairs]
        self.said = list(self.given_said)
        self._append(Reminded(RELISTED, "", state=msgspec.json.encode(self.taken).decode()))

    def _go_back(self, known: int) -> None:
        length = known
        while length and not self.taken[length - 1].calm:
            length -= 1
        to = self.taken[length - 1].seq if length else 0
        self.settle("the list changed")
        self.notes.append(
            f"message {known + 1} of the list is not the one seen before (edited, cut or reordered); "
            + (f"the engine went back to message {length}" if length else "the engine began anew with the whole list")
        )
        self._append(Rewound(to or FIRST_SEQ))
        self._cut(length)

    def settle(self, why: str) -> None:
        """A request that was never answered."""
        state = self._state()
        if state.asked is not None:
            self._append(AskFailed(state.asked_seq, "cancelled", why))

    # --- the assistant's side ------------------------------------------------------------------------------------

    def _take_replies(self, read: Sequence[NeutralMessage], at: int) -> int:
        """Messages of the assistant in a row are one reply."""
        end = at
        while end < len(read) and read[end].side == "assistant":
            end += 1
        if self._state().asked is None:
            self.ask()
        asked = self._state().asked_seq
        parts, blocks = self._own(asked, [part for one in read[at:end] for part in one.parts])
        stop = "calls" if any(isinstance(part, ToolCall) for part in parts) else "end"
        usage = next((one.usage for one in read[at:end] if one.usage is not None), self.usage)
        self.usage = None
        seq = self._append(Replied(asked, parts, stop, usage or Usage(), blocks))
        first = 0
        for one in read[at:end]:
            handles = tuple(f"r{seq}.{first + n + 1}" for n in range(len(one.parts)))
            first += len(one.parts)
            self._mark(one, handles, (seq,) * len(handles), calm=first == len(parts))
        return end

    def ask(self, *, whole: bool = True) -> None:
        """A request; with `whole` one that somebody else made, with every result as it is."""
        state = self._state()
        for call in list(state.calls):
            name = state.calls[call].call.name
            self._append(ToolEnded(call, name, "not_run", (Text(_NO_RESULT),)))
        if whole:
            self._append(Asked("turn", state.seq, state.prefix_seq))

    def _own(self, asked: int, parts: Sequence[AnyPart]) -> tuple[tuple[AnyPart, ...], tuple[ProviderBlock, ...]]:
        """`parts` with our own ids on the calls, and the provider's ids beside them."""
        own: list[AnyPart] = []
        blocks, n = [], 0
        for at, part in enumerate(parts):
            if isinstance(part, ToolCall):
                ours = call_id(asked, n)
                n += 1
                self._calls[part.id] = ours
                blocks.append(ProviderBlock(at, LISTED, "", part.id))
                own.append(msgspec.structs.replace(part, id=ours))
            else:
                own.append(part)
        return tuple(own), tuple(blocks)

    # --- the user's side -----------------------------------------------------------------------------------------

    def _take_one(self, read: Sequence[NeutralMessage], at: int) -> int:
        said = read[at]
        if said.side == "system":
            late = any(one.side != "system" for one in read[:at])
            seqs = (self._append(Reminded("system", said.system)),) if late and said.system else ()
            self._mark(said, tuple(f"r{seq}" for seq in seqs), seqs, fixed=True)
            return at + 1
        self.settle("the list went on without an answer")
        found = {n: self._result(part) for n, part in enumerate(said.parts) if isinstance(part, ToolResult)}
        words = [n for n in range(len(said.parts)) if n not in found]
        if words:
            seq = self._spoken(tuple(said.parts[n] for n in words))
            several = len(words) > 1
            found |= {n: (f"r{seq}.{k + 1}" if several else f"r{seq}", seq) for k, n in enumerate(words)}
        pairs = [found[n] for n in range(len(said.parts))]
        self._mark(said, tuple(handle for handle, _ in pairs), tuple(seq for _, seq in pairs))
        return at + 1

    def _spoken(self, parts: tuple[AnyPart, ...]) -> int:
        state = self._state()
        if state.turn_open and not state.owes_reply and not state.calls:
            self._append(TurnEnded("done"))
        return self._append(UserSpoke(parts))

    def _result(self, part: ToolResult) -> tuple[str, int]:
        """Handle and entry of a result; one that no waiting call asked for is no item of the view."""
        state = self._state()
        waiting = state.calls.get(self._calls.get(part.call, ""))
        if waiting is None:
            self.notes.append(
                f"the result of call {part.call!r} answers no waiting call of the list; it is left as it is"
            )
            return "", state.seq
        call = waiting.call
        seq = self._append(ToolEnded(call.id, part.name or call.name, part.status, part.parts))
        return f"r{seq}", seq

    # --- remembering ---------------------------------------------------------------------------------------------

    def _mark(
        self,
        said: NeutralMessage,
        handles: tuple[str, ...],
        seqs: tuple[int, ...],
        *,
        calm: bool = True,
        fixed: bool = False,
    ) -> None:
        taken = TakenMessage(message_digest(said), handles, seqs, 0, calm and not self._state().calls, fixed)
        seq = self._append(Reminded(LISTED, "", state=msgspec.json.encode(taken).decode()))
        self.taken.append(msgspec.structs.replace(taken, seq=seq))
        self.said.append(said)


def _system_of(one: NeutralMessage, read: Sequence[NeutralMessage], at: int) -> str:
    """System text that stands before the conversation, or within a message of the user."""
    if one.side == "system" and any(before.side != "system" for before in read[:at]):
        return ""
    return one.system


def copy_containers(one: Any) -> Any:
    """A copy of dicts and lists that shares all else."""
    if isinstance(one, dict):
        return {key: copy_containers(value) for key, value in one.items()}
    return [copy_containers(value) for value in one] if isinstance(one, list) else one


def message_digest(said: NeutralMessage) -> str:
    """A digest of what was said."""
    return hashlib.sha256(msgspec.json.encode((said.side, said.parts, said.system))).hexdigest()[:32]


def _common_length(
    read: Sequence[NeutralMessage], said: Sequence[NeutralMessage | None], taken: Sequence[TakenMessage]
) -> int:
    """How many messages at the front of `read` are the ones in `said`."""
    for n, (one, known, was) in enumerate(zip(read, said, taken, strict=False)):
        same = _is_equal(one, known) if known is not None else message_digest(one) == was.digest
        if not same:
            return n
    return min(len(read), len(said))


def _is_equal(one: NeutralMessage, other: NeutralMessage) -> bool:
    return one is other or (one.side == other.side and one.parts == other.parts and one.system == other.system)
