"""Ledger: records of messages, calls, files, tests, errors and decisions, kept by code from the
log.

Each record holds the entries that prove it. A later fact supersedes an earlier one about the same
subject; claims of a model never enter. Work per entry does not depend on the history. Old records
are dropped beyond the limits; the log keeps everything.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from longrein_context.events import (
    AnyEvent,
    CwdSet,
    FileChanged,
    FileSeen,
    ModeSet,
    Opened,
    PermissionAnswered,
    PermissionAsked,
    PinsSet,
    Reminded,
    SubagentEnded,
    SubagentStarted,
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
from longrein_context.state.command_results import (
    Counts,
    clip,
    code_of,
    first_change,
    gist,
    may_test,
    read_tests,
    told_by_output,
)
from longrein_context.state.wanted_lines import wanted_lines

# --- Records --------------------------------------------------------------------------------------


class LedgerRecord(msgspec.Struct, frozen=True):
    """Base of the records of the ledger."""


class UserWords(LedgerRecord, frozen=True):
    """Message of the user."""

    seq: int
    text: str  # Verbatim; of an old long message both ends with `…` between
    origin: str = "prompt"  # `prompt`, `steer`, `queued` or `command`
    gone: int = 0  # Characters missing from `text`; 0 if it is whole
    media: tuple[str, ...] = ()  # Images and documents of the message: `r12.2 image/png`


class FileUse(LedgerRecord, frozen=True):
    """Reads and changes of a file."""

    hash: str  # Newest known content; '' if the file is gone
    seq: int  # Entry that proves the content
    # Author of the last change: `agent`, `subagent`, `command`, `user`; '' if the file was only
    # read
    by: str = ""
    changed: int = 0  # Entry of the last change
    changes: int = 0
    reads: int = 0
    whole: bool = False  # True if the newest content was shown whole
    lines: tuple[int, int] = (
        0,
        0,
    )  # First line and number of lines of the last partial read; zeros if it was whole
    how: str = ""  # First line of the agent's last change, as in `+ def total(rows):`


class CallRecord(LedgerRecord, frozen=True):
    """Last call of a kind that has ended; earlier equal calls are counted in `times`."""

    seq: int
    name: str
    argument: str
    status: str
    """`ok`, `failed`, `denied`, `interrupted` or `not_run`. Background work: `running`, then the
    state it ended in.
    """
    code: int | None = None  # Exit code of a command that exited by itself
    tests: Counts | None = None  # Counts of a test runner in the output
    times: int = 1  # Number of equal calls
    background: tuple[str, ...] = ()  # Ids of tasks and subagents that continued after the result
    ended: int = 0  # Entry of the last of their ends; 0 while one runs
    told: str = ""  # Last line, or error, of a test, build or lint command without counts


class TestVerdict(LedgerRecord, frozen=True):
    """Last result of a test."""

    passed: bool
    seq: int  # Result that proves it
    line: str  # Command that ran the test
    failed: int = 0  # First result of the last run of failures; 0 if the test never failed


class ErrorRecord(LedgerRecord, frozen=True):
    """Error, and whether it was fixed."""

    seq: int  # First result that failed
    last: int  # Newest result that failed
    line: str  # Command or call
    error: str  # Its most informative line, as printed
    times: int = 1
    fixed: int = 0  # Result of the same call that succeeded; 0 if none did
    between: tuple[tuple[int, str], ...] = ()  # (seq, path) of changes between failure and success


class UserDecision(LedgerRecord, frozen=True):
    """Decision of the user."""

    seqs: tuple[int, ...]  # Entries of the question and the answer
    text: str


class BackgroundWork(LedgerRecord, frozen=True):
    """Background task or subagent."""

    seq: int
    kind: str  # `task` or `subagent`
    text: str  # Command or subagent type
    ended: int = 0
    status: str = ""  # Outcome, with the exit code or the first line of the report
    call: str = ""  # Call that started it


class WantedLines(LedgerRecord, frozen=True):
    """Lines of a read that hold words of the user's open request, those with rare words first."""

    seq: int  # Newest result of the call
    source: str  # First argument of the call, such as the path
    lines: tuple[str, ...]
    times: int  # Times that the call was answered in full since the request


