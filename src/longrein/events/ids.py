"""Names inside a session: call ids and handles. Both are computed from a seq, so nothing has to deal them out.

A handle `r412` is the entry that holds the content, `r412.2` its second part, `a398/r412` the same in the child
session that entry 398 started.
"""

import re
from uuid import UUID, uuid5

import msgspec

_HANDLE = re.compile(r"(?:a(?P<child>[1-9]\d{0,17})/)?r(?P<seq>[1-9]\d{0,17})(?:\.(?P<part>[1-9]\d{0,5}))?\Z")


class Handle(msgspec.Struct, frozen=True):
    """A parsed handle."""

    seq: int
    """Entry that holds the content."""
    part: int = 0
    """1-based part inside the entry; 0 for the whole."""
    child: int = 0
    """Seq of the `ChildStarted` whose session is meant; 0 for this session."""

    def __str__(self) -> str:
        return (f"a{self.child}/" if self.child else "") + f"r{self.seq}" + (f".{self.part}" if self.part else "")


def parse_handle(text: str) -> Handle | None:
    """`r412`, `r412.2` or `a398/r412`; anything else is None. Surrounding brackets, quotes and blanks are forgiven."""
    match = _HANDLE.match(text.strip(" \t\n[]()'\"`"))
    if match is None:
        return None
    return Handle(int(match["seq"]), int(match["part"] or 0), int(match["child"] or 0))


def call_id(asked: int, index: int) -> str:
    """Our id of call `index` (0-based) in the reply to the `Asked` with seq `asked`."""
    return f"c{asked}.{index}"


def entry_uuid(session: str, seq: int) -> str:
    """The id of an entry as the outside sees it (stream-json `uuid`, ACP)."""
    return str(uuid5(UUID(session), str(seq)))


def marker(nonce: str, kind: str, text: str) -> str:
    """A harness marker that no tool output can forge: it carries the session's nonce (law 4).

    `Write`, `Edit` and `Bash` refuse arguments that contain `marker_sign(nonce)`.
    """
    return f"[{marker_sign(nonce)} {kind}: {text}]"


def marker_sign(nonce: str) -> str:
    """The part of a marker that makes it one."""
    return f"longrein:{nonce}"
