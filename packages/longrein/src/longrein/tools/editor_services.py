"""Tools of a session in an editor: files with unsaved text, and commands in the editor's
terminals.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longrein.tools.file_access import HANDLED_BYTES_MAX
from longrein.tools.tool_port import (
    BackgroundedCommand,
    Outcome,
    ShellCommand,
    TaskPort,
    Tool,
    ToolContext,
)
from longrein.workspace import (
    CommandExit,
    Confinement,
    SharedFolders,
    Spawner,
    Workspace,
    open_workspace,
)
from longrein.workspace.editor_workspace import EditorFiles, EditorWorkspace
from longrein.workspace.supervisor.shell_lines import FILTER, FOLDER_CHANGES, LANDLOCK, MOUNTS


class EditorCommand(msgspec.Struct, frozen=True):
    """A command for a terminal of the editor."""

    call: str
    words: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout_s: float
    output_bytes_max: int


class EditorTerminals(Protocol):
    """Terminals of the editor."""

    async def run(self, command: EditorCommand) -> tuple[CommandExit, bytes] | None:
        """Run a command to its end: how it ended, and its output. None when the editor opens no
        terminal.

        Cancellation ends the command; its output is lost.
        """
        ...


class Editor(msgspec.Struct, frozen=True):
    """Services of an editor for a session."""

    files: EditorFiles | None = None
    terminals: EditorTerminals | None = None

    def open_workspace(
        self,
        roots: Sequence[str],
        *,
        spawner: Spawner,
        environment: Mapping[str, str],
        keep_env: Sequence[str],
        shared: Callable[[], SharedFolders],
    ) -> Workspace:
        """Open the workspace of a session, over the editor's buffers where it gives them."""
        if self.files is not None:
            return EditorWorkspace(roots, spawner, environment, keep_env, self.files, shared)
        return open_workspace(
            roots, spawner=spawner, environment=environment, keep_env=keep_env, shared=shared
        )

    def wrap(self, tool: Tool) -> Tool:
        """Return `tool` as it works in this editor."""
        return through_editor(tool, self)


def through_editor(tool: Tool, editor: Editor) -> Tool:
    """Return a tool that sees unsaved text, or runs its commands in a terminal of the editor; else
    the tool itself.

    A path is asked for after it was allowed, and only where it still leads to the place that was
    allowed.
    """
    if tool.access in ("read", "write") and editor.files is not None:

        async def with_buffers(context: ToolContext, /, **arguments: Any) -> Outcome:
            for path, _ in tool.paths(arguments):
                await _refresh(context, path)
            return await tool.run(context, **arguments)

        return msgspec.structs.replace(tool, run=with_buffers)
    if tool.access == "command" and tool.traits.kind == "shell" and editor.terminals is not None:
        terminals = editor.terminals

        async def in_terminal(context: ToolContext, /, **arguments: Any) -> Outcome:
            if context.commands.tasks is not None:
                run = TerminalCommands(context, context.commands.tasks, terminals).run
                commands = msgspec.structs.replace(context.commands, run=run)
                context = msgspec.structs.replace(context, commands=commands)
            return await tool.run(context, **arguments)

        return msgspec.structs.replace(tool, run=in_terminal, traced=False)
    return tool


async def _refresh(context: ToolContext, path: str) -> None:
    workspace = context.workspace
    if not isinstance(
        workspace, EditorWorkspace
    ):  # of a subagent in a git worktree, which no editor has open
        return
    place = workspace.resolve(path, context.cwd)
    allowed = context.files.judged.get(path, place.real) == place.real
    if allowed and place.kind == "file" and place.size_bytes <= HANDLED_BYTES_MAX:
        await workspace.refresh(place.real)


LAUNCH = (
    'names=$1; shift; kept=(); for name in $names; do kept+=("$name=${!name}"); done; exec '
    'env -i "${kept[@]}" "$@"'
)
"""Shell text that starts a command with the named variables only: an editor adds its whole
environment.
"""
FILTER_DESCRIPTOR = "9"
OUTPUT_BYTES_MAX = 8 * 1024 * 1024
"""Output that a terminal of the editor keeps: it comes in one message."""


def terminal_words(
    command: str, env: Mapping[str, str], confinement: Confinement | None
) -> tuple[str, ...] | None:
    """Return the words that run a shell command with `env` alone, in the sandbox; None where that
    cannot be.

    Landlock is set up by a parent process of longrein's own, which a terminal of the editor has
    not.
    """
    names = " ".join(env)
    inner = ("bash", "-c", command)
    if confinement is None:
        return ("bash", "-c", LAUNCH, "longrein", names, *inner)
    if LANDLOCK in confinement.words:
        return None
    words = list(confinement.words)
    if words[0] == MOUNTS:
        from longrein.workspace.supervisor.mount_process import helper_words

        words = [*helper_words(sys.executable, words[1]), *words[2:]]
    front = [FILTER_DESCRIPTOR if word == FILTER else word for word in words]
    launch = (
        f'filter=$1; shift; {LAUNCH} {FILTER_DESCRIPTOR}<"$filter"'
        if confinement.filter
        else LAUNCH
    )
    more = (confinement.filter,) if confinement.filter else ()
    return ("bash", "-c", launch, "longrein", *more, names, *front, *inner)


class TerminalCommands:
    """Commands of one call: in the foreground in a terminal of the editor, else as in any
    session.
    """

    def __init__(self, context: ToolContext, tasks: TaskPort, terminals: EditorTerminals) -> None:
        self._context = context
        self._tasks = tasks
        self._terminals = terminals

    async def run(self, command: ShellCommand) -> CommandExit | BackgroundedCommand:
        """See `TaskPort.run`. A command that may change the folder is run without the editor,
        which reports none.
        """
        if not command.background and not any(word in command.command for word in FOLDER_CHANGES):
            made = self._made(command)
            ended = await self._terminals.run(made) if made is not None else None
            if ended is not None:
                command.sink.write(ended[1])
                return ended[0]
        return await self._tasks.run(command)

    def _made(self, command: ShellCommand) -> EditorCommand | None:
        context = self._context
        sandbox = context.commands.sandbox if not command.outside_sandbox else None
        try:
            confinement = sandbox.confine(context.cwd) if sandbox is not None else None
        except OSError:
            return None  # reported where the command is then run
        env = context.commands.environment(context.workspace, outside=command.outside_sandbox)
        env |= confinement.env if confinement else {}
        words = terminal_words(command.command, env, confinement)
        if words is None:
            return None
        output_bytes_max = min(context.options.output_bytes_max, OUTPUT_BYTES_MAX)
        return EditorCommand(
            command.call, words, context.cwd, env, command.timeout_s, output_bytes_max
        )
