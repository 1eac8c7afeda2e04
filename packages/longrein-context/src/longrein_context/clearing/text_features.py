"""Text features and the records of conversation items that the clearing policy keeps.

Features of a text are its identifiers, its paths and its exact lines. An identifier is a word that
looks like code; a line is compared without its line number and a trailing comma. The engine and the
benchmarks share these rules.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec

from longrein_context.events import decode_json
from longrein_context.events.ids import HISTORY

WORD_CHARS_MIN, WORD_CHARS_MAX = 6, 120
"""Shorter words are too common to search for; longer ones are data."""
LINE_CHARS_MIN, LINE_CHARS_MAX = 20, 300
"""Shorter lines occur everywhere; longer ones are never repeated exactly."""
WORDS_CACHED_MAX = 30_000
"""Entries of the identifier cache; at most about 6 MB."""
WORD_CACHED_CHARS_MAX = 200
"""Longer runs of word characters are data and are not cached."""

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./-][A-Za-z0-9_]+)*")
_MIXED = re.compile(r"[a-z][A-Z]|[A-Za-z]\d|\d[A-Za-z]")
_SUFFIX = re.compile(r"\.[A-Za-z]{1,5}$")
LINE_NUMBER = re.compile(r"\s*\d+\s*(?:→|\t|\||:|- )\s?")
_LINE_NUMBERS = re.compile(r"\n[^\S\n]*\d+[^\S\n]*(?:→|\t|\||:|- )[^\S\n]?")
_WORD_CHARS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-\n"
_NON_WORD_TO_BLANK = bytes(byte if byte in _WORD_CHARS else 32 for byte in range(256))
UNCHANGED_PREFIX = "[unchanged since "
"""Start of a read result that only points to an earlier one (`tools.read`). The earlier handle
follows.
"""


def is_code_like(word: str) -> bool:
    """Return whether a word is an identifier or a path rather than prose."""
    if not WORD_CHARS_MIN <= len(word) <= WORD_CHARS_MAX:
        return False
    if "/" in word or "_" in word.strip("_"):
        return True
    return _MIXED.search(word) is not None or _SUFFIX.search(word) is not None


@lru_cache(maxsize=8_192)
def parts_of(word: str) -> tuple[str, ...]:
    """Return the identifiers in one word: the word itself and the parts of a path or dotted
    name.
    """
    if len(word) > WORD_CHARS_MAX:
        return ()
    parts = re.split(r"[./]", word) if "." in word or "/" in word else []
    return tuple(intern(w) for w in dict.fromkeys((word, *parts)) if is_code_like(w))


class _IdentifierCache(dict[bytes, tuple[str, ...]]):
    """Cache from a run of word characters to the identifiers in it."""

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
    """Return the text with blanks in place of characters that no word holds. Line ends stay."""
    return text.encode("utf-8", "surrogatepass").translate(_NON_WORD_TO_BLANK)


def identifiers(text: str) -> tuple[str, ...]:
    """Return the identifiers of a text, each once, in order."""
    runs = dict.fromkeys(_runs(text).split())
    return tuple(dict.fromkeys(name for run in runs for name in _identifier_cache[run]))


def names_by_line(text: str) -> list[tuple[str, ...]]:
    """Return the `identifiers` of each line, in one pass."""
    found = []
    for line in _runs(text).split(b"\n"):
        here: list[str] = []
        for run in line.split():
            if names := _identifier_cache[run]:
                here += names
        found.append(tuple(dict.fromkeys(here)) if here else ())
    return found


def line_key(line: str) -> str:
    """Return the text that equal lines share; '' when a line is too short or too long to
    compare.
    """
    return line_keys("\n" + line)[0]


def line_keys(text: str) -> list[str]:
    """Return the `line_key` of each line, in one pass. Each line begins with a newline, also the
    first.
    """
    return [
        "\n" + key
        if len(line) >= LINE_CHARS_MIN
        and LINE_CHARS_MIN <= len(key := line.strip().rstrip(",")) <= LINE_CHARS_MAX
        else ""
        for line in _LINE_NUMBERS.sub("\n", text).split("\n")[1:]
    ]


def features(text: str) -> dict[str, None]:
    """Return the ordered set of identifiers and line keys of a text. Line keys begin with a
    newline.
    """
    found = dict.fromkeys(identifiers(text))
    for key in line_keys("\n" + text):
        if key:
            found[key] = None
    return found


ESCAPED_LINES_MIN = 3
"""A text with fewer escaped line ends is one line."""
ESCAPED_ENDS_MAX = 3
"""A text with more line ends is paged by them."""


def readable(text: str) -> str:
    """Return the text of a result with its escaped line ends as line ends, where it is one long
    line of JSON.
    """
    escaped = text.count("\\n")
    if escaped < ESCAPED_LINES_MIN or escaped <= text.count("\n"):
        return text
    return unescape_lines(text)


def unescape_lines(text: str) -> str:
    """Return the text with its escaped line ends, tabs and quotes as such."""
    return _ESCAPE.sub(lambda found: _ESCAPED[found[1]], text)


def is_escaped_line(ends: int, escaped: int) -> bool:
    """Return whether a text with these numbers of line ends and escaped line ends is one line of
    JSON.

    A note about the exit of a command may follow the line.
    """
    return ends <= ESCAPED_ENDS_MAX and escaped >= max(ESCAPED_LINES_MIN, ends + 1)


_ESCAPED = {"n": "\n", "t": "\t", "r": "", '"': '"', "/": "/", "\\": "\\"}
_ESCAPE = re.compile(r'\\([ntr"/\\])')


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string inside a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def call_content(text: str) -> str:
    """Return the strings in a call's arguments, joined by newlines; the raw text when it is not
    JSON.
    """
    try:
        value = decode_json(text)
    except msgspec.DecodeError:
        return text
    return "\n".join(strings_in(value))


# --- Calls ----------------------------------------------------------------------------------------

RESULT_CLASSES = ("read", "shell", "search", "edit", "agent", "other")
_TOOLS = {
    "read": "read view read_file readfile open cat notebookread str_replace_editor recall",
    "edit": "edit multiedit apply_patch str_replace notebookedit replace",
    "write": "write write_file create",
    "search": "grep glob ls list find search search_dir search_file find_file toolsearch rg",
    "shell": "bash exec_command shell local_shell_call execute powershell write_stdin run python",
    "agent": "task agent webfetch websearch web_search_call",
    "other": "",
}
"""Kind -> tools of other agents, and of logs in which tools state no kind."""
_KIND_OF = {tool: kind for kind, tools in _TOOLS.items() for tool in tools.split()}
PLAN_TOOLS = frozenset(["todowrite", "todo_write", "update_plan", "exitplanmode"])
"""Tools whose newest call is the present plan or todo list."""
_PATH_KEYS = ("file_path", "filePath", "path", "filename", "notebook_path")
_READING_COMMAND = re.compile(
    r"(?:cd [^&;]*&& )?(cat|sed -n|head|tail|nl|rg|grep|find|ls|git grep|fd) "
)
_READ_PATH = re.compile(r"(?:cat|sed -n \S+|head \S*|tail \S*|nl -ba) +([\w./-]+\.\w+)")
_PATCHED_PATH = re.compile(r"\*\*\* (?:Update|Add|Delete) File: (\S+)")
_READERS = ("cat", "sed -n", "head", "tail", "nl")
_PARTIAL_READ_WORDS = ("offset", "limit", "sed -n", "view_range", "head ", "tail ")


def kind_of_name(tool: str) -> str:
    """Return the kind of a tool that states none."""
    return _KIND_OF.get(tool.lower(), "other")


def tool_class(kind: str, arguments: dict[str, Any] | None) -> str:
    """Return the class of a call, one of `RESULT_CLASSES`. `cat` or `rg` in a shell counts as
    read or search.
    """
    if kind == "shell" and (found := _READING_COMMAND.match(_command(arguments))):
        return "read" if found[1] in _READERS else "search"
    return "edit" if kind == "write" else kind


def _command(arguments: dict[str, Any] | None) -> str:
    value = (
        (arguments or {}).get("command")
        or (arguments or {}).get("cmd")
        or (arguments or {}).get("input")
        or ""
    )
    return value if isinstance(value, str) else ""


def touched_paths(arguments: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the files that a call reads or changes, as the call names them."""
    for key in _PATH_KEYS:
        if isinstance(value := (arguments or {}).get(key), str):
            return (value,)
    command = _command(arguments)
    if not command:
        return ()
    return tuple(_PATCHED_PATH.findall(command)[:8] or _READ_PATH.findall(command)[:2])


