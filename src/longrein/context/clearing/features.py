"""What a later step may need of a text: its identifiers, its paths and its exact lines.

The same few rules serve the engine and whoever measures it: an identifier is a word that looks like code, a line is
compared without its line number and a trailing comma. Pure functions of text; the word table is only a cache.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec

from longrein.events import decode_json

WORD_CHARS_MIN, WORD_CHARS_MAX = 6, 120
"""A shorter word says too little to be looked for, a longer one is data."""
LINE_CHARS_MIN, LINE_CHARS_MAX = 20, 300
"""A shorter line stands everywhere, a longer one is never repeated exactly."""
WORDS_CACHED_MAX = 30_000
"""Entries of the word table; at most about 6 MB."""
WORD_CACHED_CHARS_MAX = 200
"""A longer run of word characters is data, and does not come again."""

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./-][A-Za-z0-9_]+)*")
_MIXED = re.compile(r"[a-z][A-Z]|[A-Za-z]\d|\d[A-Za-z]")
_SUFFIX = re.compile(r"\.[A-Za-z]{1,5}$")
LINE_NUMBER = re.compile(r"\s*\d+\s*(?:→|\t|\||:|- )\s?")
_LINE_NUMBERS = re.compile(r"\n[^\S\n]*\d+[^\S\n]*(?:→|\t|\||:|- )[^\S\n]?")
_WORD_CHARS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-\n"
_NON_WORD_TO_BLANK = bytes(byte if byte in _WORD_CHARS else 32 for byte in range(256))
UNCHANGED_PREFIX = "[unchanged since "
"""How the result of a reading begins that only points at an earlier one (`tools.read`), its handle next."""


def is_code_like(word: str) -> bool:
    """Whether a word is an identifier or a path rather than prose."""
    if not WORD_CHARS_MIN <= len(word) <= WORD_CHARS_MAX:
        return False
    if "/" in word or "_" in word.strip("_"):
        return True
    return _MIXED.search(word) is not None or _SUFFIX.search(word) is not None


@lru_cache(maxsize=8_192)
def parts_of(word: str) -> tuple[str, ...]:
    """The identifiers in one word: itself and, of a path or dotted name, its parts."""
    if len(word) > WORD_CHARS_MAX:
        return ()
    parts = re.split(r"[./]", word) if "." in word or "/" in word else []
    return tuple(intern(w) for w in dict.fromkeys((word, *parts)) if is_code_like(w))


class _IdentifierCache(dict[bytes, tuple[str, ...]]):
    """Run of word characters -> the identifiers in it. Only a cache."""

    def __missing__(self, run: bytes) -> tuple[str, ...]:
        words = WORD.findall(run.decode())
        found = tuple(dict.fromkeys(part for word in words for part in parts_of(word)))
        if len(run) <= WORD_CACHED_CHARS_MAX:
            if len(self) > WORDS_CACHED_MAX:
                self.clear()
            self[run] = found
        return found


_identifier_cache = _IdentifierCache()


def _runs(text: str) -> bytes:
    """A text with a blank in place of whatever no word holds; its lines stay."""
    return text.encode("utf-8", "surrogatepass").translate(_NON_WORD_TO_BLANK)


def identifiers(text: str) -> tuple[str, ...]:
    """The identifiers of a text, each once, in the order in which they come."""
    found: dict[str, None] = {}
    for run in dict.fromkeys(_runs(text).split()):
        for name in _identifier_cache[run]:
            found[name] = None
    return tuple(found)


def names_by_line(text: str) -> list[tuple[str, ...]]:
    """The `identifiers` of each line, read in one pass."""
    found = []
    for line in _runs(text).split(b"\n"):
        here: tuple[str, ...] = ()
        for run in line.split():
            if names := _identifier_cache[run]:
                here += names
        found.append(here if len(here) < 2 else tuple(dict.fromkeys(here)))
    return found


def line_key(line: str) -> str:
    """What two equal lines have in common, or nothing when a line is too short or too long to be compared."""
    if len(line) < LINE_CHARS_MIN:
        return ""
    match = LINE_NUMBER.match(line)
    line = (line[match.end() :] if match else line).strip().rstrip(",")
    return "\n" + line if LINE_CHARS_MIN <= len(line) <= LINE_CHARS_MAX else ""


def line_keys(text: str) -> list[str]:
    """The `line_key` of each line, read in one pass. Each line begins with a newline, also the first."""
    return [
        "\n" + key
        if len(line) >= LINE_CHARS_MIN and LINE_CHARS_MIN <= len(key := line.strip().rstrip(",")) <= LINE_CHARS_MAX
        else ""
        for line in _LINE_NUMBERS.sub("\n", text).split("\n")[1:]
    ]


def features(text: str) -> dict[str, None]:
    """Identifiers and line keys (these begin with a newline) of a text; an ordered set."""
    found = dict.fromkeys(identifiers(text))
    for key in line_keys("\n" + text):
        if key:
            found[key] = None
    return found


def strings_in(value: Any) -> Iterator[str]:
    """Every text inside a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def arguments_of(text: str) -> dict[str, Any] | None:
    """The arguments of a call, or None when they are not a JSON object."""
    try:
        value = decode_json(text)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def call_content(text: str) -> str:
    """The texts in a call's arguments, one after the other; the arguments themselves when they are no JSON."""
    try:
        value = decode_json(text)
    except msgspec.DecodeError:
        return text
    return "\n".join(strings_in(value))


