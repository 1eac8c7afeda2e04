"""Files are opened by their judged path: what was put in its way since is refused, and nothing
outside is touched.
"""

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lab.support.spawner import spawner_in
from longrein.workspace import atomic_write, open_workspace
from longrein.workspace.atomic_write import replace
from longrein.workspace.files import content_hash, read, remove, resolve_path, stamp
from longrein.workspace.supervisor import openat
from longrein.workspace.supervisor.openat import open_beneath, open_folder, open_parent, open_real
from longrein.workspace.walk import entries
from tests.seeds import seeds
from tests.workspace.writing import write

CHANGED = re.escape(openat.CHANGED)


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either way to open a path."""
    monkeypatch.setattr(openat, "WALKS", 1 << 60 if request.param == "walk" else 0)
    return str(request.param)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A root with links in it, and a folder outside with the same names."""
    world = tmp_path.resolve()
    for top in ("root", "outside"):
        (world / top / "sub" / "deep").mkdir(parents=True)
        for name in ("a.txt", "sub/a.txt", "sub/deep/a.txt"):
            (world / top / name).write_text(f"{top}\n")
    (world / "root" / "link").symlink_to("sub")
    (world / "root" / "leak").symlink_to(world / "outside" / "a.txt")
    (world / "root" / "out").symlink_to(world / "outside")
    return world


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("path", "error"), [
    ("a.txt", ""),
    ("sub/deep/a.txt", ""),
    ("./sub//a.txt", ""),
    ("leak", CHANGED),
    ("link/a.txt", CHANGED),
    ("out/sub/a.txt", CHANGED),
    ("../outside/a.txt", "(?i)cross-device link"),
    ("sub/../../outside/a.txt", "(?i)cross-device link"),
    ("none", "No such file"),
    ("none/a.txt", "No such file"),
    ("a.txt/b", "Not a directory"),
    ("a\0b", "no usable path"),
    ("\ud800", "no usable path"),
    ("x" * 300, "File name too long"),
    ("x" * 5000, "File name too long"),
    ("x/" * 3000, "No such file"),
])  # fmt: skip
def test_S032_S033_what_opens_beneath_a_folder(
    world: Path, way: str, path: str, error: str
) -> None:
    with open_folder(str(world / "root")) as root:
        if error:
            with pytest.raises(OSError, match=error):
                os.close(open_beneath(root.descriptor, path, os.O_RDONLY))
        else:
            descriptor = open_beneath(root.descriptor, path, os.O_RDONLY)
            assert os.read(descriptor, 100) == b"root\n"
            assert not os.get_inheritable(descriptor)
            os.close(descriptor)


def test_S033_a_link_itself_is_no_way_to_open_a_folder_or_to_look_at_a_file(
    world: Path, way: str
) -> None:
    for path in ("link", "out", "leak"):
        for flags in (openat.IS_FOLDER, os.O_PATH):
            with pytest.raises(OSError, match=CHANGED):
                os.close(open_real(f"{world}/root/{path}", flags))
    with pytest.raises(OSError, match="no usable path"):
        open_parent(f"{world}/root/")


USES: list[tuple[str, Callable[[str], object]]] = [
    ("read", read),
    ("write", lambda path: write(path, b"ours\n")),
    ("write expected", lambda path: write(path, b"ours\n", expect=sha256(b"root\n").hexdigest())),
    (
        "write what stands outside",
        lambda path: write(path, b"ours\n", expect=sha256(b"outside\n").hexdigest()),
    ),
    ("create", lambda path: write(path + ".new", b"ours\n", expect="")),
    (
        "create below",
        lambda path: write(os.path.dirname(path) + "/new/er/file", b"ours\n", expect=""),
    ),
    ("replace", lambda path: replace(path, b"ours\n", expect=sha256(b"outside\n").hexdigest())),
    ("remove", remove),
]


