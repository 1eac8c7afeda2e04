"""Conversion of a caller's message list into events, and the record of which message became which
entry.

The list may also have been changed by the caller. When it equals the list that the engine last
returned, the engine continues from that one. Otherwise it rewinds to the last message that both
lists share, and adds a note.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from longrein_context.events import (
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
    is_too_deep,
)
from longrein_context.message_list.message_formats import (
    MessageFormat,
    NeutralMessage,
    is_fixed,
    read_message,
)
from longrein_context.state.state import State

LISTED = "listed"
"""Kind of the `Reminded` that records what a message became. It has no text, so the model does
not see it.
"""
RELISTED = "relisted"
"""Kind of the `Reminded` that records the whole list, when the caller continues with the
returned list.
"""
FIRST_SEQ = 2  # Last entry before the first message: `Opened` and `PrefixSet`
_NO_RESULT = "(no result came of this call)"


class TakenMessage(msgspec.Struct, frozen=True):
    """Entries and handles that a message of the list became."""

    digest: str  # Digest of the message; equal messages have equal digests
    handles: tuple[str, ...]  # Handle of each part; '' for a part that is no item of the view
    seqs: tuple[int, ...]  # Entry of each part
    seq: int = 0  # Last entry of the message
    calm: bool = False  # Whether a rewind may end here: no call waits for its result
    fixed: bool = False  # Whether the message is always shown unchanged


class Intake:
    """All messages taken in so far, in the order of the list."""

    def __init__(
        self, shape: MessageFormat, append: Callable[[AnyEvent], int], state: Callable[[], State]
    ) -> None:
        self._shape = shape
        self._append = append
        self._state = state
        self.taken: list[TakenMessage] = []  # One record per message of the caller's list
        self.said: list[NeutralMessage | None] = []
        """The messages that were read; None after a restart, until they are read again."""
        self.given: list[TakenMessage] = []  # The records of the list that the engine returned last
        self.given_said: list[NeutralMessage] = []
        self.usage: Usage | None = None  # Usage of the request that is not answered yet
        self.notes: list[str] = []  # Lines for the user
        self._calls: dict[str, str] = {}  # provider's id -> ours
        self.has_unread = False  # True once the list has held what no format reads
        self._unread_kinds: set[str] = set()  # Kinds of blocks that no format knows
        self._seen: list[
            tuple[Any, NeutralMessage]
        ] = []  # cached readings, so that a message is read once

    # --- Restart ----------------------------------------------------------------------------------

    def recover(self, entries: Sequence[Entry]) -> None:
        """Restore the records from a stored log."""
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
                    self._cut(
                        next((n for n, t in enumerate(self.taken) if t.seq > to), len(self.taken))
                    )
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

    # --- New messages -----------------------------------------------------------------------------

    def take(self, chat: Sequence[Any], begin: Callable[[str], None]) -> None:
        """Append the new messages of `chat`. `begin` is called first, with the system text of
        the whole list.
        """
        read = self._read(chat)
        first = next((n for n, one in enumerate(read) if one.side != "system"), len(read))
        begin(
            "\n\n".join(
                one.system
                for n, one in enumerate(read)
                if one.system and (n < first or one.side != "system")
            )
        )
        known = self._known(read)
        if known < len(self.taken):
            self._go_back(known)
        at = len(self.taken)
        while at < len(read):
            at = (
                self._take_replies(read, at)
                if read[at].side in ("assistant", "other")
                else self._take_message(read, at)
            )

    def _read(self, chat: Sequence[Any]) -> list[NeutralMessage]:
        """Read every message. A message that equals its cached copy is not read again, which is
        much cheaper.
        """
        pairs = self._seen
        del pairs[len(chat) :]
        for n, one in enumerate(chat):
            if n < len(pairs) and type(one) is dict and pairs[n][0] == one:
                continue
            said = read_message(self._shape, one)
            self.has_unread = self.has_unread or bool(said.unread) or any(map(is_fixed, said.parts))
            pairs[n : n + 1] = [(copy_containers(one), said)]
        return [said for _, said in pairs]

    def _known(self, read: Sequence[NeutralMessage]) -> int:
        """Return the number of messages that were taken in before."""
        common, given = _common_length(read, self.said, self.taken), self.given
        if (
            common < len(self.taken)
            and given
            and _common_length(read, self.given_said, given) == len(given)
        ):
            self._adopt_given_list()
            return len(self.taken)
        self.said[:common] = read[:common]
        return common

    def _adopt_given_list(self) -> None:
        """Continue with the list that the engine returned, because the caller does."""
        pairs = zip(self.given, self.given_said, strict=True)
        self.taken = [
            msgspec.structs.replace(taken, digest=message_digest(said)) for taken, said in pairs
        ]
        self.said = list(self.given_said)
        self._append(Reminded(RELISTED, "", state=msgspec.json.encode(self.taken).decode()))

    def _go_back(self, known: int) -> None:
        length = known
        while length and not self.taken[length - 1].calm:
            length -= 1
        to = self.taken[length - 1].seq if length else 0
        self.fail_open_request("the list changed")
        self.notes.append(
            f"message {known + 1} of the list is not the one seen before (edited, cut or "
            "reordered); "
            + (
                f"the engine went back to message {length}"
                if length
                else "the engine began anew with the whole list"
            )
        )
        self._append(Rewound(to or FIRST_SEQ))
        self._cut(length)

    def fail_open_request(self, why: str) -> None:
        """Record that the open request was never answered."""
        state = self._state()
        if state.asked is not None:
            self._append(AskFailed(state.asked_seq, "cancelled", why))

    # --- Assistant messages -----------------------------------------------------------------------

    def _take_replies(self, read: Sequence[NeutralMessage], at: int) -> int:
        """Append consecutive assistant messages as one reply."""
        end = at
        while end < len(read) and read[end].side in ("assistant", "other"):
            end += 1
        self._note_unread(read[at:end])
        if all(one.side == "other" for one in read[at:end]):
            for one in read[at:end]:
                self._record_taken(one, (), ())
            return end
        if self._state().asked is None:
            self.append_request()
        asked = self._state().asked_seq
        parts, blocks = self._with_own_ids(
            asked, [part for one in read[at:end] for part in one.parts]
        )
        stop = "calls" if any(isinstance(part, ToolCall) for part in parts) else "end"
        usage = next((one.usage for one in read[at:end] if one.usage is not None), self.usage)
        self.usage = None
        reply = Replied(asked, parts, stop, usage or Usage(), blocks)
        if self.has_unread:  # the provider has counted what the state has not
            reply = msgspec.structs.replace(reply, estimated=("input",))
        seq = self._append(reply)
        first = 0
        for one in read[at:end]:
            handles = tuple(f"r{seq}.{first + n + 1}" for n in range(len(one.parts)))
            first += len(one.parts)
            self._record_taken(one, handles, (seq,) * len(handles), calm=first == len(parts))
        return end

    def append_request(self, *, whole: bool = True) -> None:
        """Close open calls. With `whole`, also append a request made by the caller, with all
        results whole.
        """
        state = self._state()
        for call in list(state.calls):
            name = state.calls[call].call.name
            self._append(ToolEnded(call, name, "not_run", (Text(_NO_RESULT),)))
        if whole:
            self._append(Asked("turn", state.seq, state.prefix_seq))

    def _with_own_ids(
        self, asked: int, parts: Sequence[AnyPart]
    ) -> tuple[tuple[AnyPart, ...], tuple[ProviderBlock, ...]]:
        """Return the parts with our own call ids, and blocks that hold the provider's ids."""
        own, blocks = list(parts), list[ProviderBlock]()
        for at, part in enumerate(parts):
            if isinstance(part, ToolCall):
                ours = self._calls[part.id] = call_id(asked, len(blocks))
                blocks.append(ProviderBlock(at, LISTED, "", part.id))
                own[at] = msgspec.structs.replace(part, id=ours)
        return tuple(own), tuple(blocks)

    # --- User messages and results ----------------------------------------------------------------

    def _take_message(self, read: Sequence[NeutralMessage], at: int) -> int:
        said = read[at]
        if said.side == "system":
            late = any(one.side != "system" for one in read[:at])
            seqs = (self._append(Reminded("system", said.system)),) if late and said.system else ()
            self._record_taken(said, tuple(f"r{seq}" for seq in seqs), seqs, fixed=True)
            return at + 1
        self._note_unread((said,))
        self.fail_open_request("the list went on without an answer")
        found = {
            n: self._append_result(part)
            for n, part in enumerate(said.parts)
            if isinstance(part, ToolResult)
        }
        words = [n for n in range(len(said.parts)) if n not in found]
        if words:
            state = self._state()
            if state.turn_open and not state.owes_reply and not state.calls:
                self._append(TurnEnded("done"))
            seq = self._append(UserSpoke(tuple(said.parts[n] for n in words)))
            several = len(words) > 1
            found |= {
                n: (f"r{seq}.{k + 1}" if several else f"r{seq}", seq) for k, n in enumerate(words)
            }
        pairs = [found[n] for n in range(len(said.parts))]
        self._record_taken(
            said, tuple(handle for handle, _ in pairs), tuple(seq for _, seq in pairs)
        )
        return at + 1

    def _append_result(self, part: ToolResult) -> tuple[str, int]:
        """Append a result and return its handle and entry. A result of no waiting call has no
        handle.
        """
        state = self._state()
        waiting = state.calls.get(self._calls.get(part.call, ""))
        if waiting is None:
            self.notes.append(
                f"the result of call {part.call!r} answers no waiting call of the list; it is "
                "left as it is"
            )
            return "", state.seq
        call = waiting.call
        seq = self._append(ToolEnded(call.id, part.name or call.name, part.status, part.parts))
        return f"r{seq}", seq

    def _note_unread(self, said: Sequence[NeutralMessage]) -> None:
        """Tell the user once of each kind of block that is always sent unchanged."""
        for kind in dict.fromkeys(block.kind for one in said for block in one.unread):
            if kind not in self._unread_kinds:
                self._unread_kinds.add(kind)
                self.notes.append(f"{kind}: the engine does not shorten it; it is sent unchanged")

    # --- Records ----------------------------------------------------------------------------------

    def _record_taken(
        self,
        said: NeutralMessage,
        handles: tuple[str, ...],
        seqs: tuple[int, ...],
        *,
        calm: bool = True,
        fixed: bool = False,
    ) -> None:
        taken = TakenMessage(
            message_digest(said), handles, seqs, 0, calm and not self._state().calls, fixed
        )
        seq = self._append(Reminded(LISTED, "", state=msgspec.json.encode(taken).decode()))
        self.taken.append(msgspec.structs.replace(taken, seq=seq))
        self.said.append(said)


def copy_containers(one: Any) -> Any:
    """Copy dicts and lists; share everything else, and all that is nested too deep."""
    return one if is_too_deep(one) else _copy(one)


def _copy(one: Any) -> Any:
    if isinstance(one, dict):
        return {key: _copy(value) for key, value in one.items()}
    return [_copy(value) for value in one] if isinstance(one, list) else one


def message_digest(said: NeutralMessage) -> str:
    """Return a digest of the message."""
    return hashlib.sha256(msgspec.json.encode((said.side, said.parts, said.system))).hexdigest()[
        :32
    ]


def _common_length(
    read: Sequence[NeutralMessage],
    said: Sequence[NeutralMessage | None],
    taken: Sequence[TakenMessage],
) -> int:
    """Return how many first messages of `read` equal those in `said`."""
    for n, (one, known, was) in enumerate(zip(read, said, taken, strict=False)):
        if known is None:
            same = message_digest(one) == was.digest
        else:
            same = one is known or (one.side, one.parts, one.system) == (
                known.side,
                known.parts,
                known.system,
            )
        if not same:
            return n
    return min(len(read), len(said))