class Ledger(msgspec.Struct):
    """All records. `record_event` and `record_result` write them; other code only reads."""

    words: list[UserWords] = []  # The user's messages in order
    words_chars: int = 0
    wanted: dict[str, WantedLines] = {}  # Arguments of a read -> its lines, newest last
    files: dict[str, FileUse] = {}  # Real path -> use, last used last
    edits: list[tuple[int, str]] = []  # (seq, path) of each change
    ran: dict[str, CallRecord] = {}  # Call line -> record, newest last
    tests: dict[str, TestVerdict] = {}  # Test name -> verdict
    troubles: dict[str, ErrorRecord] = {}  # Call line -> error
    decisions: list[UserDecision] = []
    asked: dict[str, tuple[int, str]] = {}  # Open permission questions: call id -> (seq, question)
    running: dict[str, BackgroundWork] = {}  # Running tasks and subagents by id
    over: list[BackgroundWork] = []  # Ended tasks and subagents
    proofs: dict[str, int] = {}  # `todo`, `mode`, `cwd`, `pins` -> entry that set the present value
    told: dict[str, int] = {}  # Nested instruction file or skill -> last entry that told it
    summaries: list[int] = []  # Entries of the last summaries
    fitted: dict[
        str, dict[str, Any]
    ] = {}  # Call id -> arguments changed by hooks, while the call runs


# --- Writing the ledger ---------------------------------------------------------------------------

WORDS_CHARS_MAX = (
    1_000_000  # Characters kept of the user's messages; long old messages lose their middle first
)
WORD_CHARS_MIN = 600  # Characters kept of such a message
RAN_MAX = 400  # Limit of call records, and of reads of one request
FILES_MAX = 2_000  # Limit of files; files that were only read are dropped first
EDITS_MAX = 400  # Limit of changes, which tell what was edited between an error and its fix
TESTS_MAX = 1_000  # Limit of tests; passing ones are dropped first
TROUBLES_MAX = 100  # Limit of errors; fixed ones are dropped first
DECISIONS_MAX = 200  # Limit of decisions
ENDED_MAX = 50  # Limit of ended tasks and subagents
SLACK = 50  # Excess over a limit before a list is cut, so that cutting is rare

ASKING = frozenset({"ExitPlanMode", "AskUserQuestion"})  # Tools whose result is the user's answer


def record_event(ledger: Ledger, seq: int, event: AnyEvent) -> None:
    """Record one event. `ToolEnded` is recorded by `record_result`; events that prove nothing
    are ignored.
    """
    writer = _WRITERS.get(type(event))
    if writer is not None:
        writer(ledger, seq, event)


def merge_rewound_ledger(then: Ledger, now: Ledger) -> Ledger:
    """Return the ledger after a rewind: the records of `then` with the background work of `now`."""
    then.running, then.over = now.running, now.over
    for line, ran in then.ran.items():
        known = now.ran.get(line)
        if ran.background and known is not None and known.seq == ran.seq:
            then.ran[line] = known
    then.proofs = {
        **then.proofs,
        **{name: now.proofs[name] for name in ("mode", "pins") if name in now.proofs},
    }
    return then


# --- User messages and decisions ------------------------------------------------------------------


def _said(ledger: Ledger, seq: int, event: UserSpoke) -> None:
    text = text_of(event.typed)
    media = [
        f"r{seq}.{n} {m}"
        for n, part in enumerate(event.parts, 1)
        if (m := getattr(part, "media", ""))
    ]
    ledger.words.append(UserWords(seq, text, event.origin, media=tuple(media)))
    ledger.words_chars += len(text)
    if event.origin != "steer":
        ledger.wanted = {}
    if ledger.words_chars > WORDS_CHARS_MAX:
        _thin_words(ledger)


def open_request(words: Sequence[UserWords]) -> int:
    """Return the position of the newest message that is no addition to an earlier one."""
    return next((at for at in range(len(words) - 1, -1, -1) if words[at].origin != "steer"), 0)


