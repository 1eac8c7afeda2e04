"""What the file tools share: finding a file, loading it, refusing with a code word the model can act on.

A refusal is a `ToolError` whose text begins with its code in brackets, such as `[not-read]`; `registry.runner` turns it
into a failed outcome.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from longrein.events import ToolError, marker_sign
from longrein.tools.arguments import nearest
from longrein.tools.port import ToolContext
from longrein.tools.text_encoding import clean_text
from longrein.workspace import Place

T = TypeVar("T")
HANDLED_BYTES_MAX = 64 * 1024 * 1024
"""Largest file that is hashed and edited, and how far into a larger one `Read` looks for a line."""
IN_LOOP_BYTES_MAX = 1024 * 1024
"""Content up to this size is read, hashed and searched in the loop: a millisecond or two."""
LIST_LIMIT_S = 0.2
"""Longest look into a folder for a similar name."""


def resolve_path(hands: ToolContext, path: str) -> Place:
    """Look `path` up. Refuses what no file can be called."""
    place = hands.workspace.look(path, hands.cwd)
    if not path.strip() or "\0" in path or not encodable(place.real):
        raise ToolError(f"[bad-path] {one_line(path) or 'An empty text'} is no usable path; give the path of a file.")
    return place


def encodable(text: str) -> bool:
    """Whether `text` is valid Unicode (a log and a wire can hold it)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def existing_file(hands: ToolContext, path: str) -> Place:
    """A regular file. Refuses anything else, with the nearest name when there is none."""
    place = resolve_path(hands, path)
    match place.kind:
        case "file":
            return place
        case "folder":
            raise ToolError(f"[folder] {one_line(path)} is a folder; use Glob, or Bash with ls, to see what is in it.")
        case "other":
            raise ToolError(f"[not-a-file] {one_line(path)} is a device, pipe or socket, not a file.")
        case _:
            raise ToolError(not_found_message(hands, place))


def not_found_message(hands: ToolContext, place: Place) -> str:
    """The refusal for a file that does not exist."""
    folder, _, name = place.path.rpartition("/")
    names: list[str] = []

    def visit(path: str, is_folder: bool) -> bool:
        if not is_folder and path.rpartition("/")[2] != name:  # itself: a link that leads nowhere
            names.append(path.rpartition("/")[2])
        return False

    around = hands.workspace.look(folder or "/", hands.cwd)
    if around.kind != "folder":
        return f"[not-found] No such file: {one_line(place.path)}; its folder does not exist either."
    hands.workspace.walk(around.path, visit, LIST_LIMIT_S)
    near = nearest(name, names)
    hint = f" Did you mean {one_line(folder)}/{one_line(near)}?" if near else " Use Glob to find it."
    return f"[not-found] No such file: {one_line(place.path)}.{hint}"


async def run_by_size(hands: ToolContext, size_bytes: int, work: Callable[[], T]) -> T:
    """`work()` on so many bytes: here when it is little, else beside the loop, so that nobody waits for it."""
    return work() if size_bytes <= IN_LOOP_BYTES_MAX else await hands.workspace.aside(work)


async def load_file(hands: ToolContext, place: Place, limit_bytes: int = 0) -> bytes:
    """Content of a file that `existing` found. A file that vanished or cannot be read is a refusal."""
    try:
        return await run_by_size(hands, place.size_bytes, lambda: hands.workspace.read(place.real, limit_bytes))
    except FileNotFoundError:
        raise ToolError(f"[not-found] {one_line(place.path)} has just vanished.") from None
    except OSError as error:
        raise ToolError(f"[unreadable] {one_line(place.path)} cannot be read: {os_error_text(error)}.") from None


async def keep_content(hands: ToolContext, data: bytes) -> tuple[str, str]:
    """(hash, blob) of a file's content; the blob is '' above the size that is kept.

    The blob's name is the hash unless a secret was replaced in what is kept.
    """
    kept = len(data) <= hands.options.keep_bytes_max
    digest = await run_by_size(hands, len(data), lambda: sha256(data).hexdigest())
    return digest, hands.blobs.put_blob(data) if kept else ""


def refuse_marker(hands: ToolContext, *texts: str) -> None:
    """Law 4: a harness marker stands for bytes that are not there, so it must not reach a file or a command."""
    sign = marker_sign(hands.nonce)
    if any(sign in text for text in texts):
        raise ToolError(
            "[marker] The text holds a longrein marker, which stands for content that was cut, cleared or secret. "
            "Nothing was done. Get the real bytes with Recall (the handle is in or beside the marker) or Read, "
            "and send the call again with them."
        )


def one_line(path: str) -> str:
    """A path as it can be shown."""
    return clean_text(path).replace("\n", "\\n")


def os_error_text(error: OSError) -> str:
    """The system's own words."""
    return (error.strerror or str(error) or type(error).__name__).lower()
