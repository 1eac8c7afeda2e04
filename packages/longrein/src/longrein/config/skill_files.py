"""Skills from files: folders with a `SKILL.md`, as terminal agents have them.

Of two skills with one name the nearer counts: the project's folders from the current one upwards
(only in a trusted one, like its settings), then the user's, then those of plugins. An invalid file
is left out with a note that names it and the reason; it never stops a start.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from longrein.config.frontmatter import split_frontmatter
from longrein.config.hook_files import hooks_in_head
from longrein.config.instructions import folders_between, project_root
from longrein.config.settings_file import shorten_home
from longrein.config.user_environment import config_dir, read_bounded
from longrein.permissions import check_rule, escape
from longrein.tools import SkillInfo, Style

SKILL_FILES = ("SKILL.md", "skill.md")
"""The second is no standard, and used."""
PROJECT_FOLDERS = (
    *(
        ".longrein/skills",
        ".agents/skills",
        ".claude/skills",
        ".codex/skills",
        ".gemini/skills",
        ".opencode/skills",
    ),
    *(
        ".opencode/skill",
        ".cursor/skills",
        ".github/skills",
        ".kimi/skills",
        ".vibe/skills",
        ".pi/skills",
    ),
    ".goose/skills",
)
"""Folders below each folder from the current one up to the project's root, in this order."""
USER_FOLDERS = (
    *(
        ".agents/skills",
        ".claude/skills",
        ".codex/skills",
        ".gemini/skills",
        ".config/opencode/skills",
    ),
    *(
        ".config/opencode/skill",
        ".cursor/skills",
        ".kimi/skills",
        ".vibe/skills",
        ".pi/agent/skills",
    ),
    ".config/goose/skills",
)
"""Folders below the home, after longrein's own."""
SYSTEM_FOLDERS = ("/etc/codex/skills",)

FOLDERS_MAX = 2_000
"""Folders looked into at one scan."""
ENTRIES_MAX = 10_000
"""Entries looked at in one folder."""
DEPTH_MAX = 4
"""Nested folders between a folder of skills and a `SKILL.md`."""
SIZE_MAX_BYTES = 256 * 1024
NAME_CHARS_MAX = 64
DESCRIPTION_CHARS_MAX = 1_024
SKIPPED = frozenset(("node_modules", "__pycache__"))
NOT_OBEYED = ("model", "effort", "background")
"""Fields of other agents that have no effect here."""


RULES_CHARS_MAX = 200
"""Characters of the rules that a project's file wants, in its note."""


class SkillFolder(NamedTuple):
    """A folder that may hold skills or commands, or a settings file with commands."""

    path: str
    root: str
    """Folder that its files must not leave; '' for the user's own."""
    prefix: str = ""
    """Beginning of each name, such as `plugin:`."""
    variables: tuple[tuple[str, str], ...] = ()
    style: Style = "claude"


def skill_folders(
    cwd: str, home: str, environ: Mapping[str, str], trusted: Callable[[str], bool]
) -> Iterator[SkillFolder]:
    """Yield the existing folders of skills, nearest first."""
    yield from existing_folders(cwd, home, trusted, [(name, "claude") for name in PROJECT_FOLDERS])
    own = (
        f"{config_dir(environ, home)}/skills",
        *(f"{home}/{name}" for name in USER_FOLDERS),
        *SYSTEM_FOLDERS,
    )
    yield from (SkillFolder(path, "") for path in own if os.path.isdir(path))


def existing_folders(
    cwd: str,
    home: str,
    trusted: Callable[[str], bool],
    names: Sequence[tuple[str, Style]],
    exists: Callable[[str], bool] = os.path.isdir,
) -> Iterator[SkillFolder]:
    """Yield the folders `names` of the project that exist, nearest first. Folders in the home
    are the user's own.
    """
    root = project_root(cwd)
    for above in reversed(folders_between(root, cwd)):
        found = (
            [(f"{above.rstrip('/')}/{name}", style) for name, style in names]
            if above != home
            else []
        )
        found = [(path, style) for path, style in found if exists(path)]
        if found and trusted(above):
            yield from (SkillFolder(path, root, style=style) for path, style in found)


class SkillSource(NamedTuple):
    """A file of a skill or command."""

    path: str
    folder: SkillFolder
    shown: str
    """Path for display."""
    kind: Literal["skill", "command"]
    home: str = ""


# --- Walking --------------------------------------------------------------------------------------


