"""`Bash` tool with real commands: output, end of the command, changed folder."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.tools.bash import CommandOutput
from longrein_context.events import CwdSet, Document, Text
from tests.timeouts import growing_limits
from tests.tools.conftest import ToolHarness

pytestmark = pytest.mark.anyio


COLOURED = "printf '\\033[31mred\\033[0m \\033]0;title\\007\\033]8;;http://x\\033\\\\link\\007\\n'"
INVALID = (
    "[bad-command] The command holds a NUL or an invalid character; nothing was run. Leave it out."
)


@pytest.mark.parametrize(("command", "expected", "status"), [
    ("echo out; echo err >&2; echo out2", "out\nerr\nout2", "ok"),
    ("true", "(no output)", "ok"),
    ("exit 137", "[exit code 137]", "failed"),  # R063
    ("echo x; false", "x\n[exit code 1]", "failed"),
    ("kill -9 $$", "[ended by signal SIGKILL]", "failed"),
    ("./no-such-program 2>/dev/null", "[exit code 127 (command not found)]", "failed"),
    ("touch f; ./f 2>/dev/null", "[exit code 126 (found but not executable)]", "failed"),
    ("printf 'a\\0b\\377\\n'", "ab\ufffd", "ok"),  # R061
    ("printf 'h\\0i\\0 \\0y\\0o\\0u\\0\\n\\0'", "hi you", "ok"),
    ("printf '10%%\\r50%%\\r100%%\\ndone\\r\\n'", "100%\ndone", "ok"),
    (COLOURED, "red link", "ok"),
    ("  ", "[empty] The command is empty; nothing was run. Give one.", "failed"),
    ("echo a\0b", INVALID, "failed"),
    ("echo \ud800", INVALID, "failed"),
    ("cat", "(no output)", "ok"),  # R057: no input
])  # fmt: skip
async def test_ending(harness: Any, command: str, expected: str, status: str) -> None:
    assert await harness.call("Bash", command=command) == expected
    assert harness.last.status == status


async def test_timeout(harness: Any) -> None:
    for limit_ms in growing_limits(50):
        text = await harness.call("Bash", command="echo a; sleep 500", timeout=limit_ms)
        if text.startswith("a"):
            break
    limit = f"{limit_ms / 1000:g} s"
    assert text == f"a\n[timed out after {limit} and was ended; timeout may be up to 600000 ms]"
    assert harness.last.status == "failed"
    assert await harness.call("Bash", command="echo a", timeout=10**400) == "a"
    text = await harness.call("Bash", command="echo a", timeout=0)
    assert (
        text == "[bad-timeout] timeout is in milliseconds and must be above 0; nothing was run. "
        "Give 120000 for two minutes."
    )


async def test_the_ceiling_cannot_be_raised(harness: Any) -> None:
    harness.limit(bash_timeout_max_s=0.05)
    text = await harness.call("Bash", command="sleep 5", timeout=9_000_000)
    assert text == "[timed out after 0.05 s and was ended; timeout may be up to 50 ms]"
    harness.limit(bash_timeout_s=0.04)
    assert (await harness.call("Bash", command="sleep 5")).startswith("[timed out after 0.04 s and")


async def test_flood(harness: Any) -> None:
    """R059"""
    harness.limit(output_bytes_max=1_000_000)
    await harness.call("Bash", command="yes")
    assert harness.last.status == "failed"
    document, note = harness.last.parts
    assert note == Text("[ended: it printed more than 1.0 MB]")
    assert document.head.startswith("y\ny\n")
    assert document.tail.endswith("y\n")


async def test_large_output_goes_into_a_blob(harness: Any) -> None:
    """A13: whole behind a handle, both ends at line borders, memory flat."""
    await harness.call("Bash", command="seq 1 20000; exit 3", description="Count")
    document, note = harness.last.parts
    whole = "".join(f"{n}\n" for n in range(1, 20001)).encode()
    assert harness.blobs.read_blob(document.blob) == whole
    assert bytes(harness.noted) == whole
    assert isinstance(document, Document)
    assert (document.name, document.size_bytes, document.lines) == ("Count", len(whole), 20000)
    assert document.head.startswith("1\n2\n")
    assert document.head.endswith("\n")
    assert 3_990 < len(document.head) <= 4_000
    assert document.tail.endswith("19999\n20000\n")
    assert 5_990 < len(document.tail) <= 6_000
    assert document.tail.split("\n")[0].isdecimal()
    assert note == Text("[exit code 3]")
    assert document.media == "text/plain"


async def test_just_inline(harness: Any) -> None:
    harness.limit(output_inline_bytes=10)
    assert await harness.call("Bash", command="printf 0123456789") == "0123456789"
    await harness.call("Bash", command="printf 01234; sleep 0.02; printf 567890")
    assert harness.last.parts[0].head == "01234567890"
    assert harness.last.parts[0].lines == 1


async def test_disk_full_while_printing(harness: Any) -> None:
    harness.blobs.full = True
    await harness.call("Bash", command="seq 1 20000")
    assert harness.last.parts[1] == Text("[the output was not kept whole: No space left on device]")

    def full() -> None:
        raise OSError(28, "No space left on device")

    harness.blobs.new_blob = full
    text = await harness.call("Bash", command="seq 1 20000")
    assert text.startswith("1\n2\n")
    assert text.endswith("19999\n20000\n\n[the output was not kept whole: No space left on device]")


@pytest.mark.parametrize(("command", "printed", "shown"), [
    ("printf '10%%\\r50%%\\rdone\\n\\n'; exit 3", b"10%\r50%\rdone\n\n", "10%␍50%␍done\n"),
    ("printf '\\033[31mred\\033[0m\\n'", b"\x1b[31mred\x1b[0m\n", "␛[31mred␛[0m"),
    ("printf 'a\\0b\\377'", b"a\0b\xff", "a␀b\ufffd"),
    ("printf '\\n\\n'", b"\n\n", "\n"),
    ("printf '\\377\\376h\\0i\\0'", b"\xff\xfeh\0i\0", "hi"),
])  # fmt: skip
async def test_what_cleaning_takes_from_a_small_output_has_a_handle(
    harness: Any, command: str, printed: bytes, shown: str
) -> None:
    await harness.call("Bash", command=command)
    ended = harness.entries[1].event
    assert harness.blobs.read_blob(ended.raw) == printed
    lines = f"{shown.count(chr(10)) + 1} line{'s' if chr(10) in shown else ''}"
    title = "result of Bash" + (", failed" if ended.status == "failed" else "")
    page = f"[r1.2: {title}, output byte for byte, all of it: {lines}]\n{shown}"
    assert await harness.call("Recall", handle="r1.2") == page


@pytest.mark.parametrize(("command", "words", "shown"), [
    ("printf 'PROG1\\rPROG2\\r\\n'", "PROG1", "PROG1␍PROG2␍"),
    ("printf 'one\\033[31mtwo\\033[0m\\n'", "31mtwo", "one␛[31mtwo␛[0m"),
    ("printf 'left\\0right\\n'", "left", "left␀right"),
], ids=["carriage returns", "escapes", "zero bytes"])  # fmt: skip
async def test_what_cleaning_takes_is_named_and_found_by_query_page_and_lines(
    harness: Any, command: str, words: str, shown: str
) -> None:
    await harness.call("Bash", command=command)
    whole = await harness.call("Recall", handle="r1")
    assert '(byte for byte: Recall(handle="r1.2"))' in whole
    harness.call_id = "c9.0"
    found = await harness.call("Recall", query=words)
    assert 'Recall(handle="r1.2", lines="1-11")' in found
    assert (await harness.call("Recall", handle="r1.2", lines="1")).endswith(f"\n{shown}")
    assert (await harness.call("Recall", handle="r1.2", lines="1:1-4")).endswith(f"\n{shown[:4]}")


@given(st.binary(max_size=300) | st.text("ab \r\n\0\x1b[31m\x9b", max_size=60).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_every_byte_of_an_output_is_in_its_text_or_in_its_raw_bytes(data: bytes) -> None:
    output = CommandOutput(ToolHarness(Path(), Path()).context())
    output.write(data)
    (text,) = output.parts("", "")
    assert isinstance(text, Text)
    assert data in ((output.raw,) if output.raw else (text.text.encode(), b""))


@pytest.mark.parametrize("size", [10, 30_001, 100_000])
def test_what_was_printed_can_be_had_again(harness: Any, size: int) -> None:
    output = CommandOutput(harness.context())
    output.write(b"x" * 9)
    output.write(b"y" * (size - 9))
    assert b"".join(output.pieces()) == b"x" * 9 + b"y" * (size - 9)
    harness.blobs.full = True
    output.write(b"z" * 30_001)
    with pytest.raises(OSError, match="No space left"):
        list(output.pieces())
    output.so_far()


async def test_cd_holds_inside_the_roots_only(harness: Any) -> None:
    harness.file("sub/x", "x")
    text = await harness.call("Bash", command="cd sub; V=1")
    assert text == f"[current folder is now {harness.root}/sub]"
    assert harness.last.facts == (CwdSet(f"{harness.root}/sub"),)
    assert await harness.call("Bash", command="ls; echo $V") == "x"
    text = await harness.call("Bash", command="cd /; pwd")
    assert (
        text
        == f"/\n[/ is outside the session's folders: the current folder stays {harness.root}/sub]"
    )
    assert harness.last.facts == ()
    assert await harness.call("Bash", command="(cd ..); false") == "[exit code 1]"


async def test_folder_is_gone(harness: Any) -> None:
    """R086"""
    harness.cwd = f"{harness.root}/gone"
    text = await harness.call("Bash", command="pwd")
    gone = f"[could not be started: the folder {harness.root}/gone does not exist (any more)]"
    assert text == f"{gone}\n[the current folder is gone; it is now {harness.root}]"
    assert await harness.call("Bash", command="pwd") == str(harness.root)


async def test_interrupted(harness: Any) -> None:
    """What was printed so far is kept."""
    task = asyncio.ensure_future(harness.call("Bash", command="echo a; sleep 60"))
    await harness.printed.wait()
    task.cancel()
    assert await task == "a\n[interrupted by the user; the command was ended]"
    assert harness.last.status == "interrupted"
