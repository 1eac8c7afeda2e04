"""Hooks from files: longrein's own `hooks.json`, and those of other agents in the same shape.

A hook of a project runs only in a trusted folder, and only as it was when the user trusted the
folder: each hook has a fingerprint of its definition and of the scripts in the project that it
names. A changed hook asks again.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from typing import Any, cast

import msgspec

from longrein.config.instructions import leads_out, project_root
from longrein.config.settings_file import shorten_home
from longrein.config.user_environment import agent_folder, config_dir, read_bounded, read_table
from longrein.permissions import Hook, check_rule, escape
from longrein.permissions.hook_protocol import EVENTS, OTHER_EVENTS, TOOL_EVENTS, matcher_problem

NAMED_BY = {
    "command": ("command",),
    "http": ("url",),
    "prompt": ("prompt",),
    "agent": ("prompt",),
    "mcp_tool": ("server", "tool"),
}
"""Type of a hook -> fields that it needs."""
HOOKS_MAX = 200
"""Hooks of one file."""
TIMEOUT_MAX_S = 3_600.0
SCRIPT_BYTES_MAX = 1_000_000
PROJECT_FILES = (
    ".longrein/hooks.json",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".codex/hooks.json",
)
"""Files with hooks in the root of a project and in the current folder."""


class HookFile(msgspec.Struct, frozen=True):
    """A file that may hold hooks."""

    path: str
    shown: str
    is_own: bool
    """True for a file of the user, False for one of a project."""
    home: str = ""
    """Home folder of the user, whose scripts own hooks may run; '' where nothing is looked for
    there.
    """
    is_head: bool = False
    """True for a skill, command or subagent type with hooks in its head."""


class LoadedHooks(msgspec.Struct, frozen=True):
    """The hooks of a start."""

    hooks: tuple[Hook, ...] = ()
    """Those that run."""
    changed: tuple[Hook, ...] = ()
    """Hooks of a trusted project that the user has not confirmed as they are now; they do not
    run.
    """
    notes: tuple[str, ...] = ()
    """Lines for the user: what is not run, and why."""
    disabled: bool = False
    """True if the user has turned all hooks off."""


# --- Files ----------------------------------------------------------------------------------------


def own_files(home: str, environ: Mapping[str, str]) -> list[HookFile]:
    """Return the user's own files, which may not exist."""
    paths = (
        f"{config_dir(environ, home)}/hooks.json",
        f"{agent_folder('claude', environ, home)}/settings.json",
        f"{agent_folder('codex', environ, home)}/hooks.json",
    )
    return [HookFile(path, shorten_home(path, home), is_own=True, home=home) for path in paths]


def project_files(cwd: str, home: str, environ: Mapping[str, str]) -> list[HookFile]:
    """Return the existing files of the project around `cwd`; none that leads out of it."""
    root = project_root(cwd)
    own = {os.path.realpath(one.path) for one in own_files(home, environ)}
    paths = [
        f"{folder.rstrip('/')}/{name}"
        for folder in dict.fromkeys((root, cwd))
        for name in PROJECT_FILES
    ]
    found = [path for path in paths if os.path.lexists(path) and os.path.realpath(path) not in own]
    return [
        HookFile(path, shorten_home(path, home), is_own=False)
        for path in found
        if not leads_out(path, root)
    ]


def hooks_in_head(
    fields: Mapping[str, Any], path: str, shown: str, root: str, home: str
) -> tuple[tuple[Hook, ...], list[str]]:
    """Read the hooks in the head of a skill, command or subagent type: (hooks, notes).

    `root`: folder of the project; '' for the user's own.
    """
    table = fields.get("hooks")
    if not table:
        return (), []
    file = HookFile(path, shown, is_own=not root, home="" if root else home, is_head=True)
    found, notes = parse_hooks(table, file, root or os.path.dirname(path))
    if not root:  # a skill's own files
        beside = (
            (os.path.dirname(os.path.realpath(path)),)
            if os.path.basename(path).lower() == "skill.md"
            else ()
        )
        found = [
            msgspec.structs.replace(hook, files=(), shown=(*hook.shown, *beside)) for hook in found
        ]
    return tuple(found), notes