def _thin_words(ledger: Ledger) -> None:
    """Cut the middle of old messages until a quarter of the limit is free; the first and the
    last few stay whole.
    """
    for keep in (WORD_CHARS_MIN, WORD_CHARS_MIN // 10):
        for at in range(1, len(ledger.words) - 5):
            if ledger.words_chars <= WORDS_CHARS_MAX * 3 // 4:
                return
            word = ledger.words[at]
            less = len(word.text) - keep
            if less > keep:
                ends = word.text[: keep // 2] + "…" + word.text[-(keep // 2) :]
                ledger.words[at] = UserWords(
                    word.seq, ends, word.origin, word.gone + less, word.media
                )
                ledger.words_chars -= less - 1


def _question(ledger: Ledger, seq: int, event: PermissionAsked) -> None:
    ledger.asked[event.call] = (seq, f"{event.name}: {clip(event.shown, 160)}")


def _answer(ledger: Ledger, seq: int, event: PermissionAnswered) -> None:
    asked, shown = ledger.asked.pop(event.call, (0, event.call))
    if event.by != "user":
        return
    scope = (
        ""
        if event.scope == "once"
        else f", for {'this session' if event.scope == 'session' else 'always'}"
    )
    rule = (
        f" (rule {', '.join(event.rule.splitlines())})"
        if event.rule and event.scope != "once"
        else ""
    )
    words = f"; they said: {clip(event.message, 300)}" if event.message else ""
    verb = "allowed" if event.verdict == "allow" else "denied"
    _decide(ledger, (asked, seq), f"the user {verb} {shown}{scope}{rule}{words}")


def _decide(ledger: Ledger, seqs: tuple[int, ...], text: str) -> None:
    ledger.decisions.append(UserDecision(tuple(seq for seq in seqs if seq), text))
    _cut(ledger.decisions, DECISIONS_MAX)


def _cut(lines: list[Any], most: int) -> None:
    if len(lines) > most + SLACK:
        del lines[:SLACK]


def _drop(records: dict[str, Any], most: int, order: Callable[[Any], Any] = lambda _: 0) -> None:
    """Drop the first records by `order`, by default the oldest, if there are too many."""
    if len(records) > most + SLACK:
        for key in sorted(records, key=lambda key: order(records[key]))[:SLACK]:
            del records[key]


# --- Files ----------------------------------------------------------------------------------------


def _seen(ledger: Ledger, seq: int, event: FileSeen) -> None:
    old = ledger.files.pop(event.path, None) or FileUse("", seq)
    if old.hash != event.hash:
        old = msgspec.structs.replace(old, whole=False, lines=(0, 0))
    whole = event.whole or old.whole
    ledger.files[event.path] = msgspec.structs.replace(
        old, hash=event.hash, seq=seq, reads=old.reads + 1, whole=whole
    )
    _drop(ledger.files, FILES_MAX, _by_change)


def _changed(ledger: Ledger, seq: int, event: FileChanged) -> None:
    old = ledger.files.pop(event.path, None) or FileUse("", seq)
    whole = event.by == "agent"  # the model has not seen changes by others
    use = FileUse(
        event.hash,
        seq,
        event.by,
        seq,
        old.changes + 1,
        old.reads,
        whole,
        old.lines if whole else (0, 0),
    )
    ledger.files[event.path] = use
    ledger.wanted = {
        call: one for call, one in ledger.wanted.items() if not event.path.endswith(one.source)
    }
    ledger.edits.append((seq, event.path))
    _cut(ledger.edits, EDITS_MAX)
    _drop(ledger.files, FILES_MAX, _by_change)


def _by_change(use: FileUse) -> tuple[bool, int]:
    return use.changes > 0, use.seq


# --- Calls, errors and tests ----------------------------------------------------------------------


def _started(ledger: Ledger, seq: int, event: ToolStarted) -> None:  # noqa: ARG001 - every writer is given all three
    if event.arguments is not None:
        ledger.fitted[event.call] = event.arguments


def record_result(
    ledger: Ledger, seq: int, call: ToolCall, event: ToolEnded, *, quiet: bool, reads: bool = False
) -> None:
    """Record an ended call and what its output proves. `quiet`: success leaves no record of the
    call. `reads`: it reads a file.
    """
    arguments = ledger.fitted.pop(event.call, None) or call.arguments or {}
    ledger.asked.pop(event.call, None)
    argument = key_argument(arguments)
    if reads and event.status == "ok":
        _want_lines(ledger, seq, arguments, text_of(event.parts))
    if event.name == "Read" and event.status == "ok":
        _read_range(ledger, arguments)
    if event.status == "ok" and (change := first_change(arguments)):
        _change_told(ledger, argument, change.removeprefix(", "))
    if event.name in ASKING and event.status == "ok":
        _decide(
            ledger,
            (seq,),
            f"asked by {event.name}, the user answered: {clip(text_of(event.parts), 500)}",
        )
    if event.name == "Skill" and event.status == "ok":
        ledger.told[f"skill {argument}"] = seq
    if not quiet or event.status != "ok":
        _ran(ledger, seq, event, argument, quiet=quiet)


def _want_lines(ledger: Ledger, seq: int, arguments: dict[str, Any], text: str) -> None:
    """Record the lines of a read that hold words of the request."""
    request = "\n".join(word.text for word in ledger.words[open_request(ledger.words) :])
    last = ledger.wanted.pop(str(arguments), None)
    ledger.wanted[str(arguments)] = WantedLines(
        seq,
        key_argument(arguments),
        wanted_lines(text, request),
        last.times + 1 if last else 1,
    )
    _drop(ledger.wanted, RAN_MAX)


def _read_range(ledger: Ledger, arguments: dict[str, Any]) -> None:
    """Store the line range that was asked for with the file just read."""
    offset, limit = arguments.get("offset"), arguments.get("limit")
    if ledger.files and (offset or limit):
        path, use = next(reversed(ledger.files.items()))
        lines = (offset if isinstance(offset, int) else 1, limit if isinstance(limit, int) else 0)
        ledger.files[path] = msgspec.structs.replace(use, lines=lines)


def _change_told(ledger: Ledger, argument: str, change: str) -> None:
    """Store what an edit changed with the file that the call has just changed."""
    path = ledger.edits[-1][1] if ledger.edits else ""
    if path in ledger.files and path.rpartition("/")[2] == argument.rpartition("/")[2]:
        ledger.files[path] = msgspec.structs.replace(ledger.files[path], how=change)


def key_argument(arguments: dict[str, Any]) -> str:
    """Return the first text argument on one line; it identifies a call."""
    return next((clip(value, 500) for value in arguments.values() if isinstance(value, str)), "")


def _ran(ledger: Ledger, seq: int, event: ToolEnded, argument: str, *, quiet: bool) -> None:
    line = f"{event.name} {argument}".strip()
    command = event.name == "Bash"
    background = tuple(key for key, run in ledger.running.items() if run.call == event.call)
    status = "running" if background and event.status == "ok" else event.status
    ended_itself = status in ("ok", "failed")
    text = text_of(event.parts) if ended_itself and (command or event.status == "failed") else ""
    code = code_of(text, event.status) if command and ended_itself else None
    counts = _tests(ledger, seq, argument, text) if command and ended_itself else None
    is_told = code == 0 and counts is None and may_test(argument)
    times = ledger.ran.pop(line).times + 1 if line in ledger.ran else 1
    ledger.ran[line] = CallRecord(
        seq,
        event.name,
        argument,
        status,
        code,
        counts,
        times,
        background,
        told=told_by_output(argument, text, status) if is_told else "",
    )
    _drop(ledger.ran, RAN_MAX)
    if ended_itself and not quiet:
        failed = event.status == "failed" or (counts is not None and counts.failed > 0)
        _trouble(ledger, seq, line, gist(text) if failed else None)


def _trouble(ledger: Ledger, seq: int, line: str, error: str | None) -> None:
    """Record a failure (`error`: its informative line) or, with None, a success after failures."""
    old = ledger.troubles.get(line)
    if error is None:
        if old is not None and not old.fixed:
            newest = {path: at for at, path in ledger.edits if at > old.seq}
            between = tuple(sorted((at, path) for path, at in newest.items()))[-8:]
            ledger.troubles[line] = msgspec.structs.replace(old, fixed=seq, between=between)
        return
    ledger.troubles.pop(line, None)
    if old is None or old.fixed:
        ledger.troubles[line] = ErrorRecord(seq, seq, line, error)
    else:
        ledger.troubles[line] = ErrorRecord(old.seq, seq, line, error, old.times + 1)
    _drop(ledger.troubles, TROUBLES_MAX, lambda trouble: (not trouble.fixed, trouble.last))


def _tests(ledger: Ledger, seq: int, line: str, text: str) -> Counts | None:
    found = read_tests(line, text)
    if found is None:
        return None
    for name, passed in found.verdicts.items():
        _verdict(ledger, seq, line, name, passed=passed)
    if found.counts is not None and found.counts.clean:
        # These tests failed under the same command, which now counts no failure: they pass.
        for name, old in ledger.tests.items():
            if not old.passed and old.line == line and name not in found.verdicts:
                ledger.tests[name] = TestVerdict(True, seq, line, old.failed)
    if len(ledger.tests) > TESTS_MAX + SLACK:
        oldest = sorted(
            ledger.tests, key=lambda name: (not ledger.tests[name].passed, ledger.tests[name].seq)
        )
        for name in oldest[: len(oldest) - TESTS_MAX]:
            del ledger.tests[name]
    return found.counts


def _verdict(ledger: Ledger, seq: int, line: str, name: str, *, passed: bool) -> None:
    old = ledger.tests.get(name) or TestVerdict(True, 0, line)
    failed = seq if old.passed and not passed else old.failed
    ledger.tests[name] = TestVerdict(passed, seq, line, failed)


# --- Background work and settings -----------------------------------------------------------------


def _task(ledger: Ledger, seq: int, event: TaskStarted) -> None:
    ledger.running[event.task] = BackgroundWork(
        seq, "task", clip(event.command, 160), call=event.call
    )


def _child(ledger: Ledger, seq: int, event: SubagentStarted) -> None:
    ledger.running[event.child] = BackgroundWork(seq, "subagent", event.kind, call=event.call)


def _task_over(ledger: Ledger, seq: int, event: TaskEnded) -> None:
    code = f", exit code {event.code}" if event.code is not None else ""
    _over(
        ledger, seq, event.task, f"{event.state}{code}{', ' + event.cause if event.cause else ''}"
    )
    _background_over(ledger, seq, event.task, event.state, event.tail, event.code)


def _child_over(ledger: Ledger, seq: int, event: SubagentEnded) -> None:
    report = f": {clip(event.report, 200)}" if event.report else ""
    _over(ledger, seq, event.child, f"{event.status}{report}")
    _background_over(ledger, seq, event.child, event.status, event.message)


def _over(ledger: Ledger, seq: int, key: str, status: str) -> None:
    was = ledger.running.pop(key, None)
    if was is not None:
        ledger.over.append(msgspec.structs.replace(was, ended=seq, status=status))
        _cut(ledger.over, ENDED_MAX)


def _background_over(
    ledger: Ledger, seq: int, key: str, state: str, text: str, code: int | None = None
) -> None:
    """Update the call record whose background work has ended."""
    waiting = (
        (line, ran) for line, ran in ledger.ran.items() if key in ran.background and not ran.ended
    )
    line, ran = next(waiting, ("", None))
    if ran is None:
        return
    running = any(other in ledger.running for other in ran.background)
    failed = state != "done" or ran.status != "running"
    if state != "done":
        status = state
    elif failed or running:
        status = ran.status
    else:
        status = state
    counts = _tests(ledger, seq, ran.argument, text) if ran.name == "Bash" else None
    ended = 0 if running else seq
    ledger.ran[line] = msgspec.structs.replace(
        ran, status=status, code=code, tests=counts, ended=ended
    )
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
    if seq > 1:  # a forked subagent does not own its parent's background work
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
    SubagentStarted: _child,
    SubagentEnded: _child_over,
    TodoSet: _proof("todo"),
    ModeSet: _proof("mode"),
    CwdSet: _proof("cwd"),
    PinsSet: _proof("pins"),
    Opened: _opened,
    Reminded: _reminded,
    Summarized: _summarized,
}
