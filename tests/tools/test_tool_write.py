"""`Write`: new files, and whole replacements of what was seen."""

from typing import Any

import pytest

from longrein.events import FileChanged

pytestmark = pytest.mark.anyio


async def test_new_file(desk: Any) -> None:
    text = await desk.call("Write", file_path="a/b.txt", content="中\n")
    path = desk.root / "a/b.txt"
    assert text == f"Created {path} (1 line, 4 bytes)."
    assert path.read_bytes() == "中\n".encode()
    digest = desk.workspace.hash(str(path))
    assert desk.last.facts == (FileChanged(str(path), digest, "agent", digest, ""),)


async def test_existing_file_must_have_been_read(desk: Any) -> None:
    path = desk.file("a.txt", "theirs\n")
    text = await desk.call("Write", file_path="a.txt", content="mine\n")
    assert text == f"[not-read] {path} exists and you have not read it. Read it first, then try again."
    await desk.call("Read", file_path="a.txt")
    path.write_text("newer\n")
    text = await desk.call("Write", file_path="a.txt", content="mine\n")
    assert text == f"[changed] {path} has changed since you read it; nothing was written. Read it again first."
    assert path.read_text() == "newer\n"
    await desk.call("Read", file_path="a.txt")
    text = await desk.call("Write", file_path="a.txt", content="mine\n")
    assert text == f"Replaced {path} (1 line, 5 bytes)."
    assert await desk.call("Write", file_path="a.txt", content="mine\n") == (
        f"{path} has exactly this content already; nothing was written."
    )
    assert desk.last.facts == ()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b"a\r\nb\r\n", b"x\r\ny\r\n", " Kept: CRLF line ends."),
        (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfx\ny\n", " Kept: byte order mark."),
        ("\ufeffa\n".encode("utf-16-le"), "\ufeffx\ny\n".encode("utf-16-le"), " Kept: UTF-16."),
        (b"\0\1\2", b"x\ny\n", ""),
    ],
)
async def test_a_file_keeps_its_ways(desk: Any, before: bytes, after: bytes, said: str) -> None:
    """R081 for whole files."""
    path = desk.file("a.txt", before)
    await desk.call("Read", file_path="a.txt")
    if not desk.versions:
        await desk.call("Write", file_path="a.txt", content="x")
        assert desk.last.status == "failed"
        return
    text = await desk.call("Write", file_path="a.txt", content="x\ny\n")
    assert text == f"Replaced {path} (2 lines, 4 bytes).{said}"
    assert path.read_bytes() == after


async def test_somebody_was_faster(desk: Any) -> None:
    look, path = desk.workspace.look, desk.root / "a.txt"

    def late(*args: Any) -> Any:
        place = look(*args)
        path.write_text("theirs\n")
        return place

    desk.workspace.look = late
    text = await desk.call("Write", file_path="a.txt", content="mine\n")
    assert text == f"[changed] {path} was changed by somebody else just now; nothing was written. Read it again."
    assert path.read_text() == "theirs\n"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("sub", "[not-a-file] ROOT/sub is a folder."),
        (".git/hooks/pre-commit", "[ignored-path] ROOT/.git/hooks/pre-commit lies in .git, which only version control may change; use git."),
        ("sub/x/y", "[unwritable] ROOT/sub/x/y cannot be written: file exists. It is unchanged."),
    ],
)  # fmt: skip
async def test_refused(desk: Any, path: str, expected: str) -> None:
    desk.file("sub/x", "x")
    text = await desk.call("Write", file_path=path, content="y")
    assert text.replace(str(desk.root), "ROOT") == expected
    assert desk.last.status == "failed"


async def test_full_disk(desk: Any) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    desk.workspace.write = full
    text = await desk.call("Write", file_path="a", content="y")
    assert text == f"[unwritable] {desk.root}/a cannot be written: no space left on device. It is unchanged."
