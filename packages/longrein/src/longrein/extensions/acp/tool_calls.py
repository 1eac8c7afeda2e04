"""Tool calls as the editor shows them: title, kind, places, diffs and results. Pure."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from longrein.steps.call_results import SHELL, result_figures
from longrein.steps.human_text import (
    escape,
    escape_line,
    file_patches,
    key_argument,
)
from longrein_context.events import AnyPart, Document, Image, Text, ToolCall, ToolEnded, ToolTraits
from longrein_context.events.escape import shortened

if TYPE_CHECKING:
    from longrein.tools.patch_text import FilePatch

Update = dict[str, Any]
"""Fields of one `session/update`, in the spelling of the protocol."""
FileText = Callable[[str], str | None]
"""Absolute path -> present text of the file; None when there is none."""
ReadBlob = Callable[[str], bytes]

KINDS = {
    "read": "read",
    "search": "search",
    "edit": "edit",
    "write": "edit",
    "shell": "execute",
    "agent": "think",
    "fetch": "fetch",
}
"""Kind in the traits of a tool -> kind in the protocol; others are `other`."""
FENCED = ("read", "search", "execute")
"""Kinds whose result is program text or output, which must not be drawn as markdown."""
TITLE_CHARS_MAX = 200
RAW_CHARS_MAX = 20_000
"""Characters of a result that `rawOutput` repeats."""
IMAGE_BYTES_MAX = 8 * 1024 * 1024
PATH_ARGUMENTS = ("file_path", "path", "notebook_path")


class CallView(msgspec.Struct, frozen=True):
    """A call as it was announced."""

    id: str
    """Id in the protocol: with the label of a subagent before it."""
    call: ToolCall
    title: str
    kind: str
    content: tuple[Update, ...] = ()
    """Diffs: every later update repeats them, since a list replaces the last one."""


def view_of(
    call: ToolCall,
    qualified: str,
    traits: ToolTraits | None,
    cwd: str,
    file_text: FileText,
    who: str = "",
) -> CallView:
    """Return a call with its title, its kind and its diffs; `who` is the subagent that makes it."""
    kind = KINDS.get(
        traits.kind if traits else "", "switch_mode" if call.name == "ExitPlanMode" else "other"
    )
    named = (who and f"{who}:", escape_line(call.name), key_argument(call.arguments))
    title = shortened(" ".join(filter(None, named)), TITLE_CHARS_MAX)
    return CallView(qualified, call, title, kind, tuple(diffs(call, cwd, file_text)))


def announce(view: CallView, cwd: str, file_text: FileText) -> Update:
    """Return the `tool_call` of a new call."""
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": view.id,
        "title": view.title,
        "kind": view.kind,
        "status": "pending",
        "content": list(view.content),
        "locations": locations(view.call, cwd, file_text),
        "rawInput": view.call.arguments
        if view.call.arguments is not None
        else {"received": view.call.received},
    }


def started(view: CallView, arguments: dict[str, Any] | None) -> Update:
    """Return the update of a call that begins; `arguments` where a hook has changed them."""
    update = _update(view.id, status="in_progress")
    return update if arguments is None else update | {"rawInput": arguments}


def ended(view: CallView, end: ToolEnded, read_blob: ReadBlob, terminal: str = "") -> Update:
    """Return the update of a call that has ended; its title says what was found or the exit code.

    `terminal`: the editor's terminal that shows its output.
    """
    is_ok = end.status == "ok"
    text = "\n".join(filter(None, map(part_text, end.parts)))
    if terminal:
        content = [{"type": "terminal", "terminalId": terminal}]
    elif view.content and is_ok:
        content = list(view.content)
    else:
        content = [*view.content, *result_content(end.parts, read_blob, fenced=view.kind in FENCED)]
    raw = {
        "status": end.status,
        "elapsedMs": end.elapsed_ms,
        "text": shortened(text, RAW_CHARS_MAX),
    }
    status = "completed" if is_ok else "failed"
    update = _update(view.id, status=status, content=content, rawOutput=raw)
    figures = result_figures(end, view.call.arguments, view.kind.replace(KINDS[SHELL], SHELL))
    return update | {"title": f"{view.title} ({figures})"} if figures else update


def in_terminal(view: CallView, terminal: str) -> Update:
    """Return the update of a command that runs in a terminal of the editor."""
    return _update(view.id, content=[{"type": "terminal", "terminalId": terminal}])


def output_so_far(view: CallView, text: str) -> Update:
    """Return the update that shows the newest output of a running command."""
    return _update(view.id, content=[*view.content, text_content(fence(text))])


def diffs(call: ToolCall, cwd: str, file_text: FileText) -> list[Update]:
    """Return the diffs of a call of `Edit`, `Write` or `apply_patch`; nothing for other calls."""
    match call.name, call.arguments:
        case "apply_patch", arguments:
            return [
                update
                for patch in file_patches(arguments)
                for update in _patch_diffs(patch, cwd, file_text)
            ]
        case "Edit", {"file_path": str(path), "old_string": str(old), "new_string": str(new)}:
            return [diff(absolute(path, cwd), old or None, new)]
        case "Write", {"file_path": str(path), "content": str(content)}:
            return [diff(absolute(path, cwd), file_text(absolute(path, cwd)), content)]
        case _:
            return []


def _patch_diffs(patch: "FilePatch", cwd: str, file_text: FileText) -> Iterator[Update]:
    """Yield the changes of one file, one for each hunk."""
    path = absolute(patch.path, cwd)
    if patch.kind == "Delete":
        yield diff(path, file_text(path), "")
    if patch.moved_to:
        yield text_content(f"Move {escape_line(path)} to {escape_line(patch.moved_to)}")
    for hunk in patch.hunks:
        old, new = ("".join(f"{row}\n" for row in rows) for rows in (hunk.old, hunk.new))
        yield diff(path, None if patch.kind == "Add" else old, new)


def diff(path: str, old: str | None, new: str) -> Update:
    """Return a change of a file as content; `old` is None for a new file."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def locations(call: ToolCall, cwd: str, file_text: FileText) -> list[Update]:
    """Return the places that a call touches, for editors that follow the agent."""
    arguments = call.arguments or {}
    path = next(
        (arguments[key] for key in PATH_ARGUMENTS if isinstance(arguments.get(key), str)), ""
    )
    if call.name == "apply_patch":
        return [{"path": absolute(one.path, cwd)} for one in file_patches(arguments)]
    if not path:
        return []
    place: Update = {"path": absolute(path, cwd)}
    offset, old = arguments.get("offset"), arguments.get("old_string")
    if isinstance(offset, int) and offset > 0:
        place["line"] = offset
    elif isinstance(old, str) and old:
        before, found, _ = (file_text(place["path"]) or "").partition(old)
        if found:
            place["line"] = before.count("\n") + 1
    return [place]


