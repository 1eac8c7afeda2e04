"""Resume: choice of the session, forks, limits, and exports."""

import json
import re
import shutil
import sqlite3
from binascii import crc32

import pytest

from longrein_context.events import ModeSet, Opened, decode_entry, encode_event

from .harness import BYPASS, CliHarness, bash, call, calls, fails, says

UUID = "0192d0c8-0000-7000-8000-0000000000aa"
PRICE = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}


def test_c_takes_the_newest_of_this_folder(cli: CliHarness) -> None:
    cli.plays(says("one"), says("two", expect="and now"))
    assert cli.run("-p", "first", "--session-id", UUID).told() == (0, "one\n", "")
    other = cli.folder / "elsewhere"
    other.mkdir()
    assert cli.run("-p", "there", cwd=other).told() == (0, "one\n", "")
    assert cli.run("-p", "and now", "-c").told() == (0, "two\n", "")
    assert cli.left_of(UUID).count("UserSpoke") == 2


def test_a_start_without_a_model_leaves_no_session(cli: CliHarness) -> None:
    cli.settings(model="nobody/one")
    assert (cli.run("-p", "x").code, cli.sessions) == (1, [])


def test_a_fork_leaves_the_original_and_keeps_nonce_and_handles(cli: CliHarness) -> None:
    cli.plays(
        calls(bash("seq 1 20000")),
        says("one"),
        calls(
            call("Recall", handle="{{handle}}", lines="19999-20000"),
            find={"handle": r'Recall\(handle="(r[\d.]+)"'},
        ),
        says("two"),
    )
    assert cli.run("-p", "x", BYPASS, "--session-id", UUID).told() == (0, "one\n", "")
    before = cli.entries(UUID)
    copy = UUID[:-1] + "c"
    assert cli.run("-p", "again", "-c", "--fork-session", "--session-id", copy, BYPASS).told() == (
        0,
        "two\n",
        "",
    )
    assert cli.entries(UUID) == before
    old, new = before[0].event, cli.entries(copy)[0].event
    assert isinstance(old, Opened)
    assert isinstance(new, Opened)
    assert (new.nonce, new.session, new.parent and new.parent.session) == (old.nonce, copy, UUID)
    status, recalled = cli.results(copy)[-1]
    assert status == "ok", recalled
    assert re.findall(r"\b(?:19999|20000)\b", recalled)[-1] == "20000"


def test_a_fork_of_a_session_that_is_open_elsewhere(cli: CliHarness) -> None:
    """What the refusal of a second opener advises."""
    cli.plays(calls(bash("sleep 97")), says("in the copy"))
    going = cli.start("-p", "x", BYPASS, "--output-format", "stream-json")
    going.wait_for("assistant")
    ran = cli.run("-p", "go on", "-c", "--fork-session", BYPASS)
    going.send(15)
    assert going.end().code == 143
    assert ran.told() == (0, "in the copy\n", "")


def test_max_turns_then_c_goes_on(cli: CliHarness) -> None:
    cli.plays(*[calls(bash(f"echo {n} >> acts")) for n in range(4)], says("done"))
    first = cli.stream("x", "--max-turns", "2", BYPASS)
    assert (first.code, first.result["subtype"], first.result["num_turns"]) == (
        4,
        "error_max_turns",
        2,
    )
    assert (
        first.err
        == "longrein: the limit of 2 turns is reached; go on with -c and a higher --max-turns\n"
    )
    second = cli.run("-p", "go on", "-c", "--max-turns", "9", BYPASS)
    assert second.told() == (0, "done\n", "")
    assert (cli.project / "acts").read_text() == "0\n1\n2\n3\n"


def test_max_budget_refuses_before_the_request(cli: CliHarness) -> None:
    cli.plays(
        *[calls(bash(f"seq {n} 2000")) for n in range(9)],
        says("done"),
        price=PRICE,
        max_output_tokens=1_000,
    )
    first = cli.stream("x", "--max-budget-usd", "0.05", BYPASS)
    assert (first.code, first.result["subtype"]) == (4, "error_max_budget_usd")
    assert first.err.startswith("longrein: the money limit stands: $0.0")
    assert first.err.endswith("; go on with -c and a higher --max-budget-usd\n")
    assert 0 < first.result["total_cost_usd"] <= 0.05
    assert cli.run("-p", "go on", "-c", "--max-budget-usd", "5", BYPASS).told() == (0, "done\n", "")


