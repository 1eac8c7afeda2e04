"""Extension points: the doors by which an extension adds parts to longrein, and who uses them.

A bundled extension is a folder of `longrein/extensions` with a file `entry_points.txt`; the fleet
is a package of its own, `longrein_fleet`. Any other installed package has the same file in its
metadata, and counts when the user's settings name it. To look for parts imports none of them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

COMMANDS_DOOR = "longrein.commands"
TOOLS_DOOR = "longrein.tools"
PROVIDERS_DOOR = "longrein.providers"
POLICIES_DOOR = "longrein.policies"
SESSION_PARTS_DOOR = "longrein.session_parts"
SUBAGENT_HOSTS_DOOR = "longrein.subagent_hosts"
TRUST_DOOR = "longrein.trust"
OBSERVERS_DOOR = "longrein.observers"
EXPORTERS_DOOR = "longrein.exporters"
IMPORTERS_DOOR = "longrein.importers"
SETTINGS_DOOR = "longrein.settings"
STORES_DOOR = "longrein.stores"

DOORS: Mapping[str, str] = {
    COMMANDS_DOOR: "a `Command` of the command line, called like the entry point",
    TOOLS_DOOR: "a tool, a list of tools, or a function that returns tools",
    PROVIDERS_DOOR: "a function from the name of a model to a model, called like the provider",
    POLICIES_DOOR: "a function with the arguments of `longrein.context.decide`; at most one in all",
    SESSION_PARTS_DOOR: "a function that makes an `ExtensionPart` of each session",
    SUBAGENT_HOSTS_DOOR: "a function that makes a `SubagentHost`, called like its `location`",
    TRUST_DOOR: "a `Kind` of files that are used only in a trusted folder",
    OBSERVERS_DOOR: "a function that gets each session when it has opened",
    EXPORTERS_DOOR: "a function from a stored session to bytes, called like the format",
    IMPORTERS_DOOR: "a function that makes a session of a file of another program",
    STORES_DOOR: "a function from an address to a `SessionStore`, called like the scheme",
    SETTINGS_DOOR: "a struct of settings: the table of config.toml called like the entry point",
}
"""Public doors: group of entry points -> what an entry point of it names. A door may change only
with a new major version of longrein; docs/extending.md describes them.
"""

BUNDLED: Mapping[str, tuple[str, ...]] = {
    "acp": ("acp",),
    "fleet": ("fleet",),
    "inspector": ("inspect",),
    "mcp": ("mcp",),
    "schedules": ("schedule",),
    "traces": (),
    "transcripts": (),
}
"""Extensions that come with longrein -> their commands, to say what is absent. Nothing is found
by this table.
"""

OWN_PACKAGES: Mapping[str, str] = {"fleet": "longrein_fleet"}
"""Bundled extension that is a distribution of its own, `longrein[NAME]` -> its package."""
FOLDER = os.path.join(os.path.dirname(__file__), "extensions")
ENTRY_POINTS_FILE = "entry_points.txt"


class Point(NamedTuple):
    """A part that an extension adds."""

    extension: str
    """Name of the bundled extension or of the installed package."""
    door: str
    """One of `DOORS`; entry points of other groups are not for longrein."""
    name: str
    value: str
    """Place of the part, as `module:name`."""

    def load(self) -> Any:
        """Import the part. Raises what its module raises."""
        return load_object(self.value)


def load_object(place: str) -> Any:
    """Import `module:name`. Raises `ImportError`, `AttributeError`, or what the module raises."""
    module, _, names = place.partition(":")
    found: Any = import_module(module.strip())
    for name in filter(None, names.strip().split(".")):
        found = getattr(found, name)
    return found


@cache
def bundled_extensions() -> Mapping[str, str]:
    """Return the bundled extensions that are here: name -> folder, sorted."""
    try:
        found = {name: f"{FOLDER}/{name}" for name in os.listdir(FOLDER)}
    except OSError:  # the whole folder has been deleted
        found = {}
    for name, package in OWN_PACKAGES.items():
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            found[name] = spec.submodule_search_locations[0]
    return {name: found[name] for name in sorted(found) if os.path.isfile(_file(found[name]))}


@cache
def bundled_points() -> tuple[Point, ...]:
    """Return the parts of the bundled extensions that are here."""
    points: list[Point] = []
    for name, folder in bundled_extensions().items():
        with open(_file(folder), encoding="utf-8") as file:
            points += _points(name, file.read())
    return tuple(points)


def _file(folder: str) -> str:
    return f"{folder}/{ENTRY_POINTS_FILE}"


def _points(extension: str, text: str) -> Iterator[Point]:
    door = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            door = line[1:-1]
        elif "=" in line:
            name, _, value = line.partition("=")
            yield Point(extension, door, name.strip(), value.strip())


def installed_points(package: str) -> tuple[Point, ...]:
    """Return the parts of an installed package, none where it has no entry point for longrein.

    Raises `LookupError` if the package is not installed.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        points = distribution(package).entry_points
    except (PackageNotFoundError, ValueError):
        raise LookupError(package) from None
    return tuple(
        Point(package, one.group, one.name, one.value) for one in points if one.group in DOORS
    )


