"""Limits and waits of the provider that all tasks of a fleet share, and a key that it refuses."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from lab.support.postgresql import Server, proxy
from longrein.agent.shared_rate_limit import Rates, SharedRateLimit, SharedRates
from longrein.app.run_context import use_store_at
from longrein.store.session_store import store_of
from longrein.testing.loopback import Fault
from longrein.testing.loopback import Turn as Loopback
from longrein_context.events import AskFailed, Replied, Usage
from tests.e2e.harness import Provider, fails, says
from tests.fleet.harness import FleetHarness

S = 1_000_000


class Clock:
    """A wall clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def wall_us(self) -> int:
        return int(self.now_s * S)


def shared(folder: Path, clock: Clock, **limits: int) -> list[SharedRateLimit]:
    """Two processes that share a file."""
    path = folder / "rates.json"
    path.write_text(json.dumps({"limits": limits}))
    return [SharedRateLimit(str(folder), str(path), clock.wall_us) for _ in range(2)]


def turns(limits: list[SharedRateLimit], count: int) -> list[float]:
    """Waits of `count` requests that the processes make in turn."""
    return [round(limits[n % 2].take_turn("p", 0.0)[0], 2) for n in range(count)]


def replied(tokens: int, cached: int = 0, output: int = 0) -> Replied:
    usage = Usage(input_tokens=tokens, cache_read_tokens=cached, output_tokens=output)
    return Replied(1, (), "end", usage)


def test_a_refusal_of_one_process_makes_all_wait_as_long_as_the_provider_says(
    tmp_path: Path,
) -> None:
    clock = Clock()
    one, other = shared(tmp_path, clock)
    assert turns([one, other], 2) == [0, 0]
    refusal = AskFailed(1, "rate", "slow down", 429, retry_after_s=7.0)
    one.heard("p", refusal, 0.0)
    wait_s, why = other.take_turn("p", 0.0)
    assert round(wait_s, 2) == 7.0
    assert why == refusal
    assert other.take_turn("another", 0.0) == (0.0, None)
    clock.now_s += 60
    for _ in range(3):
        other.heard("p", replied(10), 0.0)
    assert turns([one, other], 3) == [0, 0, 0]


def test_requests_and_tokens_a_minute_are_those_of_all_processes(tmp_path: Path) -> None:
    clock = Clock()
    limits = shared(tmp_path, clock, requests_per_minute=30)
    assert turns(limits, 4) == [0, 2, 4, 6]
    limits[0].heard("p", replied(10), 0.0)
    assert turns(limits, 1) == [8]
    limits = shared(tmp_path, clock, tokens_per_minute=6_000)
    assert turns(limits, 2) == [0, 0]
    limits[0].heard("p", replied(600, cached=9_000), 0.0)
    assert turns(limits, 2) == [6, 6], "what the cache has read does not count"
    limits[1].heard("p", replied(600), 0.0)
    assert turns(limits, 1) == [12]
    limits[1].heard("p", replied(0, output=600), 0.0)
    assert turns(limits, 1) == [18]


def test_input_and_output_have_limits_of_their_own(tmp_path: Path) -> None:
    rates = {"input_tokens_per_minute": 6_000, "output_tokens_per_minute": 600}
    limits = shared(tmp_path, Clock(), **rates)
    for reply, wait_s in (
        (replied(600, cached=9_000), 6),
        (replied(0, output=50), 6),
        (replied(0, output=50), 10),
        (replied(600, output=10), 12),
    ):
        limits[0].heard("p", reply, 0.0)
        assert turns(limits, 2) == [wait_s, wait_s]


def test_a_file_that_was_torn_counts_as_empty(tmp_path: Path) -> None:
    limits = shared(tmp_path, Clock(), requests_per_minute=60)
    (tmp_path / "rates.json").write_bytes(b'{"limits": {"requ')
    assert turns(limits, 2) == [0, 0]
    assert SharedRates(Rates(1)).limits.requests_per_minute == 1