def is_partial_read(arguments_text: str) -> bool:
    """Return whether a read call asks for only a part of the file."""
    return any(word in arguments_text for word in _PARTIAL_READ_WORDS)


# --- Lines ----------------------------------------------------------------------------------------

_DECLARATION = re.compile(
    r"\b(?:func(?:tion)?|def|class|type|interface|struct|enum|const|export|trait|impl|fn|module|package|public|private"
    r"|var|let)\b"
)
_COMMENTS = ("//", "#", "*", "/*", "--", '"""')


def is_declaration(line: str) -> bool:
    """Return whether a line of code declares something. Comments do not."""
    bare = line.lstrip()
    if bare[:1].isdigit() and (match := LINE_NUMBER.match(line)):
        bare = line[match.end() :].lstrip()
    return not bare.startswith(_COMMENTS) and _DECLARATION.search(line) is not None


# --- Items ----------------------------------------------------------------------------------------


CLASSES = (
    *RESULT_CLASSES,
    "edit call",
    "write call",
    "call",
    "text",
    "thinking",
    "part read",
    "user",
)
"""Class of every item. The first six, and `part read`, are results."""
(
    READ,
    SHELL,
    SEARCH,
    EDIT,
    AGENT,
    OTHER,
    EDIT_CALL,
    WRITE_CALL,
    CALL,
    TEXT,
    THINKING,
    PART_READ,
    USER,
) = range(13)
SHORT_CHARS = 120
"""Shorter results and texts stay whole: a label would be as long."""
MARKER_PREFIX = "[longrein:"
"""Start of a marker. The sign that follows is known only to the harness."""


