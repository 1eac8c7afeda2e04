"""Law 4, P11, S070: a secret does not enter the log, as text or in a blob; files that hold one
are not harmed.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent import Answer, Compact, Pin, Rewind, SessionUpdate, UserMessage
from longrein.agent import redaction as blobs
from longrein.agent.redaction import NAMES, redacted
from longrein.models import CallDelta, Failure, Reply, TextDelta
from longrein.testing.store import MemoryBlob
from longrein_context.events import (
    AnyEvent,
    FileSeen,
    Replied,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolResult,
    ToolTraits,
    Usage,
    redactor,
)
from longrein_context.events.redact_stream import StreamRedactor
from tests.agent.disk_harness import DiskHarness, Script, call, results, says, turn
from tests.tables import cases
from tests.workspace.test_spooling import KNOWN, REDACT, cut, streams

pytestmark = pytest.mark.anyio
SECRET = "canary-7f3a9c-do-not-store"


def on_disk(harness: DiskHarness) -> bool:
    return any(SECRET.encode() in p.read_bytes() for p in harness.state.rglob("*") if p.is_file())


def guard() -> dict[str, object]:
    return {"redact": redactor((SECRET,), "n0nce"), "secrets": (SECRET,)}


@cases(
    "command",
    f"echo {SECRET}",
    f"printf '{SECRET[:9]}'; sleep 0.05; echo '{SECRET[9:]}'",
    f"seq 1 40000; echo {SECRET}; seq 1 40000",
)
async def test_a_command_that_prints_it(tmp_path: Path, command: str) -> None:
    harness = DiskHarness(tmp_path)
    (harness.tree / "run.sh").write_text(command)
    model = Script(says(call("Bash", command="sh run.sh")), says("done"))
    await harness.play(model, "run", **guard())
    assert not on_disk(harness)
    assert SECRET not in results(model.requests[1])[0]


@pytest.mark.parametrize(("escape", "kept"), [("[31m", True), ("]0;title\\007", False)])
async def test_escapes_do_not_carry_it_into_the_log(
    tmp_path: Path, escape: str, kept: bool
) -> None:
    harness = DiskHarness(tmp_path)
    (harness.tree / "run.sh").write_text(f"printf '{SECRET[:9]}\\033{escape}{SECRET[9:]}\\n'")
    model = Script(says(call("Bash", command="sh run.sh")), says("done"))
    await harness.play(model, "run", **guard())
    assert [e.raw != "" for e in harness.of(ToolEnded)] == [kept]
    assert not any(
        SECRET[9:].encode() in p.read_bytes() for p in harness.state.rglob("*") if p.is_file()
    )


SPOKEN: dict[str, list[Any]] = {
    "a command": [says(call("Bash", command=f"echo {SECRET} > made")), says("done")],
    "a command in pieces of JSON": [
        says(call("Bash", command=f"cat > made <<'E'\n\"{SECRET}\"\nE")),
        says("done"),
    ],
    "a file": [says(call("Write", file_path="made", content=f"KEY={SECRET}\n")), says("done")],
    "an edit": [
        says(call("Write", file_path="made", content="KEY=\n")),
        says(call("Edit", file_path="made", old_string="KEY=", new_string=f"KEY={SECRET}")),
        says("done"),
    ],
    "a call by CallTool": [
        says(call("CallTool", name="Write", args={"file_path": "made", "content": SECRET})),
        says("done"),
    ],
    "arguments that do not fit": [says(call("Bash", **{SECRET: [{"x": SECRET}]})), says("done")],
    "arguments that are no object": [
        says(ToolCall("", "Bash", None, f'{{"command": "{SECRET}')),
        says("done"),
    ],
    "words": [says(f"the key is {SECRET}")],
    "thinking": [Reply((Thinking(f"the key is {SECRET}"), Text("done")), "end", Usage())],
    "an error of the provider": [
        Failure("auth", f"401: Incorrect API key provided: {SECRET}", 401)
    ],
    "an error that is tried again": [Failure("overloaded", f"529 for {SECRET}", 529), says("done")],
}


@pytest.mark.parametrize("name", SPOKEN)
async def test_what_the_model_says_and_does_with_it(tmp_path: Path, name: str) -> None:
    """The act is done with the very bytes; what is stored, shown and sent again holds a marker."""
    harness, model = DiskHarness(tmp_path), Script(*SPOKEN[name])
    shown: list[SessionUpdate] = []
    async with harness.session(model, **guard()) as session:
        await turn(session, "go")
        session.notice(f"could not send {SECRET}")
        assert not on_disk(harness), "while it is open"

        async def listen() -> None:
            async for heard in session.follow(0):
                shown.append(heard)

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0)
        session.notice(f"could not send {SECRET}")
    await listening
    assert not on_disk(harness)
    assert SECRET not in repr(shown)
    assert SECRET not in repr(model.requests[1:])
    made = harness.tree / "made"
    assert not made.exists() or SECRET in made.read_text()
    assert made.exists() == (
        name
        in ("a command", "a command in pieces of JSON", "a file", "an edit", "a call by CallTool")
    )


async def test_words_that_wait_when_longrein_is_killed(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path)
    async with harness.session(Script(), **guard()) as session:
        for word in (
            UserMessage((Text(SECRET),)),
            Pin(SECRET),
            Compact(SECRET),
            Answer("c1.0", "deny", message=SECRET),
        ):
            await session.tell(word)
        assert not on_disk(harness)
        assert [pending.text for pending in session.pending] == [SECRET], (
            "who takes it back for editing has it whole"
        )
    async with harness.session(
        Script(says("done"), says("done")), create=False, **guard()
    ) as session:
        await session.run(once=True)
    assert not on_disk(harness)


def filled(kind: Any) -> Any:
    """A value of `kind` with the secret in every text."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{field.name: filled(field.type) for field in msgspec.structs.fields(kind)})
    if origin is tuple:
        choices = get_args(arguments[0]) or (arguments[0],)
        # which holds parts itself
        return tuple(filled(one) for one in choices if one is not ToolResult)
    if origin is dict:
        return {SECRET: [SECRET, {"x": SECRET}]}
    if origin in (UnionType, Union):
        return filled(arguments[0])
    return SECRET if kind is str else 0 if kind in (int, float) else False


