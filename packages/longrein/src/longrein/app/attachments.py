"""Files, folders and pictures that a message names with `@`: read when it is sent, and sent with
it.
"""

import re
from collections.abc import Callable, Iterator

import msgspec

from longrein.steps.human_text import counted, escape_line
from longrein.tools.read import (
    binary_kind,
    encoding_notes,
    is_pdf,
)
from longrein.tools.text_encoding import cut_head, decode, visible
from longrein.workspace import ResolvedPath, Workspace
from longrein.workspace.text_decoding import wide_encoding
from longrein_context.events import ATTACHED, AnyPart, Document, Image, Text
from longrein_context.events.image_header import image_info
from longrein_context.state.quoting import quote_external

ATTACHMENTS_MAX = 20
"""Files that one message attaches."""
FILE_BYTES_MAX = 32_000
"""Bytes of a text file that are attached; the model reads the rest itself."""
MEDIA_BYTES_MAX = 20 * 1024 * 1024
"""Largest picture or PDF file."""
NAMES_MAX = 300
"""Names of a folder that are attached."""

_NAMED = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')


class Attachments(msgspec.Struct, frozen=True):
    """Content that goes with a message."""

    parts: tuple[AnyPart, ...] = ()
    notes: tuple[str, ...] = ()
    """A line for each file that could not be attached."""


class AttachmentReader(msgspec.Struct, frozen=True):
    """Reads attached files for one session."""

    workspace: Workspace
    cwd: Callable[[], str]
    nonce: str
    keep_blob: Callable[[bytes], str]
    is_denied: Callable[[str, str], bool]
    """(path, real path) -> whether a rule forbids the model to read it."""

    def read(self, text: str) -> Attachments:
        """Return the attachments of a message. What follows an `@` and is no file or folder
        stays text.
        """
        parts: list[AnyPart] = []
        notes: list[str] = []
        for name in list(dict.fromkeys(named_paths(text)))[:ATTACHMENTS_MAX]:
            place = self._place(name)
            if place is None:
                continue
            if self.is_denied(place.path, place.real):
                notes.append(f"{escape_line(name)} is not attached: a rule forbids to read it")
                continue
            try:
                parts += self._folder(place) if place.kind == "folder" else self._file(place)
            except OSError as error:
                notes.append(f"{escape_line(name)} is not attached: {error.strerror or error}")
        return Attachments(tuple(parts), tuple(notes))

    def image(self, path: str) -> Image | None:
        """Return the picture at an absolute path; None when there is none that a model can view."""
        place = self.workspace.resolve(path, self.cwd())
        if (
            place.kind != "file"
            or not 0 < place.size_bytes <= MEDIA_BYTES_MAX
            or self.is_denied(place.path, place.real)
        ):
            return None
        try:
            return self.image_of(self.workspace.read(place.real, MEDIA_BYTES_MAX))
        except OSError:
            return None

    def image_of(self, data: bytes) -> Image | None:
        """Return a picture by its bytes; None when no model can view it."""
        info = image_info(data)
        return (
            Image(self.keep_blob(data), info.media, len(data), info.width, info.height)
            if info is not None and info.is_whole
            else None
        )

    def _place(self, name: str) -> ResolvedPath | None:
        """Return the file or folder that `name` means, perhaps with a punctuation mark behind
        it; None for neither.
        """
        for written in (name, name.rstrip(".,;:!?)]}'\"")):
            place = self.workspace.resolve(written, self.cwd())
            if place.kind in ("file", "folder"):
                return place
        return None

    def _folder(self, place: ResolvedPath) -> Iterator[AnyPart]:
        names: list[str] = []
        more = 0
        above = place.real.rstrip("/") + "/"

        def note(path: str, is_folder: bool) -> bool:
            nonlocal more
            if len(names) < NAMES_MAX:
                names.append(path.removeprefix(above) + "/" * is_folder)
            else:
                more += 1
            return False

        self.workspace.walk(place.real, note, limit_s=1.0)
        rest = f"\n[{counted(more, 'more name')}]" if more else ""
        yield self._text(f"{place.path.rstrip('/')}/", "\n".join(names) or "(empty)", rest)

    def _file(self, place: ResolvedPath) -> Iterator[AnyPart]:
        data = self.workspace.read(place.real, FILE_BYTES_MAX + 1)
        image = image_info(data)
        if image is not None or is_pdf(data):
            if place.size_bytes > MEDIA_BYTES_MAX:
                raise OSError(f"it is larger than {MEDIA_BYTES_MAX // 1024 // 1024} MB")
            data = self.workspace.read(place.real, MEDIA_BYTES_MAX)
            if image is None:
                name = escape_line(place.path)
                yield Document(self.keep_blob(data), "application/pdf", len(data), name)
                return
            found = self.image_of(data)
            if found is None:
                raise OSError("its header is broken, so that it cannot be shown")
            yield found
            return
        is_wide = bool(wide_encoding(data))
        shown = data[:FILE_BYTES_MAX] if is_wide else cut_head(data, FILE_BYTES_MAX)
        left = place.size_bytes - len(shown)
        decoded = decode(shown)
        if decoded is None:
            size = counted(place.size_bytes, "byte")
            yield Text(
                f"{ATTACHED}{escape_line(place.path)}, {binary_kind(data)}, {size}, which cannot "
                "be shown]"
            )
            return
        notes = encoding_notes(decoded)
        if left > 0:
            notes.append(f"cut here: Read shows the other {counted(left, 'byte')} of it")
        text = visible(decoded.text) if decoded.odd else decoded.text
        yield self._text(place.path, text, "".join(f"\n[{note}]" for note in notes))

    def _text(self, name: str, text: str, rest: str) -> Text:
        name = escape_line(name)
        quoted = quote_external(text.removesuffix("\n"), self.nonce)
        return Text(f"{ATTACHED}{name}]\n{quoted}{rest}\n[end of {name}]")


def named_paths(text: str) -> Iterator[str]:
    """Yield what a message names with `@`; a name with blanks stands in quotes."""
    for match in _NAMED.finditer(text):
        yield match[1] or match[2]
