"""The lines of the ledger: what was said, done and decided, each with the entries that prove it."""

from typing import Any

import msgspec

from longrein.context.summary.verdicts import Counts


class Record(msgspec.Struct, frozen=True):
    """A line of the ledger."""


class Word(Record, frozen=True):
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


class Ran(Record, frozen=True):
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


class Verdict(Record, frozen=True):
    """How one test stands."""

    passed: bool
    seq: int
    """Result that says so."""
    line: str
    """Command it ran in."""
    failed: int = 0
    """First result of the last row of failures; 0 when it never failed."""


class Trouble(Record, frozen=True):
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


class Decision(Record, frozen=True):
    """What the user decided."""

    seqs: tuple[int, ...]
    """The question and the answer."""
    text: str


class Running(Record, frozen=True):
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

    words: list[Word] = []
    """Everything the user said, in order."""
    words_chars: int = 0
    files: dict[str, FileUse] = {}
    """By real path; the last one used stands last."""
    edits: list[tuple[int, str]] = []
    """(seq, path) of each change."""
    ran: dict[str, Ran] = {}
    """By call line; the last one made stands last."""
    tests: dict[str, Verdict] = {}
    """By name."""
    troubles: dict[str, Trouble] = {}
    """By call line."""
    decisions: list[Decision] = []
    asked: dict[str, tuple[int, str]] = {}
    """Questions that wait: call -> (seq, what is asked)."""
    running: dict[str, Running] = {}
    """Tasks and subagents by id."""
    over: list[Running] = []
    """Those that ended."""
    proofs: dict[str, int] = {}
    """`todo`, `mode`, `cwd`, `pins` -> entry that set the present value."""
    told: dict[str, int] = {}
    """Nested instruction files and skills -> entry that told them last."""
    summaries: list[int] = []
    """The last summaries."""
    fitted: dict[str, dict[str, Any]] = {}
    """Arguments of running calls that hooks changed."""
