"""Law 4, P11, S070: a secret does not enter the log, as text or in a blob; files that hold one are not harmed."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent import Rewind, Said, blobs
from longrein.events import FileSeen, Text, ToolEnded, TurnEnded, redactor
from longrein.testing.store import MemoryBlob
from longrein.workspace.supervisor.holding import Holding
from tests.agent.house import House, Script, call, results, says
from tests.workspace.test_spooling import KNOWN, REDACT, cut, streams

pytestmark = pytest.mark.anyio
SECRET = "canary-7f3a9c-do-not-store"


def on_disk(house: House) -> bool:
    return any(SECRET.encode() in p.read_bytes() for p in house.state.rglob("*") if p.is_file())


def guard() -> dict[str, object]:
    return {"redact": redactor((SECRET,), "n0nce"), "secrets": (SECRET,)}


@pytest.mark.parametrize(
    "command",
    [
        f"echo {SECRET}",
        f"printf '{SECRET[:9]}'; sleep 0.05; echo '{SECRET[9:]}'",
        f"seq 1 40000; echo {SECRET}; seq 1 40000",
    ],
)
async def test_a_command_that_prints_it(tmp_path: Path, command: str) -> None:
    house = House(tmp_path)
    (house.tree / "run.sh").write_text(command)
    model = Script(says(call("Bash", command="sh run.sh")), says("done"))
    await house.play(model, "run", **guard())
    assert not on_disk(house)
    assert SECRET not in results(model.requests[1])[0]


async def test_escapes_inside_it_do_not_carry_it_into_the_log(tmp_path: Path) -> None:
    house = House(tmp_path)
    (house.tree / "run.sh").write_text(f"printf '{SECRET[:9]}\\033[31m{SECRET[9:]}\\n'")
    model = Script(says(call("Bash", command="sh run.sh")), says("done"))
    await house.play(model, "run", **guard())
    assert [e.event.raw for e in house.entries() if isinstance(e.event, ToolEnded)] == [""]
    assert not any(SECRET[9:].encode() in p.read_bytes() for p in house.state.rglob("*") if p.is_file())


async def test_the_user_and_the_model_that_say_it(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.play(Script(says(f"you said {SECRET}")), f"my key is {SECRET}", **guard())
    assert not on_disk(house)


async def test_a_file_that_holds_it_is_read_but_never_put_back_wrong(tmp_path: Path) -> None:
    house = House(tmp_path)
    (house.tree / ".env").write_text(f"KEY={SECRET}\n")
    model = Script(
        says("hi"),
        says(call("Read", file_path=".env")),
        says(call("Write", file_path=".env", content="KEY=\n")),
        says("done"),
    )
    async with house.session(model, **guard()) as session:
        for prompt in ("hi", "empty it"):
            session.tell(Said((Text(prompt),)))
            await session.run(once=True)
        to = next(e.seq for e in house.entries() if isinstance(e.event, TurnEnded))
        session.tell(Rewind(to, files=True))
        await session.run(once=True)
    seen = next(e.event for e in house.entries() if isinstance(e.event, FileSeen))
    assert seen.blob != seen.hash, "the kept content is not the file's own"
    assert not on_disk(house)
    assert (house.tree / ".env").read_text() == "KEY=\n", "it was left as it is rather than filled with a marker"


@given(streams, st.lists(st.integers(0, 10_000), max_size=12), st.sampled_from([0, 40, 1 << 20]))
def test_what_a_command_printed_before_it_became_a_task_is_redacted_as_one_text(
    data: bytes, places: list[int], scanned: int
) -> None:
    """Some secrets were replaced when it was first kept; the others are when it goes to the spool."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs, "SHAPES_BYTES_MAX", scanned)
        log = SimpleNamespace(new_blob=lambda: MemoryBlob(lambda _: ""))
        writer = blobs.CleanBlobs(log, REDACT, KNOWN).new_blob()  # type: ignore[arg-type]
    for piece in cut(data, places):
        writer.write(piece)
    spooled = Holding(REDACT, KNOWN, words=False)
    assert b"".join(map(spooled.take, writer.pieces())) + spooled.rest() == REDACT(data.decode()).encode()


@pytest.mark.parametrize("line", [b"x " * 40_000, b"x" * 80_000, b"-----BEGIN it never ends\n" + b"y\n" * 40_000])
def test_no_more_of_a_long_line_is_held_back_than_a_secret_may_be_long(line: bytes) -> None:
    kept = MemoryBlob(lambda _: "")
    log = SimpleNamespace(new_blob=lambda: kept)
    writer = blobs.CleanBlobs(log, REDACT, KNOWN).new_blob()  # type: ignore[arg-type]
    for at in range(0, len(line), 1000):
        writer.write(line[at : at + 1000])
    assert b"".join(writer.pieces()) == line
    assert len(line) - kept.size_bytes <= blobs.LINE_BYTES_MAX
