"""Files that the model knows and somebody else changes: noticed before the next request, told
once, with the change.
"""

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent import Continue, Rewind
from longrein.models import Failure, Reply
from longrein.tools import change_of
from longrein_context import Request
from longrein_context.events import FileChanged, PrefixSet, Reminded, Text
from tests.agent.disk_harness import DiskHarness, Script, call, results, said, says, turn
from tests.tables import cases, row

pytestmark = pytest.mark.anyio

FILES = (
    "files you know were changed on disk, not by your Edit or Write. Take it as intended: do not "
    "put it back, and "
    "mention it only where it matters. What is shown below you need not read again"
)


def notes(request: Request) -> list[str]:
    """The reminders in a request, nonce and head left out."""
    texts = [
        item.part.text.removesuffix("\n[longrein:n0nce end]")
        for item in request.items
        if item.kind == "reminder" and isinstance(item.part, Text)
    ]
    return [text.replace("[longrein:n0nce ", "[").replace(FILES, "…") for text in texts]


def then(act: Callable[[], object], reply: Reply) -> Callable[[Request], Reply]:
    """A model during whose answer somebody does `act`."""

    def step(_: Request) -> Reply:
        act()
        return reply

    return step


def read(name: str = "a.txt") -> Reply:
    return says(call("Read", file_path=name))


async def test_E4_a_file_edited_while_a_tool_runs_is_in_the_next_request(
    harness: DiskHarness,
) -> None:
    path = harness.tree / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    (harness.tree / "b.txt").write_text("b\n")
    edit = lambda: path.write_text("one\n2\nthree\n")  # noqa: E731
    model = Script(read(), then(edit, read("b.txt")), says("done"), says("bye"))
    await harness.play(model, "go", "and?")
    assert [notes(request) for request in model.requests[:2]] == [[], []]
    told = [f"[file_changed: …]\n* {path}: by somebody else\n 1\tone\n-2\ttwo\n+2\t2\n 3\tthree"]
    assert notes(model.requests[2]) == told
    assert model.requests[2].items[-1].kind == "reminder"
    assert model.requests[2].items[-2].kind == "result"
    assert notes(model.requests[3]) == told
    assert model.requests[3].items[: len(model.requests[2].items)] == model.requests[2].items


async def test_E22_an_edit_works_after_the_whole_change_was_told(harness: DiskHarness) -> None:
    path, large = harness.tree / "a.txt", harness.tree / "large.txt"
    path.write_text("one\ntwo\n")
    large.write_text("".join(f"line {n} of many\n" for n in range(900)))

    def edit() -> None:
        path.write_text("one\n2\n")
        large.write_text("".join(f"row {n} of many\n" for n in range(900)))

    both = says(call("Edit", file_path="a.txt", old_string="two", new_string="x"))
    again = says(
        call("Edit", file_path="a.txt", old_string="2", new_string="II"),
        call("Edit", file_path="large.txt", old_string="row 7 of", new_string="x"),
    )
    model = Script(
        says(*(call("Read", file_path=n) for n in ("a.txt", "large.txt"))),
        then(edit, both),
        again,
        says(),
    )
    await harness.play(model, "go")
    before, after, unread = results(model.requests[-1])[2:]
    assert before.startswith("Edit failed: [changed]")
    assert after.startswith("Edit ok: Edited")
    assert unread.startswith("Edit failed: [changed]")
    assert path.read_text() == "one\nII\n"
    (note,) = notes(model.requests[2])
    assert note.endswith(
        "large.txt: by somebody else, changed in lines 1-900 of 900; Read it before you rely on it"
    )


async def test_rule_5_what_the_agent_does_itself_is_never_told(harness: DiskHarness) -> None:
    (harness.tree / "a.txt").write_text("one\n")
    model = Script(
        read(),
        says(call("Edit", file_path="a.txt", old_string="one", new_string="two")),
        says(call("Write", file_path="b.txt", content="new\n")),
        says("done"),
    )
    await harness.play(model, "go")
    assert [notes(request) for request in model.requests] == [[], [], [], []]


async def test_rule_5_what_the_agents_command_did_is_told_once(harness: DiskHarness) -> None:
    path = harness.tree / "a.txt"
    path.write_text("one\ntwo\n")
    model = Script(
        read(),
        says(call("Bash", command="sed -i s/two/2/ a.txt")),
        says(call("Bash", command="true")),
        says(),
    )
    await harness.play(model, "go")
    told = [
        (
            f"[file_changed: …]\n* {path}: while your command ran (`sed -i s/two/2/ a.txt`)\n "
            "1\tone\n-2\ttwo\n+2\t2"
        )
    ]
    assert [notes(request) for request in model.requests] == [[], [], told, told]
    facts = harness.of(FileChanged)
    assert [(fact.by, fact.who) for fact in facts] == [("command", "`sed -i s/two/2/ a.txt`")]


