"""Subagent types from files, as terminal agents have them: `.claude/agents/*.md` and similar.

Of two types with one name the nearer wins: `--agents`, then the project's folders from the current
one upwards (only in a trusted one, like its settings), then the user's, then the built-in ones. An
invalid file is left out with a note that names it and the reason; it never stops a start.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from longrein.choices import MODES
from longrein.config.frontmatter import split_frontmatter
from longrein.config.hook_files import hooks_in_head
from longrein.config.instructions import folders_between, project_root
from longrein.config.settings_file import shorten_home
from longrein.config.skill_files import is_folder
from longrein.config.user_environment import config_dir, read_bounded
from longrein.permissions import escape
from longrein.tools import SubagentType, Tool, own_name, own_tools
from longrein_context.events import UsageError, decode_json
from longrein_context.events.escape import one_line, shortened

PROJECT_FOLDERS = (".longrein/agents", ".agents/agents", ".claude/agents")
"""Folders below each folder from the current one up to the project's root, in this order."""


def load_subagent_types(
    builtin: Sequence[SubagentType],
    cwd: str,
    home: str,
    environ: Mapping[str, str],
    *,
    trusted: Callable[[str], bool],
    own: bool = True,
    given: str = "",
    known_tools: Sequence[Tool] = (),
) -> tuple[tuple[SubagentType, ...], tuple[str, ...]]:
    """Return (types, notes): the `builtin` types first, in their order, then the others by name.

    `trusted`: whether the user trusts a folder; asked only where it has such files. `own`: whether
    the user's own files are read. `given`: the value of `--agents`, a JSON object of name ->
    fields, with `prompt` for the text. `known_tools`: tools that need no note. Raises `UsageError`
    where `given` is no such object.
    """
    folders = [found for found in _folders(cwd, home, environ, trusted) if own or found[1]]
    if not folders and not given:
        return tuple(builtin), ()
    found, notes = read_types(folders, given, home, known_tools)
    kinds = {kind.name: kind for kind in builtin} | found
    first = [kinds.pop(kind.name) for kind in builtin]
    return (*first, *(kinds[name] for name in sorted(kinds))), tuple(notes)


