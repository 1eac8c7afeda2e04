"""File access for tools: resolve a path, load and keep content, refuse with a code that the model
can act on.

A refusal is a `ToolError` whose text begins with a code in brackets, such as `[not-read]`.
`registry.make_runner` turns it into a failed outcome.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

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
"""Time limit of the list of a folder."""
NAMES_SHOWN_MAX = 12
"""Names of a folder that a refusal shows."""


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


def existing_file(
    context: ToolContext, path: str, search: tuple[str, Mapping[str, Any]] | None = None
) -> ResolvedPath:
    """Resolve `path` to a regular file. Raises `ToolError` otherwise: what is there, and a call
    that works.

    `search`: name and other arguments of a call that searches `path`; None for one that reads it.
    """
    place = resolve_path(context, path)
    match place.kind:
        case "file":
            return place
        case "folder":
            raise ToolError(
                f"[folder] {one_line(path)} is a folder.{_shown_folder(context, place)}"
            )
        case "other":
            raise ToolError(
                f"[not-a-file] {one_line(path)} is a device, pipe or socket, not a file. Name a "
                "regular file."
            )
        case _:
            raise ToolError(not_found_message(context, place, search))


def not_found_message(
    context: ToolContext,
    place: ResolvedPath,
    search: tuple[str, Mapping[str, Any]] | None = None,
) -> str:
    """Return the refusal for a path that does not exist, with what the nearest folder holds."""
    head = f"[not-found] No such {'path' if search else 'file'}: {one_line(place.path)}."
    if "\ufffd" in place.path:
        return f"{head} {ODD_NAME_HINT}"
    folder = place
    while folder.kind != "folder" and folder.path != "/":
        folder = context.workspace.resolve(folder.path.rpartition("/")[0] or "/", context.cwd)
    missing = place.path[len(folder.path.rstrip("/")) + 1 :].split("/")
    return head + _shown_folder(context, folder, missing, search)


def _shown_folder(
    context: ToolContext,
    folder: ResolvedPath,
    missing: Sequence[str] = (),
    search: tuple[str, Mapping[str, Any]] | None = None,
) -> str:
    """Name what a folder holds, and a call that works there. `missing`: the names that were looked
    for below it. Tells nothing of a folder that the model may not read.
    """
    if not context.files.may_read(folder.path):
        return next_call(context, "Glob", pattern="**/*")
    cwd = context.workspace.resolve(".", context.cwd).path
    inner = folder.path.removeprefix(f"{cwd.rstrip('/')}/") if folder.path != cwd else ""
    names = sorted(_names_in(context, folder), key=lambda name: name.startswith("."))
    more = [f"{len(names) - NAMES_SHOWN_MAX} more"] * (len(names) > NAMES_SHOWN_MAX)
    shown = ", ".join([*map(one_line, names[:NAMES_SHOWN_MAX]), *more]) or "nothing"
    usable = [name for name in names if encodable(name)]
    if search is not None and search[0] == "Glob":
        usable = [name for name in usable if name.endswith("/")]
    near = _near_name(context, folder, missing, usable)
    files = [name for name in (near, *usable) if name and not name.endswith("/")]
    base = inner and f"{inner.rstrip('/')}/"
    told = f" {f'In {one_line(inner)}' if inner else 'Here'}: {shown}."
    told += f" Did you mean {one_line(base + near)}?" if near else ""
    if search is not None:
        return told + next_call(context, search[0], **search[1], path=base + near or ".")
    if files and near in ("", files[0]):
        return told + next_call(context, "Read", file_path=base + files[0])
    return told + next_call(context, "Glob", pattern="**/*", path=base + near or ".")


def _near_name(
    context: ToolContext, folder: ResolvedPath, missing: Sequence[str], names: Sequence[str]
) -> str:
    """Return the path below `folder` that was probably meant by the `missing` names; '' for none.

    That is the same path with a similar first name, or the last name in `folder` itself.
    """
    others = [name for name in names if missing and name.rstrip("/") != missing[0]]  # no dead link
    near = nearest(missing[0], others) if others else ""
    whole = "/".join([near.rstrip("/"), *missing[1:]])
    found = context.workspace.resolve(f"{folder.path}/{whole}", context.cwd) if near else None
    if found is not None and found.kind == "file":
        return whole
    return missing[-1] if len(missing) > 1 and missing[-1] in names else near


def _names_in(context: ToolContext, folder: ResolvedPath) -> list[str]:
    """Return the names in a folder that a search may show, those of folders with `/`."""
    hidden, names = context.files.hidden, list[str]()

    def visit(path: str, is_folder: bool) -> bool:
        name = path.rpartition("/")[2]
        if hidden is None or not hidden(f"{folder.path.rstrip('/')}/{name}", path):
            names.append(name + "/" * is_folder)
        return False

    context.workspace.walk(folder.real, visit, LIST_LIMIT_S)
    return names


def next_call(context: ToolContext, name: str, **arguments: object) -> str:
    """Return ` Next: call Read with file_path "a.py".`; '' where the tool is not offered."""
    if context.offered is not None and name not in context.offered:
        return ""
    given = [
        f"{key} {msgspec.json.encode(value).decode('utf-8', 'replace')}"
        for key, value in arguments.items()
    ]
    return f" Next: call {name} with {', '.join(given)}."


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
        look = next_call(context, "Glob", pattern="**/*")
        raise ToolError(f"[not-found] {one_line(place.path)} has just vanished.{look}") from None
    except OSError as error:
        raise ToolError(
            f"[unreadable] {one_line(place.path)} cannot be read: {os_error_text(error)}. Look why "
            "with Bash (ls -l)."
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
