"""The ledger: what happened, kept by code from the facts of the log and never by a model.

Each line holds the seqs that prove it; a later fact supersedes an earlier one about the same thing; what a model merely
claims never enters. Work per entry does not grow with the history, and neither does the ledger beyond its limits: old
lines thin out, the log keeps all.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from longrein.context.state.command_results import Counts, clip, code_of, gist, read_tests
from longrein.events import (
    AnyEvent,
    ChildEnded,
    ChildStarted,
    CwdSet,
    FileChanged,
    FileSeen,
    ModeSet,
    Opened,
    PermissionAnswered,
    PermissionAsked,
    PinsSet,
    Reminded,
    Summarized,
    TaskEnded,
    TaskStarted,
    TodoSet,
    ToolCall,
    ToolEnded,
    ToolStarted,
    UserSpoke,
    text_of,
)

# --- The lines of the ledger: what was said, done and decided, each with the entries that prove it -------------------


class Record(msgspec.Struct, frozen=True):
    """A line of the ledger."""


class UserMessage(Record, frozen=True):
    """What the user said once."""

    seq: int
    text: str
    """Verbatim; of an old long message two ends with `…` between."""
    origin: str = "prompt"
    """`prompt`, `steer`, `queued` or `command`."""
    gone: int = 0
    """Characters that are missing from `text`; 0 when it is whole."""
    media: tuple[str, ...] = ()
    """Images and documents that came with it: `r12.2 image/png`."""


class FileUse(Record, frozen=True):
    """What was done with one file."""

    hash: str
    """Newest content known; '' when the file is gone."""
    seq: int
    """Entry that says so."""
    by: str = ""
    """Who changed it last: `agent`, `subagent`, `command`, `user`; '' when it was only read."""
    changed: int = 0
    """Entry of that change."""
    changes: int = 0
    reads: int = 0
    whole: bool = False
    """Whether the newest content was shown whole."""
    lines: tuple[int, int] = (0, 0)
    """First line and number of lines of the last partial read; zeros when it was whole."""


class CallRecord(Record, frozen=True):
    """A call that is over. The newest of its line stands for the earlier ones."""

    seq: int
    name: str
    argument: str
    status: str
    """`ok`, `failed`, `denied`, `interrupted` or `not_run`; of work in the background `running` until it has ended, and
    then the state it ended in."""
    code: int | None = None
    """Exit code of a command, when it exited by itself."""
    tests: Counts | None = None
    """What a test runner counted in its output."""
    times: int = 1
    """How often it was made."""
    background: tuple[str, ...] = ()
    """Tasks and subagents that went on after its result, by id."""
    ended: int = 0
    """Entry that ended the last of them; 0 while one runs."""


class TestVerdict(Record, frozen=True):
    """How one test stands."""

    passed: bool
    seq: int
    """Result that says so."""
    line: str
    """Command it ran in."""
    failed: int = 0
    """First result of the last row of failures; 0 when it never failed."""


class ErrorRecord(Record, frozen=True):
    """An error, and what became of it."""

    seq: int
    """First result that failed."""
    last: int
    """Newest result that failed."""
    line: str
    """The command or call."""
    error: str
    """Its most telling line, as printed."""
    times: int = 1
    fixed: int = 0
    """Result of the same call that succeeded; 0 when none did."""
    between: tuple[tuple[int, str], ...] = ()
    """(seq, path) of changes made between them."""


class UserDecision(Record, frozen=True):
    """What the user decided."""

    seqs: tuple[int, ...]
    """The question and the answer."""
    text: str


class BackgroundWork(Record, frozen=True):
    """A background task or a subagent."""

    seq: int
    kind: str
    """`task` or `subagent`."""
    text: str
    """Command or type."""
    ended: int = 0
    status: str = ""
    """How it ended, with the code or the first line of the report."""
    call: str = ""
    """The call that started it."""


class Ledger(msgspec.Struct):
    """All lines. `note` and `note_result` write it, everybody else reads."""

    words: list[UserMessage] = []
    """Everything the user said, in order."""
    words_chars: int = 0
    files: dict[str, FileUse] = {}
    """By real path; the last one used stands last."""
    edits: list[tuple[int, str]] = []
    """(seq, path) of each change."""
    ran: dict[str, CallRecord] = {}
    """By call line; the last one made stands last."""
    tests: dict[str, TestVerdict] = {}
    """By name."""
    troubles: dict[str, ErrorRecord] = {}
    """By call line."""
    decisions: list[UserDecision] = []
    asked: dict[str, tuple[int, str]] = {}
    """Questions that wait: call -> (seq, what is asked)."""
    running: dict[str, BackgroundWork] = {}
    """Tasks and subagents by id."""
    over: list[BackgroundWork] = []
    """Those that ended."""
    proofs: dict[str, int] = {}
    """`todo`, `mode`, `cwd`, `pins` -> entry that set the present value."""
    told: dict[str, int] = {}
    """Nested instruction files and skills -> entry that told them last."""
    summaries: list[int] = []
    """The last summaries."""
    fitted: dict[str, dict[str, Any]] = {}
    """Arguments of running calls that hooks changed."""


# --- ledger ----------------------------------------------------------------------------------------------------------


WORDS_CHARS_MAX = 1_000_000
"""Characters of the user's words that are kept here; longer old messages lose their middle first."""
WORD_CHARS_MIN = 600
"""What is kept of such a message."""
RAN_MAX = 400
"""Calls, the newest of each line."""
FILES_MAX = 2_000
"""Files; those that were only read go first."""
EDITS_MAX = 400
"""Changes, to tell what lay between an error and its end."""
TESTS_MAX = 1_000
"""Tests; passing ones go first."""
TROUBLES_MAX = 100
"""Errors; fixed ones go first."""
DECISIONS_MAX = 200
"""Answers of the user."""
ENDED_MAX = 50
"""Tasks and subagents that are over."""
SLACK = 50
"""How far a list may grow beyond its limit before it is cut, so that cutting costs little."""