class Walk:
    """Walk over folders of skills and commands, each real folder once, within `FOLDERS_MAX`
    folders in all.
    """

    def __init__(self) -> None:
        self.left = FOLDERS_MAX
        self._walked: set[tuple[str, str]] = set()
        self.root = ""
        """Folder that the files must not leave: a link may lead out of the project and into the
        user's own.
        """

    def skills(self, folder: str, depth: int = DEPTH_MAX) -> Iterator[str]:
        """Yield the path of each `SKILL.md`. Below a skill no other is looked for."""
        entries = self._entries(folder)
        skill = next((entry for entry in entries if entry.name in SKILL_FILES), None)
        if skill is not None:
            yield skill.path
            return
        for entry in entries if depth else ():
            if is_folder(entry):
                yield from self.skills(entry.path, depth - 1)

    def files(self, folder: str, ending: str, depth: int = DEPTH_MAX) -> Iterator[str]:
        """Yield the files whose name ends in `ending`, at any depth."""
        for entry in self._entries(folder):
            if is_folder(entry):
                yield from self.files(entry.path, ending, depth - 1) if depth else ()
            elif entry.name.endswith(ending):
                yield entry.path

    def _entries(self, folder: str) -> list["os.DirEntry[str]"]:
        real = os.path.realpath(folder)
        if (self.root, real) in self._walked or self.left <= 0:
            return []
        self._walked.add((self.root, real))
        self.left -= 1
        try:
            with os.scandir(folder) as listed:
                entries = [
                    one for one in islice(listed, ENTRIES_MAX) if not one.name.startswith(".")
                ]
        except OSError:
            return []
        return sorted(
            (one for one in entries if one.name not in SKIPPED), key=lambda entry: entry.name
        )


