"""Whole exchanges leave on every wire: the provider that enforces the protocol's rules refuses nothing."""

import pytest

from longrein.events import Cleared, Replied, Thinking
from longrein.testing.loopback import Call, Turn
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
    commands = (f"seq -f 'part {step} of list {side} holds the value %g here' 60" for side in "ab")
    return Turn(
        thinking=f"Step {step}: " + f"I compare value_{step} with what came before. " * 20,
        text=f"I look at list {step}.",
        calls=tuple(Call("Bash", {"command": command}) for command in commands),
    )


@pytest.mark.parametrize("wire", MODELS)
def test_old_replies_leave_with_their_thinking_and_the_provider_accepts_it(cli: CliHarness, wire: str) -> None:
    name = MODELS[wire]
    with Provider(*map(look, range(STEPS)), Turn(text="done")) as provider:
        limits = f'[models."served/{name}"]\nwindow = 40000\nmax_output = 6000\neffort = "medium"\n'
        cli.config.write_text(f'model = "served/{name}"\n{limits}' + provider.settings(wire))
        run = cli.run("-p", "Compare the lists.", BYPASS)
        assert (provider.refused, run.told()) == ([], (0, "done\n", ""))
        last = provider.requests[-1].body.decode()
    entries = cli.entries()
    left = {form.handle for entry in entries for form in _forms(entry.event) if form.form == "folded"}
    thinking = [
        f"r{entry.seq}.{n}"
        for entry in entries
        if isinstance(entry.event, Replied)
        for n, part in enumerate(entry.event.parts, 1)
        if isinstance(part, Thinking)
    ]
    assert len(left.intersection(thinking)) > STEPS / 4, "thinking left with its reply"
    assert "I compare value_3 with" not in last, "the first reply holds the ledger; the third is gone"


def _forms(event: object) -> tuple[object, ...]:
    return event.forms if isinstance(event, Cleared) else ()