def absent_extensions() -> tuple[str, ...]:
    """Return the extensions that come with longrein and have been deleted here."""
    return tuple(name for name in BUNDLED if name not in bundled_extensions())


def absence_of(command: str) -> str:
    """Return why there is no such command, where an extension that is absent has it; else ''."""
    for name in absent_extensions():
        if command in BUNDLED[name]:
            how = f": pip install 'longrein[{name}]'" if name in OWN_PACKAGES else ""
            return f"it belongs to the extension {name}, which is not installed here{how}"
    return ""


# --- Commands -------------------------------------------------------------------------------------

FlagKind = Literal["switch", "word", "text", "maybe", "rules", "words", "count", "money"]
"""`text`: may be empty; `maybe`: the value is optional; `rules`: split at commas and blanks;
`words`: may be given several times.
"""


class Flag(NamedTuple):
    """A flag."""

    names: tuple[str, ...]
    """Spellings; the last one is shown in messages."""
    field: str
    """Field of `Options`, or argument of the command's function, that it sets."""
    kind: FlagKind
    """Kind of its value."""
    help: str
    """Line for the help page."""
    metavar: str = ""
    """Name of its value in the help; '' for switches."""
    choices: tuple[str, ...] = ()
    """Allowed values; () for any."""
    group: str = "Settings and state"
    """Heading on the help page of longrein itself."""

    @property
    def name(self) -> str:
        """The spelling used in messages."""
        return self.names[-1]


def flag(
    names: str,
    help: str,  # noqa: A002
    kind: FlagKind = "switch",
    metavar: str = "",
    choices: tuple[str, ...] = (),
    *,
    field: str = "",
    group: str = "Settings and state",
) -> Flag:
    """Make a flag. `field`: where it is not the first long one of `names`."""
    spelled = tuple(names.split())
    long = next(name for name in spelled if name.startswith("--"))
    return Flag(spelled, field or long[2:].replace("-", "_"), kind, help, metavar, choices, group)


STATE_DIR = flag("--state-dir", "where sessions are kept (LONGREIN_STATE_DIR)", "word", "DIR")
HELP = flag("-h --help", "show this page and exit")
JSON = flag("--json", "one JSON array")


class Command(NamedTuple):
    """`longrein` itself or one of its subcommands."""

    name: str
    """'' for longrein itself."""
    usage: str
    """Arguments, as shown in the help."""
    help: str
    """Description in the help."""
    flags: tuple[Flag, ...] = (HELP,)
    """Its flags, `HELP` last."""
    words_max: int = 0
    """Largest number of positional words."""
    words_min: int = 0
    """Smallest number of positional words."""
    run: str | Callable[..., int] = ""
    """Function, or its place as `module:name`: `run(place, words, **flags)` returns the exit code.
    '' for a function of the core that is called like its module in `longrein.commands`.
    """
    after: str = ""
    """Command behind which the help lists it; '' for the end."""