# --- Parsing --------------------------------------------------------------------------------------


def parse_hooks(table: Any, file: HookFile, root: str) -> tuple[list[Hook], list[str]]:
    """Read the map of events to groups: (hooks, notes). `root`: folder of the project, whose
    scripts are noted.
    """
    notes: list[str] = []
    if not isinstance(table, dict):
        return [], [
            f"{file.shown}: hooks is no object: no hook of it runs"
        ] if table is not None else []
    found = [hook for hook in _parsed(table, file, root, notes) if hook is not None]
    if len(found) > HOOKS_MAX:
        notes.append(f"{file.shown}: {len(found)} hooks, of which the first {HOOKS_MAX} run")
    return found[:HOOKS_MAX], [escape(note) for note in notes]


def _parsed(
    table: dict[str, Any], file: HookFile, root: str, notes: list[str]
) -> Iterator[Hook | None]:
    for event, groups in table.items():
        if event not in EVENTS:
            why = "longrein has no such event yet" if event in OTHER_EVENTS else "is no event"
            notes.append(f"{file.shown}: hooks of {event[:60]} do not run: {why}")
            continue
        for group in groups if isinstance(groups, list) else [groups]:
            listed = group.get("hooks") if isinstance(group, dict) else None
            matcher = group.get("matcher") or "" if isinstance(group, dict) else ""
            if not isinstance(listed, list) or not isinstance(matcher, str):
                notes.append(
                    f"{file.shown}: a group of {event} has no list `hooks`: it does not run"
                )
            elif problem := matcher_problem(matcher):
                notes.append(f"{file.shown}: {event}: {problem}: its hooks do not run")
            else:
                yield from (_hook(one, event, matcher, file, root, notes) for one in listed)


def _hook(
    given: Any, event: str, matcher: str, file: HookFile, root: str, notes: list[str]
) -> Hook | None:
    """Read one handler; None, with a note, for one that cannot run."""
    where = f"{file.shown}: a hook of {event}"
    if not isinstance(given, dict):
        notes.append(f"{where} is no object: it does not run")
        return None
    kind = given.get("type", "command")
    named = NAMED_BY.get(kind) if isinstance(kind, str) else None
    if named is None:
        notes.append(f"{where} is of type {str(kind)[:40]!r}, which longrein does not run")
        return None
    missing = [
        key for key in named if not isinstance(given.get(key), str) or not given[key].strip()
    ]
    if missing:
        notes.append(f"{where} names no {missing[0]}: it does not run")
        return None
    name = given[named[0]] if kind != "mcp_tool" else f"mcp__{given['server']}__{given['tool']}"
    if kind == "http" and not name.startswith(("http://", "https://")):
        notes.append(f"{where}: {name[:80]!r} is no address: it does not run")
        return None
    args = given.get("args")
    words = (
        (name, *args)
        if isinstance(args, list) and all(isinstance(word, str) for word in args)
        else ()
    )
    commands = (words or (name,)) if kind == "command" else ()
    headers = given["headers"] if isinstance(given.get("headers"), dict) else {}
    allowed = given["allowedEnvVars"] if isinstance(given.get("allowedEnvVars"), list) else []
    return Hook(
        event=event,
        name=name,
        source=file.shown,
        matcher=matcher,
        condition=_condition(given.get("if"), event, where, notes),
        timeout_s=_timeout_s(given.get("timeout"), where, notes),
        in_background=given.get("async") is True or given.get("asyncRewake") is True,
        kind=cast("Any", kind),
        words=words,
        headers=tuple((key, value) for key, value in headers.items() if isinstance(value, str)),
        allowed_env=tuple(one for one in allowed if isinstance(one, str)),
        files=tuple(_scripts(commands, root)),
        is_own=file.is_own,
        shown=tuple(_own_scripts(commands, file.home)) if file.home else (),
        model=given["model"] if isinstance(given.get("model"), str) else "",
        input=given["input"] if isinstance(given.get("input"), dict) else {},
        once=file.is_head and given.get("once") is True,
    )