def _folders(
    cwd: str, home: str, environ: Mapping[str, str], trusted: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield (existing folder, root that its files must not leave; '' for the user's own),
    nearest first.
    """
    root = project_root(cwd)
    for above in reversed(folders_between(root, cwd)):
        for folder in (f"{above.rstrip('/')}/{name}" for name in PROJECT_FOLDERS):
            if above == home or not os.path.isdir(folder):
                continue  # folders in the home belong to the user's own types
            if trusted(above):
                yield folder, root
    for folder in (
        f"{config_dir(environ, home)}/agents",
        f"{home}/.agents/agents",
        f"{home}/.claude/agents",
    ):
        if os.path.isdir(folder):
            yield folder, ""


# --- Fields of several agents, read into a type ---------------------------------------------------
# Fields can only narrow: a type gets nothing beyond its parent. A restriction that is not possible removes the tool.  # noqa: E501


NAME_CHARS_MAX = 64
DESCRIPTION_CHARS_MAX = 500
"""Characters of a description, which is part of every request."""
TURNS_MAX = 1_000
UNSUPPORTED_FIELDS = ("mcpServers", "mcp_servers", "memory", "effort")
"""Fields of other agents that have no effect here yet."""

EDITING = tuple(tool.spec.name for tool in own_tools() if tool.rule_name == "Edit")


class TypeSource(msgspec.Struct, frozen=True):
    """A file, or one entry of `--agents`."""

    shown: str
    """Name in messages."""
    stem: str
    """Name of the type when the fields have none."""
    fields: Mapping[str, Any] = {}
    body: str = ""
    problem: str = ""
    """Reason why the file could not be read."""
    path: str = ""
    root: str = ""
    """Project that the file belongs to; '' for the user's own."""
    home: str = ""


class InvalidType(Exception):
    """The file is no subagent type; the text says why. Never leaves this module."""


class TypeParser:
    """Parser of subagent types that collects notes for the user."""

    def __init__(self, known_tools: Sequence[Tool] = ()) -> None:
        self.known_tools = frozenset(tool.spec.name for tool in known_tools)
        self._by_name = {tool.spec.name: tool for tool in (*own_tools(), *known_tools)}
        self._lines: list[str] = []
        self._later: dict[str, list[str]] = {}
        self._unknown: dict[str, list[str]] = {}

    def scope(self, found: Sequence[TypeSource]) -> dict[str, SubagentType]:
        """Return the types of one folder, or of `--agents`. Of two with one name the first
        counts.
        """
        kinds: dict[str, SubagentType] = {}
        for one in found:
            kind = self._kind(one)
            if kind is None:
                continue
            if kind.name in kinds:
                self._lines.append(
                    f"{one.shown}: {kind.name!r} is in {kinds[kind.name].source} too: left out."
                )
            else:
                kinds[kind.name] = kind
        return kinds

    def notes(self) -> tuple[str, ...]:
        """Return the lines for the user."""
        said = list(self._lines)
        if self._later:
            said.append(f"Not obeyed here yet, in files of subagents: {_grouped(self._later)}.")
        if self._unknown:
            said.append(
                f"Tools that subagents name and that are not here: {_grouped(self._unknown)}."
            )
        return tuple(said)

    def _kind(self, one: TypeSource) -> SubagentType | None:
        try:
            if one.problem:
                raise InvalidType(one.problem)
            return self._made(one, one.fields)
        except InvalidType as refusal:
            if str(refusal):
                self._lines.append(f"{one.shown}: {refusal}: left out.")
            return None

    def _made(self, one: TypeSource, fields: Mapping[str, Any]) -> SubagentType:
        name, description = _name(one, fields), _description(fields)
        _refuse_others(fields)
        tools, spawns = self._tools(one, name, fields)
        without, unspawned = self._without(name, fields)
        for field in UNSUPPORTED_FIELDS:
            if fields.get(field):
                self._later.setdefault(field, []).append(name)
        hooks, told = hooks_in_head(fields, one.path, one.shown, one.root, one.home)
        self._lines += told
        return SubagentType(
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
            location=_text(fields.get("location")),
            skills=tuple(_names(fields.get("skills"))),
            source=one.shown,
            hooks=hooks,
        )

    def _shown(self, one: TypeSource, body: str) -> str:
        """Return the text with invisible characters escaped, so that no hidden text reaches the
        model.
        """
        clean = escape(body)
        if clean != body:
            self._lines.append(
                f"{one.shown} holds characters that cannot be seen: they are written out as \\u…."
            )
        return clean

    def _tools(
        self, one: TypeSource, name: str, fields: Mapping[str, Any]
    ) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """Return (tools, types that it may start). Without a list: all tools of the parent."""
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
            base, inner = self._split(text)
            if base == "Agent":
                spawns += _names(inner) if inner else ["*"]
            elif inner:
                self._lines.append(
                    f"{one.shown}: {text!r} narrows a tool, which only permission rules do: left "
                    "out."
                )
            else:
                tools[base] = None
                self._know(base, name)
        return tuple(tools), tuple(dict.fromkeys(spawns))

    def _without(self, name: str, fields: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
        """Return (removed tools, whether it may start no subagents)."""
        taken = [
            self._split(text)[0]
            for text in _names(fields.get("disallowedTools") or fields.get("disallowed_tools"))
        ]
        written = fields.get("tools")
        if isinstance(written, dict):
            taken += [
                self._split(key)[0]
                for key, on in written.items()
                if _truth(on) is False and key != "*"
            ]
        taken += self._denied(fields.get("permission"))
        for tool in taken:
            self._know(tool, name)
        return tuple(dict.fromkeys(tool for tool in taken if tool != "Agent")), "Agent" in taken

    def _split(self, text: str) -> tuple[str, str]:
        """Split `Task(a, b)` into (`Agent`, `a, b`): the tool's name in longrein and the text in
        brackets.
        """
        match = re.fullmatch(r"([^()]+)(?:\((.*)\))?", text.strip())
        base, inner = (match[1].strip(), (match[2] or "").strip()) if match else (text.strip(), "")
        if base.startswith("mcp__") and base.count("__") == 1:
            base += "__*"
        return own_name(base, self._by_name), "" if inner == "*" else inner

    def _denied(self, permission: Any) -> list[str]:
        """Return the tools that a map of permissions denies completely. `edit` stands for every
        tool that edits.
        """
        if not isinstance(permission, dict):
            return []
        whole = {
            key: rule.get("*") if isinstance(rule, dict) else rule
            for key, rule in permission.items()
        }
        names = [self._split(str(key))[0] for key, rule in whole.items() if rule == "deny"]
        return [*names, *(EDITING if "Edit" in names else ())]

    def _know(self, tool: str, name: str) -> None:
        if (
            self.known_tools
            and tool not in self.known_tools
            and not tool.startswith("mcp_")
            and tool[-1:] != "*"
        ):
            users = self._unknown.setdefault(tool, [])
            if name not in users:
                users.append(name)

    def _mode(self, one: TypeSource, fields: Mapping[str, Any]) -> str:
        mode = _text(fields.get("permissionMode") or fields.get("permission_mode"))
        if not mode or mode in MODES:
            return mode
        self._lines.append(
            f"{one.shown}: permissionMode {mode!r} is not known here: it counts as default."
        )
        return "default"

    def _turns(self, one: TypeSource, fields: Mapping[str, Any]) -> int:
        value = next(
            (fields[k] for k in ("maxTurns", "max_turns", "steps", "maxSteps") if fields.get(k)), 0
        )
        number = _number(value)
        if number is not None and 0 <= number <= TURNS_MAX:
            return number
        self._lines.append(
            f"{one.shown}: maxTurns {value!r} is no number from 1 to {TURNS_MAX}: the default "
            "holds."
        )
        return 0

    def _flag(self, one: TypeSource, fields: Mapping[str, Any], name: str) -> bool:
        value = fields.get(name)
        if value not in (None, "") and _truth(value) is None:
            self._lines.append(
                f"{one.shown}: {name} {value!r} is neither true nor false: it counts as false."
            )
        return _truth(value) is True

    def _worktree(self, one: TypeSource, fields: Mapping[str, Any]) -> bool:
        value = _text(fields.get("isolation"))
        if value not in ("", "worktree", "none"):
            self._lines.append(
                f"{one.shown}: isolation {value!r} is not known here: it works in the parent's "
                "folder."
            )
        return value == "worktree"


# --- Single fields --------------------------------------------------------------------------------


def _name(one: TypeSource, fields: Mapping[str, Any]) -> str:
    """Return the name of the type: the field, else the name of the file or entry."""
    name = " ".join((_text(fields.get("name")) or one.stem).split())
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or set(name) & set('"(),*'):
        raise InvalidType(
            f"{name[:80]!r} is no name for a type (printable, at most {NAME_CHARS_MAX}, none of "
            '"(),*)'
        )
    return name


def _description(fields: Mapping[str, Any]) -> str:
    """Return the description in one paragraph."""
    words = [_text(fields.get(key)) for key in ("description", "whenToUse", "when_to_use")]
    text = escape(one_line(" ".join(words).replace("\\n", " ")))
    if not text:
        raise InvalidType("has no description, which says when to use it")
    return shortened(text, DESCRIPTION_CHARS_MAX)


def _refuse_others(fields: Mapping[str, Any]) -> None:
    """Refuse files that other agents keep in the same folders."""
    if _truth(fields.get("disable")) is True:
        raise InvalidType("")
    if fields.get("mode") == "primary":
        raise InvalidType("is of mode primary, not a subagent")
    if fields.get("kind") not in (None, "", "local"):
        raise InvalidType(f"is of kind {_text(fields['kind'])!r}, which is not run here")


def _model(value: Any) -> str:
    text = _text(value)
    return "" if text == "inherit" else text


def _text(value: Any) -> str:
    return (
        str(value).strip()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
        else ""
    )


def _truth(value: Any) -> bool | None:
    """Return a boolean, also for `"true"` in quotes; None for anything else."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _number(value: Any) -> int | None:
    """Return a whole number, also in quotes; None for anything else."""
    text = _text(value)
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _names(value: Any) -> list[str]:
    """Return the names of a list, or of a text with commas between and not inside brackets."""
    if isinstance(value, str):
        value = [piece.strip(" \"'") for piece in re.split(r",(?![^(\[{]*[)\]}])", value)]
    return [_text(one) for one in value if _text(one)] if isinstance(value, list) else []


def _grouped(table: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"{field} ({', '.join(names[:5])}{' …' if len(names) > 5 else ''})"
        for field, names in table.items()
    )


# --- Files ----------------------------------------------------------------------------------------


FILES_MAX = 200
"""Files read of one folder."""
ENTRIES_MAX = 10_000
"""Entries looked at in one folder."""
DEPTH_MAX = 5
"""Nested folders that are read."""
SIZE_MAX_BYTES = 256 * 1024


def read_types(
    folders: Sequence[tuple[str, str]], given: str, home: str, known_tools: Sequence[Tool]
) -> tuple[dict[str, SubagentType], list[str]]:
    """Return (types by name, notes). For `folders` see `_folders`, for `given`
    `load_subagent_types`.

    Raises `UsageError` for an invalid `given`.
    """
    notes: list[str] = []
    scopes = [_given(given)] if given else []
    read: set[str] = set()
    scopes += [list(_files(folder, root, home, notes, read)) for folder, root in folders]
    taking = TypeParser(known_tools)
    kinds: dict[str, SubagentType] = {}
    for scope in reversed(scopes):
        kinds |= taking.scope(scope)
    return kinds, [*notes, *taking.notes()]


def _files(
    folder: str, root: str, home: str, notes: list[str], read: set[str]
) -> Iterator[TypeSource]:
    """Yield the markdown files at any depth in the order of their names, each once in spite of
    links.
    """
    inside = f"{os.path.realpath(root).rstrip('/')}/" if root else ""
    for number, path in enumerate(_walk(folder, DEPTH_MAX, set())):
        shown, real = shorten_home(path, home), os.path.realpath(path)
        if number == FILES_MAX:
            notes.append(
                f"{shorten_home(folder, home)} holds more than {FILES_MAX} files: the others were "
                "left out."
            )
            return
        if inside and not real.startswith(inside):
            notes.append(f"{shown} leads out of the project: left out.")
            continue
        if real in read:
            continue
        read.add(real)
        stem = os.path.basename(path).removesuffix(".md")
        try:
            yield TypeSource(shown, stem, *_content(real, inside), path=path, root=root, home=home)
        except ValueError as problem:
            yield TypeSource(shown, stem, problem=str(problem))


def list_files(folder: str) -> Iterator[str]:
    """Yield the files of subagent types in a folder, which may not exist, without opening one."""
    yield from _walk(folder, DEPTH_MAX, set())


def _walk(folder: str, depth: int, walked: set[str]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in walked:
        return
    walked.add(real)
    try:
        with os.scandir(folder) as listed:
            entries = sorted(islice(listed, ENTRIES_MAX), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if is_folder(entry):
            yield from _walk(entry.path, depth - 1, walked) if depth else ()
        elif entry.name.endswith(".md") and not entry.name.startswith("."):
            yield entry.path


def _content(path: str, inside: str) -> tuple[dict[str, Any], str]:
    """Return the fields and the body of a file; `inside` as in `_files`. Raises `ValueError`:
    the problem.
    """
    try:
        return split_frontmatter(
            read_bounded(path, SIZE_MAX_BYTES, exact=bool(inside)).decode("utf-8")
        )
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise ValueError(f"is {error.strerror}") from None
        raise ValueError(f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def _given(text: str) -> list[TypeSource]:
    """Return the entries of `--agents`. Raises `UsageError`."""
    wanted = (
        '--agents wants a JSON object such as {"reviewer": {"description": "…", "prompt": "…"}}'
    )
    try:
        table: Any = decode_json(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{wanted}: {error}") from None
    if not isinstance(table, dict) or not all(
        isinstance(fields, dict) for fields in table.values()
    ):
        raise UsageError(wanted)
    return [
        TypeSource(
            f"--agents {name}", name, {key: value for key, value in fields.items() if key != "name"}
        )
        for name, fields in table.items()
    ]
