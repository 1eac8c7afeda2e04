"""A session resumed from its snapshot goes on as one whose log was folded: the same view, the
same request bytes.
"""

import random
import shutil
from pathlib import Path

import pytest

from longrein.agent.open_session import resumed_state
from longrein.store import open_log
from longrein_context import Budget, Price, State, decode_state, encode_state, fold, render
from tests.agent.disk_harness import SESSION, DiskHarness, Script, call, says
from tests.context.random_session import RandomSession, content
from tests.tables import cases

BUDGET = Budget(20_000, 4_000, Price(3, 15, 0.3, 3.75))


def again(state: State) -> State:
    """`state` as a snapshot has it."""
    found = decode_state(encode_state(state))
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_state_from_a_snapshot_is_the_fold_of_its_log_and_goes_on_like_it(seed: int) -> None:
    walk = RandomSession(seed, profile=["default", "seed"][seed % 4 == 3])
    luck = random.Random(seed)
    for _ in range(6):
        walk.run(luck.randrange(1, 25))
        live, resumed = walk.state, again(walk.state)
        assert resumed == live == fold(walk.entries)
        if live.prefix is not None and not live.calls:
            assert content(render(resumed, BUDGET)) == content(render(live, BUDGET))
        walk.state = resumed if luck.random() < 0.5 else live


@cases(
    "what data",
    ("nothing", b""),
    ("no state", b"\x92\x01\x02"),
    ("cut", encode_state(RandomSession(1).run(20).state)[:-200]),
    (
        "another form",
        encode_state(RandomSession(1).run(20).state).replace(b"profile", b"porfile")[1:],
    ),
)
def test_bytes_that_are_no_state_are_none(what: str, data: bytes) -> None:
    assert decode_state(data) is None, what


def test_a_state_that_no_snapshot_can_hold_has_none() -> None:
    assert encode_state(State(at=2**70)) == b""


# --- on a disk ------------------------------------------------------------------------------------

pytestmark = pytest.mark.anyio


async def requests(folder: Path, state: Path) -> list[list[bytes]]:
    """What the model is sent by a session that is resumed from `state` and goes on."""
    harness = DiskHarness(folder)
    harness.state = state
    (harness.tree / "acts").write_text("one\n")
    model = Script(says(call("Bash", command="cat acts")), says("it says one"))
    await harness.play(model, "and now?", create=False)
    return [content(request) for request in model.requests]


@pytest.mark.parametrize("newer", [False, True])
async def test_with_and_without_snapshot_same_bytes_are_sent(tmp_path: Path, newer: bool) -> None:
    harness = DiskHarness(tmp_path)
    reads = [says("again", call("Bash", command=f"echo {n}; seq 300")) for n in range(6)]
    todos = [[{"content": f"part {n}", "status": "pending"}] for n in range(100)]
    plans = [says(call("TodoWrite", todos=one)) for one in todos]
    await harness.play(Script(*reads, *plans, says("done")), "do it")
    kept = harness.state / "sessions" / SESSION / "state.snapshot"
    assert kept.exists()
    if newer:  # entries came after it, as after a kill
        shutil.copy(kept, tmp_path / "older")
        await harness.play(
            Script(says(call("Bash", command="seq 9")), says("so")), "more", create=False
        )
        shutil.copy(tmp_path / "older", kept)
    log = await open_log(str(harness.state), SESSION, create=False, wall_us=harness.clock.wall_us)
    assert log.snapshot is not None
    assert (log.snapshot.seq < len(log.entries)) == newer
    assert resumed_state(log) == fold(log.entries)
    await log.close()
    shutil.copytree(harness.state, tmp_path / "with")
    shutil.copytree(tmp_path / "with", tmp_path / "without")
    (tmp_path / "without" / "sessions" / SESSION / "state.snapshot").unlink()
    sent = await requests(tmp_path, tmp_path / "with")
    assert len(sent) == 2
    assert sent == await requests(tmp_path, tmp_path / "without")


async def test_a_short_session_leaves_no_snapshot(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path)
    await harness.play(Script(says("done")), "do it")
    assert not (harness.state / "sessions" / SESSION / "state.snapshot").exists()
