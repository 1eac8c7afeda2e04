"""Facts from the terminal's caller for the input: keys, attachments, drafts, files of
instructions.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from longrein.app.attachments import Attachments
from longrein.events import Image


async def _no_clipboard() -> tuple[bytes, str]:
    return b"", "the clipboard cannot be read here"


class InputFacts(msgspec.Struct, frozen=True):
    """Facts and callbacks for the input."""

    keys: Mapping[str, Sequence[str]] = {}
    """Action -> keys, where the settings name them; see `key_names.ACTIONS`."""
    vim: bool = False
    drafts: str = ""
    """Path without its end of the files of drafts; '' keeps none."""
    environ: Mapping[str, str] = {}
    """Variables that name the editor and the desktop."""
    attachments: Callable[[str], Attachments] = lambda _text: Attachments()
    """Text of a message -> what goes with it."""
    image: Callable[[str], Image | None] = lambda _path: None
    """Path -> picture."""
    image_of: Callable[[bytes], Image | None] = lambda _data: None
    """Bytes of a picture -> picture."""
    clipboard: Callable[[], Awaitable[tuple[bytes, str]]] = _no_clipboard
    """Bytes of the clipboard's picture, or the reason why there is none."""
    memory_files: Callable[[], Sequence[tuple[str, str]]] = tuple
    """(label, path) of the files that `#TEXT` can be added to."""
