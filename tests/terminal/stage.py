"""What the scripted sessions do, and the program that puts one of them on a real terminal: `stage.py NAME FOLDER`."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from longrein.agent import Output, RetryPause, UserNotice
from longrein.context import Report, ReportRow
from longrein.events import (
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
    UserSpoke,
)
from longrein.frontends.terminal import FilesFound, SessionRow, TerminalFacts, run_terminal
from tests.terminal.actor import Actor

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

EVIL = "tool \x1b]52;c;aGk=\x07 \x1b[2J \x1bc \x9b31m \x07\x07 rlo \u202e tag \U000e0041 zw \u200b ok 👩‍👩‍👧 日本"


async def markdown(actor: Actor, text: str) -> None:
    await actor.say(MARKDOWN, pause_s=0.002)


async def slow(actor: Actor, text: str) -> None:
    """Numbered words, as many as `text` says, ten a paragraph."""
    many = int(text) if text.isdecimal() else 400
    words = [f"word{n:03}" + ("\n\n" if n % 10 == 9 else " ") for n in range(many)]
    await actor.say("".join(words) + "\n\nThe end.\n", step=8, pause_s=0.01)


async def tools(actor: Actor, text: str) -> None:
    call = await actor.call("Read", {"file_path": "src/longrein/app.py"}, "I look at it first.\n")
    await actor.act(call, "Read")
    call = await actor.call("Bash", {"command": "python -m pytest -q\necho done"})
    actor.append(ToolStarted(call, "Bash"))
    actor.hear(Output(call, b"collected 12 items\n....F"))
    await asyncio.sleep(0.3)
    actor.append(ToolEnded(call, "Bash", "failed", (Text("exit code 1\n" + EVIL + "\n" + "x" * 200),), 12_345))
    call = await actor.call("Edit", {"file_path": "a.py", "old_string": "a\nb\nc\nd", "new_string": "a\nB\nc\nd"})
    await actor.act(call, "Edit")
    actor.append(TodoSet((Todo("look", "completed"), Todo("change", "in_progress"), Todo("verify"))))
    actor.hear(UserNotice("a notice \x1b[31m from outside"))
    actor.hear(RetryPause(1, "overload", 529, 1, 10, 0.2, "Overloaded"))
    await asyncio.sleep(0.2)
    await actor.say("All **done**.\n")


async def approve(actor: Actor, text: str) -> None:
    old = "\n".join(f"line {n} of the old text" for n in range(150))
    new = "\n".join(f"line {n} of the new text \u202e" for n in range(150))
    arguments = {"file_path": "src/big.py", "old_string": old, "new_string": new}
    call = await actor.call("Edit", arguments, "Now the change.\n")
    answer = await actor.permit(call, "Edit", "…", "it changes src/big.py", "Edit(/src/big.py)")
    await actor.act(call, "Edit", "ok" if answer.verdict == "allow" else "denied")
    await actor.say(f"You said {answer.verdict} {answer.scope}.\n")


async def command(actor: Actor, text: str) -> None:
    call = await actor.call("Bash", {"command": "rm -rf build \u202e"})
    answer = await actor.permit(
        call, "Bash", "rm -rf build \\u202e", "no rule allows this command", "Bash(rm -rf build)"
    )
    if answer.verdict == "allow":
        await actor.act(call, "Bash", wait_s=30)
    else:
        actor.append(ToolEnded(call, "Bash", "denied", (Text(answer.message or "no"),)))
    await actor.say(f"You said {answer.verdict}: {answer.message}\n")


async def hang(actor: Actor, text: str) -> None:
    call = await actor.call("Bash", {"command": "sleep 100"})
    await actor.act(call, "Bash", wait_s=100)


async def echo(actor: Actor, text: str) -> None:
    await actor.say(f"You said {len(text)} characters in {text.count(chr(10)) + 1} lines.\n")


async def flood(actor: Actor, text: str) -> None:
    await actor.say(MARKDOWN * (195_000 // len(MARKDOWN.encode())), step=40)


async def company(actor: Actor, text: str) -> None:
    """Two subagents and three tasks at once; one subagent asks."""
    call = await actor.call("Agent", {"description": "look around", "prompt": "look"})
    actor.append(ToolStarted(call, "Agent"))
    actor.start_task("b1", "npm run dev")
    actor.start_task("b2", "pytest -q \x1b[31m")
    actor.start_task("b3", "make docs", state="queued")
    actor.start_child("one", "explore", "find the \u202eparser", call=call)
    actor.start_child("two", "general", "write the tests", call=call)
    actor.show_child("one", steps=2, tokens=12_345, cost_usd=0.02, last="Read src/parser.py", elapsed_s=4.0)
    actor.of_child("two", Replied(2, (ToolCall("c2.0", "Bash", {"command": "rm -rf build"}),), "calls"))
    if text == "wait":
        await asyncio.sleep(100)
    answer = await actor.child_permit("two", "c2.0", "Bash", "rm -rf build", "Bash(rm -rf build)")
    actor.deliver_to("one")
    await asyncio.sleep(0.3)
    used = Usage(12_000, 0, 0, 345)
    actor.end_child("one", "done", "It is in src.", usage=used, cost_usd=0.02, steps=2, elapsed_ms=4_200)
    actor.end_child("two", "limit", "half", steps=9, message="9 of 9 requests used", elapsed_ms=65_000)
    actor.end_task("b2", "failed", code=1, elapsed_ms=12_000, size_bytes=3_456, tail="...\n1 failed \x07\n")
    actor.start_task("b3", "make docs")
    actor.append(ToolEnded(call, "Agent", "ok", (Text("two reports"),), 65_000))
    await actor.say(f"You said {answer.verdict} to {answer.session}.\n")


async def promote(actor: Actor, text: str) -> None:
    """A command that goes on in the background when the user says so; it ends later and wakes."""
    call = await actor.call("Bash", {"command": "make all"})
    actor.append(ToolStarted(call, "Bash"))
    actor.foreground = asyncio.Event()
    await actor.foreground.wait()
    actor.start_task("b1", "make all", promoted="user")
    actor.append(ToolEnded(call, "Bash", "ok", (Text("goes on as b1"),), 900))
    await actor.say("I go on meanwhile.\n")
    asyncio.get_running_loop().call_later(0.3, lambda: asyncio.ensure_future(_wake(actor)))


async def _wake(actor: Actor) -> None:
    actor.end_task("b1", code=0, elapsed_ms=1_200)
    actor.append(Reminded("wake", "", "bg_done r12"))
    await actor.say("It is built.\n")
    actor.end("done")


async def steps(actor: Actor, text: str) -> None:
    """Three steps; what steers is taken before each request."""
    for n in range(3):
        for one in [one for one in actor.pending if one.how == "steer"]:
            actor.pending.remove(one)
            actor.append(UserSpoke((Text(one.text),), "steer"))
        call = await actor.call("Bash", {"command": f"step {n}"})
        await actor.act(call, "Bash", wait_s=1.0)
    await actor.say("Three steps.\n")


TURNS = {t.__name__: t for t in (markdown, slow, tools, approve, command, hang, echo, flood, company, promote, steps)}


async def complete_files(prefix: str) -> FilesFound:
    paths = [path for path in ("src/app.py", "src/with blank.py", "tests/test_app.py") if prefix in path]
    return FilesFound(paths, "1,234 more; type on" if prefix == "app" else "")


async def sessions() -> list[SessionRow]:
    return [SessionRow("11111111-aaaa", "mend the parser", "yesterday"), SessionRow("2222", "日本語 title", "May 3")]


ROWS = tuple(
    ReportRow("system" if kind != "user" else "user requests", kind, "", "", "full", tokens, 0.0, goes=False, begins="")
    for kind, tokens in (("system", 1_400), ("tool", 3_200), ("user", 20_000))
)


async def task_tail(task: str, lines: int) -> str:
    return "".join(f"line {n} of {task} \x1b[2J\n" for n in range(lines))


class Goals:
    """Goals in memory. See `GoalPort`."""

    def __init__(self) -> None:
        self.all = [Goal(1, "a parser \x1b[31m", "completed"), Goal(2, "tests", "in_progress", (1,), owner="a398")]

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
        freed = [one for one in self.all if one.blocked_by == (goal,) and now.get("status") == "completed"]
        return self.all[goal - 1], freed


async def main(name: str, folder: str) -> int:
    actor = Actor(TURNS[name])
    facts = TerminalFacts(
        model="mock/small",
        cwd="~/project",
        version="0.1.0",
        window_tokens=lambda: 100_000,
        context_report=lambda: Report(ROWS, 24_600, 24_600, 1.0, 100_000, 128_000),
        sessions=sessions,
        models=lambda: ("mock/small", "mock/large"),
        colour=not os.environ.get("NO_COLOR"),
    )
    facts = msgspec.structs.replace(
        facts,
        wall_us=lambda: time.time_ns() // 1000,
        task_tail=task_tail,
        goals=Goals(),
        leave_policy=os.environ.get("LEAVE", "ask"),
        choosing=bool(os.environ.get("CHOOSING")),
    )
    plain = "plain" in sys.argv or os.environ["TERM"] == "dumb"
    outcome = await run_terminal(
        actor, facts=facts, complete_files=complete_files, history=f"{folder}/history", plain=plain
    )
    Path(folder, "told.jsonl").write_bytes(b"".join(msgspec.json.encode(word) + b"\n" for word in actor.told))
    Path(folder, "outcome").write_text(f"{outcome.kind} {outcome.session} {outcome.code}")
    Path(folder, "left").write_text(outcome.tasks + ("" if actor.left == outcome.tasks else " later"))
    return outcome.code


if __name__ == "__main__":
    code = asyncio.run(main(sys.argv[1], sys.argv[2]))
    sys.stdout.flush()
    os._exit(code)  # as the real program does
