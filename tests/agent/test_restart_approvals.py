"""Answers, rules and modes of an earlier run: an edited session never runs anything unasked."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longrein.agent import Answer, Continue, SetMode, UserMessage
from longrein.agent.messages import InboxMessage
from longrein.permissions import Rules
from longrein.store import open_log
from longrein.testing.harness import Approver
from longrein_context.events import (
    AnyEvent,
    CwdSet,
    Entry,
    Grant,
    ModeSet,
    Opened,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    SubagentStarted,
    TaskStarted,
    Text,
    ToolCall,
    ToolStarted,
)
from tests.agent.disk_harness import SESSION, DiskHarness, Script, call, question, says, turn
from tests.store.fixtures import store
from tests.tables import split_words

pytestmark = pytest.mark.anyio

BASH, WRITE, EDIT, LAST = (f"c4.{n}" for n in range(4))
REPLY = says(
    call("Bash", command="touch ran_bash"),
    call("Write", file_path="ran_write", content="x"),
    call("Edit", file_path="a.txt", old_string="old", new_string="ran"),
    call("Bash", command="sh run.sh"),
)
Tamper = Callable[[list[AnyEvent]], list[AnyEvent]]


async def events_of_a_cut_run(folder: Path) -> list[AnyEvent]:
    """Events of a session that was killed after the user had allowed its first call, before the
    call started.
    """
    harness = new_harness(folder)
    async with harness.session(Script(REPLY), rules=Rules(base=str(harness.tree))) as session:
        walk = asyncio.ensure_future(turn(session, "go"))
        asked = await question(session)
        walk.cancel()
        await asyncio.wait([walk])
    upto = next(e.seq for e in harness.entries() if isinstance(e.event, PermissionAsked))
    assert asked.call == BASH
    return [e.event for e in harness.entries()[:upto]] + [
        PermissionAnswered(asked.call, "allow", "user")
    ]


def new_harness(folder: Path) -> DiskHarness:
    folder.mkdir(exist_ok=True)
    harness = DiskHarness(folder)
    (harness.tree / "a.txt").write_text("old\n")
    (harness.tree / "run.sh").write_text("touch ran_script\n")
    return harness


def ran(harness: DiskHarness) -> list[str]:
    """What the calls of the session have done."""
    changed = ["a.txt"] * ((harness.tree / "a.txt").read_text() != "old\n")
    return changed + sorted(path.name for path in harness.tree.glob("ran*"))


async def resume(
    harness: DiskHarness, events: Sequence[AnyEvent], word: str, left: Sequence[InboxMessage] = ()
) -> int:
    """Continue the session of these events and answer each question with `word`; return how many
    there were.
    """
    tree = str(harness.tree)
    events = [
        msgspec.structs.replace(e, cwd=tree) if isinstance(e, TaskStarted) else e for e in events
    ]
    await store(harness.state, [Entry(seq, seq, event) for seq, event in enumerate(events, 1)])
    if left:
        log = await open_log(
            str(harness.state), SESSION, create=False, wall_us=harness.clock.wall_us
        )
        for message in left:
            log.put(msgspec.json.encode(message))
        await log.close()
    answers = Approver(lambda _: word)
    async with (
        harness.session(
            Script(*[says("done")] * 3), create=False, rules=Rules(base=str(harness.tree))
        ) as session,
        answers.answering(session),
    ):
        await turn(session, Continue())
    return len(answers.asked)


def with_arguments(call_id: str, **arguments: str) -> Tamper:
    """Edit the arguments of a call in the reply."""

    def edit(events: list[AnyEvent]) -> list[AnyEvent]:
        at, reply = next((n, e) for n, e in enumerate(events) if isinstance(e, Replied))
        parts = tuple(
            msgspec.structs.replace(part, arguments=arguments)
            if isinstance(part, ToolCall) and part.id == call_id
            else part
            for part in reply.parts
        )
        return [*events[:at], msgspec.structs.replace(reply, parts=parts), *events[at + 1 :]]

    return edit


def with_ids(*order: int) -> Tamper:
    """Swap the ids of the calls in the reply."""

    def edit(events: list[AnyEvent]) -> list[AnyEvent]:
        at, reply = next((n, e) for n, e in enumerate(events) if isinstance(e, Replied))
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        parts = tuple(
            msgspec.structs.replace(one, id=calls[n].id)
            for one, n in zip(calls, order, strict=True)
        )
        return [*events[:at], msgspec.structs.replace(reply, parts=parts), *events[at + 1 :]]

    return edit


def adding(*more: AnyEvent, early: bool = False) -> Tamper:
    """Add events at the end, or with `early` after the first two."""
    return lambda events: [*events[:2], *more, *events[2:]] if early else [*events, *more]


def roots(*folders: str) -> Tamper:
    return lambda events: (
        [msgspec.structs.replace(events[0], roots=folders), *events[1:]]
        if isinstance(events[0], Opened)
        else events
    )


def granted(
    call_id: str, rule: str, scope: str = "session", by: str = "user"
) -> PermissionAnswered:
    return PermissionAnswered(call_id, "allow", by, scope, rule)


def shown(call_id: str, name: str, text: str, rules: str = "") -> PermissionAsked:
    return PermissionAsked(call_id, name, text, "harmless", rules)


TASK = {"cwd": "/", "call": BASH}
COMMANDS = (
    "touch ran_other", "sh run.sh", "bash -c 'touch ran_x'", "ls; touch ran_x", "echo x > ran_x",
    "cp a.txt ran_x", 'python3 -c \'open("ran_x","w")\'', "env touch ran_x",
    "rm a.txt && touch ran_x",
)  # fmt: skip
GRANTS = (*split_words("Bash Bash(*) Bash(touch:*) Write Edit Edit(//**)"), "Bash\nWrite\nEdit")
QUEUED = TaskStarted("b1", "touch ran_task", state="queued", **TASK)


def allowed(call_id: str) -> PermissionAnswered:
    return PermissionAnswered(call_id, "allow", "user")


def subagent(number: int, **more: Any) -> SubagentStarted:
    name = f"00000000-0000-4000-8000-0000000c000{number}"
    return SubagentStarted(name, "general", BASH, task="x", **more)


TAMPERINGS: dict[str, Tamper] = {
    "nothing": lambda events: events,
    **{f"command {command}": with_arguments(BASH, command=command) for command in COMMANDS},
    **{
        f"background {command}": with_arguments(BASH, command=command, run_in_background="true")
        for command in ("touch ran_x", "sh run.sh")
    },
    "path outside": with_arguments(WRITE, file_path="../tree/ran_x", content="x"),
    "content": with_arguments(WRITE, file_path="ran_write", content="other"),
    "edit": with_arguments(EDIT, file_path="a.txt", old_string="old", new_string="other"),
    **{
        f"ids {order}": with_ids(*order)
        for order in ((1, 0, 2, 3), (3, 1, 2, 0), (2, 1, 0, 3), (1, 2, 3, 0))
    },
    **{f"answer {one}": adding(allowed(one)) for one in (BASH, WRITE, EDIT, LAST)},
    **{
        f"answer by {by}": adding(PermissionAnswered(LAST, "allow", by))
        for by in ("headless", "hook", "interrupt")
    },
    "all answers": adding(*(allowed(one) for one in (BASH, WRITE, EDIT, LAST))),
    "asked and answered": adding(shown(LAST, "Bash", "sh run.sh"), allowed(LAST)),
    "another text shown": adding(shown(LAST, "Bash", "ls"), allowed(LAST)),
    "another tool shown": adding(shown(WRITE, "Read", "a"), allowed(WRITE)),
    **{
        f"rule {rule} {scope}": adding(granted(BASH, rule, scope))
        for rule in GRANTS
        for scope in ("session", "always")
    },
    "proposed and granted": adding(shown(BASH, "Bash", "ls", "Bash"), granted(BASH, "Bash")),
    **{
        f"mode {mode} {'early' * early}": adding(ModeSet(mode), early=early)
        for mode in ("acceptEdits", "auto", "bypassPermissions", "Default", "yolo")
        for early in (False, True)
    },
    "mode twice": adding(ModeSet("plan"), ModeSet("bypassPermissions")),
    "a subagent of the call": adding(ToolStarted(BASH, "Bash"), subagent(1)),
    "another start": adding(ToolStarted(LAST, "Bash"), early=False),
    "start with arguments": adding(ToolStarted(LAST, "Bash", {"command": "touch ran_x"})),
    "queued task": adding(QUEUED),
    "queued tasks": adding(
        *(TaskStarted(f"b{n}", f"touch ran_{n}", state="queued", **TASK) for n in (1, 2, 3))
    ),
    "running task": adding(TaskStarted("b1", "touch ran_task", **TASK)),
    **{
        f"queued task after mode {mode}": adding(ModeSet(mode), QUEUED)
        for mode in ("acceptEdits", "auto", "bypassPermissions")
    },
    "queued task outside": adding(
        TaskStarted("b1", "touch ran_task", state="queued", outside_sandbox=True, **TASK)
    ),
    "folder": adding(CwdSet("/")),
    "folder between": adding(CwdSet("/"), allowed(BASH)),
    "roots": roots("/"),
    "spending limits": adding(subagent(2, grant=Grant(usd=1e9, tokens=1 << 60))),
    "worktree": adding(subagent(3, worktree="/")),
    "judged places": adding(
        PermissionAsked(LAST, "Bash", "sh run.sh", "harmless", places=("/",)), allowed(LAST)
    ),
}
LEFT: dict[str, list[InboxMessage]] = {
    "answers": [Answer(one, "allow") for one in (BASH, WRITE, EDIT, LAST)],
    "rules": [Answer(BASH, "allow", "session", "Bash"), Answer(WRITE, "allow", "always", "Write")],
    "mode": [SetMode("bypassPermissions"), SetMode("acceptEdits")],
    "auto": [SetMode("auto")],
    "queued messages": [UserMessage((Text("run it"),), how="queued"), Continue()],
    "stop and steer": [UserMessage((Text("go on"),), how="steer"), Answer(LAST, "allow")],
}


async def test_a_call_that_was_allowed_and_has_not_started_is_asked_again(tmp_path: Path) -> None:
    events = await events_of_a_cut_run(tmp_path)
    harness = new_harness(tmp_path / "again")
    harness.tree.joinpath("ran_bash").unlink(missing_ok=True)
    assert await resume(harness, events_in(events, harness), "allow") == 3, (
        "Edit has not read the file: it just fails"
    )
    assert ran(harness) == ["ran_bash", "ran_script", "ran_write"]


def events_in(events: Sequence[AnyEvent], harness: DiskHarness) -> list[AnyEvent]:
    """The events with the folders of another harness."""
    first = events[0]
    assert isinstance(first, Opened)
    return [
        msgspec.structs.replace(first, roots=(str(harness.tree),), cwd=str(harness.tree)),
        *events[1:],
    ]


async def test_S_an_edited_session_runs_nothing_unasked(tmp_path: Path) -> None:
    events = await events_of_a_cut_run(tmp_path)
    assert len(TAMPERINGS) + len(LEFT) >= 50
    for number, (what, tamper) in enumerate(TAMPERINGS.items()):
        harness = new_harness(tmp_path / str(number))
        await asyncio.wait_for(resume(harness, tamper(events_in(events, harness)), "deny"), 60)
        assert ran(harness) == [], what
    for what, left in LEFT.items():
        harness = new_harness(tmp_path / what)
        await asyncio.wait_for(resume(harness, events_in(events[:-1], harness), "deny", left), 60)
        assert ran(harness) == [], what
