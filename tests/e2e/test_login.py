"""Keys that are entered once: where they are kept, what is said of them, and where they never
are.
"""

import base64
import json
import os
import stat
from pathlib import Path

import pytest

from longrein.testing.loopback import Call
from longrein.testing.loopback import Turn as Loopback
from tests.e2e.harness import CliHarness, Provider, bash, calls, needs_sandbox, says
from tests.terminal.pseudo_terminal import PseudoTerminal

KEY = "abc-right-key-0123456789-XYZ"
SECRET_TOOL = """#!/bin/sh
# secret-tool: keeps the secret of an account in a file of $STORE
for word; do last=$word; done
case $1 in
  store) cat > "$STORE/$last" ;;
  lookup) cat "$STORE/$last" 2>/dev/null || exit 1 ;;
  clear) rm -f "$STORE/$last" ;;
esac
"""


def without_model(cli: CliHarness, more: str = "") -> None:
    """A home whose settings name no model, on a machine without local servers."""
    cli.config.write_text(
        more + "".join(f'\n[providers.{n}]\nbase_url = "http://127.0.0.1:9"\n' for n in LOCAL)
    )


LOCAL = ("ollama", "lmstudio", "llamacpp", "vllm")


def credentials(cli: CliHarness) -> Path:
    return cli.home / ".config/longrein/credentials.json"


def on_terminal(cli: CliHarness, arguments: str = "", **environ: str) -> PseudoTerminal:
    env = {name: value for name, value in {**cli.env, **environ}.items() if name != "PATH"}
    return PseudoTerminal(
        "", cli.project, 110, 30, **env, LONGREIN_SANDBOX_MODE="off", ARGS=arguments
    )


def with_secret_tool(cli: CliHarness) -> Path:
    """Put a `secret-tool` on the PATH; returns the folder of its secrets."""
    programs, store = cli.folder / "programs", cli.folder / "store"
    programs.mkdir()
    store.mkdir()
    (programs / "secret-tool").write_text(SECRET_TOOL)
    (programs / "secret-tool").chmod(0o755)
    cli.env |= {"PATH": f"{programs}:{cli.env['PATH']}", "STORE": str(store)}
    return store


def test_a_key_from_stdin_is_kept_in_a_file_of_the_user_alone(cli: CliHarness) -> None:
    without_model(cli)
    done = cli.run("login", "anthropic", stdin=f"{KEY}\n".encode())
    assert done.code == 0
    assert "the key of anthropic is kept in ~/.config/longrein/credentials.json" in done.err
    assert "uses anthropic/claude-" in done.err
    assert KEY not in done.err + done.text
    assert json.loads(credentials(cli).read_text()) == {"anthropic": {"key": KEY}}
    assert stat.S_IMODE(credentials(cli).stat().st_mode) == 0o600
    listed = cli.run("login")
    assert "anthropic    ~/.config/longrein/credentials.json" in listed.text
    assert KEY not in listed.text
    assert "is removed" in cli.run("logout").err
    assert not credentials(cli).exists()


def test_a_keyring_is_preferred(cli: CliHarness) -> None:
    without_model(cli)
    store = with_secret_tool(cli)
    assert "kept in the keyring (secret-tool)" in cli.run("login", "openai", stdin=KEY.encode()).err
    assert (store / "openai").read_text() == KEY
    assert KEY not in credentials(cli).read_text()
    assert "openai       the keyring (secret-tool)" in cli.run("login").text
    assert cli.run("logout", "openai").code == 0
    assert not list(store.iterdir())


def test_a_keyring_that_fails_is_replaced_by_the_file(cli: CliHarness) -> None:
    without_model(cli)
    with_secret_tool(cli).rmdir()
    assert "credentials.json" in cli.run("login", "openai", stdin=KEY.encode()).err


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (("login", "nobody"), KEY, "no provider 'nobody'"),
        (("login", "ollama"), KEY, "needs no key"),
        (("login", "openai"), "", "no key was entered"),
        (("login", "openai"), "two words", "that is no key"),
        (("logout", "openai"), "", "no key of 'openai' is kept"),
        (("logout",), "", "which one?"),
    ],
)
def test_what_cannot_be_kept_is_said(
    cli: CliHarness, words: tuple[str, ...], stdin: str, said: str
) -> None:
    without_model(cli)
    done = cli.run(*words, stdin=stdin.encode())
    assert done.code == 2
    assert said in done.err
    assert not credentials(cli).exists()


def test_a_damaged_file_is_named_and_stops_nothing(cli: CliHarness) -> None:
    cli.plays({"text": "Hello."})
    credentials(cli).write_text("{")
    assert cli.run("-p", "go").text == "Hello.\n"
    told = cli.run("login", "openai", stdin=KEY.encode())
    assert (told.code, "is damaged: remove it" in told.err) == (2, True)


