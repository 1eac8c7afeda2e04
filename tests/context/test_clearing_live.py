"""Clearing of a live state: the proposed events, their effect once they are in the log, and the
items left alone.
"""

import json

import msgspec

from longrein_context import Budget, Price, State, fold
from longrein_context.clear_items import clear, line_reasons, squeeze
from longrein_context.events import (
    SCHEMA_VERSION,
    Asked,
    Cleared,
    Opened,
    PrefixSet,
    Replied,
    Rewound,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolResult,
    ToolStarted,
    UserSpoke,
    text_of,
)
from tests.context.log_builder import EventLog

SESSION = "00000000-0000-4000-8000-000000000001"
BUDGET = Budget(200_000, 8_000, Price(3, 15, 0.3, 3.75))


class Talk(EventLog):
    """A session that is written by hand."""

    def __init__(self, steps: int = 0) -> None:
        super().__init__()
        self.add(Opened(SCHEMA_VERSION, SESSION, "a1b2c3", ("/w",), "/w"))
        self.add(PrefixSet("start", "mock", "small", "anthropic", "Be good."))
        self.say("Rename the parser, and mind src/app_main.py.")
        self.work(steps)

    def say(self, text: str) -> None:
        self.add(UserSpoke((Text(text),), "prompt"))

    def step(
        self,
        tool: str,
        arguments: dict[str, object],
        result: str,
        thought: str = "",
        status: str = "ok",
    ) -> None:
        self.add(Asked("turn", self.state.seq, self.state.prefix_seq))
        call = ToolCall(f"c{self.state.seq}.0", tool, arguments)
        parts = (Thinking(thought), call) if thought else (call,)
        self.add(Replied(self.state.asked_seq, parts, stop="calls"))
        self.add(ToolStarted(call.id, tool, arguments))
        self.add(ToolEnded(call.id, tool, status, (Text(result),)))

    def work(self, steps: int) -> None:
        for n in range(steps):
            body = "\n".join(
                f"def handle_part_{n}_{k}(value_{k}: int) -> str:  # {k * n}" for k in range(60)
            )
            self.step(
                "Read",
                {"file_path": f"src/mod_{n}.py"},
                body,
                f"Let me look at mod_{n} for the handle_part.",
            )


def check_whole(state: State) -> None:
    """Each call has one result right after the calls; a call stays a JSON object."""
    calls = [i.part.id for i in state.items if isinstance(i.part, ToolCall)]
    results = [i.part.call for i in state.items if isinstance(i.part, ToolResult)]
    assert sorted(calls) == sorted(results)


def test_what_is_dead_goes_once_its_rent_is_paid() -> None:
    talk = Talk()
    proposed = None
    for _ in range(60):
        talk.work(1)
        proposed = clear(talk.state, BUDGET, cold=False)
        if proposed:
            break
    assert proposed is not None
    assert proposed.reason == "rent"
    assert proposed.gain_tokens > 0
    first = next(form for form in proposed.forms if "cleared: ok, 60 lines" in form.text)
    assert first.text.startswith(
        f'[longrein:a1b2c3 cleared: ok, 60 lines; Recall("{first.handle}") brings all]'
    )
    before = talk.state.view_tokens
    talk.add(proposed)
    check_whole(talk.state)
    assert before - talk.state.view_tokens > 0.8 * proposed.gain_tokens
    newest = [i for i in talk.state.items if i.kind == "result"][-2:]
    assert all(item.form == "full" for item in newest)
    assert any(text_of((i.part,)).startswith("Rename the parser") for i in talk.state.items)


def test_cold_is_for_nothing() -> None:
    talk = Talk()
    proposed = None
    while proposed is None:
        talk.work(1)
        proposed = clear(talk.state, BUDGET, cold=True)
    assert clear(talk.state, BUDGET, cold=False) is None
    assert proposed.reason == "cold"


def test_a_cold_cache_spares_what_was_needed_a_moment_ago() -> None:
    """No more is saved by clearing it at once than its re-reading has cost so far."""
    kept = []
    for later in (6, 20):
        talk = Talk(60)
        result = [item for item in talk.state.items if item.kind == "result"][50]
        talk.step("Bash", {"command": "grep handle_part_50_3"}, "none")
        talk.work(later)
        wanted = sum(why.stays for why in line_reasons(talk.state, BUDGET, result.handle))
        proposed = clear(talk.state, BUDGET, cold=True)
        assert proposed is not None
        talk.add(proposed)
        shown = [text_of((item.part,)) for item in talk.state.items if item.kind == "result"]
        kept.append((wanted, sum(text.count("def handle_part_50_") for text in shown)))
    assert kept[0][1] > kept[0][0]
    assert kept[1] == (0, 0)