def is_folder(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is a folder; False for a link to itself."""
    try:
        return entry.is_dir()
    except OSError:
        return False


# --- Reading --------------------------------------------------------------------------------------


class InvalidSkill(Exception):
    """The file is no skill or command; the text says why, in words that follow its path."""


class Notes:
    """Lines for the user about files that are left out or only partly obeyed."""

    def __init__(self) -> None:
        self.lines: dict[str, None] = {}
        self._later: dict[str, list[str]] = {}

    def add(self, line: str) -> None:
        """Add a line once."""
        self.lines[line] = None

    def not_obeyed(self, field: str, name: str) -> None:
        """Note a field of another agent that has no effect here."""
        self._later.setdefault(field, []).append(name)

    def merge(self, other: "Notes") -> None:
        """Add the notes on one file."""
        self.lines |= other.lines
        for field, names in other._later.items():
            self._later.setdefault(field, []).extend(names)

    def all(self, most: int = 20) -> tuple[str, ...]:
        """Return the lines, at most `most` and a line with the number of the others."""
        groups = "; ".join(f"{field} ({_some(names)})" for field, names in self._later.items())
        lines = [
            *self.lines,
            *([f"Not obeyed here, in skills and commands: {groups}."] if groups else []),
        ]
        more = len(lines) - most
        return (
            (*lines[:most], f"{more} more notes on skills and commands")
            if more > 0
            else tuple(lines)
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def read_text_file(path: str, root: str) -> str:
    """Return the text of a file that does not lead out of `root`. Raises `InvalidSkill`."""
    real = os.path.realpath(path)
    if root and not real.startswith(f"{os.path.realpath(root).rstrip('/')}/"):
        raise InvalidSkill("leads out of the project")
    try:
        data = read_bounded(real, SIZE_MAX_BYTES, exact=bool(root))
        text = data.decode("utf-8")
    except OSError as error:
        raise InvalidSkill(f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidSkill("is not UTF-8 text") from None
    if "\0" in text:
        raise InvalidSkill("is a binary file, not text")
    return text


def read_skill(path: str, folder: SkillFolder, home: str, notes: Notes) -> SkillInfo:
    """Read the head of a `SKILL.md`. Raises `InvalidSkill`."""
    shown = escape(shorten_home(path, home))
    try:
        fields, _ = split_frontmatter(read_text_file(path, folder.root))
    except ValueError as error:
        raise InvalidSkill(f"has a head that is no YAML ({error})") from None
    stem = os.path.basename(os.path.dirname(path))
    name = text_field(fields.get("name"))
    if not name:
        notes.add(f"{shown} has no name: the name of its folder, {stem}, counts.")
    elif name != stem:
        notes.add(f"{shown}: the name {name!r} is not that of its folder, {stem}; it is used.")
    name = name or stem
    if (
        len(name) > NAME_CHARS_MAX
        or name != name.lower()
        or not re.fullmatch(r"[^\W_]+(-[^\W_]+)*", name)
    ):
        notes.add(
            f"{shown}: the name {name[:80]!r} is not made of small letters, digits and single "
            "hyphens, 1 to 64."
        )
    description = _description(fields)
    if not description:
        raise InvalidSkill("has no description, which says when to use it")
    if len(description) > DESCRIPTION_CHARS_MAX:
        notes.add(f"{shown}: the description is longer than {DESCRIPTION_CHARS_MAX:,} characters.")
    return skill_info(
        fields, name, description, SkillSource(path, folder, shown, "skill", home), notes
    )


def skill_info(
    fields: Mapping[str, Any],
    name: str,
    description: str,
    source: SkillSource,
    notes: Notes,
    *,
    for_model: bool = True,
) -> SkillInfo:
    """Return the skill or command of these fields. Raises `InvalidSkill` for a name that cannot
    be typed.
    """
    folder, shown = source.folder, source.shown
    slug = re.sub(r"\s+", "-", name.strip())
    if not slug or not slug.isprintable() or set(slug) & set('<>&"'):
        raise InvalidSkill(f"{name[:80]!r} cannot be typed as a command")
    slug = folder.prefix + slug
    for field in NOT_OBEYED:
        if fields.get(field) not in (None, "", "inherit", False):
            notes.not_obeyed(field, slug)
    if text_field(fields.get("shell")) not in ("", "bash", "sh"):
        raise InvalidSkill(f"its commands are for {text_field(fields.get('shell'))}, not for bash")
    hooks, told = hooks_in_head(fields, source.path, shown, folder.root, source.home)
    for line in told:
        notes.add(line)
    return SkillInfo(
        name=slug,
        description=description,
        path=source.path,
        source=shown,
        kind=source.kind,
        style=folder.style,
        argument_hint=escape(" ".join(_hint(fields).split()))[:80],
        argument_names=tuple(
            re.findall(r"[A-Za-z_]\w*", " ".join(_words(fields.get("arguments"))))
        ),
        allowed_tools=_allowed(fields, source, slug, notes),
        disallowed_tools=_rules(
            _field(fields, "disallowed-tools", "disallowed_tools"), "deny", shown, notes
        ),
        for_model=for_model and _flag(fields, "disable-model-invocation", shown, notes) is not True,
        for_user=_flag(fields, "user-invocable", shown, notes) is not False,
        fork=text_field(fields.get("context")) == "fork"
        or _flag(fields, "subtask", shown, notes) is True,
        agent=text_field(fields.get("agent")),
        paths=tuple(_words(fields.get("paths"))),
        variables=folder.variables,
        hooks=hooks,
    )


# --- Single fields --------------------------------------------------------------------------------


def text_field(value: Any) -> str:
    """Return a text or number as text; '' for anything else."""
    return (
        str(value).strip()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
        else ""
    )


def _description(fields: Mapping[str, Any]) -> str:
    words = [
        text_field(fields.get(key))
        for key in ("description", "when_to_use", "when-to-use", "whenToUse")
    ]
    return escape(" ".join(" ".join(words).split()))


def _field(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name)), None)


def _hint(fields: Mapping[str, Any]) -> str:
    """Return the hint for the arguments; `[a] [b]` without quotes is a list in YAML."""
    value = _field(fields, "argument-hint", "argument_hint")
    return (
        " ".join(f"[{text_field(one)}]" for one in value)
        if isinstance(value, list)
        else text_field(value)
    )


def _words(value: Any) -> list[str]:
    """Return the items of a list, or of a text with commas or blanks outside of brackets."""
    if isinstance(value, list):
        return [text_field(one) for one in value if text_field(one)]
    return [one for one in re.findall(r"(?:\([^)]*\)?|[^\s,(])+", text_field(value)) if one]


def _allowed(
    fields: Mapping[str, Any], source: SkillSource, name: str, notes: Notes
) -> tuple[str, ...]:
    """Return the rules that a file of the user allows; a file of a project allows nothing."""
    written = _field(fields, "allowed-tools", "allowed_tools")
    rules = _rules(written, "allow", source.shown, notes)
    if rules and source.folder.root:
        listed = escape(", ".join(rules))
        notes.add(
            f"{source.shown}: {name} allows nothing, because it belongs to the project. "
            f"It wants {listed[:RULES_CHARS_MAX]}: allow what you trust in your own settings."
        )
        return ()
    return rules


def _rules(value: Any, kind: str, shown: str, notes: Notes) -> tuple[str, ...]:
    """Return the permission rules in a field; an invalid one is left out with a note."""
    rules = []
    for rule in _words(value):
        problem = check_rule(rule, "allow" if kind == "allow" else "")
        if problem:
            notes.add(f"{shown}: {rule[:80]!r} is no rule ({problem}): left out.")
        else:
            rules.append(rule)
    return tuple(rules)


def _flag(fields: Mapping[str, Any], name: str, shown: str, notes: Notes) -> bool | None:
    value = fields.get(name, fields.get(name.replace("-", "_")))
    truth = {"true": True, "yes": True, "false": False, "no": False}.get(str(value).strip().lower())
    if truth is None and value not in (None, ""):
        notes.add(f"{shown}: {name} {value!r} is neither true nor false: it has no effect.")
    return truth
