"""A3 custom commands: arguments inserted by pi, commands run by OpenHands, texts expanded by
opencode.
"""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.testing.loopback import LoopbackProvider, Turn
from longrein.tools.argument_substitution import substitute
from tests.tables import record
from tests.timeouts import HANG_S

from .peers import AGENTS, OPENCODE, PI, ask, environment, needs

PLACES = st.sampled_from(["$1", "$2", "$3", "$9", "$ARGUMENTS"])
TEXTS = st.sampled_from(
    ["fix ", " and\n", "größer ", " 5$ ", "a@b ", " `code` ", "# Head\n", "{1} ", "%s "]
)
BODIES = st.lists(TEXTS | PLACES, min_size=1, max_size=6).map("".join)
GIVEN = st.lists(
    st.sampled_from(["a", "b c", "$1", "größer", "x=1", "$ARGUMENTS", "!`id`", "--flag"]),
    max_size=4,
)


def expanded(style: str, body: str, arguments: str) -> str:
    """The text with arguments; what a command prints stands for the command."""
    pieces = substitute(style, body, arguments, {})  # type: ignore[arg-type]
    return "".join(
        _output(piece.text) if piece.kind == "command" else piece.text for piece in pieces
    )


def _output(line: str) -> str:
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False
    ).stdout.strip()


def quoted(words: list[str]) -> str:
    return " ".join(f'"{word}"' if " " in word else word for word in words)


@needs(PI)
@given(body=st.tuples(BODIES, PLACES).map("".join), words=GIVEN)
@settings(max_examples=100, deadline=None)
def test_A3_pi_inserts_the_same_arguments_as_files_of_codex_get(
    body: str, words: list[str]
) -> None:
    # What an argument holds is never read again; pi reads it once more for `$ARGUMENTS`.
    words = [word for word in words if not word.startswith("$")]
    assert expanded("codex", body, quoted(words)) == ask("pi_command", body, quoted(words))


def test_A3_of_codex_a_place_has_one_digit() -> None:
    assert expanded("codex", "$12 $0", "a b") == "a2 $0"


OPENCODE_LINES = (
    ("fix $1 then $2 for $ARGUMENTS", ["one", "two three", "four"]),
    ("no place", ["a", "b c"]),
    ("out: !`echo $1`", ["x", "y"]),
)


@pytest.mark.anyio
@pytest.mark.skipif(not OPENCODE.exists(), reason="needs opencode, which `make clients` installs")
@pytest.mark.parametrize(("body", "words"), OPENCODE_LINES)
async def test_A3_opencode_sends_the_same_text(body: str, words: list[str], tmp_path: Path) -> None:
    project = tmp_path / "repo"
    (project / ".opencode/commands").mkdir(parents=True)
    (project / ".opencode/commands/do.md").write_text(f"---\ndescription: x\n---\n{body}")
    async with LoopbackProvider(lambda _: Turn("done")) as server:
        options = {"baseURL": f"{server.url}/v1", "apiKey": "x"}
        provider = record(
            npm="@ai-sdk/openai-compatible", options=options, models={"m": {"name": "m"}}
        )
        settings_ = record(
            provider={"loop": provider}, model="loop/m", small_model="loop/m", autoupdate=False
        )
        (project / "opencode.json").write_text(json.dumps(settings_))
        ran = await asyncio.create_subprocess_exec(
            str(OPENCODE),
            *("run", "--command", "do", *words),
            cwd=project,
            env=environment(tmp_path)
            | {"OPENCODE_DISABLE_MODELS_FETCH": "1", "NO_PROXY": "127.0.0.1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await asyncio.wait_for(ran.wait(), HANG_S)
        sent = "".join(request.body.decode() for request in server.requests)
    assert json.dumps(expanded("opencode", body, quoted(words)).strip())[1:-1] in sent


SCRIPTS = st.sampled_from(
    ["!`echo hi`", "!`printf 'a\\nb'`", "`no command`", "!`echo '$1'`", "!`true`"]
)


@needs(AGENTS)
@given(
    lines=st.lists(
        st.tuples(st.sampled_from(["", "text ", "- "]), SCRIPTS).map("".join),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=40, deadline=None)
def test_A3_openhands_inserts_the_same_output_of_commands(lines: list[str]) -> None:
    body = "\n".join(lines)
    assert expanded("claude", body, "") == ask("openhands_commands", body)
