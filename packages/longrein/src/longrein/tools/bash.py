"""`Bash` tool: runs a shell command and reports its output, its end and the folder it changed
to.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence

from longrein.settings_schema import ToolOptions
from longrein.store import BlobWriter
from longrein.tools.file_access import encodable, one_line, refuse_marker
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import clean, cut_head, cut_tail, size_words
from longrein.tools.tool_port import BackgroundedCommand, Outcome, ShellCommand, ToolContext
from longrein.workspace import CommandExit, CommandSpec
from longrein_context.events import (
    AnyEvent,
    AnyPart,
    CwdSet,
    Document,
    Text,
    ToolError,
    positive_number,
)

# --- Output of a running command: both ends in memory, the whole in a blob ------------------------


SLACK = 4
"""Factor by which the tail may exceed its size before it is cut, so that cutting is rare."""


class CommandOutput:
    """Sink for the output of one command (`workspace.ReplayableSink`). `parts` finishes it."""

    def __init__(self, context: ToolContext) -> None:
        self.size_bytes = 0
        self.lines = 0
        self._options = context.options
        self._note: Callable[[bytes], None] = context.note
        self._new_blob = context.blobs.new_blob
        self._start = bytearray()
        self._tail = bytearray()
        self._writer: BlobWriter | None = None
        self._spilled = False
        self._lost: OSError | None = None

    def write(self, data: bytes) -> None:
        """Add output. Never raises: output that cannot be stored is counted and reported."""
        self.size_bytes += len(data)
        if not self._spilled and self.size_bytes <= self._options.output_inline_bytes:
            self._start += data
        else:
            self._spill(data)
        self._note(data)

    def _spill(self, data: bytes) -> None:
        if not self._spilled:
            self._spilled = True
            data = bytes(self._start) + data
            self._start = bytearray(data[: self._options.head_bytes + 1])
        self.lines += data.count(b"\n")
        most = self._options.tail_bytes + 1
        self._tail += data[-most:]
        if len(self._tail) > SLACK * most:
            del self._tail[:-most]
        if self._lost is not None:
            return
        try:
            if self._writer is None:
                self._writer = self._new_blob()
            self._writer.write(data)
        except OSError as error:
            self._lost = error

    @property
    def lost(self) -> str:
        """Reason why part of the output could not be stored (a full disk); '' when all of it
        was.
        """
        return "" if self._lost is None else self._lost.strerror or str(self._lost)

    def parts(self, name: str, note: str) -> tuple[AnyPart, ...]:
        """Return the output as content, followed by `note` (how the command ended; may be
        empty).
        """
        if not self._spilled:
            return (Text("\n".join(filter(None, (self._text(), note))) or "(no output)"),)
        head = clean(cut_head(bytes(self._start), self._options.head_bytes))
        tail = clean(cut_tail(bytes(self._tail), self._options.tail_bytes))
        blob = self._finish()
        if self.lost:
            note = "\n".join(filter(None, (f"[the output was not kept whole: {self.lost}]", note)))
        if not blob:
            return (Text(f"{head}\n[…]\n{tail}\n{note}"),)
        lines = self.lines + (0 if self._tail.endswith(b"\n") else 1)
        document = Document(blob, "text/plain", self.size_bytes, name, lines, head, tail)
        return (document, Text(note)) if note else (document,)

    @property
    def raw(self) -> bytes:
        """Exact inline output when cleaning changed it, else b''. A document holds its own exact
        bytes.
        """
        raw = b"" if self._spilled else bytes(self._start)
        return b"" if raw == self._text().encode() else raw

    def _text(self) -> str:
        """Return the inline output as safe text."""
        return clean(bytes(self._start)).rstrip("\n")

    def ends(self) -> bytes:
        """Return the first and the last bytes, to look for known messages."""
        return bytes(self._start + self._tail)

    def pieces(self) -> Iterator[bytes]:
        """See `workspace.ReplayableSink`: the output so far, for a command that continues in the
        background.
        """
        if self._writer is not None:
            yield from self._writer.pieces()
        elif not self._spilled:
            yield bytes(self._start)
        if self._lost is not None:
            raise self._lost

    def so_far(self) -> str:
        """Return the output so far, or its end, and discard the blob: the background task keeps
        all output.
        """
        if self._writer is not None:
            self._writer.discard()
            self._writer = None
        kept = (
            cut_tail(bytes(self._tail), self._options.tail_bytes)
            if self._spilled
            else bytes(self._start)
        )
        text = clean(kept).rstrip("\n")
        return f"[its end so far; TaskOutput shows more]\n{text}" if self._spilled else text

    def _finish(self) -> str:
        if self._writer is None:
            return ""
        try:
            return self._writer.finish()
        except OSError as error:
            self._lost = error
            return ""


# --- The tool -------------------------------------------------------------------------------------


async def Bash(
    context: ToolContext,
    command: str,
    description: str = "",
    timeout: int | None = None,
    run_in_background: bool = False,
    outside_sandbox: str = "",
) -> Outcome:
    """Run a shell command: tests, builds, git, programs. A cd inside the session's folders lasts,
    variables do not. No terminal, no input: use flags such as -y, never an editor or pager. You
    get stdout and stderr together, and the exit code unless it is 0. Servers and what takes
    minutes: run_in_background, never &.

    timeout: Milliseconds; default 120000, at most 600000.
    outside_sandbox: Only if the sandbox stopped it: why. The user is asked.
    """
    _check_command(context, command)
    output = CommandOutput(context)
    limit_s = time_limit(timeout, context.options)
    sandbox = context.commands.sandbox if not outside_sandbox else None
    if sandbox is not None:
        sandbox.begin()
    try:
        task_limit_s = positive_number(timeout) / 1000 if run_in_background else limit_s
        background, outside = run_in_background, bool(outside_sandbox)
        came = await _run(
            context, command, task_limit_s, output, background=background, outside=outside
        )
    except asyncio.CancelledError:
        came = CommandExit(None, cause="interrupt")
    finally:
        if sandbox is not None:
            sandbox.end()
    made = [f"[{line}]" for line in sandbox.take_report().lines()] if sandbox is not None else []
    if isinstance(came, BackgroundedCommand):
        message = background_message(came, output.so_far(), limit_s)
        return Outcome.of("\n".join((message, *made)))
    cwd_note, facts = folder_change(context, came)
    stopped = ""
    if sandbox is not None and (came.code or "|" in command):
        printed, failed = output.ends(), bool(came.code)
        stopped = sandbox_note(printed, network=sandbox.network, failed=failed)
    refused = hosts_note(sandbox.refused_hosts) if sandbox is not None else ""
    notes = (
        f"[{context.commands.stop_reason()}; the command was ended]"
        if came.cause == "interrupt"
        else exit_note(came, context.options, limit_s),
        cwd_note,
        refused or stopped,
        *made,
    )
    note = "\n".join(filter(None, notes))
    parts = output.parts(one_line(description or command)[:80], note)
    if came.cause == "interrupt":
        return Outcome(parts, facts, "interrupted", output.raw)
    return Outcome(
        parts, facts, "ok" if came.cause == "exit" and came.code == 0 else "failed", output.raw
    )


def _check_command(context: ToolContext, command: str) -> None:
    """Raise `ToolError` for a command that is not to be run or that no shell could take."""
    refuse_marker(context, command)
    if not command.strip():
        raise ToolError("[empty] The command is empty; nothing was run. Give one.")
    if "\0" in command or not encodable(command):
        raise ToolError(
            "[bad-command] The command holds a NUL or an invalid character; nothing was "
            "run. Leave it out."
        )


async def _run(
    context: ToolContext,
    command: str,
    limit_s: float,
    output: CommandOutput,
    *,
    background: bool,
    outside: bool,
) -> CommandExit | BackgroundedCommand:
    if context.commands.tasks is not None:
        run = context.commands.run or context.commands.tasks.run
        return await run(ShellCommand(command, context.call, output, limit_s, background, outside))
    if background:
        raise ToolError(
            "[no-background] Nothing can run in the background here; nothing was run. Call "
            "again without run_in_background."
        )
    try:
        confinement = (
            context.commands.sandbox.confine(context.cwd)
            if context.commands.sandbox is not None and not outside
            else None
        )
    except OSError as error:
        raise ToolError(
            f"[sandbox] The sandbox could not be set up ({error.strerror}); nothing was run. Try "
            "again, or tell the user."
        ) from None
    return await context.workspace.spawner.run(
        CommandSpec(
            command,
            context.cwd,
            context.commands.environment(context.workspace, outside=outside),
            confinement,
            traced=True,
        ),
        sink=output,
        timeout_s=limit_s,
        output_bytes_max=context.options.output_bytes_max,
    )


_STOPPED_WRITE = (b"Read-only file system", b"EROFS", b"Device or resource busy", b"EBUSY")
_STOPPED_CALL = (b"Operation not permitted", b"EPERM", b"Permission denied", b"EACCES")
_STOPPED_NETWORK = re.compile(
    rb"(?i)could not resolve host|name resolution|getaddrinfo|network is "
    rb"unreachable|ENETUNREACH|EAI_AGAIN|ENOTFOUND"
    rb"|no such host|nodename nor servname|failed to lookup address|unable to connect|dns error"
)
REFUSALS_SHOWN = 5
_LEAVE = "outside_sandbox asks the user to run it without"


def hosts_note(refused: Sequence[str]) -> str:
    """Return a line about the hosts that the sandbox refused while a command ran; '' for none."""
    reasons = [one_line(reason) for reason in refused]
    more = f"; and {len(reasons) - REFUSALS_SHOWN} more" if len(reasons) > REFUSALS_SHOWN else ""
    return (
        f"[the sandbox refused hosts: {'; '.join(reasons[:REFUSALS_SHOWN])}{more}]"
        if reasons
        else ""
    )


def sandbox_note(printed: bytes, *, network: str, failed: bool = True) -> str:
    """Return a line about the sandbox for the output of a command that it probably stopped; '' for
    others.

    A pipeline hides that a program in it `failed`; then only clear messages count.
    """
    if printed.startswith(b"bwrap: "):
        return f"[the sandbox could not be set up, so nothing was run; {_LEAVE}]"
    if network == "proxy" and _STOPPED_NETWORK.search(printed):
        return (
            "[the sandbox reaches hosts by its proxy (HTTPS_PROXY) only, which not every "
            f"program uses; {_LEAVE}]"
        )
    if network == "none" and _STOPPED_NETWORK.search(printed):
        return f"[the sandbox has no network: that is probably why it failed; {_LEAVE}]"
    if any(word in printed for word in _STOPPED_WRITE[: None if failed else 1]):
        where = (
            "only the session's folders and /tmp can be written, and settings and hooks in "
            "them cannot"
        )
        return f"[the sandbox probably stopped a write: {where}; {_LEAVE}]"
    if failed and any(word in printed for word in _STOPPED_CALL):
        return f"[the sandbox may have caused this; {_LEAVE}]"
    return ""


_ENDLESS = re.compile(
    r"(?:^|[;&(|])\s*(watch|tail|journalctl)\b(?:(?<=watch)|[^;&|]*\s(?:-\w*[fF]\w*|--follow))"
    r"(?![^\s=])[^;&|]*$"
)
"""A command whose last program shows a file or a state until somebody ends it."""


def background_message(kept: BackgroundedCommand, printed: str, limit_s: float) -> str:
    """Return the result of a command that continues in the background."""
    task = kept.task
    look = (
        "A note tells its end; until then TaskOutput shows what it prints and "
        f"TaskStop({task.id}) ends it."
    )
    match kept.why:
        case "timeout":
            endless = _ENDLESS.search(task.command)
            found = f"{endless[1]} never ends by itself; " if endless else ""
            how = (
                f"[{found}not over after {limit_s:g} s: it goes on in the background as {task.id}. "
                f"{look}]"
            )
        case "user":
            how = f"[the user sent it to the background: it goes on as {task.id}. {look}]"
        case _ if task.state == "queued":
            return (
                f"Queued as {task.id}: as many tasks as may run at once do. It starts when one "
                f"ends. {look}"
            )
        case _:
            return f"Started in the background as {task.id}. {look} Do not wait for it: go on."
    return "\n".join(filter(None, (printed or kept.tail, how)))


def time_limit(timeout: int | None, options: ToolOptions) -> float:
    """Return the time limit in seconds. Raises `ToolError` for a limit that is not positive."""
    if timeout is None:
        return options.bash_timeout_s
    if timeout <= 0:
        raise ToolError(
            "[bad-timeout] timeout is in milliseconds and must be above 0; nothing was run. "
            "Give 120000 for two minutes."
        )
    return min(timeout, options.bash_timeout_max_s * 1000) / 1000


def exit_note(ended: CommandExit, options: ToolOptions, limit_s: float) -> str:
    """Describe how the command ended, in one bracketed line; '' for exit code 0."""
    match ended.cause:
        case "timeout":
            most = int(options.bash_timeout_max_s * 1000)
            return f"[timed out after {limit_s:g} s and was ended; timeout may be up to {most} ms]"
        case "terminal":
            return (
                f"[{ended.message} waits for keys of a terminal and there is none: ended after "
                f"{ended.elapsed_s:.0f} s; change files with Edit or Write, and use commands and "
                "flags that ask nothing]"
            )
        case "flood":
            return f"[ended: it printed more than {size_words(options.output_bytes_max)}]"
        case "not_started":
            return f"[could not be started: {ended.message or 'unknown reason'}]"
        case "lost":
            return f"[nobody knows how it ended: {ended.message}]"
    if ended.signal:
        return f"[ended by signal {ended.signal}]"
    words = {126: " (found but not executable)", 127: " (command not found)"}.get(
        ended.code or 0, ""
    )
    return f"[exit code {ended.code}{words}]" if ended.code else ""


def folder_change(context: ToolContext, ended: CommandExit) -> tuple[str, tuple[AnyEvent, ...]]:
    """Return a note and events for a changed folder: `CwdSet` inside the roots, only a note
    outside.
    """
    if (
        ended.cause == "not_started"
        and context.workspace.resolve(context.cwd, "/").kind != "folder"
    ):
        root = context.workspace.roots[0]
        if root == context.cwd:
            return (
                (
                    "[the folder of this session is gone, so no command can run; a file written "
                    "into "
                    "it makes it again]"
                ),
                (),
            )
        return f"[the current folder is gone; it is now {one_line(root)}]", (CwdSet(root),)
    if not ended.cwd or ended.cwd == context.cwd:
        return "", ()
    place = context.workspace.resolve(ended.cwd, context.cwd)
    if place.real == context.workspace.resolve(context.cwd, context.cwd).real:
        return "", ()
    if place.inside and place.kind == "folder" and encodable(place.path):
        return f"[current folder is now {one_line(place.path)}]", (CwdSet(place.path),)
    return (
        (
            f"[{one_line(ended.cwd)} is outside the session's folders: the current folder stays "
            f"{one_line(context.cwd)}]"
        ),
        (),
    )


BASH = make_tool(
    Bash,
    access="command",
    together=True,
    aliases=(
        *("shell", "shell_command", "local_shell", "run_shell_command", "execute_bash"),
        *("exec_command", "execute_command", "run_command", "run_terminal_cmd"),
    ),
    traced=True,
    kind="shell",
    key_argument="command",
)
