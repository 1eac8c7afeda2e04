"""`apply_patch`: patches as models write them, under the rules of `Edit`."""

import random
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent.permission_check import tool_names
from longrein.extensions.acp.tool_calls import announce, view_of
from longrein.models import is_trained_on_patches
from longrein.tools import EDITORS, builtin_tools, offer_tools
from longrein.tools.apply_patch import APPLY_PATCH, check_patch, patch_paths
from longrein.tools.patch_text import apply_hunks, parse_patch
from longrein.workspace import ResolvedPath
from longrein_context.events import FileChanged, FileSeen, ToolCall, ToolError, ToolTraits

CODE = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"
PLACE = ResolvedPath("a.py", "ROOT/a.py", "ROOT/a.py", True, "file")


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def applied(text: str, *lines: str) -> str:
    """The text after an update with these lines, or the first word of the refusal."""
    try:
        (one,) = parse_patch(patch("*** Update File: a.py", *lines))
        return apply_hunks(PLACE, text, one.hunks, "\r\n" if "\r\n" in text else "\n")
    except ToolError as refusal:
        return str(refusal).split()[0]


@pytest.mark.parametrize(
    ("text", "lines", "after"),
    [
        (CODE, (" def f():", "-    return 1", "+    return 2"), CODE.replace("1", "2", 1)),
        (CODE, ("@@ def g():", "-    return 1", "+    return 2"), CODE[:-2] + "2\n"),
        (CODE, ("@@ g", "-    return 1", "+    return 2"), CODE[:-2] + "2\n"),
        (CODE, ("-    return 1", "+    return 2"), "[not-unique]"),
        (CODE, ("@@ -1,2 +1,2 @@", "-    return 1", "+    return 2"), "[not-unique]"),
        (CODE, ("@@ def h():", "-    return 1", "+    return 2"), "[no-match]"),
        (CODE, ("-    return 3", "+    return 2"), "[no-match]"),
        (CODE, ("-return 1", "+return 2"), "[not-unique]"),
        ("a\nb\n", ("-a", "+A", "@@", "-b", "+B"), "A\nB\n"),
        ("a\nb\n", ("-b", "+B", "@@", "-a", "+A"), "[no-match]"),
        ("a\nb\nb\n", (" a", "+x", " b"), "a\nx\nb\nb\n"),
        ("a\n\nb\n", ("-a", "", "-b", "+c"), "\nc\n"),
        ("a\nb", ("-b", "+c"), "a\nc"),
        ("a\nb\n", ("-b",), "a\n"),
        ("b\na\nb\n", ("-b", "+c", "*** End of File"), "b\na\nc\n"),
        ("a\n", ("+b",), "a\nb\n"),
        ("a", ("+b",), "a\nb\n"),
        ("", ("+b",), "b\n"),
        ("a\nb\n", ("@@ a", "+x"), "a\nx\nb\n"),
        ("a\r\nb\r\n", ("-a", "+A", "+x"), "A\r\nx\r\nb\r\n"),
        ("abc\nab\n", ("-ab", "+x"), "abc\nx\n"),
        ("a  \nb\n", ("-a", "+x", " b"), "x  \nb\n"),
        ("  }\n}\n}\n", ("-}", "-}"), "  }\n"),
        ("a\na\na\n", ("-a", "-a", "+b"), "[not-unique]"),
        ("\r\na\r\n\r\nb\r\n", ("-", "-b", "+c"), "\r\na\r\nc\r\n"),
        ("a\n\na\n\n", ("-a", "-", "+b", "*** End of File"), "a\n\nb\n"),
        ("a\nb", ("-", "+x"), "[no-match]"),
        ("a\x0cb\nc\n", ("@@ a", "+x"), "a\x0cb\nx\nc\n"),
        (
            "*** End of File\nb\n*** Delete File: b\n",
            (" *** End of File", "-b", " *** Delete File: b"),
            "*** End of File\n*** Delete File: b\n",
        ),
        ("a\n", ("?a",), "[bad-patch]"),
        ("a\n", (), "[bad-patch]"),
    ],
)
def test_hunks(text: str, lines: tuple[str, ...], after: str) -> None:
    assert applied(text, *lines) == after


BODIES = ("return 1", "if self.a:\n    return 2\nreturn 1", "self.a = 1\n\nreturn self.a")


