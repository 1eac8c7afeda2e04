"""New content for a file that others write to as well: theirs stands too, or nothing is written and they are named.

What the model knew of the file is the base of a merge. A change by somebody else since then that does not touch ours
is kept and told with its lines; one that does, or one of which the base is not known, refuses the write. A refusal that
shows the whole change makes the file known again: the model need not read it once more.
"""

from collections.abc import Callable
from hashlib import sha256

from longrein.events import AnyEvent, FileChanged, FileSeen, ToolError
from longrein.tools.changes import change_of
from longrein.tools.files import keep, load, quickly, reason, said
from longrein.tools.merging import merge
from longrein.tools.port import FileVersion, Hands, Outcome
from longrein.workspace import Place, Replaced

NOBODY = "somebody else"
"""Who wrote what no agent of this session did."""


async def known_content(hands: Hands, place: Place) -> tuple[bytes, bytes]:
    """(what the model knows, what the file holds now). Refuses what was never read, or changed from what is not kept.

    Identity is content, not time.
    """
    return await _base(hands, place, hands.versions.get(place.real))


async def told_content(hands: Hands, place: Place) -> tuple[bytes, bytes]:
    """`known_content` for a call that replaces everything.

    A reading, or a refusal that shows somebody else's change, by another call of the same reply does not count: the
    model had not seen it when it wrote this call.
    """
    known = hands.versions.get(place.real)
    if known is not None and known.told is not None and known.told[0] != known.hash:
        if not known.told[0]:
            raise ToolError(
                f"[not-read] {said(place.path)} exists and you had not seen what is in it when you wrote this call. "
                "Nothing was written. Send it again if it shall replace that."
            )
        known = FileVersion(known.told[0], known.whole, known.told[1])
    return await _base(hands, place, known)


async def _base(hands: Hands, place: Place, known: FileVersion | None) -> tuple[bytes, bytes]:
    now = await load(hands, place)
    if known is None or not known.hash:
        raise ToolError(
            f"[not-read] {said(place.path)} exists and you have not read it. Read it first, then try again."
        )
    digest = await quickly(hands, len(now), lambda: sha256(now).hexdigest())
    if digest == known.hash:
        return now, now
    base = _kept(hands, known)
    if base is None:
        raise ToolError(f"[changed] {said(place.path)} has changed since you read it; {_whose(hands, place, digest)}")
    return base, now


def _kept(hands: Hands, known: FileVersion) -> bytes | None:
    """Content of a version; None when it was too large to be kept, or a secret in it was replaced."""
    if not known.blob or known.blob != known.hash:
        return None
    try:
        return hands.blobs.read_blob(known.blob)
    except KeyError:
        return None


def _whose(hands: Hands, place: Place, digest: str) -> str:
    """The end of a refusal that has no change to show."""
    who = hands.wrote(place.real, digest)
    return f"{f'{who} wrote it; ' if who else ''}nothing was written. Read it again first."


async def create(hands: Hands, place: Place, data: bytes, told: str) -> Outcome:
    """A file that must not exist yet."""
    replaced = await _replaced(hands, place, data, "", None)
    if replaced.data is None:
        who = hands.wrote(place.real, sha256(replaced.taken[-1]).hexdigest()) or NOBODY
        text = f"[changed] {said(place.path)} was created by {who} just now; nothing was written. Read it again."
        raise ToolError(text)
    digest, blob = await keep(hands, data)
    return Outcome.of(told, FileChanged(place.real, digest, "agent", blob))


async def save(hands: Hands, place: Place, base: bytes, data: bytes, told: Callable[[str, str], str]) -> Outcome:
    """`data`, made from `base`, into a file that holds it or has been changed since.

    `told(shown, extra)` is the confirmation: `shown` the lines of our change where it was merged with another ('' when
    it was not), `extra` what is said of the other.
    """
    before = await quickly(hands, len(base), lambda: sha256(base).hexdigest())
    replaced = await _replaced(hands, place, data, before, base)
    if replaced.data is None:
        return await refused(hands, place, base, replaced.taken)
    digest, blob = await keep(hands, replaced.data)
    if not replaced.taken:
        return Outcome.of(told("", ""), FileChanged(place.real, digest, "agent", blob, before))
    facts = [
        FileChanged(place.real, digest, "agent", blob, sha256(one).hexdigest(), over=hands.blobs.put_blob(one))
        for one in replaced.taken
    ]
    ours, _ = await quickly(hands, len(data), lambda: change_of(replaced.taken[-1], replaced.data or b""))
    return Outcome.of(told(ours, await _stands_too(hands, place, data, replaced)), *facts)


async def _stands_too(hands: Hands, place: Place, data: bytes, replaced: Replaced) -> str:
    """What others changed in the file that we wrote to."""
    names = dict.fromkeys(hands.wrote(place.real, sha256(one).hexdigest()) or NOBODY for one in replaced.taken)
    diff, note = await quickly(hands, len(data), lambda: change_of(data, replaced.data or b""))
    head = f"Since you read it {' and '.join(names)} changed it too, elsewhere; both changes stand"
    if diff:
        return f"{head}. Theirs:\n{diff}"
    return f"{head} ({note}). Read it before you rely on it." if note else f"{head}."


async def refused(hands: Hands, place: Place, base: bytes, taken: tuple[bytes, ...]) -> Outcome:
    """Somebody else's change is in the way; the last of `taken` stands in the file."""
    digest, blob = await keep(hands, taken[-1])
    who = hands.wrote(place.real, digest) or NOBODY
    diff, note = await quickly(hands, len(taken[-1]), lambda: change_of(base, taken[-1]))
    facts: list[AnyEvent] = [
        FileChanged(place.real, digest, "user", blob, sha256(one).hexdigest(), over=hands.blobs.put_blob(one))
        for one in taken[:-1]
    ]
    head = f"[changed] {said(place.path)} has changed since you read it; nothing was written. Read it again first"
    if not diff:
        return Outcome.fail(f"{head}: {who} changed it, {note}.", *facts)
    known = hands.versions.get(place.real)
    facts.append(FileSeen(place.real, digest, blob, whole=known is not None and known.whole))
    return Outcome.fail(f"{head}, or go by this, which is all that {who} changed:\n{diff}", *facts)


async def _replaced(hands: Hands, place: Place, data: bytes, expect: str, base: bytes | None) -> Replaced:
    """See `Workspace.replace`. What the system refuses becomes a refusal the model can act on."""
    try:
        return await hands.workspace.aside(
            lambda: hands.workspace.replace(place.real, data, expect=expect, base=base, merge=merge)
        )
    except FileNotFoundError:
        raise ToolError(f"[changed] {said(place.path)} was removed by somebody else; nothing was written.") from None
    except OSError as error:
        text = f"[unwritable] {said(place.path)} cannot be written: {reason(error)}. It is unchanged."
        raise ToolError(text) from None
