"""Reading of files that are huge, endless, or none: a few system calls, and a clear error."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from longrein.config import (
    load_instructions,
    load_settings,
    load_subagent_types,
    read_trusted,
    trust_preview,
)
from longrein.config.user_environment import read_bounded
from longrein.settings_schema import Settings
from longrein_context.events import SettingsError
from tests.tables import split_words


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 20 << 30)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def looping(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()


SAID = [
    (sparse, "larger than 1 MB"),
    (pipe, "a device, pipe or socket, not a file"),
    (endless, "a device, pipe or socket, not a file"),
    (looping, "Too many levels of symbolic links"),
    (folder, "a folder, not a file"),
]


@pytest.mark.parametrize(("make", "said"), SAID)
def test_what_is_no_small_file_is_refused(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    make(tmp_path / "f")
    with pytest.raises(OSError, match=said):
        read_bounded(str(tmp_path / "f"), 1 << 20)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096])
def test_a_file_up_to_the_limit_is_read_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(b"x" * size)
    assert read_bounded(str(tmp_path / "f"), 4096) == b"x" * size
    with pytest.raises(OSError, match="larger than 3 kB"):
        read_bounded("/proc/self/maps", 3 << 10)  # its size says 0
    (tmp_path / "f").write_bytes(b"x" * 4097)
    with pytest.raises(OSError, match="larger than 4 kB"):
        read_bounded(str(tmp_path / "f"), 4096)


def test_a_link_that_came_into_a_judged_path_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/f").write_text("canary")
    (tmp_path / "a/f").symlink_to("../secrets/f")
    with pytest.raises(OSError, match="symbolic link"):
        read_bounded(str(tmp_path / "a/f"), 100, exact=True)
    (tmp_path / "b").symlink_to("secrets")
    with pytest.raises(OSError, match="symbolic link"):
        read_bounded(str(tmp_path / "b/f"), 100, exact=True)


PLACES = split_words("""
    repo/AGENTS.md repo/AGENTS.local.md repo/imported.md repo/.claude/agents/a.md
    repo/.longrein/config.toml home/.config/longrein/config.toml home/.config/longrein/AGENTS.md
    home/.claude/agents/a.md state/trusted.json
""")


@pytest.mark.parametrize("make", [make for make, _ in SAID])
@pytest.mark.parametrize("place", PLACES)
def test_every_file_of_a_start_is_read_with_a_bound(
    tmp_path: Path, place: str, make: Callable[[Path], None]
) -> None:
    """A reader without a bound needs minutes, gigabytes or for ever: the test's limit ends it."""
    home, repo, state = (tmp_path / name for name in ("home", "repo", "state"))
    for made in (home, repo / ".git", state, (tmp_path / place).parent):
        made.mkdir(parents=True, exist_ok=True)
    if place == "repo/imported.md":
        (repo / "AGENTS.md").write_text("@imported.md")
    make(tmp_path / place)
    refused = pytest.raises(SettingsError, match=r"cannot be read|larger than 1 MB")
    leads_out = make is endless and place.startswith("repo")
    with refused if place.endswith("config.toml") and not leads_out else nullcontext():
        load_settings(cwd=str(repo), home=str(home), environ={}, flags={}, trusted=True)
    found = load_instructions(str(repo), str(home), {}, Settings(), lambda _: True)
    _, notes = load_subagent_types((), str(repo), str(home), {}, trusted=lambda _: True)
    trust_preview(str(repo), str(home), {}, Settings())
    read_trusted(str(state)).cover(str(repo))
    assert all(len(text) < 1000 for text in found.texts)
    told = [*found.notes, *notes]
    if place.endswith(".md") and (make is sparse or (make is pipe and place != "repo/imported.md")):
        assert any(line.endswith("left out.") for line in told), told
