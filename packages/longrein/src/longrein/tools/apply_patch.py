"""`apply_patch` tool: several changes of files in one text, in the format that some models are
trained on.

It stands in place of `Edit` for those models (`models.catalog.is_trained_on_patches`), under the
same rules: a file was read before it changes, and a change by somebody else is merged or refused.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from longrein.tools.edit import editable_place
from longrein.tools.file_access import (
    existing_file,
    one_line,
    os_error_text,
    refuse_marker,
    resolve_path,
    run_by_size,
)
from longrein.tools.read import binary_kind
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import PLAIN_STYLE, decode
from longrein.tools.tool_port import Outcome, ToolContext
from longrein.tools.write import (
    create_file,
    described_file,
    encode_for,
    is_unseen,
    kept_content,
    known_content,
    refuse_changed,
    refuse_place,
    refuse_unseen,
    save_merged,
)
from longrein.workspace import ResolvedPath
from longrein_context.events import FileChanged, ToolError

if TYPE_CHECKING:
    from longrein.tools.patch_text import FilePatch


class PatchPlan(NamedTuple):
    """Change of one file."""

    path: str
    write: Callable[[], Awaitable[Outcome]]
    is_refused: bool = False
    """True if somebody else has changed the file, so that `write` only tells that."""


def patch_paths(arguments: Mapping[str, Any]) -> tuple[tuple[str, bool], ...]:
    """Return (path, True) for each file that a call changes; () for a text that is no patch, which
    changes none.
    """
    from longrein.tools.patch_text import patches_of

    patches = patches_of(arguments)
    return tuple((path, True) for one in patches for path in (one.path, one.moved_to) if path)


async def apply_patch(context: ToolContext, input: str) -> Outcome:  # noqa: A002 - the name that models know
    """Change, create or delete files by a patch. {{Read: Read a file first. }}Its form:

        *** Begin Patch
        *** Update File: PATH
        @@ def main():
         an unchanged line
        -the old line
        +the new line
        *** End Patch

    Three unchanged lines around each change; @@ names the function or class above them. Also
    `*** Add File: PATH` with + before each line, `*** Delete File: PATH`, and `*** Move to: PATH`
    below an Update line. All of it fits or nothing is changed.
    """
    plans = sorted(await _planned(context, input), key=lambda one: not one.is_refused)
    outcomes: list[Outcome] = []
    for plan in plans:
        try:
            outcomes.append(await plan.write())
        except ToolError as refusal:
            outcomes.append(Outcome.fail(str(refusal), *refusal.facts))
        if outcomes[-1].status != "ok":
            break
    left = [plan.path for plan in plans[len(outcomes) :]]
    rest = [f"Not changed after that: {', '.join(map(one_line, left))}."] * bool(left)
    parts = (part for outcome in outcomes for part in outcome.parts)
    text = "\n".join([*(getattr(part, "text", "") for part in parts), *rest])
    facts = tuple(fact for outcome in outcomes for fact in outcome.facts)
    return Outcome(Outcome.of(text).parts, facts, outcomes[-1].status)


async def check_patch(context: ToolContext, input: str) -> None:  # noqa: A002 - as the tool
    """See `Tool.check`."""
    from longrein.tools.patch_text import parse_patch

    for one in parse_patch(input):
        if one.kind != "Add":
            refuse_unseen(context, resolve_path(context, one.path))
    for path, _ in patch_paths({"input": input}):
        if is_unseen(context, resolve_path(context, path)):
            return
    await _planned(context, input)


async def _planned(context: ToolContext, text: str) -> list[PatchPlan]:
    """Return the change of each file, when all of the patch fits."""
    from longrein.tools.patch_text import parse_patch

    refuse_marker(context, text)
    kinds = {"Add": _plan_new, "Update": _plan_update, "Delete": _plan_removal}
    return [await kinds[one.kind](context, one) for one in parse_patch(text)]


async def _plan_new(context: ToolContext, patch: "FilePatch") -> PatchPlan:
    place = resolve_path(context, patch.path)
    refuse_place(place)
    if place.kind:
        raise ToolError(
            f"[exists] {one_line(place.path)} exists; change it with '*** Update File:'. Nothing "
            "was changed."
        )
    content = "".join(f"{line}\n" for line in patch.hunks[0].new)
    data = encode_for(place, content, PLAIN_STYLE)
    created = f"Created {described_file(place, content)}."
    return PatchPlan(patch.path, lambda: create_file(context, place, data, created))


async def _plan_update(context: ToolContext, patch: "FilePatch") -> PatchPlan:
    place = editable_place(context, patch.path, "old", "new")
    base, now = await known_content(context, place)
    try:
        data = await run_by_size(context, len(base), lambda: _patched(place, base, patch))
    except ToolError:
        if base == now:
            raise
        return PatchPlan(patch.path, lambda: refuse_changed(context, place, base, (now,)), True)
    if not patch.moved_to:
        edited = f"Edited {one_line(place.path)}{place.where}."

        def confirmation(shown: str, extra: str) -> str:
            return "\n".join(filter(None, (edited, shown, extra)))

        return PatchPlan(patch.path, lambda: save_merged(context, place, base, data, confirmation))
    removal = await _plan_removal(context, patch)
    target = resolve_path(context, patch.moved_to)
    refuse_place(target)
    if target.kind:
        raise ToolError(
            f"[exists] {one_line(target.path)} exists; nothing was changed. Move to another path."
        )
    moved = f"Moved {one_line(place.path)} to {one_line(target.path)}."

    async def move() -> Outcome:
        created = await create_file(context, target, data, moved, like=place.real)
        try:
            removed = await removal.write()
        except ToolError as refusal:
            removed = Outcome.fail(str(refusal), *refusal.facts)
        stays = Outcome.of(f"{moved} The old file stays:").parts
        parts = created.parts if removed.status == "ok" else (*stays, *removed.parts)
        return Outcome(parts, (*created.facts, *removed.facts), removed.status)

    return removal if removal.is_refused else PatchPlan(patch.path, move)


def _patched(place: ResolvedPath, base: bytes, patch: "FilePatch") -> bytes:
    from longrein.tools.patch_text import apply_hunks

    decoded = decode(base)
    if decoded is None:
        raise ToolError(
            f"[binary] {one_line(place.path)} is not text: {binary_kind(base)}. Change it "
            "with Bash."
        )
    text = apply_hunks(place, decoded.text, patch.hunks, decoded.style.eol)
    return encode_for(place, text, decoded.style)


async def _plan_removal(context: ToolContext, patch: "FilePatch") -> PatchPlan:
    place = existing_file(context, patch.path)
    refuse_place(place)
    folder, _, name = place.path.rpartition("/")
    if f"{context.workspace.resolve(folder or '/', '/').real.rstrip('/')}/{name}" != place.real:
        raise ToolError(
            f"[link] {one_line(place.path)} is a link to {one_line(place.real)}; move or remove it "
            "with Bash. Nothing was changed."
        )
    base, now = await known_content(context, place)
    if not patch.moved_to and kept_content(context, context.files.versions[place.real]) is None:
        raise ToolError(
            f"[not-kept] The log does not hold {one_line(place.path)}, so a rewind could not "
            "bring it back; remove it with Bash (rm). Nothing was changed."
        )
    return PatchPlan(patch.path, lambda: _remove(context, place), base != now)


async def _remove(context: ToolContext, place: ResolvedPath) -> Outcome:
    """Remove a file that is as the model knows it."""
    base, now = await known_content(context, place)
    if base != now:
        return await refuse_changed(context, place, base, (now,))
    known = context.files.versions[place.real].hash
    try:
        mode = await context.workspace.run_in_thread(lambda: context.workspace.remove(place.real))
    except OSError as error:
        raise ToolError(
            f"[unwritable] {one_line(place.path)} cannot be removed: "
            f"{os_error_text(error)}. Look why with Bash (ls -l)."
        ) from None
    fact = FileChanged(place.real, "", "agent", "", known, mode=mode)
    return Outcome.of(f"Removed {one_line(place.path)}.", fact)


APPLY_PATCH = make_tool(
    apply_patch,
    access="write",
    paths=patch_paths,
    rule_name="Edit",
    check=check_patch,
    kind="edit",
    quiet=True,
    key_argument="input",
)