QUIET = frozenset({"Read", "Edit", "Write", "Grep", "Glob", "TodoWrite", "Recall", "Compact", "ToolSearch", "Skill"})
"""Tools whose success is told elsewhere: by the files, by the todo list, or not at all."""
ASKING = frozenset({"ExitPlanMode", "AskUserQuestion"})
"""Tools whose result is the user's answer."""


def record_event(ledger: Ledger, seq: int, event: AnyEvent) -> None:
    """Take one fact in; a `ToolEnded` comes through `note_result`. Facts that prove nothing are passed over."""
    writer = _WRITERS.get(type(event))
    if writer is not None:
        writer(ledger, seq, event)


def merge_rewound_ledger(then: Ledger, now: Ledger) -> Ledger:
    """The ledger after a rewind: what was said and done as of `then`, what runs in the world as of `now`."""
    then.running, then.over = now.running, now.over
    for line, ran in then.ran.items():
        known = now.ran.get(line)
        if ran.background and known is not None and known.seq == ran.seq:
            then.ran[line] = known
    then.proofs = {**then.proofs, **{name: now.proofs[name] for name in ("mode", "pins") if name in now.proofs}}
    return then


# --- the user ----------------------------------------------------------------------------------------------------


def _said(ledger: Ledger, seq: int, event: UserSpoke) -> None:
    text = text_of(event.parts)
    media = [f"r{seq}.{n} {m}" for n, part in enumerate(event.parts, 1) if (m := getattr(part, "media", ""))]
    ledger.words.append(UserMessage(seq, text, event.origin, media=tuple(media)))
    ledger.words_chars += len(text)
    if ledger.words_chars > WORDS_CHARS_MAX:
        _thin_words(ledger)