def holding(value: Any, name: str = "") -> set[str]:
    """Fields in which the secret stands."""
    if isinstance(value, msgspec.Struct):
        here = {f"{type(value).__name__}.{f}": getattr(value, f) for f in value.__struct_fields__}
        return set().union(*(holding(one, field) for field, one in here.items()))
    if isinstance(value, tuple | list):
        return set().union(*(holding(one, name) for one in value))
    return {name} if SECRET in repr(value) else set()


@pytest.mark.parametrize("kind", get_args(AnyEvent), ids=lambda kind: kind.__name__)
def test_every_text_of_every_event_is_clean(kind: Any) -> None:
    event = filled(kind)
    texts = {
        f
        for f in holding(event)
        if not {f, f.partition(".")[2]} & NAMES and not f.startswith(("ToolSpec.", "ToolTraits."))
    }
    clean = redacted(event, redactor((SECRET,), "n0nce"))
    assert holding(clean) & texts == set()
    assert redacted(clean, redactor((SECRET,), "n0nce")) is clean, (
        "so that a resumed session stores the same bytes"
    )


@pytest.mark.parametrize("depth", [10, 400, 700, 3_000])
def test_arguments_that_are_nested_deep_are_clean_and_raise_nothing(depth: int) -> None:
    """How deep is too deep differs between versions of Python; what no JSON could hold is stored
    as it was received.
    """
    for leaf in ("plain", SECRET):
        nested: Any = leaf
        for _ in range(depth):
            nested = [nested]
        said = Replied(3, (ToolCall("c3.0", "Bash", {"x": nested}, f"[{leaf}]"),), "calls")
        [call] = redacted(said, redactor((SECRET,), "n0nce")).parts
        assert isinstance(call, ToolCall)
        assert SECRET not in call.received
        inner = (call.arguments or {}).get("x")
        while isinstance(inner, list):
            inner = inner[0]
        assert inner != SECRET
        assert (
            depth == 3_000
            or "plain" in (inner or "plain", call.received)
            or "secret: " in f"{inner} {call.received}"
        )


