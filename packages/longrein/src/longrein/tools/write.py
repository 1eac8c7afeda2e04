"""`Write` tool: creates or replaces a whole file, and the merge with concurrent changes that `Edit`
uses too.

A write never replaces content that the model has not seen.
"""

import re
from collections.abc import Callable
from hashlib import sha256

from longrein.tools.file_access import (
    HANDLED_BYTES_MAX,
    keep_content,
    load_file,
    next_call,
    one_line,
    os_error_text,
    refuse_marker,
    resolve_path,
    run_by_size,
)
from longrein.tools.read import is_pdf, numbered_page
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import PLAIN_STYLE, Style, counted, decode, lines_of, size_words
from longrein.tools.tool_port import FileVersion, Outcome, ToolContext
from longrein.workspace import ReplaceResult, ResolvedPath
from longrein_context.events import AnyEvent, FileChanged, FileSeen, ToolError
from longrein_context.events.image_header import image_info

# --- Merge with concurrent changes ----------------------------------------------------------------
#
# The content that the model knows is the base of a three-way merge. A change by somebody else that
# does not touch the model's change is kept and shown. A change that touches it, or an unknown base,
# refuses the write. A refusal that shows the whole change makes the file known again, so that the
# model need not read it.


SHOWN_LINES_MAX, SHOWN_BYTES_MAX = 200, 8_000
"""Size of a text that a refusal shows."""
READ_FIRST = " Look at all of it first, then try again."
UNKNOWN_WRITER = "somebody else"
"""Name for a writer that is no agent of this session."""


async def known_content(context: ToolContext, place: ResolvedPath) -> tuple[bytes, bytes]:
    """Return (content that the model knows, present content). Compares content, not modification
    times.

    Raises `ToolError` for a file that was never read, or that changed while its known content was
    not kept.
    """
    return await _merge_base(context, place, context.files.versions.get(place.real))


async def content_known_to_call(context: ToolContext, place: ResolvedPath) -> tuple[bytes, bytes]:
    """Return `known_content` for a call that replaces the whole file.

    Results of other calls in the same reply do not count: the model had not seen them when it wrote
    this call.
    """
    known = context.files.versions.get(place.real)
    if known is not None and known.told is not None and known.told[0] != known.hash:
        if not known.told[0]:
            raise ToolError(
                f"[not-read] {one_line(place.path)} exists and you had not seen what is in it "
                "when you wrote this "
                "call. Nothing was written. Send it again if it shall replace that."
            )
        known = FileVersion(known.told[0], known.whole, known.told[1])
    return await _merge_base(context, place, known)


async def _merge_base(
    context: ToolContext, place: ResolvedPath, known: FileVersion | None
) -> tuple[bytes, bytes]:
    now = await load_file(context, place)
    if known is None or not known.hash:
        raise await unseen_content(
            context,
            place,
            now,
            f"[not-read] {one_line(place.path)} exists and you have not read it",
        )
    digest = await run_by_size(context, len(now), lambda: sha256(now).hexdigest())
    if digest == known.hash:
        return now, now
    base = kept_content(context, known)
    if base is None:
        who = context.files.wrote(place.real, digest)
        raise await unseen_content(
            context,
            place,
            now,
            f"[changed] {one_line(place.path)} has changed since you read it"
            f"{f': {who} wrote it' if who else ''}",
        )
    return base, now


async def unseen_content(
    context: ToolContext, place: ResolvedPath, now: bytes, why: str
) -> ToolError:
    """Return the refusal to change content that the model does not know.

    A small text that the model may read is shown with it and counts as read.
    """
    is_small = len(now) <= SHOWN_BYTES_MAX and context.files.may_read(place.path)
    decoded = decode(now) if is_small and not image_info(now) and not is_pdf(now) else None
    if decoded is not None and len(lines_of(decoded.text)) <= SHOWN_LINES_MAX:
        text, whole, last = numbered_page(context, place, decoded, 1, SHOWN_LINES_MAX)
        digest, blob = await keep_content(context, now)
        seen = FileSeen(place.real, digest, blob, whole, 1 if last else 0, last)
        return ToolError(f"{why}; nothing was written. Go by this and call again:\n{text}", seen)
    read = next_call(context, "Read", file_path=place.given) or READ_FIRST
    return ToolError(f"{why}; nothing was written.{read}")


def refuse_unseen(context: ToolContext, place: ResolvedPath) -> None:
    """Raise `ToolError` for a file that the model has not read and that is not for it to look at
    without a question.

    The text is the same whether there is such a file or not.
    """
    if is_unseen(context, place):
        raise ToolError(
            f"[not-read] You have not read {one_line(place.path)}."
            f"{next_call(context, 'Read', file_path=place.given) or READ_FIRST}"
        )


def is_unseen(context: ToolContext, place: ResolvedPath) -> bool:
    """Return True for a place of which a check tells nothing, not even that a file is there."""
    return place.real not in context.files.versions and (
        not place.inside
        or (context.files.hidden is not None and context.files.hidden(place.path, place.real))
    )


