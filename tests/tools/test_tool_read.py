"""`Read` tool: the result for each kind of file, and the event for the content that was seen."""

import hashlib
import os
import struct
from typing import Any

import msgspec
import pytest

from longrein.tools.file_access import ODD_NAME_HINT
from longrein_context.events import Document, FileSeen, Image, text_of
from longrein_context.events.image_header import image_info

pytestmark = pytest.mark.anyio


async def shows(harness: Any, content: bytes | str, expected: str, **arguments: Any) -> None:
    """`Read` of a file with this content gives this text."""
    path = harness.file("f.txt", content)
    text = await harness.call("Read", file_path="f.txt", **arguments)
    assert text.replace(str(path), "PATH") == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\nb\n", "1\ta\n2\tb"),
        ("a\nb", "1\ta\n2\tb"),
        ("\n\na", "1\t\n2\t\n3\ta"),
        ("", "[PATH is empty]"),
        ("中文\n", "1\t中文"),
        ("a\x0bb\u2028c\x85d\n", "1\ta\u240bb\u2028c\ufffdd"),
        (b"a\r\nb\r\n", "1\ta\n2\tb\n[CRLF line ends; Edit and Write keep them]"),
        (b"a\r\nb\nc\r\n", "1\ta\n2\tb\n3\tc\n[mixed line ends; Edit and Write keep them]"),
        (b"a\rb\r", "1\ta\n2\tb\n[CR line ends; Edit and Write keep them]"),
        (b"\xef\xbb\xbfa\n", "1\ta\n[byte order mark; Edit and Write keep them]"),
        ("\ufeffa\u4e2d\n".encode("utf-16-le"), "1\ta中\n[UTF-16; Edit and Write keep them]"),
        ("only ascii\n".encode("utf-16-be"), "1\tonly ascii\n[UTF-16; Edit and Write keep them]"),
        (
            "café\n".encode("latin-1"),
            "1\tcafé\n[Latin-1 or unknown 8-bit encoding; Edit and Write keep them]",
        ),
        ("函数\n".encode("gbk"), "1\t函数\n[GBK; Edit and Write keep them]"),
        ("函數返回\n".encode("big5"), "1\t函數返回\n[Big5; Edit and Write keep them]"),
        ("テスト\n".encode("shift_jis"), "1\tテスト\n[Shift-JIS; Edit and Write keep them]"),
        ("테스트\n".encode("euc_kr"), "1\t테스트\n[EUC-KR; Edit and Write keep them]"),
        ("“né”\n".encode("cp1252"), "1\t“né”\n[Windows-1252; Edit and Write keep them]"),
        ("year: año\n".encode("cp1252"), "1\tyear: año\n[LATIN; Edit and Write keep them]"),
        ("©2020 20°C\n".encode("cp1252"), "1\t©2020 20°C\n[LATIN; Edit and Write keep them]"),
        ("第一行\n".encode("utf-16-le"), "1\t第一行\n[UTF-16; Edit and Write keep them]"),
        ("第一行\n".encode("utf-16-be"), "1\t第一行\n[UTF-16; Edit and Write keep them]"),
        (
            "中文中文\n".encode() + b"\xff\n",
            "1\t中文中文\n2\t\ufffd\n[bytes that are not UTF-8 are shown as \ufffd]",
        ),
        (b"\x1b[31mred\x1b[0m\n", "1\t\u241b[31mred\u241b[0m"),
    ],
)
async def test_text(harness: Any, content: bytes | str, expected: str) -> None:
    """R061: any bytes become text that a wire can carry."""
    expected = expected.replace("LATIN", "Latin-1 or unknown 8-bit encoding")
    await shows(harness, content, expected)


