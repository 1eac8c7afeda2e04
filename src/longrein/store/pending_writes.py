"""Rows of one session on their way to the writer: its entries and its row in `sessions`."""

from collections.abc import Sequence
from concurrent.futures import Future

from longrein.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Entry,
    Opened,
    TitleSet,
    UserSpoke,
    encode_event,
    text_of,
)
from longrein.events.escape import one_line, shortened
from longrein.store.database import ROOT, Write, entry_key

TITLE_CHARS_MAX = 80
NO_WORDS_TITLE = "(no words)"
"""Title of a session whose first message has no text."""

About = tuple[int, str, str]
"""(created in microseconds UTC, cwd, title) of a session."""


class SessionRows:
    """Fills writes with one session's rows. For the event loop's thread."""

    def __init__(self, session: str, number: int, *, listed: bool) -> None:
        """`listed`: whether the database already holds the session's row of `sessions`."""
        self.session = session
        self.number = number
        self.about: About = (0, "", "")
        self.is_listed = listed

    def add(self, write: Write, entries: Sequence[Entry], take: Sequence[int]) -> None:
        """Add `entries` to `write`, and the ids of the inbox messages `take` to delete."""
        for entry in entries:
            body = encode_event(entry.event)
            write.rows.append(
                (entry_key(self.number, entry.seq), entry.at, SCHEMA_VERSION, 0, body)
            )
            if self.number == ROOT and isinstance(entry.event, Opened | TitleSet):
                write.one_shot = isinstance(entry.event, Opened) and entry.event.one_shot
            about = updated_about(self.about, entry.at, entry.event)
            if about is not self.about:
                self.about, self.is_listed = about, False
        write.take = (*write.take, *take)
        self.add_listing(write)

    def add_listing(self, write: Write) -> None:
        """Add the session's row of `sessions` to `write`, unless the database holds it."""
        if not self.is_listed:
            write.about.append((self.number, self.session, *self.about))

    def watch_commit(self, written: "Future[None]") -> None:
        """Mark the session's row as stored once `written` succeeds; after a failure the next
        write has it.
        """
        about = self.about

        def on_commit(done: "Future[None]") -> None:  # called in the writer thread
            if done.exception() is None and about == self.about:
                self.is_listed = True

        if not self.is_listed:
            written.add_done_callback(on_commit)


def updated_about(about: About, at: int, event: AnyEvent) -> About:
    """Take time, cwd and title from the first entries: from `event` of time `at`, if `about` has no
    title yet.

    A title that the user gives replaces the one of the first words.
    """
    created, cwd, title = about
    if isinstance(event, TitleSet):
        return created, cwd, _one_line(event.title)
    if title in ("", NO_WORDS_TITLE):
        match event:
            case Opened():
                return at, event.cwd, title
            case UserSpoke():
                return created, cwd, _title(event)
            case _:
                pass
    return about


def _title(event: UserSpoke) -> str:
    """Return the first words of the user's message on one line; a fixed title for a message
    without text.
    """
    return _one_line(text_of(event.typed)) or NO_WORDS_TITLE


def _one_line(text: str) -> str:
    return shortened(one_line(text[: 4 * TITLE_CHARS_MAX]), TITLE_CHARS_MAX)