@pytest.mark.parametrize(("use", "act"), USES, ids=[use for use, _ in USES])
@pytest.mark.parametrize("swapped", ["sub", "sub/deep", "sub/deep/a.txt"])
def test_what_was_swapped_after_the_check_is_refused(
    world: Path, way: str, use: str, act: Callable[[str], object], swapped: str
) -> None:
    root, before = world / "root", contents(world / "outside")
    judged = resolve_path("sub/deep/a.txt", str(root), [str(root)], "")
    assert (judged.inside, judged.kind) == (True, "file")
    (root / swapped).rename(root / "kept")
    (root / swapped).symlink_to(world / "outside" / swapped)
    if swapped.endswith(".txt") and use in ("remove", "create", "create below"):
        act(judged.real)  # these touch a name in a folder that has not changed
    else:
        with pytest.raises(OSError, match=CHANGED):
            act(judged.real)
        assert contents(root / "kept") == {} or b"root\n" in contents(root / "kept").values()
    assert contents(world / "outside") == before
    assert content_hash(judged.real) == ""
    assert stamp(judged.real).hash == ""
    assert list(entries(judged.real, lambda _: True)) == []
    assert resolve_path("sub/deep/a.txt", str(root), [str(root)], "").inside is (
        use == "remove" and ".txt" in swapped
    )


@pytest.mark.parametrize("step", ["exchange", "prepare_temp_file", "read_closed"])
def test_a_swap_in_the_middle_of_a_replacement_stays_in_the_opened_folder(
    world: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, before = world / "root", contents(world / "outside")
    real = getattr(atomic_write, step)

    def swapping(*args: Any) -> Any:
        if not (root / "kept").exists():
            (root / "sub").rename(root / "kept")
            (root / "sub").symlink_to(world / "outside" / "sub")
        return real(*args)

    monkeypatch.setattr(atomic_write, step, swapping)
    replaced = replace(str(root / "sub" / "a.txt"), b"ours\n", expect=sha256(b"root\n").hexdigest())
    assert replaced.data == b"ours\n"
    assert (root / "kept" / "a.txt").read_bytes() == b"ours\n"
    assert contents(world / "outside") == before
    assert [name for name in os.listdir(root / "kept") if name.startswith(".")] == []


def test_a_root_that_is_removed_and_made_again_stays_the_root(world: Path) -> None:
    workspace = open_workspace(
        [str(world / "root")], spawner=spawner_in(world / "spool"), environment={}
    )
    (world / "root").rename(world / "old")
    place = workspace.resolve("new/file", str(world / "root"))
    assert place.inside
    workspace.replace(place.real, b"x", expect="")
    assert (world / "root" / "new" / "file").read_bytes() == b"x"
    (world / "root" / "new" / "file").unlink()


# --- A program that swaps without end -------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(1))
def test_racer_between_look_and_use(world: Path, way: str, seed: int) -> None:
    """What is inside when it is looked at is inside when it is used, at any instant of the
    swaps.
    """
    root, before = world / "root", contents(world / "outside")
    (root / ".sub").symlink_to(world / "outside" / "sub")
    over = threading.Event()

    def race() -> None:
        with open_folder(str(root)) as folder:
            while not over.is_set():
                atomic_write.exchange(folder, "sub", ".sub")

    racer = threading.Thread(target=race)
    racer.start()
    used = 0
    try:
        for number in range(1500):
            place = resolve_path("sub/a.txt", str(root), [str(root)], "")
            if not place.inside:
                continue
            used += 1
            with suppress(OSError):
                assert read(place.real) in (b"root\n", b"ours\n")
            with suppress(OSError):
                for path, _ in entries(os.path.dirname(place.real), lambda _: True):
                    assert read(path) != b"outside\n"
            if number % 10 == 0:
                with suppress(OSError):
                    write(place.real, b"ours\n")
    finally:
        over.set()
        racer.join()
    assert used
    assert contents(world / "outside") == before


# --- Other names of a file, and what is no file ---------------------------------------------------


@pytest.mark.parametrize("expect", [None, sha256(b"outside\n").hexdigest()])
def test_a_hard_link_to_a_file_outside_is_broken_by_a_write(
    world: Path, expect: str | None
) -> None:
    outside, before = world / "outside" / "a.txt", contents(world / "outside")
    inside = world / "root" / "hard.txt"
    os.link(outside, inside)
    write(str(inside), b"ours\n", expect=expect)
    assert inside.read_bytes() == b"ours\n"
    assert contents(world / "outside") == before
    assert (outside.stat().st_nlink, inside.stat().st_nlink) == (1, 1)


def test_pipes_and_devices_are_told_by_their_status_and_not_opened(world: Path) -> None:
    pipe, woken = world / "root" / "pipe", world / "woken"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f'exec 3> "{pipe}"; : > "{woken}"'])
    try:
        assert resolve_path("pipe", str(world / "root"), [str(world / "root")], "").kind == "other"
        assert stamp(str(pipe)).hash == ""
        assert [
            path for path, _ in entries(str(world / "root"), lambda _: True) if path == str(pipe)
        ]
        with pytest.raises(OSError, match="is a device, pipe or socket"):
            write(str(pipe), b"x")
        assert not woken.exists(), "whoever waits to write still waits"
        with pytest.raises(OSError, match="is a device, pipe or socket"):
            read(str(pipe))
    finally:
        writer.kill()
        writer.wait()


