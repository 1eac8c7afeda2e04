"""What the scripted sessions do, and the program that puts one of them on a real terminal:
`stage.py NAME FOLDER`.
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from prompt_toolkit.application import get_app_or_none

from longrein.agent import Output, RetryPause, UserNotice
from longrein.frontends.terminal import run_terminal
from longrein_context.events import (
    Goal,
    Reminded,
    Replied,
    Text,
    Todo,
    TodoSet,
    ToolCall,
    ToolEnded,
    ToolError,
    ToolStarted,
    Usage,
)
from tests.terminal.held_clock import held_clock
from tests.terminal.opened_session import OpenedSession
from tests.terminal.scripted_session import ScriptedSession, endless
from tests.timeouts import HANG_S

MARKDOWN = """# 見出し: streaming

Some **bold** prose with `code`, 日本語の文章もここにあります、そして絵文字 👩‍👩‍👧 も。
It goes on for a while so that it wraps at eighty columns and shows
whether wrapping counts cells or characters: 全角文字全角文字全角文字全角文字全角文字。

- first item
- second item
  - nested 中文
- third

| 名前 | what it does | n |
|------|:------------|--:|
| 読む | reads a file, then another file, then all of the files there are in the folder | 1 |
| 書く | writes | 22 |

```python
def 足す(a: int, b: int) -> int:
    return a + b  # 足し算
```

