"""The items of a conversation as the clearing policy holds them: what each is, how it stands, what was needed of it."""

from collections.abc import Sequence

import msgspec

from longrein.context.worth.features import RESULT_CLASSES, tool_class

CLASSES = (*RESULT_CLASSES, "edit call", "write call", "call", "text", "thinking", "part read", "user")
"""Every item is of one of these; the first six are results, a `part read` too."""
READ, SHELL, SEARCH, EDIT, AGENT, OTHER, EDIT_CALL, WRITE_CALL, CALL, TEXT, THINKING, PART_READ, USER = range(13)
CLEARED = "[longrein:"
"""How a marker begins; what it is followed by only the harness can write."""


class Piece(msgspec.Struct, frozen=True):
    """One item of the conversation, neutral: all that the policy knows of it."""

    handle: str
    """Brings it back; unique."""
    kind: str
    """`user`, `text`, `thinking`, `call` or `result`."""
    content: str
    """Text of it; empty for a call."""
    tokens: float
    """Its size in a request."""
    request: int
    """Outputs: the request that produced it; inputs: the first request that can carry it. From 0."""
    tool: str = ""
    """Tool name of a call or result."""
    arguments: str = ""
    """Arguments of a call as JSON text."""
    call: str = ""
    """Joins a call and its result."""
    status: str = "ok"
    """Of a result: `ok failed denied interrupted not_run`."""
    images: bool = False
    """Whether a result holds pictures."""

    @property
    def output(self) -> bool:
        """Whether the model wrote it."""
        return self.kind in ("text", "thinking", "call")


class Held(msgspec.Struct):
    """One item as the policy holds it; changes as the session goes on."""

    n: int
    """Its place in the conversation."""
    piece: Piece
    cls: int
    """Index into `CLASSES`."""
    tokens: float
    """Size of what is shown of it now."""
    last: int
    """Last request that needed something of it, or its birth."""
    shown: tuple[str, ...] = ()
    """Features shown of it now."""
    arguments: dict[str, object] | None = None
    """Of a call, parsed."""
    paths: tuple[str, ...] = ()
    """Files it touches."""
    refs: int = 0
    """Requests that needed it."""
    referred: dict[str, int] = {}
    """What was needed of it, with the last request that did."""
    superseded: bool = False
    edited: bool = False
    """Whether its file was changed after it was read."""
    partner: int = -1
    """Place of the call of a result, or of the result of a call."""
    host: int = -1
    """Place of the result whose ledger it stands in; -1 when it stands for itself."""
    members: tuple[int, ...] = ()
    """Places of the calls and results that stand in its ledger."""
    form: str = "full"
    """`full`, `trimmed`, `folded` (in a ledger) or `gone`."""
    cleared_at: int = -1
    """Request before which it was last made shorter."""
    gain: float = 0.0
    """Tokens that its ideal form would save; kept by `rental`."""
    rows: Sequence[int] | None = None
    """Which of its lines are still shown; None for all."""
    words: Sequence[str] = ()
    """Identifiers of lines that are gone, which stand alone."""
    body: str = ""
    """The text that these make, where not all lines are shown."""
    again: bool = False
    """Whether it arrived in a form that an earlier clearing gave it: from a view that was taken up again."""
    header: str = ""
    """The marker it arrived with then."""

    @property
    def born(self) -> int:
        """First request that can carry it."""
        return self.piece.request + self.piece.output


class Stand(msgspec.Struct, frozen=True):
    """How an item stands in the view, so that it can be put so again."""

    shown: tuple[str, ...]
    tokens: float
    form: str
    host: int
    members: tuple[int, ...]
    cleared_at: int
    rows: Sequence[int] | None
    words: Sequence[str]
    body: str


def stand_of(held: Held) -> Stand:
    """How an item stands now."""
    return Stand(*(getattr(held, name) for name in Stand.__struct_fields__))


def header_of(piece: Piece) -> str:
    """The marker that begins a result or text."""
    return piece.content.partition("\n")[0] if piece.content.startswith(CLEARED) else ""


def class_of(piece: Piece, arguments: dict[str, object] | None) -> int:
    """The class of an item by itself; that of a result is settled once its call is known."""
    match piece.kind:
        case "text":
            return TEXT
        case "thinking":
            return THINKING
        case "user":
            return USER
        case "call":
            if tool_class(piece.tool, arguments) != "edit":
                return CALL
            return WRITE_CALL if piece.tool.lower() in ("write", "write_file", "create") else EDIT_CALL
        case _:
            return RESULT_CLASSES.index(tool_class(piece.tool, None))
