"""Status line: a command of the user on a real session (A11), and its output by itself."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from longrein.agent.status_line_command import git_facts
from longrein.frontends.terminal.custom_status_line import LINK_END, StatusLine, styled
from longrein.settings_schema import TerminalOptions
from longrein_context.events import LongreinError
from tests.e2e.harness import needs_sandbox
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_real import home
from tests.terminal.test_window import open_it
from tests.timeouts import HANG_S

SHOWN = r"""printf '\033[1;35mcontext\033[0m \033]8;;https://example.org/x\033\\link\033]8;;\033\\\nsecond \033[2J line'"""  # noqa: E501
KEYS = {
    *(
        "session_id",
        "transcript_path",
        "cwd",
        "version",
        "model",
        "workspace",
        "output_style",
        "cost",
    ),
    *("context_window", "exceeds_200k_tokens"),
}
COST = {
    *(
        "total_cost_usd",
        "total_duration_ms",
        "total_api_duration_ms",
        "total_lines_added",
        "total_lines_removed",
    ),
}
CONTEXT = {
    *(
        "total_input_tokens",
        "total_output_tokens",
        "context_window_size",
        "used_percentage",
        "remaining_percentage",
    ),
    "current_usage",
}


def script(project: Path, text: str) -> str:
    """A script beside the project, as the setting names it."""
    file = project.parent / "home/.claude/status/status.sh"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return f'status_line = "{file}"'


def test_A11_colours_links_and_lines_are_kept_and_the_screen_is_safe(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "All done.\n"})
    with open_it(project, script(project, SHOWN) + "\nstatus_line_padding = 2") as tty:
        tty.until("  context link").until("  second  line").ask("go").until("All done.").until(
            "idle"
        ).settle()
        assert b"\x1b]8;;https://example.org/x\x1b\\" in tty.raw
        assert b"\x1b[2J" not in tty.raw, "a status line cannot clear the screen"
        rows = tty.lines()
        assert [row for row in rows if row][-3:-1] == ["  context link", "  second  line"]
        assert "idle" in [row for row in rows if row][-1]
        y = rows.index("  context link")
        assert tty.screen.buffer[y][2].bold
        tty.send("\x04").exits(0)
        assert tty.raw.rfind(b"\x1b]8;;\x1b\\") > tty.raw.rfind(b"\x1b]8;;https://"), (
            "no link stays open"
        )


def test_A11_the_command_gets_every_field_that_longrein_knows(tmp_path: Path) -> None:
    edit = {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b\n    # mended"}
    look = {"calls": [{"name": "Read", "arguments": {"file_path": "calc.py"}}]}
    change = {"calls": [{"name": "Edit", "arguments": edit}]}
    project = home(tmp_path, look, change, {"text": "Mended.\n"})
    line = script(
        project, f"cat > {project}/told.tmp && mv {project}/told.tmp {project}/told.json; echo told"
    )
    told = project / "told.json"

    def data() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(told.read_bytes()) if told.exists() else {}
        return found

    with open_it(project, line, "--permission-mode acceptEdits") as tty:
        tty.until("told").until(lambda: data()["context_window"]["used_percentage"] is None)
        tty.ask("mend calc.py").until("Mended.").until("idle")
        tty.until(
            lambda: (
                data()["cost"]["total_lines_added"] == 2
                and data()["context_window"]["current_usage"]
            )
        )
    found = data()
    assert found.keys() >= KEYS
    assert found["cost"].keys() == COST
    assert found["context_window"].keys() == CONTEXT
    assert (found["session_name"], found["model"]) == (
        "mend calc.py",
        {"id": "mock/small", "display_name": "small"},
    )
    assert found["cost"]["total_lines_removed"] == 1
    assert found["workspace"] == {
        "current_dir": str(project),
        "project_dir": str(project),
        "added_dirs": [],
    }
    window, now = found["context_window"], found["context_window"]["current_usage"]
    held = now["input_tokens"] + now["cache_creation_input_tokens"] + now["cache_read_input_tokens"]
    assert window["used_percentage"] == round(100 * held / window["context_window_size"])
    assert window["used_percentage"] + window["remaining_percentage"] == 100


def test_A11_a_failing_command_shows_nothing_and_is_said_once(tmp_path: Path) -> None:
    project = home(tmp_path, *[{"text": f"Answer {n}.\n"} for n in range(3)])
    with open_it(project, script(project, "echo partly; echo no such thing >&2; exit 3")) as tty:
        tty.until(
            lambda: "is not shown: exit code 3: no such thing" in " ".join(tty.text().split())
        )
        for n in range(3):
            tty.ask("go").until(f"Answer {n}.").until("idle").settle()
        assert tty.text().count("is not shown") == 1
        assert "partly" not in tty.text()


def test_A11_the_statusLine_of_another_agent_is_used_and_a_projects_is_not(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "All done.\n"})
    settings = {
        "statusLine": {
            "type": "command",
            "command": "echo mine",
            "padding": 1,
            "refreshInterval": 1,
        }
    }
    for folder, word in ((tmp_path / "home", "mine"), (project, "theirs")):
        (folder / ".claude").mkdir()
        settings["statusLine"]["command"] = f"echo {word}"
        (folder / ".claude/settings.json").write_text(json.dumps(settings))
    with open_it(project) as tty:
        tty.until("Trust this folder?").send("y\r").until(" mine").ask("go").until(
            "All done."
        ).until("idle").settle()
        assert "theirs" not in tty.text()


def test_a_small_window_keeps_its_input(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "All done.\n"})
    line = script(project, "seq 100 109")
    places = {"HOME": str(tmp_path / "home"), "LONGREIN_STATE_DIR": str(tmp_path / "state")}
    config = tmp_path / "home/.config/longrein/config.toml"
    config.write_text(f"{config.read_text()}\n[terminal]\n{line}\n")
    with PseudoTerminal("", project, 24, 8, **places) as tty:
        tty.until("100").until("say something").send("go\r").until("All done.").until(
            "idle"
        ).settle()
        assert not any("101" in row for row in tty.lines())
        tty.resize(80, 40).until("104").settle()
        assert not any("105" in row for row in tty.lines())


# --- By itself ------------------------------------------------------------------------------------


def text_of(spans: Any) -> str:
    return "".join(span[1] for span in spans if span[0] != LINK_END[0])


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38:5:25mcolon\x1b[0m", "colon"),
        ("\x1b[2J\x1b[10;10Hmoved", "moved"),
        ("bell\x07", "bell\\x07"),
        ("\x1b]0;title\x07x", "x"),
        ("\x01\x1b[31m\x02", "\\x01\\x02"),
        ("a\u202eb", "a\\u202eb"),
        ("\x1b]8;;https://a\x1b\\\x1b]8;id=1;https://b\x07link\x1b]8;;\x07", "link"),
        ("ends\x1b", "ends"),
    ],
)
def test_what_a_command_prints_is_text_colours_and_links_alone(printed: str, shown: str) -> None:
    spans = styled(printed)
    assert text_of(spans) == shown
    assert all(span[1].startswith("\x1b]8;;") for span in spans if span[0] == LINK_END[0])


class Watched:
    """A status line whose command waits for `go`."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.state = fails, ""
        self.seen: list[str] = []
        self.noticed: list[str] = []
        self.go, self.news = asyncio.Event(), asyncio.Event()
        self.line = StatusLine(
            self.command,
            TerminalOptions(),
            lambda: {"state": self.state},
            lambda: None,
            self.noticed.append,
        )

    async def command(self, known: Mapping[str, Any]) -> str:
        state = str(known["state"])
        self.seen.append(f"began {state}")
        self.news.set()
        if self.fails:
            raise LongreinError("no")
        await self.go.wait()
        self.seen.append(f"ended {state}")
        self.news.set()
        return state

    def update(self, state: str) -> None:
        self.state = state
        self.line.update(state)

    async def until(self, seen: str) -> None:
        async with asyncio.timeout(HANG_S):
            while seen not in self.seen:
                self.news.clear()
                await self.news.wait()