def generated(seed: int) -> tuple[str, list[str], str, bool]:
    """A file of classes with methods of the same few names and bodies, a change of one line of it
    as lines of a patch, the text after it, and whether the anchors say which method is meant.
    """
    rng = random.Random(seed)
    lines, heads = list[str](), list[tuple[str, str, int, int]]()
    for name in rng.sample("ABCD", rng.randint(1, 4)):
        lines += [f"class {name}:", *rng.choice([(), ('    """A class."""', "")])]
        for method in rng.sample(["f", "g", "h"], rng.randint(1, 3)):
            head = f"    def {method}(self):"
            body = [" " * 8 * bool(one) + one for one in rng.choice(BODIES).split("\n")]
            heads.append((f"class {name}:", head, len(lines) + 1, len(lines) + 1 + len(body)))
            lines += [head, *body, *rng.choice([(), ("",)])]
    above, head, start, end = rng.choice(heads)
    at = rng.choice([n for n in range(start, end) if lines[n]])
    first, last = max(start, at - rng.randint(0, 3)), min(end, at + 1 + rng.randint(0, 2))
    anchors = rng.choice([(above, head), (head,), (above,), (head.strip(),), ()])
    rows = [*(f"@@ {one}" for one in anchors), *(f" {one}" for one in lines[first:at])]
    rows += [f"-{lines[at]}", "+changed", *(f" {one}" for one in lines[at + 1 : last])]
    if rng.random() < 0.2:  # only new lines, below the head
        rows, at = [f"@@ {above}", f"@@ {head}", "+changed"], start
        return "\n".join(lines), rows, "\n".join([*lines[:at], "changed", *lines[at:]]), True
    body = lines[start:end]
    old = lines[first:last]
    once = sum(body[n : n + len(old)] == old for n in range(len(body))) == 1
    after = "\n".join([*lines[:at], "changed", *lines[at + 1 :]])
    return "\n".join(lines), rows, after, len(anchors) == 2 and once


def test_no_generated_patch_goes_to_a_wrong_place() -> None:
    refused = 0
    for seed in range(4_000):
        text, rows, after, is_clear = generated(seed)
        found = applied(text, *rows)
        assert found == after or (found == "[not-unique]" and not is_clear), (seed, rows, text)
        refused += found != after
    assert refused < 2_000, "most are clear"


@pytest.mark.parametrize(
    "text",
    [
        "", "*** Begin Patch", "*** End Patch\n*** Begin Patch", patch(), patch("a line"),
        patch("*** Add File: a", "no plus"),
        patch("*** Delete File: a", "*** Add File: a", "+x"),
        patch("*** Update File: a", "*** Move to: a"),
    ],
)  # fmt: skip
def test_what_is_no_patch_is_refused_and_touches_nothing(text: str) -> None:
    with pytest.raises(
        ToolError, match=r"^\[bad-patch\] .* Nothing was changed; correct the patch\."
    ):
        parse_patch(text)
    assert patch_paths({"input": text}) == ()


def test_a_new_file_keeps_its_empty_lines() -> None:
    (one,) = parse_patch(patch("*** Add File: a", "+x", "", "+", "+y", ""))
    assert one.hunks[0].new == ("x", "", "", "y")


LINES = st.lists(st.sampled_from(["a", "b", "  c", "", "}", "é", "@@", "+", "-x"]), max_size=12)


@given(LINES, LINES)
def test_a_patch_with_all_lines_of_a_file_makes_the_other_one(
    old: list[str], new: list[str]
) -> None:
    rows: list[str] = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += [f" {line}" for line in old[a:b]]
        else:
            rows += [f"-{line}" for line in old[a:b]] + [f"+{line}" for line in new[c:d]]
    if rows:
        text = "".join(f"{line}\n" for line in old)
        assert applied(text, *rows) == "".join(f"{line}\n" for line in new)


# --- on the disk, with the rules of `Edit` --------------------------------------------------------


async def call(harness: Any, *lines: str) -> str:
    text: str = await harness.call("apply_patch", input=patch(*lines))
    return text.replace(f"{harness.root}/", "")