def _condition(given: Any, event: str, where: str, notes: list[str]) -> str:
    """Return the condition of a hook; without a valid one it runs for every call."""
    if given is None or given == "":
        return ""
    problem = check_rule(given) if isinstance(given, str) else "is no text"
    if event not in TOOL_EVENTS:
        problem = "is for events of tools only"
    if problem:
        notes.append(f"{where}: its `if` {problem}: it runs for every {event}")
    return "" if problem else given


def _timeout_s(given: Any, where: str, notes: list[str]) -> float:
    if given is None:
        return 0.0
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not 0 < given <= TIMEOUT_MAX_S
    ):
        notes.append(
            f"{where}: timeout {str(given)[:20]} is no number of seconds up to {TIMEOUT_MAX_S:g}"
        )
        return 0.0
    return float(given)


_PROJECT = r"\$\{?(?:CLAUDE_PROJECT_DIR|LONGREIN_PROJECT_DIR)\}?"
_HOME = r"~(?=/)|\$\{?HOME\}?"
_SEPARATORS = r"[\s=;|&<>()`]+"


def _named(words: tuple[str, ...], variable: str, folder: str) -> list[str]:
    """Return what may be paths in a command, with `variable` replaced by `folder`."""
    marked = [re.sub(variable, "\0", word).replace('"', "").replace("'", "") for word in words]
    return sorted(
        {
            piece.replace("\0", folder)
            for word in marked
            for piece in re.split(_SEPARATORS, word)
            if piece
        }
    )


def _own_scripts(words: tuple[str, ...], home: str) -> Iterator[str]:
    """Yield the files below home that a command names; with their folder unless that holds other
    things too.

    `~/.claude/hooks/guard.sh` may need the files beside it, `~/.claude` is not for hooks.
    """
    for name in _named(words, _HOME, home):
        folder = os.path.dirname(name)
        if name.startswith(f"{home}/") and os.path.isfile(name):
            yield folder if os.path.dirname(folder).startswith(f"{home}/") else name


def _scripts(words: tuple[str, ...], root: str) -> Iterator[tuple[str, str]]:
    """Yield (path, hash) of the files inside the project that a command names, but for those
    that it writes only: no script, and different after each run.
    """
    inside = os.path.realpath(root).rstrip("/") + "/"
    names = _named(words, _PROJECT, root)
    paths = {os.path.join(root, name) for name in names}
    found = [path for path in sorted(paths) if os.path.isfile(path)]
    written = _only_written(words[0], root) if found and len(words) == 1 else frozenset()
    for path in found:
        if os.path.normpath(path) not in written and os.path.realpath(path).startswith(inside):
            try:
                yield path, sha256(read_bounded(path, SCRIPT_BYTES_MAX)).hexdigest()
            except OSError:
                yield path, "unreadable"


_ELSEWHERE = r"[\\$*?\[{]|\b(?:cd|pushd|source|eval)\b|(?:^|[;&|({]|\b(?:do|then|else)\b)\s*\.\s"
"""What may name a file by another name, in a command."""


def _only_written(command: str, root: str) -> frozenset[str]:
    """Return the paths that a shell command names once, as what it writes (`>> hooks.log`)."""
    command = re.sub(_PROJECT, lambda _: root, command)
    if not re.search(r">|\btee\b", command) or re.search(_ELSEWHERE, command):
        return frozenset()
    from longrein.permissions.command_rules import read_command

    writes = [
        os.path.normpath(os.path.join(root, word.text))
        for effect in read_command(command, root, "").effects
        for word in effect.writes
        if word.text
    ]
    pieces = re.split(_SEPARATORS, command.replace('"', "").replace("'", ""))
    named = [os.path.normpath(os.path.join(root, piece)) for piece in pieces if piece]
    return frozenset(path for path in writes if named.count(path) == writes.count(path) == 1)


