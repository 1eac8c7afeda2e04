"""Data of the inspector's page: the JSON between `inspection.py` and `page/`.

A field that has its default value is left out of the JSON. Times are microseconds UTC, token counts
are the provider's where it named them and calibrated estimates elsewhere, money is US dollars.

The page gets one of four documents: an `Inspection`, a `Comparison` of two, a `FleetInspection`, or
`OpenSessionsData`. An `Inspection` served by `--live` then gets `Update`s as server-sent events.
"""

from typing import Literal

import msgspec

from longrein.frontends.reports.open_sessions import OpenSessionRow

VERSION = 1
"""Version of this format."""
MODULES = (
    *(
        "system",
        "tools",
        "instructions",
        "summary",
        "user",
        "assistant",
        "thinking",
        "calls",
        "results",
        "reminders",
    ),
)
"""Modules of a request, in the order of the stacked bars. `instructions` is the static context."""


class Data(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of the values below."""


class SessionData(Data, frozen=True):
    """The session that is shown."""

    id: str
    title: str
    """The user's title, else the beginning of the first message."""
    model: str
    """`provider/model` of the last prefix."""
    cwd: str
    started_us: int
    ended_us: int
    """Time of the last entry."""
    branch: str = ""
    """Git branch at the start."""
    open: bool = False
    """True if a process has the session open."""
    entries: int = 0


class ModuleTokens(Data, frozen=True):
    """Tokens of one request by module, scaled so that they add up to the provider's count of the
    request.
    """

    system: int = 0
    tools: int = 0
    instructions: int = 0
    summary: int = 0
    user: int = 0
    assistant: int = 0
    thinking: int = 0
    calls: int = 0
    results: int = 0
    reminders: int = 0

    def all(self) -> list[int]:
        """Return the tokens of each module, in the order of `MODULES`."""
        return [getattr(self, name) for name in MODULES]


class Break(Data, frozen=True):
    """Reason and cost of a cache that did not hold what had been sent before."""

    cause: str
    """`cleared`, `summarised`, `prefix`, `rewound` or `restored`: an entry changed what had been
    sent. `expired`: the cache's lifetime was over. `provider`: the provider did not read what it
    had been sent, for no reason known here.
    """
    detail: str = ""
    """Words of the entry, such as `watermark`."""
    seq: int = 0
    """Entry that changed the view; 0 for `expired` and `provider`."""
    price_usd: float = 0.0
    """What sending the missed tokens again cost, above reading them from the cache."""
    tokens_before: int = 0
    """Tokens of the request before."""
    tokens_after: int = 0
    """Tokens of this request."""


class RequestData(Data, frozen=True):
    """A request of the main agent to the model."""

    n: int
    """Number of the request, from 1. Stages of items name it."""
    seq: int
    """Entry of the request (`Asked`)."""
    at_us: int
    tokens: ModuleTokens
    duration_us: int = 0
    """Time to the end of the reply; 0 while the request waits for it."""
    first_token_us: int = 0
    """Time to the first token; 0 when unknown. The log does not keep it."""
    input: int = 0
    """Input tokens that were neither read from nor written to the cache."""
    cache_read: int = 0
    cache_write: int = 0
    missed: int = 0
    """Tokens of `input` and `cache_write` that had been sent before and could have been read
    from the cache.
    """
    output: int = 0
    reasoning: int = 0
    """Tokens of `output` that are reasoning."""
    usd: float = 0.0
    total_usd: float = 0.0
    """Money spent by the main agent up to this request, this request included."""
    purpose: str = "turn"
    """`turn`, or `summary` for a request that asks for a summary."""
    status: str = "ok"
    """`ok`, `waiting`, or the kind of the failure, such as `overload`."""
    message: str = ""
    """The provider's words on a failure."""
    stop: str = ""
    """Why the reply ended: `end`, `calls`, `length`, `refusal` or `interrupted`."""
    estimated: bool = False
    """True if the provider named no credible counts."""
    break_: Break | None = msgspec.field(default=None, name="break")


class MoneyRow(Data, frozen=True):
    """Use of one model for one purpose."""

    model: str
    """'' for subagents and hooks, which may use several."""
    purpose: str
    """`turn`, `summary`, `subagents` or `hooks`."""
    requests: int
    input: int
    """All input tokens, those from the cache included."""
    cache_read: int
    output: int
    usd: float


class Span(Data, frozen=True):
    """An interval of a lane."""

    kind: Literal["model", "tool", "wait", "run"]
    """`model`: a request. `tool`: a call. `wait`: for the user. `run`: a background task."""
    start_us: int
    end_us: int
    """Equal to `Inspection.session.ended_us` while it lasts."""
    seq: int
    """Entry in the transcript of the lane's agent, for a click."""
    label: str = ""
    """Tool, command or purpose."""
    status: str = "ok"
    """`ok`, `open` while it lasts, or how it ended: `failed`, `denied`, `interrupted`, `killed`,
    a failure's kind …
    """


class Lane(Data, frozen=True):
    """A row of the time view. Spans of kind `tool` may overlap: calls run side by side."""

    id: str
    """`main`, `a398` for a subagent, `b3` or `a398.b3` for a background task."""
    kind: Literal["main", "subagent", "task"]
    label: str
    spans: list[Span]
    parent: str = ""
    """Lane that started it."""
    agent: str = ""
    """Agent whose transcript the `seq` of the spans refer to: '' for the main agent."""
    status: str = ""
    """`open`, or how a subagent or task ended."""


class Stage(Data, frozen=True):
    """Form of an item, from a request on."""

    request: int
    """First request (`n`) that showed the item so."""
    seq: int
    """Entry that gave it this form."""
    form: Literal[
        "full", "trimmed", "placeholder", "folded", "summarised", "recalled", "restored", "gone"
    ]
    """`folded`: not shown, a line elsewhere stands for it. `summarised`: in the span of a
    summary. `recalled`: the model or the user asked for it again; what is shown stays. `gone`: a
    rewind or a new prefix took it away.
    """
    tokens: int = 0
    """Tokens that it has in this form."""
    text: str = ""
    """Exact text that the model saw; '' for the whole text, which the row of the transcript with
    the item's handle has, and where nothing was shown.
    """
    why: str = ""
    left_out: int = 0
    """Bytes that were cut from the middle of `text`."""


class LineFate(Data, frozen=True):
    """Judgement of the clearing policy on one line of an item."""

    line: str
    stays: bool
    chance: float
    """Probability that it is needed again."""
    why: str


class ItemData(Data, frozen=True):
    """An item of the view and its life."""

    handle: str
    kind: str
    """`context`, `user`, `reminder`, `text`, `thinking`, `call`, `result` or `summary`."""
    born_request: int
    """First request that contained it."""
    seq: int
    """Entry that holds its content."""
    tokens: int
    """Tokens of its first form."""
    stages: list[Stage]
    tool: str = ""
    """Of a call or result: the tool."""
    begins: str = ""
    """File and lines of a reading, such as `src/app.py:40–80`; else the first words."""
    shown: bool = False
    """True if the next request would contain it, in any form."""
    usd: float = 0.0
    """Cost of carrying it so far, with ideal cache use."""
    next_goes: bool = False
    """True if the next compaction would take it."""
    lines: list[LineFate] = []
    """Why its lines would stay or go if it were cleared now; for the largest items that are
    shown.
    """


class DiffLine(Data, frozen=True):
    """A line of a diff."""

    sign: Literal["+", "-", " ", "@"]
    """`@`: a heading between hunks."""
    text: str


class TranscriptRow(Data, frozen=True):
    """Something that was said or done. An entry with several parts has several rows."""

    seq: int
    at_us: int
    kind: str
    """`user`, `text`, `thinking`, `call`, `result`, `reminder`, `summary`, `cleared`,
    `restored`, `rewound`, `permission`, `hook`, `task`, `subagent`, `failure`, `prefix`, `turn`,
    `todo`, `setting`, `recall` or `file`.
    """
    author: str
    """`user`, `assistant`, `tool`, `longrein`, `hook` or `subagent`."""
    text: str = ""
    agent: str = ""
    """Whose log: '' for the main agent, `a398` for a subagent. `seq` counts within this log."""
    handle: str = ""
    """Of content that an item has: its handle."""
    title: str = ""
    """One line: the tool and its key argument, the task, the file."""
    diff: list[DiffLine] = []
    """Of an edit: the change."""
    call: str = ""
    """Id of the call, on its `call`, `permission` and `result` rows."""
    result_of: int = 0
    """Of a result: the entry of its call."""
    status: str = ""
    """Of a result: `ok`, `failed`, `denied`, `interrupted` or `not_run`; of others what they
    decided.
    """
    elapsed_ms: int = 0
    bytes: int = 0
    """UTF-8 bytes of the whole text; of a short text left out."""
    left_out: int = 0
    """Bytes that were cut from the middle of `text`."""
    images: int = 0
    """Pictures and documents that are not shown here."""


class SpentData(Data, frozen=True):
    """Money, tokens and other things that a subagent may spend or has spent. In limits 0 means
    no limit.
    """

    usd: float = 0.0
    tokens: int = 0
    requests: int = 0
    subagents: int = 0
    seconds: float = 0.0


class SubagentData(Data, frozen=True):
    """A subagent. The tree is the `parent` of each."""

    id: str
    """Label, `a398` or `a398.a12`: lane and `TranscriptRow.agent`."""
    session: str
    kind: str
    description: str
    state: str
    """`running`, `asking`, `queued`, `left`, or how it ended: `done`, `failed`, `limit`,
    `interrupted`.
    """
    started_us: int
    limit: SpentData
    spent: SpentData
    parent: str = ""
    """Label of the subagent that started it; '' for the main agent."""
    seq: int = 0
    """Entry of its start in the parent's log."""
    ended_us: int = 0
    model: str = ""
    task: str = ""
    report: str = ""
    message: str = ""
    """Why it did not finish."""
    worktree: str = ""
    files: list[str] = []


class Touch(Data, frozen=True):
    """Reading or change of a file."""

    seq: int
    kind: Literal["read", "change"]
    by: str
    """`agent`, `subagent`, `command` or `user`, or the label of the subagent or task."""
    at_us: int = 0
    agent: str = ""
    """Log that `seq` counts in."""


class FileData(Data, frozen=True):
    """A file that the session has read or changed."""

    path: str
    reads: int
    changes: int
    by: list[str]
    """All who changed it."""
    touches: list[Touch]


class LeftOut(Data, frozen=True):
    """Counts of what the page leaves out, so that it can say so."""

    bodies: int = 0
    """Texts that were shortened."""
    bytes: int = 0
    above_bytes: int = 0
    """Texts above this size were shortened; 0 for none."""
    subagents: int = 0
    """Subagents whose logs were left out."""
    rows: int = 0
    """Oldest rows of the transcript that were left out, with the items that are no longer shown."""


class Inspection(Data, frozen=True):
    """Everything that the page shows of one session."""

    version: int
    session: SessionData
    window_tokens: int
    usable_tokens: int
    watermarks: list[int]
    """Tokens at which a summary is prepared, and at which the view shrinks."""
    requests: list[RequestData]
    lanes: list[Lane]
    items: list[ItemData]
    transcript: list[TranscriptRow]
    """Of all agents, by time."""
    subagents: list[SubagentData]
    files: list[FileData]
    prices_note: str = ""
    """Note on assumed prices."""
    money: list[MoneyRow] = []
    """What was paid, by model and purpose, the most expensive first."""
    left_out: LeftOut = LeftOut()
    live: str = ""
    """Of a page served by `--live`: the URL path of the server-sent events. '' for a file."""


class Comparison(Data, frozen=True):
    """Two sessions side by side."""

    a: Inspection
    b: Inspection


class FleetTask(Data, frozen=True):
    """A task of a fleet. Its tokens and time are those of its last session."""

    id: str
    outcome: str
    """`done`, `failed`, `running` or `waiting`."""
    cause: str = ""
    """Why it ended, as `longrein fleet` names it."""
    message: str = ""
    usd: float = 0.0
    """Cost of all attempts."""
    seconds: float = 0.0
    input: int = 0
    """All input tokens, those from the cache included."""
    cache_read: int = 0
    output: int = 0
    attempts: int = 0
    reward: float | None = None
    session: str = ""
    breaks: list[str] = []
    """Causes of the breaks of the session's cache."""
    missing: str = ""
    """Why the session cannot be read: `not stored`, as it was deleted or its agent never started,
    or `damaged`.
    """


class FleetInspection(Data, frozen=True):
    """Everything that the page shows of a fleet."""

    version: int
    fleet: str
    started_us: int
    tasks: list[FleetTask]
    spent_usd: float = 0.0
    cap_usd: float | None = None
    live: bool = False
    """True if the server of the page has the page of each session, too."""


class OpenSessionsData(Data, frozen=True):
    """The sessions that are open, those that wait for an answer first; also as an update."""

    open_sessions: list[OpenSessionRow]
    live: str = ""
    """Address of the events; '' in an update."""


class Update(Data, frozen=True):
    """Changes since the page was made; the data of a server-sent event of type `update`.

    `transcript` holds rows to append. Every other list holds whole values that are new or replace
    the one with the same `n`, `id`, `handle` or `path`.
    """

    session: SessionData
    transcript: list[TranscriptRow] = []
    requests: list[RequestData] = []
    lanes: list[Lane] = []
    items: list[ItemData] = []
    subagents: list[SubagentData] = []
    files: list[FileData] = []
    money: list[MoneyRow] = []
    """All rows of the table; [] where none has changed."""
