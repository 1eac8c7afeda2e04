"""Trusted folders: kept by real path in the state folder, never taken from the folder itself. S047, S052."""

import os
from pathlib import Path

import pytest

from longrein.config import distrust, is_trusted, trust
from longrein.events import SettingsError


def test_trust_holds_for_the_real_folder_and_below(tmp_path: Path) -> None:
    state, repo, other = str(tmp_path / "state"), tmp_path / "repo", tmp_path / "repo-evil"
    (repo / "sub").mkdir(parents=True)
    other.mkdir()
    (tmp_path / "link").symlink_to(repo)
    assert not is_trusted(state, str(repo))
    trust(state, str(tmp_path / "link"), "/home/ann")
    trust(state, str(repo), "/home/ann")
    assert all(is_trusted(state, str(p)) for p in (repo, repo / "sub", tmp_path / "link"))
    assert not any(is_trusted(state, str(p)) for p in (other, tmp_path))
    assert (tmp_path / "state/trusted.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    distrust(state, str(repo))
    assert not is_trusted(state, str(repo))


def test_a_link_that_is_turned_elsewhere_loses_its_trust(tmp_path: Path) -> None:
    state, link = str(tmp_path / "state"), tmp_path / "link"
    for name in ("good", "evil"):
        (tmp_path / name).mkdir()
    link.symlink_to(tmp_path / "good")
    trust(state, str(link), "/home/ann")
    link.unlink()
    link.symlink_to(tmp_path / "evil")
    assert not is_trusted(state, str(link))


def test_the_whole_home_is_never_trusted(tmp_path: Path) -> None:
    home = tmp_path / "home" / "ann"
    home.mkdir(parents=True)
    for folder in (home, home.parent, Path("/")):
        with pytest.raises(SettingsError, match="holds your whole home: trust the folder of one project"):
            trust(str(tmp_path / "state"), str(folder), str(home))


@pytest.mark.parametrize("damage", ["", "\x00\x00", "{", '{"a": 1}', "[1]", '["/"]'])
def test_R049_a_damaged_list_trusts_nothing(tmp_path: Path, damage: str) -> None:
    (tmp_path / "trusted.json").write_text(damage)
    assert not is_trusted(str(tmp_path), str(tmp_path))
    trust(str(tmp_path), str(tmp_path), "/home/ann")
    assert is_trusted(str(tmp_path), str(tmp_path))


def test_what_cannot_be_written_is_said_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(SettingsError, match=r"^/.*/state/trusted.json cannot be written \((File exists|Not a dir)"):
        trust(str(tmp_path / "state"), str(tmp_path), "/home/ann")


def test_a_list_that_never_ends_trusts_nothing(tmp_path: Path) -> None:
    (tmp_path / "trusted.json").write_text("[")
    os.truncate(tmp_path / "trusted.json", 20 << 30)
    assert not is_trusted(str(tmp_path), "/work")
