"""The formats of `longrein export` that are made of a conversation."""

from collections.abc import Iterator

from longrein.extensions.transcripts.atif import as_atif
from longrein.extensions.transcripts.export_steps import StoredConversation, read_conversation
from longrein.extensions.transcripts.html import html_pieces
from longrein.extensions.transcripts.markdown_page import as_markdown
from longrein.store import Reader


def html(reader: Reader) -> Iterator[bytes]:
    """Return a session as an HTML page, a piece for each step."""
    return html_pieces(StoredConversation(reader))


def markdown(reader: Reader) -> bytes:
    """Return a session as a Markdown page."""
    return as_markdown(read_conversation(reader))


def atif(reader: Reader) -> bytes:
    """Return a session as a trajectory in ATIF."""
    return as_atif(read_conversation(reader))
