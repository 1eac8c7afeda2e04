"""Files with unsaved text in an editor: what is read, watched and written, against an editor
that misbehaves.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lab.support.spawner import spawner_in
from longrein.tools.diff import merge as merge_texts
from longrein.workspace.editor_workspace import BUFFER_BYTES_MAX, EditorWorkspace


class FakeEditor:
    """An editor with one buffer. `save` says what a write does."""

    can_read = can_write = True

    def __init__(
        self, text: str | None = None, save: Callable[[str, str], bool] | None = None
    ) -> None:
        self.text, self.save = text, save
        self.asked = 0

    async def read(self, path: str) -> str | None:
        self.asked += 1
        return self.text

    async def write(self, path: str, text: str) -> bool:
        return self.save(path, text) if self.save else False


def to_disk(path: str, text: str) -> bool:
    Path(path).write_text(text)
    return True


def formats(path: str, text: str) -> bool:
    return to_disk(path, text.upper())


def keeps(_path: str, _text: str) -> bool:
    return True


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def use(
    folder: Path, editor: FakeEditor, work: Callable[[EditorWorkspace, str], Awaitable[Any]]
) -> Any:
    async def run() -> Any:
        workspace = EditorWorkspace([str(folder)], spawner_in(folder / "spool"), {}, (), editor)
        return await work(workspace, str(folder / "a.txt"))

    return asyncio.run(run())


@pytest.mark.parametrize(("disk", "buffer", "read"), [
    ("one\n", "two\n", "two\n"),
    ("one\n", "one\n", "one\n"),
    ("one\n", None, "one\n"),
    ("one\r\n", "one\n", "one\r\n"),
    ("one\r\n", "two\nthree\n", "two\r\nthree\r\n"),
    ("\ufeffone\n", "two\n", "\ufefftwo\n"),
    ("one\n", "x" * (BUFFER_BYTES_MAX + 1), "one\n"),
    ("x\0y", "two\n", "x\0y"),
])  # fmt: skip
def test_what_is_read(tmp_path: Path, disk: str, buffer: str | None, read: str) -> None:
    (tmp_path / "a.txt").write_bytes(disk.encode())

    async def work(workspace: EditorWorkspace, path: str) -> None:
        await workspace.refresh(path)
        assert workspace.read(path).decode() == read
        assert workspace.read(path, 2) == read.encode()[:2]
        assert workspace.hash(path) == workspace.stamp(path).hash == digest(read)
        stamp = workspace.stamp(path)
        assert workspace.stamp(path, stamp) is stamp

    use(tmp_path, FakeEditor(buffer), work)


def test_a_file_that_is_too_large_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * (BUFFER_BYTES_MAX + 1))
    editor = FakeEditor("two\n")

    async def work(workspace: EditorWorkspace, path: str) -> None:
        await workspace.refresh(path)
        await workspace.refresh(path + ".missing")

    use(tmp_path, editor, work)
    assert editor.asked == 0


def test_unsaved_text_is_forgotten_when_the_disk_changes_or_the_editor_drops_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    editor = FakeEditor("two\n")

    async def work(workspace: EditorWorkspace, path: str) -> None:
        await workspace.refresh(path)
        file.write_text("two\n")  # saved
        assert workspace.stamp(path).hash == digest("two\n")
        file.write_text("four\n")
        assert workspace.read(path) == b"four\n"
        await workspace.refresh(path)
        editor.text = "four\n"
        await workspace.refresh(path)
        assert workspace.read(path) == b"four\n"

    use(tmp_path, editor, work)


@pytest.mark.parametrize(
    ("buffer", "save", "result", "disk"),
    [
        (None, to_disk, "new\n", "new\n"),
        ("unsaved\n", to_disk, "new\n", "new\n"),
        (
            None,
            keeps,
            "new\n",
            "one\n",
        ),  # the editor keeps it in the buffer: that is what is read from now on
        (None, formats, "NEW\n", "NEW\n"),
        (None, None, "new\n", "new\n"),  # the editor refuses: to the disk
        ("unsaved\n", None, "", "one\n"),  # … but not behind unsaved text
    ],
)
def test_what_a_write_leaves(
    tmp_path: Path,
    buffer: str | None,
    save: Callable[[str, str], bool] | None,
    result: str,
    disk: str,
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")

    async def work(workspace: EditorWorkspace, path: str) -> None:
        await workspace.refresh(path)
        expect = workspace.hash(path)

        def write() -> None:
            workspace.replace(path, b"new\n", expect=expect)

        if not result:
            with pytest.raises(OSError, match="not saved"):
                await workspace.run_in_thread(write)
        else:
            await workspace.run_in_thread(write)
            assert workspace.read(path).decode() == result

    use(tmp_path, FakeEditor(buffer, save), work)
    assert file.read_text() == disk


@pytest.mark.parametrize("unsaved", ["two\n", "one\n"])
def test_a_file_with_unsaved_text_is_not_removed(tmp_path: Path, unsaved: str) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")

    async def work(workspace: EditorWorkspace, path: str) -> None:
        await workspace.refresh(path)
        with nullcontext() if unsaved == "one\n" else pytest.raises(OSError, match="not saved"):
            workspace.remove(path)

    use(tmp_path, FakeEditor(unsaved, to_disk), work)
    assert file.exists() == (unsaved != "one\n")


@pytest.mark.parametrize(
    ("unsaved", "left"), [("ONE\ntwo\nthree\n", "ONE\ntwo\n3\n"), ("one\ntwo\nTHREE\n", "")]
)
def test_a_change_in_the_buffer_is_merged_or_stays(tmp_path: Path, unsaved: str, left: str) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\nthree\n")

    async def work(workspace: EditorWorkspace, path: str) -> None:
        await workspace.refresh(path)
        base = b"one\ntwo\nthree\n"
        came = await workspace.run_in_thread(
            lambda: workspace.replace(
                path,
                b"one\ntwo\n3\n",
                expect=sha256(base).hexdigest(),
                base=base,
                merge=merge_texts,
            )
        )
        assert came.taken == (unsaved.encode(),)
        assert (came.data or b"").decode() == left

    use(tmp_path, FakeEditor(unsaved, to_disk), work)
    assert file.read_text() == (left or "one\ntwo\nthree\n")


def test_a_link_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("one\n")
    (tmp_path / "a.txt").symlink_to(tmp_path / "other")

    async def work(workspace: EditorWorkspace, path: str) -> None:
        with pytest.raises(OSError, match="link"):
            await workspace.run_in_thread(
                lambda: workspace.replace(path, b"x\n", expect=digest("one\n"))
            )

    use(tmp_path, FakeEditor(None, to_disk), work)
    assert (tmp_path / "other").read_text() == "one\n"
