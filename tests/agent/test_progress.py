"""The watchdog: an agent that goes round in a circle or in which nothing happens is told, then
ended (R077, R070).
"""

import pytest

from longrein.agent.moves import Record, Stop, check_circling, check_idle
from longrein.testing.clock import run_virtual
from longrein.testing.harness import open_test_session
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein.testing.store import MemoryDisk
from longrein_context import State, fold, step
from longrein_context.events import (
    AnyEvent,
    AnyPart,
    Asked,
    Document,
    Entry,
    FileSeen,
    Opened,
    PermissionAsked,
    PrefixSet,
    Reminded,
    Replied,
    SubagentStarted,
    TaskStarted,
    Text,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UserSpoke,
    text_of,
)
from tests.agent.disk_harness import turn

MINUTE = 60_000_000
Call = tuple[str, dict[str, object], str]
"""Tool, arguments, result."""

READ: Call = ("Read", {"file_path": "a.py"}, "1  a = 1")
TEST: Call = ("Bash", {"command": "pytest"}, "1 failed")
EDIT: Call = ("Edit", {"file_path": "a.py", "old_string": "a", "new_string": "b"}, "edited")
BACK: Call = ("Edit", {"file_path": "a.py", "old_string": "b", "new_string": "a"}, "edited")


class Agent:
    """A session that makes steps."""

    def __init__(self) -> None:
        first = Opened(1, "s", "n0nce", ("/w",), "/w")
        prefix = PrefixSet("start", "test", "big", "scripted", "Be good.")
        self.state: State = fold([Entry(1, 1, first), Entry(2, 2, prefix)])
        self.append(UserSpoke((Text("do it"),)))

    def append(self, *events: AnyEvent, at: int = 0) -> None:
        for event in events:
            self.state = step(self.state, Entry(self.state.seq + 1, at or self.state.at + 1, event))

    def step(
        self,
        *calls: Call,
        facts: tuple[AnyEvent, ...] = (),
        backwards: bool = False,
        status: str = "ok",
    ) -> None:
        """One reply with `calls` and their results."""
        asked = self.state.seq + 1
        parts: list[AnyPart] = [
            ToolCall(f"c{asked}.{n}", name, args) for n, (name, args, _) in enumerate(calls)
        ]
        self.append(Asked("turn", asked - 1, 2), Replied(asked, tuple(parts), "calls"))
        ends = [
            (
                ToolStarted(f"c{asked}.{n}", name),
                *facts,
                ToolEnded(f"c{asked}.{n}", name, status, _parts(text)),
            )
            for n, (name, _, text) in enumerate(calls)
        ]
        for events in reversed(ends) if backwards else ends:
            self.append(*events)

    def walk(self, *steps: tuple[Call, ...], times: int, status: str = "ok") -> str:
        """Go round `steps`; what the watchdog says is told, until it ends the turn. Gives what
        happened when.
        """
        said: list[str] = []
        for n in range(times):
            for at, calls in enumerate(steps):
                self.step(*calls, status=status)
                verdict = check_circling(self.state)
                if isinstance(verdict, Record):
                    said.append(f"told at {n + 1}.{at + 1}")
                    self.append(*verdict.events)
                if isinstance(verdict, Stop):
                    return ", ".join([*said, f"ended at {n + 1}.{at + 1}"])
        return ", ".join(said) or "fine"


def _parts(text: str) -> tuple[AnyPart, ...]:
    return (Document(text, "text/plain", 9),) if text.startswith("blob") else (Text(text),)


def check(expected: str, *steps: tuple[Call, ...], times: int = 60) -> None:
    assert Agent().walk(*steps, times=times) == expected


def test_R077_a_circle_of_up_to_four_steps_is_told_then_ended() -> None:
    check("told at 5.1, ended at 7.1", (READ,))
    check("fine", (READ,), times=4)
    check("told at 5.1, ended at 7.1", (READ, TEST))
    check("told at 5.1, ended at 7.1", (("Bash", {"command": "x"}, "blob1"),))
    check("told at 10.2, ended at 12.2", (EDIT,), (BACK,))
    check("fine", (EDIT,), (BACK,), times=9)
    check("told at 10.3, ended at 12.3", (EDIT,), (TEST,), (BACK,))
    check("told at 10.4, ended at 12.4", (EDIT,), (TEST,), (BACK,), (READ,))
    check(
        "fine",
        (EDIT,),
        (TEST,),
        (BACK,),
        (READ,),
        (("Read", {"file_path": "b.py"}, "b"),),
        times=20,
    )


def test_R077_real_polling_is_not_flagged() -> None:
    """The same call with another result each time; and waits, ten times as patiently."""
    agent = Agent()
    for n in range(60):
        agent.step(("Bash", {"command": "curl localhost/state"}, f"{n} % done"))
        assert check_circling(agent.state) is None
    waits: list[Call] = [
        ("TaskOutput", {"task": "b1", "wait": 30}, "still running"),
        ("TaskList", {}, "b1 running"),
        ("Bash", {"command": "sleep 5; cat state"}, "waiting"),
        ("Bash", {"command": "for i in 1 2 3; do sleep 1; done"}, ""),
    ]
    for wait in waits:
        check("fine", (wait,), times=49)
        check("told at 50.1, ended at 52.1", (wait,))
    check("told at 5.1, ended at 7.1", (("Bash", {"command": "grep sleepy a.py"}, ""),))


