"""The work tree in a shared store: what a checkpoint adds to it, and its way to another machine.

A checkpoint whose tree is new takes two blobs into the store, in the transaction of its entry: the
records of the trees, and a git pack of the contents that the store lacks. A machine that has not
made the last checkpoint stores the packs in its own repository, from which a rewind restores too,
and checks the last tree out. Only the first root is stored.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from longrein.agent.rewind_trees import carry_out, make_plan
from longrein.agent.session import Session
from longrein.agent.session_part import Checkpoints
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.shadow_repository import EMPTY_TREE
from longrein.workspace.tree_records import (
    CheckpointError,
    TreeFile,
    TreeRecord,
    decode_records,
    encode_records,
)
from longrein_context.events import AnyEvent, CheckpointTaken

PACK_BYTES_MAX = 256 << 20
"""Largest pack that goes to the store."""
KNOWN_MAX = 10
"""Latest trees whose files a folder may have so that another one is checked out over them."""
NAMED_MAX = 3
"""Files that a message names."""


class StoredNames:
    """The checkpoints that the store has, and those that it lacks yet."""

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self.last = ""
        """The last one that the store has."""
        self.missing: dict[str, None] = {}
        """Those after it, in order."""
        for event in events:
            if isinstance(event, CheckpointTaken):
                self.note(event)

    def note(self, event: CheckpointTaken) -> None:
        """Note a checkpoint that is in the log."""
        if event.records:
            self.last, self.missing = event.checkpoint, {}
        elif event.checkpoint:
            self.missing[event.checkpoint] = None

    def new(self, name: str) -> list[str]:
        """Return what goes to the store with checkpoint `name`: nothing while the tree is as it
        was when the session began.
        """
        found = [one for one in {**self.missing, name: None} if one != self.last]
        return found if self.last or len(found) > 1 else []


# --- To the store ---------------------------------------------------------------------------------


def pack_trees(
    root: str, names: Sequence[str], last: str, store: CheckpointStore
) -> tuple[bytes, str]:
    """Return the records of checkpoints, and the path of the pack of what the store lacks of them;
    '' for nothing.

    `last`: checkpoint that the store has, '' for none. Raises `CheckpointError`, OSError.
    """
    repository = store.repository(root)
    records = {name: record for name in names if (record := _record(store, name, root))}
    known = _record(store, last, root)
    tree = known.tree if known else EMPTY_TREE
    path = repository.write_pack([record.tree for record in records.values()], tree)
    if path and os.path.getsize(path) > PACK_BYTES_MAX:
        raise CheckpointError(f"its new files are more than {PACK_BYTES_MAX >> 20} MB")
    return encode_records(records), path


def _record(store: CheckpointStore, name: str, root: str) -> TreeRecord | None:
    """Return the record of a checkpoint; None where it is no longer kept."""
    with suppress(CheckpointError):
        return store.load(name).get(root) if name else None
    return None


# --- From the store -------------------------------------------------------------------------------


def missing_here(
    events: Iterable[CheckpointTaken], root: str, store: CheckpointStore
) -> list[CheckpointTaken]:
    """Return the stored checkpoints that this machine has not."""
    stored = (one for one in events if one.records)
    return [one for one in stored if root not in store.records(one.checkpoint)]


def add_trees(root: str, records: bytes, pack: bytes, store: CheckpointStore) -> None:
    """Keep stored checkpoints on this machine. Raises `CheckpointError`, OSError."""
    repository = store.repository(root)
    if pack:
        repository.read_pack(pack)
    try:
        found = decode_records(records)
    except ValueError:
        raise CheckpointError("the records of its checkpoints cannot be read") from None
    for name, record in found.items():
        store.add(name, root, record)


def check_folder(root: str, names: Sequence[str], store: CheckpointStore) -> None:
    """Raise `CheckpointError` where `root` has a file that is in none of the checkpoints `names`
    so, or one at a path of the last of them that no checkpoint here would hold: it is the user's.
    Raises OSError.
    """
    _, now = store.take([root])
    repository = store.repository(root)
    present = repository.files(now[root])
    foreign, known = {*present}, dict[str, TreeFile]()
    for name in names:
        record = _record(store, name, root)
        known = repository.files(record) if record else {}
        foreign -= {
            path for path in foreign if path in known and known[path].blob == present[path].blob
        }
    unseen = known.keys() - present.keys()
    foreign |= {path for path in unseen if _is_file(os.path.join(root, path))}
    if foreign:
        shown = sorted(foreign)[:NAMED_MAX]
        more = f" and {len(foreign) - NAMED_MAX} more" if len(foreign) > NAMED_MAX else ""
        raise CheckpointError(
            f"{root} has files that are none of the session ({', '.join(shown)}{more}); resume it "
            "in an empty folder"
        )


def _is_file(path: str) -> bool:
    return os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path))


def check_out(root: str, name: str, store: CheckpointStore) -> list[str]:
    """Make `root` as it is in a checkpoint; return a line for each file that is not. Raises
    `CheckpointError`, OSError.
    """
    _, now = store.take([root])
    plans = make_plan(store, name, now, (), {}, overwrite=True)
    puts = [put for plan in plans for put in carry_out(plan)]
    return [f"{put.path}: {put.why}" for put in puts if not put.done]


def check_out_stored(
    events: Sequence[CheckpointTaken],
    root: str,
    store: CheckpointStore,
    read_blob: Callable[[str], bytes],
    *,
    first: bool,
) -> list[str]:
    """Make `root`, which holds nothing of the user's, as the session found it or has left it, if
    its trees are stored; return a line for each file that is not. Raises `CheckpointError`,
    OSError.
    """
    for one in missing_here(events, root, store):
        pack = read_blob(one.pack) if one.pack else b""
        add_trees(root, read_blob(one.records), pack, store)
    names = [event.checkpoint for event in events if event.records]
    if not names:
        return []
    return check_out(root, events[0].checkpoint if first else names[-1], store)


async def take_over_tree(session: Session) -> None:
    """Check out the last tree of a session that another machine has gone on with; tell the user
    where that is not possible. Raises what a read of the store raises.

    After a kill the next open does it again, until the log says that this machine has the tree.
    Where it is not possible, no machine gets what this one does: its folder is another one.
    """
    entries = session.entries_of("CheckpointTaken")
    events = [one.event for one in entries if isinstance(one.event, CheckpointTaken)]
    names = [event.checkpoint for event in events if event.records]
    kept = session.open(Checkpoints) if names else None
    if kept is None or next(e.place for e in reversed(events) if e.place) == kept.place:
        return
    root, read = session.deps.workspace.roots[0], session.log.read_blob
    own = [event.checkpoint for event in events if event.place == kept.place]
    known = [events[0].checkpoint, names[0], *own[-1:], *names[-KNOWN_MAX:]]
    try:
        for one in await kept.run(partial(missing_here, events, root)):
            pack = read(one.pack) if one.pack else b""
            await kept.run(partial(add_trees, root, read(one.records), pack))
        await kept.run(partial(check_folder, root, known))
        left = await kept.run(partial(check_out, root, names[-1]))
    except (CheckpointError, OSError) as error:
        kept.place = ""
        session.notice(f"the files of the session are on another machine and not here: {error}")
        return
    for line in left:
        session.notice(f"not as on the other machine: {line}")
    await kept.keep("opened")
    await session.commit(flush=True)