# --- what a call does ----------------------------------------------------------------------------------------------

RESULT_CLASSES = ("read", "shell", "search", "edit", "agent", "other")
_TOOLS = {
    "read": "read view read_file readfile open cat notebookread str_replace_editor recall",
    "edit": "edit write multiedit apply_patch str_replace create notebookedit write_file replace",
    "search": "grep glob ls list find search search_dir search_file find_file toolsearch rg",
    "shell": "bash exec_command shell local_shell_call execute powershell write_stdin run python",
    "agent": "task agent webfetch websearch web_search_call",
}
_CLASS_OF = {tool: kind for kind, tools in _TOOLS.items() for tool in tools.split()}
_PATH_KEYS = ("file_path", "filePath", "path", "filename", "notebook_path")
_READING_COMMAND = re.compile(r"(?:cd [^&;]*&& )?(cat|sed -n|head|tail|nl|rg|grep|find|ls|git grep|fd) ")
_READ_PATH = re.compile(r"(?:cat|sed -n \S+|head \S*|tail \S*|nl -ba) +([\w./-]+\.\w+)")
_PATCHED_PATH = re.compile(r"\*\*\* (?:Update|Add|Delete) File: (\S+)")
_READERS = ("cat", "sed -n", "head", "tail", "nl")
_PARTIAL_READ_WORDS = ("offset", "limit", "sed -n", "view_range", "head ", "tail ")


def tool_class(tool: str, arguments: dict[str, Any] | None) -> str:
    """One of `RESULT_CLASSES`. A shell command that only looks counts as what it looks with."""
    kind = _CLASS_OF.get(tool.lower(), "other")
    if kind == "shell" and (found := _READING_COMMAND.match(_command(arguments))):
        return "read" if found[1] in _READERS else "search"
    return kind


def _command(arguments: dict[str, Any] | None) -> str:
    value = (arguments or {}).get("command") or (arguments or {}).get("cmd") or (arguments or {}).get("input") or ""
    return value if isinstance(value, str) else ""


def touched_paths(arguments: dict[str, Any] | None) -> tuple[str, ...]:
    """The files that a call reads or changes, as it names them."""
    for key in _PATH_KEYS:
        if isinstance(value := (arguments or {}).get(key), str):
            return (value,)
    command = _command(arguments)
    if not command:
        return ()
    return tuple(_PATCHED_PATH.findall(command)[:8] or _READ_PATH.findall(command)[:2])


def is_partial_read(arguments_text: str) -> bool:
    """Whether a reading call asks for a part of the file only."""
    return any(word in arguments_text for word in _PARTIAL_READ_WORDS)


# --- what a line is ------------------------------------------------------------------------------------------------

_DECLARATION = re.compile(
    r"\b(?:func(?:tion)?|def|class|type|interface|struct|enum|const|export|trait|impl|fn|module|package|public|private"
    r"|var|let)\b"
)
_COMMENTS = ("//", "#", "*", "/*", "--", '"""')


def is_declaration(line: str) -> bool:
    """Whether a line of code declares something; comments do not."""
    bare = line.lstrip()
    if bare[:1].isdigit() and (match := LINE_NUMBER.match(line)):
        bare = line[match.end() :].lstrip()
    return not bare.startswith(_COMMENTS) and _DECLARATION.search(line) is not None


# ---------------------------------------------------------------------------------------------------------------------
#
# The items of a conversation as the clearing policy holds them: what each is, how it stands, what was needed of it.


CLASSES = (*RESULT_CLASSES, "edit call", "write call", "call", "text", "thinking", "part read", "user")
"""Every item is of one of these; the first six are results, a `part read` too."""
READ, SHELL, SEARCH, EDIT, AGENT, OTHER, EDIT_CALL, WRITE_CALL, CALL, TEXT, THINKING, PART_READ, USER = range(13)
MARKER_PREFIX = "[longrein:"
"""How a marker begins; what it is followed by only the harness can write."""


class SourceItem(msgspec.Struct, frozen=True):
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


class ItemRecord(msgspec.Struct):
    """One item as the policy holds it; changes as the session goes on."""

    n: int
    """Its place in the conversation."""
    piece: SourceItem
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


class DisplayState(msgspec.Struct, frozen=True):
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


def display_state_of(record: ItemRecord) -> DisplayState:
    """How an item stands now."""
    return DisplayState(*(getattr(record, name) for name in DisplayState.__struct_fields__))


def marker_line(piece: SourceItem) -> str:
    """The marker that begins a result or text."""
    return piece.content.partition("\n")[0] if piece.content.startswith(MARKER_PREFIX) else ""


def class_of(piece: SourceItem, arguments: dict[str, object] | None) -> int:
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
