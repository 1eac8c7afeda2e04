"""The log as a rewind reads it: ends of steps, contents of files, and times between checkpoints.

Entries are written as words, the first one with seq 1.
"""

import random
import re
from collections.abc import Iterable

import pytest

from longrein.agent import rewind_log
from longrein.agent.rewind_log import (
    CUT,
    UNKEPT,
    FilesInLog,
    begun_rewind,
    first_checkpoint,
    gaps,
    step_end,
    unclaimed_files,
)
from longrein.events import (
    AnyEvent,
    CheckpointTaken,
    Entry,
    FileChanged,
    FilePut,
    FileSeen,
    Interrupted,
    Replied,
    Rewound,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Text,
    ToolCall,
    ToolEnded,
    TurnEnded,
    UserSpoke,
)

WHEN = {"b": "before", "a": "after", "o": "opened", "r": "rewind", "d": "rewound"}


def event_of(word: str) -> AnyEvent:
    """`b.c1.c2=n1`: checkpoint n1 before calls c1 and c2; `a` after (`A`: traced), `o` opened, `r`
    and `d` around a rewind, `n1?f` with the unclaimed file f. `+x` and `-x`: subagent x, or task
    if it begins with t. `end.c1`: a call ended. `f:1>2`: the agent changes f from content 1 to 2,
    `f:1>2/u` over somebody else's change, `f:1>2@user` the user; `f:1` it is seen. `back:3.f.g-`:
    rewound to 3 with f restored and g not.
    """
    if found := re.fullmatch(r"([baordA])((?:\.\w+)*)=(\w*)(?:\?(\w+))?", word):
        kind, calls, name, unclaimed = found.groups()
        return CheckpointTaken(
            WHEN[kind.lower()],
            name,
            tuple(calls.split(".")[1:]),
            unclaimed=(unclaimed,) if unclaimed else (),
            traced=kind == "A",
        )
    if word[0] in "+-":
        name = word[1:]
        if name[0] == "t":
            return TaskStarted(name, "sleep") if word[0] == "+" else TaskEnded(name, "done")
        start = SubagentStarted(name, "general")
        return start if word[0] == "+" else SubagentEnded(name, "done")
    if word.startswith("end."):
        return ToolEnded(word[4:], "Bash", "ok", ())
    if word.startswith("back:"):
        to, *names = word[5:].split(".")
        puts = tuple(FilePut(name.rstrip("-"), not name.endswith("-")) for name in names)
        return Rewound(int(to), puts)
    if found := re.fullmatch(r"(\w+):(\w*)>(\w*)(/u)?(?:@(\w+))?", word):
        path, before, after, over, by = found.groups()
        return FileChanged(path, after, by or "agent", after, before, over=over or "")
    if found := re.fullmatch(r"(\w+):(\w+)(!?)", word):
        path, content, masked = found.groups()
        return FileSeen(path, content, "other" if masked else content)
    raise AssertionError(word)


def entries(words: str) -> list[Entry]:
    return [Entry(seq, 0, event_of(word)) for seq, word in enumerate(words.split(), 1)]


# --- Ends of steps --------------------------------------------------------------------------------


def talk_of(word: str) -> AnyEvent:
    """`p` prompt, `s` steer, `r2` reply with two calls, `i1` an interrupted one with one, `e` end
    of a call, `t` end of the turn, `w` rewind, `x` anything else.
    """
    calls = tuple(ToolCall(f"c{n}", "Bash", {}) for n in range(int(word[1:] or 0)))
    return {
        "p": UserSpoke((Text("hi"),)),
        "s": UserSpoke((Text("hi"),), "steer"),
        "r": Replied(1, (Text("ok"), *calls), "calls"),
        "i": Replied(1, calls, "interrupted"),
        "e": ToolEnded("c", "Bash", "ok", ()),
        "t": TurnEnded("done"),
        "w": Rewound(1),
        "x": Interrupted("stop"),
    }[word[0]]


def end_of(words: str, to: int) -> int:
    talk = [Entry(seq, 0, talk_of(word)) for seq, word in enumerate(words.split(), 1)]
    return step_end(lambda first, last: talk[max(first, 1) - 1 : last], to)


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        # for each entry the end of the step to which a rewind goes back
        ("x p r0 t p r0 t", "1 1 1 4 4 4 7"),
        ("x p r2 e e r0 t", "1 1 1 1 1 1 7"),
        ("x p r2 e t e t", "1 1 1 1 1 1 7"),
        ("x p r0 t p r1 s e t", "1 1 1 4 4 4 4 4 9"),
        ("x p r0 t s r0 t", "1 1 1 4 4 4 7"),
        ("x p r1 p e p r0 t", "1 1 1 1 1 5 5 8"),
        ("x p i1 t p r0 t", "1 1 1 4 4 4 7"),
        ("x p r1 w p r0 t", "1 1 1 4 4 4 7"),
        ("x p r0 t w p r0 t", "1 1 1 4 5 5 5 8"),
        ("x p x x r0 x t x", "1 1 1 1 1 1 7 7"),
    ],
)
def test_a_rewind_goes_back_to_the_end_of_a_step(words: str, ends: str) -> None:
    found = [end_of(words, to) for to in range(1, len(words.split()) + 1)]
    assert " ".join(map(str, found)) == ends


