"""`longrein context --as-sent N`: a request as the model got it."""

from tests.e2e.harness import CliHarness, call, calls, says


def test_a_request_is_printed_as_it_was_sent(cli: CliHarness) -> None:
    (cli.project / "a.txt").write_text("alpha\x1b[31m\n")
    cli.plays(calls(call("Read", file_path="a.txt")), says("It says alpha."))
    assert cli.run("-p", "What does a.txt say?").code == 0
    (session,) = cli.sessions
    first, second = (cli.run("context", session, "--as-sent", n).text for n in ("1", "2"))
    assert "--- user, r" in first
    assert "What does a.txt say?" in first
    assert "--- call Read" not in first, "what came later is not shown"
    assert '{"file_path":"a.txt"}' in second
    assert "--- result Read, ok, r" in second
    assert "alpha" in second
    assert "\x1b" not in second
    assert second.startswith("--- system\n")
    none = cli.run("context", session, "--as-sent", "3")
    assert none.code == 2
    assert "the session has 2 requests; there is no 3" in none.err
