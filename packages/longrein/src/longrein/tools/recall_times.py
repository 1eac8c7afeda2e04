"""Entries around a time, which is local on screen and UTC in the log."""

import re
from datetime import UTC, datetime, timedelta

from longrein.store import SessionHistory, contents_of, title_of
from longrein_context.events import (
    AT_MAX,
    Entry,
    ToolError,
    kind_of,
)
from longrein_context.events.escape import one_line, shortened

AROUND = 12
"""Entries shown on either side."""
LINE_CHARS_MAX = 110
"""Characters shown of an entry."""
SECOND_US = 1_000_000
TIME_FORMATS = 'times look like "10:05", "2026-11-21T10:05" or "2h ago"'
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
UNLISTED_EVENTS = ("Asked", "ToolStarted", "FileSeen", "Recalled", "PermissionAnswered", "ModeSet")
"""Events that are left out of the list."""


def shown_time(at: int, *, day: bool = True) -> str:
    """Return the local time of an entry."""
    return (
        datetime.fromtimestamp(at / 1e6, UTC)
        .astimezone()
        .strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")
    )


def find_moment(past: SessionHistory, text: str, now_us: int) -> tuple[int, int]:
    """Return (seq of the last entry at the time `text`, that time in microseconds UTC). Raises
    `ToolError`.

    The seq is 0 when the time is before all entries.
    """
    words = text.strip().lower().removeprefix("at ").removesuffix(" ago").strip()
    ago = re.fullmatch(r"(?:about )?(\d{1,9}(?:\.\d+)?)\s*([smhdw])[a-z]*", words)
    if not ago and words != "now":
        at = min(max(0, _parse_moment(text, words, now_us)), AT_MAX)
        return past.seq_at(at), at
    if not now_us:
        raise ToolError(
            f"[bad-time] the present time is not known here, so not {text[:40]!r}; write "
            '"2026-11-21T10:05".'
        )
    ago_us = round(float(ago[1]) * UNITS[ago[2]] * SECOND_US) if ago else 0
    ago_us = min(ago_us, now_us)
    return past.seq_ago(ago_us, now_us), now_us - ago_us


def _parse_moment(text: str, words: str, now_us: int) -> int:
    """Parse a time of day or a date to microseconds UTC; a time without seconds means its end."""
    clock = re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?", words)
    try:
        return _last_time_of_day(clock, now_us) if clock else _parse_date(text.strip())
    except (ValueError, OverflowError):
        raise ToolError(f"[bad-time] {text[:40]!r} is no time; {TIME_FORMATS}.") from None


def _last_time_of_day(clock: "re.Match[str]", now_us: int) -> int:
    """Return the latest past moment with this time of day."""
    hour, minute, second = (int(part or 0) for part in clock.groups())
    now = datetime.fromtimestamp(now_us / 1e6, UTC).astimezone()
    then = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    then = then if then <= now else then - timedelta(days=1)
    return round(then.timestamp()) * SECOND_US + (0 if clock[3] else 59 * SECOND_US) + SECOND_US - 1


def _parse_date(text: str) -> int:
    """Parse a date, or date and time, as local unless it has a zone."""
    then = datetime.fromisoformat(
        text.replace(" ", "T", 1) if re.match(r"\d{4}-\d\d-\d\d ", text) else text
    )
    at = round(then.astimezone(UTC).timestamp() * SECOND_US)
    if re.search(r":\d\d\.\d", text):
        return at
    length_s = 1 if re.search(r":\d\d:\d\d", text) else 60
    if re.fullmatch(r"\d{4}-?\d\d-?\d\d", text):
        length_s = 86_400
    return at + length_s * SECOND_US - 1


def entries_around(past: SessionHistory, text: str, now_us: int) -> str:
    """List the entries before and after the time `text`, a line each, with the calls for earlier
    and later ones.
    """
    (middle, at), last = find_moment(past, text, now_us), past.tail()[0]
    before = _entry_lines(past, range(middle, 0, -1))[::-1]
    after = _entry_lines(past, range(middle + 1, last + 1))
    rows = [*before, *after]
    if not rows:
        raise ToolError("[nothing] Nothing has happened in this session yet: go on with the task.")
    mark = [f"--- {shown_time(at)} ---"]
    first, end = rows[0][0], rows[-1][0]
    head = f"[around {shown_time(at)}: r{first.seq} to r{end.seq}; the log has r1 to r{last}]"
    if not before:
        head = (
            f"[nothing is as old as {shown_time(at)}: it began {shown_time(first.at)}; "
            f"r{first.seq} to r{end.seq}]"
        )
    steps = [_time_link("earlier", first)] if first.seq > 2 else []
    steps += [_time_link("later", end)] if end.seq < last - 1 else []
    foot = [
        f"[any of them: Recall(handle=…); {'; '.join(steps)}]"
        if steps
        else "[any of them: Recall(handle=…)]"
    ]
    return "\n".join([head, *(row for _, row in before), *mark, *(row for _, row in after), *foot])


def _time_link(word: str, entry: Entry) -> str:
    """Return the call for entries around `entry`, in microseconds: a second may hold hundreds of
    entries.
    """
    exact = (
        datetime.fromtimestamp(entry.at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")
    )
    return f'{word}: Recall(time="{exact}")'


def _entry_lines(past: SessionHistory, seqs: range) -> list[tuple[Entry, str]]:
    found: list[tuple[Entry, str]] = []
    for seq in seqs:
        entry = past.entry(seq)
        if entry is not None and kind_of(entry.event) not in UNLISTED_EVENTS:
            found.append((entry, _entry_line(entry)))
            if len(found) == AROUND:
                break
    return found


def _entry_line(entry: Entry) -> str:
    texts = (content.text or content.title for content in contents_of(entry) if not content.aside)
    said = "".join(sign if sign.isprintable() else " " for sign in " / ".join(texts)[:1000])
    said = shortened(one_line(said), LINE_CHARS_MAX)
    return f"r{entry.seq} {shown_time(entry.at, day=False)} {title_of(entry)}: {said}"