async def test_a_touch_or_the_same_bytes_again_is_nothing(harness: DiskHarness) -> None:
    path = harness.tree / "a.txt"
    path.write_text("one\n")

    def touch() -> None:
        os.utime(path, (1, 1))
        (harness.tree / "new").write_text("one\n")
        os.replace(harness.tree / "new", path)

    model = Script(read(), then(touch, says(call("Bash", command="touch a.txt"))), says("done"))
    await harness.play(model, "go")
    assert notes(model.requests[2]) == []
    assert not [
        entry for entry in harness.entries() if isinstance(entry.event, FileChanged | Reminded)
    ]


async def test_gone_there_again_and_put_back(harness: DiskHarness) -> None:
    path = harness.tree / "a.txt"
    path.write_text("one\n")
    write = lambda text: lambda: path.write_text(text)  # noqa: E731
    steps = row(
        path.unlink, write("one\n"), write("two\n"), write("one\n"), write("not told any more\n")
    )
    model = Script(
        read(),
        *(then(act, says(call("Glob", pattern=f"{n}"))) for n, act in enumerate(steps)),
        says("done"),
    )
    await harness.play(model, "go")
    busy = "it keeps changing, so that you will not be told again before you Read it"
    assert [
        note.split("\n* ")[1].replace(str(path), "a.txt") for note in notes(model.requests[-1])
    ] == [
        "a.txt: it is gone, by somebody else",
        "a.txt: by somebody else\n+1\tone",
        "a.txt: by somebody else\n-1\tone\n+1\ttwo",
        f"a.txt: by somebody else, {busy}\n-1\ttwo\n+1\tone",
    ]


async def test_E13_changes_before_a_resume_are_one_reminder(harness: DiskHarness) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (harness.tree / name).write_text("one\n")
    reads = says(*(call("Read", file_path=name) for name in ("a.txt", "b.txt", "c.txt")))
    model = Script(reads, says("read"), says("seen"), says("again"))
    await harness.play(model, "go")
    (harness.tree / "a.txt").write_text("two\n")
    (harness.tree / "b.txt").unlink()
    harness.clock.now += 50 * 60 * 1_000_000
    await harness.play(model, "what now?", create=False)
    head = "[session_resumed: the session goes on after 50 min; meanwhile …]"
    first = f"* {harness.tree}/a.txt: by somebody else\n-1\tone\n+1\ttwo"
    assert notes(model.requests[2]) == [
        f"{head}\n{first}\n* {harness.tree}/b.txt: it is gone, by somebody else"
    ]
    await harness.play(model, "and now?", create=False)
    assert len(notes(model.requests[3])) == 1


async def test_D9_R045_law_10_a_resume_without_changes_tells_nothing(harness: DiskHarness) -> None:
    (harness.tree / "a.txt").write_text("one\n")
    model = Script(read(), says("read"), says("again"))
    await harness.play(model, "go")
    before = model.requests[1].items
    session = await harness.play(model, "on", create=False)
    assert model.requests[2].items[: len(before)] == before
    assert [item.kind for item in model.requests[2].items[len(before) :]] == ["text", "user"]
    assert not [entry for entry in harness.entries()[2:] if isinstance(entry.event, PrefixSet)]
    assert session.state.breaks == 0


async def test_rule_10_a_failed_request_is_made_again_with_its_reminder(
    harness: DiskHarness,
) -> None:
    path = harness.tree / "a.txt"
    path.write_text("one\n")

    def fails(_: Request) -> Failure:
        path.write_text("three\n")
        return Failure("server", "no", 500)

    model = Script(
        read(),
        then(lambda: path.write_text("two\n"), says(call("Glob", pattern="x"))),
        fails,
        says("done"),
    )
    await harness.play(model, "go")
    first, second = notes(model.requests[3])
    assert notes(model.requests[2]) == [first]
    assert first.endswith("-1\tone\n+1\ttwo")
    assert second.endswith("-1\ttwo\n+1\tthree")


