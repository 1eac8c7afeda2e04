"""A3 custom commands: arguments inserted by pi, commands run by OpenHands, texts expanded by opencode."""

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.tools.skill_text import substitute

from .peers import AGENTS, PI, ask, needs

PLACES = st.sampled_from(["$1", "$2", "$3", "$9", "$ARGUMENTS"])
TEXTS = st.sampled_from(["fix ", " and\n", "größer ", "5$ ", "a@b ", " `code` ", "# Head\n", "{1} ", "%s "])
BODIES = st.lists(TEXTS | PLACES, min_size=1, max_size=6).map("".join)
GIVEN = st.lists(st.sampled_from(["a", "b c", "$1", "größer", "x=1", "$ARGUMENTS", "!`id`", "--flag"]), max_size=4)


def expanded(style: str, body: str, arguments: str) -> str:
    """The text with arguments; what a command prints stands for the command."""
    pieces = substitute(style, body, arguments, {})  # type: ignore[arg-type]
    return "".join(_output(piece.text) if piece.kind == "command" else piece.text for piece in pieces)


def _output(line: str) -> str:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False).stdout.strip()


def quoted(words: list[str]) -> str:
    return " ".join(f'"{word}"' if " " in word else word for word in words)


@needs(PI)
@given(body=st.tuples(BODIES, PLACES).map("".join), words=GIVEN)
@settings(max_examples=100, deadline=None)
def test_A3_pi_inserts_the_same_arguments_as_files_of_codex_get(body: str, words: list[str]) -> None:
    # What an argument holds is never read again; pi reads it once more for `$ARGUMENTS`.
    words = [word for word in words if not word.startswith("$")]
    assert expanded("codex", body, quoted(words)) == ask("pi_command", body, quoted(words))


SCRIPTS = st.sampled_from(["!`echo hi`", "!`printf 'a\\nb'`", "`no command`", "!`echo '$1'`", "!`true`"])


@needs(AGENTS)
@given(lines=st.lists(st.tuples(st.sampled_from(["", "text ", "- "]), SCRIPTS).map("".join), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_A3_openhands_inserts_the_same_output_of_commands(lines: list[str]) -> None:
    body = "\n".join(lines)
    assert expanded("claude", body, "") == ask("openhands_commands", body)
