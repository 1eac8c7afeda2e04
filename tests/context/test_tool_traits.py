"""Traits of tools come from the log; names alone count only where the log states none."""

from longrein_context.clear_items import update_memory
from longrein_context.clearing.text_features import EDIT, OTHER, READ
from longrein_context.events import PrefixSet, ToolCall, ToolSpec, ToolTraits
from tests.context.log_builder import LogBuilder
from tests.tables import cases


def prefix(**stated: ToolTraits | None) -> PrefixSet:
    tools = tuple(ToolSpec(name, "", {}, traits) for name, traits in stated.items())
    return PrefixSet(
        "tools", "mock", "small", "anthropic", "Be good.", tools[:1], deferred=tools[1:]
    )


@cases(
    "tool traits recorded kind",
    ("Look", None, True, OTHER),
    ("Look", ToolTraits(quiet=True, kind="read"), False, READ),
    ("Read", None, False, READ),
    ("Read", ToolTraits(kind="edit"), True, EDIT),
    ("Read", ToolTraits(kind="unheard of"), True, READ),
)
def test_what_a_tool_states_goes_first(
    tool: str, traits: ToolTraits | None, recorded: bool, kind: int
) -> None:
    log = LogBuilder()
    log.write(prefix(Other=None, **{tool: traits}))
    log.call(tool, "text", where="here")
    log.write(prefix(Other=None))  # a tool that is gone keeps what it stated
    state = log.state
    assert (f"{tool} here" in state.ledger.ran) == recorded
    assert update_memory(state).worth.items[-1].cls == kind


@cases("traits patient", (ToolTraits(), False), (ToolTraits(polls=True), True))
def test_a_tool_that_polls_may_repeat_itself(traits: ToolTraits, patient: bool) -> None:
    log = LogBuilder()
    log.write(prefix(Status=traits))
    for _ in range(4):
        log.call("Status", "running")
    assert log.state.step_history.patient == patient


def test_the_task_whose_end_a_call_reports() -> None:
    log = LogBuilder()
    log.write(prefix(Await=ToolTraits(task_argument="job")))
    calls = [
        ToolCall("c1.0", name, {"job": "b1", "task_id": "b2"})
        for name in ("Await", "TaskStop", "Read")
    ]
    assert [log.state.reported_task(call) for call in calls] == ["b1", "b2", ""]
