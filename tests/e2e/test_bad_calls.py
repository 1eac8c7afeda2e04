"""Bad input from the model: the call, the exact text it is told, what becomes of it. None of it
ends the session, and none changes a file that was there.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longrein.folder_trees import remove_tree
from longrein.testing.loopback import Call

from .harness import (
    CliHarness,
    Loopback,
    Provider,
    Turn,
    bash,
    call,
    calls,
    needs_bubblewrap,
    needs_sandbox,
    says,
)

NOBODY = (
    "Nobody is here to approve this. Go on with what you may do without it; if it cannot be done "
    "without, stop and say "
    "exactly what needs permission."
)


def raw(name: str, text: str) -> dict[str, Any]:
    """A call whose arguments came as this text."""
    return {"name": name, "raw": text}


GOES_ON = (
    "[not over after 0.2 s: it goes on in the background as b1. A note tells its end; until then "
    "TaskOutput shows "
    "what it prints and TaskStop(b1) ends it.]"
)
BAD_JSON = (
    "[bad-json] The arguments of Read are not a JSON object: Input data was truncated. "
    "Nothing was done; send"
)
BAD_ARGUMENT = '[bad-arguments] Glob: unknown argument "patern" (did you mean "pattern"?); it takes'
NO_ENTRY = (
    "[unknown-handle] There is no entry r999; the newest is NEWEST. Take handles from "
    "markers or from "
)
TABLE = [
    (raw("Read", '{"file_path": "a'), f"{BAD_JSON} valid JSON."),
    (
        call("Glob", patern="a", path="b"),
        (
            f"{BAD_ARGUMENT} pattern (required), path. Nothing was done; correct the call and send "
            "it again."
        ),
    ),
    (
        call("Read", file_path="pipe"),
        "[not-a-file] pipe is a device, pipe or socket, not a file. Name a regular file.",
    ),
    (
        call("Read", file_path="/dev/zero"),
        "[not-a-file] /dev/zero is a device, pipe or socket, not a file. Name a regular file.",
    ),
    (
        call("Write", file_path="two", content="y"),
        (
            "[not-read] PROJECT/two exists and you have not read it; nothing was written. Go by "
            "this and call again:\n1\tx"
        ),
    ),
    (
        bash("touch a\0b"),
        (
            "[bad-command] The command holds a NUL or an invalid character; nothing was run. "
            "Leave it out."
        ),
    ),
    (
        bash("frobnicate"),
        "bash: line 1: frobnicate: command not found\n[exit code 127 (command not found)]",
    ),
    (bash("kill -9 $$"), "[ended by signal SIGKILL]"),
    (call("Recall", handle="r999"), f"{NO_ENTRY}Recall(query=…), do not guess them."),
    (bash("read answer; echo got:$answer"), "got:"),
    (bash("sleep 97 & (setsid sleep 98 &) ; wait", timeout=200), GOES_ON),
    (bash("sleep 97 & echo gone"), "gone"),
]
"""(call, told); the last three succeed. Further mistakes: tests/tools."""
LEVELS = "d/" * 1_100
DIG = f"mkdir -p {LEVELS} /tmp/{LEVELS} && (cd /tmp/{LEVELS} && mkdir -p {LEVELS})"
"""Also in the private /tmp, with a path that is longer than the system takes."""


def test_bad_calls(cli: CliHarness) -> None:
    """All of one reply: none keeps another from its result."""
    os.mkfifo(cli.project / "pipe")
    (cli.project / "two").write_bytes(b"x\n")
    before = tree(cli.project)
    cli.plays(calls(*[made for made, _ in TABLE]), says("I see."))
    ran = cli.run("-p", "x", "--dangerously-skip-permissions", "--background", "exit")
    assert (ran.code, ran.text) == (0, "I see.\n")
    assert ran.err.startswith("longrein: b1 was not over when the answer was done, so it was ended")
    for number, ((made, told), (status, text)) in enumerate(zip(TABLE, cli.results(), strict=True)):
        assert re.sub(r"newest is r\d+", "newest is NEWEST", text) == told.replace(
            "PROJECT", str(cli.project)
        ), made
        assert status == ("ok" if number >= len(TABLE) - 3 else "failed"), made
    assert tree(cli.project) == before
    assert cli.wait_survivors() == []


def tree(folder: Path) -> dict[str, bytes]:
    """Content of each plain file."""
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


OUTSIDE = [
    ("Read", call("Read", file_path="../outside.txt")),
    ("Read by a link", call("Read", file_path="way")),
    ("Read of a system file", call("Read", file_path="/etc/hostname")),
    ("Write", call("Write", file_path="../new.txt", content="x")),
    ("Write by a link", call("Write", file_path="way", content="x")),
    ("Grep", call("Grep", pattern="x", path="..")),
    ("Glob", call("Glob", pattern="*", path="..")),
]


def test_a_path_outside_the_roots_asks_even_in_acceptEdits(cli: CliHarness) -> None:
    (cli.folder / "outside.txt").write_text("not yours\n")
    (cli.project / "way").symlink_to("../outside.txt")
    cli.plays(calls(*[made for _, made in OUTSIDE]), says("I may not."))
    before = tree(cli.folder)
    ran = cli.run("-p", "x", "--permission-mode", "acceptEdits")
    assert (ran.code, ran.text) == (3, "I may not.\n")
    assert ran.err.startswith("longrein: blocked: Glob needs permission (")
    for (name, _), (status, told) in zip(OUTSIDE, cli.results(), strict=True):
        assert (status, told[:8], told[-len(NOBODY) :]) == ("denied", "Denied: ", NOBODY), name
    assert {p: d for p, d in tree(cli.folder).items() if "/state/" not in p} == before


def test_a_huge_file_is_read_in_part_and_memory_stays_flat(cli: CliHarness) -> None:
    with (cli.project / "huge.log").open("wb") as file:
        file.truncate(3 << 30)
        file.write(b"the first line\n" * 4_000)
    cli.plays(calls(call("Read", file_path="huge.log", limit=2)), says("I see."))
    assert cli.run("-p", "x", preexec_fn=memory(600)).told() == (0, "I see.\n", "")
    note = "[lines 1-2 of a file of 3221.2 MB]"
    assert cli.results() == [("ok", f"1\tthe first line\n2\tthe first line\n{note}")]


@needs_bubblewrap
@pytest.mark.parametrize("made", [call("Write", file_path=f"{LEVELS}f", content="x"), bash(DIG)])
def test_more_levels_of_folders_than_python_calls_functions(made: Turn, cli: CliHarness) -> None:
    """The walks of the standard library raised in each later command: no session of this folder
    opened.
    """
    cli.plays(calls(made), calls(bash("touch new"), call("Glob", pattern="**/f*")), says("done"))
    assert cli.run("-p", "x", "--dangerously-skip-permissions").told() == (0, "done\n", "")
    assert [status for status, _ in cli.results()] == ["ok", "ok", "ok"]
    cli.plays(*[says("")] * 3, says("still here"))
    assert cli.run("-p", "x", "-c", "--dangerously-skip-permissions").text == "still here\n"
    gone = cli.session
    assert cli.run("sessions", "delete", gone).told() == (0, f"{gone} is gone\n", "")
    remove_tree(str(cli.project))


def memory(megabytes: int) -> Callable[[], None]:
    """No more than this much address space."""
    import resource

    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def test_a_file_that_vanishes_and_one_that_changes_between_read_and_edit(cli: CliHarness) -> None:
    for name in ("gone", "changed"):
        (cli.project / name).write_text("old words\n")
    cli.plays(
        calls(call("Read", file_path="gone"), call("Read", file_path="changed")),
        calls(bash("rm gone; echo theirs > changed")),
        calls(
            *[
                call("Edit", file_path=name, old_string="old", new_string="new")
                for name in ("gone", "changed")
            ]
        ),
        says("I see."),
    )
    assert cli.run("-p", "x", "--dangerously-skip-permissions").told() == (0, "I see.\n", "")
    gone, changed = cli.results()[-2:]
    assert gone[0] == changed[0] == "failed"
    assert gone[1].startswith(f"[not-found] No such file: {cli.project}/gone.")
    assert changed[1].startswith(f"[no-match] old_string is not in {cli.project}/changed."), (
        "it was told of the change"
    )
    assert (cli.project / "changed").read_text() == "theirs\n"


@pytest.mark.parametrize(
    ("rule", "rg"),
    [
        ("Read(./.env)", True),
        ("Read(./.env)", False),
        ("Read(**/.env)", False),
        ("Read(/.env)", True),
    ],
)
def test_A18_13_what_may_not_be_read_is_in_no_search(rule: str, rg: bool, cli: CliHarness) -> None:
    (cli.project / ".env").write_text("KEY=hunter2\n")
    (cli.project / "open.txt").write_text("hunter2 is told here\n")
    modes = ("content", "files_with_matches", "count")
    cli.plays(
        *[calls(call("Grep", pattern="hunter2", output_mode=mode)) for mode in modes],
        calls(call("Grep", pattern="KEY", glob=".env*", output_mode="content")),
        calls(call("Glob", pattern="**/*")),
        calls(
            call("Grep", pattern="KEY", path=".env"),
            bash("cat .env"),
            call("Read", file_path=".env"),
        ),
        says("I see."),
    )
    env = {} if rg else {"PATH": "/nowhere"}
    ran = cli.run("-p", "x", "--disallowedTools", rule, "--allowedTools", "Bash", env=env)
    assert ran.text == "I see.\n"
    found, denied = cli.results()[:5], cli.results()[5:]
    assert [text for _, text in found] == [
        "open.txt\n1:hunter2 is told here",
        "open.txt",
        "open.txt: 1",
        "Nothing found.",
        "open.txt",
    ]
    assert {status for status, _ in denied} == {"denied"}


SWEEPING = [
    "grep -r KEY .",
    "grep -rn KEY",
    "cd .. && grep -r KEY .",
    "rg --hidden KEY",
    "git grep --no-index KEY",
    "tar c .",
    "find . -exec cat {} +",
    "find . -type f | xargs cat",
    "cp -r . ../copy",
]


def test_A18_13_what_may_not_be_read_is_on_no_commands_way(cli: CliHarness) -> None:
    cli.without_sandbox()
    (cli.project / "deep").mkdir()
    (cli.project / "deep" / ".env").write_text("KEY=hunter2\n")
    cli.plays(calls(*map(bash, SWEEPING)), says("I see."))
    ran = cli.run("-p", "x", "--disallowedTools", "Read(.env)", "--dangerously-skip-permissions")
    assert ran.text == "I see.\n"
    end = (
        f"and the user's rule Read(.env) forbids {cli.project}/deep/.env there. "
        "Use Grep or Glob, which leave it out, or name the files to read"
    )
    for command, (status, text) in zip(SWEEPING, cli.results(), strict=True):
        assert status == "denied", command
        if "-exec" in command:  # a part of the command names the file
            assert text.startswith("Denied: the user's rule Read(.env) forbids this"), command
            continue
        assert text.startswith("Denied: this command reads what lies below "), command
        assert text.endswith(end), command


@needs_sandbox
def test_A18_13_the_sandbox_hides_what_may_not_be_read_from_every_command(cli: CliHarness) -> None:
    (cli.project / "deep").mkdir()
    (cli.project / "deep" / ".env").write_text("KEY=hunter2\n")
    tricks = [
        "cat $(echo deep/.e)nv",
        'python3 -c \'print(open("deep/.e" + "nv").read())\'',
        "cat /proc/self/cwd/deep/.e*",
    ]
    cli.plays(calls(*map(bash, SWEEPING + tricks)), says("I see."))
    ran = cli.run("-p", "x", "--disallowedTools", "Read(.env)")
    assert ran.text == "I see.\n"
    assert len(cli.results()) == len(SWEEPING + tricks)
    assert "hunter2" not in str(cli.results())


def test_a_folder_that_is_a_link_hides_what_may_not_be_read_in_it(cli: CliHarness) -> None:
    (cli.project / ".env").write_text("KEY=hunter2\n")
    (cli.folder / "link").symlink_to(cli.project)
    cli.plays(calls(call("Grep", pattern="KEY", output_mode="content")), says("I see."))
    assert cli.run("-p", "x", "--disallowedTools", "Read(.env)", cwd=cli.folder / "link").code == 0
    assert cli.results() == [("ok", "Nothing found.")]


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_R061_a_NUL_that_the_model_wrote_goes_back_to_no_provider(
    wire: str, cli: CliHarness
) -> None:
    """In its text, in a call, in a subagent's task: each was in all later requests, and each of
    those was refused.
    """
    turns = [
        Loopback(when="go", text="a\0b", calls=(Call("Bash", {"command": "printf 'a\0\\0b'"}),)),
        Loopback(
            when="go", calls=(Call("Agent", {"description": "x\0y", "prompt": "Task\0APPLE"}),)
        ),
        Loopback(when="go", text="done"),
        Loopback(when="APPLE", text="found \0 it"),
    ]
    with Provider(*turns) as provider:
        cli.settings(provider.settings(wire), "served/one")
        assert cli.run("-p", "go", "--dangerously-skip-permissions").told() == (0, "done\n", "")
        assert (provider.refused, provider.unused) == ([], [])
    assert cli.results()[0][0] == "failed"
    assert "found" in cli.results()[1][1]