class SourceItem(msgspec.Struct, frozen=True):
    """An item of the conversation: everything that the policy knows of it."""

    handle: str
    """Unique handle; `Recall` takes it."""
    kind: str
    """`user`, `text`, `thinking`, `call`, `result` or `other`."""
    content: str
    """Text of the item; empty for a call."""
    tokens: float
    """Tokens of the item in a request."""
    request: int
    """Outputs: the request that produced it; inputs: the first request that can carry it. From
    0.
    """
    tool: str = ""
    """Tool name of a call or result."""
    arguments: str = ""
    """Arguments of a call as JSON text."""
    call: str = ""
    """Id that joins a call and its result."""
    status: str = "ok"
    """Status of a result: `ok failed denied interrupted not_run`."""
    images: bool = False
    """True if a result holds images."""
    stated_kind: str = ""
    """Kind that the tool states; '' for the kind of tools with its name."""
    sign: str = MARKER_PREFIX
    """Start of the markers of this session; another one is text from outside."""

    @property
    def output(self) -> bool:
        """Return True if the model wrote the item."""
        return self.kind in ("text", "thinking", "call")

    @property
    def own_text(self) -> str:
        """Text of a result without the history that follows it."""
        return self.content.partition(f"\n{self.sign}{HISTORY}")[0]

    @property
    def tool_kind(self) -> str:
        """Kind of the tool, see `events.ToolTraits`."""
        return self.stated_kind if self.stated_kind in _TOOLS else kind_of_name(self.tool)


class DisplayState(msgspec.Struct, kw_only=True):
    """Display state of an item, so that it can be restored."""

    shown: tuple[str, ...] = ()  # Features of the text that is shown now
    tokens: float  # Tokens of the text that is shown now
    form: str = "full"  # `full`, `trimmed`, `folded` (in a history) or `gone`
    host: int = -1  # Position of the result whose history holds the item; -1 outside of one
    members: tuple[int, ...] = ()  # Positions of the calls and results in the history of the item
    cleared_at: int = -1  # Request before which the item was last shortened
    rows: Sequence[int] | None = None  # Lines that are still shown; None for all
    body: str = ""  # Text of the shown lines, where not all lines are shown


class ItemRecord(DisplayState):
    """State that the policy keeps of one item. Mutable."""

    n: int  # Position in the conversation
    piece: SourceItem
    cls: int  # Index into `CLASSES`
    last: int  # Last request that needed a feature of the item; its first request when none did
    arguments: dict[str, Any] | None = None  # Parsed arguments of a call
    paths: tuple[str, ...] = ()  # Files that the item touches
    superseded: bool = False
    edited: bool = False  # True if the file was changed after it was read
    partner: int = -1  # Position of the call of a result, or of the result of a call
    gain: float = 0.0  # Tokens that the ideal form would save; kept by `timing`
    again: bool = False  # True if the item arrived already shortened, from a resumed view
    outcome: str = ""  # What the label of a result tells; made at first use

    @property
    def born(self) -> int:
        """First request that can carry the item."""
        return self.piece.request + self.piece.output

    @property
    def header(self) -> str:
        """Marker of an item that arrived already shortened; '' without one."""
        return marker_line(self.piece) if self.again else ""


def display_state_of(record: ItemRecord) -> DisplayState:
    """Return how an item is shown now."""
    return DisplayState(**{name: getattr(record, name) for name in DisplayState.__struct_fields__})


def is_shortened(piece: SourceItem) -> bool:
    """Return whether an item is shown shortened, or holds a history after its whole text."""
    if piece.content.startswith(piece.sign) or piece.sign in piece.arguments:
        return True
    return f"\n{piece.sign}{HISTORY}" in piece.content


def marker_line(piece: SourceItem) -> str:
    """Return the marker that begins a result or text; '' without one."""
    return piece.content.partition("\n")[0] if piece.content.startswith(piece.sign) else ""


def class_of(piece: SourceItem) -> int:
    """Return the class of an item. The class of a result changes when its call is known."""
    match piece.kind:
        case "text":
            return TEXT
        case "thinking":
            return THINKING
        case "user" | "other":
            return USER
        case "call":
            return {"edit": EDIT_CALL, "write": WRITE_CALL}.get(piece.tool_kind, CALL)
        case _:
            return RESULT_CLASSES.index(tool_class(piece.tool_kind, None))
