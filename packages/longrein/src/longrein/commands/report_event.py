"""`longrein happened`: report an event to a session from another process."""

from collections.abc import Sequence

from longrein.agent import InboxMessage, encode_message, program_event
from longrein.app.run_context import RunContext
from longrein.frontends.argv import clean
from longrein.frontends.stdio import read_piped, say
from longrein.store import chosen_session, leave_message
from longrein_context.events import SessionUnknown, UsageError

USAGE = "longrein happened KIND TEXT, or pipe the text in; see longrein happened --help"


def report_event(
    run_context: RunContext, words: Sequence[str], *, source: str = "", session: str = ""
) -> int:
    """Leave the event in the inbox of a session; return the exit code."""
    if not words:
        raise UsageError(f"what has happened? {USAGE}")
    text = clean(" ".join(words[1:])) or read_piped(0, wait_s=None, say=say).decode(
        "utf-8", "replace"
    )
    word = program_event(words[0], text.replace("\0", "\ufffd").rstrip("\n"), clean(source))
    if not word.text and not word.source:
        raise UsageError(f"what has happened? {USAGE}")
    send(run_context, named_session(run_context, session), word)
    return 0


def named_session(run_context: RunContext, session: str) -> str:
    """Return the id of `session`, else of the session that runs this command, else of the
    folder's newest.
    """
    wanted = session or run_context.environ.get("LONGREIN_SESSION", "")
    found = chosen_session(run_context.state_dir, run_context.cwd, wanted)
    if not found:
        raise SessionUnknown(
            f"there is no session of {run_context.cwd}; name one with --session ID"
        )
    return found


def send(run_context: RunContext, session: str, word: InboxMessage) -> None:
    """Leave a message for a session, open or not."""
    leave_message(run_context.state_dir, session, encode_message(word))
