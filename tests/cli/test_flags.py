"""Parsing of argv."""

import re
import shlex
from contextlib import suppress
from functools import partial
from typing import Any

from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from longrein.cli import main
from longrein.frontends.argv import bundled_commands, parse
from longrein.frontends.subcommands import MAIN
from longrein.options import Options
from longrein_context.events import UsageError
from tests.tables import cases, record

from .fake_app import FakeApp, given

COMMANDS = bundled_commands()


@cases(
    "line fields",
    ("", {}),
    ("'fix the build'", {"prompt": "fix the build"}),
    ("-- sesions", {"prompt": "sesions"}),
    ("-- login", {"prompt": "login"}),
    ("'login does not work'", {"prompt": "login does not work"}),
    ("'config'' '", {"prompt": "config "}),
    ("fixit", {"prompt": "fixit"}),
    ("first", {"prompt": "first"}),  # as far from `trust` as from a typing error
    ("test", {"prompt": "test"}),
    ("-p help", {"prompt": "help"}),
    ("-c continue", {"continue_newest": True, "prompt": "continue"}),
    ("review -r 0192ab", {"resume": "0192ab", "prompt": "review"}),
    ("review -pc", {"continue_newest": True, "prompt": "review"}),
    ("-p 'fix it'", {"prompt": "fix it"}),
    ("'fix it' --print", {"prompt": "fix it"}),
    ("-p '- one\n- two'", {"prompt": "- one\n- two"}),
    ("-p -- --help", {"prompt": "--help"}),
    ("-p doctor", {"prompt": "doctor"}),
    ("-pc", {"continue_newest": True}),
    ("-pc next", {"continue_newest": True, "prompt": "next"}),
    ("-r", {"resume": ""}),
    ("-r 0192ab", {"resume": "0192ab"}),
    ("-r0192ab", {"resume": "0192ab"}),
    ("--resume=0192ab --fork-session", {"resume": "0192ab", "fork_session": True}),
    ("-r 'go on with it'", {"resume": "", "prompt": "go on with it"}),
    ("-p -r 0192ab 'go on'", {"resume": "0192ab", "prompt": "go on"}),
    (
        "-p x --output-format stream-json --include-partial-messages --verbose",
        record(
            prompt="x", output_format="stream-json", include_partial_messages=True, verbose=True
        ),
    ),
    (
        "-p --input-format=stream-json --output-format=stream-json",
        {"input_format": "stream-json", "output_format": "stream-json"},
    ),
    ("--model mock/small --profile seed", {"model": "mock/small", "profile": "seed"}),
    ("--permission-mode plan", {"permission_mode": "plan"}),
    ("--dangerously-skip-permissions", {"permission_mode": "bypassPermissions"}),
    (
        "--allowedTools 'Edit, Bash(git log, -n 3) Read' --allowed-tools 'Bash(make:*)'",
        {"allowed_tools": ("Edit", "Bash(git log, -n 3)", "Read", "Bash(make:*)")},
    ),
    ("--disallowedTools 'Bash(rm *)'", {"disallowed_tools": ("Bash(rm *)",)}),
    (
        "-p x --max-turns 3 --max-budget-usd 0.5",
        {"prompt": "x", "max_turns": 3, "max_budget_usd": 0.5},
    ),
    ("--max-budget-usd '$2'", {"max_budget_usd": 2.0}),
    (
        "--session-id 0192d0c8-0000-7000-8000-000000000001",
        {"session_id": "0192d0c8-0000-7000-8000-000000000001"},
    ),
    (
        "--system-prompt 'Be terse.' --append-system-prompt '- no emoji'",
        {"system_prompt": "Be terse.", "append_system_prompt": "- no emoji"},
    ),
    ("--add-dir ../a --add-dir=/b --state-dir /s", {"add_dirs": ("../a", "/b"), "state_dir": "/s"}),
)
def test_the_main_command(line: str, fields: dict[str, Any], no_stdin: None) -> None:
    app = FakeApp()
    assert main(shlex.split(line), lambda: app) == 0
    ((name, options),) = app.calls
    found = given(options)
    assert found.pop("typed", "") in ("", found.get("prompt"))  # no text was piped in
    assert name == ("print" if found.pop("print", False) else "interactive")
    assert (name == "print") == bool(re.search(r"(^| )(-p|--print)", line))
    assert found == fields


@cases(
    "line call",
    ("sessions", ("sessions", Options(), [], {})),
    ("sessions --json --state-dir /s", ("sessions", Options(state_dir="/s"), [], {"json": True})),
    ("--state-dir /s sessions", ("sessions", Options(state_dir="/s"), [], {})),
    (
        "export 0192 -o o --format transcript",
        ("export", Options(), ["0192"], {"format": "transcript", "output": "o"}),
    ),
    ("search a b --all --page 2", ("search", Options(), ["a", "b"], {"every": True, "page": 2})),
    ("tasks stop 0c5c/b1 --tail 20", ("tasks", Options(), ["stop", "0c5c/b1"], {"tail": 20})),
    (
        "worktrees remove x --unmerged",
        ("worktrees", Options(), ["remove", "x"], {"unmerged": True}),
    ),
    ("demo --keep", ("demo", Options(), [], {"keep": True})),
)
def test_the_other_commands(line: str, call: tuple[Any, ...]) -> None:
    app = FakeApp()
    assert main(shlex.split(line), lambda: app) == 0
    assert app.calls == [call]


def test_the_exit_code_of_the_app_is_the_exit_code(no_stdin: None) -> None:
    assert [main(["-p", "x"], partial(FakeApp, code)) for code in (0, 1, 3, 4, 75, 143)] == [
        0,
        1,
        3,
        4,
        75,
        143,
    ]


def test_every_flag_sets_a_field_that_exists() -> None:
    fields = {flag.field for flag in MAIN.flags} - {"help", "version"}
    assert fields == set(Options.__annotations__) - {"prompt", "typed", "without_effect"}


tokens = st.one_of(
    st.sampled_from(
        [name for command in COMMANDS.values() for flag in command.flags for name in flag.names]
    ),
    st.sampled_from(
        [
            *COMMANDS,
            "-",
            "--",
            "-pc",
            "-pz",
            "--=",
            "--model=",
            "x y",
            "-1 z",
            "3",
            "json",
            "Bash(a",
        ]
    ),
    st.text(max_size=6),
)


@settings(max_examples=80, deadline=None)
@over(st.lists(tokens, max_size=5))
def test_any_argv_is_read_or_refused(argv: list[str]) -> None:
    with suppress(UsageError):
        parsed = parse(argv)
        assert set(parsed.values) <= {flag.field for flag in parsed.command.flags}
