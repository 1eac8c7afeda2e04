"""`Edit` tool: replaces exact text in a file that the model has read. Each refusal begins with
its own code.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from longrein.tools.file_access import (
    existing_file,
    load_file,
    one_line,
    refuse_marker,
    resolve_path,
    run_by_size,
)
from longrein.tools.read import binary_kind
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import PLAIN_STYLE, Decoded, counted, decode
from longrein.tools.tool_port import Outcome, ToolContext
from longrein.tools.write import (
    create_file,
    described_file,
    encode_for,
    known_content,
    refuse_changed,
    refuse_place,
    refuse_unseen,
    save_merged,
    unseen_content,
    with_line_ends,
)
from longrein.workspace import ResolvedPath
from longrein_context.events import ToolError

if TYPE_CHECKING:
    from longrein.tools.find_replace import Replacement
    from longrein.tools.loose_match import LooseMatch


REPLACEMENTS_SHOWN_MAX = 3
"""Replacements shown in a confirmation."""


async def Edit(
    context: ToolContext,
    file_path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,
) -> Outcome:
    """Replace old_string, exact text of a file, by new_string. {{Read: Read the file first. }}It
    must match with its indentation, without line numbers, and stand in the file once: add
    neighbouring lines until it does. Several edits may go in one reply; they run in order.
    """
    place = editable_place(context, file_path, old_string, new_string)
    if old_string == "":
        return await fill_empty_file(context, place, new_string)
    base, now = await known_content(context, place)
    change = (old_string, new_string)
    try:
        data, confirmation = await run_by_size(
            context, len(base), lambda: apply_edit(place, base, change, replace_all)
        )
    except ToolError:
        if base == now:
            raise
        return await refuse_changed(context, place, base, (now,))
    return await save_merged(context, place, base, data, confirmation)


async def check_edit(
    context: ToolContext,
    file_path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,
) -> None:
    """See `Tool.check`."""
    if old_string:
        refuse_unseen(context, resolve_path(context, file_path))
    place = editable_place(context, file_path, old_string, new_string)
    if old_string:
        base, now = await known_content(context, place)
        if base == now:
            change = (old_string, new_string)
            await run_by_size(
                context, len(base), lambda: apply_edit(place, base, change, replace_all)
            )


SAME = (
    "[same] old_string and new_string are equal; nothing to do. Give the new text as new_string, "
    "or go on."
)


def editable_place(context: ToolContext, file_path: str, old: str, new: str) -> ResolvedPath:
    """Resolve the path of an edit. Raises `ToolError` for a file, or a change, that text edits
    cannot make.
    """
    refuse_marker(context, old, new, file_path)
    if old == new == "":
        raise ToolError(SAME)
    place = resolve_path(context, file_path)
    refuse_place(place)
    if old == "":
        return place
    place = existing_file(context, file_path)
    if place.path.endswith(".ipynb"):
        raise ToolError(
            f"[notebook] {one_line(place.path)} is a notebook: its cells are JSON, which text "
            "edits break. "
            "Change it with Bash and a few lines of Python (json), or Write the whole file."
        )
    return place


def apply_edit(
    place: ResolvedPath, base: bytes, change: tuple[str, str], every: bool
) -> tuple[bytes, Callable[[str, str], str]]:
    """Return the new content, and the function that makes the confirmation (see `save_merged`).

    `change`: (old, new). Raises `ToolError` for binary content and as `choose_replacements` does.
    """
    from longrein.tools.find_replace import apply_replacements

    decoded = decode(base)
    if decoded is None:
        raise ToolError(
            f"[binary] {one_line(place.path)} is not text: {binary_kind(base)}. Change it "
            "with Bash."
        )
    replacements, forgiven = choose_replacements(place, decoded, change, every)
    if change[0] == change[1]:
        raise ToolError(SAME)
    data = encode_for(place, apply_replacements(decoded.text, replacements), decoded.style)
    if data == base:
        raise ToolError(
            "[same] The change leaves the file as it is (only line ends differ); nothing was "
            "written. Go on."
        )

    def confirmation(shown: str, extra: str) -> str:
        times = "" if len(replacements) == 1 else f" in {counted(len(replacements), 'place')}"
        kept = f" Kept: {decoded.style.words()}." if decoded.style.words() else ""
        rows = [shown] * bool(shown) if extra else shown_replacements(decoded, replacements)
        if forgiven:
            rows.insert(
                0,
                f"old_string stands there but for {forgiven}; what you left alone stays as it is "
                "there.",
            )
        return "\n".join(
            [
                f"Edited {one_line(place.path)}{place.where}{times}.{kept}",
                *rows,
                *[extra] * bool(extra),
            ]
        )

    return data, confirmation


async def fill_empty_file(context: ToolContext, place: ResolvedPath, content: str) -> Outcome:
    """Create a file or fill an empty one, for an empty `old_string`. Never overwrites content."""
    created = f"Created {described_file(place, content)}."
    if place.kind != "file":
        return await create_file(context, place, encode_for(place, content, PLAIN_STYLE), created)
    now = await load_file(context, place)
    decoded = decode(now)
    if decoded is None or decoded.text:
        raise await unseen_content(
            context,
            place,
            now,
            f"[exists] {one_line(place.path)} exists and is not empty; give the text to replace as "
            "old_string",
        )
    base, now = await known_content(context, place)
    if base != now:
        return await refuse_changed(context, place, base, (now,))
    data = encode_for(place, with_line_ends(content, decoded.style), decoded.style)
    return await save_merged(
        context,
        place,
        base,
        data,
        lambda _shown, extra: "\n".join([created, *[extra] * bool(extra)]),
    )


def choose_replacements(
    place: ResolvedPath, decoded: Decoded, change: tuple[str, str], every: bool
) -> "tuple[list[Replacement], str]":
    """Return the replacements, and the ignored differences in words.

    Raises `ToolError` for no match, and for several matches unless `every`.
    """
    from longrein.tools.find_replace import find_replacements, line_number, overlaps_itself
    from longrein.tools.loose_match import find_loose_matches

    old, new = change
    text = decoded.text
    replacements = find_replacements(text, old, new, decoded.style.eol)
    if not replacements:
        loose = find_loose_matches(text, old, new, decoded.style.eol)
        if len(loose) != 1:
            raise ToolError(no_match_message(place, text, old, loose))
        return [loose[0].replacement], " and ".join(loose[0].forgiven)
    if not every and (len(replacements) > 1 or overlaps_itself(text, old, replacements[0])):
        lines = ", ".join(
            dict.fromkeys(str(line_number(text, one.start)) for one in replacements[:10])
        )
        if len(replacements) == 1:
            where = f"overlaps itself at line {lines}"
        else:
            where = (
                f"stands {len(replacements)} times, at lines "
                f"{lines}{', …' if len(replacements) > 10 else ''}"
            )
        raise ToolError(
            f"[not-unique] old_string {where} of {one_line(place.path)}; nothing was changed. "
            "Take in more of the lines around it, or set replace_all."
        )
    return replacements, ""


def no_match_message(place: ResolvedPath, text: str, old: str, loose: "list[LooseMatch]") -> str:
    """Return the refusal for text that has no exact match and no single loose match."""
    from longrein.tools.find_replace import explain_no_match, line_number

    head = f"[no-match] old_string is not in {one_line(place.path)}."
    if not loose:
        return f"{head} {explain_no_match(text, old)}"
    lines = ", ".join(dict.fromkeys(str(line_number(text, one.replacement.start)) for one in loose))
    return (
        f"{head} It stands at several places but for how it is written, at lines {lines}: give "
        "it as one of them is."
    )


def shown_replacements(decoded: Decoded, replacements: "list[Replacement]") -> list[str]:
    """Return the rows of the first replacements with present line numbers; nearby ones together."""
    from longrein.tools.diff import group_nearby, shown_change
    from longrein.tools.find_replace import Replacement, apply_replacements

    shown, shift = [], 0
    groups = group_nearby(decoded.text, replacements)
    for group in groups[:REPLACEMENTS_SHOWN_MAX]:
        start, end = group[0].start, group[-1].end
        moved = [Replacement(one.start - start, one.end - start, one.new) for one in group]
        whole = Replacement(start, end, apply_replacements(decoded.text[start:end], moved))
        shown.append(shown_change(decoded.text, whole, shift))
        shift += whole.new.count("\n") - decoded.text.count("\n", start, end)
    if more := sum(map(len, groups[REPLACEMENTS_SHOWN_MAX:])):
        shown.append(f"… and {more} more")
    return shown


EDIT = make_tool(
    Edit,
    access="write",
    paths=[("file_path", True)],
    rule_name="Edit",
    aliases=(
        *("multiedit", "edit_file", "patch", "replace", "str_replace", "strreplacefile"),
        *("search_replace", "replace_string_in_file"),
    ),
    check=check_edit,
    kind="edit",
    quiet=True,
    key_argument="file_path",
)
