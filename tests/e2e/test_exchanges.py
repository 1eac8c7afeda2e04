"""Whole exchanges leave on every wire: the provider that enforces the protocol's rules refuses
nothing.
"""

from pathlib import Path

import pytest

from longrein.testing.loopback import Call, Turn
from longrein_context.events import Cleared, Replied, Thinking
from tests.e2e.harness import BYPASS, CliHarness, Provider

STEPS = 30
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "deepseek-reasoner",
    "openai-responses": "gpt-5",
    "gemini": "gemini-3-pro",
}


def look(step: int) -> Turn:
    """A reply that thinks, speaks and calls twice at once."""
    return Turn(
        thinking=f"Step {step}: " + f"I compare value_{step} with what came before. " * 20,
        text=f"I look at list {step}.",
        calls=tuple(Call("Read", {"file_path": f"{step}{side}.txt"}) for side in "ab"),
    )


def make_lists(project: Path, count: int) -> None:
    """Write what `look` reads."""
    for step in range(count):
        for side in "ab":
            part = f"part {step} of list {side} holds the value"
            lines = [f"{part} {value} here\n" for value in range(60)]
            (project / f"{step}{side}.txt").write_text("".join(lines))


@pytest.mark.parametrize("wire", MODELS)
def test_old_replies_leave_with_their_thinking_and_the_provider_accepts_it(
    cli: CliHarness, wire: str
) -> None:
    name = MODELS[wire]
    make_lists(cli.project, STEPS)
    with Provider(*map(look, range(STEPS)), Turn(text="done")) as provider:
        limits = f'[models."served/{name}"]\nwindow = 40000\nmax_output = 6000\neffort = "medium"\n'
        cli.config.write_text(f'model = "served/{name}"\n{limits}' + provider.settings(wire))
        run = cli.run("-p", "Compare the lists.", BYPASS)
        assert (provider.refused, run.told()) == ([], (0, "done\n", ""))
        last = provider.requests[-1].body.decode()
    entries = cli.entries()
    left = {
        form.handle for entry in entries for form in _forms(entry.event) if form.form == "folded"
    }
    thinking = [
        f"r{entry.seq}.{n}"
        for entry in entries
        if isinstance(entry.event, Replied)
        for n, part in enumerate(entry.event.parts, 1)
        if isinstance(part, Thinking)
    ]
    assert len(left.intersection(thinking)) > STEPS / 4, "thinking left with its reply"
    assert "I compare value_3 with" not in last, (
        "the first reply holds the ledger; the third is gone"
    )


@pytest.mark.parametrize("wire", MODELS)
def test_calls_and_thinking_of_earlier_turns_are_cleared_and_the_provider_accepts_it(
    cli: CliHarness, wire: str
) -> None:
    """The first call of a turn stays; the one with the draft leaves with its result."""
    name, draft = (
        MODELS[wire],
        "".join(f"line {n} of the draft says value_{n}\n" for n in range(150)),
    )
    write = Call("Bash", {"command": f"cat > draft.txt <<END\n{draft}END"})
    calls = (Call("Bash", {"command": "ls"}), write)
    make_lists(cli.project, 2 * STEPS)
    first = Turn(thinking="I plan the draft_outline. " * 60, text="I write it.", calls=calls)
    with Provider(
        first, Turn(text="written"), *map(look, range(2 * STEPS)), Turn(text="done")
    ) as provider:
        limits = f'[models."served/{name}"]\nwindow = 32000\nmax_output = 6000\neffort = "medium"\n'
        cli.config.write_text(f'model = "served/{name}"\n{limits}' + provider.settings(wire))
        assert cli.run("-p", "Write the draft.", BYPASS).told() == (0, "written\n", "")
        assert cli.run("-c", "-p", "Compare the lists.", BYPASS).told() == (0, "done\n", "")
        assert provider.refused == []
        last = provider.requests[-1].body.decode()
    assert last.count(" of the draft says value_") < 75, "at least half of the call is gone"
    assert last.count("I plan the draft_outline.") < 2


def _forms(event: object) -> tuple[object, ...]:
    return event.forms if isinstance(event, Cleared) else ()
