"""What each permission mode runs, asks and denies; leaving plan mode; what an answer covers and
grants.
"""

from pathlib import Path

import pytest

from longrein.agent import Answer, SetMode
from longrein.permissions import Rules
from longrein.testing.harness import Approver
from longrein_context.events import (
    PermissionAnswered,
    PermissionAsked,
    SettingsError,
    ToolEnded,
    text_of,
)
from tests.agent.disk_harness import DiskHarness, Script, call, says, turn
from tests.tables import cases

pytestmark = pytest.mark.anyio

WRITE = call("Write", file_path="new.txt", content="x")


def new_harness(folder: Path) -> DiskHarness:
    harness = DiskHarness(folder)
    (harness.tree / "a.txt").write_text("old\n")
    (harness.tree / "run.sh").write_text("touch ran_script\n")
    (harness.tree / ".husky").mkdir()
    return harness


async def test_dontAsk_names_the_rule_that_would_allow_the_call(tmp_path: Path) -> None:
    harness = new_harness(tmp_path)
    model = Script(says(WRITE), says("done"))
    await harness.play(model, SetMode("dontAsk"), "go", rules=Rules(base=str(harness.tree)))
    (ended,) = harness.of(ToolEnded)
    assert ended.status == "denied"
    assert f"a rule that allows it: Edit(/{harness.tree}/new.txt)" in text_of(ended.parts)


PLAN = call("ExitPlanMode", plan="1. Write new.txt")


@pytest.mark.parametrize(("word", "then", "asked"), [("allow", "default", 2), ("deny", "plan", 1)])
async def test_the_user_ends_plan_mode(tmp_path: Path, word: str, then: str, asked: int) -> None:
    harness = new_harness(tmp_path)
    model = Script(says(PLAN), says(WRITE), says("done"))
    rules = Rules(base=str(harness.tree), allow=("ExitPlanMode",))
    play = harness.run({}, model, SetMode("plan"), "go", answers=lambda _: word, rules=rules)
    assert ((await play).state.mode, len(harness.approver.asked)) == (then, asked)
    assert harness.approver.asked[0].shown == "plan: 1. Write new.txt"
    assert (harness.tree / "new.txt").exists() is (word == "allow")


async def test_a_plan_outside_plan_mode_asks_nobody(tmp_path: Path) -> None:
    harness, model = new_harness(tmp_path), Script(says(PLAN), says("done"))
    mode, rules = SetMode("acceptEdits"), Rules(base=str(harness.tree))
    session = await harness.run({}, model, mode, "go", answers=lambda _: "allow", rules=rules)
    assert (session.state.mode, harness.approver.asked) == ("acceptEdits", [])


def last_result(harness: DiskHarness) -> str:
    return text_of(harness.of(ToolEnded)[-1].parts)


QUESTION = {"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}


@pytest.mark.parametrize("mode", ["default", "auto", "plan", "bypassPermissions"])
async def test_questions_of_model_reach_the_user_in_every_mode(tmp_path: Path, mode: str) -> None:
    arguments = {"questions": [QUESTION], "answers": {"Which?": "b"}}
    harness, answers = (
        new_harness(tmp_path),
        Approver(lambda asked: Answer(asked.call, "allow", arguments=arguments)),
    )
    model = Script(says(call("AskUserQuestion", questions=[QUESTION])), says("done"))
    rules = Rules(base=str(harness.tree), allow=("AskUserQuestion",))
    async with harness.session(model, rules=rules) as session, answers.answering(session):
        await turn(session, SetMode(mode), "go")
    assert len(answers.asked) == 1
    assert last_result(harness) == "The user answered:\n\nWhich?\nb"


@cases(
    "name arguments",
    ("AskUserQuestion", {"questions": [QUESTION], "answers": {"Which?": "a"}}),
    ("ExitPlanMode", {"plan": "1.", "mode": "acceptEdits"}),
)
async def test_the_model_cannot_answer(
    tmp_path: Path, name: str, arguments: dict[str, object]
) -> None:
    harness = new_harness(tmp_path)
    model = Script(says(call(name, **arguments)), says("done"))
    session = await harness.run({}, model, SetMode("plan"), "go", answers=lambda _: "allow")
    assert (harness.approver.asked, session.state.mode) == ([], "plan")
    assert last_result(harness).startswith(f"[bad-arguments] {name}: ")


# --- Answers --------------------------------------------------------------------------------------


TWICE = [says(call("Bash", command="frob one; grub two"))] * 2
RULES = "Bash(frob one:*)\nBash(grub two:*)"


async def questions(
    harness: DiskHarness, *words: object, fails: bool = False
) -> tuple[list[PermissionAsked], list[str]]:
    """Questions of a session that makes the same call twice, and the rules that were stored;
    `words` answer in turn.
    """
    stored: list[str] = []
    left = list(words)

    def remember(rules: str) -> None:
        if fails:
            raise SettingsError("config.toml: cannot be written")
        stored.append(rules)

    def answer(asked: PermissionAsked) -> object:
        word = left.pop(0) if left else "deny"
        return word(asked) if callable(word) else word

    rules, model = Rules(base=str(harness.tree)), Script(*TWICE, says("done"))
    await harness.run({}, model, "go", answers=answer, rules=rules, remember_rule=remember)
    return harness.approver.asked, stored


@cases("word asked stored", ("always", 1, [RULES]), ("session", 1, []), ("allow", 2, []))
async def test_an_answer_grants_the_rules_shown(
    tmp_path: Path, word: str, asked: int, stored: list[str]
) -> None:
    found, kept = await questions(new_harness(tmp_path), word)
    assert (len(found), kept) == (asked, stored)
    assert {one.suggestion for one in found} == {RULES}


@cases("rule", "Bash", "Bash(frob:*)", f"{RULES}\nWrite", "Bash(frob one:*)\nBash")
async def test_a_rule_that_was_not_proposed_is_not_granted(tmp_path: Path, rule: str) -> None:
    harness = new_harness(tmp_path)
    found, kept = await questions(
        harness, lambda asked: Answer(asked.call, "allow", "always", rule)
    )
    assert (len(found), kept) == (2, [])
    answered = harness.of(PermissionAnswered)
    assert (answered[0].scope, answered[0].rule) == ("once", "")


async def test_where_rules_cannot_be_stored_the_call_runs_once(tmp_path: Path) -> None:
    found, _ = await questions(new_harness(tmp_path), "always", fails=True)
    assert len(found) == 2


async def test_an_answer_to_other_bytes_than_shown_is_asked_again(tmp_path: Path) -> None:
    harness = new_harness(tmp_path)
    found, kept = await questions(
        harness,
        lambda asked: Answer(asked.call, "allow", "always", asked.suggestion, digest="0" * 64),
    )
    assert [one.call for one in found[:2]] == [found[0].call] * 2
    assert kept == []
    ended = [e.status for e in harness.of(ToolEnded)]
    assert ended == ["denied", "denied"]