def test_a_kept_key_is_used_and_reaches_nothing_but_the_provider(cli: CliHarness) -> None:
    cli.without_sandbox()
    show = f"env; cat {credentials(cli)}"
    turns = (Loopback(calls=(Call("Bash", {"command": show}),)), Loopback(text="Done."))
    with Provider(*turns, keys=(KEY,)) as provider:
        cli.config.write_text(
            'model = "served/one"\n'
            + provider.settings("anthropic")
            + 'api_key_env = "SERVED_KEY"\n'
        )
        assert cli.run("login", "served", stdin=KEY.encode()).code == 0
        done = cli.run("-p", "go", "--dangerously-skip-permissions")
        assert done.text == "Done.\n", done.err
        results = cli.results()
        assert [status for status, _ in results] == ["ok"]
        assert "SERVED_KEY" not in results[0][1], "no command has it"
        assert KEY not in results[0][1], "what a command prints of it is masked"
    files = [path for path in cli.state.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


@needs_sandbox
def test_a_confined_command_cannot_read_the_file(cli: CliHarness) -> None:
    cli.settings('[sandbox]\nhome = [".config"]\n')
    assert cli.run("login", "openai", stdin=KEY.encode()).code == 0
    path = credentials(cli)
    cli.plays(calls(bash(f"cat {path.parent}/config.toml; base64 {path}")), says("Done."))
    assert cli.run("-p", "go", "--permission-mode", "auto").text == "Done.\n"
    status, text = cli.results()[0]
    assert "[sandbox]" in text, status
    assert base64.b64encode(path.read_bytes())[:40].decode() not in text


def test_an_environment_variable_comes_first_and_the_start_says_which_key_is_used(
    cli: CliHarness,
) -> None:
    with Provider(Loopback(text="Hello.")) as provider:
        named = provider.settings("anthropic") + 'api_key_env = "SERVED_KEY"\n'
        cli.config.write_text('model = "served/one"\n' + named)
        cli.run("login", "served", stdin=KEY.encode())
        with on_terminal(cli) as tty:
            tty.until("served/one, key from ~/.config/longrein/credentials.json").until("idle")
            assert KEY not in tty.text()
        with on_terminal(cli, SERVED_KEY="another-key-0123") as tty:
            tty.until("served/one, key from SERVED_KEY").until("idle")
            assert "another-key" not in tty.text()


# --- On the terminal ------------------------------------------------------------------------------


def test_a_key_is_entered_on_the_terminal_without_an_echo(cli: CliHarness) -> None:
    without_model(cli)
    with on_terminal(cli, "login anthropic") as tty:
        tty.until("Key of anthropic (it is not shown):").settle().send(f"{KEY}\r")
        assert tty.wait_exit() == 0
        assert KEY not in tty.text()
    assert KEY in credentials(cli).read_text()


def test_login_within_a_session_keeps_the_key_and_shows_it_nowhere(cli: CliHarness) -> None:
    cli.plays({"text": "Hello."})
    with on_terminal(cli) as tty:
        tty.ask("/login openai").until("Key of openai (it is not shown):").settle()
        tty.send(f"{KEY}\r").until("the key of openai is kept in").until("say something")
        tty.send("hi\r").until("Hello.").until("idle")
        tty.send("/logout openai\r").until("the key of openai is removed").send("\x04")
        assert tty.wait_exit() == 0
        assert KEY not in tty.text()
    assert not [
        path
        for path in cli.state.rglob("*")
        if path.is_file() and KEY.encode() in path.read_bytes()
    ]


def test_a_refused_key_is_replaced_within_the_session(cli: CliHarness) -> None:
    with Provider(Loopback(text="Hello there."), keys=(KEY,)) as provider:
        named = provider.settings("anthropic") + 'api_key_env = "SERVED_KEY"\n'
        cli.config.write_text('model = "served/one"\n' + named)
        cli.run("login", "served", stdin=b"wrong-key-0123456789")
        with on_terminal(cli) as tty:
            tty.ask("go").until("the provider refused the key").until("idle")
            tty.ask("/login served").until("Key of served").settle().send(f"{KEY}\r")
            tty.until("request uses it").until("say something").send("go on\r").until(
                "Hello there."
            )
            assert KEY not in tty.text()


def two_keys(cli: CliHarness, provider: Provider) -> None:
    """Settings of a provider whose variable will hold a wrong key."""
    named = provider.settings("anthropic") + 'api_key_env = "SERVED_KEY"\n'
    cli.config.write_text('model = "served/one"\n' + named)


def test_a_variable_that_wins_is_named_and_the_kept_key_can_be_used_now(cli: CliHarness) -> None:
    with Provider(Loopback(text="Hello there."), keys=(KEY,)) as provider:
        two_keys(cli, provider)
        with on_terminal(cli, SERVED_KEY="wrong-key-0123456789") as tty:
            tty.ask("go").until("it came from SERVED_KEY").until("idle")
            assert "in a session `/login served`" in " ".join(tty.text().split())
            tty.ask("/login served").until("Key of served").settle().send(f"{KEY}\r")
            tty.until("SERVED_KEY is set and comes first; use which key now?")
            assert "the next request uses it" not in tty.text()
            assert "until longrein ends; unset SERVED_KEY" in tty.text()
            tty.settle().send("\r").until("the next request uses it")
            said = " ".join(tty.text().split())
            assert "the next start takes SERVED_KEY again, unless you unset it" in said
            tty.until("say something").send("go on\r").until("Hello there.").until("idle")
            tty.send("/status\r").until("key from ~/.config/longrein/credentials.json")
            tty.send("/login served variable\r").until("uses the key from SERVED_KEY")
            assert KEY not in tty.text()
            assert "wrong-key" not in tty.text()


def test_a_variable_that_wins_is_named_everywhere(cli: CliHarness) -> None:
    with Provider(Loopback(text="Hello there."), keys=(KEY,)) as provider:
        two_keys(cli, provider)
        cli.env["SERVED_KEY"] = "wrong-key-0123456789"
        refused = cli.run("-p", "go").err
        assert "it came from SERVED_KEY; set another there" in refused
        kept = cli.run("login", "served", stdin=KEY.encode()).err
        assert "but SERVED_KEY is set and comes first: unset SERVED_KEY" in kept
        assert "uses served/one, key from SERVED_KEY" in kept
        first = "SERVED_KEY is set and comes before the key kept in ~/.config/longrein/"
        assert f"served       SERVED_KEY  ({first}" in cli.run("login").text
        told = cli.run("doctor").text
        assert "key from SERVED_KEY" in told
        assert first in told
        assert "comes before the key kept in" in cli.run("-p", "go").err
        del cli.env["SERVED_KEY"]
        assert cli.run("-p", "go").text == "Hello there.\n"
        assert "key from ~/.config/longrein/credentials.json" in cli.run("doctor").text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("openai kept", "no key of openai is kept"),
        ("openai variable", "none of OPENAI_API_KEY is set"),
        ("openai maybe", "say /login openai,"),
    ],
)
def test_a_choice_of_a_key_that_is_not_there(cli: CliHarness, words: str, said: str) -> None:
    cli.plays({"text": "Hello."})
    with on_terminal(cli) as tty:
        tty.ask(f"/login {words}").until(said)


