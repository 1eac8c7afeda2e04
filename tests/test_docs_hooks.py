"""The examples of docs/hooks.md run in real sessions, and its tables name what the code has."""

import json
import re
from pathlib import Path

import pytest

from longrein.permissions.hook_protocol import EVENTS, OTHER_EVENTS
from longrein.testing.scripted_model import ScriptedModel as Script
from longrein.testing.scripted_model import call, says
from tests.agent.disk_harness import DiskHarness, said
from tests.tables import cases

pytestmark = pytest.mark.anyio
PAGE = (Path(__file__).parent.parent / "docs/hooks.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```json\n(.+?)```", PAGE, re.DOTALL))
SCRIPTS = {
    body.split("\n")[1].removeprefix("# "): body
    for body in re.findall(r"```sh\n(.+?)```", PAGE, re.DOTALL)
}


@cases(
    "name calls told",
    ("refuse", [call("Bash", command="rm -rf build")], "rm -rf is not used here"),
    ("refuse", [call("Bash", command="echo fine")], "fine"),
    (
        "lint",
        [call("Write", file_path="a.py", content="# TODO: later\n")],
        "./a.py:1:# TODO: later",
    ),
    ("stop", [], "run the tests first"),
    ("start", [], "the build server is down today"),
)
async def test_an_example_of_the_page_does_what_it_says(
    tmp_path: Path, name: str, calls: list[object], told: str
) -> None:
    harness = DiskHarness(tmp_path)
    for script, body in SCRIPTS.items():
        (harness.tree / script).write_text(body)
        (harness.tree / script).chmod(0o755)
    replies = [says(*calls)] if calls else []  # type: ignore[arg-type]
    model = Script(*replies, *[says("done") for _ in range(10)])
    await harness.run(json.loads(EXAMPLES[name])["hooks"], model, "go", mode="bypassPermissions")
    assert told in "\n".join([*said(model.requests[-1]), *harness.results])
    assert not any("broken" in line or "exit code" in line for line in harness.notices)


def test_the_page_names_every_event() -> None:
    table, _, rest = PAGE.partition("longrein has no source for these events yet")
    assert [event for event in EVENTS if f"`{event}`" not in table] == []
    assert [event for event in OTHER_EVENTS if f"`{event}`" not in rest] == []
    assert [event for event in EVENTS if f"`{event}`" in rest.partition("A first line")[0]] == []