async def test_ranges(harness: Any) -> None:
    text = "".join(f"line {n}\n" for n in range(1, 11))
    await shows(
        harness,
        text,
        "4\tline 4\n5\tline 5\n[lines 4-5 of 10]",
        offset=4,
        limit=2,
    )
    await shows(
        harness, text, "9\tline 9\n10\tline 10\n[lines 9-10, the end of the file]", offset=9
    )
    next_call = 'Next: call Read with file_path "f.txt".'
    told = f"[past-end] PATH has only 10 lines; offset 11 is past. {next_call}"
    await shows(harness, text, told, offset=11)
    await shows(
        harness, text, "[bad-range] offset counts from 1 and limit must be at least 1.", limit=0
    )
    harness.limit(read_lines_max=3)
    await shows(
        harness, text, "1\tline 1\n2\tline 2\n3\tline 3\n[lines 1-3 of 10; read on with offset=4]"
    )
    harness.limit(read_lines_max=2000, read_bytes_max=40)
    await shows(
        harness,
        text,
        "1\tline 1\n2\tline 2\n3\tline 3\n4\tline 4\n[lines 1-4 of 10; read on with offset=5]",
    )


async def test_long_line(harness: Any) -> None:
    """1 MB on one line: cut by a marker that no tool writes into a file."""
    harness.limit(line_chars_max=10)
    note = (
        "[longrein:5e1f0c cut: line 2 has 1,000,000 characters; for more: sed -n 2p FILE | cut "
        "-c11-20]"
    )
    await shows(harness, "a\n" + "x" * 1_000_000, f"1\ta\n2\txxxxxxxxxx{note}")
    assert not harness.last.facts[0].whole


async def test_what_was_seen(harness: Any) -> None:
    path = harness.file("f.txt", "a\nb\n")
    digest = hashlib.sha256(b"a\nb\n").hexdigest()
    await harness.call("Read", file_path="f.txt", limit=1)
    assert harness.last.facts == (FileSeen(str(path), digest, digest, False, 1, 1),)
    await harness.call("Read", file_path="f.txt")
    assert harness.last.facts == (FileSeen(str(path), digest, digest, True, 1, 2),)
    await harness.call("Read", file_path="f.txt", limit=1)
    assert harness.last.facts == (FileSeen(str(path), digest, digest, True, 1, 1),)
    assert harness.blobs.read_blob(digest) == b"a\nb\n"
    path.write_text("a\nc\n")
    await harness.call("Read", file_path="f.txt", limit=1)
    assert not harness.last.facts[0].whole


async def test_symlink_is_known_by_its_target(harness: Any) -> None:
    path = harness.file("real.txt", "a\n")
    os.symlink("real.txt", harness.root / "link")
    await harness.call("Read", file_path="link")
    assert list(harness.versions) == [str(path)]


HERE = "Here: README.txt, bin, nowhere, pipe, sub/, x."
NEXT = 'Next: call Read with file_path "README.txt".'


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("bin", ("[binary] ROOT/bin is not text: ELF program, 6 bytes. Look into it with Bash "
                "(file, xxd, unzip -l …).")),
        ("x", ("[binary] ROOT/x is not text: binary data, 2.0 kB. Look into it with Bash (file, "
              "xxd, unzip -l …).")),
        ("sub", "[folder] sub is a folder. In sub: x. Next: call Read with file_path \"sub/x\"."),
        ("pipe", "[not-a-file] pipe is a device, pipe or socket, not a file. Name a regular file."),
        ("reedme.txt", (f"[not-found] No such file: ROOT/reedme.txt. {HERE} Did you mean "
                       'README.txt? Next: call Read with file_path "README.txt".')),
        ("nowhere", f"[not-found] No such file: ROOT/nowhere. {HERE} {NEXT}"),
        ("zzz", f"[not-found] No such file: ROOT/zzz. {HERE} {NEXT}"),
        ("no/zzz", f"[not-found] No such file: ROOT/no/zzz. {HERE} {NEXT}"),
        ("src/README.txt", (f"[not-found] No such file: ROOT/src/README.txt. {HERE} Did you mean "
                           'README.txt? Next: call Read with file_path "README.txt".')),
        ("subs/x", (f"[not-found] No such file: ROOT/subs/x. {HERE} Did you mean sub/x? Next: call "
                   'Read with file_path "sub/x".')),
        ("sub/y/z", ("[not-found] No such file: ROOT/sub/y/z. In sub: x. Next: call Read with "
                    'file_path "sub/x".')),
        ("a\0b", "[bad-path] ab is no usable path; give the path of a file."),
        ("", "[bad-path] An empty text is no usable path; give the path of a file."),
        (
            "\udcff",
            f"[bad-path] \ufffd has a name that is not UTF-8. {ODD_NAME_HINT}",
        ),
    ],
)  # fmt: skip
async def test_refused(harness: Any, path: str, expected: str) -> None:
    harness.file("bin", b"\x7fELF\0\0")
    harness.file("x", bytes(range(128, 256)) * 8 + bytes(range(1, 32)) * 32)
    harness.file("README.txt", "x")
    harness.file("sub/x", "x")
    os.symlink("gone", harness.root / "nowhere")
    os.mkfifo(harness.root / "pipe")
    found = (await harness.call("Read", file_path=path)).replace(str(harness.root), "ROOT")
    assert found == expected
    assert harness.last.status == "failed"


