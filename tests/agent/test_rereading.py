"""A4: reading what still stands in the view costs one line; reading what does not stands there
whole.
"""

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import pytest

from longrein.agent import Compact
from longrein.models import Delta, Reply
from longrein_context import Budget, Request, analyse, analysis_lines
from longrein_context.events import Reminded, Replied, text_of
from tests.agent.disk_harness import DiskHarness, Script, call, results, says, turn
from tests.tables import cases, split_words

pytestmark = pytest.mark.anyio

FILE = "".join(f"line {n} of the file\n" for n in range(1, 101))


@pytest.fixture
def harness(tmp_path: Path) -> DiskHarness:
    harness = DiskHarness(tmp_path)
    (harness.tree / "a.txt").write_text(FILE)
    return harness


def read(**more: object) -> Reply:
    return says(call("Read", file_path="a.txt", **more))


@cases(
    "steps begins",
    ([read(), read()], "[unchanged since r9: lines 1-100 of "),
    ([read(), read(offset=20, limit=10)], "[unchanged since r9: lines 20-29 of "),
    ([read(offset=20, limit=10), read()], "1\tline 1 of the file"),
    ([read(offset=20, limit=10), read(offset=25, limit=3)], "[unchanged since r9: lines 25-27 of "),
    ([read(offset=20, limit=10), read(offset=25, limit=10)], "25\tline 25 of the file"),
    ([read(), says(call("Bash", command="echo more >> a.txt")), read()], "1\tline 1 of the file"),
    (
        [read(), says(call("Bash", command="touch a.txt")), read()],
        "[unchanged since r9: lines 1-100 of ",
    ),
    ([read(), read(), read()], "1\tline 1 of the file"),
)
async def test_A4_a_reading_is_pointed_at(
    harness: DiskHarness, steps: list[Reply], begins: str
) -> None:
    model = Script(*steps, says("done"))
    await harness.play(model, "look")
    assert results(model.requests[-1])[-1].startswith(f"Read ok: {begins}")


async def test_A4_after_a_compaction_it_is_given_again(harness: DiskHarness) -> None:
    (harness.tree / "a.txt").write_text(FILE * 2)
    edit = says(
        call("Edit", file_path="a.txt", old_string="line 1 of the file\nline 2 ", new_string="x ")
    )
    model = Script(
        read(),
        read(),
        says("seen"),
        says("1. Request and intent\nlook"),
        read(),
        edit,
        says("done"),
    )
    async with harness.session(model) as session:
        await turn(session, "look")
        assert "unchanged since" in results(model.requests[2])[-1]
        await turn(session, Compact(""))
        await turn(session, "again")
    assert results(model.requests[5])[-1].startswith("Read ok: 1\tline 1 of the file")


async def test_a_reading_pointed_at_is_not_superseded(harness: DiskHarness) -> None:
    session = await harness.play(Script(read(), read(), says("seen")), "look")
    told = "\n".join(analysis_lines(analyse(session.state, Budget(50_000, 4_000))))
    assert "other results" in told
    assert "superseded" not in told


# --- Small windows and a model that reads again what it does not see ------------------------------

NAMES = ("ada", "bob", "cyd", "dot", "eve", "flo")
KEYS = {name: f"{n * 7919:05x}" for n, name in enumerate(NAMES, 11)}
WORDS = split_words(
    "a report of the system that runs each night and writes what it saw into one table"
)
REQUESTS_MAX = 20


class SilentReader:
    """Reads each file whose key it does not see, and never repeats what it has found.

    With `writes` it writes all keys down that it sees once it is told to.
    """

    provider, model, wire, name = "test", "script", "scripted", "test/script"

    def __init__(self, window: int, *, writes: bool = False) -> None:
        self.budget = Budget(window, 1_000)
        self.writes = writes
        self.requests: list[Request] = []
        self.reminders = 0

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        self.requests.append(request)
        text = "\n".join(text_of((item.part,)) for item in request.items)
        self.reminders = text.count("n0nce reread: ")
        missing = [name for name, key in KEYS.items() if key not in text]
        seen = " ".join(key for key in KEYS.values() if key in text)
        if request.purpose == "summary":
            yield [says("1. Request and intent\nThe user wants keys.\n9. Next step\nRead on.")]
        elif not missing or len(self.requests) > 3 * REQUESTS_MAX:
            yield [says(f"the keys: {seen}")]
        else:
            words = [f"so far: {seen}"] if self.writes and self.reminders else []
            yield [says(*words, call("Read", file_path=f"{missing[0]}.txt"))]

    async def aclose(self) -> None:
        return


def write_keys(folder: Path, line: str) -> None:
    random = Random(7)
    for name, key in KEYS.items():
        lines = [" ".join(random.choices(WORDS, k=12)) for _ in range(200)]
        lines.insert(90, line.format(name=name, key=key))
        (folder / f"{name}.txt").write_text("\n".join(lines))


def said_by_model(harness: DiskHarness) -> list[str]:
    return [text_of(reply.parts) for reply in harness.of(Replied)]


@pytest.mark.parametrize("window", [12_000, 16_000])
@cases(
    "asked line",
    ("Each of the six files here holds one key. Tell me the keys.", "the key of {name} is {key}"),
    ("read all files and report every api token", 'API_TOKEN_{name} = "{key}"'),
    ("这里有六个文件，每个里面有一个密钥。请告诉我。", "{name} 的密钥：{key}"),
)
async def test_keys_in_six_files_are_found_in_a_small_window(
    tmp_path: Path, window: int, asked: str, line: str
) -> None:
    """Lines with words of the request stay in view when the text of a file leaves."""
    harness = DiskHarness(tmp_path)
    write_keys(harness.tree, line)
    model = SilentReader(window)
    await harness.play(model, asked)
    assert len(model.requests) <= REQUESTS_MAX
    assert f"the keys: {' '.join(KEYS.values())}" in said_by_model(harness)
    assert not model.reminders


@pytest.mark.parametrize("window", [12_000, 16_000])
async def test_a_model_that_reads_in_circles_is_told_to_write_down(
    tmp_path: Path, window: int
) -> None:
    """No word of the request leads to the keys here."""
    harness = DiskHarness(tmp_path)
    write_keys(harness.tree, "q7 {key}")
    model = SilentReader(window, writes=True)
    await harness.play(model, "find what is odd in ada.txt to flo.txt")
    assert len(model.requests) <= 2 * REQUESTS_MAX
    assert f"the keys: {' '.join(KEYS.values())}" in said_by_model(harness)
    told = [one.text for one in harness.of(Reminded) if one.kind == "reread"]
    assert re.search(r"\* [a-z]+\.txt: read 3 times, last r\d+", told[0])
