"""Parallel runs, odd terminals, open pipes, and leaks."""

import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longrein_context.events import PrefixSet
from tests.timeouts import wait_until

from .harness import (
    BYPASS,
    UNTIL_GO,
    CliHarness,
    RunResult,
    bash,
    call,
    calls,
    fails,
    says,
)

KEY = "sk-proj-4fJ8mN2qXw7LtR9vBz6KhD3s"
TOKENS = {
    "key of a provider": KEY,
    "GitHub": "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4",
    "AWS": "AKIAZ7QX4MPL2WJTN5VR",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dGhpc2lzYXNpZ25hdHVyZQ",
}


def test_R041_ten_runs_at_once_in_one_home(cli: CliHarness) -> None:
    cli.plays(
        calls(bash("echo here >> acts"), bash("sleep 0.05")),
        calls(call("Glob", pattern="*")),
        says("done"),
    )
    with ThreadPoolExecutor(10) as threads:
        runs: list[RunResult] = list(
            threads.map(lambda n: cli.run("-p", f"run {n}", BYPASS), range(10))
        )
    assert [ran.told() for ran in runs] == [(0, "done\n", "")] * 10
    assert len(cli.sessions) == 10
    assert (cli.project / "acts").read_text() == "here\n" * 10
    titles = {line["title"] for line in json.loads(cli.run("sessions", "--json").text)}
    assert titles == {f"run {n}" for n in range(10)}


def test_R039_of_two_openers_at_once_one_works_and_one_is_refused(cli: CliHarness) -> None:
    cli.plays(says("one"), calls(bash(UNTIL_GO)), says("two"))
    cli.run("-p", "x")
    going = [cli.start("-p", f"again {n}", "-c", BYPASS) for n in range(2)]
    wait_until(lambda: any(one.process.poll() is not None for one in going))
    cli.go()
    ran = sorted((g.end() for g in going), key=lambda r: r.code)
    assert [r.code for r in ran] == [0, 1]
    assert ran[0].text == "two\n"
    assert re.match(
        r"longrein: session \S+ is open in process \d+ on \S+; close that one, or go on", ran[1].err
    )
    assert cli.left().count("UserSpoke") == 2


def test_R092_stdin_that_never_ends(cli: CliHarness) -> None:
    """An open pipe that says nothing: the prompt goes on without it, and says so."""
    cli.plays(says("hello"))
    reading, writing = os.pipe()
    try:
        ran = cli.start("-p", "x", stdin=reading).end()
    finally:
        os.close(writing)
        os.close(reading)
    assert (ran.code, ran.text) == (0, "hello\n")
    assert (
        ran.err == "longrein: nothing came on stdin for 3 s: going on without it (to wait for it: "
        "longrein -p -)\n"
    )


def test_R092_stdin_closed(cli: CliHarness) -> None:
    cli.plays(says("hello"))
    assert cli.run("-p", "x", preexec_fn=lambda: os.close(0)).told() == (0, "hello\n", "")


def test_stdout_and_stderr_closed(cli: CliHarness) -> None:
    """No database gets the number of a closed descriptor."""
    cli.plays(calls(bash("echo hi; echo oh >&2")), says("hello"))

    def close() -> None:
        os.close(1)
        os.close(2)

    assert cli.run("-p", "x", BYPASS, preexec_fn=close).code == 0
    assert cli.results() == [("ok", "hi\noh")]


