"""R092: piped input is added to the prompt, and a silent pipe does not block the start."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from longrein.cli import open_missing_streams, with_stdin
from longrein.frontends.argv import clean
from longrein.frontends.loop_streams import read_lines
from longrein.frontends.stdio import read_piped
from longrein_context.events import UsageError
from tests.tables import cases


@cases(
    "prompt piped whole",
    ("sum", b"1\n2\n", "sum\n\n1\n2\n"),
    ("sum", b"", "sum"),
    ("sum", b" \n", "sum"),
    ("", b"sum it", "sum it"),
    ("-", b"sum it", "sum it"),
    ("caf\u00e9", b"caf\xe9", "café\n\ncaf\ufffd"),
    ("", b"", ""),
)
def test_what_is_piped_in_follows_the_prompt(prompt: str, piped: bytes, whole: str) -> None:
    assert with_stdin(prompt, lambda wait_s: piped, needed=True) == whole


@cases(
    "prompt needed wait_s",
    ("x", True, 3.0),
    ("x", False, 3.0),
    ("", False, 3.0),
    ("", True, None),
    ("-", False, None),
)
def test_only_a_needed_prompt_is_waited_for(
    prompt: str, needed: bool, wait_s: float | None
) -> None:
    waits: list[float | None] = []

    def read(wait: float | None) -> bytes:
        waits.append(wait)
        return b""

    with_stdin(prompt, read, needed=needed)
    assert waits == [wait_s]


def test_R092_closed_null_file_and_folder(tmp_path: Path) -> None:
    said: list[str] = []
    closed = os.dup(0)
    os.close(closed)
    assert read_piped(closed, wait_s=3, say=said.append) == b""
    with open(os.devnull, "rb") as null:
        assert read_piped(null.fileno(), wait_s=3, say=said.append) == b""
    (tmp_path / "a").write_bytes(b"x" * 200_000)
    with (tmp_path / "a").open("rb") as file:
        assert read_piped(file.fileno(), wait_s=3, say=said.append) == b"x" * 200_000
    fd = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(UsageError, match="stdin cannot be read: Is a directory"):
        read_piped(fd, wait_s=3, say=said.append)
    os.close(fd)
    assert said == []


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_R092_an_open_pipe_that_says_nothing_is_left_alone(kind: str) -> None:
    ends = os.pipe() if kind == "pipe" else tuple(s.detach() for s in socket.socketpair())
    said: list[str] = []
    assert read_piped(ends[0], wait_s=0.02, say=said.append) == b""
    assert said == [
        "nothing came on stdin for 0 s: going on without it (to wait for it: longrein -p -)"
    ]
    list(map(os.close, ends))


def test_a_pipe_that_has_spoken_is_read_to_its_end_with_a_word_when_it_pauses() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one ")
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        os.write(writing, b"two")
        os.close(writing)

    assert read_piped(reading, wait_s=1, say=say) == b"one two"
    assert said == ["waiting for the end of stdin, 4 bytes so far"]
    os.close(reading)


def test_stdin_has_a_cap(tmp_path: Path) -> None:
    refused = "stdin is larger than 10 MB: save it to a file and name the file"
    with (tmp_path / "large").open("w+b") as file:
        file.truncate(10_000_001)
        with pytest.raises(UsageError, match=refused):
            read_piped(file.fileno(), wait_s=1, say=print)


@pytest.mark.anyio
async def test_lines_come_as_they_are_written_and_blank_ones_do_not() -> None:
    reading, writing = os.pipe()
    lines = read_lines(reading)
    os.write(writing, b'{"a":1}\n\n  \r\n{"b"')
    assert await anext(lines) == b'{"a":1}'
    os.write(writing, b":2}\nrest")
    assert await anext(lines) == b'{"b":2}'
    os.close(writing)
    assert [line async for line in lines] == [b"rest"]
    os.close(reading)


@pytest.mark.anyio
async def test_lines_of_a_plain_file_and_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n" + b"x" * 100_000)
    with (tmp_path / "a").open("rb") as file:
        assert [line async for line in read_lines(file.fileno())] == [
            b"one",
            b"two",
            b"x" * 100_000,
        ]
    with open(os.devnull, "rb") as null:
        assert [line async for line in read_lines(null.fileno())] == []


@pytest.mark.anyio
async def test_waiting_for_a_line_can_be_cancelled() -> None:
    reading, writing = os.pipe()
    waiting = asyncio.ensure_future(anext(read_lines(reading)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asyncio.get_running_loop().remove_reader(reading) is False
    os.close(reading)
    os.close(writing)


def test_R095_bytes_that_are_no_utf8_do_not_raise() -> None:
    assert clean(b"caf\xe9".decode("utf-8", "surrogateescape")) == "caf\ufffd"


def test_closed_standard_streams_are_filled_so_that_no_database_gets_their_number() -> None:
    spare = os.dup(0)
    os.close(spare)
    open_missing_streams([spare])
    assert os.path.samestat(os.fstat(spare), os.stat(os.devnull))
    os.close(spare)
