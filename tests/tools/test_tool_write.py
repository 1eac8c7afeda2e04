"""`Write` tool: new files, and replacement of files that the model has read."""

import asyncio
import os
from typing import Any

import pytest

from longrein.tools.write import without_line_numbers
from longrein_context.events import FileChanged
from tests.tables import read_rows

pytestmark = pytest.mark.anyio


async def test_new_file(harness: Any) -> None:
    text = await harness.call("Write", file_path="a/b.txt", content="中\n")
    path = harness.root / "a/b.txt"
    assert text == f"Created {path} (1 line, 4 bytes)."
    assert path.read_bytes() == "中\n".encode()
    digest = harness.workspace.hash(str(path))
    assert harness.last.facts == (FileChanged(str(path), digest, "agent", digest, ""),)


async def test_existing_file_must_have_been_read(harness: Any) -> None:
    path = harness.file("a.txt", "theirs\n")
    text = await harness.call("Write", file_path="a.txt", content="mine\n")
    assert text == (
        f"[not-read] {path} exists and you have not read it; nothing was written. Go by this and "
        "call again:\n1\ttheirs"
    )
    path.write_text("newer\n")
    text = await harness.call("Write", file_path="a.txt", content="mine\n")
    assert text == (
        f"[changed] {path} has changed since you read it; nothing was written. Go by this and "
        "call again; it is all that somebody else changed:\n-1\ttheirs\n+1\tnewer"
    )
    assert path.read_text() == "newer\n"
    await harness.call("Read", file_path="a.txt")
    text = await harness.call("Write", file_path="a.txt", content="mine\n")
    assert text == f"Replaced {path} (1 line, 5 bytes)."
    found = await harness.call("Write", file_path="a.txt", content="mine\n")
    assert found == f"{path} has exactly this content already; nothing was written."
    assert harness.last.facts == ()


