"""Paths that lead out, long paths and odd names, through every tool that opens files."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longrein.workspace import walk as walk_module
from longrein.workspace.supervisor.openat import open_folder

pytestmark = pytest.mark.anyio


def bind(harness: Any, *paths: str) -> None:
    """Bind the next calls to where `paths` lead now, as the permission check does."""
    harness.judged = {path: harness.workspace.resolve(path, harness.cwd).real for path in paths}


CALLS = [
    ("Read", {"file_path": "sub/a.txt"}),
    ("Write", {"file_path": "sub/a.txt", "content": "ours\n"}),
    ("Write", {"file_path": "sub/new.txt", "content": "ours\n"}),
    ("Edit", {"file_path": "sub/a.txt", "old_string": "text", "new_string": "ours"}),
    ("Edit", {"file_path": "sub/new.txt", "old_string": "", "new_string": "ours"}),
    ("Grep", {"pattern": "secret|text", "path": "sub", "output_mode": "content"}),
    ("Glob", {"pattern": "*.txt", "path": "sub"}),
    ("Glob", {"pattern": "sub/*.txt"}),
]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
async def test_S033_a_path_that_leads_elsewhere_since_it_was_judged_is_refused(
    harness: Any, name: str, arguments: dict[str, Any]
) -> None:
    harness.file("sub/a.txt", "text\n")
    outside = harness.root.parent / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("text\nsecret\n")
    await harness.call("Read", file_path="sub/a.txt")
    bind(harness, "sub", "sub/a.txt", "sub/new.txt")
    (harness.root / "sub").rename(harness.root / "kept")
    (harness.root / "sub").symlink_to(outside)
    text = await harness.call(name, **arguments)
    assert text.startswith("[moved] sub")
    assert text.endswith(
        " has changed between the check and the use: it leads to another place now. Nothing was "
        "done; look again."
    )
    assert sorted(os.listdir(outside)) == ["a.txt"]
    assert (outside / "a.txt").read_text() == "text\nsecret\n"


async def test_the_swap_of_a_folder_in_the_last_moment_is_an_error_of_one_line(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = harness.root.parent / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("text\n")
    harness.file("sub/a.txt", "text\n")
    await harness.call("Read", file_path="sub/a.txt")
    bind(harness, "sub/a.txt", "sub/new.txt")
    for name, arguments in CALLS[:4]:
        real = harness.workspace.resolve

        def late(path: str, cwd: str, real: Any = real) -> Any:
            place = real(path, cwd)
            if not (harness.root / "kept").exists() and place.kind != "folder":
                (harness.root / "sub").rename(harness.root / "kept")
                (harness.root / "sub").symlink_to(outside)
            return place

        with monkeypatch.context() as patched:
            patched.setattr(harness.workspace, "resolve", late)
            text = await harness.call(name, **arguments)
        assert (
            text.startswith(("[moved]", "[not-found]"))
            or "between the check and the use; look again" in text
        ), name
        assert "\n" not in text
        (harness.root / "sub").unlink()
        (harness.root / "kept").rename(harness.root / "sub")
        assert sorted(os.listdir(outside)) == ["a.txt"]
    assert (outside / "a.txt").read_text() == "text\n"


DEEP = "ddd/" * 1_200


@pytest.fixture
def deep(harness: Any) -> Iterator[str]:
    """Folder below so many that its path is longer than the system takes."""
    path = f"{harness.root}/{DEEP}".rstrip("/")
    with open_folder(path, make=True):
        pass
    yield path
    subprocess.run(["rm", "-rf", f"{harness.root}/ddd"], check=True)


async def test_files_below_more_folders_than_python_calls_functions(
    harness: Any, deep: str
) -> None:
    assert (await harness.call("Write", file_path=f"{deep}/a.txt", content="one\n")).startswith(
        "Created "
    )
    assert (
        await harness.call("Edit", file_path=f"{deep}/a.txt", old_string="one", new_string="two")
    ).startswith("Edit")
    assert "two" in await harness.call("Read", file_path=f"{DEEP}a.txt")
    assert (await harness.call("Read", file_path=f"{deep}/b.txt")).startswith("[not-found]")
    await harness.call("Glob", pattern="**/*.txt")
    await harness.call("Grep", pattern="two")
    assert harness.last.status == "ok"


ODD = os.fsdecode(b"caf\xe9.txt")


async def test_names_that_are_not_utf_8_are_listed_and_named_in_refusals(
    harness: Any, tmp_path: Path
) -> None:
    """JSON and the log hold no such name: the model sees a placeholder, and is told how to reach
    the file.
    """
    for folder in (harness.root, harness.root / os.fsdecode(b"d\xff")):
        folder.mkdir(exist_ok=True)
        (folder / ODD).write_text("text\n")
    for call in (
        harness.call("Glob", pattern="**/*.txt"),
        harness.call("Grep", pattern="text"),
        harness.call("Grep", pattern="text", output_mode="content"),
        harness.call("Grep", pattern="text", output_mode="count"),
    ):
        text = await call
        assert "caf\ufffd.txt" in text
        assert "d\ufffd/caf\ufffd.txt" in text
        text.encode()
    for name, arguments in CALLS[:5]:
        text = await harness.call(name, **{**arguments, "file_path": ODD})
        assert text.startswith(
            "[bad-path] caf\ufffd.txt has a name that is not UTF-8. Bytes that are"
        )
    for name, arguments in (CALLS[0], CALLS[3]):
        text = await harness.call(name, **{**arguments, "file_path": "caf\ufffd.txt"})
        assert text.startswith("[not-found]")
        assert text.endswith(
            "Bytes that are not UTF-8 are shown as \ufffd; use Bash, with ? in place of each."
        )
    assert (harness.root / ODD).read_text() == "text\n"
    seen: list[str] = []
    assert walk_module.walk(
        str(harness.root), lambda path, _: bool(seen.append(path)) or True, 10, lambda: 0
    )
    assert f"{harness.root}/{ODD}" in seen