The end.
"""

EVIL = (
    "tool \x1b]52;c;aGk=\x07 \x1b[2J \x1bc \x9b31m \x07\x07 rlo \u202e tag \U000e0041 zw "
    "\u200b ok 👩‍👩‍👧 日本"
)


async def until_drawn() -> None:
    """Wait until the screen, if there is one, shows the present state: for two redraws, since one
    may have begun before.
    """
    app = get_app_or_none()
    if app is not None:
        wanted = app.render_counter + 2
        while app.render_counter < wanted:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)


async def markdown(session: ScriptedSession, text: str) -> None:
    await session.say(MARKDOWN, pause_s=0.002)


async def slow(session: ScriptedSession, text: str) -> None:
    """Numbered words, ten a paragraph, as many as `text` says: `60`. Further numbers are words
    that it waits before, until a file is there: `60 20` for `go20`.
    """
    many, *gates = map(int, text.split())
    asked = session.ask()
    for n in range(many):
        while n in gates and not os.path.exists(f"go{n}"):  # noqa: ASYNC110 - a file tells
            await asyncio.sleep(0.01)
        session.stream_piece(asked, f"word{n:03}" + ("\n\n" if n % 10 == 9 else " "))
        await asyncio.sleep(0.01)
    session.stream_piece(asked, "\n\nThe end.\n")
    session.end_reply(asked)
    Path("streamed").touch()


async def tools(session: ScriptedSession, text: str) -> None:
    call = await session.call("Read", {"file_path": "src/longrein/app.py"}, "I look at it first.\n")
    await session.act(call, "Read")
    call = await session.call("Bash", {"command": "python -m pytest -q\necho done"})
    session.append(ToolStarted(call, "Bash"))
    session.hear(Output(call, b"collected 12 items\n....F"))
    await until_drawn()
    session.append(
        ToolEnded(
            call, "Bash", "failed", (Text("exit code 1\n" + EVIL + "\n" + "x" * 200),), 12_345
        )
    )
    call = await session.call(
        "Edit", {"file_path": "a.py", "old_string": "a\nb\nc\nd", "new_string": "a\nB\nc\nd"}
    )
    await session.act(call, "Edit")
    session.append(
        TodoSet((Todo("look", "completed"), Todo("change", "in_progress"), Todo("verify")))
    )
    session.hear(UserNotice("a notice \x1b[31m from outside"))
    session.hear(RetryPause(1, "overload", 529, 1, 10, 0.2, "Overloaded"))
    await until_drawn()
    await session.say("All **done**.\n")


async def approve(session: ScriptedSession, text: str) -> None:
    old = "\n".join(f"line {n} of the old text" for n in range(150))
    new = "\n".join(f"line {n} of the new text \u202e" for n in range(150))
    arguments = {"file_path": "src/big.py", "old_string": old, "new_string": new}
    call = await session.call("Edit", arguments, "Now the change.\n")
    answer = await session.permit(call, "Edit", "…", "it changes src/big.py", "Edit(/src/big.py)")
    await session.act(call, "Edit", "ok" if answer.verdict == "allow" else "denied")
    await session.say(f"You said {answer.verdict} {answer.scope}.\n")


async def command(session: ScriptedSession, text: str) -> None:
    call = await session.call("Bash", {"command": "rm -rf build \u202e"})
    answer = await session.permit(
        call, "Bash", "rm -rf build \\u202e", "no rule allows this command", "Bash(rm -rf build)"
    )
    if answer.verdict == "allow":
        session.append(ToolStarted(call, "Bash"))
        await endless()
    else:
        session.append(ToolEnded(call, "Bash", "denied", (Text(answer.message or "no"),)))
    await session.say(f"You said {answer.verdict}: {answer.message}\n")


async def three(session: ScriptedSession, text: str) -> None:
    """Three subagents ask at once."""
    call = await session.call("Agent", {"description": "look around", "prompt": "look"})
    session.append(ToolStarted(call, "Agent"))
    for child in ("one", "two", "three"):
        session.start_child(child, "general", "push", call=call)
        session.of_child(
            child, Replied(2, (ToolCall("c2.0", "Bash", {"command": "git push"}),), "calls")
        )
    asking = [
        session.child_permit(child, "c2.0", "Bash", "git push") for child in ("one", "two", "three")
    ]
    await asyncio.gather(*asking)
    session.append(ToolEnded(call, "Agent", "ok", (Text("three reports"),), 1_000))


async def hang(session: ScriptedSession, text: str) -> None:
    call = await session.call("Bash", {"command": "sleep 100"})
    session.append(ToolStarted(call, "Bash"))
    await endless()


async def echo(session: ScriptedSession, text: str) -> None:
    await session.say(f"You said {len(text)} characters in {text.count(chr(10)) + 1} lines.\n")


async def flood(session: ScriptedSession, text: str) -> None:
    await session.say(MARKDOWN * (195_000 // len(MARKDOWN.encode())), step=40)


async def company(session: ScriptedSession, text: str) -> None:
    """Two subagents and three tasks at once; one subagent asks."""
    call = await session.call("Agent", {"description": "look around", "prompt": "look"})
    session.append(ToolStarted(call, "Agent"))
    session.start_task("b1", "npm run dev")
    session.start_task("b2", "pytest -q \x1b[31m")
    session.start_task("b3", "make docs", state="queued")
    session.start_child("one", "explore", "find the \u202eparser", call=call)
    session.start_child("two", "general", "write the tests", call=call)
    session.show_child(
        "one", steps=2, tokens=12_345, cost_usd=0.02, last="Read src/parser.py", elapsed_s=4.0
    )
    session.of_child(
        "two", Replied(2, (ToolCall("c2.0", "Bash", {"command": "rm -rf build"}),), "calls")
    )
    if text == "wait":
        await endless()
    answer = await session.child_permit("two", "c2.0", "Bash", "rm -rf build", "Bash(rm -rf build)")
    session.deliver_to("one")
    await until_drawn()
    used = Usage(12_000, 0, 0, 345)
    session.end_child(
        "one", "done", "It is in src.", usage=used, cost_usd=0.02, steps=2, elapsed_ms=4_200
    )
    session.end_child(
        "two", "limit", "half", steps=9, message="9 of 9 requests used", elapsed_ms=65_000
    )
    session.end_task(
        "b2", "failed", code=1, elapsed_ms=12_000, size_bytes=3_456, tail="...\n1 failed \x07\n"
    )
    session.start_task("b3", "make docs")
    session.append(ToolEnded(call, "Agent", "ok", (Text("two reports"),), 65_000))
    await session.say(f"You said {answer.verdict} to {answer.session}.\n")


async def promote(session: ScriptedSession, text: str) -> None:
    """A command that goes on in the background when the user says so; it ends later and wakes."""
    call = await session.call("Bash", {"command": "make all"})
    session.append(ToolStarted(call, "Bash"))
    session.foreground = asyncio.Event()
    await session.foreground.wait()
    session.start_task("b1", "make all", promoted="user")
    session.append(ToolEnded(call, "Bash", "ok", (Text("goes on as b1"),), 900))
    await session.say("I go on meanwhile.\n")
    asyncio.get_running_loop().call_later(0.3, lambda: asyncio.ensure_future(_wake(session)))


async def _wake(session: ScriptedSession) -> None:
    session.end_task("b1", code=0, elapsed_ms=1_200)
    session.append(Reminded("wake", "", "bg_done r12"))
    await session.say("It is built.\n")
    session.end("done")


TURNS = {
    t.__name__: t
    for t in (markdown, slow, tools, approve, command, three, hang, echo, flood, company, promote)
}


class Goals:
    """Goals in memory. See `store.Goals`."""

    def __init__(self) -> None:
        self.all = [
            Goal(1, "a parser \x1b[31m", "completed"),
            Goal(2, "tests", "in_progress", (1,), owner="a398"),
        ]

    async def goals(self, *, every: bool = False) -> Sequence[Goal]:
        return [goal for goal in self.all if every or goal.status not in ("completed", "deleted")]

    async def add(self, title: str, body: str, blocked_by: Sequence[int]) -> Goal:
        self.all.append(Goal(len(self.all) + 1, title, "pending", tuple(blocked_by), body))
        return self.all[-1]

    async def update(self, goal: int, **now: Any) -> tuple[Goal, Sequence[Goal]]:
        if goal > len(self.all):
            raise ToolError(f"there is no goal {goal}")
        changes = {name: value for name, value in now.items() if value}
        self.all[goal - 1] = msgspec.structs.replace(self.all[goal - 1], **changes)
        freed = [
            one
            for one in self.all
            if one.blocked_by == (goal,) and now.get("status") == "completed"
        ]
        return self.all[goal - 1], freed


async def main(name: str, folder: str) -> int:
    session = ScriptedSession(TURNS[name])
    environ = os.environ
    opened = OpenedSession(
        session,
        folder,
        environ,
        msgspec.json.decode(environ.get("KEYS", "{}"), type=dict[str, tuple[str, ...]]),
        vim=bool(environ.get("VIM")),
        leave_policy=environ.get("LEAVE", "ask"),
    )
    opened.goals = Goals()
    outcome = await run_terminal(
        opened,
        plain="plain" in sys.argv or environ["TERM"] == "dumb",
        choosing=bool(environ.get("CHOOSING")),
        again_s=float(environ.get("AGAIN_S", HANG_S)),
        quiet_s=float(environ.get("QUIET_S", "0")),
        mono_s=held_clock(Path("clock")) if environ.get("HELD_CLOCK") else time.monotonic,
    )
    Path(folder, "told.jsonl").write_bytes(
        b"".join(msgspec.json.encode(word) + b"\n" for word in session.told)
    )
    Path(folder, "outcome").write_text(f"{outcome.kind} {outcome.session} {outcome.code}")
    Path(folder, "left").write_text(
        outcome.tasks + ("" if session.left == outcome.tasks else " later")
    )
    return outcome.code


if __name__ == "__main__":
    code = asyncio.run(main(sys.argv[1], sys.argv[2]))
    sys.stdout.flush()
    os._exit(code)  # as the real program does
