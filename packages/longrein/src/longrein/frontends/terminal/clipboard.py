"""Copy text to the clipboard, by the terminal (OSC 52) or a program, and take a picture from it."""

import asyncio
import base64
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE, TimeoutExpired, run

from longrein.store.daemon_threads import run_in_thread
from longrein_context.events import UsageError

OSC52_BYTES_MAX = 74_000
"""Longest text that terminals take by OSC 52."""
WITHOUT_OSC52 = ("Apple_Terminal",)
"""`TERM_PROGRAM` of terminals that ignore OSC 52."""
PROGRAM_S = 5.0


def takes_osc52(environ: Mapping[str, str]) -> bool:
    """Return False for terminals that are known to ignore OSC 52."""
    if environ.get("TERM", "dumb") in ("", "dumb", "linux") or "TMUX" in environ:
        return False
    return environ.get("TERM_PROGRAM") not in WITHOUT_OSC52 and "VTE_VERSION" not in environ


def programs(environ: Mapping[str, str]) -> Sequence[Sequence[str]]:
    """Return the commands that put stdin on the clipboard here, best first."""
    found: list[list[str]] = []
    if "TMUX" in environ:
        found.append(["tmux", "load-buffer", "-w", "-"])
    if sys.platform == "darwin":
        found.append(["pbcopy"])
    if "WAYLAND_DISPLAY" in environ:
        found.append(["wl-copy"])
    if "DISPLAY" in environ:
        found += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    found += [["clip.exe"], ["termux-clipboard-set"]]
    return [words for words in found if shutil.which(words[0], path=environ.get("PATH"))]


def osc52(text: str) -> str:
    """The sequence that asks the terminal to copy `text`."""
    return f"\x1b]52;c;{base64.b64encode(text.encode('utf-8', 'replace')).decode()}\x07"


async def copy(text: str, environ: Mapping[str, str], fd: int = 1) -> str:
    """Copy `text` and return how: `by the terminal`, `by xclip`. Raises `UsageError` when
    nothing can.
    """
    data = text.encode("utf-8", "replace")
    known = programs(environ)
    if os.isatty(fd) and takes_osc52(environ) and (len(data) <= OSC52_BYTES_MAX or not known):
        if len(data) > OSC52_BYTES_MAX:
            raise UsageError(
                f"it is too long for the terminal's clipboard ({len(data):,} bytes); /export "
                "writes a file"
            )
        os.write(fd, osc52(text).encode())
        return "by the terminal"
    for words in known:
        if await _fed(words, data, environ):
            return f"by {words[0]}"
    raise UsageError(
        "no clipboard is here: the terminal takes none, and there is no xclip, wl-copy, xsel or "
        "pbcopy"
    )


async def _fed(words: Sequence[str], data: bytes, environ: Mapping[str, str]) -> bool:
    """Run a program with `data` as stdin; True when it took it."""

    def feed() -> int:
        return run(
            words,
            input=data,
            env=dict(environ),
            stdout=DEVNULL,
            stderr=DEVNULL,
            timeout=PROGRAM_S,
            check=False,
        ).returncode

    with suppress(OSError, TimeoutExpired):
        return await asyncio.wrap_future(run_in_thread(feed, "clipboard")) == 0
    return False


IMAGE_BYTES_MAX = 20 * 1024 * 1024

PROGRAMS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("WAYLAND_DISPLAY", "wl-paste", ("--no-newline", "--type", "image/png")),
    ("DISPLAY", "xclip", ("-selection", "clipboard", "-target", "image/png", "-out")),
    ("", "pngpaste", ("-",)),
)
"""Variable of the desktop ('' for any), program and arguments."""


def clipboard_image(environ: Mapping[str, str]) -> tuple[bytes, str]:
    """Return (bytes of the picture, '') or (b"", the reason why there is none)."""
    tried = False
    for variable, program, arguments in PROGRAMS:
        path = shutil.which(program, path=environ.get("PATH"))
        if path is None or (variable and not environ.get(variable)):
            continue
        tried = True
        try:
            done = run(
                (path, *arguments),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=DEVNULL,
                timeout=PROGRAM_S,
                check=False,
            )
        except (OSError, TimeoutExpired):
            continue
        if done.returncode == 0 and 0 < len(done.stdout) <= IMAGE_BYTES_MAX:
            return done.stdout, ""
    if tried:
        return b"", "the clipboard holds no picture"
    return b"", (
        "a picture of the clipboard needs wl-paste, xclip or pngpaste; paste the path of a file "
        "instead"
    )
