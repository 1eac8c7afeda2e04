"""The logs of a stored session, for the inspector. The session may be open in another process."""

from collections.abc import Iterable

from longrein.events import Entry
from longrein.store import Reader, is_open


class StoredLogs:
    """Reads the logs of a session and its subagents from its database. For one thread at a time."""

    def __init__(self, state_dir: str, session: str) -> None:
        """Raises `SessionUnknown`."""
        self._state_dir, self._session = state_dir, session
        self._reader = Reader(state_dir, session)
        self._children: dict[str, Reader] = {}

    def entries(self, session: str, after: int) -> Iterable[Entry] | None:
        """Return the entries of a subagent, or with '' of the session, after seq `after`; None if
        there is no log.

        Entries that a subagent shares with its parent are left out. Raises `StoreDamaged`,
        `SessionReadOnly`.
        """
        if not session:
            return self._reader.entries(after)
        if session not in self._children:
            number = self._reader.number_of(session)
            if not number:
                return None
            self._children[session] = self._reader.session_reader(number)
        reader = self._children[session]
        return reader.entries(max(after, reader.first - 1))

    def is_open(self) -> bool:
        """Return True if a process has the session open."""
        return is_open(self._state_dir, self._session)

    def title(self) -> str:
        """Return the title of the session; '' for none."""
        return self._reader.about()[2]

    @property
    def folder(self) -> str:
        """Folder of the session."""
        return self._reader.folder

    def close(self) -> None:
        """Close the files."""
        self._reader.close()
