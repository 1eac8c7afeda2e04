"""File access for tools: resolve a path, load and keep content, refuse with a code that the model
can act on.

A refusal is a `ToolError` whose text begins with a code in brackets, such as `[not-read]`.
`registry.make_runner` turns it into a failed outcome.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from longrein.tools.arguments import nearest
from longrein.tools.text_encoding import clean_text
from longrein.tools.tool_port import ToolContext
from longrein.workspace import ResolvedPath
from longrein_context.events import ToolError, marker_sign

T = TypeVar("T")
ODD_NAME_HINT = "Bytes that are not UTF-8 are shown as \ufffd; use Bash, with ? in place of each."
HANDLED_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a file that is hashed and edited, and how far `Read` looks for a line in a
larger file.
"""
IN_LOOP_BYTES_MAX = 1024 * 1024
"""Maximum size of content that is handled in the event loop: one or two milliseconds."""
LIST_LIMIT_S = 0.2
"""Time limit of the search for a similar name in a folder."""


def resolve_path(context: ToolContext, path: str) -> ResolvedPath:
    """Resolve `path`. Raises `ToolError` for a text that cannot be a path, and for one that
    leads elsewhere by now.
    """
    place = context.workspace.resolve(path, context.cwd)
    if not encodable(place.real) and encodable(place.real, "surrogateescape"):
        raise ToolError(
            f"[bad-path] {one_line(path)} has a name that is not UTF-8. {ODD_NAME_HINT}"
        )
    if not path.strip() or "\0" in path or not encodable(place.real):
        raise ToolError(
            f"[bad-path] {one_line(path) or 'An empty text'} is no usable path; give the path of "
            "a file."
        )
    if context.files.judged.get(path, place.real) != place.real:
        raise ToolError(
            f"[moved] {one_line(path)} has changed between the check and the use: it leads to "
            "another place now. "
            "Nothing was done; look again."
        )
    return place


def encodable(text: str, errors: str = "strict") -> bool:
    """Return True if `text` can be logged and sent; with `surrogateescape`, if it can name a
    file.
    """
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True


def existing_file(context: ToolContext, path: str) -> ResolvedPath:
    """Resolve `path` to a regular file. Raises `ToolError` otherwise, with the nearest name for
    a missing file.
    """
    place = resolve_path(context, path)
    match place.kind:
        case "file":
            return place
        case "folder":
            raise ToolError(
                f"[folder] {one_line(path)} is a folder; use Glob, or Bash with ls, to see what "
                "is in it."
            )
        case "other":
            raise ToolError(
                f"[not-a-file] {one_line(path)} is a device, pipe or socket, not a file."
            )
        case _:
            raise ToolError(not_found_message(context, place))


def not_found_message(context: ToolContext, place: ResolvedPath) -> str:
    """Return the refusal for a file that does not exist, with the nearest name."""
    folder, _, name = place.path.rpartition("/")
    names: list[str] = []

    def visit(path: str, is_folder: bool) -> bool:
        if not is_folder and path.rpartition("/")[2] != name:  # the same name: a dangling link
            names.append(path.rpartition("/")[2])
        return False

    around = context.workspace.resolve(folder or "/", context.cwd)
    if around.kind != "folder":
        return (
            f"[not-found] No such file: {one_line(place.path)}; its folder does not exist either."
        )
    context.workspace.walk(around.real, visit, LIST_LIMIT_S)
    if "\ufffd" in place.path:
        return f"[not-found] No such file: {one_line(place.path)}. {ODD_NAME_HINT}"
    near = nearest(name, names)
    hint = (
        f" Did you mean {one_line(folder)}/{one_line(near)}?" if near else " Use Glob to find it."
    )
    return f"[not-found] No such file: {one_line(place.path)}.{hint}"


async def run_by_size(context: ToolContext, size_bytes: int, work: Callable[[], T]) -> T:
    """Run `work()` in the event loop for up to `IN_LOOP_BYTES_MAX`, else in a thread."""
    return (
        work() if size_bytes <= IN_LOOP_BYTES_MAX else await context.workspace.run_in_thread(work)
    )


async def load_file(context: ToolContext, place: ResolvedPath, limit_bytes: int = 0) -> bytes:
    """Load a file that `existing_file` resolved. Raises `ToolError` when it vanished or cannot
    be read.
    """
    try:
        return await run_by_size(
            context, place.size_bytes, lambda: context.workspace.read(place.real, limit_bytes)
        )
    except FileNotFoundError:
        raise ToolError(f"[not-found] {one_line(place.path)} has just vanished.") from None
    except OSError as error:
        raise ToolError(
            f"[unreadable] {one_line(place.path)} cannot be read: {os_error_text(error)}."
        ) from None


async def keep_content(context: ToolContext, data: bytes) -> tuple[str, str]:
    """Store content as a blob and return (hash, blob); the blob is '' above `keep_bytes_max`.

    The blob's name equals the hash unless a secret was replaced in the stored content.
    """
    kept = len(data) <= context.options.keep_bytes_max
    digest = await run_by_size(context, len(data), lambda: sha256(data).hexdigest())
    return digest, context.blobs.put_blob(data) if kept else ""


def refuse_marker(context: ToolContext, *texts: str) -> None:
    """Raise `ToolError` for text with a longrein marker, which must not reach a file or a
    command.
    """
    sign = marker_sign(context.nonce)
    if any(sign in text for text in texts):
        raise ToolError(
            "[marker] The text holds a longrein marker, which stands for content that was cut, "
            "cleared or secret. "
            "Nothing was done. Get the real bytes with Recall (the handle is in or beside the "
            "marker) or Read, "
            "and send the call again with them."
        )


def one_line(path: str) -> str:
    """Return text from outside, such as a path, cleaned and on one line."""
    return clean_text(path).replace("\n", "\\n")


def os_error_text(error: OSError) -> str:
    """Return the operating system's message, in lower case."""
    return (error.strerror or str(error) or type(error).__name__).lower()
