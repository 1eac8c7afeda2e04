"""A running longrein and an open session, as every frontend uses them."""

import re
from pathlib import Path

import msgspec
import pytest

from longrein.app import App, AppSession
from longrein.app.run_context import RunContext, read_run_context
from longrein.app.user_requests import mode_message, pin_message, unpin_message
from longrein.frontends.terminal.start_notices import assumed_window
from longrein.options import Options
from longrein_context import State
from longrein_context.events import UsageError
from tests.models.local_servers import (
    GGUF,
    LLAMA_CPP,
    LM_STUDIO,
    OLLAMA,
    QWEN,
    Answers,
    listed,
    serving,
)
from tests.tables import cases
from tests.timeouts import HANG_S

pytestmark = pytest.mark.anyio
CONFIG = """
model = "mock/claude-sonnet-4-5"
[providers.mock]
wire = "anthropic"
base_url = "http://127.0.0.1:9/v1"
[models."mock/claude-sonnet-4-5"]
window = 100000
"""


def place(tmp_path: Path, project: str = "", config_text: str = CONFIG) -> RunContext:
    config = tmp_path / ".config/longrein/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(config_text)
    folder = tmp_path / "work"
    folder.mkdir()
    if project:
        (folder / ".longrein").mkdir()
        (folder / ".longrein/config.toml").write_text(project)
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    options = Options(state_dir=str(tmp_path / "state"))
    return read_run_context(options, environ, folder=str(folder))


async def opened(context: RunContext) -> AppSession:
    return await App(context, print).open(fresh=True)


async def test_a_session_in_another_folder_is_as_interactive_as_the_first(tmp_path: Path) -> None:
    app = App(msgspec.structs.replace(place(tmp_path), is_interactive=True), print)
    for one in (app, app.in_folder(str(tmp_path)), app.with_folder(str(tmp_path))):
        assert one.context.is_interactive


@cases(
    "name full",
    ("mock/other", "mock/other"),
    ("sonnet", "mock/claude-sonnet-4-5"),
    ("default", "mock/claude-sonnet-4-5"),
)
async def test_a_model_is_named_in_one_way(tmp_path: Path, name: str, full: str) -> None:
    session = await opened(place(tmp_path))
    try:
        assert session.full_model(name) == full
    finally:
        await session.session.close()


async def test_effort_and_thinking_do_not_undo_each_other(tmp_path: Path) -> None:
    session = await opened(place(tmp_path))
    try:
        session.set_effort("high")
        session.set_thinking(20_000)
        assert session.effort == "high"
    finally:
        await session.session.close()


@cases(
    "mode problem",
    ("plan", ""),
    ("bypassPermissions", ""),
    ("strict", "there is no mode strict; it is one of default, acceptEdits"),
    (["plan"], "there is no mode ['plan']"),
    (None, "there is no mode None"),
)
def test_a_mode_is_checked_in_one_way(mode: object, problem: str) -> None:
    if not problem:
        assert mode_message(mode).mode == mode
        return
    with pytest.raises(UsageError, match="^" + re.escape(problem)):
        mode_message(mode)


@cases(
    "number told",
    ("1", "use tabs"),
    ("2", "be kind"),
    ("", "say which: /unpin NUMBER"),
    ("0", "there is no pin 0; pins: 2"),
    ("3", "there is no pin 3; pins: 2"),
    ("²", "say which: /unpin NUMBER"),
)
def test_pins_are_checked_in_one_way(number: str, told: str) -> None:
    state = State()
    state.pins = ("use tabs", "be kind")
    assert pin_message(state, "be brief").text == "be brief"
    with pytest.raises(UsageError, match="it is pinned already: be kind"):
        pin_message(state, "be kind")
    if told in state.pins:
        message, pin = unpin_message(state, number)
        assert (message.number, pin) == (int(number), told)
        return
    with pytest.raises(UsageError, match="^" + re.escape(told)):
        unpin_message(state, number)


@pytest.mark.parametrize(("provider", "answers", "window", "name", "line"), [
    ("ollama", OLLAMA, 262_144, QWEN, ""),
    ("llamacpp", LLAMA_CPP, 8_192, GGUF, ""),
    ("lmstudio", LM_STUDIO, 4_096, QWEN, ""),
    ("vllm", listed(QWEN, max_model_len=40_960), 40_960, QWEN, ""),
    ("vllm", listed(QWEN), 32_768, QWEN,
     ', window 32k assumed: window under [models."vllm/qwen"] states it'),
    ("vllm", {}, 32_768, "",
     ', window 32k assumed: window under [models."vllm/qwen"] states it'),
])  # fmt: skip
async def test_a_session_has_the_window_of_its_local_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    answers: Answers,
    window: int,
    name: str,
    line: str,
) -> None:
    for limit in ("CONNECT_S", "ANSWER_S"):
        monkeypatch.setattr(f"longrein.models.local_server.{limit}", HANG_S)
    with serving(answers) as local:
        text = f'model = "{provider}/qwen"\n[providers.{provider}]\nbase_url = "{local.url}/v1"\n'
        session = await opened(place(tmp_path, config_text=text))
        try:
            assert session.model == f"{provider}/qwen"
            assert session.budget.window_tokens == window
            assert assumed_window(session.model, session.budget) == line
            said = f"{provider}/qwen is the model {name} of its server"
            assert (said in session.notes) == bool(name)
            assert session.effort == ""
            session.app.budget(session.model)
            assert local.asked.count("GET /v1/models") == 1, "a server is asked once"
        finally:
            await session.session.close()