@pytest.mark.parametrize("piece", [1, 2, 3, 7])
def test_the_end_is_the_same_however_little_is_read(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(piece)
    turns = ["p r0 t", "p r1 e r2 e s e t", "x p i1 t", "p r0 t w"]
    for _ in range(30):
        words = "x " + " ".join(rng.choices(turns, k=rng.randrange(1, 6)))
        for to in range(1, len(words.split()) + 1):
            whole = end_of(words, to)
            with monkeypatch.context() as patched:
                patched.setattr(rewind_log, "PIECE", piece)
                assert end_of(words, to) == whole, (words, to)


def test_of_a_long_log_the_end_is_read() -> None:
    asked = list[int]()
    end, other = Entry(9_000, 0, TurnEnded("done")), Interrupted("stop")

    def history(first: int, last: int) -> Iterable[Entry]:
        asked.append(last - first + 1)
        return [end if seq == 9_000 else Entry(seq, 0, other) for seq in range(first, last + 1)]

    assert step_end(history, 10_000) == 9_000
    assert asked == [256, 1024]


# --- Contents of files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "path", "over_time"),
    [
        # the content after each entry, '' for no file
        ("f:1 g:5 f:1>2", "f", "1 1 2"),
        ("g:5 f:1>2 f:2>3", "f", "1 2 3"),
        ("g:5 f:>2 f:2>", "f", "- 2 -"),
        ("g:5", "f", "-"),
        ("f:1 f:3>4@user f:4>5", "f", "1 4 5"),
        ("f:1>2 f:2>3 back:1.f g:5 f:2>4", "f", "2 3 2 2 4"),
        ("f:1>2 f:2>3 back:1.f- g:5", "f", "2 3 3 3"),
        ("f:1>2 g:5>6 back:1.g.f", "g", "5 6 5"),
        ("f:1>2 back:1.g", "g", "- -"),
    ],
)
def test_the_content_of_a_file_at_each_entry(words: str, path: str, over_time: str) -> None:
    files = FilesInLog(entries(words))
    found = [files.at(path, to) or "-" for to in range(1, len(words.split()) + 1)]
    assert " ".join(found) == over_time


@pytest.mark.parametrize(
    ("words", "ours", "merged"),
    [
        ("f:1", {}, {}),
        ("f:1 f:1>2@user", {}, {}),
        ("f:1 f:1>2 f:2>3", {"f": (3, "3")}, {}),
        ("f:1>2 g:5>6", {"f": (1, "2"), "g": (2, "6")}, {}),
        ("f:1>2/u f:2>3", {"f": (2, "3")}, {"f": 1}),
        ("f:1>2/u f:2>3/u", {"f": (2, "3")}, {"f": 2}),
        ("f:1>2 f:2>3 back:1.f", {"f": (3, "2")}, {}),
        ("f:1>2 f:2>3 back:1.f-", {"f": (2, "3")}, {}),
        ("f:1>2 back:1.g", {"f": (1, "2")}, {}),
        ("g:5 back:1.g", {"g": (2, "5")}, {}),
    ],
)
def test_what_the_agent_wrote_last_is_its_own(
    words: str, ours: dict[str, tuple[int, str]], merged: dict[str, int]
) -> None:
    files = FilesInLog(entries(words))
    assert (files.ours, files.merged) == (ours, merged)


def test_contents_that_were_stored_as_they_are_can_come_back() -> None:
    assert FilesInLog(entries("f:1 g:2! f:1>3 h:4>")).kept == {"1": "1", "3": "3"}


