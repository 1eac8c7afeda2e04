"""Bad input, as a person meets it: what is done, the exact line on the screen, the exit code, what
is on disk after.

`test_every_error_has_a_row` fails when an error of the tree has none. What the model is told of its
own bad calls is in `test_bad_calls`.
"""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from longrein.config.model_choice import NoModelFound
from longrein.extensions.transcripts.import_transcript import TranscriptUnknown
from longrein.store.blobs import BlobDamaged
from longrein.store.bundle import BundleError
from longrein.store.database import row_checksum
from longrein_context.events import (
    BudgetError,
    LongreinError,
    ModelUnknown,
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionReadOnly,
    SessionTakenOver,
    SessionUnknown,
    SettingsError,
    StoreDamaged,
    StoreFull,
    ToolError,
    TurnFailed,
    UsageError,
    UserSpoke,
    text_of,
)
from longrein_fleet.runner import TaskFileError

from .harness import BYPASS, CliHarness, Loopback, Provider, bash, call, calls, full, says

TURN = "Opened PrefixSet UserSpoke Asked Replied TurnEnded:done"
NOTHING = "no session"
KNOWN = (
    "play, anthropic, openai, gemini, openrouter, deepseek, moonshot, mistral, xai, qwen, zai, "
    "minimax, groq, "
    "cerebras, together, fireworks, ollama, lmstudio, llamacpp, vllm"
)
CONFIG = "~/.config/longrein/config.toml"


# --- How things are brought about -----------------------------------------------------------------


def a_session(cli: CliHarness) -> None:
    """One session that is over."""
    assert cli.run("-p", "hello").told() == (0, "hello to you\n", "")


def misspelt(cli: CliHarness) -> None:
    """The person's settings hold a key that is none."""
    cli.config.write_text('[providers.play]\nwires = "scripted"\n')


def plays(*turns: dict[str, object]) -> Callable[[CliHarness], None]:
    """The model plays `turns`."""
    return lambda cli: cli.plays(*turns)


