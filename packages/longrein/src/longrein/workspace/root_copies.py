"""The checkpoints of one session: copies of all roots, kept in the session's folder."""

import os
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from threading import Lock

from longrein.atomic_file import replace_file
from longrein.workspace.files import is_inside
from longrein.workspace.shadow_repository import ShadowRepository
from longrein.workspace.tree_records import (
    CheckpointError,
    TreeRecord,
    decode_records,
    encode_records,
)


class CheckpointStore:
    """The checkpoints of one session: `<session>/checkpoints/`. Blocking; used by one thread at
    a time.
    """

    def __init__(
        self, folder: str, environment: Mapping[str, str], left_out: Iterable[str] = ()
    ) -> None:
        self.folder = folder
        self._environment, self._left_out = environment, tuple(left_out)
        self.lock = Lock()
        """Held by the thread that works with the repositories."""
        self._open: dict[str, ShadowRepository] = {}
        self._is_given_up = False

    def repository(self, root: str) -> ShadowRepository:
        """Return the repository of a root, opened on first use. Raises `CheckpointError`,
        OSError.
        """
        if root not in self._open:
            if self._is_given_up:
                raise CheckpointError("the session has ended")
            name = sha256(os.fsencode(root)).hexdigest()[:16]
            path = os.path.join(self.folder, name)
            for folder in (self.folder, path):  # 0700, whatever the umask
                os.makedirs(folder, mode=0o700, exist_ok=True)
            self._open[root] = ShadowRepository(path, root, self._environment, self._left_out)
        return self._open[root]

    def take(
        self, roots: Collection[str], *, trusts_watch: bool = False
    ) -> tuple[str, dict[str, TreeRecord]]:
        """Keep the roots as they are now: (name of the checkpoint, records).

        `trusts_watch`: only the files that the kernel has told of are looked at, where it tells.
        Raises `CheckpointError`, OSError.
        """
        outer = [
            root
            for root in roots
            if not is_inside(root, [other for other in roots if other != root])
        ]
        there = [root for root in outer if root in self._open or os.path.isdir(root)]
        records = {root: self.repository(root).take(trusts_watch=trusts_watch) for root in there}
        data = encode_records(records)
        name = sha256(data).hexdigest()[:24]
        if not os.path.exists(self._path(name)):
            replace_file(self._path(name), [data], durable=False)
        return name, records

    def add(self, name: str, root: str, record: TreeRecord) -> None:
        """Keep checkpoint `name` of another machine, whose objects are stored in the repository
        of `root`. Raises `CheckpointError`, OSError.
        """
        self.repository(root).keep(record.tree)
        data = encode_records({**self.records(name), root: record})
        replace_file(self._path(name), [data], durable=False)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name + ".json")

    def records(self, name: str) -> dict[str, TreeRecord]:
        """Return a checkpoint by root, whether its objects are kept or not; {} for none."""
        try:
            with open(self._path(name), "rb") as file:
                return decode_records(file.read())
        except (OSError, ValueError):
            return {}

    def take_touched(self) -> list[str]:
        """Return the real paths of the files that looks have found changed since the last call."""
        found = []
        for root, repository in self._open.items():
            found += [os.path.join(root, path) for path in repository.touched]
            repository.touched = set()
        return found

    def load(self, name: str) -> dict[str, TreeRecord]:
        """Return a checkpoint by root. Raises `CheckpointError` when it is no longer kept."""
        records = self.records(name)
        try:
            kept = [self.repository(root).has(record.tree) for root, record in records.items()]
        except OSError:
            kept = []
        if not kept or not all(kept):
            raise CheckpointError("the checkpoint of that moment is no longer kept")
        return records

    def give_up(self) -> None:
        """End a look that another thread makes. No further one succeeds."""
        self._is_given_up = True
        for repository in list(self._open.values()):
            repository.give_up()

    def close(self) -> None:
        """Watch the roots no more."""
        for repository in self._open.values():
            repository.close()

    def forget_indexes(self) -> None:
        """Delete what makes the next look at the work tree fast."""
        for repository in self._open.values():
            repository.forget_index()

    def shrink(self, bytes_max: int) -> int:
        """Keep the session's checkpoints within `bytes_max`; return how many were dropped."""
        dropped = sum(
            one.shrink(bytes_max // max(1, len(self._open))) for one in self._open.values()
        )
        for name in os.listdir(self.folder) if dropped else ():
            if name.endswith(".json"):
                try:
                    self.load(name.removesuffix(".json"))
                except CheckpointError:
                    os.unlink(os.path.join(self.folder, name))
        return dropped
