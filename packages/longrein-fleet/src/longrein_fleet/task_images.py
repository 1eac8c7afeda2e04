"""The image of a task: a root file system of its own, unpacked beside the copy of its folder."""

import os
import shutil
from collections.abc import Mapping, Sequence

ENGINES = ("podman", "docker")
"""Programs that have images; of two the first."""
_COPY = 'cp -a --reflink=auto -- "$1/." "$2"'
_UNPACK = 'tar --exclude "dev/*" --exclude "./dev/*" -xf "$1" -C "$2"'
_EXPORT = (
    'made=$("$0" create "$1" true) || exit; set -o pipefail; '
    '"$0" export "$made" | tar --exclude "dev/*" -x -C "$2"; code=$?; '
    '"$0" rm "$made" >/dev/null; [ "$code" = 0 ]'
)
_THEN = ' && chmod -R u+rwX -- "$2"'
"""Else its owner could not remove a folder that nobody may write."""


def find_image(environ: Mapping[str, str], folder: str, name: str) -> tuple[str, str]:
    """Return (image, problem): a path relative to `folder` is made absolute, and a name stays where
    an engine may have it.
    """
    path = os.path.realpath(os.path.join(folder, name))
    if not name or os.path.exists(path):
        return path if name else "", ""
    if name.startswith(("/", ".")):
        return "", f"there is no file or folder {path}"
    if not _engine(environ):
        return "", (
            f"there is no file or folder {path}, and no {' or '.join(ENGINES)} that could have an "
            f"image {name!r}: install one, or name an unpacked image or its tar file"
        )
    return name, ""


def unpacking_words(environ: Mapping[str, str], image: str, to: str) -> Sequence[str]:
    """Return the command that unpacks an image of `find_image` into the empty folder `to`."""
    script, engine = _EXPORT, _engine(environ)
    if os.path.isabs(image):
        script, engine = _COPY if os.path.isdir(image) else _UNPACK, "bash"
    return ("bash", "-c", f"{{ {script}; }}{_THEN}", engine, image, to)


def _engine(environ: Mapping[str, str]) -> str:
    found = (shutil.which(one, path=environ.get("PATH", "")) for one in ENGINES)
    return next(filter(None, found), "")
