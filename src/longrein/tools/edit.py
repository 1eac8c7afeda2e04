"""`Edit`: replace exact text in a file the model has seen as it is now. Every refusal has its own code word."""

from longrein.events import ToolError
from longrein.tools.closest import why_no_match
from longrein.tools.confirm import shown_change
from longrein.tools.encoding import PLAIN_STYLE, Decoded, decode
from longrein.tools.files import existing, find, load, refuse_marker, said, save
from longrein.tools.media import binary_kind
from longrein.tools.port import Hands, Outcome
from longrein.tools.registry import make_tool
from longrein.tools.replace import Site, ambiguous, line_at, replaced, sites_of
from longrein.tools.text import counted
from longrein.tools.write import encoded, measured, refuse_place, refuse_unseen, restyled
from longrein.workspace import Place

SITES_SHOWN_MAX = 3
"""Changed places shown in a confirmation."""


async def Edit(hands: Hands, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> Outcome:
    """Replace exact text in a file that you have Read. The way to change a file; all else in it stays byte for byte.
    old_string must match exactly, indentation included, without the line numbers of Read, and stand in the file
    once: take in neighbouring lines until it does. Refusals name their cause: [not-read] and [changed] mean Read it
    (again) first; [no-match] names the closest lines; [not-unique] lists the places. An empty old_string creates a
    new file. Several edits of one file may go in one reply; they run in order.

    file_path: Absolute, or relative to the current folder.
    old_string: Text to replace.
    new_string: What to put there.
    replace_all: Replace every occurrence; default false.
    """
    refuse_marker(hands, old_string, new_string, file_path)
    if old_string == new_string:
        raise ToolError("[same] old_string and new_string are equal; nothing to do.")
    place = find(hands, file_path)
    refuse_place(place)
    if old_string == "":
        return create(hands, place, new_string)
    place = existing(hands, file_path)
    if place.path.endswith(".ipynb"):
        raise ToolError(
            f"[notebook] {said(place.path)} is a notebook: its cells are JSON, which text edits break. "
            "Change it with Bash and a few lines of Python (json), or Write the whole file."
        )
    before = load(hands, place)
    digest = refuse_unseen(hands, place, before)
    decoded = decode(before)
    if decoded is None:
        raise ToolError(f"[binary] {said(place.path)} is not text: {binary_kind(before)}.")
    sites = chosen_sites(place, decoded, (old_string, new_string), replace_all)
    data = encoded(place, replaced(decoded.text, sites), decoded.style)
    if data == before:
        raise ToolError("[same] The change leaves the file as it is (only line ends differ); nothing was written.")
    fact = save(hands, place, data, digest)
    return Outcome.of(confirmation(place, decoded, sites), fact)


def create(hands: Hands, place: Place, content: str) -> Outcome:
    """An empty `old_string`: a new file, or an empty one filled. Never overwrites."""
    style, digest = PLAIN_STYLE, ""
    if place.kind == "file":
        before = load(hands, place)
        decoded = decode(before)
        if decoded is None or decoded.text:
            text = f"[exists] {said(place.path)} exists and is not empty; give the text to replace as old_string."
            raise ToolError(text)
        style, digest = decoded.style, refuse_unseen(hands, place, before)
    fact = save(hands, place, encoded(place, restyled(content, style), style), digest)
    return Outcome.of(f"Created {said(place.path)} ({measured(content)}).", fact)


def chosen_sites(place: Place, decoded: Decoded, change: tuple[str, str], every: bool) -> list[Site]:
    """The places to change: one, or all if asked. Refuses none, and several that were not asked for."""
    old, new = change
    text = decoded.text
    sites = sites_of(text, old, new, decoded.style.eol)
    if not sites:
        raise ToolError(f"[no-match] old_string is not in {said(place.path)}. {why_no_match(text, old)}")
    if not every and (len(sites) > 1 or ambiguous(text, old, sites[0])):
        lines = ", ".join(str(line_at(text, site.start)) for site in sites[:10])
        if len(sites) == 1:
            where = f"overlaps itself at line {lines}"
        else:
            where = f"stands {len(sites)} times, at lines {lines}{', …' if len(sites) > 10 else ''}"
        raise ToolError(
            f"[not-unique] old_string {where} of {said(place.path)}; nothing was changed. "
            "Take in more of the lines around it, or set replace_all."
        )
    return sites


def confirmation(place: Place, decoded: Decoded, sites: list[Site]) -> str:
    """What was changed, with line numbers as they are now."""
    times = "" if len(sites) == 1 else f" in {counted(len(sites), 'place')}"
    kept = f" Kept: {decoded.style.words()}." if decoded.style.words() else ""
    said_sites, shift = [], 0
    for site in sites[:SITES_SHOWN_MAX]:
        said_sites.append(shown_change(decoded.text, site, shift))
        shift += site.new.count("\n") - decoded.text.count("\n", site.start, site.end)
    if len(sites) > SITES_SHOWN_MAX:
        said_sites.append(f"… and {len(sites) - SITES_SHOWN_MAX} more")
    return "\n".join([f"Edited {said(place.path)}{times}.{kept}", *said_sites])


EDIT = make_tool(Edit, access="write", paths=[("file_path", True)])
