"""What the terminal shows while the provider fails, on a real pty against the loopback provider
over real sockets.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from longrein.testing.loopback import Fault
from longrein.testing.loopback import Turn as Loopback
from tests.e2e.harness import CliHarness, Provider, call, calls, says
from tests.terminal.held_clock import set_clock
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.timeouts import growing_limits

WORDS = (
    "Overloaded: all of our servers are busy at this moment, please see status.example.com "
    "for what is going on now"
)


def open_it(
    tmp_path: Path,
    provider: Provider,
    arguments: str = "",
    wire: str = "anthropic",
    **adjusted: str,
) -> PseudoTerminal:
    """Start longrein with the served provider. `adjusted`: see `adjusted_longrein`."""
    settings = tmp_path / "home/.config/longrein"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text('model = "served/one"\n' + provider.settings(wire))
    project = tmp_path / "project"
    project.mkdir()
    places = {"HOME": str(tmp_path / "home"), "LONGREIN_STATE_DIR": str(tmp_path / "state")}
    places |= {"LONGREIN_SANDBOX_MODE": "off", "ARGS": arguments}
    module = "tests.terminal.adjusted_longrein" if adjusted else "longrein"
    return PseudoTerminal("", project, 100, 30, module=module, **adjusted, **places)


def error_body(kind: str, message: str) -> str:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}})


def countdown(tty: PseudoTerminal, attempt: int) -> list[int]:
    """Seconds on the state line."""
    found = re.findall(rf"retrying in (\d+) s, attempt {attempt} of 10", "\n".join(tty.lines()))
    return [int(seconds) for seconds in found]


def pass_time(tty: PseudoTerminal, later_s: float) -> PseudoTerminal:
    """Set a held clock to `later_s` seconds after its start."""
    set_clock(tty.folder / "clock", later_s)
    return tty


def test_an_overloaded_provider_is_shown_with_attempt_wait_and_its_words(tmp_path: Path) -> None:
    fault = Fault(status=529, body=error_body("overloaded_error", WORDS), times=2)
    with (
        Provider(Loopback(text="Here I am.", fault=fault)) as provider,
        open_it(tmp_path, provider, HELD_CLOCK="1") as tty,
    ):
        tty.ask("go").until("the provider is overloaded (HTTP 529)")
        tty.until("status.example.com")  # its words whole, in the footer the state
        tty.until(lambda: countdown(tty, 2)).until("retrying ·")
        pass_time(tty, 1_000).until("attempt 3 of 10")
        pass_time(tty, 2_000).until("Here I am.").until("idle")
        assert not any("HTTP 529" in row or "retrying" in row for row in tty.lines()), "it is over"
        assert len(provider.requests) == 3


def rate_limit(asked_s: int) -> Loopback:
    """An answer that comes after a refusal, whose provider asks for a wait."""
    body = error_body("rate_limit_error", "Slow down, please")
    fault = Fault(status=429, headers={"retry-after": str(asked_s)}, body=body)
    return Loopback(text="Here I am.", fault=fault)


def test_a_rate_limit_counts_down_the_wait_that_the_provider_asked_for(tmp_path: Path) -> None:
    with (
        Provider(rate_limit(30)) as provider,
        open_it(tmp_path, provider, HELD_CLOCK="1") as tty,
    ):
        tty.ask("go").until("the provider limits how often it is asked (HTTP 429)")
        tty.until("Slow down, please").until(lambda: countdown(tty, 2))
        [first_s] = countdown(tty, 2)
        assert 30 <= first_s <= 38, "a quarter more, so that many sessions do not ask at once"
        pass_time(tty, 10).until(lambda: countdown(tty, 2) == [first_s - 10])
        pass_time(tty, 40).until("Here I am.").until("idle")


def test_a_wait_can_be_interrupted(tmp_path: Path) -> None:
    with (
        Provider(rate_limit(600)) as provider,
        open_it(tmp_path, provider, HELD_CLOCK="1") as tty,
    ):
        tty.ask("go").until("attempt 2 of 10").send("\x1b").until("interrupted").until("idle")
        assert "Here I am." not in tty.text()
        pass_time(tty, 1_000).ask("again").until("Here I am.").until("idle")


def seconds_shown(tmp_path: Path, turn: Loopback, wire: str, words: str) -> set[str]:
    """The numbers of seconds that stand behind `words` until the answer is there."""
    seen: set[str] = set()
    with Provider(turn) as provider, open_it(tmp_path, provider, "", wire, SILENT_S="1") as tty:

        def is_over() -> bool:
            shown = "\n".join(tty.lines())
            seen.update(re.findall(re.escape(words) + r"(\d+) s", shown))
            return "idle" in shown and "Esc interrupts" not in shown

        tty.ask("go").until("Esc interrupts").until(is_over)
        assert "Here I am." in tty.text()
        assert words not in "\n".join(tty.lines()), "it goes on"
    return seen


@pytest.mark.parametrize(
    ("wire", "stalls", "words"),
    [
        ("anthropic", True, "stalled: nothing has come for "),
        ("openai-chat", True, "stalled: nothing has come for "),
        ("anthropic", False, "no answer yet, asked "),
    ],
)
def test_a_stalled_stream_says_for_how_long(
    tmp_path: Path, wire: str, stalls: bool, words: str
) -> None:
    for silent_s in growing_limits(3.5):  # a busy machine may draw no frame in a given second
        how: dict[str, Any] = {"delay_s": silent_s}
        if stalls:
            how = {"fault": Fault(kind="stall", at=1_500, stall_s=silent_s)}
        turn = Loopback(text="Here I am. " * 40, deltas=40, **how)
        folder = tmp_path / str(silent_s)
        folder.mkdir()
        if len(seconds_shown(folder, turn, wire, words)) > 1:
            return
    raise AssertionError("the seconds were not counted")


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_cut_stream_is_named_and_asked_for_again(tmp_path: Path, how: str) -> None:
    fault = Fault(kind="cut", at=1_500, how=how)
    with (
        Provider(Loopback(text="Here I am. " * 40, deltas=40, fault=fault)) as provider,
        open_it(tmp_path, provider, HELD_CLOCK="1") as tty,
    ):
        tty.ask("go").until("the reply above was cut off").until("attempt 2 of 10")
        pass_time(tty, 1_000).until("idle")
        assert len(provider.requests) == 2
        assert "Here I am." in tty.text()


def test_no_connection_is_named(tmp_path: Path) -> None:
    with Provider() as provider:
        tty = open_it(tmp_path, provider, HELD_CLOCK="1")
    with tty:  # the provider is gone
        tty.ask("go").until("the provider cannot be reached").until("attempt 2 of 3")
        pass_time(tty, 1_000).until("attempt 3 of 3")
        pass_time(tty, 2_000).until(
            "stopped: error  no connection: is the server running at http://127.0.0.1:"
        )


def without_server(cli: CliHarness, more: str = "", model: str = "served/one") -> str:
    """Name a provider `served` whose server does not run. Return the line about it."""
    with Provider() as provider:
        cli.settings(provider.settings("openai-chat", more), model)
        url = provider.url
    return (
        f"no connection: is the server running at {url.removesuffix('/v1')}? Start it, or choose "
        "another model with --model"
    )


@pytest.mark.parametrize("output", ["text", "stream-json"])
def test_a_local_server_that_does_not_run_is_told_with_each_attempt(
    cli: CliHarness, output: str
) -> None:
    problem = without_server(cli)
    done = cli.run("-p", "go", "--output-format", output)
    assert done.code == 75
    *attempts, last = done.err.splitlines()
    assert last == f"longrein: {problem}; `longrein -p -c` tries again"
    if output == "text":
        shown = [re.sub(r"in \d\.\d s", "in N s", one) for one in attempts]
        assert shown == [f"longrein: retrying in N s, attempt {n} of 3: {problem}" for n in (2, 3)]
    else:
        retries = [one for one in done.lines if one.get("subtype") == "api_retry"]
        assert [(one["attempt"], one["max_retries"]) for one in retries] == [(1, 3), (2, 3)]
    assert cli.left().count("AskFailed:network") == 3


def test_a_subagent_whose_server_does_not_run_ends_as_soon(cli: CliHarness) -> None:
    problem = without_server(cli, model="play/one")
    started = call("Agent", prompt="Look.", description="look", model="served/one")
    cli.plays(calls(started), says("It cannot look."))
    done = cli.run("-p", "go")
    assert (done.code, done.text) == (0, "It cannot look.\n")
    told = [line for line in done.err.splitlines() if "attempt" in line]
    assert len(told) == 2
    assert all("attempt" in line and problem in line for line in told)
    assert "no connection" in cli.results()[0][1]


def test_the_plain_terminal_prints_each_retry(tmp_path: Path) -> None:
    fault = Fault(status=529, body=error_body("overloaded_error", "Overloaded"), times=2)
    with (
        Provider(Loopback(text="Here I am.", fault=fault)) as provider,
        open_it(tmp_path, provider, "--plain") as tty,
    ):
        tty.until("/ commands").send("go\r").until("Here I am.")
        assert [*re.findall(r"attempt (\d) of 10: Overloaded", tty.text())] == ["2", "3"]
