"""Facts from the terminal's caller for slash commands about the session, its settings and its
files.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from longrein.frontends.reports.cost import CostRow


class RuleRow(msgspec.Struct, frozen=True):
    """A permission rule in force."""

    kind: str
    """`allow`, `ask` or `deny`."""
    rule: str
    origin: str
    """The file, flag or variable that it comes from; `this session` for an answer of this run."""
    removable: bool
    """True for a rule of this session or of the user's own settings file."""


class MemoryFile(msgspec.Struct, frozen=True):
    """An instruction file."""

    path: str
    shown: str
    """The path for display."""
    size_bytes: int
    """-1 for a file that is not there yet."""
    use: str
    """`read`, or why not."""


class ChangedFile(msgspec.Struct, frozen=True):
    """A file that the session changed."""

    path: str
    shown: str
    before: str | None
    """Text before the session's first change, '' for a new file; None when it was not kept or is
    no text.
    """
    after: str | None
    """Text on disk now, '' for a removed file; None when it is no text."""


async def _nothing() -> Sequence[str]:
    return ()


async def _no_costs() -> Sequence[CostRow]:
    return ()


async def _no_changes() -> Sequence[ChangedFile]:
    return ()


async def _no_git(_words: Sequence[str]) -> tuple[int, str]:
    return 127, ""


async def _no_text(_: str) -> str:
    return ""


async def _no_preview(_: str) -> Sequence[str]:
    return ()


class CommandFacts(msgspec.Struct, frozen=True):
    """Callbacks of the slash commands. The defaults know nothing."""

    environ: Mapping[str, str] = {}
    """Variables of the environment."""
    status: Callable[[], Sequence[tuple[str, str]]] = tuple
    """(what, how it is) for `/status`."""
    settings: Callable[[], Sequence[tuple[str, str, str]]] = tuple
    """(key, value, origin) of each setting that is not built in."""
    settings_file: str = ""
    """The user's settings file."""
    doctor: Callable[[], Awaitable[Sequence[str]]] = _nothing
    """Lines of `longrein doctor`."""
    rules: Callable[[], Sequence[RuleRow]] = tuple
    remove_rule: Callable[[RuleRow], None] = lambda _: None
    """Raises `LongreinError`."""
    memory: Callable[[], Sequence[MemoryFile]] = tuple
    changes: Callable[[], Awaitable[Sequence[ChangedFile]]] = _no_changes
    git: Callable[[Sequence[str]], Awaitable[tuple[int, str]]] = _no_git
    """Runs git in the session's folder: (exit code, output)."""
    effort: Callable[[], str] = str
    """Effort of thinking; '' for the provider's default."""
    efforts: Sequence[str] = ()
    set_effort: Callable[[str], str] = lambda _: ""
    """Sets the effort for the next model that is opened; returns the name of the present one."""
    costs: Callable[[], Awaitable[Sequence[CostRow]]] = _no_costs
    answer: Callable[[int], Awaitable[str]] | None = None
    """(N) -> text of the last answer but N - 1; '' when there is none."""
    export: Callable[[str], Awaitable[str]] = _no_text
    """Writes the session to a file ('' for a name of its own); returns the line about it. Raises
    `LongreinError`.
    """
    fork: Callable[[], Awaitable[str]] | None = None
    """Copies the session; returns the id of the copy."""
    folder: Callable[[str], str] = lambda path: path
    """Absolute path of a folder that the user names. Raises `UsageError`."""
    folders: Callable[[], Sequence[str]] = tuple
    """Folders that the session may work in."""
    is_open: Callable[[str], bool] = lambda _: False
    """True for a session that another process has open."""
    preview: Callable[[str], Awaitable[Sequence[str]]] = _no_preview
    """Lines about a stored session: figures and the last exchange."""