def absolute(path: str, cwd: str) -> str:
    """Return an absolute path; the protocol knows no other."""
    return path if path.startswith("/") else f"{cwd.rstrip('/')}/{path.removeprefix('./')}"


# --- Content --------------------------------------------------------------------------------------


def text_content(text: str) -> Update:
    """Return text, which is drawn as markdown, as content of a call."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def fence(text: str) -> str:
    """Put text into a code block that nothing in the text can close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}\n{text}\n{marks}"


def result_content(parts: Sequence[AnyPart], read_blob: ReadBlob, *, fenced: bool) -> list[Update]:
    """Return the parts of a result as content."""
    content = []
    for part in parts:
        block = image_block(part, read_blob) if isinstance(part, Image) else None
        if block is not None:
            content.append({"type": "content", "content": block})
        elif text := part_text(part):
            content.append(text_content(fence(escape(text)) if fenced else text))
    return content


def image_block(image: Image, read_blob: ReadBlob) -> Update | None:
    """Return an image as a content block; None when it is too large or not there."""
    if image.size_bytes > IMAGE_BYTES_MAX:
        return None
    try:
        data = read_blob(image.blob)
    except KeyError:
        return None
    return {"type": "image", "data": b64encode(data).decode(), "mimeType": image.media}


def part_text(part: AnyPart) -> str:
    """Return a part as text: an image by type and size, a long text by its two ends."""
    match part:
        case Text(text):
            return text
        case Image():
            return f"[image {part.media}, {part.size_bytes} bytes]"
        case Document():
            kept = f"[{part.name or part.media}: {part.size_bytes} bytes in all]"
            return "\n".join(filter(None, (part.head, kept, part.tail)))
        case _:
            return ""


def _update(call: str, **fields: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}