def kept_content(context: ToolContext, known: FileVersion) -> bytes | None:
    """Return the content of a version; None when it was not kept.

    It was too large, or a secret in it was replaced.
    """
    if not known.blob or known.blob != known.hash:
        return None
    try:
        return context.blobs.read_blob(known.blob)
    except KeyError:
        return None


async def create_file(
    context: ToolContext, place: ResolvedPath, data: bytes, confirmation: str, like: str = ""
) -> Outcome:
    """Create a file that must not exist yet, with the attributes of the file `like`."""
    replaced = await _replace_file(context, place, data, "", None, like)
    if replaced.data is None:
        who = (
            context.files.wrote(place.real, sha256(replaced.taken[-1]).hexdigest())
            or UNKNOWN_WRITER
        )
        why = f"[changed] {one_line(place.path)} was created by {who} just now"
        raise await unseen_content(context, place, replaced.taken[-1], why)
    digest, blob = await keep_content(context, data)
    return Outcome.of(confirmation, FileChanged(place.real, digest, "agent", blob))


async def save_merged(
    context: ToolContext,
    place: ResolvedPath,
    base: bytes,
    data: bytes,
    confirmation: Callable[[str, str], str],
) -> Outcome:
    """Write `data`, made from `base`, and merge it with changes that were made since.

    `confirmation(shown, extra)` gives the result's text. `shown`: the numbered lines of this change
    when it was merged with another, else ''. `extra`: the description of the other change.
    """
    from longrein.tools.diff import change_of

    before = await run_by_size(context, len(base), lambda: sha256(base).hexdigest())
    replaced = await _replace_file(context, place, data, before, base)
    if replaced.data is None:
        return await refuse_changed(context, place, base, replaced.taken)
    digest, blob = await keep_content(context, replaced.data)
    if not replaced.taken:
        return Outcome.of(
            confirmation("", ""), FileChanged(place.real, digest, "agent", blob, before)
        )
    facts = [
        FileChanged(
            place.real,
            digest,
            "agent",
            blob,
            sha256(one).hexdigest(),
            over=context.blobs.put_blob(one),
        )
        for one in replaced.taken
    ]
    ours, _ = await run_by_size(
        context, len(data), lambda: change_of(replaced.taken[-1], replaced.data or b"")
    )
    return Outcome.of(confirmation(ours, await _merge_note(context, place, data, replaced)), *facts)


async def _merge_note(
    context: ToolContext, place: ResolvedPath, data: bytes, replaced: ReplaceResult
) -> str:
    """Describe the changes of others that were merged with this write."""
    from longrein.tools.diff import change_of

    names = dict.fromkeys(
        context.files.wrote(place.real, sha256(one).hexdigest()) or UNKNOWN_WRITER
        for one in replaced.taken
    )
    diff, note = await run_by_size(
        context, len(data), lambda: change_of(data, replaced.data or b"")
    )
    head = f"Since you read it {' and '.join(names)} changed it too, elsewhere; both changes stand"
    if diff:
        return f"{head}. Theirs:\n{diff}"
    return f"{head} ({note}). Read it before you rely on it." if note else f"{head}."


async def refuse_changed(
    context: ToolContext, place: ResolvedPath, base: bytes, taken: tuple[bytes, ...]
) -> Outcome:
    """Return the refusal for a conflicting change; the last of `taken` is the present content."""
    from longrein.tools.diff import change_of

    digest, blob = await keep_content(context, taken[-1])
    who = context.files.wrote(place.real, digest) or UNKNOWN_WRITER
    diff, note = await run_by_size(context, len(taken[-1]), lambda: change_of(base, taken[-1]))
    facts: list[AnyEvent] = [
        FileChanged(
            place.real,
            digest,
            "user",
            blob,
            sha256(one).hexdigest(),
            over=context.blobs.put_blob(one),
        )
        for one in taken[:-1]
    ]
    head = f"[changed] {one_line(place.path)} has changed since you read it"
    if not diff:
        why = f"{head}: {who} changed it, {note}"
        shown = await unseen_content(context, place, taken[-1], why)
        return Outcome.fail(str(shown), *facts, *shown.facts)
    known = context.files.versions.get(place.real)
    facts.append(FileSeen(place.real, digest, blob, whole=known is not None and known.whole))
    how = f"nothing was written. Go by this and call again; it is all that {who} changed"
    return Outcome.fail(f"{head}; {how}:\n{diff}", *facts)


async def _replace_file(
    context: ToolContext,
    place: ResolvedPath,
    data: bytes,
    expect: str,
    base: bytes | None,
    like: str = "",
) -> ReplaceResult:
    """Call `Workspace.replace`, and turn operating system errors into `ToolError`."""
    from longrein.tools.diff import merge

    try:
        return await context.workspace.run_in_thread(
            lambda: context.workspace.replace(
                place.real, data, expect=expect, base=base, merge=merge, like=like
            )
        )
    except FileNotFoundError:
        raise ToolError(
            f"[changed] {one_line(place.path)} was removed by somebody else; nothing was written. "
            "Create it with Write if it shall be there."
        ) from None
    except OSError as error:
        text = (
            f"[unwritable] {one_line(place.path)} cannot be written: {os_error_text(error)}. "
            "It is unchanged. Look why with Bash (ls -l)."
        )
        raise ToolError(text) from None


