"""`Write`: a whole file. It never replaces what the model has not seen as it is now."""

from longrein.events import FileSeen, ToolError
from longrein.tools.encoding import PLAIN_STYLE, Style, decode, lines_of
from longrein.tools.files import HANDLED_BYTES_MAX, find, keep, refuse_marker, said
from longrein.tools.port import Hands, Outcome
from longrein.tools.registry import make_tool
from longrein.tools.saving import create, save, told_content
from longrein.tools.text import counted, size_words
from longrein.workspace import Place


async def Write(hands: Hands, file_path: str, content: str) -> Outcome:
    """Create a file, or replace all of one that you have Read; to change a part use Edit. Folders are made. Write the
    complete text: no markers, line numbers or placeholders.
    """
    refuse_marker(hands, content, file_path)
    place = find(hands, file_path)
    refuse_place(place)
    if place.kind == "":
        return await create(hands, place, encoded(place, content, PLAIN_STYLE), f"Created {told(place, content)}.")
    base, now = await told_content(hands, place)
    decoded = decode(base)
    style = decoded.style if decoded and base else PLAIN_STYLE
    data = encoded(place, restyled(content, style), style)
    if data == now:
        same = f"{said(place.path)} has exactly this content already; nothing was written."
        return Outcome.of(same, *(() if base == now else (FileSeen(place.real, *await keep(hands, now)),)))
    kept = f" Kept: {style.words()}." if style.words() else ""

    def confirmation(_shown: str, extra: str) -> str:
        return f"Replaced {told(place, content)}.{kept}{extra and ' ' + extra}"

    return await save(hands, place, base, data, confirmation)


def told(place: Place, content: str) -> str:
    """A file and its size for a confirmation."""
    return f"{said(place.path)} ({measured(content)})"


def refuse_place(place: Place) -> None:
    """Refuse what no file tool may write: folders, devices, the insides of version control."""
    if place.kind in ("folder", "other"):
        raise ToolError(f"[not-a-file] {said(place.path)} is a {'folder' if place.kind == 'folder' else 'device'}.")
    if place.size_bytes > HANDLED_BYTES_MAX:
        text = (
            f"[too-large] {said(place.path)} has {size_words(place.size_bytes)}; change it with Bash (sed -i, split)."
        )
        raise ToolError(text)
    inner = {".git", ".hg", ".svn"}.intersection(place.path.split("/") + place.real.split("/"))
    if inner:
        text = (
            f"[ignored-path] {said(place.path)} lies in {min(inner)}, which only version control may change; use git."
        )
        raise ToolError(text)


def restyled(text: str, style: Style) -> str:
    """`text` with the line ends of the file it goes into."""
    return text if style.eol == "\n" or style.mixed else text.replace("\r\n", "\n").replace("\n", style.eol)


def encoded(place: Place, text: str, style: Style) -> bytes:
    """Bytes of `text`. Refuses characters that the file's encoding does not have."""
    try:
        return style.encode(text)
    except UnicodeEncodeError as error:
        char = ascii(text[error.start : error.start + 1])
        raise ToolError(
            f"[encoding] {said(place.path)} is {style.words() or 'UTF-8'}, which has no {char}; nothing was written. "
            "Leave the character out, or convert the file with Bash (iconv) first."
        ) from None


def measured(content: str) -> str:
    """Size for a confirmation."""
    return f"{counted(len(lines_of(content)), 'line')}, {size_words(len(content.encode('utf-8', 'replace')))}"


WRITE = make_tool(Write, access="write", paths=[("file_path", True)])
