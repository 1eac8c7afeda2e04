"""Task output, cut anywhere: no secret gets through, the quota holds, and readers see what is
missing.
"""

import base64
import os
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.workspace.spool_reader import (
    extent,
    make_whole,
    read_output,
    remove_task,
    sweep_spool,
)
from longrein.workspace.supervisor.spool_writer import SpoolWriter
from longrein_context.events import redactor
from longrein_context.events.redact_stream import HOLD_CHARS_MAX, StreamRedactor
from tests.tables import split_words

KNOWN = ("hunter2-hunter2", "pass phrase with blanks", "schlüssel-öffnet")
TOKENS = (
    "sk-ant-REDACTED",
    "ghp_" + "a1B2" * 9,
    "AKIA" + "ABCD1234EFGH5678",
    "eyJ" + "a" * 20 + ".eyJ" + "b" * 10 + ".ccccc",
    "Authorization: Bearer abcdefgh12345678",
    "postgres://app:s3cr3t-Pw@db.internal/x",
    "DD_API_KEY=0a1b2c3d0a1b2c3d0a1b2c3d",
    "123456789:AAF" + "aB3-_" * 6 + "xy",
    "SG." + "aB3" * 7 + "." + "aB3" * 14,
    base64.b64encode(b"user:hunter2-hunter2 and more").decode(),
    b"hunter2-hunter2".hex(),
    "hunter2-\nhunter2",
    "hunter2-hu\x1b[31mnter2",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\ndefg\n-----END RSA PRIVATE KEY-----",
)
words = st.text(string.ascii_letters + string.digits + " .-_\n\t[]:é", max_size=30)
streams = st.lists(
    st.one_of(words, st.sampled_from(KNOWN + TOKENS), st.just("\n")), max_size=12
).map(lambda parts: " ".join(parts).encode())
REDACT = redactor(KNOWN, "0badcafe")


def held() -> StreamRedactor:
    return StreamRedactor(REDACT, KNOWN, words=False)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


@given(streams, st.lists(st.integers(0, 10_000), max_size=12))
def test_a_stream_is_redacted_as_its_whole_text_would_be(data: bytes, places: list[int]) -> None:
    one = held()
    given_out = b"".join(map(one.take, cut(data, places))) + one.rest()
    assert given_out == REDACT(data.decode()).encode()


@pytest.mark.parametrize(("printed", "shown"), [
    (b"Password: ", b"Password: "),
    (b"Continue? [y/n] ", b"Continue? [y/n] "),
    (b"Really (y/N)?", b"Really (y/N)?"),
    (b"50%|#####     |", b"50%|#####     |"),
    (b"enter your name", b"enter your name"),
    (b"plain\n", b"plain\n"),
    (b"x hunter2-", b"x "),
    (b"token ghp_a1B2a1", b"token "),
    (b"key\n-----BEGIN RSA PRIVATE KEY-----\nMII", b"key\n"),
    (b"ends in \xc3", b"ends in "),
])  # fmt: skip
def test_a_prompt_is_seen_at_once_and_half_a_secret_is_not(printed: bytes, shown: bytes) -> None:
    assert held().take(printed) == shown


def test_what_is_held_has_a_limit() -> None:
    one = held()
    given_out = one.take(b"-----BEGIN RSA PRIVATE KEY-----\n") + one.take(
        b"x" * (HOLD_CHARS_MAX + 5)
    )
    assert len(one.held) <= HOLD_CHARS_MAX
    assert b"secret: " in given_out


def test_bytes_that_are_no_text_pass_as_they_are() -> None:
    data = bytes(range(256)) * 3
    one = held()
    assert b"".join(one.take(data[n : n + 1]) for n in range(len(data))) + one.rest() == data


@settings(max_examples=30)
@given(st.lists(st.integers(0, 400), max_size=30), st.integers(2, 900), st.integers(0, 29))
def test_B4_quota_reading_and_handing_over(sizes: list[int], quota: int, handed_at: int) -> None:
    printed = b"".join(b"%d " % n for n in range(4000))
    with tempfile.TemporaryDirectory() as folder:
        output = SpoolWriter(folder, "early", quota, held())
        at = 0
        for number, size in enumerate(sizes):
            if number == handed_at:
                output.rename("b1")
                later = SpoolWriter(folder, "b1", quota, held())
                later.resume_from(output.export_state())
                output = later
            output.write(printed[at : at + size])
            at += size
        if len(sizes) <= handed_at:
            output.rename("b1")
        output.close()
        head, pieces = extent(folder, "b1")
        kept = head + sum(size for _, size in pieces)
        assert kept <= quota
        assert output.size_bytes == at
        assert output.elided_bytes == at - kept
        seen, start = bytearray(), 0
        while got := read_output(folder, "b1", start, 97)[1]:
            start = read_output(folder, "b1", start, 97)[0]
            assert printed[start : start + len(got)] == got
            seen += got
            start += len(got)
        assert (len(seen), start) == (kept, at)
        whole = make_whole(folder, "b1", "|{}|")
        text = Path(whole).read_bytes() if whole else b""
        assert text.startswith(printed[: min(at, quota // 2)])
        assert len(text) == kept or f"|{at - kept:,}|".encode() in text
        remove_task(folder, "b1")
        assert os.listdir(folder) == []


def test_a_full_disk_leaves_a_gap_and_what_comes_after_it_is_kept(tmp_path: Path) -> None:
    output = SpoolWriter(str(tmp_path), "b1", 1000, held())
    output.write(b"before ")
    output.release()
    (tmp_path / "b1.out").rename(tmp_path / "aside")
    (tmp_path / "b1.out").symlink_to("/dev/full")
    output.write(b"lost ")
    (tmp_path / "b1.out").unlink()
    (tmp_path / "aside").rename(tmp_path / "b1.out")
    output.write(b"after ")
    output.close()
    assert (output.lost, output.lost_bytes, output.elided_bytes) == ("the disk was full", 5, 5)
    found = Path(make_whole(str(tmp_path), "b1", "[{} bytes]")).read_bytes()
    assert found == b"before [5 bytes]after "


def test_a_disk_that_stays_full_costs_no_file_a_write(tmp_path: Path) -> None:
    output = SpoolWriter(str(tmp_path), "b1", 1000, held())
    (tmp_path / "b1.out").symlink_to("/dev/full")
    (tmp_path / "b1.more").write_text("in the way")
    for _ in range(100):
        output.write(b"x ")
    assert output.lost_bytes == output.elided_bytes == output.size_bytes == 200
    assert len(os.listdir(tmp_path)) == 2


def test_what_a_crash_left_in_the_spool_is_swept_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    for name in split_words("""
        b1.json b1.out b2.out b2.end b3.whole early-999999999-1.out v1.json v1.sock
    """):
        (tmp_path / name).write_text("{}")
    (tmp_path / f"early-{os.getpid()}-7.out").write_text("mine")
    (tmp_path / "b4.more").mkdir()
    (tmp_path / "b4.more" / "512").write_text("x")
    sweep_spool(str(tmp_path))
    found = sorted(os.listdir(tmp_path))
    assert found == ["b1.json", "b1.out", f"early-{os.getpid()}-7.out", "v1.json", "v1.sock"]