async def test_a_secret_in_a_changed_file_enters_no_log_or_request(harness: DiskHarness) -> None:
    path = harness.tree / "a.txt"
    path.write_text("one\n")
    edit = lambda: path.write_text("one\nkey = hunter2hunter2\n")  # noqa: E731
    model = Script(read(), then(edit, says(call("Glob", pattern="x"))), says("done"))
    redact = lambda text: text.replace("hunter2hunter2", "[secret]")  # noqa: E731
    await harness.play(model, "go", redact=redact, secrets=("hunter2hunter2",))
    assert notes(model.requests[2])[0].endswith("+2\tkey = [secret]")
    assert not [
        p for p in harness.state.rglob("*") if p.is_file() and b"hunter2hunter2" in p.read_bytes()
    ]


async def test_D11_after_a_rewind_the_model_hears_what_stands_on_disk(harness: DiskHarness) -> None:
    (harness.tree / "a.txt").write_text("one\n")
    write = says(call("Edit", file_path="a.txt", old_string="one", new_string="two"))
    edit = says(call("Edit", file_path="a.txt", old_string="two", new_string="three"))
    model = Script(read(), says("read"), write, says("written"), edit, says("done"))
    async with harness.session(model) as session:
        for prompt in ("read it", "change it"):
            await turn(session, prompt)
        to = harness.ends()[0]
        session.tell(Rewind(to))
        await turn(session, "again")
    (note,) = notes(model.requests[4])
    assert note.endswith(f"* {harness.tree}/a.txt: as you left it in what was taken back")
    assert results(model.requests[5])[-1].startswith("Edit failed: [changed]")


async def test_a_turn_that_a_crash_cut_looks_again_when_it_goes_on(harness: DiskHarness) -> None:
    (harness.tree / "a.txt").write_text("one\n")
    model = Script(read(), Failure("auth", "no key", 401))
    await harness.play(model, "go")
    (harness.tree / "a.txt").write_text("two\n")
    # the turn that ended in a failure goes on, then comes the word
    more = Script(says("done"), says("and on"))
    async with harness.session(more, create=False) as session:
        session.tell(Continue())
        await turn(session, "on")
    assert notes(more.requests[0])[0].startswith(
        "[session_resumed: the session goes on after 0 s; meanwhile …]"
    )
    assert said(more.requests[0])[-1] != "on"


async def test_a_file_grown_too_large_is_told_without_content(harness: DiskHarness) -> None:
    (harness.tree / "a.py").write_text("x = 1\n")
    grow = lambda: (harness.tree / "a.py").write_bytes(b"x" * 5_300_000)  # noqa: E731
    model = Script(read("a.py"), then(grow, says(call("Glob", pattern="*"))), says("done"))
    await harness.play(model, "go")
    (told,) = notes(model.requests[-1])
    assert "by somebody else, now 5300000 bytes" in told


# --- what is said of a change ---------------------------------------------------------------------


def numbered(diff: str, signs: str) -> dict[int, str]:
    lines = [
        line[1:].partition("\t") for line in diff.split("\n") if line[:1] in signs and "\t" in line
    ]
    return {int(number): text for number, _, text in lines}


_TEXTS = st.lists(st.sampled_from(["a", "b", "c", "d", "", "\tx"]), max_size=30)


@given(_TEXTS, _TEXTS)
def test_what_is_shown_and_what_was_known_give_new_content(old: list[str], new: list[str]) -> None:
    was, now = "".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new)
    diff, note = change_of(was.encode(), now.encode())
    if was == now:
        assert (diff, note) == ("", "only its line ends changed")
        return
    assert diff
    shown = numbered(diff, " +")
    assert all(new[number - 1] == text for number, text in shown.items())
    assert all(old[number - 1] == text for number, text in numbered(diff, "-").items())
    added, removed = numbered(diff, "+"), numbered(diff, "-")
    blocks = sum(int(line[2:].split()[0]) for line in diff.split("\n") if line.startswith("-("))
    assert len(new) - len(added) == len(old) - len(removed) - blocks
    kept = [text for number, text in enumerate(new, 1) if number not in added]
    if not blocks:
        assert kept == [text for number, text in enumerate(old, 1) if number not in removed]


@cases(
    "old new note",
    (b"a\r\nb\r\n", b"a\nb", "only its line ends changed"),
    (b"a", b"\0\1", "its content is not plain text, now 2 bytes"),
    (b"a", b"a\x1b[31m", "its content is not plain text, now 6 bytes"),
    (None, b"a", "its old content was not kept"),
    (b"", b"x" * 6_000, "changed in lines 1-1 of 1"),
    (b"a\n" * 5_000, b"b\n" * 4_000, "changed in lines 1-4000 of 4000"),
)
def test_what_cannot_be_shown_is_said(old: bytes | None, new: bytes, note: str) -> None:
    assert change_of(old, new) == ("", note)