def test_a_link_named_gitignore_is_not_read(world: Path) -> None:
    (world / "outside" / "rules").write_text("a.txt\n")
    (world / "root" / "sub" / ".gitignore").symlink_to(world / "outside" / "rules")
    found = {
        os.path.relpath(path, world / "root")
        for path, _ in entries(str(world / "root"), lambda _: True)
    }
    assert "sub/a.txt" in found


# --- Long paths and odd names ---------------------------------------------------------------------

LEVELS = 1_200
DEEP = "ddd/" * LEVELS


@pytest.fixture
def deep(world: Path) -> Iterator[str]:
    """Folder below so many that its path is longer than the system takes."""
    path = f"{world}/root/{DEEP}".rstrip("/")
    with open_folder(path, make=True):
        pass
    yield path
    subprocess.run(["rm", "-rf", str(world / "root" / "ddd")], check=True)


def test_a_file_below_many_folders_is_used_like_any_other(world: Path, deep: str) -> None:
    root = str(world / "root")
    write(f"{deep}/file", b"one\n", expect="")
    place = resolve_path(f"{DEEP}file", root, [root], "")
    found = (place.real, place.inside, place.kind, place.size_bytes)
    assert found == (f"{deep}/file", True, "file", 4)
    assert read(place.real) == b"one\n"
    then = stamp(place.real)
    assert then.hash == content_hash(place.real) == sha256(b"one\n").hexdigest()
    replaced = replace(place.real, b"two\n", expect=then.hash)
    assert replaced.data == read(place.real) == b"two\n"
    assert stamp(place.real).hash != then.hash
    assert [
        path
        for path, is_folder in entries(root, lambda _: True)
        if not is_folder and path == place.real
    ]
    remove(place.real)
    assert resolve_path(place.real, root, [root], "").kind == ""


def test_a_long_path_is_resolved_like_a_short_one(world: Path, deep: str) -> None:
    root = str(world / "root")
    with open_folder(deep) as folder:
        os.symlink(str(world / "outside" / "a.txt"), "out", dir_fd=folder.descriptor)
        os.symlink("../../ddd/ddd", "in", dir_fd=folder.descriptor)
        os.symlink("loop", "loop", dir_fd=folder.descriptor)
    for path, real, inside, kind in [
        (f"{deep}/out", f"{world}/outside/a.txt", False, "file"),
        (f"{deep}/in", deep, True, "folder"),
        (f"{deep}/in/in/../ddd/out", f"{world}/outside/a.txt", False, "file"),
        (
            f"{deep}/" + "../" * (LEVELS + 1) + "outside/a.txt",
            f"{world}/outside/a.txt",
            False,
            "file",
        ),
        (f"{deep}/" + "../" * LEVELS + "a.txt", f"{root}/a.txt", True, "file"),
        (f"{deep}/loop", "", False, ""),
        (f"{deep}/none/x", f"{deep}/none/x", False, ""),
    ]:
        place = resolve_path(path, root, [root], "")
        assert (place.real, place.inside, place.kind) == (real, inside, kind)
