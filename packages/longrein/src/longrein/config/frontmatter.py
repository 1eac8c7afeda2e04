"""Reader of the YAML head of a markdown file, between two lines of `---`.

PyYAML splits the head into its parts; this module turns them into values. Before that it puts
quotes where people write what YAML forbids or would cut: a colon or ` #12` inside plain text, a
`*` at its start. A word such as `no`, a date and an octal number are texts, as their authors mean
them. Aliases, anchors, tags, several documents and deep nesting are refused.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

FENCE = "---"
CONSTANTS = {"true": True, "false": False, "null": None, "~": None}
NUMBER = r"-?(?:\d+|\d+\.\d*|\.\d+)"
DEPTH_MAX = 8
"""Maximum nesting of a head."""


class FrontmatterError(ValueError):
    """Error in a head, such as `line 3: …`. It becomes a note for the user."""


def split_frontmatter(text: str) -> tuple[dict[str, Any], str]:
    """Split a file into (fields, body). Without a head the fields are empty. Raises
    `FrontmatterError`.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        return {}, text
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() in (FENCE, "...")), None)
    if end is None:
        raise FrontmatterError("line 1: the head that begins here is not closed by a line of ---")
    return parse_frontmatter(lines[1:end], first=2), "\n".join(lines[end + 1 :]).strip("\n")


def parse_frontmatter(lines: list[str], first: int = 1) -> dict[str, Any]:
    """Parse the lines of a head. `first`: number of the first line. Raises `FrontmatterError`."""
    import yaml  # slow to import, and most starts read no head

    text = "\n".join(_with_quotes([line.expandtabs(8) for line in lines]))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        fields = _Reader(yaml.parse(text, Loader=loader), first).document()
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        line = first + (at.line if at else 0)
        said = ": ".join(filter(None, (error.context, error.problem)))
        raise FrontmatterError(f"line {line}: {said}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise FrontmatterError(f"line {first}: {error}".splitlines()[0]) from None
    if not isinstance(fields, dict | None):
        raise FrontmatterError(f"line {first}: the head is not fields with names")
    return fields or {}


class _Reader:
    """Builder of values from the parts that PyYAML tells, one after the other."""

    def __init__(self, events: Iterable[Any], first: int) -> None:
        self._events = iter(events)
        self._first = first

    def document(self) -> Any:
        """Return the value of the only document; None when there is none."""
        import yaml

        fields = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if event.start_mark.line or event.explicit:
                    self._refuse(event, "a head is one document")
                fields = self._value(next(self._events), 0)
        return fields

    def _value(self, event: Any, depth: int) -> Any:
        import yaml

        if depth > DEPTH_MAX:
            self._refuse(event, f"more than {DEPTH_MAX} levels")
        if isinstance(event, yaml.AliasEvent) or event.anchor or event.tag:
            self._refuse(event, "an alias, anchor or tag is not read here: put the value in quotes")
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event.value) if event.implicit[0] else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            return self._items(depth)
        fields: dict[str, Any] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                self._refuse(key, "a name of a field is a text")
            fields[key.value] = self._value(next(self._events), depth + 1)
        return fields

    def _items(self, depth: int) -> list[Any]:
        """Return the items of a list. `[Agent(b, c)]` has one, although YAML sees two."""
        import yaml

        found: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            value = self._value(event, depth + 1)
            last = found[-1] if found else None
            if isinstance(last, str) and last.count("(") > last.count(")"):
                found[-1] = f"{last}, {value}"
            else:
                found.append(value)
        return found

    def _refuse(self, event: Any, why: str) -> None:
        raise FrontmatterError(f"line {self._first + event.start_mark.line}: {why}")


def _scalar(text: str) -> Any:
    """Return a plain text as a constant or number where it is one."""
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    if re.fullmatch(NUMBER, text) and len(text) < 18:
        return float(text) if "." in text else int(text)
    return text or None


# --- Quotes that people leave out -----------------------------------------------------------------


KEY = r"""(?:"[^"]*"|'[^']*'|[^\s:#\[\]{},"'&*!|>%@`-][^:]*|-\w[^:]*):"""
ENTRY = rf"(?P<dashes>\s*(?:- +)*)(?:(?P<key>{KEY}\s+)|(?<=- )(?!{KEY}$))(?P<value>\S.*)"
QUOTED = r"""(?s)("(?:\\.|[^"\\])*+"|'(?:''|[^'])*+')(?P<rest>\s*(?:#.*)?$)?"""
LIST = r"""\[(?:[^\[\]"']|"[^"]*"|'[^']*'|\[[^\[\]]*\])*\](?P<rest>\s*(?:#.*)?$)?"""
WRONG_ESCAPE = (
    r"""\\(?!["\\/ntr0 \n]|x[\da-fA-F]{2}|u(?![dD][89a-fA-F])[\da-fA-F]{4}|U000[\da-fA-F]{5})"""
)
REPAIRS = {'"': (WRONG_ESCAPE, r"\\\\"), "[": (r"([\[,]\s*)([*@`][^,\[\]\"']*)", r"\1'\2'")}
"""First character of a value -> what in it gets a backslash or quotes."""
FORBIDDEN = r"(?s)(?!\{[^{])(?:[*@`%,{]|[-?] |.*(?::(?:\s|$)| #))"
"""Plain text that YAML would refuse, or cut at a `#`."""


def _with_quotes(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a head, with quotes around plain values that YAML would not read."""
    entry_pattern = re.compile(ENTRY)
    at = 0
    while at < len(lines):
        entry = entry_pattern.fullmatch(lines[at])
        first = at
        at += 1
        if not entry or entry["value"].startswith("#"):
            yield lines[first]
            continue
        indent = len(entry["dashes"]) if entry["key"] else entry["dashes"].rfind("-")
        while at < len(lines) and _continues(lines[at], indent):
            at += 1
        start = entry.start("value")
        value = "\n".join((lines[first][start:], *lines[first + 1 : at]))
        yield lines[first][:start] + _quoted(value)


def _continues(line: str, indent: int) -> bool:
    return not line.strip() or len(line) - len(line.lstrip()) > indent


def _quoted(value: str) -> str:
    """Return a value and its further lines, in quotes where YAML would not read it as it is."""
    begun = re.match(LIST if value[0] == "[" else QUOTED, value)
    if begun and begun["rest"] is not None:
        return re.sub(*REPAIRS.get(value[0], ("^", "")), value)
    if not begun and (value[0] in "|>[\"'" or not re.match(FORBIDDEN, value)):
        return value
    text = re.sub(r" # .*", "", value).rstrip()
    return "'" + text.replace("'", "''") + "'" + "\n" * (value.count("\n") - text.count("\n"))
