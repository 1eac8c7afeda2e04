"""Path resolution: inside means that the written and the real path both lie in a root, by
component.
"""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.workspace import ResolvedPath
from longrein.workspace.files import find_program, is_inside, resolve_path, spellings


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A root `w/repo` with links in and out of it, and neighbours with similar names."""
    root = tmp_path / "w" / "repo"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("x = 1\n")
    (tmp_path / "w" / "repo-evil").mkdir()
    (tmp_path / "w" / "repo-evil" / "secret").write_text("s")
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path / "w" / "repo-evil")
    (root / "leak").symlink_to("../repo-evil/secret")
    (root / "in").symlink_to("src/a.py")
    (root / "dangling").symlink_to(tmp_path / "nowhere" / "x")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    (tmp_path / "w" / "alias").symlink_to(root)
    return tmp_path / "w"


def looked(world: Path, path: str, root: str = "repo") -> ResolvedPath:
    return resolve_path(
        path, str(world / "repo"), spellings([str(world / root)]), str(world.parent / "home")
    )


@pytest.mark.parametrize(("path", "inside", "kind"), [
    ("src/a.py", True, "file"),
    ("./src/../src/a.py", True, "file"),
    ("{w}/repo/src", True, "folder"),
    ("{w}/repo", True, "folder"),
    (".", True, "folder"),
    ("src/new.py", True, ""),
    ("in", True, "file"),
    ("pipe", True, "other"),
    ("src/a.py/x", True, ""),
    # S031: names that only begin like the root
    ("{w}/repo-evil/secret", False, "file"),
    ("{w}/repo2/x", False, ""),
    ("../repo-evil/secret", False, "file"),
    # S032: ways out
    ("../x", False, ""),
    ("src/../../x", False, ""),
    ("~/.ssh/id", False, ""),
    ("~", False, "folder"),
    ("~root", False, "folder"),
    ("/etc/passwd", False, "file"),
    ("//etc//passwd", False, "file"),
    ("/", False, "folder"),
    # S032: nothing is expanded or decoded, these are odd names inside
    ("$HOME/x", True, ""),
    ("%2e%2e/x", True, ""),
    ("file:///etc/passwd", True, ""),
    ("~nosuchuser/x", True, ""),
    # S033: links count as what they lead to
    ("out/secret", False, "file"),
    ("out", False, "folder"),
    ("out/../repo/src/a.py", True, "file"),
    ("leak", False, "file"),
    ("dangling", False, ""),
    ("{w}/alias/src/a.py", False, "file"),
    # impossible
    ("", False, ""),
    ("a\0b", False, ""),
    ("\ud800", False, ""),
    ("loop", True, ""),
])  # fmt: skip
def test_S031_S032_S033_where_a_path_leads(world: Path, path: str, inside: bool, kind: str) -> None:
    place = looked(world, path.replace("{w}", str(world)))
    assert (place.inside, place.kind) == (inside, kind)


def test_S032_an_endless_path_is_no_crash(world: Path) -> None:
    for path in ("x" * 5000, "x/" * 2500, "../" * 1700 + "etc/passwd", "/" * 5000 + "etc/passwd"):
        assert looked(world, path).kind in ("", "file")
        assert not looked(world, path).inside


def test_a_link_and_dots_after_it_are_read_as_the_system_reads_them(world: Path) -> None:
    place = looked(world, "out/../repo-evil/secret")
    assert place.path == f"{world}/repo/repo-evil/secret", "as written: dots taken away"
    assert place.real == f"{world}/repo-evil/secret", "as opened: up from where the link leads"
    assert not place.inside


def test_R086_a_root_may_be_given_through_a_link(world: Path) -> None:
    assert looked(world, f"{world}/alias/src/a.py", root="alias").inside
    assert looked(world, f"{world}/repo/src/a.py", root="alias").inside
    assert looked(world, f"{world}/alias/out/secret", root="alias").inside is False


def test_R086_names_with_blanks_newlines_and_bytes_that_are_no_text(world: Path) -> None:
    for name in (b"a b", b"a\nb", "日本".encode(), b"\xff\xfe"):
        with open(os.fsencode(world) + b"/repo/" + name, "wb") as file:
            file.write(b"12345")
        place = looked(world, os.fsdecode(name))
        assert (place.kind, place.inside, place.size_bytes) == ("file", True, 5)


def test_the_root_of_the_file_system_holds_everything() -> None:
    assert is_inside("/etc", ["/"])
    assert resolve_path("x", "/", ("/",), "").inside


@given(st.text(max_size=40), st.text(max_size=10))
def test_no_text_makes_it_raise_or_lets_it_out(path: str, home: str) -> None:
    place = resolve_path(path, "/usr/lib", ("/usr/lib",), home)
    if place.inside:
        assert place.real == "/usr/lib" or place.real.startswith("/usr/lib/")
        assert ".." not in place.path.split("/")


def test_S026_programs_come_from_outside_the_roots(world: Path) -> None:
    for name in ("git", "sneaky"):
        (world / "repo" / name).write_text("#!/bin/sh\n")
        (world / "repo" / name).chmod(0o755)
    bin_folder = world / "bin"
    bin_folder.mkdir()
    (bin_folder / "sneaky").symlink_to(world / "repo" / "sneaky")
    (bin_folder / "plain").write_text("no program")
    roots = spellings([str(world / "repo")])
    search = f".::repo:{world}/repo:{bin_folder}:/usr/bin:/bin"
    assert find_program("git", search, roots) in ("/usr/bin/git", "/bin/git")
    assert find_program("sneaky", search, roots) == ""
    assert find_program("plain", search, roots) == ""