def test_a_429_of_one_task_is_known_to_the_others(fleet: FleetHarness) -> None:
    body = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": "Wait"}})
    fault = Fault(status=429, headers={"retry-after": "1"}, body=body)
    with Provider(Loopback(text="Hello.", fault=fault), Loopback(text="Hello.")) as provider:
        fleet.cli.settings(provider.settings("anthropic"), model="served/one")
        words = ("--concurrency", "1", "--requests-per-minute", "600")
        words += ("--output-tokens-per-minute", "4000")
        done = fleet.fleet("run", fleet.tasks({"id": "one"}, {"id": "two"}), *words)
    assert done.code == 0, done.err
    kept = json.loads((fleet.cli.state / "fleets/tasks/rates.json").read_bytes())
    assert kept["limits"] == {
        "requests_per_minute": 600,
        "tokens_per_minute": 0,
        "input_tokens_per_minute": 0,
        "output_tokens_per_minute": 4_000,
    }
    assert kept["providers"]["served"]["held_s"] > 0


def test_a_refused_key_pauses_the_fleet_and_says_what_to_do(fleet: FleetHarness) -> None:
    fleet.plays(hello=[fails(401, "invalid x-api-key", times=99)])
    path = fleet.tasks({"id": "one"}, {"id": "two"})
    done = fleet.fleet("run", path, "--concurrency", "1")
    assert done.code == 75, done.err
    last = done.err.splitlines()[-1]
    for words in ("refuses the key", "longrein login", "longrein fleet resume tasks"):
        assert words in last
    assert fleet.state().tasks["two"].number == 0, "nothing new starts"
    fleet.plays(hello=[says("Done.")])
    assert fleet.fleet("resume", "tasks").code == 0
    assert len(fleet.cli.sessions) == 2


def test_processes_without_a_common_file_share_the_limits_in_their_store(
    tmp_path: Path, postgresql: Server
) -> None:
    """Each has a state folder of its own; one of them loses the store for a while."""
    address = postgresql.new_schema()
    clock = Clock()
    with proxy(postgresql) as cut:
        limits = list[SharedRateLimit]()
        for number, place in enumerate((cut.address(address), address)):
            state = str(tmp_path / str(number))
            use_store_at(state, place)
            limits.append(SharedRateLimit(state, "a fleet", clock.wall_us))
        store = store_of(str(tmp_path / "1"))
        assert store is not None
        first = msgspec.json.encode(SharedRates(Rates(requests_per_minute=30)))
        store.change_shared("a fleet", lambda _: first)
        assert turns(limits, 4) == [0, 2, 4, 6]
        limits[0].heard("p", AskFailed(1, "rate", "slow down", 429, retry_after_s=20.0), 0.0)
        assert turns(limits[::-1], 1) == [20]
        assert turns(limits[:1] * 2, 1) == [22]
        cut.cut()
        assert turns(limits, 3) == [24, 26, 28], "a cut connection is opened again"
        cut.close()
        assert turns(limits[:1] * 2, 2) == [30, 32], "by what it has seen last"
        assert turns(limits[1:] * 2, 1) == [30], "and the other one knows nothing of that"
    store.remove_shared("a fleet")
    store.remove_shared("a fleet")
    assert turns(limits[1:] * 2, 2) == [0, 0]


def test_changes_of_a_shared_value_at_once_are_all_made(tmp_path: Path, postgresql: Server) -> None:
    address = postgresql.new_schema()

    def count(number: int) -> None:
        state = str(tmp_path / str(number))
        use_store_at(state, address)
        store = store_of(state)
        assert store is not None
        for _ in range(50):
            store.change_shared("count", lambda old: str(int(old or b"0") + 1).encode())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))
    schema = address.rpartition("%3D")[2]
    assert postgresql.run(f"SELECT body FROM {schema}.shared") == [(b"200",)]
