"""Run the commands of docs/export.md in a temporary home."""

import re
import shlex
from pathlib import Path

from longrein.frontends.argv import bundled_commands
from tests.e2e.harness import CliHarness, says
from tests.e2e.test_import import claude_lines
from tests.tables import split_words
from tests.transcripts.fixtures import write
from tests.transcripts.test_codex import conversation

PAGE = (Path(__file__).parent.parent / "docs/export.md").read_text(encoding="utf-8")


def test_the_commands_of_the_export_page_run(cli: CliHarness) -> None:
    lines = re.findall(
        r"^\$ (.*)$", "\n".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)), re.MULTILINE
    )
    assert len(lines) >= 10
    cli.plays(*[says("done")] * 9)
    assert cli.run("-p", "begin").code == 0
    session, folder, elsewhere = cli.session, cli.project, cli.project / "elsewhere"
    elsewhere.mkdir()
    for name in re.findall(r"import ~/(\.\S+)", PAGE):
        path = cli.home / name
        path.parent.mkdir(parents=True)
        write(path, claude_lines() if ".claude" in name else conversation())
    new = {"LONGREIN_STATE_DIR": str(cli.folder / "new")}
    env: dict[str, str] = {}
    for line in lines:
        words = [
            word.replace("$ID", session).replace("~", str(cli.home)) for word in shlex.split(line)
        ]
        if words[0] == "cd":
            folder, env = elsewhere, new  # the other machine
            (cli.project / "session.zip").rename(elsewhere / "session.zip")
            continue
        assert words[0] == "longrein"
        words = words[1 : words.index(">")] if ">" in words else words[1:]
        done = cli.run(*words, cwd=folder, env=env)
        assert done.code == 0, (line, done.err)
    assert sorted(path.name for path in cli.project.glob("session.*")) == split_words(
        "session.html session.json session.md"
    )


def test_every_format_of_the_command_stands_on_the_page() -> None:
    (flag,) = (flag for flag in bundled_commands()["export"].flags if flag.name == "--format")
    assert [name for name in flag.choices if f"| `{name}` |" not in PAGE] == []