def test_sessions_as_json(cli: CliHarness) -> None:
    cli.plays(says("one"))
    assert (
        cli.run("sessions").text
        == 'no sessions yet: start one with longrein, or longrein -p "..."\n'
    )
    assert json.loads(cli.run("sessions", "--json").text) == []
    cli.run("-p", "first\n  words", "--session-id", UUID)
    (listed,) = json.loads(cli.run("sessions", "--json").text)
    shown = {key: listed[key] for key in ("session", "cwd", "title", "entries", "open", "damaged")}
    assert shown == {
        "session": UUID,
        "cwd": str(cli.project),
        "title": "first words",
        "entries": 6,
        "open": False,
        "damaged": False,
    }


def test_exports(cli: CliHarness) -> None:
    cli.plays(calls(bash("echo hi"), text="I look."), says("done"))
    cli.run("-p", "say hi", BYPASS, "--session-id", UUID)
    exported = cli.run("export", UUID[:6])
    assert [decode_entry(line) for line in exported.out.splitlines()] == cli.entries()
    assert cli.run("export", UUID, "-o", "log.jsonl").told() == (0, "", "")
    assert (cli.project / "log.jsonl").read_bytes() == exported.out
    ran = cli.run("export", UUID, "--format", "transcript")
    (path,) = (cli.project / ".transcripts").iterdir()
    assert re.fullmatch(r"transcript_\d+\.jsonl", path.name)
    assert ran.told() == (0, "", f"longrein: written to .transcripts/{path.name}\n")
    turns = [json.loads(line) for line in path.read_text().splitlines()]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant"]
    assert "say hi" in json.dumps(turns[0])
    assert "done" in json.dumps(turns[-1])


def typed(*lines: object) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def user(content: object, **more: object) -> dict[str, object]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def test_NUL_in_a_message_is_replaced(cli: CliHarness) -> None:
    cli.plays(says("one"))
    ran = cli.run(
        *("-p", "--input-format", "stream-json", "--output-format", "stream-json"),
        stdin=typed(user("a\0b")),
    )
    assert ran.code == 0
    assert "\0" not in cli.run("export", cli.session).text.replace("\\u0000", "\0")


def test_a_denial_is_exit_3_and_listed(cli: CliHarness) -> None:
    cli.plays(calls(call("Write", file_path="new", content="x")), says("I may not."))
    ran = cli.stream("x")
    assert ran.code == 3
    assert ran.result["permission_denials"] == [
        {
            "tool_name": "Write",
            "tool_use_id": "c4.0",
            "tool_input": {"file_path": "new", "content": "x"},
        }
    ]
    assert (ran.result["subtype"], ran.result["is_error"], ran.result["result"]) == (
        "error_during_execution",
        True,
        "I may not.",
    )
    assert ran.err == (
        "longrein: blocked: Write needs permission (file_path: new): allow it with "
        f"--permission-mode acceptEdits or --allowedTools 'Edit(/{cli.project}/new)'\n"
    )
    assert not (cli.project / "new").exists()


def test_what_the_refusal_advises_works(cli: CliHarness) -> None:
    cli.plays(calls(call("Write", file_path="new", content="x")), says("Done."))
    rule = cli.run("-p", "x").err.partition("--allowedTools '")[2].rstrip("'\n")
    assert cli.run("-p", "x", "--allowedTools", rule).told() == (0, "Done.\n", "")
    assert (cli.project / "new").read_text() == "x"


@pytest.mark.parametrize("seq", [2, 7])
def test_a_damaged_entry_is_told_and_the_session_goes_on(cli: CliHarness, seq: int) -> None:
    """Also one that every request needs, such as the prefix."""
    cli.plays(calls(bash("echo hi")), says("done"), says("done again"))
    assert cli.run("-p", "do it", BYPASS).code == 0
    change(cli, seq, b"{}", crc=1)
    ran = cli.run("-p", "and now", "-c", BYPASS)
    assert (ran.code, "Traceback" in ran.err, "done" in ran.text) == (0, False, True), ran.err
    assert "damaged" in ran.err


def change(cli: CliHarness, seq: int, body: bytes, *, crc: int = 0, last: int = 0) -> None:
    """Put `body` in the place of entry `seq`, with its checksum unless another is given; cut the
    log after `last`.
    """
    connection = sqlite3.connect(cli.session_folder() / "log.sqlite")
    key = 1 << 40 | seq
    connection.execute(
        "UPDATE entries SET body = ?, crc = ? WHERE key = ?", (body, crc or crc32(body), key)
    )
    if last:
        connection.execute("DELETE FROM entries WHERE key > ?", (1 << 40 | last,))
    connection.commit()
    connection.close()
    (cli.session_folder() / "high-water-mark").unlink()  # as a longrein that kept none


