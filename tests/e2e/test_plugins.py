"""Plugins: installed packages with entry points, used only when the user's settings name them."""

import os
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

from longrein_context.events import ToolEnded, UserSpoke
from tests.e2e.harness import CliHarness, call, calls, of, says

CODE = '''
from pathlib import Path
from typing import Annotated

import msgspec

import longrein
from longrein.settings_schema import Setting
from longrein_context import Nothing, decide
from longrein.testing import ScriptedModel, says

Path.home().joinpath("loaded").touch()


@longrein.tool(access="none")
async def Shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@longrein.tool(access="write", paths=[("file_path", True)])
async def Stamp(file_path: str) -> str:
    """Stamp a file."""
    return "stamped"


def all_tools():
    return [Shout, Stamp]


def acme(model):
    if model == "none":
        raise ValueError("there is no such model")
    made = ScriptedModel(says(f"I am acme/{model}"))
    if model != "stranger":
        made.name, made.provider, made.model = f"acme/{model}", "acme", model
    return made


def quiet(state, budget, now_us=0, *, pressed=False):
    return Nothing("the plugin never clears")


def broken(state, budget, now_us=0, *, pressed=False):
    raise RuntimeError("oops")


def wrong(state, budget, now_us=0, *, pressed=False):
    return 5


NUMBER = 7


class Loud(msgspec.Struct, frozen=True):
    times: Annotated[int, Setting("how often", least=1)] = 1
    place: Annotated[str, Setting("where")] = "here"


def observe(observed):
    Path.home().joinpath("loud").write_text(str(observed.settings.of(Loud)))


@longrein.tool(access="none")
async def Bash(command: str) -> str:
    """Not the real one."""
    return ""
'''


def wheel(folder: Path, name: str, **points: str) -> str:
    """Build a wheel of the package `name` with these entry points; return its path."""
    module, groups = name.replace("-", "_"), defaultdict(str)
    for word, value in points.items():
        group, _, point = word.partition("__")
        groups[group] += f"{point} = {module}:{value}\n"
    entry_points = "".join(
        f"[longrein.{group}]\n{lines}\n" for group, lines in groups.items() if lines
    )
    path, info = folder / f"{module}-1.0-py3-none-any.whl", f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}.py", CODE)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/entry_points.txt", entry_points)
        archive.writestr(f"{info}/RECORD", "")
    return str(path)


def use(
    cli: CliHarness,
    named: tuple[str, ...],
    *wheels: str,
    model: str = "play/one",
    settings: str = "",
) -> None:
    """Put wheels on the import path of longrein, and name plugins in the user's settings."""
    cli.env["PYTHONPATH"] = os.pathsep.join(wheels)
    cli.settings(f"plugins = {list(named)}\n{settings}", model)


def test_a_package_that_no_setting_names_is_not_loaded(cli: CliHarness) -> None:
    use(cli, (), wheel(cli.folder, "longrein-acme", tools__all="all_tools"))
    cli.plays(says("hi"))
    assert cli.run("-p", "go").told() == (0, "hi\n", "")
    project = cli.project / ".longrein" / "config.toml"
    project.parent.mkdir()
    project.write_text('plugins = ["longrein-acme"]\n')
    cli.plays(says("hi"))
    assert cli.run("-p", "go", "--trust").text == "hi\n"
    assert not (cli.home / "loaded").exists()  # a project cannot name any


def test_the_tools_of_a_plugin_are_offered_run_and_asked_about_like_any(cli: CliHarness) -> None:
    use(cli, ("longrein-acme",), wheel(cli.folder, "longrein-acme", tools__all="all_tools"))
    cli.plays(calls(call("Shout", text="hi"), call("Stamp", file_path="a.txt")), says("done"))
    done = cli.run("-p", "go")
    assert done.text.endswith("done\n")
    assert [(end.name, end.status) for end in of(cli, ToolEnded)] == [
        ("Shout", "ok"),
        ("Stamp", "denied"),
    ]
    assert cli.results()[0] == ("ok", "HI")


def test_a_provider_of_a_plugin_opens_its_models_also_on_a_resume(cli: CliHarness) -> None:
    use(
        cli,
        ("longrein-acme",),
        wheel(cli.folder, "longrein-acme", providers__acme="acme"),
        model="acme/large",
    )
    assert cli.run("-p", "go").text.endswith("I am acme/large\n")
    assert cli.run("-p", "-c", "go").text.endswith("I am acme/large\n")
    none, stranger = (
        cli.run("-p", "go", "--model", f"acme/{name}").err for name in ("none", "stranger")
    )
    assert none == "longrein: longrein-acme cannot open acme/none: there is no such model\n"
    assert "longrein-acme cannot open acme/stranger: its model calls itself" in stranger


