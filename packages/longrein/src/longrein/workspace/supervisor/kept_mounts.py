"""Mount namespaces that the commands of one plan enter one after the other.

The mounts of a usual plan take 3.4 ms, a third of a confined command's start; entering them takes
0.3 (two cores, Linux 6.1). They are kept from the second command on, and made again when a file
under them is another one. What a command does to its mounts stays in its own namespaces, which
bubblewrap makes.

Standard library only: the supervisor loads this module.
"""

import itertools
import os
from collections import namedtuple
from collections.abc import Callable

from longrein.workspace.supervisor.mount_process import encode_plan, open_mount_namespace
from longrein.workspace.supervisor.mount_watch import MountWatch, Plan

PLANS_MAX = 4
"""Plans of which the mounts are kept; of more the oldest is dropped."""
KEPT_S = 60.0
"""Seconds for which mounts are kept: they keep file systems busy."""


_Kept = namedtuple("_Kept", "number namespace identities")
"""Number that stands for a process in the watch, open descriptor (-1 after the first command of its
plan), and what tells the files of the plan from others.
"""


class KeptMounts:
    """The mounts of the last plans. Belongs to the supervisor's loop."""

    def __init__(
        self, namespace: int, watch: MountWatch, after: Callable[[float, Callable[[], None]], None]
    ) -> None:
        """`namespace`: an open user namespace, -1 for none. `after` calls back after seconds."""
        self._namespace, self._watch, self._after = namespace, watch, after
        self._numbers = itertools.count(-1, -1)
        self._kept: dict[bytes, _Kept] = {}

    def find(self, plan: Plan) -> int:
        """Return the namespace with the mounts of a plan that the watch has just read; -1 where a
        command must make them.
        """
        name = encode_plan(plan.mounts)
        known = self._kept.get(name)
        if known is None:
            self._keep(name, _Kept(next(self._numbers), -1, ()))
            return -1
        identities = plan.identities()
        if known.namespace >= 0 and known.identities == identities:
            return int(known.namespace)
        self._drop(name, known)
        if self._namespace < 0:
            return -1
        namespace = open_mount_namespace(name, self._namespace)
        made = _Kept(next(self._numbers), namespace, identities)
        self._keep(name, made)
        self._watch.add(made.number, plan, lambda: self._drop(name, made))
        return namespace

    def _keep(self, name: bytes, made: _Kept) -> None:
        while len(self._kept) >= PLANS_MAX:
            oldest = next(iter(self._kept))
            self._drop(oldest, self._kept[oldest])
        self._kept[name] = made
        self._after(KEPT_S, lambda: self._drop(name, made))

    def drop_all(self) -> None:
        """Drop what is kept."""
        for name, known in list(self._kept.items()):
            self._drop(name, known)

    def _drop(self, name: bytes, known: _Kept) -> None:
        """Drop the mounts of a plan, unless others have taken their place."""
        if self._kept.get(name) is not known:
            return
        del self._kept[name]
        self._watch.remove(known.number)
        if known.namespace >= 0:
            os.close(known.namespace)
