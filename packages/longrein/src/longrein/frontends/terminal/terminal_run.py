"""Run the interactive terminal on a session until the user leaves."""

import asyncio
import os
import re
import select
import signal
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.output import Output

from longrein.app import AppSession
from longrein.frontends.localization import language_of, use_language
from longrein.frontends.loop_streams import SIGNALS, STOP_REASONS, cancel_all, signal_handlers
from longrein.frontends.terminal.answering import QUIET_S, KeyGuard
from longrein.frontends.terminal.command_actions import run_command
from longrein.frontends.terminal.command_table import BY_NAME, ParsedCommand
from longrein.frontends.terminal.command_types import Outcome
from longrein.frontends.terminal.conversation import AGAIN_S, Conversation
from longrein.frontends.terminal.drafts import restore_draft
from longrein.frontends.terminal.key_handlers import (
    bind_keys,
    bind_panel_keys,
    enter_raw_mode,
    suspend,
)
from longrein.frontends.terminal.keymap import chosen_keys, keymap
from longrein.frontends.terminal.plain import PlainConversation
from longrein.frontends.terminal.screen import Screen, ScreenContent, TerminalOutput
from longrein.frontends.terminal.terminal_input import KeyProtocol, TerminalInput
from longrein.frontends.terminal.view_model import Piece
from longrein_context.events import Entry

PREPARE_S = 0.3
"""Seconds after the first frame at which the painter of replies is imported, before a reply
needs it.
"""
REPLAYED_PROMPTS = 3
"""Newest prompts of a resumed session that are shown again with what followed."""


async def run_terminal(
    opened: AppSession,
    *,
    plain: bool = False,
    prompt: str = "",
    choosing: bool = False,
    mono_s: Callable[[], float] = time.monotonic,
    again_s: float = AGAIN_S,
    quiet_s: float = QUIET_S,
) -> Outcome:
    """Run the terminal until the user leaves. The session must be open and not running; it is
    closed here.

    `prompt` is sent at once; `choosing` opens the list of sessions first. With `plain`,
    or when stdin or stdout is not a terminal, or the encoding is not UTF-8, the plain terminal is
    used. A second Ctrl-C within `again_s` seconds leaves. `quiet_s`: see `KeyGuard`. The terminal
    settings are always restored. SIGTERM and SIGHUP give the exit code 128 + their number. Raises
    `LongreinError` (such as `StoreFull`) after that. Needs the main thread.
    """
    context = opened.app.context
    os.makedirs(os.path.dirname(opened.app.kept_file("history")), mode=0o700, exist_ok=True)
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    use_language(
        (context.settings.terminal.language or language_of(context.environ))
        if encoding == "utf8"
        else "en"
    )
    with _settings_kept():
        try:
            if plain or not _can_redraw():
                return await run_plain(
                    opened, prompt=prompt, choosing=choosing, mono_s=mono_s, quiet_s=quiet_s
                )
            conversation = _open_screen(opened, mono_s, again_s)
            conversation.guard = KeyGuard(quiet_s)
            return await _run_screen(conversation, prompt, choosing=choosing)
        finally:
            await opened.session.close()


def _can_redraw() -> bool:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return sys.stdin.isatty() and sys.stdout.isatty() and encoding == "utf8"


def _open_screen(opened: AppSession, mono_s: Callable[[], float], again_s: float) -> Conversation:
    conversation = Conversation(opened, mono_s)
    conversation.again_s = again_s
    keys_from = TerminalInput(
        conversation.heard,
        conversation.window.pressed,
        conversation.another_program_has_the_terminal,
    )
    attach_screen(conversation, TerminalOutput(sys.stdout, _size, enable_cpr=False), keys_from)
    return conversation


