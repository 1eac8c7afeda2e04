"""`longrein happened`: a script reports an event to a session, which another process has open or
opens next.
"""

import pytest

from longrein_context.events import Reminded
from tests.e2e.harness import CliHarness, bash, calls, of, says


def told(cli: CliHarness) -> str:
    return "\n".join(one.text for one in of(cli, Reminded))


def test_the_next_prompt_tells_what_scripts_have_reported(cli: CliHarness) -> None:
    cli.plays(says("hi"), says("I see"))
    assert cli.run("-p", "go").code == 0
    reports = [
        cli.run("happened", "program_message", "the", "build", "failed", "--source", "ci"),
        cli.run("happened", "diagnostics", "--source", "a.py", stdin=b"3: no such name\n4: E1\n"),
        cli.run(
            "happened",
            "program_message",
            "from a hook",
            env={"LONGREIN_SESSION": cli.session},
            cwd="/",
        ),
    ]
    assert [one.told() for one in reports] == [(0, "", "")] * 3
    assert cli.run("-p", "-c", "and?").code == 0
    for line in ("* ci\n| the build failed", "* a.py\n| 3: no such name\n| 4: E1", "| from a hook"):
        assert line in told(cli)


def test_a_working_session_is_told_with_its_next_request(cli: CliHarness) -> None:
    cli.without_sandbox()
    command = f"{cli.command[0]} happened program_message 'half of it is copied' --source backup"
    cli.plays(calls(bash(command)), says("I see"))
    assert cli.run("-p", "go", "--dangerously-skip-permissions").code == 0
    assert told(cli).endswith("* backup\n| half of it is copied")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("mode", "x"),
            2,
            "there is no kind of event 'mode'; kinds are program_message, diagnostics",
        ),
        (("program_message",), 2, "what has happened? longrein happened KIND TEXT"),
        (("program_message", "x", "--session", "ffff"), 1, "no session begins with ffff"),
        (("program_message", "x"), 1, "there is no session of"),
        ((), 2, "longrein happened --help"),
    ],
)
def test_a_report_that_cannot_be_made_is_one_line(
    cli: CliHarness, words: tuple[str, ...], code: int, said: str
) -> None:
    done = cli.run("happened", *words)
    assert (done.code, said in done.err, done.err.count("\n")) == (code, True, 1), done.err
