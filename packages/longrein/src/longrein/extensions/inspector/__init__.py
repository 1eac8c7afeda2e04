"""The inspector: a stored session as one HTML page, written to a file or served on loopback
while the session runs.
"""

from longrein.extension_points import HELP, STATE_DIR, Command, flag

INSPECT = Command(
    "inspect",
    "[SESSION] [FLAGS]",
    "Show a session as a page in the browser: where its tokens, money, cache and time "
    "went, each item's life, "
    "the transcript, subagents and files. Without SESSION the newest of this folder. The "
    "page is one file that "
    "loads nothing; it stands beside the log.",
    (
        flag("--out", "file to write", "word", "FILE"),
        flag("--no-open", "do not open a browser"),
        flag(
            "--live",
            "serve the page on 127.0.0.1 while the session grows, without SESSION that of all open "
            "ones; Ctrl-C ends it",
        ),
        flag("--compare", "two sessions side by side"),
        STATE_DIR,
        HELP,
    ),
    3,
    run="longrein.extensions.inspector.inspect_command:inspect",
    after="context",
)
