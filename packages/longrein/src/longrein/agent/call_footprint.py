"""Lookup of what a call touches: its files; of a command the folders and programs of each part."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache, partial

import msgspec

from longrein.agent.call_conflicts import Footprint, command_footprint, paths_footprint
from longrein.agent.current_rules import LOOK_S, CurrentRules, git_folders, masks_reads
from longrein.agent.git_metadata import find_armed_setting
from longrein.permissions import (
    Call,
    Effect,
    KnownCommand,
    PartFacts,
    Rules,
    Touched,
    WordPart,
    glob_base,
    read_command,
    read_deny_rule,
    read_folders,
    visible,
)
from longrein.tools import Tool, is_foreign
from longrein.workspace import ResolvedPath, Workspace


def check_folders_read(now: CurrentRules, command: KnownCommand) -> tuple[str, str]:
    """Check the folders that a command reads for forbidden files.

    Returns ("deny", reason) when there is one, ("ask", reason) when there was too much to search,
    else ("", "").
    """
    cwd = now.cwd
    if not any(
        rule.lstrip().startswith("Read")
        for _, _, rules, _ in now.views(cwd, cwd)
        for rule in rules.deny
    ):
        return "", ""
    kind, reason = "", ""
    for folder in read_folders(command, cwd):
        start = now.workspace.resolve(folder, cwd)
        if start.kind != "folder":
            continue
        path, rule, whole = _first_forbidden(now, start)
        if rule:
            return "deny", _denial(start.path, path, rule)
        if not whole:
            below = visible(start.path)
            kind, reason = (
                "ask",
                f"it reads what lies below {below}, too much to see whether a rule forbids some",
            )
    return kind, reason


def _denial(start: str, path: str, rule: str) -> str:
    return (
        f"this command reads what lies below {visible(start)}, and the user's rule "
        f"{visible(rule)} forbids "
        f"{visible(path)} there. Use Grep or Glob, which leave it out, or name the files to read"
    )


def _first_forbidden(now: CurrentRules, start: ResolvedPath) -> tuple[str, str, bool]:
    """Return (path, rule) of the first forbidden file below a folder, and True if the search was
    complete.
    """
    found: list[tuple[str, str]] = []

    def visit(real: str, _: bool) -> bool:
        path = start.path.rstrip("/") + real[len(start.real.rstrip("/")) :]
        rule = next(
            (rule for place in now.views(path, real) if (rule := read_deny_rule(*place))),
            "",
        )
        if rule:
            found.append((path, rule))
        return not found

    whole = now.workspace.walk(start.real, visit, LOOK_S, ignored=True)
    return (*found[0], True) if found else ("", "", whole)


read_once = lru_cache(maxsize=64)(read_command)
"""Commands that wait are judged before each move; each is read once."""


def footprint_of(
    now: CurrentRules, tool: Tool, arguments: Mapping[str, object], *, resolves: bool = True
) -> Footprint:
    """Return what a call reads and writes. Without `resolves`, by the paths that it names."""
    cwd, command = now.cwd, arguments.get("command")

    def real(path: str, folder: str) -> str:
        return now.workspace.resolve(path, folder).real if resolves else path

    if tool.access == "command" and isinstance(command, str) and not is_foreign(tool):
        return command_footprint(read_once(command, cwd, now.rules.home), cwd, real)
    if tool.access == "command":
        return Footprint(reads_anything=True, unknown=not tool.together(arguments))
    if tool.traits.kind == "agent":  # subagents read what they like
        return Footprint(reads_anything=True)
    paths = tool.paths(arguments)
    if tool.access == "read" and not paths:
        return Footprint(reads_anything=True, placed=False)
    return paths_footprint(paths, cwd, real)


def make_call(
    now: CurrentRules, name: str, tool: Tool, arguments: dict[str, object], cwd: str = ""
) -> Call:
    """Return a call with what it touches; a command is read, and its files are looked up."""
    cwd = cwd or now.cwd
    text = arguments.get("command")
    touched = _touched(now, tool, arguments)
    made = partial(Call, name, arguments, tool.access, touched, tool.rule_name)
    if tool.access != "command" or not isinstance(text, str) or is_foreign(tool):
        return made(asks=tool.user.reason if tool.user else "")
    rules = now.rules
    command = read_once(text, cwd, rules.home)
    confined = not arguments.get("outside_sandbox") and not now.unconfined_reason()
    masked = confined and masks_reads(now.sandbox)
    facts = tuple(
        PartFacts(
            _touched_by_part(now, part, effect, masked, confined=confined),
            _foreign(now.workspace, now.cwd, part),
            _armed(now.workspace, rules, part, effect),
            effect.history and _is_history_clean(now, command, part, effect),
        )
        for part, effect in zip(command.script.parts, command.effects, strict=True)
    )
    return made(command=command, parts=facts, confined=confined, masked=masked, gated=now.gated)


def _is_history_clean(
    now: CurrentRules, command: KnownCommand, part: WordPart, effect: Effect
) -> bool:
    contents = now.contents
    return contents is not None and contents.is_clean(now.workspace, command, part, effect)


def _touched_by_part(
    now: CurrentRules, part: WordPart, effect: Effect, masked: bool, *, confined: bool
) -> tuple[Touched, ...]:
    """Look up the files of one part, for each folder in which it may run."""
    tmp = now.sandbox.shared_folders().tmp if confined and now.sandbox is not None else ""
    if effect.problem and part.words:
        return _other_names(now, part)
    workspace = now.workspace
    found = []
    for words, writes in ((effect.reads, False), (effect.writes, True)):
        for word in words:
            path = glob_base(word.text) if word.kind == "glob" else word.text
            folders = ("/",) if path.startswith("/") else part.folders
            if word.kind == "open" or not folders:
                name = word.text or "a file whose name is not known"
                found.append(Touched(word.text, name, name, False, writes))
            for folder in folders if word.kind != "open" else ():
                place = workspace.resolve(path, folder)
                if tmp and not place.inside and place.path.startswith("/tmp/"):
                    place = msgspec.structs.replace(place, inside=True, is_scratch=True)
                found.append(_touch(now, place, writes=writes))
                if place.inside and (word.kind == "glob" or effect.follows):
                    pattern = word.text[len(path) :] if word.text.startswith(path) else word.text
                    found += _files_behind_links(
                        now, place, pattern if word.kind == "glob" else "**", writes, masked
                    )
    if effect.folder is not None and not effect.problem:
        for folder in part.folders or (now.cwd,):
            found.append(look_up(now, effect.folder.text, folder, writes=False))
    return tuple(found)


def _other_names(now: CurrentRules, part: WordPart) -> tuple[Touched, ...]:
    """Look up the words of an unknown program that are links, for rules that forbid the file."""
    if not now.rules.deny and now.above is None:
        return ()
    words = [word.text for word in part.words[1:] if word.kind == "literal" and word.text]
    look = now.workspace.resolve
    places = [look(word, folder) for folder in part.folders for word in words]
    links = [place for place in places if place.identity or place.real != place.path]
    return tuple(_touch(now, place, writes=False) for place in links if place.kind)


LINKS_S = 0.1
"""Limit of the search for links that a glob may follow."""


def _files_behind_links(
    now: CurrentRules, base: ResolvedPath, pattern: str, writes: bool, masked: bool
) -> list[Touched]:
    """Return what a glob below `base` reaches by links: files outside the roots and, unless
    forbidden files are masked, files that have another name.
    """
    if base.kind != "folder":
        return []
    names = [
        "*" if set(name) & set("[\\(") else name
        for name in pattern.split("/")
        if name not in ("", ".")
    ]
    deep = "**" in names or ".." in names
    start = len(base.real.rstrip("/")) + 1
    found: list[Touched] = []

    def visit(path: str, is_folder: bool) -> bool:
        below = path[start:].split("/")
        if not deep and not all(map(fnmatchcase, below, names)):
            return False
        place = now.workspace.resolve(path, "/") if not is_folder else None
        if place is not None and not place.inside:
            found.append(Touched(path, place.path, place.real, False, writes))
        elif place is not None and not masked and (place.real != place.path or place.identity):
            found.append(_touch(now, place, writes=writes))
        return deep or len(below) < len(names)

    if not now.workspace.walk(base.real, visit, LINKS_S, ignored=True):
        found.append(
            Touched(pattern, base.path, "a file behind a link, too many to look at", False, writes)
        )
    return found


def _armed(workspace: Workspace, rules: Rules, part: WordPart, effect: Effect) -> str:
    """Return what the repository would make a git command run; '' for nothing."""
    if part.program.rpartition("/")[2] != "git" or (effect.problem and not rules.allow):
        return ""
    folders = git_folders(workspace, part, effect)
    if not folders:
        return "the folder of git is not known, nor what its configuration runs"
    found = (
        find_armed_setting(workspace, folder, reads_only=not effect.problem) for folder in folders
    )
    return next(filter(None, found), "")


def _foreign(workspace: Workspace, cwd: str, part: WordPart) -> str:
    """Return the place of a program that the project itself brings along, also of one that starts
    it, such as `timeout`; '' where all are of the system.
    """
    paths = [workspace.find_program(name) for name in (*part.wrappers, part.program) if name]
    places = [workspace.resolve(path, cwd) for path in paths if path]
    inside = (place.path for place in places if place.inside)
    return next((f"{path} is a program of this project" for path in inside), "")


def _touched(now: CurrentRules, tool: Tool, arguments: dict[str, object]) -> tuple[Touched, ...]:
    cwd, paths = now.cwd, tool.paths(arguments)
    return tuple(look_up(now, path, cwd, writes=writes) for path, writes in paths)


def look_up(now: CurrentRules, path: str, folder: str, *, writes: bool) -> Touched:
    """Return a file as a call touches it."""
    return _touch(now, now.workspace.resolve(path, folder), writes=writes)


def _touch(now: CurrentRules, place: ResolvedPath, *, writes: bool) -> Touched:
    """Return a place as a call touches it, with other names of the same file, if one is
    forbidden.
    """
    names = now.forbidden_names(place)
    return Touched(
        place.given, place.path, place.real, place.inside, writes, place.is_scratch, names
    )