async def test_a_refusal_names_no_tool_that_is_not_offered(harness: Any) -> None:
    path = harness.file("a.txt", "x")
    read = harness.tools["Read"].run
    for offered, said in (("Read",), 'Next: call Read with file_path "a.txt".'), ((), ""):
        context = msgspec.structs.replace(harness.context(), offered=offered)
        outcome = await read(context, file_path="zzz")
        assert text_of(outcome.parts).partition("Here: a.txt.")[2].strip() == said
    for n in range(13):
        harness.file(f"sub/{n:02}", "x")
    told = await harness.call("Read", file_path="sub/zz")
    assert "In sub: 00, 01, 02, 03, 04, 05, 06, 07, 08, 09, 10, 11, 1 more. Next: " in told
    assert path.read_text() == "x"


async def test_vanished_and_unreadable(harness: Any) -> None:
    path = harness.file("f.txt", "a")

    def gone(*_: Any) -> bytes:
        raise failure

    harness.workspace.read = gone
    failure: OSError = FileNotFoundError()
    found = await harness.call("Read", file_path="f.txt")
    assert found == f'[not-found] {path} has just vanished. Next: call Glob with pattern "**/*".'
    failure = PermissionError(13, "Permission denied")
    found = await harness.call("Read", file_path="f.txt")
    assert (
        found
        == f"[unreadable] {path} cannot be read: permission denied. Look why with Bash (ls -l)."
    )


async def test_large_file_is_paged(harness: Any) -> None:
    harness.limit(keep_bytes_max=10_000, read_bytes_max=5_000)
    content = "".join(f"{n} {'x' * 90}\n" for n in range(1, 2001))
    path = harness.file("big.log", content)
    text = await harness.call("Read", file_path="big.log", limit=2)
    assert text.endswith("\n[lines 1-2 of a file of 190.9 kB]")
    assert harness.last.facts == (
        FileSeen(str(path), hashlib.sha256(content.encode()).hexdigest(), "", whole=False),
    )
    text = await harness.call("Read", file_path="big.log", offset=1500, limit=1)
    assert text.startswith("1500\t1500 xxx")
    text = await harness.call("Read", file_path="big.log", offset=2001)
    assert text.startswith(
        f"[too-large] {path} has 190.9 kB; line 2001 is too far in. Use Bash: sed -n '2001,2201p'"
    )


