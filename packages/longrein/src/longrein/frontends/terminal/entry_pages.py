"""Pages of what the log holds: one entry, the last results and thinking, the transcript of a
subagent.

Reads a session's history. All texts are escaped, so that no byte of an output moves the cursor.
"""

import re
from collections.abc import Iterable, Iterator

from longrein.frontends.localization import translate
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.event_lines import Line, change_lines, line, plain, status_word
from longrein.frontends.terminal.page_view import Page, Section
from longrein.steps import (
    CallStep,
    CompactionStep,
    PromptStep,
    RequestStep,
    Step,
    SubagentStep,
    TaskStep,
    TextStep,
    ThinkingStep,
    steps_of,
)
from longrein.steps.human_text import elapsed, escape, escape_line, first_line, key_argument
from longrein.store import Content, SessionHistory, contents_of
from longrein.tools.recall_lookup import resolve_handle
from longrein_context.events import (
    AnyEvent,
    Entry,
    Replied,
    SubagentStarted,
    ToolEnded,
    ToolError,
    parse_handle,
    text_of,
)

LAST_ENTRIES = 120
"""Newest entries that are searched for results, thinking and diffs."""
LAST_SECTIONS_MAX = 40
TRANSCRIPT_ENTRIES_MAX = 5_000
"""Newest entries of a subagent's transcript."""
CHARS_MAX = 2_000_000
"""Most characters of one page; older parts are left out, which the page says."""
PART_CHARS_MAX = 1_000_000
HANDLE_HINT = (
    "say which: /show r412, /show r412.2, /show a398 or /show a398/r412; /show alone lists them"
)


# --- What is asked for ----------------------------------------------------------------------------


def last_page(past: SessionHistory) -> Page:
    """The last results, thinking, diffs and summaries, whole; opens with the newest in view."""
    tail = past.tail()[0]
    sections = _limited(
        _sections(past, past.entries(max(tail - LAST_ENTRIES, 0))), LAST_SECTIONS_MAX
    )
    return Page(
        translate("last results, thinking and diffs"), sections or [_nothing()], at_end=True
    )


def shown_page(past: SessionHistory, text: str) -> Page | str:
    """The page of `r412`, `r412-r420`, `r412.2`, `a398` or `a398/r412`; a line that says why there
    is none.
    """
    if re.fullmatch(r"a\d+(\.a\d+)*", text):
        return transcript_page(past, text)
    if span := re.fullmatch(r"r(\d{1,15})-r?(\d{1,15})", text):
        return _span_page(past, int(span[1]), int(span[2]))
    handle = parse_handle(text)
    if handle is None:
        return HANDLE_HINT
    try:
        found = resolve_handle(past, text)
    except ToolError as error:
        return str(error).partition("] ")[2].partition(". ")[0].removesuffix(".")
    if not handle.part:
        first = max(handle.seq - LAST_ENTRIES, 0)
        around = _sections(
            found.past, found.past.entries(first, handle.seq), prefix=_prefix(handle.child)
        )
        sections = [section for seq, section in around if seq == handle.seq]
        if sections:
            return Page(f"{handle}", sections)
    contents = [
        *found.texts,
        *(Content(_kind(part), f"[{_kind(part)}]") for part, _ in found.media),
    ]
    parts = [
        Section(line(("dim", escape_line(one.title))), content_lines(found.past, one))
        for one in contents
    ]
    return Page(f"{handle} {escape_line(found.title)}", parts)


def _span_page(past: SessionHistory, first: int, last: int) -> Page | str:
    """The results of the entries `first` to `last`, such as a group of reads and searches."""
    around = _sections(past, past.entries(max(first - LAST_ENTRIES, 0), last))
    found = _limited(((seq, one) for seq, one in around if seq >= first), LAST_SECTIONS_MAX)
    return Page(f"r{first}-r{last}", found) if found else f"there is nothing in r{first}-r{last}"


def transcript_page(past: SessionHistory, label: str) -> Page | str:
    """All that a subagent did, oldest first; `label` is `a398`, below it `a398.a12`."""
    below: SessionHistory | None = past
    title = escape_line(label)
    for step in label.split("."):
        started = below.entry(int(step[1:])) if below is not None else None
        if below is None or started is None or not isinstance(started.event, SubagentStarted):
            known = [f"a{entry.seq}" for entry in past.of_kind("ChildStarted")][:10]
            return (
                f"there is no subagent {escape_line(label)}; known: {', '.join(known)}"
                if known
                else f"there is no subagent {escape_line(label)}; this session has started none"
            )
        title = (
            f"{escape_line(label)} {escape_line(started.event.kind)}: "
            f"{first_line(started.event.description)}"
        )
        below = below.child(started.event.child)
    if below is None:
        return f"the log of {escape_line(label)} is not here any more"
    first = max(below.tail()[0] - TRANSCRIPT_ENTRIES_MAX, 0)
    prefix = f"{label}/" if "." not in label else ""
    return Page(
        title,
        _limited(_sections(below, below.entries(first), prefix=prefix, all_texts=True))
        or [_nothing()],
    )


def openable_rows(past: SessionHistory) -> list[Row]:
    """Handles of what `/show` can open, newest first: subagents, then results, thinking and
    summaries.
    """
    agents = [
        Row(
            f"a{entry.seq}", f"a{entry.seq} {entry.event.kind}", first_line(entry.event.description)
        )
        for entry in past.of_kind("ChildStarted")
        if isinstance(entry.event, SubagentStarted) and not entry.event.again
    ]
    tail = past.tail()[0]
    found = [*_sections(past, past.entries(max(tail - LAST_ENTRIES, 0)))][-LAST_SECTIONS_MAX:]
    rows: dict[int, Row] = {}
    for seq, section in reversed(found):
        rows.setdefault(seq, Row(f"r{seq}", plain(section.heading)))
    return [*rows.values(), *agents]