@pytest.mark.anyio
async def test_A11_updates_are_gathered_and_a_newer_one_cancels() -> None:
    watched = Watched()
    for state in ("a", "b", "c", "c"):
        watched.update(state)
    await watched.until("began c")
    watched.update("c")
    watched.update("d")
    await watched.until("began d")
    watched.go.set()
    await watched.until("ended d")
    assert watched.seen == ["began c", "began d", "ended d"]
    watched.line.close()


@pytest.mark.anyio
async def test_A11_only_the_first_failure_is_said() -> None:
    watched = Watched(fails=True)
    for state in ("a", "b"):
        watched.update(state)
        await watched.until(f"began {state}")
        await asyncio.sleep(0)
    assert watched.noticed == ["no"]
    watched.line.close()


@pytest.mark.parametrize(
    ("url", "repo"),
    [
        ("git@github.com:owner/name.git", ("github.com", "owner", "name")),
        ("https://user:secret@gitlab.com/group/sub/name", ("gitlab.com", "group/sub", "name")),
        ("ssh://git@host.example:2222/owner/name.git", ("host.example", "owner", "name")),
        ("/somewhere/else.git", None),
    ],
)
def test_A11_the_repository_is_read_from_its_files(
    tmp_path: Path, url: str, repo: tuple[str, ...] | None
) -> None:
    git = tmp_path / "main/.git"
    (git / "worktrees/side").mkdir(parents=True)
    (git / "config").write_text(
        f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n\tfetch = x\n'
    )
    (tmp_path / "main/deep/er").mkdir(parents=True)
    (tmp_path / "side").mkdir()
    (tmp_path / "side/.git").write_text(f"gitdir: {git}/worktrees/side\n")
    wanted = {"repo": dict(zip(("host", "owner", "name"), repo, strict=True))} if repo else {}
    assert git_facts(str(tmp_path / "main/deep/er")) == wanted
    assert git_facts(str(tmp_path / "side")) == {"git_worktree": "side", **wanted}


@needs_sandbox
def test_A11_the_command_runs_in_the_sandbox_as_hooks_do(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "All done.\n"})
    (tmp_path / "home/.ssh").mkdir()
    (tmp_path / "home/.ssh/id_secret").touch()
    (tmp_path / "home/secret").touch()
    look = (
        'touch ~/made 2>/dev/null; echo "keys: $(ls ~/.ssh 2>/dev/null | wc -l) made: $(test '
        '-e ~/made && echo yes)"'
    )
    line = script(project, f"{look}; jq --version >/dev/null 2>&1; true")
    config = tmp_path / "home/.config/longrein/config.toml"
    config.write_text(f"{config.read_text()}\n[terminal]\n{line}\n")
    places = {"HOME": str(tmp_path / "home"), "LONGREIN_STATE_DIR": str(tmp_path / "state")}
    with PseudoTerminal("", project, **places) as tty:
        tty.until("keys: 0").ask("go").until("All done.").until("idle").settle()
        tty.send("\x04").exits(0)
    assert not (tmp_path / "home/made").exists()
