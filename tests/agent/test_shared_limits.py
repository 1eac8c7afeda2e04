"""The fair semaphore: its limit, no starvation, nothing held after a cancellation."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from longrein.agent.concurrency_limits import FairSemaphore
from longrein.testing.clock import VirtualClock, run_virtual

VISITS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(1, 5), st.booleans()),
    min_size=1,
    max_size=25,
)


@given(st.integers(1, 4), VISITS)
def test_E17_never_too_many_and_everybody_has_a_turn(
    most: int, visits: list[tuple[str, int, int, bool]]
) -> None:
    """Each visit: owner, when it comes, how long it stays, whether it is cancelled a second
    after it came.
    """
    gate, clock = FairSemaphore(most), VirtualClock()
    inside = done = 0

    async def visit(owner: str, at: int, stay: int) -> None:
        nonlocal inside, done
        await asyncio.sleep(at)
        await gate.enter(owner)
        inside += 1
        assert inside <= most
        try:
            await asyncio.sleep(stay)
            done += 1
        finally:
            inside -= 1
            gate.leave()

    async def main() -> None:
        walks = []
        for owner, at, stay, cancelled in visits:
            walk = asyncio.ensure_future(visit(owner, at, stay))
            walks.append(walk)
            if cancelled:
                asyncio.get_running_loop().call_later(at + 1, walk.cancel)
        await asyncio.wait(walks)
        for walk in walks:
            assert walk.cancelled() or walk.exception() is None

    run_virtual(main(), clock=clock)
    assert done >= sum(not cancelled for *_, cancelled in visits)
    assert (gate.inside, gate.waiting) == (0, 0)


def test_E17_one_with_many_does_not_starve_one_with_few() -> None:
    gate, order = FairSemaphore(1), list[str]()

    async def visit(owner: str) -> None:
        await gate.enter(owner)
        await asyncio.sleep(1)
        order.append(owner)
        gate.leave()

    async def main() -> None:
        visits = [asyncio.ensure_future(visit(owner)) for owner in "aaaaabb"]
        await asyncio.sleep(0)
        assert not gate.try_enter(), "nobody goes before those who wait"
        visits[1].cancel()  # the owner keeps its turn
        await asyncio.wait(visits)
        assert gate.try_enter()

    run_virtual(main(), clock=VirtualClock())
    assert "".join(order) == "aababa"


@given(st.booleans(), st.booleans())
def test_who_is_cancelled_when_let_in_holds_nothing(waits: bool, halted: bool) -> None:
    gate, halt = FairSemaphore(1), asyncio.Event()

    async def main() -> None:
        if waits:
            await gate.enter("first")
        walk = asyncio.ensure_future(gate.enter_or(halt, "second"))
        await asyncio.sleep(1 if waits else 0)
        if waits:
            gate.leave()
            await asyncio.sleep(0)
        if halted:
            halt.set()
        for _ in range(2):
            walk.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([walk])
        assert gate.inside == (not walk.cancelled() and walk.result())

    run_virtual(main(), clock=VirtualClock())