def broken(cli: CliHarness) -> None:
    """The database of the session is noise from its first byte on."""
    a_session(cli)
    folder = cli.session_folder()
    for name in ("log.sqlite-wal", "log.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / "log.sqlite").write_bytes(b"\xa5" * 40_000)


def from_the_future(cli: CliHarness) -> None:
    """The last entry was written by a newer longrein."""
    a_session(cli)
    with sqlite3.connect(cli.session_folder() / "log.sqlite") as database:
        row = database.execute(
            "SELECT key, at, body FROM entries ORDER BY key DESC LIMIT 1"
        ).fetchone()
        crc = row_checksum(row[0], row[1], 99, row[2])
        database.execute("UPDATE entries SET version = 99, crc = ? WHERE key = ?", (crc, row[0]))
    database.close()


# --- The table ------------------------------------------------------------------------------------


TABLE = """
unknown flag | 2 | --frob
    longrein has no flag --frob; see longrein --help
folder that is not there | 2 | -p x --add-dir STAGE/no
    --add-dir: STAGE/no is not a folder
export to nowhere | 1 | export SESSION -o STAGE/no/file
    STAGE/no/file cannot be written: No such file or directory
export over a file | 2 | export SESSION -o STAGE/script.json
    STAGE/script.json is there already; name another file with -o
nothing to go on with | 2 | -p -c
    nothing to go on with: the last turn has ended; give a prompt
unknown provider | 1 | -p x --model nope/large
    Unknown provider 'nope' in 'nope/large' (--model). Known are KNOWN; another needs
    [providers.nope] in CONFIG.
no key | 1 | -p x --model anthropic/claude-opus-5
    No key for anthropic: `longrein login anthropic` keeps one,
    longrein: or set ANTHROPIC_API_KEY, or use another with --model PROVIDER/MODEL.
    longrein: `longrein demo` shows a real job without a key.
refused answer | 1 | -p x
    the model declined to answer; say it in another way or use another model
money limit without a price | 2 | -p x --max-budget-usd 1
    a money limit needs the price of play/one: give it as [models."play/one"] price_input and
    price_output in config.toml
unknown key | 2 | -p x
    CONFIG:2: providers.play.wires is not a setting: did you mean providers.play.wire?
settings nested deep | 2 | -p x --settings DEEP
    --settings is no JSON object: it is nested deeper than 100 levels
no such session | 1 | -p x -r 0192
    no session begins with 0192; `longrein sessions` lists them
no session here | 1 | -p x -c
    there is no session of STAGE/project to go on with; start one without -c
S043 path as id | 1 | -p x -r ../../x
    '../../x' is not a session id; `longrein sessions` lists them
id that is taken | 1 | -p x --session-id SESSION
    there is already a session SESSION; go on with `longrein -r SESSION`
written by a newer longrein | 1 | -p x -c
    entry 6 of this session was written by a newer longrein; upgrade it, or export it
corrupt database | 1 | export SESSION
    the database in STATE/sessions/SESSION is damaged (file is not a database); open the session
    again to repair it
"""
"""Name, exit code, command line, and the lines on stderr."""
ROWS = re.findall(r"^(\S.*) \| (\d) \| (.*)\n((?:    .*\n)+)", TABLE, re.M)
BEFORE = {
    **dict.fromkeys(("export to nowhere", "export over a file", "id that is taken"), a_session),
    "nothing to go on with": a_session,
    "refused answer": plays(says("I would rather not.", stop="refusal")),
    "unknown key": misspelt,
    "written by a newer longrein": from_the_future,
    "corrupt database": broken,
}
"""What is done before."""
LEFT = {
    "refused answer": "Opened PrefixSet UserSpoke Asked Replied TurnEnded:error",
    "written by a newer longrein": "",
    "corrupt database": "",
}
"""What is in the log after, where it is another one; '' where it cannot be read."""
ERRORS: dict[str, type[LongreinError]] = {
    "unknown flag": UsageError,
    "unknown provider": ModelUnknown,
    "money limit without a price": BudgetError,
    "unknown key": SettingsError,
    "no such session": SessionUnknown,
    "id that is taken": SessionError,
    "written by a newer longrein": SessionReadOnly,
    "corrupt database": StoreDamaged,
}
"""The class of the tree that a row shows."""
ELSEWHERE = {
    SessionTakenOver: "tests/store/test_postgresql.py: who was stopped is taken over",
    SessionBusy: "tests/e2e/test_parallel_runs.py: of two openers at once one is refused",
    StoreFull: "test_a_full_disk_is_said_and_loses_nothing",
    ToolError: "test_bad_calls.TABLE: it never reaches a person",
    BundleError: "tests/store/test_bundle.py: edited and damaged bundles",
    TranscriptUnknown: "tests/transcripts: files of no known format",
    BlobDamaged: "tests/store/test_repair.py: a blob is not what was written",
    TurnFailed: "tests/test_sdk.py: a program catches it",
    SessionClosed: "tests/test_sdk.py: a program that goes on after close",
    TaskFileError: "tests/fleet/test_run.py: every problem of the file with its line number",
    NoModelFound: "tests/e2e/test_login.py: without a model three lines say what to do",
    LongreinError: "the root",
}


@pytest.mark.parametrize(("name", "code", "words", "told"), ROWS, ids=[row[0] for row in ROWS])
def test_bad_input(name: str, code: str, words: str, told: str, cli: CliHarness) -> None:
    cli.plays(says("hello to you"))
    BEFORE.get(name, lambda _: None)(cli)
    names = {
        "SESSION": cli.session,
        "STAGE": str(cli.folder),
        "STATE/": f"{cli.state}/",
        "KNOWN": KNOWN,
        "CONFIG": CONFIG,
        "DEEP": '{"a":' * 2_000 + "1" + "}" * 2_000,
    }
    ran = cli.run(*[named(word, names) for word in words.split()])
    lines = re.sub(r"\n(?!longrein: )", " ", textwrap.dedent(told).strip())
    assert (ran.code, ran.err) == (int(code), f"longrein: {named(lines, names)}\n")
    assert ran.text == ""
    left = LEFT.get(name, TURN if BEFORE.get(name) is a_session else NOTHING)
    if left:
        assert cli.left() == left
    assert sorted(os.listdir(cli.project)) == [".git"]


def named(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def test_every_error_has_a_row() -> None:
    shown = {*ERRORS.values(), *ELSEWHERE}
    assert [error.__name__ for error in tree(LongreinError) if error not in shown] == []
    codes = {name: int(code) for name, code, _, _ in ROWS}
    assert {name: error.exit_code for name, error in ERRORS.items()}.items() <= codes.items()


def tree(root: type[LongreinError]) -> Iterator[type[LongreinError]]:
    yield root
    for below in root.__subclasses__():
        yield from tree(below)


# --- What takes more than a row -------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_a_refused_key_is_one_line_on_each_wire(wire: str, cli: CliHarness) -> None:
    with Provider(Loopback(text="never said"), keys=("right",)) as provider:
        cli.settings(provider.settings(wire) + 'api_key_env = "SERVED_KEY"\n', model="served/large")
        ran = cli.run("-p", "x", env={"SERVED_KEY": "wrong-key-of-mine"})
    assert (ran.code, ran.text) == (1, "")
    assert ran.err.startswith("longrein: the provider refused the key (HTTP 40")
    assert ran.err.endswith(
        "; it came from SERVED_KEY; set another there, or in a session `/login served` asks for "
        "one and offers to use it\n"
    )
    assert ran.err.count("\n") == 1
    assert "wrong-key-of-mine" not in ran.err
    assert cli.left() == "Opened PrefixSet UserSpoke Asked AskFailed:auth TurnEnded:error"


def test_no_network_is_said_at_once_and_ctrl_c_ends_the_waiting(cli: CliHarness) -> None:
    cli.settings(
        '[providers.served]\nwire = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\n',
        model="served/a",
    )
    going = cli.start("-p", "x", "--output-format", "stream-json")
    retry = going.wait_for("system/api_retry")
    assert (retry["attempt"], retry["error_status"]) == (1, None)
    going.send(signal.SIGINT)
    ran = going.end()
    assert ran.code == 130
    assert (
        cli.left()
        == "Opened PrefixSet UserSpoke Asked AskFailed:network Interrupted TurnEnded:interrupted"
    )


def test_a_longer_wait_for_the_provider_is_said_without_being_wished_for(cli: CliHarness) -> None:
    cli.plays(
        {"text": "so", "fault": {"status": 529, "message": "Overloaded", "retry_after_s": 2.5}}
    )
    going = cli.start("-p", "x")
    assert going.process.stderr is not None
    line = going.process.stderr.readline().decode()
    assert line.startswith("longrein: retrying in ")
    assert line.endswith(" s, attempt 2 of 10: Overloaded (HTTP 529)\n")
    going.send(signal.SIGINT)
    assert going.end().code == 130


def test_what_was_cut_of_the_instructions_is_said_and_is_no_change_on_disk(cli: CliHarness) -> None:
    (cli.project / "AGENTS.md").write_text("line of text\n" * 4000)
    cli.plays(calls(bash("true")), says("done"))
    cut = "AGENTS.md was cut: instruction files may hold 32768 bytes together."
    assert cli.run("-p", "x", "--trust", "--allowedTools", "Bash(true)").told() == (
        0,
        "done\n",
        f"longrein: {cli.project}/{cut}\n",
    )
    assert "Reminded" not in cli.left()


@pytest.mark.parametrize("limit_bytes", [0, 30_000, 150_000])
def test_a_full_disk_is_said_and_loses_nothing(limit_bytes: int, cli: CliHarness) -> None:
    cli.plays(*[calls(bash(f"printf %02000{n}d 1")) for n in range(9)], says("done"))
    ran = cli.run(
        "-p",
        "x",
        "--dangerously-skip-permissions",
        env={
            "PYTHONDONTWRITEBYTECODE": "1"
        },  # it would be cut as well, and be found by whoever imports next
        preexec_fn=full(limit_bytes),
    )
    folder = cli.session_folder(cli.sessions[0])
    assert ran.code == StoreFull.exit_code
    assert ran.text == ""
    assert ran.err.startswith(f"longrein: cannot write to {folder} (")
    assert ran.err.endswith(f"); free some room, then go on with `longrein -r {folder.name}`\n")
    assert ran.err.count("\n") == 1
    prompt = [] if "UserSpoke" in cli.left() else ["x"]
    again = cli.run("-p", *prompt, "-r", folder.name, "--dangerously-skip-permissions")
    assert again.told() == (0, "done\n", "")
    assert len(cli.results()) == 9


def test_a_folder_that_was_removed_under_the_shell(cli: CliHarness) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -p x'
    ran = subprocess.run(
        ["bash", "-c", script, cli.command[0]],
        cwd=cli.folder,
        env=cli.env,
        capture_output=True,
        check=False,
    )
    line = b"longrein: the folder that this shell is in has been removed: cd to one that is there\n"
    assert (ran.returncode, ran.stdout, ran.stderr.splitlines(True)[-1]) == (2, b"", line)


@pytest.mark.parametrize(
    "path",
    [
        "caf\\xe9",
        "caf\\xe9/CLAUDE.md",
        ".claude/rules/caf\\xe9.md",
        ".claude/commands/caf\\xe9.md",
        ".claude/agents/caf\\xe9.md",
        ".claude/skills/caf\\xe9/SKILL.md",
    ],
)
def test_a_name_in_latin_1(path: str, cli: CliHarness) -> None:
    """A path that JSON cannot hold stood in the first entries: no session began in this folder."""
    git = "rm -r .git; git init -q; git config user.name $'caf\\xe9'; git config user.email me"
    lines = (
        f"{git}; git checkout -qb $'caf\\xe9'; echo f > f; git add f; git commit -qm $'caf\\xe9'"
    )
    text = "---\ndescription: one\n---\nhello\n"
    lines += f"; mkdir -p \"$(dirname $'{path}')\"; printf -- '{text}' > $'{path}'"
    subprocess.run(["bash", "-c", lines], cwd=cli.project, env=cli.env, check=True)
    cli.plays(calls(bash("cat caf*/*; echo y | tee -a caf* new")), says("done"), says("again"))
    assert cli.run("-p", "x", BYPASS, "--trust").text == "done\n"
    assert cli.run("-p", "x", "-c", BYPASS, "--trust").text == "again\n"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (".gitignore", "[z-a]\n*.o\n"),
        (".gitignore", '{"a":[1,{"hooks":[{"timeout":-1}]}]}'),
        (".git", "gitdir: a\0b\n"),
        (".git", "\0" * 4_000),
    ],
)
def test_a_file_of_git_that_git_would_not_write(path: str, content: str, cli: CliHarness) -> None:
    if path == ".git":
        shutil.rmtree(cli.project / ".git")
    (cli.project / path).write_text(content)
    (cli.project / "a.o").touch()
    (cli.project / "b.c").touch()
    cli.plays(calls(call("Glob", pattern="*"), bash("touch new")), says("done"))
    assert cli.run("-p", "see @b.c and @b", BYPASS).told() == (0, "done\n", "")
    assert [status for status, _ in cli.results()] == ["ok", "ok"]


