"""Times of a schedule: intervals, single times and cron lines. Times are local."""

import re
from datetime import datetime, timedelta
from hashlib import sha256

import msgspec

from longrein_context import State
from longrein_context.events import Schedule, UsageError

EXPIRY_US = 7 * 86_400_000_000
"""A schedule ends after this time, so that a forgotten one does not cost money for ever."""
SHORTEST_S = 60
NEVER_US = 253_370_764_800_000_000
"""The year 9999."""
JITTER_SHARE, JITTER_MAX_S = 0.1, 900.0
"""A time of a cron line is later by up to this share of its interval, and at most so many
seconds.
"""
YEARS_MAX = 5
"""A cron line with no time in so many years has none."""

ONCE = ("in", "at", "once")
"""First words of a time that comes once."""
UNITS = {"m": 60, "h": 3_600, "d": 86_400}
FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)
NAMES = {
    "month": (
        "",
        "jan",
        "feb",
        "mar",
        "apr",
        "may",
        "jun",
        "jul",
        "aug",
        "sep",
        "oct",
        "nov",
        "dec",
    ),
    "day of the week": ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
USAGE = (
    "write an interval such as 5m, 2h or 1d, `in 30m` or `at 14:30` for once, or a cron line such "
    'as "0 9 * * 1-5", '
    "and then the prompt"
)


def split_when(text: str) -> tuple[str, str]:
    """Split `5m PROMPT`, `in 5m PROMPT` or `0 9 * * 1-5 PROMPT` into the time and the prompt.
    Raises `UsageError`.
    """
    words = text.split(maxsplit=1)
    if words and words[0] in ONCE:
        once, at, prompt = [*text.split(maxsplit=2), "", ""][:3]
        words = [f"{once} {at}", prompt]
    if words and re.fullmatch(r"\d+[a-z]|(in|at) .*", words[0]):
        when, prompt = words[0], words[1] if len(words) > 1 else ""
    else:
        *cron, prompt = [*text.split(maxsplit=5), *[""] * 6][:6]
        when = " ".join(cron)
    if not prompt.strip():
        raise UsageError(f"what is to be done, and when? {USAGE}")
    next_time(when, 0)
    return when, prompt.strip()


def next_time(when: str, after_us: int) -> int:
    """Return the first time of `when` after `after_us`, in microseconds UTC. Raises `UsageError`
    for no such time.
    """
    when = when.removeprefix("once ")
    if clock := re.fullmatch(r"at (\d{1,2}):(\d\d)", when):
        when = f"{clock[2]} {clock[1]} * * *"
    if interval := re.fullmatch(r"(?:in )?(\d{1,6})([mhd])", when):
        seconds = int(interval[1]) * UNITS[interval[2]]
        if seconds < SHORTEST_S or seconds * 1_000_000 > EXPIRY_US:
            raise UsageError(f"{when} is no interval from 1m to 7d")
        return after_us + seconds * 1_000_000
    fields = when.split()
    if len(fields) != len(FIELDS):
        raise UsageError(f"{when.strip()!r} is no time: {USAGE}")
    minutes, hours, days, months, weekdays = (
        _values(field, *row) for field, row in zip(fields, FIELDS, strict=True)
    )
    weekdays |= {0} if 7 in weekdays else set()
    at = datetime.fromtimestamp(after_us // 1_000_000).replace(second=0) + timedelta(minutes=1)
    last = at.year + YEARS_MAX
    while at.year <= last:
        weekday = (at.weekday() + 1) % 7
        any_day = fields[2][0] == "*"
        any_weekday = fields[4][0] == "*"
        fits = (at.day in days, weekday in weekdays)
        if at.month not in months:
            at = (at.replace(day=1, hour=0, minute=0) + timedelta(days=32)).replace(day=1)
        elif not (all(fits) if any_day or any_weekday else any(fits)):
            at = at.replace(hour=0, minute=0) + timedelta(days=1)
        elif at.hour not in hours:
            at = at.replace(minute=0) + timedelta(hours=1)
        elif at.minute not in minutes or at.timestamp() * 1e6 <= after_us:
            at += timedelta(minutes=1)
        else:
            return int(at.timestamp()) * 1_000_000
    raise UsageError(f"{when!r} never comes")


def _values(field: str, name: str, least: int, most: int) -> set[int]:
    """Return the values of one field: `*`, `5`, `1-5`, `*/15`, `mon,wed`."""
    found: set[int] = set()
    names = NAMES.get(name, ())
    for part in field.lower().split(","):
        match = re.fullmatch(
            r"(?:\*|([a-z]{3}|[0-9]{1,3})(?:-([a-z]{3}|[0-9]{1,3}))?)(?:/([0-9]{1,3}))?", part
        )
        words = match.groups("")[:2] if match else ()
        if match is None or any(word.isalpha() and word not in names for word in words):
            raise UsageError(f"{part!r} is no {name}: {USAGE}")
        ends = [names.index(word) if word.isalpha() else int(word) for word in words if word]
        first, last = (ends[0], ends[-1]) if ends else (least, most)
        if match[3] and len(ends) == 1:
            last = most
        if not least <= first <= last <= most or match[3] == "0":
            raise UsageError(f"{part!r} is no {name}: it is from {least} to {most}")
        found |= set(range(first, last + 1, int(match[3] or 1)))
    return found


def fire_time(schedule: Schedule, state: State) -> int:
    """Return the time at which a schedule fires next. One with an interval fires for the first
    time at once.
    """
    fired = state.fired.get(schedule.id, 0)
    if fires_once(schedule) and fired:
        return NEVER_US
    if " " not in schedule.when and not fired:
        return schedule.created_at
    try:
        at = next_time(schedule.when, max(fired, schedule.created_at))
    except UsageError:
        return NEVER_US  # of a log that somebody has edited
    if " " not in schedule.when or fires_once(schedule):
        return at
    share = int.from_bytes(sha256(f"{state.session} {schedule.id}".encode()).digest()[:4]) / 2**32
    interval_s = (next_time(schedule.when, at) - at) / 1e6
    return at + round(share * min(interval_s * JITTER_SHARE, JITTER_MAX_S) * 1e6)


def fires_once(schedule: Schedule) -> bool:
    """Return whether a schedule is over once it has fired."""
    return schedule.when.startswith(ONCE)


def describe(schedule: Schedule, state: State) -> str:
    """Return a schedule as one line: name, time, next time, prompt."""
    at = datetime.fromtimestamp(fire_time(schedule, state) // 1_000_000)
    return (
        f"{schedule.id}  {schedule.when}  next {at:%a %d %b %H:%M}  "
        f"{msgspec.json.encode(schedule.prompt).decode()}"
    )