def test_what_it_is_told() -> None:
    agent, waiting = Agent(), Agent()
    agent.walk((READ,), times=5)
    head, same = (
        "[longrein:n0nce stuck: the last",
        "steps were the same calls with the same results: nothing moves.",
    )
    assert text_of((agent.state.items[-1].part,)) == (
        f"{head} 5 {same} Do something else, or say plainly what is in the way; if it goes on like "
        "this your turn is ended]"
    )
    waiting.append(TaskStarted("b1", "make"))
    waiting.walk((("TaskList", {}, "b1 running"),), times=50)
    assert text_of((waiting.state.items[-1].part,)) == (
        f"{head} 50 {same} You are told when a task ends: end your turn, or do something else "
        "meanwhile]"
    )


@pytest.mark.parametrize("status", ["failed", "denied"])
def test_a_call_that_fails_again_is_told_at_once_and_then_of_the_request(status: str) -> None:
    agent = Agent()
    told = "told at 2.1, told at 3.1, told at 5.1, ended at 7.1"
    assert agent.walk((READ,), times=9, status=status) == told
    notes = [text_of((item.part,)) for item in agent.state.items if item.kind == "reminder"]
    head = "in a row with the same answer: nothing has changed in between. Make another call: "
    assert f"failed 2 times {head}" in notes[0]
    assert f"failed 3 times {head}" in notes[1]
    assert ['What you were asked: "do it"' in note for note in notes] == [False, True, False]
    assert Agent().walk((READ,), (TEST,), times=9, status=status) == "fine"
    other = Agent()
    other.walk((READ,), times=2, status=status)
    other.step(TEST)
    assert other.walk((READ,), times=2, status=status) == "told at 2.1"


def test_a_long_request_is_restated_by_its_beginning() -> None:
    agent = Agent()
    agent.append(UserSpoke((Text("word " * 100),)), UserSpoke((Text("and quickly"),), "steer"))
    agent.walk((READ,), times=3, status="failed")
    told = text_of((agent.state.items[-1].part,))
    assert told.endswith(f'What you were asked: "{("word " * 60)}…"]')


def test_another_step_breaks_the_circle_and_the_next_one_is_told_anew() -> None:
    agent = Agent()
    assert agent.walk((READ,), times=6) == "told at 5.1"
    agent.step(TEST)
    assert agent.walk((READ,), times=7) == "told at 5.1, ended at 7.1"


def test_the_user_s_words_and_a_new_turn_begin_anew() -> None:
    agent = Agent()
    agent.walk((READ,), times=4)
    agent.append(UserSpoke((Text("once more"),), "steer"))
    assert agent.walk((READ,), times=4) == "fine"
    agent.append(TurnEnded("done"), Reminded("wake", "", "b1"))
    assert agent.walk((READ,), times=4) == "fine"


def test_a_step_is_known_by_its_calls_and_by_what_was_read() -> None:
    """Not by the order of its results, nor by how a second reading points at the first, nor by
    their number.
    """
    orders, readings, parallel = Agent(), Agent(), Agent()
    for n in range(5):
        orders.step(READ, TEST, backwards=bool(n % 2))
        seen = FileSeen("/w/a.py", "h1", "blob", first=1, last=3)
        readings.step(("Read", {"file_path": "a.py"}, f"as in r{n}"), facts=(seen,))
    parallel.step(*[READ] * 8)
    assert isinstance(check_circling(orders.state), Record)
    assert isinstance(check_circling(readings.state), Record)
    assert check_circling(parallel.state) is None


# --- nothing happens ------------------------------------------------------------------------------


def quiet(agent: Agent, minutes: float) -> str:
    """What the watchdog says after `minutes` of silence."""
    now = agent.state.at + round(minutes * MINUTE)
    verdict = check_idle(agent.state, minutes * 60)
    if isinstance(verdict, Record):
        agent.append(*verdict.events, at=now)
        return "told"
    return verdict.message if isinstance(verdict, Stop) else "fine"


def test_what_runs_has_limits_of_its_own_and_is_given_longer() -> None:
    agent = Agent()
    agent.append(Asked("turn", 3, 2))
    assert quiet(agent, 59) == "fine"
    assert quiet(agent, 61) == "told"
    assert quiet(agent, 10) == "no progress: nothing has happened for 10 minutes"
    called = Agent()
    called.append(
        Asked("turn", 3, 2), Replied(4, (ToolCall("c4.0", "Bash", {"command": "make"}),), "calls")
    )
    called.append(ToolStarted("c4.0", "Bash"))
    assert quiet(called, 59) == "fine"


def test_what_waits_for_others_is_not_idle() -> None:
    asks = Agent()
    asks.append(
        Asked("turn", 3, 2), Replied(4, (ToolCall("c4.0", "Bash", {"command": "make"}),), "calls")
    )
    asks.append(PermissionAsked("c4.0", "Bash", "make", "no rule"))
    parent = Agent()
    parent.append(SubagentStarted("k", "explore"))
    over = Agent()
    over.append(TurnEnded("done"))
    assert [quiet(one, 10_000) for one in (asks, parent, over)] == ["fine"] * 3


# --- and what comes of it -------------------------------------------------------------------------


def test_R077_an_agent_that_goes_round_in_a_circle_is_stopped_by_the_loop() -> None:
    disk = MemoryDisk()
    model = ScriptedModel(*[says(call("Read", file_path="no.py"))] * 7)

    async def main() -> None:
        session = open_test_session(model, disk=disk)
        await turn(session, "go")
        await session.close()

    run_virtual(main())
    assert disk.entries()[-1].event == TurnEnded(
        "limit", "no progress: the last 7 steps were the same calls with the same results"
    )
    assert (
        sum(isinstance(e.event, Reminded) and e.event.kind == "stuck" for e in disk.entries()) == 1
    )