def attach_screen(conversation: Conversation, output: Output, keys_from: Input) -> None:
    """Let a conversation draw on `output` and take the keys of `keys_from`."""
    content = ScreenContent(
        conversation.prompt,
        conversation.hint,
        conversation.panel_lines,
        conversation.footer,
        conversation.status_line.rows,
        conversation.panel_drawn,
    )
    keys, panel_keys = bind_keys(conversation), bind_panel_keys(conversation)
    screen = Screen(
        content,
        conversation.buffer,
        keys,
        panel_keys,
        output,
        colour=conversation.colour,
        keys_from=keys_from,
        vim=conversation.opened.app.context.settings.keys.vim,
    )
    conversation.keyboard = KeyProtocol(screen.app)
    screen.app.key_processor.before_key_press += lambda _: conversation.key_pressed()
    conversation.screen = screen


def _size() -> Size:
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        columns = rows = 0
    return Size(rows=rows or 24, columns=columns or 80)


async def run_plain(
    opened: AppSession,
    *,
    prompt: str,
    choosing: bool,
    mono_s: Callable[[], float],
    quiet_s: float = QUIET_S,
    fd: int = 0,
) -> Outcome:
    """Read lines from `fd` until they end and the session is idle, or the user leaves."""
    conversation = PlainConversation(opened, mono_s, interactive=os.isatty(fd))
    conversation.guard = KeyGuard(quiet_s)
    conversation.print_header()
    conversation.ready.set()
    _begin(conversation, prompt, choosing=choosing)
    handlers: dict[int, Callable[[], object]] = {
        number: partial(conversation.signalled, number) for number in SIGNALS
    }
    return await _run(
        conversation,
        (conversation.left.wait(), conversation.redraw_loop(), conversation.read_input(fd)),
        handlers,
        ExitStack(),
    )


async def _run_screen(conversation: Conversation, prompt: str, *, choosing: bool) -> Outcome:
    raw = ExitStack()
    raw.enter_context(conversation.screen.app.input.raw_mode())
    if conversation.keyboard is not None:
        conversation.keyboard.begin()
        raw.callback(conversation.keyboard.end)
    raw.callback(conversation.status_line.close)
    raw.callback(conversation.window.leave)
    _take_early_keys(conversation, choosing=choosing)
    conversation.window.enter()
    conversation.print_header()

    def begin() -> None:  # before keys that were typed early
        conversation.ready.set()
        asyncio.get_running_loop().call_soon(
            restore_draft, conversation
        )  # after keys that came early
        for problem in keymap(chosen_keys(conversation.opened.app.context.settings))[1]:
            conversation.notice(problem)
        conversation.spawn(conversation.show_later_notices())
        asyncio.get_running_loop().call_later(PREPARE_S, conversation.markdown_painter)
        _begin(conversation, prompt, choosing=choosing)

    drawing = conversation.screen.app.run_async(set_exception_handler=False, pre_run=begin)
    outcome = await _run(
        conversation,
        (
            _while_there(conversation, drawing),
            _while_there(conversation, conversation.redraw_loop()),
        ),
        _handlers(conversation),
        raw,
    )
    with suppress(OSError):  # the terminal is gone
        conversation.print_resume_hint()
    return outcome


def _begin(conversation: Conversation, prompt: str, *, choosing: bool) -> None:
    """Send the first prompt, or open the list of sessions."""
    if prompt:
        conversation.say(prompt)
    elif choosing:
        conversation.starts_with_list = True
        run_command(conversation, ParsedCommand(BY_NAME["resume"], "resume", ""))