# --- The tool -------------------------------------------------------------------------------------


async def Write(context: ToolContext, file_path: str, content: str) -> Outcome:
    """Create a file, or replace all of one. {{Read: One that exists you must Read first. }}{{Edit:
    To change a part use Edit. }}Folders are made. Give the complete text: no markers or
    placeholders.
    """
    refuse_marker(context, content, file_path)
    place = resolve_path(context, file_path)
    refuse_place(place)
    if place.kind == "":
        return await create_file(
            context,
            place,
            encode_for(place, content, PLAIN_STYLE),
            f"Created {described_file(place, content)}.",
        )
    base, now = await content_known_to_call(context, place)
    decoded = decode(base)
    content = without_line_numbers(content, decoded.text if decoded else "")
    style = decoded.style if decoded and base else PLAIN_STYLE
    data = encode_for(place, with_line_ends(content, style), style)
    if data == now:
        same = f"{one_line(place.path)} has exactly this content already; nothing was written."
        return Outcome.of(
            same,
            *(() if base == now else (FileSeen(place.real, *await keep_content(context, now)),)),
        )
    kept = f" Kept: {style.words()}." if style.words() else ""

    def confirmation(_shown: str, extra: str) -> str:
        return f"Replaced {described_file(place, content)}.{kept}{extra and ' ' + extra}"

    return await save_merged(context, place, base, data, confirmation)


def without_line_numbers(content: str, known: str) -> str:
    """Return new content for a file without the numbers of `Read`, if each line has its own there
    and most lines without it are lines of the `known` content, which has none.

    >>> without_line_numbers("1\\ta\\n2\\tb", "a\\nc")
    'a\\nb'
    """
    rows = [re.fullmatch(r"(\d{1,9})\t(.*)", line) for line in content.rstrip("\n").split("\n")]
    found = [row for row in rows if row is not None]
    if len(found) < len(rows) or [row[1] for row in found] != [
        str(n) for n in range(1, len(rows) + 1)
    ]:
        return content
    lines, bare = set(known.splitlines()), [row[2] for row in found]
    if any(row[0] in lines for row in found) or 2 * sum(line in lines for line in bare) < len(bare):
        return content
    return "\n".join(bare) + content[len(content.rstrip("\n")) :]


def described_file(place: ResolvedPath, content: str) -> str:
    """Return a file's path and size for a confirmation."""
    lines = counted(len(lines_of(content)), "line")
    return (
        f"{one_line(place.path)} ({lines}, {size_words(len(content.encode('utf-8', 'replace')))})"
        f"{place.where}"
    )


def refuse_place(place: ResolvedPath) -> None:
    """Raise `ToolError` for folders, devices, very large files and the folders of version
    control.
    """
    if place.kind in ("folder", "other"):
        raise ToolError(
            f"[not-a-file] {one_line(place.path)} is a "
            f"{'folder' if place.kind == 'folder' else 'device'}. Name a file."
        )
    if place.size_bytes > HANDLED_BYTES_MAX:
        text = (
            f"[too-large] {one_line(place.path)} has {size_words(place.size_bytes)}; "
            "change it with Bash (sed -i, split)."
        )
        raise ToolError(text)
    inner = {".git", ".hg", ".svn"}.intersection(place.path.split("/") + place.real.split("/"))
    if inner:
        text = (
            f"[ignored-path] {one_line(place.path)} lies in {min(inner)}, which only version "
            "control may change; "
            "use git."
        )
        raise ToolError(text)


def with_line_ends(text: str, style: Style) -> str:
    """Return `text` with the line ends of `style`."""
    return (
        text
        if style.eol == "\n" or style.mixed
        else text.replace("\r\n", "\n").replace("\n", style.eol)
    )


def encode_for(place: ResolvedPath, text: str, style: Style) -> bytes:
    """Encode `text`. Raises `ToolError` for characters that the file's encoding lacks."""
    try:
        return style.encode(text)
    except UnicodeEncodeError as error:
        char = ascii(text[error.start : error.start + 1])
        raise ToolError(
            f"[encoding] {one_line(place.path)} is {style.words() or 'UTF-8'}, which has no "
            f"{char}; nothing was "
            "written. Leave the character out, or convert the file with Bash (iconv) first."
        ) from None


WRITE = make_tool(
    Write,
    access="write",
    paths=[("file_path", True)],
    rule_name="Edit",
    aliases=("write_file", "writefile", "create_file", "write_to_file"),
    kind="write",
    quiet=True,
    key_argument="file_path",
)
