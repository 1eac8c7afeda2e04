"""Small context windows: a turn works, or the user gets one true line; no endless loop.

The loopback provider enforces the window, with the room for the answer as local servers count it.
"""

import re
from collections.abc import Callable

import msgspec
import pytest

from longrein.agent import Compact, SetModel
from longrein.models import ModelOptions, Reply, open_model
from longrein.testing.clock import VirtualClock
from longrein.testing.harness import memory_dependencies, memory_tools, open_test_session
from longrein.testing.loopback import Call, Limits, LoopbackProvider, Received, Rules, Turn
from longrein.testing.scripted_model import ScriptedModel, count_tokens, says
from longrein.testing.store import MemoryDisk
from longrein.testing.workspace import MemoryWorkspace
from longrein_context import Budget, Request, fold
from longrein_context.events import (
    Asked,
    AskFailed,
    Cleared,
    Entry,
    Summarized,
    TurnEnded,
    Usage,
    UserSpoke,
)
from tests.agent.disk_harness import DiskHarness, events_of, turn

pytestmark = pytest.mark.anyio

REQUESTS_MAX = 10  # Requests of one turn: two steps, their retries and summaries
PROMPTS = 5


def reply(received: Received) -> Turn:
    """Read a file after a message of the user, then answer at length."""
    parsed = received.parsed
    tail = b"".join(parsed.tail) if parsed is not None else b""
    if b"summary" in tail[-600:]:
        return Turn(text="1. Request and intent\nRead the notes.\n9. Next step\ngo on")
    if b"read it" in tail:
        return Turn(calls=(Call("Read", {"file_path": "notes.txt"}),))
    return Turn(text="The notes say that all is well. " * 12)


def problems(entries: list[Entry]) -> list[str]:
    """Return what is wrong with a finished log."""
    found: list[str] = []
    asked = 0
    for n, entry in enumerate(entries):
        if isinstance(entry.event, UserSpoke):
            asked = 0
        if isinstance(entry.event, Asked):
            asked += 1
            if asked == REQUESTS_MAX + 1:
                found.append(f"more than {REQUESTS_MAX} requests in a turn at r{entry.seq}")
        if isinstance(entry.event, Summarized | Cleared):
            before = fold(entries[:n]).view_tokens
            after = fold(entries[: n + 1]).view_tokens
            if after >= before:
                found.append(f"r{entry.seq} made {before} tokens {after}")
    refused = sum(isinstance(e.event, AskFailed) and e.event.kind == "overflow" for e in entries)
    for entry in entries:
        if isinstance(entry.event, TurnEnded) and entry.event.reason != "done":
            line = entry.event.message
            if "\n" in line or not re.search(r"\d+ tokens", line) or "fit" not in line:
                found.append(f"not one clear line: {line}")
            if "refused" in line and not refused:
                found.append(f"nothing was refused: {line}")
    return found


