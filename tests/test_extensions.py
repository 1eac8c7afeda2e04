"""The core runs without any of its extensions: each is deleted from a copy in turn, then all."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import longrein
from lab.source_tree import TREES
from longrein.config.trusted_folders import Kind
from longrein.extension_points import (
    BUNDLED,
    COMMANDS_DOOR,
    DOORS,
    OWN_PACKAGES,
    STORES_DOOR,
    TRUST_DOOR,
    Command,
    bundled_extensions,
    bundled_points,
    load_object,
)
from longrein.frontends.subcommands import COMMANDS
from tests.tables import split_words
from tests.timeouts import HANG_S

ROOT = Path(__file__).parent.parent
SOURCE = Path(longrein.__file__).parent
ALL = "all of them"
CORE_SUITE = split_words("""
    tests/agent/test_loop.py tests/headless/test_run.py tests/tools/test_tool_registry.py
""")
"""A slice of the suite that needs no extension."""


class Copy:
    """A copy of the package, with a home, a state folder and a scripted model."""

    def __init__(self, folder: Path) -> None:
        self.package, self.home = folder / "src/longrein", folder / "home"
        for tree in TREES:
            shutil.copytree(tree, folder / "src" / tree.name)
        config = self.home / ".config/longrein/config.toml"
        config.parent.mkdir(parents=True)
        script = folder / "script.json"
        script.write_text('{"turns": [{"text": "Hello."}]}')
        config.write_text(
            f'model = "play/one"\n[providers.play]\nwire = "scripted"\nbase_url = "{script}"\n'
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run `longrein WORDS`; return code, stdout and stderr."""
        return self.python("-m", "longrein", *words, cwd=self.home)

    def python(self, *words: str, cwd: Path) -> tuple[int, str, str]:
        """Run Python with the copy on its path; return code, stdout and stderr."""
        done = subprocess.run(
            [sys.executable, "-P", *words],
            cwd=cwd,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "LANG": "C.UTF-8",
                "LONGREIN_STATE_DIR": str(self.home / "state"),
                "PYTHONPATH": str(self.package.parent),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def delete(self, extension: str) -> None:
        """Delete the folder of an extension, as a user would. In place of a package of its own
        stands one that is empty, since the checkout's is installed beside the copy.
        """
        for number, folder in enumerate(self._folders(extension)):
            folder.rename(self.package.parent / f"deleted-{number}")
            if folder.parent == self.package.parent:
                folder.mkdir()
                (folder / "__init__.py").touch()

    def restore(self, extension: str) -> None:
        """Put the folder back."""
        for number, folder in enumerate(self._folders(extension)):
            if folder.exists():
                shutil.rmtree(folder)
            (self.package.parent / f"deleted-{number}").rename(folder)

    def _folders(self, extension: str) -> list[Path]:
        own = [self.package.parent / package for package in OWN_PACKAGES.values()]
        if extension == ALL:
            return [self.package / "extensions", *own]
        return own if extension in OWN_PACKAGES else [self.package / "extensions" / extension]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


@pytest.fixture(params=[*BUNDLED, ALL])
def deleted(whole: Copy, request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of an extension that has been deleted from the copy."""
    whole.delete(request.param)
    yield request.param
    whole.restore(request.param)


def test_core_runs_without_an_extension_and_says_what_is_absent(whole: Copy, deleted: str) -> None:
    assert whole.run("-p", "go") == (0, "Hello.\n", "")
    _, doctor, err = whole.run("doctor")
    assert err == ""
    absent = [*BUNDLED] if deleted == ALL else [deleted]
    assert re.findall(r"^note +extension +(\w+) is not installed here", doctor, re.M) == absent
    here = ", ".join(name for name in BUNDLED if name not in absent)
    assert re.findall(r"^ok +extension +(.*)$", doctor, re.M) == [here] * bool(here)
    for name in absent:
        for command in BUNDLED[name][:1]:
            code, out, err = whole.run(command, "--json")
            assert (code, out) == (2, "")
            told = f"no command '{command}': it belongs to the extension {name}, which is not"
            assert told in err
            assert err.count("\n") == 1


def test_settings_of_an_absent_extension_are_left_out_with_a_line(whole: Copy) -> None:
    config = whole.home / ".config/longrein/config.toml"
    before = config.read_text()
    config.write_text(f"{before}[mcp]\nstartup_s = 5\n")
    whole.delete("mcp")
    try:
        code, out, err = whole.run("-p", "go")
        assert (code, out) == (0, "Hello.\n")
        assert "config.toml:6: mcp.startup_s was left out: not installed here: mcp" in err
    finally:
        whole.restore("mcp")
        config.write_text(before)


def test_the_suite_of_the_core_passes_without_extensions(whole: Copy) -> None:
    whole.delete(ALL)
    try:
        program = (
            "import longrein, pytest, sys\n"
            f"assert longrein.__file__.startswith({str(whole.package)!r})\n"
            "sys.exit(pytest.main(sys.argv[1:]))"
        )
        code, out, err = whole.python("-c", program, "-q", "-x", *CORE_SUITE, cwd=ROOT)
        assert code == 0, out + err
    finally:
        whole.restore(ALL)


def test_a_fleet_has_no_page_without_the_inspector(whole: Copy) -> None:
    whole.delete("inspector")
    try:
        said = "longrein: longrein fleet inspect: it belongs to the extension inspector, which is "
        assert whole.run("fleet", "inspect", "x") == (2, "", f"{said}not installed here\n")
    finally:
        whole.restore("inspector")


def test_formats_of_others_are_missing_in_one_line_without_transcripts(whole: Copy) -> None:
    whole.delete("transcripts")
    file = whole.home / "t.jsonl"
    file.write_text('{"type":"user"}\n')
    try:
        code, _, err = whole.run("import", str(file))
        assert (code, err.count("\n")) == (1, 1)
        assert "the extension transcripts" in err
        code, _, err = whole.run("export", "x", "--format", "html")
        assert (code, err) == (2, "longrein: --format: 'html' is not one of jsonl, transcript\n")
    finally:
        whole.restore("transcripts")


def test_servers_that_are_asked_for_are_told_of_without_mcp(whole: Copy) -> None:
    whole.delete("mcp")
    try:
        servers = '{"mcpServers": {"x": {"command": "x"}}}'
        said = "longrein: MCP servers are not used: the extension mcp is not installed here\n"
        assert whole.run("-p", "go", "--mcp-config", servers) == (0, "Hello.\n", said)
    finally:
        whole.restore("mcp")


def test_a_folder_is_an_extension_without_an_entry_in_any_table(whole: Copy) -> None:
    assert whole.run("-p", "go")[0] == 0
    folder = whole.package / "extensions" / "shout"
    folder.mkdir()
    (folder / "__init__.py").write_text(SHOUT)
    (folder / "entry_points.txt").write_text(SHOUT_POINTS)
    try:
        assert whole.run("shout", "hi") == (0, "HI\n", "")
        assert "  shout " in whole.run("help")[1]
        assert "Shout " in whole.run("--list-tools")[1]
        said = "longrein: note of a part\nlongrein: seen\nlongrein: moves\nlongrein: ended\n"
        code, out, err = whole.run("-p", "go")
        assert (code, out, sorted(err.split("\n"))) == (0, "Hello.\n", sorted(said.split("\n")))
        project = whole.home / "project"
        project.mkdir()
        (project / "shout.txt").touch()
        shown = whole.python("-m", "longrein", "trust", "--show", cwd=project)[1]
        assert "  shouts  shout.txt\n" in shown
        session = next((whole.home / "state/sessions").iterdir()).name
        assert whole.run("export", session, "--format", "loud")[1] == "OPENED"
        file = whole.home / "x.loud"
        file.write_text("x")
        assert whole.run("import", str(file)) == (0, f"took {file}\n", "")
    finally:
        shutil.rmtree(folder)


SHOUT = """
from glob import glob

from longrein import tool
from longrein.agent.extension_part import ExtensionPart
from longrein.config.trusted_folders import Kind
from longrein.extension_points import Command
from longrein.frontends.stdio import say


@tool(access="none")
async def Shout(text: str) -> str:
    'Say it loudly.'
    return text.upper()


def run(place, words):
    print(words[0].upper())
    return 0


def observe(observed):
    async def finish():
        observed.notice("ended")

    say("seen")
    return finish


class Part(ExtensionPart):
    notes = ("note of a part",)

    def __init__(self, run_context, additions):
        self.moves = 0

    async def before_move(self):
        self.moves += 1
        if self.moves == 1:
            say("moves")


SHOUTS = Kind("shouts", lambda folder: glob(folder.cwd + "/shout.txt"))


def export(reader):
    return type(next(reader.entries()).event).__name__.upper().encode()


async def take(place, path):
    return f"took {path}" if path.endswith(".loud") else ""


SHOUT = Command("shout", "TEXT", "Say it loudly.", words_max=1, run=run)
"""
SHOUT_POINTS = "".join(
    f"[longrein.{door}]\n{name} = longrein.extensions.shout:{part}\n"
    for door, name, part in (
        ("commands", "shout", "SHOUT"),
        ("tools", "shout", "Shout"),
        ("observers", "shout", "observe"),
        ("session_parts", "shout", "Part"),
        ("trust", "shout", "SHOUTS"),
        ("exporters", "loud", "export"),
        ("importers", "loud", "take"),
    )
)


def test_what_can_be_absent_is_what_is_here() -> None:
    commands = [point for point in bundled_points() if point.door == COMMANDS_DOOR]
    assert tuple(bundled_extensions()) == tuple(BUNDLED)
    for name, listed in BUNDLED.items():
        assert tuple(one.name for one in commands if one.extension == name) == listed
    folders = {path.name for path in (SOURCE / "extensions").iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} | OWN_PACKAGES.keys() == set(BUNDLED)


def test_a_public_door_is_never_taken_away() -> None:
    """A package that somebody has built on 1.0 must work until 2.0: add to these, remove none."""
    promised = "commands tools providers policies session_parts trust observers exporters importers"
    assert {f"longrein.{door}" for door in promised.split()} <= DOORS.keys()
    fields = ("name", "usage", "help", "flags", "words_max", "words_min", "run")
    assert tuple(Command.__annotations__)[: len(fields)] == fields


def test_each_part_of_a_bundled_extension_exists_and_comes_in_by_a_public_door() -> None:
    for point in bundled_points():
        assert point.door in DOORS
        if point.door == STORES_DOOR and find_spec("psycopg") is None:
            continue
        part = point.load()
        if point.door == COMMANDS_DOOR:
            assert isinstance(part, Command)
            assert part.name == point.name
            assert part.after in COMMANDS
            assert isinstance(part.run, str)
            part = load_object(part.run)
        if point.door == TRUST_DOOR:
            assert isinstance(part, Kind)
            part = part.find
        assert callable(part)
