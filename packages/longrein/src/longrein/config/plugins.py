"""Plugins: installed Python packages that the user's settings name, and folders of other agents.

A package offers its parts as entry points of the groups in `extension_points.DOORS`. No package is
looked at that the settings do not name.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from longrein.config.instructions import project_root
from longrein.config.skill_files import SkillFolder
from longrein.config.user_environment import read_table
from longrein.extension_points import (
    DOORS,
    POLICIES_DOOR,
    PROVIDERS_DOOR,
    TOOLS_DOOR,
    Point,
    bundled_points,
    installed_points,
)
from longrein.models import Model, known_provider
from longrein.tools import Tool
from longrein_context import Decision, decide
from longrein_context.events import ModelUnknown, SettingsError

Policy = Callable[..., Decision]


class Plugins(msgspec.Struct):
    """Parts that plugins bring."""

    tools: list[Tool] = []
    providers: dict[str, Callable[[str], Model]] = {}
    """Provider -> function that opens one of its models."""
    policy: Policy | None = None
    """Replaces the context policy."""
    sources: dict[str, str] = {}
    """Part, such as `tool Count`, -> the package that brings it."""

    def open_model(self, name: str) -> Model | None:
        """Open the model `provider/model`; None where no plugin brings that provider. Raises
        `ModelUnknown`.
        """
        provider, _, model = name.partition("/")
        if provider not in self.providers:
            return None
        source = self.sources[f"provider {provider}"]
        try:
            opened = self.providers[provider](model)
            made = f"{opened.provider}/{opened.model}"
        except Exception as error:
            raise ModelUnknown(f"{source} cannot open {name}: {error}") from error
        if made != name:  # a resume opens the model by the name that it gives itself
            raise ModelUnknown(f"{source} cannot open {name}: its model calls itself {made}")
        return opened

    def guarded_policy(self, notice: Callable[[str], None]) -> Policy:
        """Return the context policy. Where that of a plugin fails, longrein's own decides, after
        a notice.
        """
        policy = self.policy
        if policy is None:
            return decide
        told: list[str] = []

        def decide_safely(*arguments: Any, **more: Any) -> Decision:
            problem = ""
            try:
                decision: Any = policy(*arguments, **more)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if isinstance(decision, Decision):
                    return decision
                problem = f"it returned {decision!r}"
            if problem not in told:
                told.append(problem)
                notice(
                    f"the context policy of {self.sources['policy']} failed; longrein's own "
                    f"decides: {problem}"
                )
            return decide(*arguments, **more)

        return decide_safely


def load_plugins(
    names: Sequence[str], known_tools: Sequence[str], providers: Mapping[str, Any]
) -> Plugins:
    """Load the parts that each session needs, of bundled extensions and the packages `names`.

    `known_tools`, `providers`: names that are taken. Raises `SettingsError` for a package that is
    not installed, brings nothing or cannot be loaded, and for a part whose name is taken.
    """
    found = Plugins()
    for point in session_points():
        _add(found, point, known_tools, providers)
    for name in names:
        points = plugin_points(name)
        if not points:
            raise SettingsError(
                f"plugin {name} has no entry point of longrein ({', '.join(DOORS)})"
            )
        for point in points:
            _add(found, point, known_tools, providers)
    return found


SESSION_DOORS = (TOOLS_DOOR, PROVIDERS_DOOR, POLICIES_DOOR)
"""Doors whose parts are imported when a session opens; those of others when they are used."""


def session_points() -> list[Point]:
    """Return the parts of bundled extensions that each session needs."""
    return [point for point in bundled_points() if point.door in SESSION_DOORS]


def plugin_points(name: str) -> Sequence[Point]:
    """Return what an installed package adds. Raises `SettingsError` if it is not installed."""
    try:
        return installed_points(name)
    except LookupError:
        raise SettingsError(
            f"plugin {name} is not installed in longrein's Python: install it, or take it out of "
            "`plugins`"
        ) from None


def door_points(door: str, plugins: Sequence[str]) -> list[Point]:
    """Return what comes in by a door: of bundled extensions, then of the packages `plugins`.

    Raises `SettingsError` if one of these is not installed.
    """
    points = list(bundled_points())
    for name in plugins:
        points += plugin_points(name)
    return [point for point in points if point.door == door]


def _add(
    found: Plugins, point: Point, known_tools: Sequence[str], providers: Mapping[str, Any]
) -> None:
    name = point.extension
    if point.door not in SESSION_DOORS:
        kind = point.door.removeprefix("longrein.").removesuffix("s")
        bundled = {(one.door, one.name) for one in bundled_points()}
        _claim(found, f"{kind} {point.name}", name, taken=(point.door, point.name) in bundled)
        return
    loaded = _loaded(point)
    if point.door == TOOLS_DOOR:
        _add_tools(found, name, loaded, known_tools)
    elif not callable(loaded):
        raise SettingsError(f"plugin {name}: {point.value} is no function")
    elif point.door == PROVIDERS_DOOR:
        taken = point.name in providers or known_provider(point.name) is not None
        _claim(found, f"provider {point.name}", name, taken=taken)
        found.providers[point.name] = loaded
    else:
        _claim(found, "policy", name, taken=False)
        found.policy = loaded


def _loaded(point: Point) -> Any:
    try:
        loaded = point.load()
        is_function = point.door == TOOLS_DOOR and not isinstance(loaded, (Tool, list, tuple))
        return loaded() if is_function else loaded
    except Exception as error:
        why = str(error).partition("\n")[0]
        raise SettingsError(
            f"plugin {point.extension}: {point.value} cannot be loaded: "
            f"{type(error).__name__}: {why}"
        ) from error


def _add_tools(found: Plugins, name: str, loaded: Any, known: Sequence[str]) -> None:
    for tool in loaded if isinstance(loaded, (list, tuple)) else [loaded]:
        if not isinstance(tool, Tool):
            raise SettingsError(f"plugin {name}: {tool!r} is no tool; make one with longrein.tool")
        _claim(found, f"tool {tool.spec.name}", name, taken=tool.spec.name in known)
        found.tools.append(tool)


def _claim(found: Plugins, part: str, name: str, *, taken: bool) -> None:
    if taken or part in found.sources:
        owner = found.sources.get(part, "longrein or the settings")
        raise SettingsError(f"plugin {name} brings the {part}, which {owner} has already")
    found.sources[part] = name


# --- Plugins of other agents ----------------------------------------------------------------------
#
# Folders with a manifest, whose skills and commands are used under `plugin:name`.
#
# Read are folders of `--plugin-dir`, `.agents/plugins/<name>/` of a trusted project and of the
# home, and what Claude Code has installed and enabled. Hooks and servers of a plugin are not read
# here.

MANIFESTS = ("plugin.json", ".claude-plugin/plugin.json", ".codex-plugin/plugin.json")
PLUGINS_MAX = 100
"""Plugins read of one place."""


def plugin_folders(
    cwd: str, home: str, trusted: Callable[[str], bool], given: Sequence[str] = ()
) -> tuple[tuple[SkillFolder, ...], tuple[SkillFolder, ...]]:
    """Return (folders of skills, folders of commands) of all plugins.

    `given`: absolute folders that flags name; one without a manifest has the name of the folder.
    """
    named = [
        (path, "", next(_plugin(path, ""), ("", "", os.path.basename(path)))[2]) for path in given
    ]
    plugins = [*named, *_plugins(cwd, home, trusted)]
    skills, commands = (
        tuple(
            SkillFolder(f"{path}/{part}", root, f"{name}:", _variables(path))
            for path, root, name in plugins
            if os.path.isdir(f"{path}/{part}")
        )
        for part in ("skills", "commands")
    )
    return skills, commands


def _variables(path: str) -> tuple[tuple[str, str], ...]:
    return (("CLAUDE_PLUGIN_ROOT", path), ("PLUGIN_ROOT", path))


def _plugins(cwd: str, home: str, trusted: Callable[[str], bool]) -> Iterator[tuple[str, str, str]]:
    """Yield (folder, root that its files must not leave, name)."""
    root = project_root(cwd)
    places = [(f"{root}/.agents/plugins", root)] if root != home and trusted(root) else []
    for place, inside in (*places, (f"{home}/.agents/plugins", "")):
        try:
            with os.scandir(place) as listed:
                names = sorted(entry.name for entry in islice(listed, PLUGINS_MAX))
        except OSError:
            continue
        for name in names:
            yield from _plugin(f"{place}/{name}", inside)
    for path in _installed(home):
        yield from _plugin(path, "")


def _plugin(path: str, root: str) -> Iterator[tuple[str, str, str]]:
    for manifest in MANIFESTS:
        name = str(read_table(f"{path}/{manifest}", "")[0].get("name") or "")
        if name and name.isprintable() and not set(name) & set(' :<>&"/'):
            yield path, root, name
            return


def _installed(home: str) -> Iterator[str]:
    """Yield the folders of the plugins that Claude Code has installed and enabled."""
    plugins = read_table(f"{home}/.claude/plugins/installed_plugins.json", "")[0].get("plugins")
    enabled = (
        read_table(f"{home}/.claude/settings.json", "")[0].get("enabledPlugins")
        if plugins
        else None
    )
    if not isinstance(plugins, Mapping) or not isinstance(enabled, Mapping):
        return
    for name, installs in islice(plugins.items(), PLUGINS_MAX):
        first = installs[0] if isinstance(installs, list) and installs else installs
        path = first.get("installPath") if isinstance(first, Mapping) else None
        if enabled.get(name) is True and isinstance(path, str) and os.path.isabs(path):
            yield path