@pytest.mark.anyio
async def test_files_are_changed_made_moved_and_removed(harness: Any) -> None:
    for name in ("a.py", "b.py", "c.py"):
        harness.file(name, CODE)
        await harness.call("Read", file_path=name)
    text = await call(
        harness, "*** Update File: a.py", " def f():", "-    return 1", "+    return 2",
        "*** Add File: new/d.py", "+x = 1", "*** Delete File: b.py",
        "*** Update File: c.py", "*** Move to: e.py", "@@ g", "-    return 1", "+    return 3",
    )  # fmt: skip
    assert text.splitlines() == [
        "Edited a.py.",
        "Created new/d.py (1 line, 6 bytes).",
        "Removed b.py.",
        "Moved c.py to e.py.",
    ]
    left = {path.name: path.read_text() for path in Path(harness.root).rglob("*.py")}
    assert left == {"a.py": CODE.replace("1", "2", 1), "d.py": "x = 1\n", "e.py": CODE[:-2] + "3\n"}
    changed = [(fact.path.rpartition("/")[2], bool(fact.hash)) for fact in harness.last.facts
               if isinstance(fact, FileChanged)]  # fmt: skip
    assert changed == [
        ("a.py", True), ("d.py", True), ("b.py", False), ("e.py", True), ("c.py", False),
    ]  # fmt: skip


UPDATE = ("*** Update File: a.py", " def f():", "-    return 1", "+    return 2")


@pytest.mark.anyio
@pytest.mark.parametrize(("read", "lines", "refusal"), [
    (False, UPDATE, "[not-read] "),
    (False, ("*** Delete File: a.py",), "[not-read] "),
    (True, ("*** Add File: a.py", "+x"), "[exists] "),
    (True, (*UPDATE, "*** Delete File: none.py"), "[not-found] "),
    (True, (*UPDATE, "*** Add File: .git/hooks/x", "+x"), "[ignored-path] "),
    (True, (*UPDATE, "@@", "-nowhere"), "[no-match] "),
    (True, ("*** Update File: a.py", "*** Move to: b.py"), "[exists] "),
])  # fmt: skip
async def test_all_of_a_patch_fits_or_nothing_is_changed(
    harness: Any, read: bool, lines: tuple[str, ...], refusal: str
) -> None:
    harness.file("a.py", CODE)
    harness.file("b.py", "b")
    if read:
        await harness.call("Read", file_path="a.py")
    text = await call(harness, *lines)
    assert text.startswith(refusal)
    assert harness.last.status == "failed"
    assert [type(fact) for fact in harness.last.facts] == [FileSeen] * (refusal == "[not-read] ")
    assert (harness.root / "a.py").read_text() == CODE
    assert (harness.root / "b.py").read_text() == "b"


@pytest.mark.anyio
async def test_a_change_by_the_user_is_kept_and_one_that_collides_is_not_overwritten(
    harness: Any,
) -> None:
    path = harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    path.write_text(CODE + "# theirs\n")
    await call(harness, *UPDATE)
    assert path.read_text() == CODE.replace("1", "2", 1) + "# theirs\n"
    await harness.call("Read", file_path="a.py")
    theirs = path.read_text().replace("return 2", "return 7")
    path.write_text(theirs)
    text = await call(harness, "*** Update File: a.py", "-    return 2", "+    return 3")
    assert text.startswith("[changed] ")
    path.write_text(theirs + "# more\n")
    text = await call(harness, "*** Delete File: a.py")
    assert text.startswith("[changed] ")
    assert path.read_text() == theirs + "# more\n"


@pytest.mark.anyio
async def test_a_refused_file_is_told_before_any_other_changes(harness: Any) -> None:
    for name in ("a.py", "b.py"):
        harness.file(name, CODE)
        await harness.call("Read", file_path=name)
    for lines in (
        ("*** Delete File: b.py",),
        ("*** Update File: b.py", "*** Move to: c.py", " def f():", "-    return 1"),
    ):
        (harness.root / "b.py").write_text(CODE.replace("g()", "theirs()"))
        text = await call(harness, *UPDATE, *lines)
        assert text.startswith("[changed] b.py ")
        assert text.endswith("Not changed after that: a.py.")
        assert (harness.root / "a.py").read_text() == CODE
        assert sorted(path.name for path in harness.root.iterdir()) == ["a.py", "b.py"]
        harness.file("b.py", CODE)
        await harness.call("Read", file_path="b.py")