# --- Checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "since", "found"),
    [
        ("b.c=n1 A.c=n2", 1, "n2-"),
        ("b.c=n1 a.c=n2 b.d=n3 a.d=n4", 1, "n2-n3 n4-"),
        ("b.c=n1 a.c=n2 b.d=n2 a.d=n4", 1, "n4-"),
        ("b.c=n1 a.c=n2 b.d=n3 a.d=n4", 3, "n4-"),
        ("b.c=n1 a.c=n2 b.d=n3 a.d=n4", 2, "n2-n3 n4-"),
        ("b.c=n1 a.c=n2 b.d=n3", 1, "n2-n3"),
        ("b.c.d=n1 a.c=n2 a.d=n3", 1, "n3-"),
        ("b.c=n1 b.d=n2 a.c=n3 a.d=n4", 1, "n4-"),
        ("b.c=n1 end.c b.d=n2 a.d=n3", 1, "n3-"),
        ("b.c=n1 a.c=n2 f:1>2 b.d=n3 a.d=n4", 1, "n2-n3(f) n4-"),
        ("b.c=n1 f:1>2 a.c=n2 f:2>3@user b.d=n3", 1, "n2-n3"),
        ("b.c=n1 a.c=n2 f:1>2 f:2>3 g:5>6", 1, "n2-(f f g)"),
        # around rewinds
        ("b.c=n1 a.c=n2 r=n3 d=n4 b.d=n5", 1, "n2-n3 n4-n5"),
        ("b.c=n1 a.c=n2 r=n3 r=n4 d=n5", 1, "n2-n3 n5-"),
        ("b.c=n1 r=n2 d=n3", 1, "n3-"),
        ("b.c=n1 a.c=n2 r=n3 b.d=n4 a.d=n5", 1, "n2-n3 n5-"),
        # subagents: nobody knows whose a change is while one runs
        ("b.c=n1 a.c=n2 +s b.d=n3 a.d=n4", 1, ""),
        ("b.c=n1 a.c=n2 +s -s b.d=n3 a.d=n4", 1, "n4-"),
        ("b.c=n1 +s a.c=n2 -s b.d=n3 a.d=n4", 1, "n4-"),
        ("b.c=n1 +s a.c=n2 b.d=n3 -s a.d=n4 b.e=n5", 1, "n4-n5"),
        # tasks, and calls that were cut or have no checkpoint
        ("+t1 b.c=n1 a.c=n2 b.d=n3 -t1 a.d=n4 b.e=n5", 1, "n2-n3[t1] n4-n5"),
        ("b.c=n1 a.c=n2 +t1 -t1 b.d=n3", 1, "n2-n3[t1]"),
        (
            "b.c=n1 a.c=n2 +t1 b.d=n3 a.d=n4 -t1 b.e=n5 a.e=n6 b.f=n7",
            1,
            "n2-n3[t1] n4-n5[t1] n6-n7",
        ),
        ("b.c=n1 o.c=n2 b.d=n3", 1, "n1-n2[CUT] n2-n3"),
        ("b.c=n1 +s o.c=n2 b.d=n3", 1, ""),
        ("b.c=n1 a.c=n2 o=n3 b.d=n4", 1, "n2-n3 n3-n4"),
        ("b.c=n1 a.c=n2 b.d= a.d=n3 b.e=n4", 1, "n2-n3[UNKEPT] n3-n4"),
        ("b.c=n1 a.c=n2 b.d= A.d=n3 b.e=n4", 1, "n3-n4"),
        ("b.c=n1 a.c=n2 b.d= a.d= end.d b.e=n3 a.e=n4 b.f=n5", 1, "n2-n3[UNKEPT] n4-n5"),
        ("b.c=n1 a.c=n2 b.d= b.e=n3 a.e=n4 a.d=n5 b.f=n6", 1, "n2-n3[UNKEPT] n4-n5[UNKEPT] n5-n6"),
        ("b.c=n1 a.c= end.c b.d=n2 a.d=n3", 1, "n3-"),
        ("x:1", 1, ""),
    ],
)
def test_the_times_while_no_call_ran(words: str, since: int, found: str) -> None:
    def shown(gap: rewind_log.Gap) -> str:
        short = {CUT: "CUT", UNKEPT: "UNKEPT"}
        edits = " ".join(path for path, edits in gap.edits.items() for _ in edits)
        tasks = " ".join(short.get(task, task) for task in gap.tasks)
        text = f"{gap.first}-{gap.last}"
        return text + (f"({edits})" if edits else "") + (f"[{tasks}]" if tasks else "")

    assert " ".join(map(shown, gaps(entries(words), since))) == found


@pytest.mark.parametrize(
    ("words", "first"),
    [
        # of the checkpoint from before the first change after each entry
        ("b.c=n1 a.c=n2 b.d=n3 a.d=n4", "n3 n3 - -"),
        ("a.c=n1 r=n2 d=n3 o=n4 b.c=n5", "n2 n5 n5 n5 -"),
        ("f:1 b.c= b.d=n1", "n1 n1 -"),
        ("f:1", "-"),
    ],
)
def test_the_checkpoint_that_a_rewind_begins_with(words: str, first: str) -> None:
    log = entries(words)
    found = [first_checkpoint(log, to) for to in range(1, len(log) + 1)]
    assert " ".join(name or "-" for _, name in found) == first
    for seq, name in found:
        assert (seq, name) == (0, "") or log[seq - 1].event.checkpoint == name  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        ("f:1", ""),
        ("r=n1", ""),
        ("r=n1 r=n2", "n1"),
        ("r=n1 r=n2 r=n3", "n1"),
        ("r=n1 d=n2 r=n3", "n1"),
        ("r=n1 d=n2 back:1 r=n3", ""),
        ("r=n1 back:1 r=n2 r=n3", "n2"),
        ("r=n1 b.c=n2 r=n3", ""),
        ("r=n1 a.c=n2 r=n3 r=n4", "n3"),
    ],
)
def test_a_rewind_that_a_kill_made_begin_again(words: str, begun: str) -> None:
    assert begun_rewind(entries(words)) == begun


def test_each_unclaimed_file_is_named_once() -> None:
    log = entries("A.c=n1?f A.c=n2?g f:1 A.d=n3?f A.d=n4?g A.e=n5")
    assert unclaimed_files(log, 0) == ("f", "g")
    assert unclaimed_files(log, 1) == ("g", "f")
    assert unclaimed_files(log, 4) == ("g",)
    assert unclaimed_files(log, 5) == ()
