"""Pictures in the input: a pasted or dropped path of a picture becomes `[image NAME]`, which is
sent as the picture.
"""

import os
import re
import shlex
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from longrein.events import Image
from longrein.steps.human_text import escape_line

TYPES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
PASTE_CHARS_MAX = 8_000
"""Longer pastes are no paths."""
_MARK = re.compile(r"\[image [^\]\n]+\]")


class Pictures:
    """The pictures whose marks stand in the input."""

    def __init__(self, read: Callable[[str], Image | None]) -> None:
        """`read`: path -> picture, None when there is none."""
        self._read = read
        self._images: dict[str, Image] = {}

    def fold(self, pasted: str) -> str:
        """Return marks for a paste that is nothing but paths of pictures; '' for any other
        paste.
        """
        paths = pasted_paths(pasted)
        if not paths or not all(path.lower().endswith(TYPES) for path in paths):
            return ""
        found = [self._read(path) for path in paths]
        images = [image for image in found if image is not None]
        if len(images) < len(paths):
            return ""
        return " ".join(
            self.add(os.path.basename(path), image)
            for path, image in zip(paths, images, strict=True)
        )

    def add(self, name: str, image: Image) -> str:
        """Return the mark of a picture; another picture of the same name gets a number."""
        name = escape_line(name).replace("[", "(").replace("]", ")") or "picture"
        stem, ending = os.path.splitext(name)
        mark, n = f"[image {name}]", 1
        while self._images.get(mark, image) != image:
            n += 1
            mark = f"[image {stem}-{n}{ending}]"
        self._images[mark] = image
        return mark

    def named_in(self, text: str) -> tuple[Image, ...]:
        """Return the pictures whose marks stand in `text`, in their order, each once."""
        marks = dict.fromkeys(_MARK.findall(text))
        return tuple(self._images[mark] for mark in marks if mark in self._images)

    def mark_before(self, text: str) -> int:
        """Return the length of the mark at the end of `text`, which is deleted as a whole; 0
        without one.
        """
        start = text.rfind("[image ")
        return len(text) - start if start >= 0 and text[start:] in self._images else 0


def pasted_paths(text: str) -> list[str]:
    """Return the absolute paths that a paste or drop consists of; [] for anything else.

    Terminals write a dropped path with backslashes, in quotes or as a `file:` address; several are
    apart by blanks or line breaks.
    """
    text = text.strip()
    if not text or len(text) > PASTE_CHARS_MAX or text[0] not in "/~'\"f":
        return []
    if (
        text.startswith(("/", "~/"))
        and "\\" not in text
        and os.path.isfile(os.path.expanduser(text))
    ):
        return [os.path.expanduser(text)]  # a path with blanks, as it is
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    paths = [_path(word) for word in words]
    return paths if all(paths) else []


def _path(word: str) -> str:
    if word.startswith("file:"):
        address = urlsplit(word)
        return unquote(address.path) if address.netloc in ("", "localhost") else ""
    if word.startswith("~/"):
        return os.path.expanduser(word)
    return word if word.startswith("/") else ""
