"""Purposes of requests: an answer names its request and not what that was for."""

from longrein.events.events import Asked, Entry


class Purposes:
    """What each request of a log was for, from its entries. Requests of before count as `turn`."""

    def __init__(self) -> None:
        self._summaries: set[int] = set()

    def note(self, entry: Entry) -> None:
        """Take an entry of the log."""
        if isinstance(entry.event, Asked) and entry.event.purpose == "summary":
            self._summaries.add(entry.seq)

    def of(self, asked: int) -> str:
        """Return the purpose of the request `asked`: `turn` or `summary`."""
        return "summary" if asked in self._summaries else "turn"
