"""Small files are written completely or not at all."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longrein.atomic_file import move_into_place, replace_file


def failing() -> Iterator[bytes]:
    yield b"half"
    raise OSError("no room")


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_whole_or_stays(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "a.json"
    before = os.umask(0o077)
    try:
        replace_file(str(path), (b"one ", b"two"), durable=durable, mode=0o644)
    finally:
        os.umask(before)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"one two", 0o644)
    with pytest.raises(OSError, match="no room"):
        replace_file(str(path), failing(), durable=durable)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"one two", ["a.json"])
    (tmp_path / "a.json.new").write_bytes(
        b"left by a killed process, and longer than the next content"
    )
    replace_file(str(path), (b"three",), durable=durable)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"three", ["a.json"])


def test_what_cannot_take_its_place_is_removed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(
            str(tmp_path / "folder"), (b"x",), durable=False, temporary=str(tmp_path / "temporary")
        )
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_another_name_of_the_temporary_file_is_kept(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "other").write_bytes(b"mine")
    link(tmp_path / "other", tmp_path / "a.new")
    replace_file(str(tmp_path / "a"), (b"x",), durable=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a": b"x",
        "other": b"mine",
    }


def test_a_finished_file_takes_the_place_of_another(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a.new").write_bytes(b"new")
    move_into_place(str(tmp_path / "a.new"), str(tmp_path / "a"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"new"}
