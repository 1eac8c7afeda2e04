"""Times as a model or a person writes them, and what stood around one. On screen they are local, in the log UTC."""

import re
from datetime import UTC, datetime, timedelta

from longrein.events import Entry, ToolError
from longrein.store import contents_of, title_of
from longrein.tools.port import Past

AROUND = 12
"""Entries shown on either side."""
LINE_CHARS_MAX = 110
"""Of an entry's first line."""
SECOND_US = 1_000_000
LOOKS = 'times look like "10:05", "2026-11-21T10:05" or "2h ago"'
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SILENT = ("Asked", "ToolStarted", "FileSeen", "Recalled", "PermissionAnswered", "ModeSet")
"""Entries that say nothing of what happened."""


def shown_time(at: int, *, day: bool = True) -> str:
    """Local time of an entry."""
    return datetime.fromtimestamp(at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")


def found_moment(past: Past, text: str, now_us: int) -> tuple[int, int]:
    """(last entry of the moment that `text` names, 0 when it is older than all; that moment in microseconds UTC).
    Raises `ToolError`."""
    words = text.strip().lower().removeprefix("at ").removesuffix(" ago").strip()
    ago = re.fullmatch(r"(?:about )?(\d+(?:\.\d+)?)\s*([smhdw])[a-z]*", words)
    if not ago and words != "now":
        at = _moment(text, words, now_us)
        return past.seq_at(at), at
    if not now_us:
        raise ToolError(
            f'[bad-time] the present time is not known here, so not {text[:40]!r}; write "2026-11-21T10:05".'
        )
    ago_us = round(float(ago[1]) * UNITS[ago[2]] * SECOND_US) if ago else 0
    return past.seq_ago(ago_us, now_us), now_us - ago_us


def _moment(text: str, words: str, now_us: int) -> int:
    """A time of day or a date, in microseconds UTC; of an open interval its end."""
    clock = re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?", words)
    try:
        return _today(clock, now_us) if clock else _written(text.strip())
    except ValueError:
        raise ToolError(f"[bad-time] {text[:40]!r} is no time; {LOOKS}.") from None


def _today(clock: "re.Match[str]", now_us: int) -> int:
    """The last time the clock showed this."""
    hour, minute, second = (int(part or 0) for part in clock.groups())
    now = datetime.fromtimestamp(now_us / 1e6, UTC).astimezone()
    then = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    then = then if then <= now else then - timedelta(days=1)
    return round(then.timestamp()) * SECOND_US + (0 if clock[3] else 59 * SECOND_US) + SECOND_US - 1


def _written(text: str) -> int:
    """A date, or date and time, local unless it names its zone."""
    then = datetime.fromisoformat(text.replace(" ", "T", 1) if re.match(r"\d{4}-\d\d-\d\d ", text) else text)
    at = round(then.astimezone(UTC).timestamp() * SECOND_US)
    if re.search(r":\d\d\.\d", text):
        return at
    day = re.fullmatch(r"\d{4}-?\d\d-?\d\d", text)
    return at + (86_400 if day else 1 if re.search(r":\d\d:\d\d", text) else 60) * SECOND_US - 1


def around(past: Past, text: str, now_us: int) -> str:
    """A line for each thing that happened before and after the moment `text`, and how to look further."""
    (middle, at), last = found_moment(past, text, now_us), past.tail()[0]
    before = _lines(past, range(middle, 0, -1))[::-1]
    after = _lines(past, range(middle + 1, last + 1))
    rows = [*before, *after]
    if not rows:
        raise ToolError("[nothing] Nothing has happened in this session yet.")
    mark = [f"--- {shown_time(at)} ---"]
    first, end = rows[0][0], rows[-1][0]
    head = f"[around {shown_time(at)}: r{first.seq} to r{end.seq}; the log has r1 to r{last}]"
    if not before:
        head = f"[nothing is as old as {shown_time(at)}: it began {shown_time(first.at)}; r{first.seq} to r{end.seq}]"
    steps = [_step("earlier", first)] if first.seq > 2 else []
    steps += [_step("later", end)] if end.seq < last - 1 else []
    foot = [f"[any of them: Recall(handle=…); {'; '.join(steps)}]" if steps else "[any of them: Recall(handle=…)]"]
    return "\n".join([head, *(row for _, row in before), *mark, *(row for _, row in after), *foot])


def _step(word: str, entry: Entry) -> str:
    """To the very entry: a second may hold hundreds."""
    exact = datetime.fromtimestamp(entry.at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")
    return f'{word}: Recall(time="{exact}")'


def _lines(past: Past, seqs: range) -> list[tuple[Entry, str]]:
    found: list[tuple[Entry, str]] = []
    for seq in seqs:
        entry = past.entry(seq)
        if entry is not None and type(entry.event).__name__ not in SILENT:
            found.append((entry, _line(entry)))
            if len(found) == AROUND:
                break
    return found


def _line(entry: Entry) -> str:
    texts = (content.text or content.title for content in contents_of(entry) if not content.aside)
    said = " ".join("".join(sign if sign.isprintable() else " " for sign in " / ".join(texts)[:1000]).split())
    said = said if len(said) <= LINE_CHARS_MAX else said[:LINE_CHARS_MAX] + "…"
    return f"r{entry.seq} {shown_time(entry.at, day=False)} {title_of(entry)}: {said}"
