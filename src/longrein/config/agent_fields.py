"""From the fields of a subagent file to a type: the names that several agents use, each read as what it means there.

Everything can only narrow: what a type asks for beyond its parent, it does not get; what would narrow in a way that is
not possible here is left out rather than granted whole.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longrein.config.frontmatter import split_outside
from longrein.config.keys import MODES
from longrein.permissions import escape
from longrein.tools import Kind

NAME_CHARS_MAX = 64
DESCRIPTION_CHARS_MAX = 500
"""It stands in every request."""
TURNS_MAX = 1_000
LATER = ("skills", "hooks", "mcpServers", "mcp_servers", "memory", "effort")
"""Fields that mean something elsewhere and nothing here yet."""

NAMES: Mapping[str, str] = {
    # as other agents call them, in lower case -> as they are called here
    "read": "Read",
    "read_file": "Read",
    "readfile": "Read",
    "read_many_files": "Read",
    "readmediafile": "Read",
    "write": "Write",
    "write_file": "Write",
    "writefile": "Write",
    "edit": "Edit",
    "multiedit": "Edit",
    "patch": "Edit",
    "replace": "Edit",
    "strreplacefile": "Edit",
    "bash": "Bash",
    "shell": "Bash",
    "run_shell_command": "Bash",
    "grep": "Grep",
    "grep_search": "Grep",
    "search_file_content": "Grep",
    "glob": "Glob",
    "list": "Glob",
    "ls": "Glob",
    "list_directory": "Glob",
    "todowrite": "TodoWrite",
    "write_todos": "TodoWrite",
    "settodolist": "TodoWrite",
    "webfetch": "WebFetch",
    "web_fetch": "WebFetch",
    "fetchurl": "WebFetch",
    "task": "Agent",
    "agent": "Agent",
    "taskoutput": "TaskOutput",
    "bashoutput": "TaskOutput",
    "taskstop": "TaskStop",
    "killshell": "TaskStop",
    "killbash": "TaskStop",
    "skill": "Skill",
    "recall": "Recall",
}


class Found(msgspec.Struct, frozen=True):
    """One file, or one entry of `--agents`."""

    shown: str
    """As messages call it."""
    stem: str
    """Name for want of another."""
    fields: Mapping[str, Any] = {}
    body: str = ""
    problem: str = ""
    """Why it could not be read."""


class Refused(Exception):
    """A file that is no type here; the text says why. Never leaves this file."""


class Taking:
    """Types as they are taken in, and what is to be said of them."""

    def __init__(self, known_tools: Sequence[str] = ()) -> None:
        self.known_tools = frozenset(known_tools)
        self._lines: list[str] = []
        self._later: dict[str, list[str]] = {}
        self._unknown: dict[str, list[str]] = {}

    def scope(self, found: Sequence[Found]) -> dict[str, Kind]:
        """The types of one folder, or of `--agents`; of two with one name the first counts."""
        kinds: dict[str, Kind] = {}
        for one in found:
            kind = self._kind(one)
            if kind is None:
                continue
            if kind.name in kinds:
                self._lines.append(f"{one.shown}: {kind.name!r} is in {kinds[kind.name].source} too: left out.")
            else:
                kinds[kind.name] = kind
        return kinds

    def notes(self) -> tuple[str, ...]:
        """Lines for the user."""
        said = list(self._lines)
        if self._later:
            said.append(f"Not obeyed here yet, in files of subagents: {_grouped(self._later)}.")
        if self._unknown:
            said.append(f"Tools that subagents name and that are not here: {_grouped(self._unknown)}.")
        return tuple(said)

    def _kind(self, one: Found) -> Kind | None:
        try:
            if one.problem:
                raise Refused(one.problem)
            return self._made(one, one.fields)
        except Refused as refusal:
            if str(refusal):
                self._lines.append(f"{one.shown}: {refusal}: left out.")
            return None

    def _made(self, one: Found, fields: Mapping[str, Any]) -> Kind:
        name, description = _name(one, fields), _description(fields)
        _refuse_others(fields)
        tools, spawns = self._tools(one, name, fields)
        without, unspawned = self._without(name, fields)
        for field in LATER:
            if fields.get(field):
                self._later.setdefault(field, []).append(name)
        return Kind(
            name,
            description,
            self._shown(one, one.body.strip() or _text(fields.get("prompt"))),
            tools,
            without,
            _model(fields.get("model")),
            self._mode(one, fields),
            self._turns(one, fields),
            () if unspawned else spawns,
            background=self._flag(one, fields, "background"),
            worktree=self._worktree(one, fields),
            source=one.shown,
        )

    def _shown(self, one: Found, body: str) -> str:
        """The text with what cannot be seen written out: nothing hidden may speak to the model."""
        clean = escape(body)
        if clean != body:
            self._lines.append(f"{one.shown} holds characters that cannot be seen: they are written out as \\u….")
        return clean

    def _tools(
        self, one: Found, name: str, fields: Mapping[str, Any]
    ) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """(tools, types it may start): all of the parent's where nothing is said."""
        named = [*_names(fields.get("subagents"))]
        written = fields.get("tools")
        if isinstance(written, dict):
            allowed = [key for key, on in written.items() if _truth(on) is True]
            written = allowed if _truth(written.get("*")) is False else None
        if written is None or written == "" or "*" in _names(written):
            return None, tuple(named) or ("*",)
        tools: dict[str, None] = {}
        spawns = list(named)
        for text in _names(written):
            base, inner = _split(text)
            if base == "Agent":
                spawns += list(split_outside(inner)) if inner else ["*"]
            elif inner:
                self._lines.append(f"{one.shown}: {text!r} narrows a tool, which only permission rules do: left out.")
            else:
                tools[base] = None
                self._know(base, name)
        return tuple(tools), tuple(dict.fromkeys(spawns))

    def _without(self, name: str, fields: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
        """(tools taken off, whether it may start none)."""
        taken = [_split(text)[0] for text in _names(fields.get("disallowedTools") or fields.get("disallowed_tools"))]
        written = fields.get("tools")
        if isinstance(written, dict):
            taken += [_split(key)[0] for key, on in written.items() if _truth(on) is False and key != "*"]
        taken += _denied(fields.get("permission"))
        for tool in taken:
            self._know(tool, name)
        return tuple(dict.fromkeys(tool for tool in taken if tool != "Agent")), "Agent" in taken

    def _know(self, tool: str, name: str) -> None:
        if self.known_tools and tool not in self.known_tools and not tool.startswith("mcp_") and tool[-1:] != "*":
            users = self._unknown.setdefault(tool, [])
            if name not in users:
                users.append(name)

    def _mode(self, one: Found, fields: Mapping[str, Any]) -> str:
        mode = _text(fields.get("permissionMode") or fields.get("permission_mode"))
        if not mode or mode in MODES:
            return mode
        self._lines.append(f"{one.shown}: permissionMode {mode!r} is not known here: it counts as default.")
        return "default"

    def _turns(self, one: Found, fields: Mapping[str, Any]) -> int:
        value = next((fields[k] for k in ("maxTurns", "max_turns", "steps", "maxSteps") if fields.get(k)), 0)
        number = _number(value)
        if number is not None and 0 <= number <= TURNS_MAX:
            return number
        self._lines.append(f"{one.shown}: maxTurns {value!r} is no number from 1 to {TURNS_MAX}: the default holds.")
        return 0

    def _flag(self, one: Found, fields: Mapping[str, Any], name: str) -> bool:
        value = fields.get(name)
        if value not in (None, "") and _truth(value) is None:
            self._lines.append(f"{one.shown}: {name} {value!r} is neither true nor false: it counts as false.")
        return _truth(value) is True

    def _worktree(self, one: Found, fields: Mapping[str, Any]) -> bool:
        value = _text(fields.get("isolation"))
        if value not in ("", "worktree", "none"):
            self._lines.append(f"{one.shown}: isolation {value!r} is not known here: it works in the parent's folder.")
        return value == "worktree"


# --- one field ---------------------------------------------------------------------------------------------------


def _name(one: Found, fields: Mapping[str, Any]) -> str:
    """The name, else that of the file or of the entry."""
    name = " ".join((_text(fields.get("name")) or one.stem).split())
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or set(name) & set('"(),*'):
        raise Refused(f'{name[:80]!r} is no name for a type (printable, at most {NAME_CHARS_MAX}, none of "(),*)')
    return name


def _description(fields: Mapping[str, Any]) -> str:
    """When to use it, in one paragraph."""
    words = [_text(fields.get(key)) for key in ("description", "whenToUse", "when_to_use")]
    text = escape(" ".join(" ".join(words).replace("\\n", " ").split()))
    if not text:
        raise Refused("has no description, so nobody could know when to use it")
    return text if len(text) <= DESCRIPTION_CHARS_MAX else text[: DESCRIPTION_CHARS_MAX - 1] + "…"


def _refuse_others(fields: Mapping[str, Any]) -> None:
    """What other agents keep in such files beside subagents."""
    if _truth(fields.get("disable")) is True:
        raise Refused("")
    if fields.get("mode") == "primary":
        raise Refused("is of mode primary, not a subagent")
    if fields.get("kind") not in (None, "", "local"):
        raise Refused(f"is of kind {_text(fields['kind'])!r}, which is not run here")


def _model(value: Any) -> str:
    text = _text(value)
    return "" if text == "inherit" else text


def _text(value: Any) -> str:
    return str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _truth(value: Any) -> bool | None:
    """Also of `"true"` in quotes; None for what says neither."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _number(value: Any) -> int | None:
    """A whole number, also in quotes; None for anything else."""
    text = _text(value)
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _names(value: Any) -> list[str]:
    """A comma text or a list, as names."""
    if isinstance(value, str):
        return [piece.strip("\"'") for piece in split_outside(value)]
    return [_text(one) for one in value if _text(one)] if isinstance(value, list) else []


def _split(text: str) -> tuple[str, str]:
    """(name as it is called here, what stands in brackets): `Task(a, b)` is (`Agent`, `a, b`)."""
    match = re.fullmatch(r"([^()]+)(?:\((.*)\))?", text.strip())
    base, inner = (match[1].strip(), (match[2] or "").strip()) if match else (text.strip(), "")
    if base.startswith("mcp__") and base.count("__") == 1:
        base += "__*"
    return NAMES.get(base.lower(), base), "" if inner == "*" else inner


def _denied(permission: Any) -> list[str]:
    """Tools that a map of permissions denies altogether."""
    if not isinstance(permission, dict):
        return []
    whole = {key: rule.get("*") if isinstance(rule, dict) else rule for key, rule in permission.items()}
    names = [_split(str(key))[0] for key, rule in whole.items() if rule == "deny"]
    return [*names, *(["Write"] if "Edit" in names else [])]


def _grouped(table: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"{field} ({', '.join(names[:5])}{' …' if len(names) > 5 else ''})" for field, names in table.items()
    )