def test_what_names_a_thing_stays_as_it_is() -> None:
    """A path or an id that happens to hold a secret could not be found again."""
    left = set().union(
        *(
            holding(redacted(filled(kind), redactor((SECRET,), "n0nce")))
            for kind in get_args(AnyEvent)
        )
    )
    assert {
        "FileSeen.path",
        "Opened.cwd",
        "ToolEnded.call",
        "TaskStarted.task",
        "ModeSet.mode",
    } <= left
    assert {f.partition(".")[2] for f in left} <= {n.rpartition(".")[2] for n in NAMES} | {
        "description",
        "schema",
        *ToolTraits.__struct_fields__,
    }


async def test_a_file_that_holds_it_is_read_but_never_put_back_wrong(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path)
    (harness.tree / ".env").write_text(f"KEY={SECRET}\n")
    model = Script(
        says("hi"),
        says(call("Read", file_path=".env")),
        says(call("Write", file_path=".env", content="KEY=\n")),
        says("done"),
    )
    async with harness.session(model, **guard()) as session:
        for prompt in ("hi", "empty it"):
            await turn(session, prompt)
        to = harness.ends()[0]
        await turn(session, Rewind(to, files=True))
    seen = next(e for e in harness.of(FileSeen))
    assert seen.blob != seen.hash, "the kept content is not the file's own"
    assert not on_disk(harness)
    assert (harness.tree / ".env").read_text() == "KEY=\n", (
        "it was left as it is rather than filled with a marker"
    )


@given(streams, st.lists(st.integers(0, 10_000), max_size=12))
def test_output_before_a_command_became_a_task_is_redacted(data: bytes, places: list[int]) -> None:
    """Some secrets were replaced when it was first kept; the others are when it goes to the
    spool.
    """
    log = SimpleNamespace(new_blob=lambda: MemoryBlob(lambda _: ""))
    writer = blobs.RedactingBlobs(log, REDACT, KNOWN).new_blob()  # type: ignore[arg-type]
    for piece in cut(data, places):
        writer.write(piece)
    spooled = StreamRedactor(REDACT, KNOWN, words=False)
    assert (
        b"".join(map(spooled.take, writer.pieces())) + spooled.rest()
        == REDACT(data.decode()).encode()
    )


@cases("line", b"x " * 40_000, b"x" * 80_000, b"-----BEGIN it never ends\n" + b"y\n" * 40_000)
def test_no_more_of_a_long_line_is_held_back_than_a_secret_may_be_long(line: bytes) -> None:
    kept = MemoryBlob(lambda _: "")
    log = SimpleNamespace(new_blob=lambda: kept)
    writer = blobs.RedactingBlobs(log, REDACT, KNOWN).new_blob()  # type: ignore[arg-type]
    for at in range(0, len(line), 1000):
        writer.write(line[at : at + 1000])
    assert b"".join(writer.pieces()) == line
    assert len(line) - kept.size_bytes <= blobs.LINE_BYTES_MAX


@given(streams, st.lists(st.integers(0, 10_000), max_size=12))
def test_P11_streamed_text_is_redacted_as_its_whole_would_be(
    data: bytes, places: list[int]
) -> None:
    """Also that of a part which a call follows at once."""
    one = blobs.DeltaRedactor(REDACT, KNOWN, words=False)
    deltas: list[Any] = [TextDelta(piece.decode("utf-8", "replace")) for piece in cut(data, places)]
    shown = [d for delta in deltas for d in one.take([delta])]
    shown += one.take([CallDelta(0, "Bash"), *(CallDelta(0, json=d.text) for d in deltas)])
    shown += one.take([Reply((), "end", Usage())])
    whole = REDACT("".join(d.text for d in deltas))
    assert "".join(d.text for d in shown if isinstance(d, TextDelta)) == whole
    assert "".join(d.json for d in shown if isinstance(d, CallDelta)) == whole
    assert [type(d) for d in shown] == sorted(map(type, shown), key=lambda kind: kind is CallDelta)
