"""docs/events.md: its commands and its program run, and its table is that of the code."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from longrein.agent.change_detection import (
    COMMITS_MAX,
    SMALL_TREE_TOKENS,
    STATUS_LINES_MAX,
    TREE_TOKENS,
)
from longrein.extensions.schedules.timer import SCHEDULES_MAX
from longrein.extensions.schedules.times import EXPIRY_US
from longrein_context import KINDS, PROGRAM_KINDS
from longrein_context.events import Reminded, SchedulesSet
from longrein_context.fold_notices import EVENT_CHARS_MAX
from tests.e2e.harness import CliHarness, of, says
from tests.timeouts import HANG_S

PAGE = (Path(__file__).parent.parent / "docs" / "events.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def test_the_commands_of_the_page_do_what_it_says(cli: CliHarness) -> None:
    cli.plays(says("hi"), says("I see"), says("ok"))
    for command in commands():
        piped, _, rest = command.rpartition(" | ")
        stdin = piped.removeprefix("echo ").strip('"').encode() if piped else None
        done = cli.run(*shlex.split(rest)[1:], stdin=stdin)
        assert done.code == 0, (command, done.err)
    told = "\n".join(one.text for one in of(cli, Reminded))
    assert "* ci\n| the build of main failed" in told
    assert "* src/area.py\n| 3: undefined name sixe" in told
    assert cli.run("-p", "-c", "on").code == 0
    assert [one.when for one in of(cli, SchedulesSet)[-1].schedules] == [
        "2h",
        "in 30m",
        "0 9 * * 1-5",
    ]


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "I will look at the build.\n", "")


def test_the_table_of_the_page_is_the_catalogue() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert dict(rows) == {
        kind.name: kind.head for kind in KINDS.values() if kind.share and kind.head
    }
    (computed,) = re.findall(r"The words of (.+?) depend", PAGE)
    assert re.findall(r"`(\w+)`", computed) == [
        kind.name for kind in KINDS.values() if kind.share and not kind.head
    ]
    (reportable,) = re.findall(r"Programs may report these kinds: (.+?)\. ", PAGE, re.DOTALL)
    assert tuple(re.findall(r"`(\w+)`", reportable)) == PROGRAM_KINDS


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    for number, words in (
        (EVENT_CHARS_MAX, "A text may have {:,} characters"),
        (SCHEDULES_MAX, "A session has {} schedules at most"),
        (EXPIRY_US // 86_400_000_000, "each ends after {} days"),
        (STATUS_LINES_MAX, "`git status` ({} entries)"),
        (COMMITS_MAX, "newest {} commits"),
        (TREE_TOKENS, "({:,} tokens, in windows"),
        (SMALL_TREE_TOKENS, "at most 32k {};"),
    ):
        assert words.format(number) in PAGE