def test_files_of_a_session_that_are_no_files(cli: CliHarness) -> None:
    cli.plays(says("hello to you"), says("again"))
    a_session(cli)
    folder = cli.session_folder()
    (folder / "high-water-mark").unlink()
    os.mkfifo(folder / "high-water-mark")
    assert cli.run("-p", "x", "-c").told() == (0, "again\n", "")
    (folder / "lock").unlink()
    (folder / "lock").mkdir()
    ran = cli.run("sessions", "delete", folder.name)
    line = f"longrein: {folder} cannot be deleted: Is a directory\n"
    assert ran.told() == (1, "", line)


@pytest.mark.parametrize("flag", ["--system-prompt", "--append-system-prompt"])
def test_a_flag_in_latin_1(flag: str, cli: CliHarness) -> None:
    cli.plays(says("done"))
    assert cli.run("-p", b"caf\xe9", flag, b"caf\xe9").text == "done\n"


@pytest.mark.parametrize("words", [["sessions"], ["--help"], ["export", "SESSION"]])
def test_a_full_disk_under_stdout(words: list[str], cli: CliHarness) -> None:
    cli.plays(says("hello to you"))
    a_session(cli)
    with open("/dev/full", "wb") as full_disk:
        ran = cli.run(
            *[named(word, {"SESSION": cli.session}) for word in words], stdout=full_disk.fileno()
        )
    assert (ran.code, ran.raw_err) == (
        1,
        b"longrein: stdout cannot be written: No space left on device\n",
    )