@pytest.mark.anyio
async def test_a_change_made_while_a_patch_is_applied_is_not_removed(harness: Any) -> None:
    for name in ("a.py", "b.py"):
        harness.file(name, CODE)
        await harness.call("Read", file_path=name)
    replace = harness.workspace.replace

    def replace_and_type(*given: Any, **named: Any) -> Any:
        (harness.root / "b.py").write_text("theirs")
        return replace(*given, **named)

    harness.workspace.replace = replace_and_type
    text = await call(harness, *UPDATE, "*** Delete File: b.py")
    assert text.startswith("Edited a.py.\n[changed] b.py ")
    assert (harness.root / "b.py").read_text() == "theirs"
    harness.file("b.py", CODE)
    await harness.call("Read", file_path="b.py")
    text = await call(harness, "*** Update File: b.py", "*** Move to: c.py")
    assert text.startswith("Moved b.py to c.py. The old file stays:\n[changed] b.py ")
    created, *_ = harness.last.facts
    assert created.path.endswith("c.py")


@pytest.mark.anyio
async def test_a_moved_file_keeps_its_mode_and_a_link_is_left_alone(harness: Any) -> None:
    harness.file("run.sh", "exit 1\n").chmod(0o750)
    (harness.root / "link.sh").symlink_to("run.sh")
    await harness.call("Read", file_path="run.sh")
    for lines in (("*** Delete File: link.sh",), ("*** Update File: link.sh", "*** Move to: b")):
        assert (await call(harness, *lines)).startswith("[link] link.sh is a link to run.sh; ")
    await call(harness, "*** Update File: run.sh", "*** Move to: new/run", "-exit 1", "+exit 0")
    moved = harness.root / "new" / "run"
    assert (moved.read_text(), moved.stat().st_mode & 0o777) == ("exit 0\n", 0o750)


@pytest.mark.anyio
async def test_a_file_that_no_rewind_could_restore_is_moved_but_not_removed(harness: Any) -> None:
    harness.limit(keep_bytes_max=3)
    harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    assert (await call(harness, "*** Delete File: a.py")).startswith("[not-kept] ")
    found = await call(harness, "*** Update File: a.py", "*** Move to: b.py")
    assert found == "Moved a.py to b.py."
    assert (harness.root / "b.py").read_text() == CODE


@pytest.mark.anyio
async def test_a_check_tells_nothing_of_files_that_the_model_does_not_know(harness: Any) -> None:
    harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    (harness.root.parent / "there").write_text("")
    for name in ("../there", "../not-there"):
        for lines in ((f"*** Add File: {name}", "+x"), (*UPDATE[:1], f"*** Move to: {name}")):
            await check_patch(harness.context(), patch(*lines))


def test_a_model_gets_the_editor_that_it_is_trained_on() -> None:
    for name, patches in (
        ("gpt-6.1-sol", True), ("gpt-5.2-codex", True), ("openai/gpt-5", True), ("o3", True),
        ("gpt-oss-120b", True),
        ("claude-opus-4-5", False), ("gemini-3-pro", False), ("qwen3", False), ("gpt-4o", False),
    ):  # fmt: skip
        assert is_trained_on_patches(name) is patches, name
    for patches, editor in ((True, "apply_patch"), (False, "Edit")):
        listed = offer_tools(builtin_tools(), 100_000, patches=patches).listed
        assert [spec.name for spec in listed if spec.name in EDITORS] == [editor]
    assert tool_names(APPLY_PATCH) == ("apply_patch", "Edit")  # for matchers of hooks
    assert APPLY_PATCH.rule_name == "Edit"


def test_an_editor_sees_the_changes_of_a_patch() -> None:
    lines = (
        "*** Begin Patch", "*** Update File: a.py", "*** Move to: b.py", " x", "-y", "+z",
        "*** Delete File: c.py", "*** Add File: d.py", "+new", "*** End Patch",
    )  # fmt: skip
    call = ToolCall("c1.0", "apply_patch", {"input": "\n".join(lines)})
    view = view_of(call, call.id, ToolTraits(kind="edit"), "/w", {"/w/c.py": "gone\n"}.get)
    assert view.title == "apply_patch a.py, b.py, c.py, d.py"
    assert view.content[0]["content"]["text"] == "Move /w/a.py to b.py"
    changes = [(one["path"], one["oldText"], one["newText"]) for one in view.content[1:]]
    assert changes == [
        ("/w/a.py", "x\ny\n", "x\nz\n"), ("/w/c.py", "gone\n", ""), ("/w/d.py", None, "new\n"),
    ]  # fmt: skip
    places = announce(view, "/w", lambda _: None)["locations"]
    assert [place["path"] for place in places] == ["/w/a.py", "/w/c.py", "/w/d.py"]
