"""Data between the terminal and its caller: facts and callbacks in, an `Outcome` out."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from longrein.agent.extension_part import SlashCommand
from longrein.context import LineReason, Report
from longrein.frontends.secret_input import KeyCommands
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.command_facts import CommandFacts
from longrein.frontends.terminal.input_facts import InputFacts
from longrein.settings_schema import TerminalOptions
from longrein.tools import GoalPort, SessionHistory, SkillInfo


class FilesFound(msgspec.Struct, frozen=True):
    """Completions of a file name after `@`."""

    paths: Sequence[str]
    """Paths relative to the folder, best first."""
    note: str = ""
    """Reason why the list is incomplete; '' when it is complete."""


CompleteFiles = Callable[[str], Awaitable[FilesFound]]
"""Text after `@` -> matching files."""


ReadHistory = Callable[[Callable[[SessionHistory], Any]], Awaitable[Any]]


async def _no_tail(_task: str, _lines: int) -> str:
    return ""


async def _no_notices() -> Sequence[str]:
    return ()


StatusCommand = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Data about the session -> what the user's command for the status line prints. Raises
`LongreinError`.
"""


class TerminalFacts(msgspec.Struct, frozen=True):
    """Facts and callbacks that the terminal needs beside the session."""

    model: str
    """`provider/model` at the start; later changes come from the log."""
    cwd: str
    version: str
    notices: tuple[str, ...] = ()
    colour: bool = True
    """False for NO_COLOR."""
    window_tokens: Callable[[], int] = lambda: 0
    """Usable window of the current model; 0 when unknown."""
    context_report: Callable[[], Report | None] = lambda: None
    """Report for `/context`."""
    reasons: Callable[[str], Sequence[LineReason]] = lambda _handle: ()
    """Reasons why lines of an item are kept or cleared, for `/context rN`."""
    analysis: Callable[[], Sequence[str]] = tuple
    """Lines of `/compact --dry-run`."""
    sessions: Callable[[], Awaitable[Sequence[Row]]] | None = None
    """Sessions of this folder, newest first: id, title, time of the last use."""
    models: Callable[[], Sequence[str]] = tuple
    """Models to choose from, as `provider/model`."""
    file_text: Callable[[str], str | None] | None = None
    """Current text of a file, for the diff of a `Write`; None when there is no such file."""
    wall_us: Callable[[], int] = lambda: 0
    """Current time, microseconds UTC."""
    custom_commands: Callable[[], Sequence[SkillInfo]] = tuple
    """Skills and commands of files that the user can name with a slash."""
    task_tail: Callable[[str, int], Awaitable[str]] = _no_tail
    """(task id, number of lines) -> last lines of its output, for `/tasks ID`. Raises
    `LongreinError`.
    """
    hooks: Callable[[], Sequence[tuple[str, str]]] = tuple
    """(what it is about and runs, file that it comes from) of each hook, for `/hooks`."""
    commands: CommandFacts = CommandFacts()
    """Callbacks of the commands about session, settings and files."""
    goals: GoalPort | None = None
    slash_commands: Callable[[], Sequence[SlashCommand]] = tuple
    """Slash commands of extensions."""
    sandbox: Callable[[], str] = lambda: ""
    """Confinement of commands, for the footer: `bubblewrap`, `landlock`, `no sandbox`."""
    leave_policy: str = "ask"
    """Policy for running tasks when the user leaves: `ask`, `stop` or `keep`."""
    read_history: "ReadHistory | None" = None
    """Runs a function on the session's log in a thread, for Ctrl-O and `/show`; None when the
    log is not on disk.
    """
    is_root: bool = False
    """True if longrein runs as root."""
    input: InputFacts = InputFacts()
    """Keys, attachments, drafts and files of instructions."""
    choosing: bool = False
    """True if the list of sessions is opened first (`longrein -r`)."""
    options: TerminalOptions = TerminalOptions()
    environ: Mapping[str, str] = {}
    """Variables that tell what the terminal can do."""
    status_line: StatusCommand | None = None
    """Command of the user that makes a status line; None without one."""
    chosen: str = ""
    """The model and where its key comes from, for the line below the head."""
    later_notices: Callable[[], Awaitable[Sequence[str]]] = _no_notices
    """Notices that take a while, shown once they are there."""
    keys: KeyCommands | None = None
    """For `/login` and `/logout`."""


END_REASONS = {
    "exit": "prompt_input_exit",
    "switch": "resume",
    "new": "clear",
    "watch": "resume",
    "copy": "resume",
}
"""Kind of an outcome -> reason for hooks of the session's end."""


class Outcome(msgspec.Struct, frozen=True):
    """Reason for leaving the terminal. The session is closed by then."""

    kind: Literal["exit", "switch", "new", "watch", "copy"]
    """`switch`: open `session` next; `new`: open a new one; `watch`: show `session`, then come
    back; `copy`: open a copy of `session`.
    """
    session: str = ""
    folder: str = ""
    """Folder that the next session may work in, too."""
    code: int = 0
    tasks: Literal["", "stop", "keep"] = ""
    """The user's decision about running tasks; '' for each task's own policy."""

    @property
    def end_reason(self) -> str:
        """Reason for hooks of the session's end; a signal is `other`."""
        return "other" if self.code else END_REASONS[self.kind]
