"""Command line: turn argv and stdin into `Options`, call `app`, turn an error into one line and
an exit code.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from longrein import __version__
from longrein.frontends.argv import Parsed, clean, parse
from longrein.frontends.stdio import STDIN_WAIT_S, read_piped, say, show
from longrein.frontends.subcommands import MAIN
from longrein.options import Options, options_of
from longrein_context.events import LongreinError, ModelUnknown, UsageError


class App(Protocol):
    """Interface of the module `longrein.entry_points`. Each function returns the exit code."""

    def run_print(self, options: Options, /) -> int:
        """Run headless once. `options.prompt` is empty only with `-c`, `-r` or stream-json
        input.
        """
        ...

    def run_interactive(self, options: Options, /) -> int:
        """Run the terminal."""
        ...

    def run_command(
        self, name: str, options: Options, words: Sequence[str], /, **flags: Any
    ) -> int:
        """Run subcommand `name` with its words and the fields of its flags that were given."""
        ...


def main(argv: Sequence[str], load_app: Callable[[], App]) -> int:
    """Run `longrein ARGV` and return its exit code.

    `load_app` imports the app; help, version and usage errors do without it. Expected errors are
    one line on stderr, never a traceback; a model that cannot be used has lines that say what to
    do.
    """
    try:
        return _dispatch(parse(argv), load_app)
    except LongreinError as error:
        for line in str(error).splitlines() if isinstance(error, ModelUnknown) else [str(error)]:
            say(line)
        return error.exit_code
    except BrokenPipeError:
        return 1  # the reader of the output has gone
    except KeyboardInterrupt:
        return 130


def _dispatch(parsed: Parsed, load_app: Callable[[], App]) -> int:
    values = parsed.values
    if values.get("help"):
        from longrein.frontends.help_page import help_columns, help_page

        return _show(help_page(parsed.command, help_columns()))
    if values.get("version"):
        return _show(f"longrein {__version__}\n")
    if parsed.command is MAIN:
        return _run(parsed, load_app)
    options = Options(state_dir=values.pop("state_dir", ""))
    return load_app().run_command(parsed.command.name, options, parsed.words, **values)


def _run(parsed: Parsed, load_app: Callable[[], App]) -> int:
    options = options_of(parsed.values)
    for line in options.without_effect:
        say(line)
    if options.list_tools:
        return load_app().run_print(options)
    prompt = clean(parsed.words[0]) if parsed.words else ""
    if not options.print:
        return load_app().run_interactive(options._replace(prompt=prompt))
    options = options._replace(typed=prompt)
    resumes = options.continue_newest or options.resume is not None
    if options.input_format == "text":
        prompt = with_stdin(
            prompt, lambda wait_s: read_piped(0, wait_s=wait_s, say=say), needed=not resumes
        )
    if not prompt.strip() and not resumes and options.input_format == "text":
        raise UsageError('the prompt is empty: write longrein -p "…" or pipe text in')
    return load_app().run_print(options._replace(prompt=prompt))


def with_stdin(prompt: str, read: Callable[[float | None], bytes], *, needed: bool) -> str:
    """Join `prompt` and piped text, a blank line between.

    `read` gets the seconds to wait for the first byte, None without limit. With the prompt `-`, or
    without one where it is `needed`, stdin is the prompt, and there is no limit.
    """
    wait_s = None if prompt == "-" or (needed and not prompt.strip()) else STDIN_WAIT_S
    prompt = "" if prompt == "-" else prompt
    piped = (
        read(wait_s).decode("utf-8", "replace").replace("\0", "\ufffd")
    )  # no provider accepts NUL
    return "\n\n".join(filter(str.strip, (prompt, piped)))


def _show(text: str) -> int:
    show(text)
    return 0


def open_missing_streams(fds: Sequence[int] = (0, 1, 2)) -> None:
    """Open /dev/null for a closed stdin, stdout or stderr, so that no other file gets its
    number.
    """
    for fd in fds:
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def ask_for_a_report() -> None:
    """After the traceback of an unexpected error, ask for a report and say that nothing is lost."""
    shown = sys.excepthook

    def hook(*error: object) -> None:
        shown(*error)  # type: ignore[arg-type]
        say(
            "this is a bug in longrein, please report it; the session is saved, `longrein -c` "
            "goes on with it"
        )

    sys.excepthook = hook