# --- The first run --------------------------------------------------------------------------------


def test_without_a_model_three_lines_say_what_to_do(cli: CliHarness) -> None:
    without_model(cli)
    with on_terminal(cli) as tty:
        assert tty.wait_exit() == 1
        rows = [row for row in tty.lines() if row]
    assert len(rows) == 3
    assert "`longrein login PROVIDER` keeps a key" in rows[0]
    assert "start ollama, lmstudio, llamacpp or vllm" in rows[1]
    assert "`longrein demo`" in rows[2]
    with on_terminal(cli, LANG="zh_CN.UTF-8") as tty:
        assert tty.wait_exit() == 1
        assert "`longrein demo` 无需密钥" in [row for row in tty.lines() if row][2]
    headless, doctor = cli.run("-p", "go").err, cli.run("doctor").text
    assert headless.splitlines() == [f"longrein: {row}" for row in rows]
    assert [row for row in doctor.splitlines() if row[9:] in rows[1:]] == [
        f"{'':<9}{row}" for row in rows[1:]
    ]
    assert f"MISSING  model          {rows[0]}" in doctor
    shown = [row for row in doctor.splitlines() if row[24:] in rows or row[9:] in rows]
    assert max(map(len, (*headless.splitlines(), *shown))) <= 80


def test_a_model_without_a_key_is_named_on_one_line_inside_a_session(cli: CliHarness) -> None:
    cli.plays(says("hello"))
    with on_terminal(cli) as tty:
        tty.until("idle").ask("/model anthropic/claude-sonnet-5-5")
        tty.until(
            "! No key for anthropic: `longrein login anthropic` keeps one, or set ANTHROPIC_API_KEY"
        )


def test_the_first_run_names_keys_and_local_servers(cli: CliHarness) -> None:
    with Provider(Loopback(text="Hello.")) as provider:
        cli.config.write_text(
            'model = "anthropic/claude-sonnet-5-5"\n[providers.ollama]\nbase_url = '
            f'"{provider.url}/v1"\n'
        )
        keys = {
            "ANTHROPIC_API_KEY": "sk-0123456789-first",
            "OPENAI_API_KEY": "sk-0123456789-second",
        }
        with on_terminal(cli, **keys) as tty:
            tty.until("anthropic/claude-sonnet-5-5, key from ANTHROPIC_API_KEY")
            tty.until("found keys: anthropic (ANTHROPIC_API_KEY), openai (OPENAI_API_KEY)").until(
                "idle"
            )
            assert "0123456789" not in tty.text()


def test_the_keyring_package_is_used_where_it_is_installed() -> None:
    pytest.importorskip("keyring", reason="the optional package keyring is not installed")
    from longrein.workspace.system_keyring import delete_secret, store_secret

    name = store_secret("longrein-test", KEY, os.environ)
    assert name != ""
    assert delete_secret(name, "longrein-test", os.environ)