LAPSED = (
    "longrein: mode bypassPermissions is not restored: the session goes on in mode default; give "
    "--permission-mode "
    "bypassPermissions to have it again\n"
)
MODES: list[tuple[list[str], list[str], str, str]] = [
    ([BYPASS], ["-c"], "default", LAPSED),
    ([BYPASS], ["-r", UUID[:8]], "default", LAPSED),
    ([BYPASS], ["-c", "--fork-session"], "default", LAPSED),
    ([BYPASS], ["-c", BYPASS], "bypassPermissions", ""),
    ([BYPASS], ["-c", "--permission-mode", "plan"], "plan", ""),
    (["--permission-mode", "acceptEdits"], ["-c"], "acceptEdits", ""),
    (["--permission-mode", "plan"], ["-c"], "plan", ""),
]


@pytest.mark.parametrize(("first", "then", "mode", "told"), MODES)
def test_a_mode_that_allows_everything_is_asked_for_in_each_run(
    first: list[str], then: list[str], mode: str, told: str, cli: CliHarness
) -> None:
    cli.plays(says("one"), says("two"))
    cli.run("-p", "x", "--session-id", UUID, *first)
    assert cli.run("-p", "y", *then).told() == (0, "two\n", told)
    assert [e.event.mode for e in cli.entries() if isinstance(e.event, ModeSet)][-1] == mode


def test_c_without_a_prompt_goes_on_after_the_provider_failed_for_good(cli: CliHarness) -> None:
    cli.plays(calls(bash("echo one >> acts")), fails(401, "invalid x-api-key"))
    assert cli.run("-p", "x", BYPASS, "--session-id", UUID).code == 1
    cli.plays(calls(bash("echo one >> acts")), says("it is done"))
    assert cli.run("-p", "-c", BYPASS).told() == (0, "it is done\n", "")
    assert (cli.project / "acts").read_text() == "one\n"
    ran = cli.run("-p", "-c", BYPASS)
    assert ran.told() == (
        2,
        "",
        "longrein: nothing to go on with: the last turn has ended; give a prompt\n",
    )


def test_c_goes_on_with_the_newest_session_that_is_not_open_elsewhere(cli: CliHarness) -> None:
    other = UUID[:-1] + "b"
    cli.plays(says("one"))
    cli.run("-p", "first words", "--session-id", UUID)
    cli.plays(calls(bash("sleep 97")), says("later"))
    going = cli.start("-p", "x", BYPASS, "--session-id", other, "--output-format", "stream-json")
    going.wait_for("assistant")
    cli.plays(says("one"), says("two"))
    told = (
        f"longrein: session {other} is open in another process; going on with {UUID} (first "
        "words)\n"
    )
    assert cli.run("-p", "and now", "-c").told() == (0, "two\n", told)
    shutil.rmtree(cli.session_folder(UUID))
    ran = cli.run("-p", "and now", "-c")
    going.send(15)
    assert going.end().code == 143
    assert (ran.code, ran.text) == (1, "")
    assert re.match(
        rf"longrein: session {other} is open in process \d+ on \S+; close that one, or go on in a",
        ran.err,
    )


@pytest.mark.parametrize("forged", [b'"roots":["/"]', b'"roots":["/","/etc"]'])
def test_S052_roots_of_an_edited_log_count_for_nothing(forged: bytes, cli: CliHarness) -> None:
    cli.without_sandbox()
    secret = cli.folder / "secret.txt"
    secret.write_text("canary-4711")
    cli.plays(
        says("one"), calls(call("Read", file_path=str(secret)), bash(f"cat {secret}")), says("two")
    )
    cli.run("-p", "x", "--session-id", UUID)
    body = encode_event(cli.entries()[0].event)
    change(cli, 1, re.sub(rb'"roots":\[[^]]*\]', forged, body))
    ran = cli.run("-p", "y", "-c")
    assert ran.code == 3
    assert [status for status, _ in cli.results()] == ["denied", "denied"]
    assert f"this session worked in /, and goes on in {cli.project}" in ran.err or "/etc" in ran.err
    assert "canary-4711" not in "".join(text for _, text in cli.results())


def test_a_session_that_goes_on_in_another_folder_works_there(cli: CliHarness) -> None:
    other = cli.folder / "other"
    other.mkdir()
    cli.plays(says("one"), calls(bash("pwd")), says("two"))
    cli.run("-p", "x", "--session-id", UUID)
    ran = cli.run("-p", "y", "-r", UUID, cwd=other)
    note = (
        f"longrein: this session worked in {cli.project}, and goes on in {other}; --add-dir "
        "names further folders\n"
    )
    assert ran.told() == (0, "two\n", note)
    assert cli.results() == [("ok", str(other))]
