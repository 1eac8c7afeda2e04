"""A running longrein and an open session, as every frontend uses them."""

from pathlib import Path

import msgspec
import pytest

from longrein.app import App, AppSession
from longrein.app.run_context import RunContext, read_run_context
from longrein.options import Options

pytestmark = pytest.mark.anyio
CONFIG = """
model = "mock/claude-sonnet-4-5"
[providers.mock]
wire = "anthropic"
base_url = "http://127.0.0.1:9/v1"
[models."mock/claude-sonnet-4-5"]
window = 100000
"""


def place(tmp_path: Path, project: str = "") -> RunContext:
    config = tmp_path / ".config/longrein/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG)
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


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("mock/other", "mock/other"),
        ("sonnet", "mock/claude-sonnet-4-5"),
        ("default", "mock/claude-sonnet-4-5"),
    ],
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
        model = session.deps.open_model("mock/claude-sonnet-4-5")
        assert session.effort == "high"
        assert model._wire.target.effort == "high"  # type: ignore[attr-defined]
    finally:
        await session.session.close()