def own_command(command: str, root: str, home: str) -> Hook:
    """Describe a command of the user's settings that runs as hooks do. `root`: folder of the
    project.
    """
    scripts = tuple(_own_scripts((command,), home)) if home else ()
    return Hook(
        "StatusLine",
        command,
        "settings",
        files=tuple(_scripts((command,), root)),
        is_own=True,
        shown=scripts,
    )


# --- Loading --------------------------------------------------------------------------------------


def fingerprint(hook: Hook) -> str:
    """Return the hash of what the user trusts: all that decides what a hook does, without the
    limits of time.
    """
    same = msgspec.structs.replace(hook, source="", timeout_s=0.0, is_own=False)
    return sha256(msgspec.json.encode(same)).hexdigest()


def read_project_hooks(
    cwd: str, home: str, environ: Mapping[str, str]
) -> tuple[list[Hook], list[str]]:
    """Return (hooks, notes) of the project's files."""
    hooks: list[Hook] = []
    notes: list[str] = []
    for file in project_files(cwd, home, environ):
        table, problem = read_table(file.path, file.shown)
        notes += [problem] if problem else []
        if _turned_off(table):
            notes.append(f"{file.shown}: disableAllHooks: its hooks do not run")
            continue
        found, more = parse_hooks(table.get("hooks"), file, project_root(cwd))
        hooks += found
        notes += more
    return hooks, notes


def _turned_off(table: Mapping[str, Any]) -> bool:
    return table.get("disableAllHooks") is True or table.get("allowManagedHooksOnly") is True


def load_hooks(
    cwd: str,
    home: str,
    environ: Mapping[str, str],
    *,
    is_trusted: bool,
    confirmed: Callable[[], Collection[str] | None],
    read_others: bool = True,
    own: bool = True,
    given: Mapping[str, Any] | None = None,
) -> LoadedHooks:
    """Read all hooks.

    `confirmed` gives the fingerprints of the project's hooks that the user has confirmed, None for
    all of them; it is asked only where there are any. Without `read_others` only longrein's own
    files are read, without `own` only the project's. `given`: the fields of `--settings`.
    """
    hooks: list[Hook] = []
    notes: list[str] = []
    files = own_files(home, environ) if own else []
    if not read_others:
        files = files[:1]
    tables = [(file, *read_table(file.path, file.shown)) for file in files]
    if given is not None:
        tables.append((HookFile("", "--settings", is_own=True, home=home), dict(given), ""))
    for file, table, problem in tables:
        notes += [problem] if problem else []
        if _turned_off(table):
            return LoadedHooks(
                notes=(*notes, f"{file.shown}: disableAllHooks: no hook runs"), disabled=True
            )
        found, more = parse_hooks(table.get("hooks"), file, project_root(cwd))
        hooks += found
        notes += more
    if not is_trusted:
        return LoadedHooks(tuple(hooks), (), tuple(notes))
    brought, more = read_project_hooks(cwd, home, environ)
    known = confirmed() if brought else None
    changed = [hook for hook in brought if known is not None and fingerprint(hook) not in known]
    running = [hook for hook in brought if hook not in changed]
    return LoadedHooks((*hooks, *running), tuple(changed), (*notes, *more))


_VARIABLE = r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))"


def expanded_headers(hook: Hook, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the headers of a hook with the variables that it may name; any other becomes ''."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return environ.get(name, "") if name in hook.allowed_env else ""

    return tuple(
        (key, re.sub(_VARIABLE, value, text).replace("\n", " ")) for key, text in hook.headers
    )
