"""`Read` tool: shows a file with line numbers, or an image or PDF, and records which content the
model has seen.
"""

from longrein.tools.file_access import (
    HANDLED_BYTES_MAX,
    existing_file,
    keep_content,
    load_file,
    next_call,
    one_line,
    run_by_size,
)
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import (
    Decoded,
    counted,
    cut_head,
    decode,
    lines_of,
    size_words,
    visible,
)
from longrein.tools.tool_port import Outcome, ToolContext
from longrein.workspace import ResolvedPath
from longrein.workspace.text_decoding import wide_encoding
from longrein_context.events import Document, FileSeen, Image, Text, ToolError, marker
from longrein_context.events.image_header import image_info

# --- File types by their first bytes --------------------------------------------------------------


MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "ELF program"),
    (b"\xfe\xed\xfa", "Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"MZ", "Windows program"),
    (b"PK\x03\x04", "ZIP archive (also docx, xlsx, jar, whl)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf", "7-Zip archive"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\0asm", "WebAssembly"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"RIFF", "RIFF media"),
    (b"\0\0\0 ftyp", "MP4 media"),
    (b"BM", "BMP image"),
    (b"II*\0", "TIFF image"),
    (b"MM\0*", "TIFF image"),
    (b"\x80\x04\x95", "Python pickle"),
    (b"\x93NUMPY", "NumPy array"),
    (b"wOF", "web font"),
)


def binary_kind(data: bytes) -> str:
    """Name the type of binary content; `binary data` when it is unknown."""
    return next((kind for magic, kind in MAGIC if data.startswith(magic)), "binary data")


def is_pdf(data: bytes) -> bool:
    """Return True if `data` is a PDF document."""
    return data.startswith(b"%PDF-")


# --- The tool -------------------------------------------------------------------------------------


MEDIA_BYTES_MAX = 32 * 1024 * 1024
"""Maximum size of an image or PDF that is read."""


async def Read(
    context: ToolContext, file_path: str, offset: int | None = None, limit: int | None = None
) -> Outcome:
    """Read a file; always before you change it. Lines come as `number<TAB>text`: number and tab
    are not in the file, and a line without number is a note. Images and PDFs are shown. Not for
    folders{{Glob: : use Glob}}.

    offset: First line, from 1.
    limit: Lines; default 2000.
    """
    if (offset is not None and offset < 0) or (limit is not None and limit < 1):
        raise ToolError("[bad-range] offset counts from 1 and limit must be at least 1.")
    place = existing_file(context, file_path)
    first = max(offset or 1, 1)
    count = limit or context.options.read_lines_max
    if place.size_bytes > context.options.keep_bytes_max:
        return await read_large(context, place, first, count)
    data = await load_file(context, place)
    if image_info(data) or is_pdf(data):
        return read_media(place, data, *await keep_content(context, data))
    decoded = await run_by_size(context, len(data), lambda: decode(data))
    if decoded is None:
        raise ToolError(binary_message(place, data, len(data)))
    text, whole, last = await run_by_size(
        context, len(data), lambda: numbered_page(context, place, decoded, first, count)
    )
    text += f"\n[{one_line(place.path)}{place.where}]" if place.where else ""
    digest, blob = await keep_content(context, data)
    if last and (handle := context.files.standing(place.real, digest, first, last)):
        told = (
            f"[unchanged since {handle}: lines {first}-{last} of {one_line(place.path)} stand "
            "there as they are now]"
        )
        return Outcome.of(told, FileSeen(place.real, digest, blob, whole, first, last, handle))
    known = context.files.versions.get(place.real)
    whole = whole or (known is not None and known.whole and known.hash == digest)
    return Outcome(
        (Text(text),), (FileSeen(place.real, digest, blob, whole, first if last else 0, last),)
    )


def numbered_page(
    context: ToolContext, place: ResolvedPath, decoded: Decoded, first: int, count: int
) -> tuple[str, bool, int]:
    """Return numbered lines with notes, whether they are the whole file uncut, and the last line
    shown.
    """
    lines = lines_of(decoded.text)
    if not lines:
        return f"[{one_line(place.path)} is empty]", True, 0
    if first > len(lines):
        raise ToolError(
            f"[past-end] {one_line(place.path)} has only {counted(len(lines), 'line')}; offset "
            f"{first} is past.{next_call(context, 'Read', file_path=place.given)}"
        )
    chosen, cut = fit_lines(context, lines[first - 1 : first - 1 + count], first)
    last = first + len(chosen) - 1
    notes = encoding_notes(decoded)
    asked = count < context.options.read_lines_max and len(chosen) == count
    if last < len(lines):
        more = "" if asked else f"; read on with offset={last + 1}"
        notes.append(f"lines {first}-{last} of {len(lines)}{more}")
    elif first > 1:
        notes.append(f"lines {first}-{last}, the end of the file")
    whole = first == 1 and last == len(lines) and not cut
    return (
        numbered_lines(chosen, first, decoded.odd) + "".join(f"\n[{note}]" for note in notes),
        whole,
        last,
    )


def numbered_lines(lines: list[str], first: int, odd: bool) -> str:
    """Join lines as `number<TAB>line`; with `odd`, make control characters visible."""
    text = "\n".join([f"{number}\t{line}" for number, line in enumerate(lines, first)])
    return visible(text) if odd else text


def fit_lines(context: ToolContext, lines: list[str], first: int) -> tuple[list[str], bool]:
    """Return the lines that fit into one result, and whether one was cut."""
    options = context.options
    chars = sum(map(len, lines))
    if chars <= options.line_chars_max or max(map(len, lines)) <= options.line_chars_max:
        cut = False
    else:
        cut = True
        lines = [cut_line(context, line, number) for number, line in enumerate(lines, first)]
    if chars * 4 <= options.read_bytes_max:
        return lines, cut
    size = 0
    for i, line in enumerate(lines):
        size += len(line.encode("utf-8", "replace")) + len(str(first + i)) + 2
        if size > options.read_bytes_max and i:
            return lines[:i], cut
    return lines, cut


def cut_line(context: ToolContext, line: str, number: int) -> str:
    """Replace the end of a very long line by a marker, which no tool writes into a file."""
    most = context.options.line_chars_max
    if len(line) <= most:
        return line
    how = (
        f"line {number} has {len(line):,} characters; for more: sed -n {number}p FILE | cut "
        f"-c{most + 1}-{2 * most}"
    )
    return line[:most] + marker(context.nonce, "cut", how)


def encoding_notes(decoded: Decoded) -> list[str]:
    """Return notes on an unusual encoding."""
    words = decoded.style.words()
    notes = [f"{words}; Edit and Write keep them"] if words else []
    if decoded.odd and any("\udc80" <= char <= "\udcff" for char in decoded.text):
        notes.append("bytes that are not UTF-8 are shown as \ufffd")
    return notes


def read_media(place: ResolvedPath, data: bytes, digest: str, blob: str) -> Outcome:
    """Return the outcome for an image or a PDF document."""
    name = one_line(place.path.rpartition("/")[2])
    seen = FileSeen(place.real, digest, blob)
    image = image_info(data)
    if image is None:
        text = f"[PDF document {name}, {size_words(len(data))}]"
        return Outcome((Text(text), Document(blob, "application/pdf", len(data), name)), (seen,))
    if not image.is_whole:
        raise ToolError(
            f"[broken-picture] {name} begins as {image.media}, but its header is broken: it has no "
            "width and height. Nothing was shown. Look into it with Bash (file, xxd), or make it "
            "again."
        )
    pixels = f"{image.width}x{image.height} pixels"
    text = f"[image {name}, {image.media}, {pixels}, {size_words(len(data))}]"
    return Outcome(
        (Text(text), Image(blob, image.media, len(data), image.width, image.height)), (seen,)
    )


def binary_message(place: ResolvedPath, data: bytes, size: int) -> str:
    """Return the refusal for a binary file."""
    name, kind = one_line(place.path), binary_kind(data)
    return (
        f"[binary] {name} is not text: {kind}, {size_words(size)}. Look into it with Bash "
        "(file, xxd, unzip -l …)."
    )


async def read_large(context: ToolContext, place: ResolvedPath, first: int, count: int) -> Outcome:
    """Read a file above `keep_bytes_max`: load only the needed start; the workspace computes the
    hash.
    """
    head = await load_file(
        context, place, min(4 * context.options.read_bytes_max, place.size_bytes)
    )
    if image_info(head) or is_pdf(head):
        return await read_large_media(context, place)
    decoded, lines = decode_whole_lines(head)
    if decoded is None:
        raise ToolError(binary_message(place, head, place.size_bytes))
    if len(lines) <= first + count and place.size_bytes > len(head):
        wider = await load_file(context, place, HANDLED_BYTES_MAX)
        again, more = await context.workspace.run_in_thread(lambda: decode_whole_lines(wider))
        decoded, lines = (again, more) if again is not None else (decoded, lines)
    text = large_page(context, place, decoded, lines, (first, count))
    if place.size_bytes > HANDLED_BYTES_MAX:
        return Outcome.of(text)
    digest = await context.workspace.run_in_thread(lambda: context.workspace.hash(place.real))
    return Outcome.of(text, FileSeen(place.real, digest, whole=False))


def decode_whole_lines(data: bytes) -> tuple[Decoded | None, list[str]]:
    """Decode the start of a file up to its last whole line, and split it; None for binary
    content.
    """
    if wide_encoding(data):
        whole = data[: len(data) // 2 * 2]
    else:
        whole = data[: data.rfind(b"\n") + 1] or cut_head(data, len(data) - 1)
    decoded = decode(whole)
    return decoded, lines_of(decoded.text) if decoded else []


def large_page(
    context: ToolContext,
    place: ResolvedPath,
    decoded: Decoded,
    lines: list[str],
    span: tuple[int, int],
) -> str:
    """Return numbered lines of a large file, with a note on how to read on."""
    first, count = span
    if first > len(lines):
        raise ToolError(
            f"[too-large] {one_line(place.path)} has {size_words(place.size_bytes)}; line {first} "
            "is too far in. "
            f"Use Bash: sed -n '{first},{first + 200}p', tail or grep."
        )
    chosen, _ = fit_lines(context, lines[first - 1 : first - 1 + count], first)
    last = first + len(chosen) - 1
    notes = encoding_notes(decoded)
    asked = count < context.options.read_lines_max and len(chosen) == count
    more = "" if asked else f"; read on with offset={last + 1}, or use Grep"
    notes.append(f"lines {first}-{last} of a file of {size_words(place.size_bytes)}{more}")
    rows = numbered_lines(chosen, first, decoded.odd)
    return rows + "".join(f"\n[{note}]" for note in notes)


async def read_large_media(context: ToolContext, place: ResolvedPath) -> Outcome:
    """Read an image or PDF above `keep_bytes_max`; the blob of its part is kept all the same."""
    if place.size_bytes > MEDIA_BYTES_MAX:
        raise ToolError(
            f"[too-large] {one_line(place.path)} has {size_words(place.size_bytes)}; make it "
            "smaller first."
        )
    data = await load_file(context, place)
    blob = context.blobs.put_blob(data)
    return read_media(place, data, blob, blob)


READ = make_tool(
    Read,
    access="read",
    together=True,
    paths=[("file_path", False)],
    rule_name="Read",
    aliases=("read_file", "readfile", "view", "view_file", "read_many_files", "readmediafile"),
    kind="read",
    quiet=True,
    key_argument="file_path",
)
