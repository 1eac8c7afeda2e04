"""What the logs of one database share: the lock, the writer, the blobs, and the numbers that they deal out."""

from collections.abc import Callable, Collection, Sequence

from longrein.store.blobs import Blobs
from longrein.store.database import ROOT, Database
from longrein.store.lock import SessionLock
from longrein.store.repair import Survey, open_sound
from longrein.store.writer import Writer


class Shared:
    """For the loop's thread; the database itself belongs to the writer's."""

    def __init__(self, folder: str, lock: SessionLock) -> None:
        self.folder = folder
        """Folder of the session and all below it."""
        self.lock = lock
        self.blobs = Blobs(folder)
        self.notes: list[str] = []
        """What was repaired at open."""
        self.cut: Collection[int] = ()
        """Numbers of sessions whose last entries were lost before this open."""
        self.writer: Writer
        self._last_message = 0
        self._last_number = ROOT
        self._numbers: dict[str, int] = {}

    def start(self, wall_us: Callable[[], int], network: bool) -> None:
        """Make the database of a new session, in the writer thread."""
        self.writer = Writer(
            self.folder, lambda: Database(self.folder, self.blobs, self.notes, network=network), wall_us
        )

    def load(self, wall_us: Callable[[], int], network: bool) -> Sequence[Survey]:
        """Open the database that is there, in the writer thread. The survey is in what is given back once the writer
        says `opened`."""
        surveys: list[Survey] = []

        def open_database() -> Database:
            database, survey = open_sound(self.folder, self.blobs, self.notes, network=network)
            surveys.append(survey)
            return database

        self.writer = Writer(self.folder, open_database, wall_us)
        return surveys

    def go_on(self, survey: Survey) -> None:
        """Deal out what comes after all that the database has seen."""
        self._last_message, self._last_number, self.cut = survey.last_message, survey.last_number, survey.cut

    def next_message(self) -> int:
        """Id of a new inbox message: rising over all sessions of the database, for ever."""
        self._last_message += 1
        return self._last_message

    def number_for(self, session: str) -> int:
        """Number of a session that is not stored yet; the same each time."""
        if session not in self._numbers:
            self._last_number += 1
            self._numbers[session] = self._last_number
        return self._numbers[session]
