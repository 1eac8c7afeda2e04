"""Where programs keep tokens: found wherever variables move them, and not seen by commands."""

import os
from pathlib import Path

import pytest

from longrein.extensions.mcp.server_config import McpServer
from longrein.extensions.mcp.server_confinement import server_sandbox
from longrein.settings_schema import SandboxOptions
from longrein.workspace.sandbox import SessionSandbox
from longrein.workspace.sandbox.secret_places import FILES_OF_VARIABLES, PLACES, secret_paths
from tests.workspace.test_sandbox import Confined, needs_bubblewrap


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("canary")
    return path


NAMED = """
    .config/longrein/credentials.json .cache/huggingface/token .nuget/NuGet/NuGet.Config .sbt/.credentials
    .sbt/1.0/credentials.sbt .ivy2/.credentials .cabal/config .julia/servers/a.org/auth.toml .npmrc
    .gradle/gradle.properties .cargo/credentials.toml .config/pip/pip.conf .config/pypoetry/auth.toml
    .gem/credentials .bundle/config .hex/hex.config .config/dart/pub-tokens.json .composer/auth.json
    .m2/settings.xml .condarc .docker/config.json .kube/config .config/gh/hosts.yml .netrc .git-credentials
    .config/glab-cli/config.yml .terraform.d/credentials.tfrc.json .pulumi/credentials.json .yarnrc.yml
    .local/share/uv/credentials/credentials.toml .ssh/id_rsa .gnupg/private-keys-v1.d/a .aws/credentials
    .config/gcloud/credentials.db .azure/msal_token_cache.json .dotnet/corefx/x .android/adbkey .pypirc
"""  # noqa: E501


@pytest.mark.parametrize("name", NAMED.split())
def test_a_usual_place_is_found(tmp_path: Path, name: str) -> None:
    path = str(write(tmp_path / name))
    [found] = secret_paths(str(tmp_path), {})
    assert f"{path}/".startswith(f"{found}/")
    assert found != str(tmp_path)


MOVED = {
    "XDG_CONFIG_HOME": "longrein/credentials.json",
    "XDG_CACHE_HOME": "huggingface/token",
    "XDG_DATA_HOME": "uv/credentials",
    **{place.variable: place.names[0] for place in PLACES if place.variable},
    **dict.fromkeys(FILES_OF_VARIABLES, ""),
}


@pytest.mark.parametrize("variable", MOVED)
def test_a_variable_moves_the_place(tmp_path: Path, variable: str) -> None:
    name = MOVED[variable].replace("*", "x")
    secret = write(tmp_path / "elsewhere" / name if name else tmp_path / "elsewhere")
    found = secret_paths(str(tmp_path / "home"), {variable: f"{tmp_path}/elsewhere"})
    assert str(secret) in found
    assert secret_paths(str(tmp_path / "home"), {variable: "elsewhere"}) == ()


def test_a_link_counts_where_it_leads_and_the_home_is_never_hidden(tmp_path: Path) -> None:
    real = write(tmp_path / "real")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.npmrc").symlink_to(real)
    for above in ("/", str(tmp_path), str(tmp_path / "home")):
        environ = {"GNUPGHOME": above, "NETRC": f"{above}/", "CLOUDSDK_CONFIG": above}
        assert secret_paths(str(tmp_path / "home"), environ) == (str(real),)


@needs_bubblewrap
@pytest.mark.anyio
@pytest.mark.parametrize(("secret", "variable"), [
    ("home/.cache/huggingface/token", ""),
    ("home/.julia/servers/a/auth.toml", ""),
    ("project/config/longrein/credentials.json", "XDG_CONFIG_HOME=project/config"),
    ("project/cargo/credentials.toml", "CARGO_HOME=project/cargo"),
])  # fmt: skip
async def test_a_command_does_not_see_it(
    tmp_path: Path, secret: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, place = variable.partition("=")
    if name:
        monkeypatch.setenv(name, str(tmp_path / place))
    confined = Confined(tmp_path, SandboxOptions(home=("~/.cache", "~/.julia")))
    beside = write(tmp_path / os.path.dirname(secret) / "beside")
    write(tmp_path / secret)
    ended, printed = await confined.run(f"cat {beside}; cat {tmp_path / secret}")
    assert printed.count("canary") == 1
    assert ended.code != 0


@needs_bubblewrap
@pytest.mark.anyio
async def test_a_file_that_the_user_names_is_seen(tmp_path: Path) -> None:
    confined = Confined(tmp_path, SandboxOptions(home=("~/.npmrc",)))
    write(tmp_path / "home/.npmrc")
    assert await confined.runs("grep canary ~/.npmrc")


def test_links_of_a_project_show_a_server_nothing_of_home(tmp_path: Path) -> None:
    """The session works in a folder below the one where the project's server starts."""
    home, project = tmp_path / "home", tmp_path / "home/project"
    for folder in (project / "below", project / ".venv/bin", home / "private/bin"):
        folder.mkdir(parents=True)
    (home / "private/key").write_text("x")
    (project / "run").symlink_to(home / "private/key")
    (project / ".venv/pyvenv.cfg").write_text(f"home = {home}/private/bin\n")
    (project / ".venv/lib").symlink_to(home / "private")
    for program in (project / ".venv/bin/python", home / "private/bin/python3"):
        program.write_text("")
        program.chmod(0o755)
    sandbox = SessionSandbox(
        SandboxOptions("off"), folder=str(tmp_path / "session"), home=str(home), environ={},
        state_dir=str(tmp_path / "state"), roots=[str(project / "below")],
    )  # fmt: skip
    for word in ("./run", ".venv/bin/python", str(home / "private/key")):
        server = McpServer("s", command=(word,), sandbox="strict")
        shown = server_sandbox(sandbox, server, str(project)).visible_home
        places = [os.path.realpath(path) for path in shown]
        assert [path for path in places if path.startswith(str(home / "private"))] == [], word