def test_an_export_that_does_not_fit_leaves_no_half_file(cli: CliHarness) -> None:
    cli.plays(calls(bash("printf %020000d 1")), says("done"))
    assert cli.run("-p", "x", "--dangerously-skip-permissions").code == 0
    ran = cli.run("export", cli.session, "-o", "whole.jsonl", preexec_fn=full(8_192))
    assert ran.told() == (1, "", "longrein: whole.jsonl cannot be written: File too large\n")
    assert not (cli.project / "whole.jsonl").exists()


@pytest.mark.parametrize(
    "words", [["export", "SESSION"], ["-p", "y", "-c", "--output-format", "stream-json"]]
)
def test_a_reader_that_left_is_no_traceback(words: list[str], cli: CliHarness) -> None:
    """`longrein … | head -1`."""
    cli.plays(says("hello to you"), says("more " * 50_000))
    a_session(cli)
    line = " ".join(['"$0"', *[named(word, {"SESSION": cli.session}) for word in words]])
    ran = subprocess.run(
        ["bash", "-c", f"{line} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}", cli.command[0]],
        cwd=cli.project,
        env=cli.env,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ran.stderr == b""
    assert ran.stdout in (b"0\n", b"1\n")


def test_a_reader_that_left_ends_the_run_and_the_session_goes_on(cli: CliHarness) -> None:
    cli.plays(*[calls(bash(f"echo {n}")) for n in range(5)], calls(bash("sleep 60")), says("never"))
    reading, writing = os.pipe()
    going = cli.start(
        "-p",
        "x",
        "--dangerously-skip-permissions",
        "--output-format",
        "stream-json",
        stdout=writing,
    )
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    ran = going.end()
    assert (ran.code, ran.raw_err) == (1, b"")
    assert cli.left().endswith("TurnEnded:interrupted")


def test_a_terminal_that_is_no_terminal(cli: CliHarness) -> None:
    cli.plays(says("hello to you"))
    ran = cli.run("hello")
    assert ran.code == 0
    assert "hello to you" in ran.text
    assert "\x1b" not in ran.text
    assert "was cut off" not in ran.text, "the first words of a session are no turn that was cut"
    assert cli.left() == TURN


def test_bytes_that_are_no_utf_8_become_the_replacement_character(cli: CliHarness) -> None:
    cli.plays(says("ok"), says("ok"))
    assert cli.run("-p", b"caf\xe9", stdin=b"\xff\x00<\xe2\x82").told() == (0, "ok\n", "")
    spoken = next(e.event for e in cli.entries() if isinstance(e.event, UserSpoke))
    assert text_of(spoken.parts) == "caf\ufffd\n\n\ufffd\ufffd<\ufffd"


WEIGH = """
import asyncio
from longrein import Session, tool

@tool(access="read")
async def Weigh(what: str) -> str:
    '''Weigh something.

    what: What.
    '''
    return {}[what]

async def main():
    session = await Session.open(tools=[Weigh])
    await session.send("weigh it")
    await session.wait()
    await session.close()

asyncio.run(main())
"""


def test_a_tool_that_raises_is_told_to_the_model_and_the_session_goes_on(cli: CliHarness) -> None:
    cli.plays(calls(call("Weigh", what="sand")), says("I do without."))
    ran = subprocess.run(
        [sys.executable, "-c", WEIGH],
        cwd=cli.project,
        env=cli.env,
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert cli.results() == [("failed", "the tool Weigh failed inside: KeyError: 'sand'")]
    assert cli.said() == ["I do without."]


def test_a_folder_whose_name_is_not_utf8_is_refused_in_one_line(cli: CliHarness) -> None:
    folder = os.fsencode(cli.folder) + b"/p\xff"
    os.mkdir(folder)
    cli.plays(says("so"))
    ran = cli.run("-p", "x", cwd=folder)
    assert (ran.code, cli.sessions) == (2, [])
    assert ran.err.endswith(
        "\\udcff is not UTF-8, so no session can be kept there: rename the folder\n"
    )
