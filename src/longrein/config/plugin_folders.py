"""Plugins of other agents: folders with a manifest, whose skills and commands are used under
`plugin:name`.

Read are folders of `--plugin-dir`, `.agents/plugins/<name>/` of a trusted project and of the home,
and what Claude Code has installed and enabled. Hooks and servers of a plugin are not read here.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from longrein.config.bounded_file import read_table
from longrein.config.instructions import project_root
from longrein.config.skill_files import SkillFolder

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
