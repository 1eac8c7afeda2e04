"""Schedules: prompts that come back at set times, with `longrein schedule`, `/loop`, `/schedule`
and tools for the model.
"""

from longrein.extension_points import HELP, STATE_DIR, Command, flag

SCHEDULE = Command(
    "schedule",
    "[add WHEN PROMPT | remove ID] [FLAGS]",
    "List what comes back at set times in a session, add to it or remove from it. WHEN is "
    "an interval (5m, "
    "2h, 1d) or a cron line of five fields in local time, such as 0 9 * * 1-5. PROMPT "
    "comes as your word "
    "while the session is open and idle; missed times come once. A schedule ends after 7 "
    "days.",
    (
        flag(
            "--session",
            "the session; default: $LONGREIN_SESSION, else this folder's newest",
            "word",
            "ID",
        ),
        STATE_DIR,
        HELP,
    ),
    1000,
    run="longrein.extensions.schedules.schedule_command:schedule",
    after="happened",
)
