"""Slash commands in headless runs: no model is paid for a word that longrein understands itself."""

import json

import pytest

from longrein_context.events import Asked, Reminded, Summarized, UserSpoke
from tests.e2e.harness import CliHarness, of, says

TERMINAL = "needs the terminal: run longrein without -p. Here act /compact, /context, /cost, /clear"


def user(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}})


def requests(cli: CliHarness) -> int:
    return len(of(cli, Asked))


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("/context", "usable tokens"),
        ("/cost", "requests          1\n"),
        ("/clear", "The conversation is empty now"),
    ],
)
def test_a_command_answers_without_a_request(cli: CliHarness, prompt: str, said: str) -> None:
    cli.plays(says("hi"))
    cli.run("-p", "go")
    done = cli.run("-p", "-c", prompt)
    assert (done.code, said in done.text, done.err) == (0, True, ""), done.text
    assert (requests(cli), len(of(cli, UserSpoke))) == (1, 1)
    result = cli.run("-p", "-c", prompt, "--output-format", "json").result
    assert (result["subtype"], result["total_cost_usd"], result["num_turns"]) == ("success", 0, 0)


@pytest.mark.parametrize("prompt", ["/context", "/cost", "/clear", "/compact"])
def test_a_command_answers_in_a_session_without_a_message(cli: CliHarness, prompt: str) -> None:
    cli.plays()
    done = cli.run("-p", prompt)
    assert (done.code, bool(done.text), done.err) == (0, True, "")


def test_compact_makes_room_with_its_focus(cli: CliHarness) -> None:
    summary = "<summary>The user likes blue.</summary>"
    cli.plays(*[says("word " * 4_000) for _ in range(3)], says(summary), says("on"))
    for n in range(3):
        cli.run("-p", *["-c"] * bool(n), "go")
    done = cli.run("-p", "-c", "/compact the colours")
    assert done.code == 0, done.err
    assert done.text.startswith("Compacted: ")
    assert len(of(cli, Summarized)) == 1
    (wish,) = [event for event in of(cli, Reminded) if event.kind == "compact"]
    assert wish.state == "the colours"


def test_clear_goes_back_to_the_beginning_and_loses_nothing(cli: CliHarness) -> None:
    cli.plays(says("the answer to a first message"), says("the answer to a second one"))
    cli.run("-p", "remember blue")
    assert cli.run("-p", "-c", "/clear").code == 0
    assert cli.run("-p", "-c", "what do you know?").text == "the answer to a first message\n"
    assert [event.parts[0].text for event in of(cli, UserSpoke)] == [
        "remember blue", "what do you know?",
    ]  # fmt: skip


@pytest.mark.parametrize("prompt", ["/rewind 3", "/theme", "/help"])
def test_a_command_that_needs_the_terminal_is_refused(cli: CliHarness, prompt: str) -> None:
    cli.plays(says("hi"))
    done = cli.run("-p", prompt)
    assert done.told() == (1, "", f"longrein: {prompt.split(maxsplit=1)[0]} {TERMINAL}\n")


@pytest.mark.parametrize("prompt", ["/etc/hosts: what is it?", "/nothing known", "/ compact", "/"])
def test_what_is_no_command_goes_to_the_model(cli: CliHarness, prompt: str) -> None:
    cli.plays(says("hi"))
    assert cli.run("-p", prompt).text == "hi\n"
    assert of(cli, UserSpoke)[0].parts[0].text == prompt


def test_over_stdin_commands_and_messages_keep_their_order(cli: CliHarness) -> None:
    cli.plays(says("one"))  # the answer to a first message
    lines = [user(text) for text in ("first", "/cost", "/theme", "/clear", "second", "/cost")]
    done = cli.stream("--input-format", "stream-json", stdin="\n".join(lines).encode())
    results = [line for line in done.lines if line["type"] == "result"]
    told = [line.get("result") or line["errors"][0] for line in results]
    assert [text.split("\n")[0].split(":")[0] for text in told] == [
        "one",
        "requests          1",
        "/theme needs the terminal",
        "The conversation is empty now; the log keeps it, and files stay as they are.",
        "one",
        "requests          2",
    ]
    assert [line["is_error"] for line in results] == [False, False, True, False, False, False]


def test_a_prompt_names_files_with_an_at_sign_and_piped_text_names_none(cli: CliHarness) -> None:
    cli.plays(says("hi"), says("hi"))
    (cli.project / "a.txt").write_text("blue\n")
    (cli.project / "b.txt").write_text("red\n")
    assert cli.run("-p", "what is in @a.txt, @missing?", stdin=b"and @b.txt").code == 0
    first, *attached = [part.text for part in of(cli, UserSpoke)[0].parts]
    assert first == "what is in @a.txt, @missing?\n\nand @b.txt"
    assert [text.splitlines()[1] for text in attached] == ["| blue"]