# --- Sections -------------------------------------------------------------------------------------


def _sections(
    past: SessionHistory, entries: Iterable[Entry], *, prefix: str = "", all_texts: bool = False
) -> Iterator[tuple[int, Section]]:
    """(seq, section) of what can be opened. `prefix`: of handles; `all_texts`: also replies and
    the user's words.
    """
    for step in steps_of(entries):
        for section in _of_step(past, step, prefix, all_texts):
            yield step.seq, section


def _of_step(past: SessionHistory, step: Step, prefix: str, all_texts: bool) -> Iterator[Section]:
    handle = f"{prefix}r{step.seq}"
    match step:
        case ThinkingStep(text=text) if text.strip():
            yield _section(handle, "thinking", text)
        case TextStep(text=text) if all_texts and text.strip():
            yield _section(handle, "reply", text)
        case PromptStep(message=message) if all_texts:
            yield _section(handle, "the user", text_of(message.typed))
        case CallStep(ended=result) if result:
            yield _result(past, step, result, handle)
        case CompactionStep(summarized=span) if span:
            yield _section(handle, f"summary of entries {span.first} to {span.last}", span.text)
        case TaskStep(ended=end) if end:
            rows = [row for one in _main(step.seq, end) for row in content_lines(past, one)]
            name = f"output of task {escape_line(end.task)}"
            yield Section(_heading(handle, name, end.state), rows)
        case SubagentStep(ended=end) if end:
            if end.report:
                heading = _heading(handle, "report of a subagent", end.status)
                yield Section(heading, text_lines(end.report))
        case SubagentStep(started=start) if start and not start.again:
            label = step.label
            name = f"subagent {label} {escape_line(start.kind)}: {first_line(start.description)}"
            opens = "" if prefix else label
            yield Section(_heading(handle, name), text_lines(start.task), opens=opens)
        case RequestStep(failure=failure) if failure and failure.message:
            yield _section(handle, "no answer", failure.message)


def _result(past: SessionHistory, step: CallStep, end: ToolEnded, handle: str) -> Section:
    """A result below its call: the diff of an edit, else the arguments."""
    arguments = step.call.arguments
    rows = change_lines(end.name, arguments, None)
    values = (arguments or {}).values()
    if not rows and any(isinstance(value, str) and "\n" in value for value in values):
        made = _main(0, Replied(0, (step.call,), "calls"))
        rows = [line(("dim", plain(row))) for one in made for row in text_lines(one.text)]
    rows += [row for one in _main(step.seq, end) for row in content_lines(past, one)]
    head = f"{escape_line(end.name)}  {key_argument(arguments)}".rstrip()
    return Section(_heading(handle, head, end.status, elapsed(end.elapsed_ms / 1000)), rows)


def _main(seq: int, event: AnyEvent) -> list[Content]:
    return [content for content in contents_of(Entry(seq, 0, event)) if not content.aside]


def _heading(handle: str, text: str, status: str = "", time: str = "") -> Line:
    word, style = status_word(status) if status else ("", "")
    return line(
        ("you", f"── {handle} "),
        ("bold", text),
        (style, f"  {word}" if word else ""),
        ("dim", f" {time}"),
    )


def _section(handle: str, title: str, text: str) -> Section:
    return Section(_heading(handle, title), text_lines(text))


def _nothing() -> Section:
    return Section(line(("dim", translate("there is no result, thinking or diff yet"))), ())


def _prefix(subagent: int) -> str:
    return f"a{subagent}/" if subagent else ""


def _kind(part: object) -> str:
    return f"{getattr(part, 'media', 'content')}, {getattr(part, 'size_bytes', 0)} bytes"


def _limited(found: Iterable[tuple[int, Section]], most: int = 0) -> list[Section]:
    """The newest sections, at most `most` (0: any number) with `CHARS_MAX` characters; says how
    many were left out.
    """
    sections = [section for _, section in found]
    kept: list[Section] = []
    left = CHARS_MAX
    for section in reversed(sections):
        left -= sum(len(plain(row)) for row in section.lines)
        if kept and (left < 0 or (most and len(kept) == most)):
            break
        kept.append(section)
    omitted = len(sections) - len(kept)
    note = (
        [
            Section(
                line(("dim", translate(f"{omitted} older parts are left out; /show rN opens one"))),
                (),
            )
        ]
        if omitted
        else []
    )
    return [*note, *reversed(kept)]


# --- Texts ----------------------------------------------------------------------------------------


def text_lines(text: str) -> list[Line]:
    """Escaped lines of `text`; what is longer than `PART_CHARS_MAX` is left out, which the last
    line says.
    """
    rows = [
        line(row) for row in escape(text[:PART_CHARS_MAX]).expandtabs(4).rstrip("\n").split("\n")
    ]
    more = len(text) - PART_CHARS_MAX
    return [*rows, line(("warn", translate(f"… {more:,} more characters")))] if more > 0 else rows


def content_lines(past: SessionHistory, content: Content) -> list[Line]:
    """Escaped lines of a part of an entry, from the log or from a blob."""
    if not content.blob:
        return (
            text_lines(content.text)
            if content.text or content.part is None
            else [line(("dim", content.title))]
        )
    data, size = bytearray(), 0
    try:
        for piece in past.pieces(content.blob):
            size += len(piece)
            data += piece[: max(PART_CHARS_MAX - len(data), 0)]
    except KeyError:
        return [line(("warn", translate("its content is not in the session's folder any more")))]
    rows = text_lines(bytes(data).decode("utf-8", "replace"))
    return (
        [*rows, line(("warn", translate(f"… {size - len(data):,} more bytes")))]
        if size > len(data)
        else rows
    )