async def _run(
    conversation: Conversation,
    acts: Sequence[Coroutine[Any, Any, object]],
    handlers: dict[int, Callable[[], object]],
    raw: ExitStack,
) -> Outcome:
    """Run the session with `acts` until one of them ends, then close `raw` and the session.

    The first act ends soon after the user has left.
    """
    with signal_handlers(handlers):
        tasks = [
            asyncio.ensure_future(act)
            for act in (_listen(conversation), _drive(conversation), *acts)
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            conversation.leave(Outcome("exit"))
            await asyncio.wait(tasks[2:3], timeout=2)
            raw.close()
            outcome = conversation.outcome or Outcome("exit")
            session = conversation.session
            session.stop_reason = STOP_REASONS.get(outcome.code - 128, session.stop_reason)
            # ends the loop before the cancel, which a tool may take for an interrupt
            await session.close(outcome.end_reason)
            await cancel_all(tasks)
    return outcome


def _handlers(conversation: Conversation) -> dict[int, Callable[[], object]]:
    ends = (signal.SIGTERM, signal.SIGHUP)
    return {
        **{
            number: partial(conversation.leave, Outcome("exit", code=128 + number))
            for number in ends
        },
        signal.SIGTSTP: partial(suspend, conversation),
        signal.SIGCONT: partial(enter_raw_mode, conversation),
    }


def _take_early_keys(conversation: Conversation, *, choosing: bool) -> None:
    """Hand keys that were typed before the screen to the input. The kernel made an Enter a line
    break.

    Empty lines are dropped: an Enter on an empty input would resume a cut turn that the user has
    not seen yet. When a list of sessions opens first, nothing is sent, as it would go to another
    session.
    """
    fd, data = sys.stdin.fileno(), b""
    with suppress(OSError):  # the terminal is gone
        while select.select([fd], [], [], 0)[0] and (more := os.read(fd, 65_536)):
            data += more
    if data:
        keys: list[KeyPress] = []
        parser = Vt100Parser(keys.append)
        text = data.decode("utf-8", "surrogateescape").replace("\r", "\n")
        parser.feed(text if choosing else re.sub(r"\n+", "\r", text.lstrip("\n")))
        parser.flush()
        store_typeahead(conversation.screen.app.input, keys)
        conversation.screen.app.output.write_raw("\r\x1b[K")  # the kernel has echoed what was typed


async def _while_there(conversation: Conversation, act: Coroutine[Any, Any, None]) -> None:
    """Await `act`; when the terminal disappears, leave as after SIGHUP."""
    try:
        await act
    except (EOFError, OSError):
        conversation.leave(Outcome("exit", code=128 + signal.SIGHUP))


async def _drive(conversation: Conversation) -> None:
    await conversation.ready.wait()
    await conversation.session.run(once=False)


async def _listen(conversation: Conversation) -> None:
    """Show updates; of the history of a resumed session only the end."""
    await conversation.ready.wait()
    start = conversation.session.state.seq
    old: deque[list[Piece]] = deque([[]], maxlen=REPLAYED_PROMPTS)
    conversation.view.live = start == 0
    async for heard in conversation.session.follow(
        conversation.view.resume(conversation.session.state)
    ):
        conversation.totals.observe(heard, conversation.view)
        pieces = conversation.view.apply(heard, conversation.mono_s())
        if conversation.view.live:
            conversation.show(pieces)
            continue
        prompts = conversation.view.prompts
        if pieces and isinstance(heard, Entry) and prompts and prompts[-1].seq == heard.seq:
            old.append([])
        old[-1].extend(pieces)
        if isinstance(heard, Entry) and heard.seq >= start:
            now_s = conversation.mono_s()
            old[-1].extend(conversation.view.go_live(busy=conversation.session.busy, now_s=now_s))
            conversation.show_history([piece for group in old for piece in group])


@contextmanager
def _settings_kept() -> Iterator[None]:
    """Restore the terminal settings in every case, and discard output that a closed terminal did
    not take.
    """
    kept: list[Any] | None = None
    with suppress(termios.error, OSError, ValueError):  # no terminal
        kept = termios.tcgetattr(sys.stdin.fileno())
    try:
        yield
    finally:
        if kept is not None:
            with suppress(termios.error, OSError):  # the terminal is gone
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, kept)
        try:
            sys.stdout.flush()
        except OSError:  # a later flush must not fail
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
