"""Command line: turn argv and stdin into `Options`, call `app`, turn an error into one line and an exit code."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longrein.events import LongreinError, UsageError
from longrein.frontends.argv import Options, Parsed, options_of, parse
from longrein.frontends.flags import MAIN, help_page
from longrein.frontends.stdio import STDIN_WAIT_S, read_piped, say, show


class App(Protocol):
    """Interface of the module `longrein.app`. Each function returns the exit code."""

    def run_print(self, options: Options, /) -> int:
        """Run headless once. `options.prompt` is empty only with `-c`, `-r` or stream-json input."""
        ...

    def run_interactive(self, options: Options, /) -> int:
        """Run the terminal."""
        ...

    def run_demo(self, *, keep: bool) -> int:
        """Run the demo; with `keep` its folder stays."""
        ...

    def run_sessions(self, options: Options, /, json: bool) -> int:
        """List stored sessions."""
        ...

    def run_export(self, options: Options, /, session: str, format: str, out: str) -> int:  # noqa: A002
        """Export session `session` (id or its beginning) as `jsonl` or `transcript` to `out` ('' for stdout)."""
        ...

    def run_context(self, options: Options, /, session: str, json: bool) -> int:
        """Show the use of the context of session `session` (id or its beginning)."""
        ...

    def run_search(self, options: Options, /, query: str, session: str, every: bool, json: bool, page: int) -> int:
        """Search for `query` in `session`, else in the current folder's sessions or, with `every`, in all.

        Prints page `page` of the hits, from 1.
        """
        ...

    def run_tasks(self, options: Options, /, words: Sequence[str], tail: int, json: bool) -> int:
        """Show all background tasks, those of a session, or one (`SESSION/TASK`); or `stop` one."""
        ...

    def run_agents(self, options: Options, /, session: str, json: bool) -> int:
        """List the subagents of `session`, else those that work now."""
        ...

    def run_worktrees(self, options: Options, /, words: Sequence[str], unmerged: bool, json: bool) -> int:
        """List worktrees of subagents, or `merge` or `remove` one."""
        ...

    def run_simulate(self, options: Options, /, recorded: Sequence[str], **how: str) -> int:
        """Replay recorded sessions (files, folders, ids) through policies, offline. `how`: values of the flags."""
        ...

    def run_doctor(self, options: Options, /) -> int:
        """Check the installation."""
        ...

    def run_trust(self, options: Options, /, undo: bool) -> int:
        """Trust the current folder, or stop trusting it."""
        ...


def main(argv: Sequence[str], app: App) -> int:
    """Run `longrein ARGV` and return its exit code.

    Expected errors are one line on stderr, never a traceback.
    """
    try:
        return _dispatch(parse(argv), app)
    except LongreinError as error:
        say(str(error))
        return error.exit_code
    except BrokenPipeError:
        return 1  # the reader of the output has gone
    except KeyboardInterrupt:
        return 130


def _dispatch(parsed: Parsed, app: App) -> int:
    values = parsed.values
    if values.get("help"):
        return _show(help_page(parsed.command, _columns()))
    if values.get("version"):
        return _show(f"longrein {_version()}\n")
    if parsed.command is MAIN:
        return _run(parsed, app)
    return _subcommand(parsed, app)


def _subcommand(parsed: Parsed, app: App) -> int:
    words, values = parsed.words, parsed.values
    options = options_of({"state_dir": values.get("state_dir", "")})
    json = values.get("json", False)
    written = {"format": values.get("format", "jsonl"), "out": values.get("output", "")}
    does: dict[str, Callable[[], int]] = {
        "sessions": lambda: app.run_sessions(options, json=json),
        "context": lambda: app.run_context(options, session=words[0], json=json),
        "export": lambda: app.run_export(options, session=words[0], **written),
        "search": lambda: app.run_search(options, query=clean(" ".join(words)), json=json, **_where(values)),
        "simulate": lambda: app.run_simulate(options, recorded=words, **_how(values)),
        "tasks": lambda: app.run_tasks(options, words=words, tail=values.get("tail", 0), json=json),
        "agents": lambda: app.run_agents(options, session="".join(words), json=json),
        "worktrees": lambda: app.run_worktrees(options, words=words, unmerged=values.get("unmerged", False), json=json),
        "doctor": lambda: app.run_doctor(options),
        "trust": lambda: app.run_trust(options, undo=values.get("undo", False)),
        "demo": lambda: app.run_demo(keep=values.get("keep", False)),
    }
    return does[parsed.command.name]()


def _how(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(values[name]) for name in ("policy", "prices", "window", "json") if values.get(name)}


def _where(values: Mapping[str, Any]) -> dict[str, Any]:
    if values.get("every") and values.get("session"):
        raise UsageError("--session and --all say two things: give one of them")
    return {"session": values.get("session", ""), "every": values.get("every", False), "page": values.get("page") or 1}


def _run(parsed: Parsed, app: App) -> int:
    options = options_of(parsed.values)
    prompt = clean(parsed.words[0]) if parsed.words else ""
    if not options.print:
        return app.run_interactive(msgspec.structs.replace(options, prompt=prompt))
    resumes = options.continue_newest or options.resume is not None
    if options.input_format == "text":
        prompt = with_stdin(prompt, lambda wait_s: read_piped(0, wait_s=wait_s, say=say), needed=not resumes)
    if not prompt.strip() and not resumes and options.input_format == "text":
        raise UsageError('the prompt is empty: write longrein -p "…" or pipe text in')
    return app.run_print(msgspec.structs.replace(options, prompt=prompt))


def with_stdin(prompt: str, read: Callable[[float | None], bytes], *, needed: bool) -> str:
    """Join `prompt` and piped text, a blank line between.

    `read` gets the seconds to wait for the first byte, None without limit. With the prompt `-`, or without one where
    it is `needed`, stdin is the prompt, and there is no limit.
    """
    wait_s = None if prompt == "-" or (needed and not prompt.strip()) else STDIN_WAIT_S
    prompt = "" if prompt == "-" else prompt
    piped = read(wait_s).decode("utf-8", "replace").replace("\0", "\ufffd")  # no provider accepts NUL
    return "\n\n".join(filter(str.strip, (prompt, piped)))


def clean(text: str) -> str:
    """Make `text` from argv valid Unicode: invalid bytes become the replacement character."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _show(text: str) -> int:
    show(text)
    return 0


def _columns() -> int:
    try:
        return min(os.get_terminal_size(1).columns or 100, 120)
    except OSError:
        return 100


def _version() -> str:
    from importlib.metadata import version

    return version("longrein")


def own_the_three(fds: Sequence[int] = (0, 1, 2)) -> None:
    """Open /dev/null for a closed stdin, stdout or stderr, so that no other file gets its number."""
    for fd in fds:
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def blame_ourselves() -> None:
    """After the traceback of an unexpected error, ask for a report and say that nothing is lost."""
    shown = sys.excepthook

    def hook(*error: object) -> None:
        shown(*error)  # type: ignore[arg-type]
        say("this is a bug in longrein, please report it; the session is saved, `longrein -c` goes on with it")

    sys.excepthook = hook
