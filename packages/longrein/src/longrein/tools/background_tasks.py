"""Tools for background tasks: `TaskList`, `TaskOutput`, `TaskStop`, `TaskInput`."""

from longrein.tools.file_access import one_line, refuse_marker
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import size_words
from longrein.tools.tool_port import Outcome, TaskPort, TaskView, ToolContext
from longrein_context.events import ToolError
from longrein_context.events.escape import quote_line

WAIT_MAX_MS = 600_000
"""Maximum of `wait`."""
LISTED_MAX = 60
"""Tasks in one list; the oldest ended ones are left out."""
COMMAND_CHARS_MAX = 100
"""Characters of a command in a list."""
INPUT_CHARS_MAX = 100_000
"""Characters of one `TaskInput`."""


async def TaskList(context: ToolContext) -> Outcome:
    """List background tasks and how they stand."""
    every = context.commands.tasks.tasks() if context.commands.tasks is not None else ()
    if not every:
        return Outcome.of("There are no background tasks.")
    lines = [f"- {task_line(view)}" for view in every[:LISTED_MAX]]
    more = len(every) - len(lines)
    return Outcome.of("\n".join([*lines, *[f"and {more} older ones that are over"] * bool(more)]))


async def TaskOutput(
    context: ToolContext,
    task_id: str,
    tail: int = 0,
    since: int | None = None,
    grep: str = "",
    wait: int = 0,
) -> Outcome:
    """Show the output of a background task and its state. Do not poll: its end is told.

    task_id: Such as b3.
    tail: Last lines; default 50.
    since: What came after this byte.
    grep: Only matching lines, of all output.
    wait: Milliseconds, for its end; when nothing else is left to do.
    """
    tasks = _task_port(context, task_id)
    if wait > 0:
        await tasks.wait(task_id, min(wait, WAIT_MAX_MS) / 1000)
    shown = await tasks.output(
        task_id, tail=max(tail, 0), since=-1 if since is None else max(since, 0), grep=grep
    )
    note = "; ".join(
        filter(
            None, (shown.note, f"go on with since={shown.next_byte}" if since is not None else "")
        )
    )
    text = shown.text.rstrip("\n") or ("" if shown.task.size_bytes else "(no output)")
    return Outcome.of(
        "\n".join(filter(None, (task_line(shown.task), text, f"[{note}]" if note else "")))
    )


async def TaskStop(context: ToolContext, task_id: str) -> Outcome:
    """End a background task and all that it started."""
    view = await _task_port(context, task_id).stop(task_id)
    if view.state == "running":
        return Outcome.fail(
            f"{task_line(view)}\n[it was told to end and has not yet; a note tells when it has]"
        )
    return Outcome.of(task_line(view))


async def TaskInput(context: ToolContext, task_id: str, text: str, eof: bool = False) -> Outcome:
    """Answer a background task that waits for input; only what the user would want said.

    eof: Then close its input.
    """
    refuse_marker(context, text)
    if len(text) > INPUT_CHARS_MAX:
        raise ToolError(
            f"[too-long] At most {INPUT_CHARS_MAX} characters can be given at once: give it "
            "in pieces. Nothing was "
            "written."
        )
    line = text if (not text and eof) or text.endswith("\n") else text + "\n"
    view = await _task_port(context, task_id).give(task_id, line, eof=eof)
    closed = "; its input is closed" if eof else ""
    return Outcome.of(
        f"Written to {view.id}{closed}. Look with TaskOutput(since={view.size_bytes}) what it "
        "says to that."
    )


def _task_port(context: ToolContext, task: str) -> TaskPort:
    if context.commands.tasks is None:
        raise ToolError(
            f"[unknown-task] There is no task {task[:40]!r}: none was started in this "
            "session. Bash starts one with run_in_background."
        )
    return context.commands.tasks


def task_line(view: TaskView) -> str:
    """Describe a task in one line: `b3 failed, exit code 1, after 12.0 s; 3.4 kB of output: npm
    test`.
    """
    how = [view.state.replace("_", " ")]
    how += [f"exit code {view.code}"] * (view.code is not None)
    how += [f"{view.cause}"] * bool(view.cause)
    if view.state == "running" or (view.state != "queued" and view.elapsed_s):  # 0: unknown
        how.append(f"{'for' if view.state == 'running' else 'after'} {view.elapsed_s:.1f} s")
    printed = f"; {size_words(view.size_bytes)} of output" if view.size_bytes else ""
    printed += f", silent for {view.silent_s:.0f} s" if view.silent_s >= 1 else ""
    kept = "what was kept of it" if view.elided_bytes else "all of it"
    printed += (
        f", {kept}: Recall {view.handle}"
        if view.handle and view.size_bytes > view.elided_bytes
        else ""
    )
    waits = (
        f"; it seems to wait for input: {one_line(view.waits_for_input.strip())[:200]}"
        if view.waits_for_input
        else ""
    )
    return (
        f"{view.id} {', '.join(how)}{printed}: {quote_line(view.command, COMMAND_CHARS_MAX)}{waits}"
    )


TASK_LIST = make_tool(
    TaskList, access="none", listing="unlisted", together=True, polls=True, aliases=("list_tasks",)
)
TASK_OUTPUT = make_tool(
    TaskOutput,
    access="none",
    listing="unlisted",
    together=True,
    aliases=("bashoutput", "check_task"),
    polls=True,
    key_argument="task_id",
    task_argument="task_id",
)
TASK_STOP = make_tool(
    TaskStop,
    access="none",
    listing="unlisted",
    together=True,
    aliases=("killshell", "killbash"),
    key_argument="task_id",
    task_argument="task_id",
)
TASK_INPUT = make_tool(TaskInput, access="command", listing="unlisted", aliases=("write_stdin",))
TASK_TOOLS = (TASK_LIST, TASK_OUTPUT, TASK_STOP, TASK_INPUT)
