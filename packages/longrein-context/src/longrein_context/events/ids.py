"""Ids inside a session: call ids, handles, entry UUIDs and markers, all computed from seqs and the
session.

A handle `r412` is the entry that holds the content, `r412.2` its second part, `a398/r412` the same
entry in the log of the subagent that entry 398 started.
"""

import re
from uuid import UUID, uuid5

import msgspec

_HANDLE = re.compile(
    r"(?:a(?P<child>[1-9]\d{0,17})/)?r(?P<seq>[1-9]\d{0,17})(?:\.(?P<part>[1-9]\d{0,5}))?\Z"
)


class Handle(msgspec.Struct, frozen=True):
    """Parsed handle."""

    seq: int  # Entry that holds the content
    part: int = 0  # 1-based part inside the entry; 0 for the whole
    child: int = 0  # Seq of the `SubagentStarted` of a subagent; 0 for this session

    def __str__(self) -> str:
        return (
            (f"a{self.child}/" if self.child else "")
            + f"r{self.seq}"
            + (f".{self.part}" if self.part else "")
        )


def parse_handle(text: str) -> Handle | None:
    """Parse `r412`, `r412.2` or `a398/r412`, also in brackets, quotes or blanks; None for
    anything else.
    """
    match = _HANDLE.match(text.strip(" \t\n[]()'\"`"))
    if match is None:
        return None
    return Handle(int(match["seq"]), int(match["part"] or 0), int(match["child"] or 0))


def call_id(asked: int, index: int) -> str:
    """Return the id of call `index` (0-based) in the reply to the `Asked` with seq `asked`."""
    return f"c{asked}.{index}"


def entry_uuid(session: str, seq: int) -> str:
    """Return the public id of an entry (stream-json `uuid`, ACP)."""
    return str(uuid5(UUID(session), str(seq)))


HISTORY = " history: "
"""Follows the sign in a marker that begins a history of calls."""


def marker(nonce: str, kind: str, text: str) -> str:
    """Return a longrein marker, which tool output cannot forge because it contains the session's
    nonce.

    `Write`, `Edit` and `Bash` refuse arguments that contain `marker_sign(nonce)`.
    """
    return f"[{marker_sign(nonce)} {kind}: {text}]"


def framed(nonce: str, kind: str, text: str) -> str:
    """Return a text of several lines between two markers, so that its end can be told."""
    return f"[{marker_sign(nonce)} {kind}]\n{text}\n[{marker_sign(nonce)} end]"


def without_sign(text: str, nonce: str) -> str:
    """Return `text` with the session's sign broken: nobody but longrein may write it."""
    sign = marker_sign(nonce)
    return text.replace(sign, f"{sign[0]}·{sign[1:]}") if nonce else text


def marker_sign(nonce: str) -> str:
    """Return the start of every marker of a session."""
    return f"longrein:{nonce}"
