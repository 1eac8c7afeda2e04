"""Replacing a file while others write it: no text is lost, not even by a kill in the middle."""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longrein.workspace import ReplaceResult, atomic_write, recover_temp_files
from longrein.workspace.atomic_write import exchange, new_temp_file, replace
from longrein.workspace.files import read
from longrein.workspace.supervisor.openat import Folder, open_folder
from longrein.workspace.supervisor.process_tree import process
from tests.timeouts import HANG_S

OLD, OURS, THEIRS = b"base\n", b"base ours\n", b"base theirs\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def joined(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Merge for these tests: the words of both sides."""
    words = dict.fromkeys((*base.split(), *ours.split(), *theirs.split()))
    return b" ".join(words) + b"\n"


def refusing(_base: bytes, _ours: bytes, _theirs: bytes) -> None:
    """Merge that always conflicts."""


def in_place(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def by_rename(path: Path, data: bytes) -> None:
    other = path.with_name("other")
    other.write_bytes(data)
    other.rename(path)


def appended(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


class WriteBeforeExchange:
    """Runs another program's write right before each of the next exchanges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> None:
        self.acts = list(acts)
        real = atomic_write.exchange

        def late(folder: Folder, one: str, other: str) -> bool:
            if self.acts:
                self.acts.pop(0)()
            return real(folder, one, other)

        monkeypatch.setattr(atomic_write, "exchange", late)


@pytest.fixture(params=["exchange", "second name"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "exchange":
        monkeypatch.setattr(atomic_write, "_renameat2", lambda: None)
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    yield path
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


def put(path: Path, merge: object = joined) -> ReplaceResult:
    return replace(str(path), OURS, expect=sha(OLD), base=OLD, merge=merge)  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [in_place, by_rename])
def test_R079_somebody_was_there_before(path: Path, write: Callable[[Path, bytes], None]) -> None:
    write(path, THEIRS)
    assert put(path, refusing) == ReplaceResult(None, (THEIRS,))
    assert put(path, None) == ReplaceResult(None, (THEIRS,))
    assert path.read_bytes() == THEIRS
    assert put(path) == ReplaceResult(b"base ours theirs\n", (THEIRS,))
    assert path.read_bytes() == b"base ours theirs\n"
    assert put(path) == ReplaceResult(b"base ours theirs\n", (b"base ours theirs\n",)), (
        "it has all that we wanted"
    )


@pytest.mark.parametrize("write", [in_place, by_rename, appended])
def test_R079_somebody_writes_in_the_very_moment(
    path: Path, way: str, write: Callable[[Path, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    WriteBeforeExchange(monkeypatch, lambda: write(path, THEIRS))
    if write is by_rename and way != "exchange":
        # what is renamed there between the last look and our rename is not seen without an exchange
        return
    replaced = put(path)
    assert replaced.data == path.read_bytes() == b"base ours theirs\n"
    assert [taken.split()[-1] for taken in replaced.taken] == [b"theirs"]


def test_a_conflict_in_the_very_moment_puts_theirs_back_and_not_a_copy(
    path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    WriteBeforeExchange(monkeypatch, lambda: in_place(path, THEIRS))
    inode = path.stat().st_ino
    assert put(path, refusing) == ReplaceResult(None, (THEIRS,))
    assert (path.read_bytes(), path.stat().st_ino) == (THEIRS, inode)


def test_a_second_writer_in_the_very_moment_has_its_way(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WriteBeforeExchange(
        monkeypatch,
        lambda: in_place(path, b"base w0\n"),
        lambda: None,  # that one is put back
        lambda: in_place(path, b"base w0 w1\n"),
    )
    assert put(path) == ReplaceResult(None, (b"base w0\n", b"base w0 w1\n"))
    assert path.read_bytes() == b"base w0 w1\n"


def test_writers_without_end_have_their_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = [lambda n=n: in_place(path, b"w%d\n" % n) for n in range(100)]
    late = WriteBeforeExchange(monkeypatch, *writes)
    replaced = put(path)
    assert replaced.data is None
    assert replaced.taken[-1] == path.read_bytes()
    kept = {*replaced.taken, *(one.read_bytes() for one in path.parent.iterdir())}
    written = len(writes) - len(late.acts)
    assert {b"w%d\n" % n for n in range(written)} <= kept


def test_a_text_that_comes_while_theirs_is_put_back_is_kept_beside(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WriteBeforeExchange(
        monkeypatch, lambda: in_place(path, THEIRS), lambda: in_place(path, b"newer\n")
    )
    assert put(path, refusing) == ReplaceResult(None, (THEIRS,))
    assert path.read_bytes() == THEIRS
    assert path.with_name("file.theirs").read_bytes() == b"newer\n"


def test_a_program_that_opened_the_file_before_and_writes_after_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_write, "WRITER_WAIT_S", HANG_S)
    opened: list[threading.Thread] = []

    def begin() -> None:
        file = path.open("ab")

        def finish() -> None:
            time.sleep(0.02)
            file.write(b"late\n")
            file.close()

        opened.append(threading.Thread(target=finish))
        opened[0].start()

    WriteBeforeExchange(monkeypatch, begin)
    replaced = put(path)
    opened[0].join()
    assert replaced.data == path.read_bytes() == b"base ours late\n"


@pytest.mark.parametrize("late", [False, True])
def test_a_program_that_keeps_the_file_open_keeps_it(
    path: Path, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_write, "WRITER_WAIT_S", 0.01)
    with contextlib.ExitStack() as stack:
        opened = []
        begin = lambda: opened.append(stack.enter_context(path.open("ab", 0)))  # noqa: E731
        WriteBeforeExchange(monkeypatch, begin) if late else begin()
        with pytest.raises(OSError, match="is open for writing in another program"):
            put(path)
        opened[0].write(b"more\n")
    assert path.read_bytes() == OLD + b"more\n"


def test_what_is_no_file_any_more_is_left_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def becomes_a_link() -> None:
        path.unlink()
        path.symlink_to("elsewhere")

    WriteBeforeExchange(monkeypatch, becomes_a_link)
    with pytest.raises(OSError, match="a symbolic link has come into its path"):
        put(path)
    assert os.readlink(path) == "elsewhere"
    path.unlink()
    path.write_bytes(OLD)
    WriteBeforeExchange(monkeypatch, path.unlink)
    with pytest.raises(FileNotFoundError):
        put(path)
    assert not path.exists()


def test_a_new_file_replaces_nobody(path: Path) -> None:
    assert replace(str(path), OURS, expect="") == ReplaceResult(None, (OLD,))
    assert path.read_bytes() == OLD
    assert replace(str(path) + "2", OURS, expect="") == ReplaceResult(OURS)


def test_an_exchange_without_a_second_file_is_refused_and_changes_nothing(
    path: Path, way: str
) -> None:
    assert way
    with open_folder(str(path.parent)) as folder, pytest.raises(FileNotFoundError):
        exchange(folder, "file", "gone")
    assert os.listdir(path.parent) == ["file"]
    assert path.read_bytes() == OLD


def test_a_file_system_that_can_neither_exchange_nor_link_still_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(atomic_write, "_renameat2", lambda: None)
    monkeypatch.setattr(atomic_write.os, "link", refused)
    assert put(path) == ReplaceResult(OURS)
    assert replace(str(path) + "2", OURS, expect="") == ReplaceResult(OURS)
    in_place(path, THEIRS)
    assert put(path, refusing) == ReplaceResult(None, (THEIRS,))


# --- killed ---------------------------------------------------------------------------------------


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Run `act` in a process that is gone before its `step`-th change of the folder; whether it
    got that far.
    """
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    left = [step]

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            return real(*args, **more)

        return call

    for name in ("open", "write", "fsync", "rename", "link", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    atomic_write.exchange = counted(atomic_write.exchange)  # type: ignore[assignment]
    try:
        act()
    finally:
        os._exit(0)


def steps(tmp_path: Path, act: Callable[[Path], object]) -> Iterator[Path]:
    """A folder for each instant at which `act` on its file can be killed."""
    for step in range(200):
        folder = tmp_path / str(step)
        folder.mkdir()
        path = folder / "file"
        path.write_bytes(OLD)
        killed = killed_at(step, lambda path=path: act(path))  # type: ignore[misc]
        yield path
        if not killed:
            return
    raise AssertionError("it never ends")


def test_P10_killed_at_any_instant_the_file_is_the_old_one_or_the_new_one_and_nothing_lies_about(
    tmp_path: Path, way: str
) -> None:
    found = []
    for path in steps(tmp_path, put):
        assert path.read_bytes() in (OLD, OURS)
        assert recover_temp_files([str(path.parent)]) == []
        assert os.listdir(path.parent) == ["file"]
        found.append(path.read_bytes())
    assert found[-1] == OURS
    assert len(found) >= 10


@pytest.mark.parametrize("merge", [joined, refusing])
def test_killed_at_any_instant_somebodys_text_that_was_taken_out_comes_back(
    tmp_path: Path, merge: object
) -> None:
    """Somebody writes right before the exchange; the kill comes anywhere after."""

    def act(path: Path) -> None:
        real, done = atomic_write.exchange, []

        def late(folder: Folder, one: str, other: str) -> bool:
            if not done:
                done.append(atomic_write.os.replace(str(path) + ".new", path))
            return real(folder, one, other)

        atomic_write.exchange = late
        put(path, merge)

    found = []
    for number, path in enumerate(
        steps(tmp_path, lambda path: (path.with_name("file.new").write_bytes(THEIRS), act(path)))
    ):
        said = recover_temp_files([str(path.parent)])
        written = path.with_name("file.new").exists()
        texts = [one.read_bytes() for one in path.parent.iterdir() if one.name != "file.new"]
        assert written or any(b"theirs" in text for text in texts), number
        assert [name for name in os.listdir(path.parent) if name.startswith(".")] == []
        assert said == []
        assert read(str(path)) in (OLD, OURS, THEIRS, b"base ours theirs\n")
        found.append(path.read_bytes())
    assert found[-1] == (THEIRS if merge is refusing else b"base ours theirs\n")


def test_what_was_taken_out_and_whose_place_was_written_since_is_kept_beside(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"somebody else again\n")
    pid = os.fork()
    if not pid:
        from longrein.workspace.atomic_write import name_hash, new_temp_file, short_hash

        half = new_temp_file()
        name = (
            str(tmp_path / half.name).removesuffix(".tmp")
            + f"-{name_hash(path.name)}-{short_hash(sha(OURS))}-{short_hash(sha(OLD))}.tmp"
        )
        Path(name).write_bytes(THEIRS)
        os._exit(0)
    os.waitpid(pid, 0)
    (said,) = recover_temp_files([str(tmp_path)])
    assert said == (
        f"{path}.theirs holds a change of {path} by another program, which a crash had cut: "
        "compare the two"
    )
    assert sorted(os.listdir(tmp_path)) == ["file", "file.theirs"]
    assert (tmp_path / "file.theirs").read_bytes() == THEIRS


def test_what_a_living_process_makes_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        f".longrein-{os.getpid()}-7.tmp",
        f".longrein-{os.getpid()}.0-8.tmp",
        ".longrein-x.tmp",
        ".longrein-99999999.tmp",
        ".longrein-\u00b2.0-8.tmp",
    ):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / f".longrein-{os.getpid()}.12-9.tmp").write_bytes(
        b"of an earlier process with this number"
    )
    assert recover_temp_files([str(tmp_path), "/none"]) == []
    assert len(os.listdir(tmp_path)) == 5
    alive = process(os.getpid())
    assert new_temp_file().owner == f"{os.getpid()}.{alive.start}"

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    (tmp_path / ".longrein-7-9.tmp").write_bytes(b"of another user")
    assert recover_temp_files([str(tmp_path)]) == []
    assert len(os.listdir(tmp_path)) == 6


def test_the_first_write_to_a_folder_removes_what_dead_processes_left(path: Path) -> None:
    left = path.with_name(f".longrein-{os.getpid()}.12-9.tmp")
    left.write_bytes(b"of an earlier process with this number")
    put(path)
    assert os.listdir(path.parent) == ["file"]


# --- two longreins -------------------------------------------------------------------------------


def test_two_longreins_write_in_a_folder_one_after_the_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_write, "LOCK_WAIT_S", HANG_S)
    done: list[str] = []

    def other() -> None:
        with open_folder(str(path.parent)) as folder, atomic_write.folder_lock(folder):
            done.append("other begins")
            time.sleep(0.03)
            done.append("other ends")

    thread = threading.Thread(target=other)
    thread.start()
    while not done:
        time.sleep(0.001)
    put(path)
    done.append("ours")
    thread.join()
    assert done == ["other begins", "other ends", "ours"]
    monkeypatch.setattr(atomic_write, "LOCK_WAIT_S", 0.01)
    with open_folder(str(path.parent)) as folder, atomic_write.folder_lock(folder):
        assert replace(str(path), b"x\n", expect=sha(OURS)) == ReplaceResult(b"x\n"), (
            "it does not wait for ever"
        )
