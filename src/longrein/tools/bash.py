"""`Bash`: one shell command, told honestly: what it printed, how it ended, where it left the shell."""

import asyncio
from collections.abc import Mapping
from typing import Any

from longrein.events import AnyEvent, CwdSet, ToolError
from longrein.tools.files import encodable, refuse_marker, said
from longrein.tools.output import Output
from longrein.tools.plain import runs_beside
from longrein.tools.port import Hands, Outcome, ToolOptions
from longrein.tools.registry import make_tool
from longrein.tools.task_port import Kept
from longrein.tools.text import size_words
from longrein.workspace import Ended


async def Bash(
    hands: Hands, command: str, description: str = "", timeout: int | None = None, run_in_background: bool = False
) -> Outcome:
    """Run a shell command: tests, builds, git, programs; not what Read, Edit, Write, Grep and Glob do. It starts in
    the current folder; a cd inside the session's folders holds for later calls, variables do not. There is no terminal
    and no input: use flags such as -y, never an editor or pager. You get stdout and stderr together, and how it ended
    unless with exit code 0. Of long output you get head and tail; Recall brings the rest. Chain dependent commands with
    &&; send independent ones as several calls. Servers, watchers and what takes minutes: run_in_background, never &.

    timeout: Milliseconds; default 120000, at most 600000.
    run_in_background: You get a task id at once.
    """
    refuse_marker(hands, command)
    if not command.strip():
        raise ToolError("[empty] The command is empty; nothing was run.")
    if "\0" in command or not encodable(command):
        raise ToolError("[bad-command] The command holds a NUL or an invalid character; nothing was run.")
    output = Output(hands)
    limit_s = limit_of(timeout, hands.options)
    try:
        if run_in_background:
            came = await _in_background(hands, command, timeout, output)
        else:
            came = await _in_foreground(hands, command, limit_s, output)
    except asyncio.CancelledError:
        came = Ended(None, cause="interrupt")
    if isinstance(came, Kept):
        return Outcome.of(told(came, output.so_far(), limit_s))
    cwd_note, facts = left_in(hands, came)
    note = "\n".join(filter(None, (ending(came, hands.options, limit_s), cwd_note)))
    parts = output.parts(said(description or command)[:80], note)
    if came.cause == "interrupt":
        return Outcome(parts, facts, "interrupted", output.raw)
    return Outcome(parts, facts, "ok" if came.cause == "exit" and came.code == 0 else "failed", output.raw)


async def _in_foreground(hands: Hands, command: str, limit_s: float, output: Output) -> Ended | Kept:
    if hands.tasks is not None:
        return await hands.tasks.run(
            command, call=hands.call, sink=output, timeout_s=limit_s, background=False, promote=True
        )
    return await hands.workspace.spawner.run(
        command,
        cwd=hands.cwd,
        env=hands.workspace.environment(hands.session),
        sink=output,
        timeout_s=limit_s,
        output_bytes_max=hands.options.output_bytes_max,
    )


async def _in_background(hands: Hands, command: str, timeout: int | None, output: Output) -> Ended | Kept:
    if hands.tasks is None:
        raise ToolError("[no-background] Nothing can run in the background here; nothing was run.")
    limit_s = 0.0 if timeout is None else timeout / 1000
    return await hands.tasks.run(
        command, call=hands.call, sink=output, timeout_s=limit_s, background=True, promote=False
    )


def told(kept: Kept, printed: str, limit_s: float) -> str:
    """What the model gets of a command that goes on without it."""
    task = kept.task
    look = f"A note tells its end; until then TaskOutput shows what it prints and TaskStop({task.id}) ends it."
    match kept.why:
        case "timeout":
            how = f"[not over after {limit_s:g} s: it goes on in the background as {task.id}. {look}]"
        case "user":
            how = f"[the user sent it to the background: it goes on as {task.id}. {look}]"
        case _ if task.state == "queued":
            return f"Queued as {task.id}: as many tasks as may run at once do. It starts when one ends. {look}"
        case _:
            return f"Started in the background as {task.id}. {look} Do not wait for it: go on."
    return "\n".join(filter(None, (printed or kept.tail, how)))


def limit_of(timeout: int | None, options: ToolOptions) -> float:
    """Seconds a command may take."""
    if timeout is None:
        return options.bash_timeout_s
    if timeout <= 0:
        raise ToolError("[bad-timeout] timeout is in milliseconds and must be above 0; nothing was run.")
    return min(timeout / 1000, options.bash_timeout_max_s)


def ending(ended: Ended, options: ToolOptions, limit_s: float) -> str:
    """How it ended, in one bracketed line; '' for exit code 0."""
    match ended.cause:
        case "timeout":
            most = int(options.bash_timeout_max_s * 1000)
            return f"[timed out after {limit_s:g} s and was ended; timeout may be up to {most} ms]"
        case "interrupt":
            return "[interrupted by the user; the command was ended]"
        case "flood":
            return f"[ended: it printed more than {size_words(options.output_bytes_max)}]"
        case "not_started":
            return f"[could not be started: {ended.message or 'unknown reason'}]"
        case "lost":
            return f"[nobody knows how it ended: {ended.message}]"
    if ended.signal:
        return f"[ended by signal {ended.signal}]"
    words = {126: " (found but not executable)", 127: " (command not found)"}.get(ended.code or 0, "")
    return f"[exit code {ended.code}{words}]" if ended.code else ""


def left_in(hands: Hands, ended: Ended) -> tuple[str, tuple[AnyEvent, ...]]:
    """A `cd` that the command ended with: a fact inside the roots, only a line outside."""
    if ended.cause == "not_started" and hands.workspace.look(hands.cwd, "/").kind != "folder":
        root = hands.workspace.roots[0]
        if root == hands.cwd:
            return (
                "[the folder of this session is gone, so no command can run; a file written into it makes it again]",
                (),
            )
        return f"[the current folder is gone; it is now {said(root)}]", (CwdSet(root),)
    if not ended.cwd or ended.cwd == hands.cwd:
        return "", ()
    place = hands.workspace.look(ended.cwd, hands.cwd)
    if place.real == hands.workspace.look(hands.cwd, hands.cwd).real:
        return "", ()
    if place.inside and place.kind == "folder" and encodable(place.path):
        return f"[current folder is now {said(place.path)}]", (CwdSet(place.path),)
    return f"[{said(ended.cwd)} is outside the session's folders: the current folder stays {said(hands.cwd)}]", ()


def _together(arguments: Mapping[str, Any]) -> bool:
    """Whether a call may run beside others."""
    return runs_beside(str(arguments.get("command", "")))


BASH = make_tool(Bash, access="command", together=_together)