def _thin_words(ledger: Ledger) -> None:
    """Cut the middle out of old messages, the first and the last few excepted, until a quarter is free again."""
    for keep in (WORD_CHARS_MIN, WORD_CHARS_MIN // 10):
        for at in range(1, len(ledger.words) - 5):
            if ledger.words_chars <= WORDS_CHARS_MAX * 3 // 4:
                return
            word = ledger.words[at]
            less = len(word.text) - keep
            if less > keep:
                ends = word.text[: keep // 2] + "…" + word.text[-(keep // 2) :]
                ledger.words[at] = UserMessage(word.seq, ends, word.origin, word.gone + less, word.media)
                ledger.words_chars -= less - 1


def _question(ledger: Ledger, seq: int, event: PermissionAsked) -> None:
    ledger.asked[event.call] = (seq, f"{event.name}: {clip(event.shown, 160)}")


def _answer(ledger: Ledger, seq: int, event: PermissionAnswered) -> None:
    asked, shown = ledger.asked.pop(event.call, (0, event.call))
    if event.by != "user":
        return
    scope = "" if event.scope == "once" else f", for {'this session' if event.scope == 'session' else 'always'}"
    rule = f" (rule {event.rule})" if event.rule and event.scope != "once" else ""
    words = f"; they said: {clip(event.message, 300)}" if event.message else ""
    verb = "allowed" if event.verdict == "allow" else "denied"
    _decide(ledger, (asked, seq), f"the user {verb} {shown}{scope}{rule}{words}")


def _decide(ledger: Ledger, seqs: tuple[int, ...], text: str) -> None:
    ledger.decisions.append(UserDecision(tuple(seq for seq in seqs if seq), text))
    _cut(ledger.decisions, DECISIONS_MAX)


def _cut(lines: list[Any], most: int) -> None:
    if len(lines) > most + SLACK:
        del lines[:SLACK]


# --- files -------------------------------------------------------------------------------------------------------


def _seen(ledger: Ledger, seq: int, event: FileSeen) -> None:
    old = ledger.files.pop(event.path, None) or FileUse("", seq)
    same = old.hash == event.hash
    ledger.files[event.path] = FileUse(
        event.hash,
        seq,
        old.by,
        old.changed,
        old.changes,
        old.reads + 1,
        event.whole or (same and old.whole),
        old.lines if same else (0, 0),
    )
    _thin_files(ledger)


def _changed(ledger: Ledger, seq: int, event: FileChanged) -> None:
    old = ledger.files.pop(event.path, None) or FileUse("", seq)
    whole = event.by == "agent"  # what others wrote the model has not seen
    use = FileUse(event.hash, seq, event.by, seq, old.changes + 1, old.reads, whole, old.lines if whole else (0, 0))
    ledger.files[event.path] = use
    ledger.edits.append((seq, event.path))
    _cut(ledger.edits, EDITS_MAX)
    _thin_files(ledger)


def _thin_files(ledger: Ledger) -> None:
    if len(ledger.files) > FILES_MAX + SLACK:
        oldest = sorted(ledger.files, key=lambda path: (ledger.files[path].changes > 0, ledger.files[path].seq))
        for path in oldest[:SLACK]:
            del ledger.files[path]


# --- calls -------------------------------------------------------------------------------------------------------


def _started(ledger: Ledger, seq: int, event: ToolStarted) -> None:  # noqa: ARG001 - every writer is given all three
    if event.arguments is not None:
        ledger.fitted[event.call] = event.arguments


def record_result(ledger: Ledger, seq: int, call: ToolCall, event: ToolEnded) -> None:
    """A call is over: keep how, and what its output proves."""
    arguments = ledger.fitted.pop(event.call, None) or call.arguments or {}
    ledger.asked.pop(event.call, None)
    argument = key_argument(arguments)
    if event.name == "Read" and event.status == "ok":
        _read_range(ledger, arguments)
    if event.name in ASKING and event.status == "ok":
        _decide(ledger, (seq,), f"asked by {event.name}, the user answered: {clip(text_of(event.parts), 500)}")
    if event.name == "Skill" and event.status == "ok":
        ledger.told[f"skill {argument}"] = seq
    if event.name not in QUIET or event.status != "ok":
        _ran(ledger, seq, event, argument)


def _read_range(ledger: Ledger, arguments: dict[str, Any]) -> None:
    """The last file seen is the one just read; which of its lines were asked for."""
    offset, limit = arguments.get("offset"), arguments.get("limit")
    if ledger.files and (offset or limit):
        path, use = next(reversed(ledger.files.items()))
        lines = (offset if isinstance(offset, int) else 1, limit if isinstance(limit, int) else 0)
        ledger.files[path] = msgspec.structs.replace(use, lines=lines)


def key_argument(arguments: dict[str, Any]) -> str:
    """The argument that tells a call from others: the first text, on one line."""
    return next((clip(value, 500) for value in arguments.values() if isinstance(value, str)), "")


def _ran(ledger: Ledger, seq: int, event: ToolEnded, argument: str) -> None:
    line = f"{event.name} {argument}".strip()
    command = event.name == "Bash"
    background = tuple(key for key, run in ledger.running.items() if run.call == event.call)
    status = "running" if background and event.status == "ok" else event.status
    ended_itself = status in ("ok", "failed")
    text = text_of(event.parts) if ended_itself and (command or event.status == "failed") else ""
    code = code_of(text, event.status) if command and ended_itself else None
    counts = _tests(ledger, seq, argument, text) if command and ended_itself else None
    before = ledger.ran.pop(line, None)
    times = before.times + 1 if before is not None else 1
    ledger.ran[line] = CallRecord(seq, event.name, argument, status, code, counts, times, background)
    if len(ledger.ran) > RAN_MAX + SLACK:
        for old in list(ledger.ran)[:SLACK]:
            del ledger.ran[old]
    if ended_itself and event.name not in QUIET:
        failed = event.status == "failed" or (counts is not None and counts.failed > 0)
        _trouble(ledger, seq, line, gist(text) if failed else None)


def _trouble(ledger: Ledger, seq: int, line: str, error: str | None) -> None:
    """A call failed (`error`: its telling line) or succeeded (None) where it had failed before."""
    old = ledger.troubles.get(line)
    if error is None:
        if old is not None and not old.fixed:
            between = tuple(dict.fromkeys(_edits_since(ledger, old.seq)))[-8:]
            ledger.troubles[line] = msgspec.structs.replace(old, fixed=seq, between=between)
        return
    ledger.troubles.pop(line, None)
    if old is None or old.fixed:
        ledger.troubles[line] = ErrorRecord(seq, seq, line, error)
    else:
        ledger.troubles[line] = ErrorRecord(old.seq, seq, line, error, old.times + 1)
    if len(ledger.troubles) > TROUBLES_MAX + SLACK:
        oldest = sorted(ledger.troubles, key=lambda key: (not ledger.troubles[key].fixed, ledger.troubles[key].last))
        for key in oldest[:SLACK]:
            del ledger.troubles[key]


def _edits_since(ledger: Ledger, seq: int) -> list[tuple[int, str]]:
    """The newest change of each file since entry `seq`."""
    newest = {path: at for at, path in ledger.edits if at > seq}
    return sorted((at, path) for path, at in newest.items())


def _tests(ledger: Ledger, seq: int, line: str, text: str) -> Counts | None:
    found = read_tests(line, text)
    if found is None:
        return None
    for name, passed in found.verdicts.items():
        _verdict(ledger, seq, line, name, passed=passed)
    if found.counts is not None and found.counts.clean:
        # The same command failed in these tests before and now counts no failure: they pass.
        for name, old in ledger.tests.items():
            if not old.passed and old.line == line and name not in found.verdicts:
                ledger.tests[name] = TestVerdict(True, seq, line, old.failed)
    if len(ledger.tests) > TESTS_MAX + SLACK:
        oldest = sorted(ledger.tests, key=lambda name: (not ledger.tests[name].passed, ledger.tests[name].seq))
        for name in oldest[: len(oldest) - TESTS_MAX]:
            del ledger.tests[name]
    return found.counts


def _verdict(ledger: Ledger, seq: int, line: str, name: str, *, passed: bool) -> None:
    old = ledger.tests.get(name)
    if passed:
        failed = old.failed if old is not None else 0
    else:
        failed = old.failed if old is not None and not old.passed else seq
    ledger.tests[name] = TestVerdict(passed, seq, line, failed)


# --- tasks, subagents, and the rest ------------------------------------------------------------------------------


def _task(ledger: Ledger, seq: int, event: TaskStarted) -> None:
    ledger.running[event.task] = BackgroundWork(seq, "task", clip(event.command, 160), call=event.call)


def _child(ledger: Ledger, seq: int, event: ChildStarted) -> None:
    ledger.running[event.child] = BackgroundWork(seq, "subagent", event.kind, call=event.call)


def _task_over(ledger: Ledger, seq: int, event: TaskEnded) -> None:
    code = f", exit code {event.code}" if event.code is not None else ""
    _over(ledger, seq, event.task, f"{event.state}{code}{', ' + event.cause if event.cause else ''}")
    _background_over(ledger, seq, event.task, event.state, event.tail, event.code)


def _child_over(ledger: Ledger, seq: int, event: ChildEnded) -> None:
    report = f": {clip(event.report, 200)}" if event.report else ""
    _over(ledger, seq, event.child, f"{event.status}{report}")
    _background_over(ledger, seq, event.child, event.status, event.message)


def _over(ledger: Ledger, seq: int, key: str, status: str) -> None:
    was = ledger.running.pop(key, None)
    if was is not None:
        ledger.over.append(msgspec.structs.replace(was, ended=seq, status=status))
        _cut(ledger.over, ENDED_MAX)


def _background_over(ledger: Ledger, seq: int, key: str, state: str, text: str, code: int | None = None) -> None:
    """What a call left running in the background has ended: only now is it known how the call went."""
    waiting = ((line, ran) for line, ran in ledger.ran.items() if key in ran.background and not ran.ended)
    line, ran = next(waiting, ("", None))
    if ran is None:
        return
    running = any(other in ledger.running for other in ran.background)
    failed = state != "done" or ran.status != "running"
    status = state if state != "done" else ran.status if failed or running else state
    counts = _tests(ledger, seq, ran.argument, text) if ran.name == "Bash" else None
    ended = 0 if running else seq
    ledger.ran[line] = msgspec.structs.replace(ran, status=status, code=code, tests=counts, ended=ended)
    if state != "done" or (counts is not None and counts.failed > 0):
        _trouble(ledger, seq, line, gist(text) or state)
    elif not (running or failed):
        _trouble(ledger, seq, line, None)


def _proof(name: str) -> Callable[[Ledger, int, Any], None]:
    def write(ledger: Ledger, seq: int, _event: Any) -> None:
        ledger.proofs[name] = seq

    return write


def _opened(ledger: Ledger, seq: int, event: Opened) -> None:
    ledger.proofs["cwd"] = seq
    if seq > 1:  # a forked subagent: what ran beside its parent is the parent's
        ledger.running = {}
    if event.pins:
        ledger.proofs["pins"] = seq


def _reminded(ledger: Ledger, seq: int, event: Reminded) -> None:
    if event.kind == "nested_memory":
        ledger.told[event.state] = seq


def _summarized(ledger: Ledger, seq: int, _event: Summarized) -> None:
    ledger.summaries = [*ledger.summaries[-9:], seq]


_WRITERS: dict[type, Callable[[Ledger, int, Any], None]] = {
    UserSpoke: _said,
    PermissionAsked: _question,
    PermissionAnswered: _answer,
    FileSeen: _seen,
    FileChanged: _changed,
    ToolStarted: _started,
    TaskStarted: _task,
    TaskEnded: _task_over,
    ChildStarted: _child,
    ChildEnded: _child_over,
    TodoSet: _proof("todo"),
    ModeSet: _proof("mode"),
    CwdSet: _proof("cwd"),
    PinsSet: _proof("pins"),
    Opened: _opened,
    Reminded: _reminded,
    Summarized: _summarized,
}