def test_a_proposal_that_never_becomes_a_fact_changes_nothing() -> None:
    talk = Talk(70)
    first = clear(talk.state, BUDGET, cold=True)
    assert clear(talk.state, BUDGET, cold=True) == first
    assert squeeze(talk.state, BUDGET, 100, "watermark") is not None
    assert clear(talk.state, BUDGET, cold=True) == first


def test_after_a_resume_or_a_rewind_it_is_made_anew() -> None:
    talk = Talk(70)
    end = talk.state.seq
    proposed = clear(talk.state, BUDGET, cold=True)
    assert proposed is not None
    talk.add(proposed)
    talk.work(6)
    resumed = fold(talk.entries)
    again, same = clear(resumed, BUDGET, cold=True), clear(talk.state, BUDGET, cold=True)
    for state, found in ((resumed, again), (talk.state, same)):
        assert found is not None
        assert all(
            state.items[state.index[form.handle]].seqs[1] <= state.seen_reach
            for form in found.forms
        )
    talk.add(Rewound(end))
    back = clear(talk.state, BUDGET, cold=True)
    assert back is not None
    assert {form.handle for form in back.forms} >= {
        form.handle for form in proposed.forms if form.form != "folded"
    }


def test_squeezing_reaches_a_goal_or_all_that_can_go() -> None:
    talk = Talk(70)
    view = talk.state.view_tokens
    proposed = squeeze(talk.state, BUDGET, view // 2, "watermark")
    assert proposed is not None
    talk.add(proposed)
    check_whole(talk.state)
    assert talk.state.view_tokens <= view // 2 * 1.05
    assert talk.state.settled


def test_a_failed_call_says_failed_and_a_call_keeps_its_keys() -> None:
    talk = Talk()
    talk.step(
        "Bash",
        {"command": "make all"},
        "error: boom in boom_table\n" + "noise of the build\n" * 200,
        "",
        "failed",
    )
    old = "\n".join(f"    total_{k} = compute_total_{k}(ledger, {k})" for k in range(40))
    talk.step(
        "Edit", {"file_path": "src/a.py", "old_string": old, "new_string": old.upper()}, "done"
    )
    talk.work(6)
    proposed = squeeze(talk.state, BUDGET, 0, "watermark")
    assert proposed is not None
    assert any("failed" in form.text for form in proposed.forms)
    for form in proposed.forms:
        if form.text.startswith("{"):
            assert list(json.loads(form.text)) == ["file_path", "old_string", "new_string"]


def test_kinds_that_are_not_tolerated_stay() -> None:
    talk = Talk(70)
    only = msgspec.structs.replace(BUDGET, clears=("result",))
    proposed = clear(talk.state, only, cold=True)
    assert isinstance(proposed, Cleared)
    kinds = {talk.state.items[talk.state.index[form.handle]].kind for form in proposed.forms}
    assert kinds == {"result"}
    assert all(form.form != "folded" for form in proposed.forms)


def test_what_the_user_brought_back_stays() -> None:
    talk = Talk(70)
    proposed = clear(talk.state, BUDGET, cold=True)
    assert proposed is not None
    talk.state.held = frozenset({proposed.forms[0].handle})
    again = clear(talk.state, BUDGET, cold=True)
    assert again is not None
    assert proposed.forms[0].handle not in {form.handle for form in again.forms}


def test_thinking_of_the_running_turn_stays_where_a_provider_wants_it() -> None:
    talk = Talk(40)
    careful = msgspec.structs.replace(BUDGET, clears=("result", "call", "text", "old thinking"))
    gone = squeeze(talk.state, careful, 0, "watermark")
    assert gone is not None
    kinds = {talk.state.items[talk.state.index[form.handle]].kind for form in gone.forms}
    assert "thinking" not in kinds
    talk.say("Now the next thing.")
    talk.work(3)
    gone = squeeze(talk.state, careful, 0, "watermark")
    assert gone is not None
    assert "thinking" in {
        talk.state.items[talk.state.index[form.handle]].kind for form in gone.forms
    }


def test_prices_without_cache_fields_are_no_reason_to_clear_sooner() -> None:
    """Read as "no cache", each request would pay the full price again."""
    cleared = []
    for price in (Price(3, 15, 0.3, 3), Price(3, 15), Price(3, 15, 3, 3)):
        talk = Talk(60)
        found = clear(talk.state, Budget(200_000, 8_000, price), cold=False)
        cleared.append(len(found.forms) if found is not None else 0)
    assert cleared[0] == cleared[1]
    assert cleared[1] <= cleared[2]
