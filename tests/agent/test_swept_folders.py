"""Commands that read folders, judged by the files in them."""

import asyncio

import pytest

from longrein.agent import Answer
from longrein.permissions import Rules
from tests.agent.disk_harness import DiskHarness, Script, call, question, results, says, turn
from tests.tables import cases

GREP = call("Bash", command="grep -r KEY .")

pytestmark = pytest.mark.anyio


def rules(harness: DiskHarness, deny: str) -> Rules:
    return Rules(allow=("Bash(*)",), deny=(deny,) if deny else (), base=str(harness.tree))


@cases("deny status", ("Read(.env)", "denied"), ("Read(other)", "ok"), ("Edit(.env)", "ok"))
async def test_a_command_is_judged_by_its_way(harness: DiskHarness, deny: str, status: str) -> None:
    (harness.tree / "deep").mkdir()
    (harness.tree / "deep" / ".env").write_text("KEY=1\n")
    (harness.tree / ".gitignore").write_text(".env\n")
    model = Script(says(GREP), says("so"))
    await harness.play(model, "look", rules=rules(harness, deny))
    [result] = results(model.requests[-1])
    told = (
        "Denied: this command reads what lies below" if status == "denied" else "./deep/.env:KEY=1"
    )
    assert result.startswith(f"Bash {status}: {told}")


async def test_what_is_ignored_is_on_way_of_those_alone_who_read_it(harness: DiskHarness) -> None:
    (harness.tree / ".env").write_text("KEY=1\n")
    (harness.tree / ".gitignore").write_text(".env\n")
    model = Script(says(call("Bash", command="git grep KEY")), says("so"))
    await harness.play(model, "look", rules=rules(harness, "Read(.env)"))
    assert "denied" not in results(model.requests[-1])[0]


@pytest.mark.parametrize("deny", ["Read(.env)", ""])
async def test_too_much_to_look_at_asks_where_there_is_a_rule(
    harness: DiskHarness, deny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longrein.agent.call_footprint.LOOK_S", -1.0)
    (harness.tree / "file").write_text("KEY=1\n")
    async with harness.session(
        Script(says(GREP), says("so")), rules=rules(harness, deny)
    ) as session:
        running = asyncio.create_task(turn(session, "look"))
        if deny:
            asked = await question(session)
            assert asked.reason.startswith(
                f"it reads what lies below {harness.tree}, too much to see whether"
            )
            session.tell(Answer(asked.call, "allow"))
        await running


LINKED = [
    "cat *",
    "cat l*",
    "cat */hostname",
    "head sub/*",
    "grep -R x .",
    "find . -exec cat {} +",
    "cat link",
    "wc -l ./?ink",
]


@pytest.mark.parametrize("command", LINKED)
@pytest.mark.parametrize("outside", [True, False])
async def test_S033_a_glob_follows_no_link_out_of_the_project_unasked(
    harness: DiskHarness, command: str, outside: bool
) -> None:
    target = harness.tree.parent / "canary" if outside else harness.tree / "inner"
    (target / "deep").mkdir(parents=True)
    (target / "hostname").write_text("CANARY\n")
    (harness.tree / "sub").mkdir()
    (harness.tree / "sub" / "file").symlink_to(target / "hostname")
    (harness.tree / "link").symlink_to(target / "hostname")
    (harness.tree / "links").symlink_to(target)
    model = Script(says(call("Bash", command=command)), says("so"))
    await harness.play(model, "look", mode="dontAsk", rules=Rules(base=str(harness.tree)))
    [result] = results(model.requests[-1])
    assert result.startswith("Bash denied") == outside, result