async def test_huge_file_is_only_looked_into(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.limit(keep_bytes_max=1_000, read_bytes_max=500)
    monkeypatch.setattr("longrein.tools.read.HANDLED_BYTES_MAX", 50_000)
    monkeypatch.setattr("longrein.tools.write.HANDLED_BYTES_MAX", 50_000)
    path = harness.file("big.log", "".join(f"{n} {'x' * 90}\n" for n in range(1, 2001)))
    text = await harness.call("Read", file_path="big.log", offset=400, limit=1)
    assert text.startswith("400\t400 xxx")
    assert harness.last.facts == ()
    text = await harness.call("Read", file_path="big.log", offset=1999, limit=1)
    assert text.startswith(f"[too-large] {path} has 190.9 kB; line 1999 is too far in.")
    text = await harness.call("Edit", file_path="big.log", old_string="1", new_string="2")
    assert text == f"[too-large] {path} has 190.9 kB; change it with Bash (sed -i, split)."


# --- images and documents -------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\x02\0\0\0"
JPEG = (
    b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xc0\0\x11\x08"
    + struct.pack(">HH", 48, 64)
    + b"\3"
)
WEBP = b"RIFF\0\0\0\0WEBPVP8X\n\0\0\0\0\0\0\0" + b"\x3f\0\0" + b"\x2f\0\0"
LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 63 | 47 << 14)


@pytest.mark.parametrize(("data", "media", "size"), [
    (PNG, "image/png", (640, 480)),
    (JPEG, "image/jpeg", (64, 48)),
    (b"GIF89a" + struct.pack("<HH", 64, 48), "image/gif", (64, 48)),
    (WEBP, "image/webp", (64, 48)),
    (LOSSLESS, "image/webp", (64, 48)),
    (b"\xff\xd8\xff\xe0\0", "image/jpeg", (0, 0)),
])  # fmt: skip
def test_pictures(data: bytes, media: str, size: tuple[int, int]) -> None:
    found = image_info(data)
    assert (found.media, (found.width, found.height)) == (media, size)


async def test_image(harness: Any) -> None:
    path = harness.file("a.txt", PNG)
    found = await harness.call("Read", file_path="a.txt")
    assert found == "[image a.txt, image/png, 640x480 pixels, 29 bytes]"
    blob = hashlib.sha256(PNG).hexdigest()
    assert harness.last.parts[1] == Image(blob, "image/png", 29, 640, 480)
    assert harness.last.facts == (FileSeen(str(path), blob, blob),)


@pytest.mark.parametrize("data", [
    PNG[:20],
    PNG[:12] + b"XXXX" + PNG[16:],
    b"\x89PNG\r\n\x1a\n",
    JPEG[:20],
    b"\xff\xd8\xff\xe0\0",
    b"GIF89a\0\0\0\0",
    WEBP[:26],
    b"RIFF\0\0\0\0WEBPxxxx" + bytes(20),
])  # fmt: skip
async def test_a_broken_picture_is_told_and_not_shown(harness: Any, data: bytes) -> None:
    harness.file("a.png", data)
    found = await harness.call("Read", file_path="a.png")
    assert found.startswith("[broken-picture] a.png begins as image/")
    assert not any(isinstance(part, Image) for part in harness.last.parts)


async def test_pdf(harness: Any) -> None:
    harness.file("a.pdf", b"%PDF-1.7 ...")
    assert await harness.call("Read", file_path="a.pdf") == "[PDF document a.pdf, 12 bytes]"
    assert harness.last.parts[1] == Document(
        hashlib.sha256(b"%PDF-1.7 ...").hexdigest(), "application/pdf", 12, "a.pdf"
    )


async def test_image_too_large(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.limit(keep_bytes_max=10)
    path = harness.file("a.png", PNG)
    await harness.call("Read", file_path="a.png")
    found = harness.last.parts[1]
    assert found == Image(hashlib.sha256(PNG).hexdigest(), "image/png", 29, 640, 480)
    monkeypatch.setattr("longrein.tools.read.MEDIA_BYTES_MAX", 20)
    found = await harness.call("Read", file_path="a.png")
    assert found == f"[too-large] {path} has 29 bytes; make it smaller first."
