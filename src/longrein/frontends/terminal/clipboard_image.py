"""A picture from the clipboard, by the programs that desktops have for it. Blocks; call it in a
thread.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence

TIMEOUT_S = 5.0
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
            done = subprocess.run(
                (path, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and 0 < len(done.stdout) <= IMAGE_BYTES_MAX:
            return done.stdout, ""
    if tried:
        return b"", "the clipboard holds no picture"
    return (
        b"",
        (
            "a picture of the clipboard needs wl-paste, xclip or pngpaste; paste the path of a "
            "file "
            "instead"
        ),
    )