def test_doctor_lists_what_plugins_bring_and_why_one_cannot_be_used(cli: CliHarness) -> None:
    acme = wheel(cli.folder, "longrein-acme", tools__all="all_tools", providers__acme="acme")
    use(cli, ("longrein-acme",), acme, model="acme/large")
    done = cli.run("doctor")
    assert done.code == 0, done.text
    for line in (
        "acme/large (of a plugin)",
        "longrein-acme: tool Shout",
        "longrein-acme: provider acme",
    ):
        assert line in done.text
    use(cli, ("longrein-acme", "longrein-none"), acme)
    done = cli.run("doctor")
    assert done.code == 1
    assert (
        "MISSING  plugin         plugin longrein-none is not installed in longrein's Python"
        in done.text
    )


@pytest.mark.parametrize(
    ("policy", "said"), [("quiet", ""), ("broken", "RuntimeError: oops"), ("wrong", "returned 5")]
)
def test_a_policy_of_a_plugin_decides_and_a_broken_one_harms_nothing(
    cli: CliHarness, policy: str, said: str
) -> None:
    use(cli, ("longrein-acme",), wheel(cli.folder, "longrein-acme", policies__mine=policy))
    cli.plays(says("hi"))
    done = cli.run("-p", "go")
    assert (done.code, done.text.endswith("hi\n"), said in done.err) == (0, True, True)
    assert len(of(cli, UserSpoke)) == 1


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (None, "plugin longrein-acme is not installed in longrein's Python"),
        (
            {},
            "plugin longrein-acme has no entry point of longrein (longrein.commands, ",
        ),
        ({"tools__x": "missing"}, "cannot be loaded: AttributeError"),
        ({"tools__x": "NUMBER"}, "cannot be loaded: TypeError"),
        ({"policies__x": "NUMBER"}, "longrein_acme:NUMBER is no function"),
        ({"tools__x": "Bash"}, "brings the tool Bash, which longrein or the settings has already"),
        (
            {"tools__x": "Shout", "tools__y": "all_tools"},
            "brings the tool Shout, which longrein-acme has already",
        ),
        (
            {"providers__anthropic": "acme"},
            "brings the provider anthropic, which longrein or the settings",
        ),
        (
            {"policies__x": "quiet", "policies__y": "quiet"},
            "brings the policy, which longrein-acme has already",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used_is_one_line_and_leaves_no_session(
    cli: CliHarness, points: dict[str, str] | None, said: str
) -> None:
    wheels = [] if points is None else [wheel(cli.folder, "longrein-acme", **points)]
    use(cli, ("longrein-acme",), *wheels)
    cli.plays(says("hi"))
    done = cli.run("-p", "go")
    assert (done.code, said in done.err, done.err.count("\n")) == (2, True, 1), done.err
    assert cli.left() == "no session"


LOUD = "[loud]\ntimes = 3\n"


def test_a_table_of_settings_comes_with_a_plugin(cli: CliHarness) -> None:
    points = {"settings__loud": "Loud", "observers__loud": "observe"}
    acme = wheel(cli.folder, "longrein-acme", **points)
    use(cli, ("longrein-acme",), acme, settings=LOUD)
    cli.plays(says("hi"), says("hi"))
    cli.run("-p", "go")
    assert (cli.home / "loud").read_text() == "Loud(times=3, place='here')"
    cli.env["LONGREIN_LOUD_PLACE"] = "there"
    cli.run("-p", "go")
    assert (cli.home / "loud").read_text() == "Loud(times=3, place='there')"
    del cli.env["LONGREIN_LOUD_PLACE"]
    use(cli, ("longrein-acme",), acme, settings="[loud]\ntimes = 0\n")
    assert "loud.times must be a whole number of 1 or more, not 0" in cli.run("-p", "go").err
    use(cli, ("longrein-acme",), acme, settings="[loud]\ntime = 3\n")
    assert "loud.time is not a setting: did you mean loud.times?" in cli.run("-p", "go").err


@pytest.mark.parametrize(
    ("points", "told"),
    [
        (
            {"settings__loud": "NUMBER"},
            "loud.times was left out: not installed here: longrein-acme",
        ),
        ({"settings__loud": "missing"}, "loud.times was left out"),
        ({"settings__limits": "Loud"}, "loud.times is not a setting"),
    ],
    ids=["no struct", "no such name", "a table of longrein"],
)
def test_a_table_that_no_plugin_brings_is_told(
    cli: CliHarness, points: dict[str, str], told: str
) -> None:
    acme = wheel(cli.folder, "longrein-acme", **points)
    use(cli, ("longrein-acme",), acme, settings=LOUD)
    cli.plays(says("hi"))
    assert told in cli.run("-p", "go").err


def test_no_table_of_a_project_loads_a_package(cli: CliHarness) -> None:
    use(cli, (), wheel(cli.folder, "longrein-acme", settings__loud="Loud"))
    project = cli.project / ".longrein" / "config.toml"
    project.parent.mkdir()
    project.write_text(f'plugins = ["longrein-acme"]\n{LOUD}')
    cli.plays(says("hi"))
    assert "loud.times is not a setting" in cli.run("-p", "go", "--trust").err
    assert not (cli.home / "loaded").exists()