@pytest.mark.parametrize(("before", "after", "said"), [
    (b"a\r\nb\r\n", b"x\r\ny\r\n", " Kept: CRLF line ends."),
    (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfx\ny\n", " Kept: byte order mark."),
    ("\ufeffa\n".encode("utf-16-le"), "\ufeffx\ny\n".encode("utf-16-le"), " Kept: UTF-16."),
    (b"\0\1\2", b"x\ny\n", ""),
])  # fmt: skip
async def test_a_file_keeps_its_ways(harness: Any, before: bytes, after: bytes, said: str) -> None:
    """R081 for whole files."""
    path = harness.file("a.txt", before)
    await harness.call("Read", file_path="a.txt")
    if not harness.versions:
        await harness.call("Write", file_path="a.txt", content="x")
        assert harness.last.status == "failed"
        return
    text = await harness.call("Write", file_path="a.txt", content="x\ny\n")
    assert text == f"Replaced {path} (2 lines, 4 bytes).{said}"
    assert path.read_bytes() == after


async def test_somebody_was_faster(harness: Any) -> None:
    look, path = harness.workspace.resolve, harness.root / "a.txt"

    def late(*args: Any) -> Any:
        place = look(*args)
        path.write_text("theirs\n")
        return place

    harness.workspace.resolve = late
    text = await harness.call("Write", file_path="a.txt", content="mine\n")
    assert (
        text
        == f"[changed] {path} was created by somebody else just now; nothing was written. Go by "
        "this and call again:\n1\ttheirs"
    )
    assert path.read_text() == "theirs\n"


@pytest.mark.parametrize(
    ("path", "expected"),
    read_rows("""
sub => [not-a-file] ROOT/sub is a folder. Name a file.
.git/x => [ignored-path] ROOT/.git/x lies in .git, which only version control may change; use git.
sub/x/y => [unwritable] ROOT/sub/x/y cannot be written: not a directory. It is unchanged. Look why with Bash (ls -l).
"""),  # noqa: E501
)
async def test_refused(harness: Any, path: str, expected: str) -> None:
    harness.file("sub/x", "x")
    text = await harness.call("Write", file_path=path, content="y")
    assert text.replace(str(harness.root), "ROOT") == expected
    assert harness.last.status == "failed"


async def test_full_disk(harness: Any) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    harness.workspace.replace = full
    text = await harness.call("Write", file_path="a", content="y")
    assert (
        text == f"[unwritable] {harness.root}/a cannot be written: no space left on device. It is "
        "unchanged. Look why with Bash (ls -l)."
    )


async def test_R083_mode_and_link_are_kept(harness: Any) -> None:
    path = harness.file("run.sh", "echo 1\n")
    path.chmod(0o755)
    os.symlink("run.sh", harness.root / "link")
    await harness.call("Read", file_path="link")
    await harness.call("Edit", file_path="link", old_string="1", new_string="2")
    await harness.call("Write", file_path="link", content="echo 3\n")
    assert path.read_text() == "echo 3\n"
    assert path.stat().st_mode & 0o777 == 0o755
    assert os.readlink(harness.root / "link") == "run.sh"
    path.chmod(0o444)
    text = await harness.call("Edit", file_path="run.sh", old_string="3", new_string="4")
    assert (
        text
        == f"[unwritable] {path} cannot be written: is read-only. It is unchanged. Look why with "
        "Bash (ls -l)."
    )
    assert path.stat().st_mode & 0o777 == 0o444


async def test_large_files_are_not_kept_but_still_known(harness: Any) -> None:
    harness.limit(keep_bytes_max=5)
    await harness.call("Write", file_path="a.txt", content="123456")
    fact = harness.last.facts[0]
    assert (fact.blob, fact.hash) == ("", harness.workspace.hash(f"{harness.root}/a.txt"))
    await harness.call("Edit", file_path="a.txt", old_string="6", new_string="")
    assert harness.last.facts[0].before == fact.hash
    assert harness.last.facts[0].blob == harness.last.facts[0].hash


async def test_no_way_into_git_by_a_link(harness: Any) -> None:
    harness.file(".git/config", "[core]\n")
    os.symlink(".git", harness.root / "g")
    text = await harness.call("Write", file_path="g/hooks", content="x")
    assert (
        text
        == f"[ignored-path] {harness.root}/g/hooks lies in .git, which only version control may "
        "change; use git."
    )
    harness.file(".gitignore", "")
    await harness.call("Read", file_path=".gitignore")
    await harness.call("Write", file_path=".gitignore", content="x\n")
    assert harness.last.status == "ok"


async def test_a_whole_content_is_merged_with_what_somebody_else_changed_elsewhere(
    harness: Any,
) -> None:
    path = harness.file("a.txt", "one\ntwo\nthree\nfour\n")
    await harness.call("Read", file_path="a.txt")
    path.write_text("one\ntwo\nthree\nIV\n")
    theirs = harness.workspace.hash(str(path))
    harness.wrote[str(path), theirs] = "subagent a3"
    text = await harness.call("Write", file_path="a.txt", content="1\ntwo\nthree\nfour\n")
    assert text == (
        f"Replaced {path} (4 lines, 17 bytes). Since you read it subagent a3 changed it too, "
        "elsewhere; both changes stand. Theirs:\n 1\t1\n 2\ttwo\n 3\tthree\n-4\tfour\n+4\tIV"
    )
    assert path.read_text() == "1\ntwo\nthree\nIV\n"
    digest = harness.workspace.hash(str(path))
    found = harness.last.facts
    assert found == (FileChanged(str(path), digest, "agent", digest, theirs, over=theirs),)
    assert harness.blobs.read_blob(theirs) == b"one\ntwo\nthree\nIV\n"


async def test_content_that_somebody_else_has_written_already_is_known_then(harness: Any) -> None:
    path = harness.file("a.txt", "one\n")
    await harness.call("Read", file_path="a.txt")
    path.write_text("two\n")
    text = await harness.call("Write", file_path="a.txt", content="two\n")
    assert text == f"{path} has exactly this content already; nothing was written."
    await harness.call("Edit", file_path="a.txt", old_string="two", new_string="three")
    assert path.read_text() == "three\n"


async def test_folders_are_made_however_many(harness: Any) -> None:
    path = "d/" * 1200 + "a.txt"
    assert (await harness.call("Write", file_path=path, content="x")).startswith(
        f"Created {harness.root}/d/d/"
    )
    assert (harness.root / path).read_text() == "x"
    removal = await asyncio.create_subprocess_exec(
        "rm", "-rf", str(harness.root / "d")
    )  # pytest cannot: too deep
    assert await removal.wait() == 0


@pytest.mark.parametrize(
    ("known", "content", "written"),
    [
        ("a\nb\n", "1\ta\n2\tc\n", "a\nc\n"),
        ("a\n\nb\n", "1\ta\n2\t\n3\tb", "a\n\nb"),
        ("1\ta\n2\tb\n", "1\ta\n2\tc\n", "1\ta\n2\tc\n"),
        ("a\nb\n", "1\tx\n2\ty\n", "1\tx\n2\ty\n"),
        ("a\nb\n", "2\ta\n3\tb\n", "2\ta\n3\tb\n"),
        ("a\nb\n", "1\ta\nb\n", "1\ta\nb\n"),
    ],
)
def test_the_line_numbers_of_a_read_are_not_written(known: str, content: str, written: str) -> None:
    assert without_line_numbers(content, known) == written