@pytest.mark.parametrize(
    "env",
    [
        {"TERM": "dumb", "LANG": "C", "LC_ALL": "C", "NO_COLOR": "1", "COLUMNS": "0"},
        {"LANG": "nowhere_XX.UTF-9", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX"},
    ],
)
def test_R095_any_locale(env: dict[str, str], cli: CliHarness) -> None:
    """JSONL stays pure UTF-8, text comes as it is, no UnicodeError."""
    words = "grüße 日本語 🙂 \u2028"
    cli.plays(
        calls(bash(f"echo '{words}'"), call("Write", file_path="ü.txt", content=words)), says(words)
    )
    ran = cli.stream(words, BYPASS, env=env)
    assert (ran.code, ran.err) == (0, "")
    assert ran.result["result"] == words
    assert (cli.project / "ü.txt").read_text(encoding="utf-8") == words
    assert cli.results()[0] == ("ok", words)
    assert cli.run("sessions", env=env).text.splitlines()[1].endswith(words.strip())
    assert cli.run("-p", "x", BYPASS, env=env).told() == (0, f"{words}\n", "")
    assert cli.run("doctor", env=env).code == 0


def test_S072_state_is_private_whatever_the_umask(cli: CliHarness) -> None:
    cli.plays(
        calls(bash("seq 1 40000; umask"), call("Write", file_path="new.txt", content="x")),
        says("done"),
    )
    ran = cli.run("-p", "x", BYPASS, preexec_fn=lambda: os.umask(0) and None)
    assert ran.code == 0
    ours = [
        p for p in cli.state.rglob("*") if "sandbox" not in p.parent.parts
    ]  # below it commands set the modes
    assert {stat.S_IMODE(p.stat().st_mode) for p in [cli.state, *ours] if p.is_dir()} == {0o700}
    assert {stat.S_IMODE(p.stat().st_mode) for p in ours if p.is_file()} <= {
        0o600,
        0o400,
    }  # git's objects
    assert any(p.parent.parent.name == "blobs" for p in cli.state.rglob("*"))


def test_S069_commands_do_not_see_secrets_of_the_environment(cli: CliHarness) -> None:
    secrets = {
        "OPENAI_API_KEY": KEY,
        "DB_PASSWORD": "hunter2hunter2",
        "MY_INTERNAL": "of no concern",
    }
    cli.plays(calls(bash("env")), says("done"))
    assert cli.run("-p", "x", BYPASS, env=secrets).code == 0
    ((_, told),) = cli.results()
    seen = {line.partition("=")[0] for line in told.splitlines()}
    assert not seen & set(secrets)
    assert {"HOME", "PATH", "LONGREIN_SESSION", "AI_AGENT", "LONGREIN_TEST_TAG"} <= seen
    assert not any(value in told for value in secrets.values())


@pytest.mark.parametrize("secret", TOKENS.values(), ids=TOKENS)
def test_S070_P11_a_secret_stands_neither_on_disk_nor_in_what_is_said(
    secret: str, cli: CliHarness
) -> None:
    """What the person types, a file holds, a command prints, the model says."""
    (cli.project / ".env").write_text(f"TOKEN={secret}\n")
    cli.plays(calls(call("Read", file_path=".env"), bash("cat .env")), says(f"It is {secret}."))
    ran = cli.stream(f"what is {secret}?", BYPASS, env={"OPENAI_API_KEY": KEY})
    assert ran.code == 0
    assert secret not in ran.text
    assert holding(secret, cli.state) == []
    assert secret not in cli.run("export", cli.session).text
    assert [told.count("secret: ") for _, told in cli.results()] == [1, 1]
    assert cli.run("-p", "and now?", "-c", env={"OPENAI_API_KEY": KEY}).code == 1
    assert cli.run("export", cli.session).text.count("secret: ") == 4, (
        "resumed, the same markers stand"
    )


@pytest.mark.parametrize(
    ("status", "flags"),
    [
        (401, ()),
        (401, ("--output-format", "json")),
        (401, ("--output-format", "stream-json", "--include-partial-messages")),
        (500, ("--verbose",)),
    ],
)
def test_P11_an_error_of_the_provider_that_echoes_the_key(
    status: int, flags: tuple[str, ...], cli: CliHarness
) -> None:
    """A key that has not the shape of one is known by its place in the environment."""
    key = "zebra-42-quartz-lamp"
    cli.plays(fails(status, f"Incorrect API key provided: {key}", times=99))
    ran = cli.run("-p", "x", *flags, env={"OPENAI_API_KEY": key})
    assert ran.code in (1, 75)
    assert "Incorrect API key provided: [longrein:" in ran.text + ran.err
    assert key not in ran.text + ran.err
    assert holding(key, cli.state) == []


def test_P11_a_secret_in_a_long_output_is_not_on_disk(cli: CliHarness) -> None:
    (cli.project / ".env").write_text(f"TOKEN={KEY}\n")
    cli.plays(calls(bash("seq 1 3000; cat .env; seq 1 30000")), says("done"))
    assert cli.run("-p", "x", BYPASS).code == 0
    assert holding(KEY, cli.state) == []


def holding(secret: str, folder: Path) -> list[str]:
    """Files in which the secret stands."""
    return [str(p) for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


def test_instruction_files_reach_the_request_and_are_in_the_log(cli: CliHarness) -> None:
    (cli.project / "AGENTS.md").write_text("Always answer in verse.\n")
    cli.plays(says("A rose"), says("is a rose"))
    assert cli.run("-p", "x", "--trust").told() == (0, "A rose\n", "")
    (cli.project / "AGENTS.md").write_text("Changed later.\n")
    assert cli.run("-p", "y", "-c", "--trust").told() == (0, "is a rose\n", "")
    prefixes = [e.event for e in cli.entries() if isinstance(e.event, PrefixSet)]
    assert len(prefixes) == 1, "what was sent once stands"
    assert "Always answer in verse." in "\n".join(prefixes[0].context)


def test_the_state_lies_outside_the_work_tree(cli: CliHarness) -> None:
    cli.plays(says("done"))
    env = {"LONGREIN_STATE_DIR": "", "XDG_STATE_HOME": ""}
    assert cli.run("-p", "x", env=env).code == 0
    assert sorted(p.name for p in cli.project.iterdir()) == [".git"]
    assert (cli.home / ".local/state/longrein/sessions").is_dir()


def test_the_result_tells_the_window_of_a_fallback_too(cli: CliHarness) -> None:
    cli.settings(
        'fallback_model = "play/two"\n[models."play/one"]\nwindow = 70000\nmax_output = 4000\n'
        '[models."play/two"]\nwindow = 50000\nmax_output = 2000'
    )
    cli.plays(calls(bash("echo a")), fails(529, "overloaded", times=3))
    ran = cli.stream("x", "--dangerously-skip-permissions")
    sizes = {
        name: (used["contextWindow"], used["maxOutputTokens"])
        for name, used in ran.lines[-1]["modelUsage"].items()
    }
    assert sizes == {"play/one": (70000, 4000), "play/two": (50000, 2000)}


def test_a_folder_below_the_root_is_on_the_branch_of_its_repository(cli: CliHarness) -> None:
    below = cli.project / "src/deep"
    below.mkdir(parents=True)
    cli.plays(says("so"))
    assert cli.run("-p", "x", cwd=below).code == 0
    (prefix,) = [entry.event for entry in cli.entries() if isinstance(entry.event, PrefixSet)]
    assert f"Current folder: {below}\nGit branch at the start: main\n" in prefix.context[0]