async def run_session(
    window: int, system: int, tools: int, message: int, counts: bool, known: bool = True
) -> tuple[list[str], list[str]]:
    """Run a session in a small window, then with a larger model; return problems and turn ends."""
    workspace = MemoryWorkspace()
    workspace.write(f"{workspace.roots[0]}/notes.txt", b"A line of the notes.\n" * 60)
    small_rules = Rules(counts_output=counts)
    async with (
        LoopbackProvider(reply, rules=small_rules, limits=Limits(window_tokens=window)) as small,
        LoopbackProvider(reply, rules=small_rules) as large,
    ):
        budget = Budget(window if known else 32_000, 4_000)
        options = ModelOptions("local", "small", "openai-chat", small.url, "key", budget)
        more = ModelOptions(
            "local", "large", "openai-chat", large.url, "key", Budget(200_000, 4_000)
        )
        models = [open_model(one, lambda _: b"", VirtualClock()) for one in (options, more)]
        disk = MemoryDisk()
        offered = memory_tools()
        offered = tuple(t for t in offered if t.spec.name == "Read") + tuple(
            t for t in offered if t.spec.name != "Read"
        )
        deps = memory_dependencies(
            models[0], disk, workspace=workspace, tools=offered[:tools], models=models[1:]
        )
        prefix = deps.prefix
        deps = msgspec.structs.replace(
            deps,
            prefix=lambda model, reason: msgspec.structs.replace(
                prefix(model, reason), system="You help. " * (system * 4 // 10)
            ),
        )
        session = open_test_session(models[0], disk=disk, deps=deps, mode="bypassPermissions")
        for n in range(PROMPTS):
            await turn(session, f"read it {n}: " + "note " * (message * 4 // 5))
        await turn(session, Compact(""), "read it again")
        await turn(session, SetModel("local/large"), "read it once more")
        ends = [f"{e.reason} {e.message}" for e in events_of(disk.entries(), TurnEnded)]
        found = problems(disk.entries())
        if not ends[-1].startswith("done"):
            found.append(f"not usable with a larger model: {ends[-1]}")
        found += [f"large refused {one}" for one in large.refused]
        await session.close()
        return found, ends


WINDOWS = (2_000, 3_000, 4_200, 6_000, 8_000, 12_000, 16_000)
CASES = [
    (window, system, tools, message, counts, known)
    for n, window in enumerate(WINDOWS)
    for k, (system, tools) in enumerate([(200, 1), (1_500, 6), (200, 99), (1_500, 99)])
    for m, message in enumerate((20, 700, 3_000))
    for counts, known in [((n + k + m) % 2 == 0, (n + k) % 3 > 0)]
]


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_small_window_works_or_says_what_does_not_fit(window: int) -> None:
    """`counts`: the provider counts the output limit too. `known`: the settings name the window."""
    found = {case: (await run_session(*case))[0] for case in CASES if case[0] == window}
    assert not any(found.values()), found


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ((4_200, 1_500, 1, 20, False, True), ["done"] * 7),
        ((4_200, 1_500, 6, 700, True, False), ["done"] * 7),
        ((3_000, 200, 6, 700, True, True), ["done"] * 7),
        (
            (3_900, 1_500, 99, 3_000, True, True),
            ["done", "done", "error", "error", "error", "done", "done"],
        ),
    ],
    ids=["known", "learned", "counts output", "a short message after those that do not fit"],
)
async def test_a_session_in_a_small_window_goes_on(
    case: tuple[int, int, int, int, bool, bool], expected: list[str]
) -> None:
    _, ends = await run_session(*case)
    assert [end.split()[0] for end in ends][1:] == expected[1:]


LOCAL = Budget(32_768, 4_000, is_local=True)
PAID = Budget(32_768, 4_000)


@pytest.mark.parametrize(("budget", "words", "counts", "lines"), [
    (LOCAL, 6_000, lambda tokens: min(tokens, 4_096), 1),
    (LOCAL, 6_000, lambda tokens: 7 * tokens // 10, 0),  # another tokenizer
    (LOCAL, 6_000, lambda tokens: 0, 0),  # no count
    (LOCAL, 6_000, lambda tokens: tokens, 0),
    (PAID, 6_000, lambda tokens: min(tokens, 4_096), 0),
])  # fmt: skip
async def test_a_local_server_that_drops_part_of_the_prompt_is_told_once(
    harness: DiskHarness, budget: Budget, words: int, counts: Callable[[int], int], lines: int
) -> None:
    def step(request: Request) -> Reply:
        return says("Well.", usage=Usage(counts(count_tokens(request)), output_tokens=2))

    model = ScriptedModel(step, step, step, budget=budget, name="local/qwen")
    notices: list[str] = []
    async with harness.session(model) as session:
        session.notice = notices.append  # type: ignore[method-assign]
        for prompt in ("note " * words, "note " * words, "go on"):
            await turn(session, prompt)
    told = [line for line in notices if "its server drops the rest" in line]
    assert len(told) == lines
    for line in told:
        assert re.match(r"local/qwen counted 4,096 of about [1-9]?\d,\d{3} input tokens: ", line)
        assert line.endswith(
            "Start the server with a larger window, or state the one that it has: window under "
            '[models."local/qwen"]'
        )
