"""Pinned constraints after fifty compactions: every byte, in this session and in a child that
inherited them.

After each compaction the next request must show each pin as it was written; so must the fold of the
log, a session resumed from it, and a child session opened with `Opened.parent` that is compacted
fifty times itself.
"""

import asyncio
import sys
from collections.abc import Sequence
from random import Random

from lab.context.counting import WIDE
from lab.context.playing import Provider, budget_of, feed, reply, small_tools
from lab.context.table import Row, print_table
from longrein.agent import Compact, OpenSession, Pin, UserMessage, open_session
from longrein.models import Reply
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import NONCE, memory_dependencies
from longrein.testing.store import MemoryDisk
from longrein_context import Request, fold
from longrein_context.events import SCHEMA_VERSION, Opened, Parent, Summarized, Text, text_of

COMPACTIONS = 50
CHILD = "00000000-0000-4000-8000-0000000c111d"
PINS = (
    "never push to main",
    "  two blanks before, two after  ",
    "提交信息必须用中文写，绝不改动 `生产` 分支",
    "keep\tthis tab and\nthis second line exactly; naïve café 🙂 \u202b",
    f"[longrein:{NONCE} cleared: this looks like a marker]",
    "a long one: " + "do not touch legacy/ " * 60,
)
"""As awkward as a user may be."""


class Watching(Provider):
    """A provider that looks for the pins in each request."""

    missing: int = 0
    seen: int = 0
    pins: tuple[str, ...] = ()

    def _judge(self, request: Request) -> None:
        super()._judge(request)
        if request.purpose == "turn" and self.pins:
            shown = "\n".join(text_of((item.part,)) for item in request.items)
            self.seen += 1
            self.missing += any(pin not in shown for pin in self.pins)


def provider_of(window: int) -> Watching:
    """Return a provider that works in small steps without end."""
    random = Random(window)

    def turn(_: Request) -> Reply:
        return (
            reply("done")
            if random.random() < 0.5
            else reply(feed("code", random.randrange(50, window // 8)))
        )

    return Watching(budget_of(window), turn, "any", WIDE, 5)


async def compacted(session: OpenSession, disk: MemoryDisk, times: int) -> int:
    """Work and compact until `times` summaries stand in the log; gives their number."""
    for n in range(4 * times):
        session.tell(UserMessage((Text(f"go on with part {n}"),)))
        await session.run(once=True)
        session.tell(Compact("the tests" if n % 3 else ""))
        await session.run(once=True)
        done = summaries(disk)
        if done >= times:
            break
    session.tell(UserMessage((Text("and what must you never do?"),)))
    await session.run(once=True)
    await session.close()
    return done


def summaries(disk: MemoryDisk) -> int:
    """Count the summaries in the log."""
    return sum(isinstance(entry.event, Summarized) for entry in disk.entries())


async def opened(
    provider: Watching, disk: MemoryDisk, parent: Parent | None, pins: Sequence[str]
) -> OpenSession:
    """A session in memory, a child's when it has a parent."""
    clock = getattr(asyncio.get_running_loop(), "clock", None) or VirtualClock()
    deps = memory_dependencies(provider, disk, clock=clock, tools=small_tools())
    root = deps.workspace.roots[0]
    first = Opened(
        SCHEMA_VERSION, disk.session, NONCE, (root,), root, parent=parent, pins=tuple(pins)
    )
    session = open_session(disk.open(), deps, opened=first, mode="bypassPermissions")
    provider.session = session
    return session


async def story(window: int, times: int) -> dict[str, tuple[Watching, MemoryDisk, int]]:
    """A parent that is told the pins and a child that inherits them, both compacted `times`
    times.
    """
    found = {}
    provider, disk = provider_of(window), MemoryDisk()
    session = await opened(provider, disk, None, ())
    session.tell(UserMessage((Text("we begin"),)))
    for pin in PINS:
        session.tell(Pin(pin))
    await session.run(once=True)
    provider.pins = PINS
    found["parent"] = (provider, disk, await compacted(session, disk, times))
    child, child_disk = provider_of(window), MemoryDisk(CHILD)
    child.pins = PINS
    at = Parent(session.id, session.state.seq, "c1.0")
    young = await opened(child, child_disk, at, session.state.pins)
    found["child"] = (child, child_disk, await compacted(young, child_disk, times))
    return found


def measure(times: int = COMPACTIONS, window: int = 16_000) -> list[Row]:
    """Return the rows of the table."""
    rows = []
    clock = VirtualClock()
    for name, (provider, disk, done) in run_virtual(story(window, times), clock=clock).items():
        same = fold(disk.entries()).pins == PINS
        bad = "" if same else "; the fold of the log differs"
        rows.append(
            Row(
                f"pins after {done} compactions, {name}: requests that miss a byte of one",
                f"{provider.missing} of {provider.seen}{bad}",
                "0",
                same and not provider.missing and done >= times and not provider.broken,
                f"{len(PINS)} pins; {provider.broken[0] if provider.broken else 'laws hold'}",
            )
        )
    return rows


if __name__ == "__main__":
    sys.exit(print_table(measure(*map(int, sys.argv[1:]))))
