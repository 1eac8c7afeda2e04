"""`longrein demo`: a small real job, offline and without a key. Only the model is scripted; the rest is real.

The demo makes a git project with a failing test in a temporary folder, starts longrein on it as a user would, kills it
with SIGKILL during a command, resumes it, and runs the test itself at the end. The second part runs background tasks
and subagents; one task outlives a second kill.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from longrein.frontends.stdio import show

# --- Second part: scripted turns of the background work --------------------------------------------------------------


TILL_PROMPT = (
    "While the checks run, find out what an amount in parentheses means here, and what becomes of old receipts."
)
GOAL = "Say what an amount in parentheses means in this project, and where that is decided."
ASK_NOTES = "Look into NOTES.md only: what was decided about amounts in parentheses?"
ASK_GUIDE = "Look into GUIDE.md only: what does it say about amounts in parentheses?"
GUIDE = """# Guide for the shop

Type amounts as on the receipt. An amount in parentheses is only a remark: it is left out of the total.
"""
TILL_FILES = {
    "GUIDE.md": GUIDE,
    "till.sh": "for n in $(seq 1 3000); do echo tick $n; sleep 0.1; done\n",  # five minutes, if nobody ends it
    "receipts.sh": "for n in 1 2 3 4; do echo part $n of the receipts; sleep 0.3; done\n",
}
PYTHON = shlex.quote(sys.executable)
CHECKS = (
    ("run the tests", f"{PYTHON} -m unittest -q"),
    ("compile everything", f"{PYTHON} -m compileall -q ."),
    ("watch the till", "sh till.sh"),
)
SLOW = "sh receipts.sh"
"""Takes longer than its timeout of half a second."""


def branches() -> list[dict[str, Any]]:
    """Return the conversations of the second part, for `models.script`."""
    return [
        {"when": GOAL, "turns": _synthesis()},
        {"when": ASK_NOTES, "turns": _looks("NOTES.md", 97, "Day 97: DECIDED, a refund, so it is negative.")},
        {"when": ASK_GUIDE, "turns": _looks("GUIDE.md", 3, "It is only a remark and is left out of the total.")},
        {"when": TILL_PROMPT, "turns": _main()},
    ]


def _main() -> list[dict[str, Any]]:
    started = [_bash(command, description=what, run_in_background=True) for what, command in CHECKS]
    jobs = [
        {"description": "what the notes say", "prompt": ASK_NOTES, "subagent_type": "explore"},
        {"description": "what the guide says", "prompt": ASK_GUIDE, "subagent_type": "explore"},
    ]
    return [
        {"text": "Three things take a while. I start them and go on.", "calls": started},
        {
            "text": "The receipts may be quick: I wait half a second for them.",
            "calls": [_bash(SLOW, description="read the receipts", timeout=500)],
        },
        {
            "text": "It goes on in the background. Meanwhile two subagents look, and a third makes one answer of it.",
            "calls": [
                {
                    "name": "Agent",
                    "arguments": {"description": "amounts in parentheses", "tasks": jobs, "synthesis": GOAL},
                }
            ],
        },
        {"text": "Now the old receipts.", "calls": [{"name": "Glob", "arguments": {"pattern": "*receipts*"}}]},
        {"text": "Something happened to longrein. What still runs?", "calls": [{"name": "TaskList", "arguments": {}}]},
        {
            "text": "The till is watched as before: nobody told that command to end. Its newest lines, then I end it.",
            "calls": [
                {"name": "TaskOutput", "arguments": {"task_id": "b3", "tail": 2}},
                {"name": "TaskStop", "arguments": {"task_id": "b3"}},
            ],
        },
        {
            "text": "An amount in parentheses is a refund (NOTES.md, day 97); GUIDE.md:3 says otherwise and should be "
            "mended. Old receipts stand in receipts.txt. The tests pass."
        },
        {"text": "That was the last one that ran. Nothing is left to do."},
    ]


def _looks(path: str, line: int, found: str) -> list[dict[str, Any]]:
    return [
        {"text": f"I read {path}.", "calls": [{"name": "Read", "arguments": {"file_path": path}}]},
        {"text": f"{found} ({path}:{line}). I did not look into other files, as I was told."},
    ]


def _synthesis() -> list[dict[str, Any]]:
    return [
        {
            "text": "The two contradict each other, so I look at what decides: the code that is tested.",
            "calls": [{"name": "Grep", "arguments": {"pattern": "refund", "output_mode": "content"}}],
        },
        {
            "text": "**Result**: an amount in parentheses is a refund, so it is negative.\n"
            "**Conflict**: {{first}} says a refund (NOTES.md, day 97), {{second}} says a remark that is left out "
            "(GUIDE.md:3). I searched for both: `test_refund_in_parentheses` expects a negative amount. The notes "
            "hold; the guide is out of date.\n"
            "**Found by one alone**: the guide wants amounts typed as on the receipt ({{second}}).",
            "find": {"first": r"\[1\] (a\d+)", "second": r"\[2\] (a\d+)"},
        },
    ]


def _bash(command: str, **more: Any) -> dict[str, Any]:
    return {"name": "Bash", "arguments": {"command": command, **more}}


# --- First part: the project and the scripted turns ------------------------------------------------------------------


LEDGER = '''"""Money as people type it, in cents."""


def parse_amount(text):
    """Cents in an amount such as `1,234.50`."""
    digits = text.strip().replace(",", "").strip("()")
    whole, _, fraction = digits.partition(".")
    return int(whole) * 100 + int(fraction.ljust(2, "0")[:2] or 0)


def total(lines):
    """Cents in all lines `what: amount`."""
    return sum(parse_amount(line.rsplit(":", 1)[1]) for line in lines if ":" in line)
'''

TESTS = """import unittest

from ledger import parse_amount, total


class Amounts(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(parse_amount("1,234.50"), 123450)

    def test_round(self):
        self.assertEqual(parse_amount("7"), 700)

    def test_refund_in_parentheses(self):
        self.assertEqual(parse_amount("(12.50)"), -1250)

    def test_total(self):
        self.assertEqual(total(["bread: 3.20", "bottles: (0.25)"]), 295)


if __name__ == "__main__":
    unittest.main()
"""

README = """# ledger

Reads amounts as people type them. `python3 -m unittest` runs the tests.
"""

RECEIPTS = "".join(
    f"day {n}, bottles and bread: {'({}.25)' if n % 9 == 4 else '{}.20'}\n".format(n % 7) for n in range(1, 341)
)

FILES = {"ledger.py": LEDGER, "test_ledger.py": TESTS, "README.md": README, "receipts.txt": RECEIPTS}

SUMMARY = """1. Request and intent
Mend the failing test of the ledger; NOTES.md decides about amounts.
2. Key concepts
An amount in parentheses is a refund.
5. Problems solved
`parse_amount` in `ledger.py` dropped the parentheses and with them the sign.
8. Current work
The edit is made and the tests pass.
9. Next step
Report to the user."""

TOPICS = ("rounding", "bread prices", "the shop's till", "the yearly report", "opening hours", "coins", "old receipts")


def notes() -> str:
    """Return long meeting notes, of which one line matters."""
    lines = ["# Notes", ""]
    for day in range(1, 281):
        topic = TOPICS[day % len(TOPICS)]
        if day == 97:
            lines.append("- day 97: DECIDED: an amount in parentheses is a refund, so it is negative.")
        else:
            lines.append(f"- day {day}: talked about {topic}; {day % 5 + 2} people were there, nothing was decided.")
    return "\n".join(lines) + "\n"


def script(test: str, window_tokens: int) -> dict[str, Any]:
    """Return the model's part, for `models.script`. `test`: the command that runs the tests."""
    edit = {
        "file_path": "ledger.py",
        "old_string": '    digits = text.strip().replace(",", "").strip("()")\n'
        '    whole, _, fraction = digits.partition(".")\n'
        '    return int(whole) * 100 + int(fraction.ljust(2, "0")[:2] or 0)\n',
        "new_string": '    refund = text.strip().startswith("(")\n'
        '    digits = text.strip().replace(",", "").strip("()")\n    whole, _, fraction = digits.partition(".")\n'
        '    cents = int(whole) * 100 + int(fraction.ljust(2, "0")[:2] or 0)\n'
        "    return -cents if refund else cents\n",
    }
    return {
        "window_tokens": window_tokens,
        "max_output_tokens": 2_000,
        "price": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
        "turns": [
            {
                "text": "I read the notes and the code first.",
                "calls": [_read("NOTES.md"), _read("ledger.py"), _read("test_ledger.py")],
            },
            {"text": "Now I see how the tests fail.", "calls": [_run(test)]},
            {"text": "That run was cut. Running tests twice does no harm, so once more.", "calls": [_run(test)]},
            {
                "text": "Refunds in parentheses come out positive. Do such amounts occur?",
                "calls": [_read("receipts.txt")],
            },
            {
                "text": "They do. Before I decide what they mean, a last look at the project.",
                "calls": [_read("README.md"), _read("test_ledger.py"), _read("ledger.py")],
            },
            {
                "text": "The first reading of the notes was put away to make room. The log still has it; I bring back "
                "the lines about refunds.",
                "find": {"handle": r"cleared: ok, 1\d\d lines, Recall\(\"(r\d+)\"\)"},
                "calls": [{"name": "Recall", "arguments": {"handle": "{{handle}}", "lines": "97-101"}}],
            },
            {
                "text": "Decided on day 97: parentheses mean a refund, so it is negative. I change that one function.",
                "calls": [{"name": "Edit", "arguments": edit}],
            },
            {"calls": [_run(test)]},
            {
                "text": "It passes. I sum up what was done, to have room for whatever comes next.",
                "calls": [{"name": "Compact", "arguments": {"focus": "what was decided about refunds"}}],
            },
            {
                "text": "One more look at the words of that decision, which stand in the log and nowhere else now.",
                "calls": [{"name": "Recall", "arguments": {"query": "DECIDED amount in parentheses"}}],
            },
            {
                "text": "Mended: `parse_amount` in `ledger.py:4` takes an amount in parentheses as a refund, as "
                "decided on day 97 of the notes. All four tests pass."
            },
        ],
        "summaries": [{"text": SUMMARY}],
        "branches": branches(),
    }


def _read(path: str) -> dict[str, Any]:
    return {"name": "Read", "arguments": {"file_path": path}}


def _run(command: str) -> dict[str, Any]:
    return {"name": "Bash", "arguments": {"command": command, "description": "run the tests"}}


# --- The run ---------------------------------------------------------------------------------------------------------


PROMPT = "The tests of this project fail. Find out why, mend it, and follow what NOTES.md says about amounts."
WINDOW_TOKENS = 14_300
"""Small, so that the notes do not fit beside the rest: old results are cleared and one is recalled."""


class _Line(msgspec.Struct):
    """Fields of a stream-json line that the demo reads."""

    type: str
    subtype: str = ""
    message: msgspec.Raw = msgspec.Raw(b"null")
    result: str = ""
    usage: dict[str, object] = {}
    content: str = ""
    session_id: str = ""
    compact_metadata: dict[str, object] = {}
    parent_tool_use_id: str | None = None
    task_id: str = ""
    description: str = ""
    summary: str = ""


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    name: str = ""
    input: dict[str, object] = {}
    content: object = ""
    is_error: bool = False


class _Message(msgspec.Struct):
    content: list[_Block] | str = []


def demo(_place: None, _words: Sequence[str], *, keep: bool = False) -> int:
    """Run the demo; 0 only if the mended test really passes. With `keep` its folder stays."""
    folder = tempfile.mkdtemp(prefix="longrein-demo-")
    try:
        return _Demo(folder).play()
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    """One run in its own folder, with its own home and state."""

    def __init__(self, folder: str) -> None:
        self.project = os.path.join(folder, "project")
        self.home = os.path.join(folder, "home")
        self.test = f"{shlex.quote(sys.executable)} -m unittest -q"
        self.totals = {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
        self.requests = 0
        self.session = ""

    def play(self) -> int:
        self._say("longrein demo: the model's part is played from a script, offline. Files, commands, the log,")
        self._say("the kill and the resume are real.\n")
        self._make_project()
        self._say(f"A git project with a failing test: {self.project}")
        self._say(f"$ longrein -p {PROMPT!r}\n")
        killed = self._run(["-p", PROMPT], kill_at="Bash")
        if killed:
            self._say("\n  *** kill -9: longrein dies in the middle of that command ***\n")
            self._say("$ longrein -p -c\n")
            self._run(["-p", "-c"])
        self._show_context()
        self._run_second_part()
        return self._verdict()

    def _run_second_part(self) -> None:
        """Run the second part: three tasks, a promotion, two subagents that disagree, a kill, an adoption."""
        for name, text in TILL_FILES.items():
            _write(os.path.join(self.project, name), text)
        self._say(f"\n$ longrein -p {TILL_PROMPT!r}\n")
        if self._run(["-p", TILL_PROMPT], kill_at="Glob"):
            self._say("\n  *** kill -9 again. The till is still watched: its command is to outlive longrein ***\n")
            self._say("$ longrein tasks\n")
            self._say(self._output("tasks"))
            self._say("\n$ longrein -p -c\n")
            self._run(["-p", "-c"])

    def _say(self, line: str) -> None:
        show(f"{line}\n")

    # --- Setup -------------------------------------------------------------------------------------------------------

    def _make_project(self) -> None:
        os.makedirs(self.project)
        for name, text in {**FILES, "NOTES.md": notes()}.items():
            _write(os.path.join(self.project, name), text)
        for command in ("init -q", "add -A", "-c user.name=demo -c user.email=demo@localhost commit -q -m start"):
            subprocess.run(["git", *command.split()], cwd=self.project, check=True, env=self._environment())
        played = os.path.join(self.home, "script.json")
        _write(played, msgspec.json.encode(script(self.test, WINDOW_TOKENS)).decode())
        _write(
            os.path.join(self.home, ".config", "longrein", "config.toml"),
            'model = "demo/played"\n[providers.demo]\nwire = "scripted"\n'
            f"base_url = {msgspec.json.encode(played).decode()}\n",
        )

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "LONGREIN_", "GIT_"))}
        return {**kept, "HOME": self.home, "LONGREIN_STATE_DIR": os.path.join(self.home, "state")}

    # --- Runs and their output ---------------------------------------------------------------------------------------

    def _run(self, words: Sequence[str], kill_at: str = "") -> bool:
        """Run longrein and print its events; kill it at the start of tool `kill_at`. Return whether it was killed."""
        commands = dict.fromkeys([self.test, SLOW, *(command for _, command in CHECKS)])
        rules = ",".join(["Edit", *(f"Bash({command})" for command in commands)])
        command = [sys.executable, "-m", "longrein", *words, "--output-format", "stream-json", "--allowedTools", rules]
        with subprocess.Popen(
            command, cwd=self.project, env=self._environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process:
            for line in self._lines(process):
                if kill_at and self._print_line(line) == kill_at:
                    process.send_signal(signal.SIGKILL)
                    return True
                if not kill_at:
                    self._print_line(line)
        return False

    def _lines(self, process: "subprocess.Popen[bytes]") -> Iterator[_Line]:
        assert process.stdout is not None
        for line in process.stdout:
            yield msgspec.json.decode(line, type=_Line)

    def _print_line(self, line: _Line) -> str:
        """Print one line of the stream in plain words; return the last tool that it starts."""
        started = ""
        match line.type, line.subtype:
            case "assistant", _:
                self.requests += 1
                for block in _blocks(line):
                    begun = self._print_reply(block, "  | " if line.parent_tool_use_id else "  ")
                    started = started if line.parent_tool_use_id else begun or started
            case "user", _:
                for block in _blocks(line) if not line.parent_tool_use_id else ():
                    self._print_result(block)
            case "system", "init":
                self.session = line.session_id
            case "system", "task_started":
                self._say(f"      {line.task_id} begins: {_short(line.description)}")
            case "system", "task_notification":
                self._say(f"      {line.task_id} is over: {_short(line.summary)}")
            case "system", "compact_boundary" if line.compact_metadata.get("trigger") == "manual":
                self._say("  --- summed up: the user's words and the records by code, the prose by the model ---")
            case "system", "compact_boundary":
                self._say("  --- the window is nearly full: what is probably dead was cleared; the lines worth")
                self._say("      keeping and a handle stand in its place ---")
            case "result", _:
                for key in self.totals:
                    self.totals[key] += int(str(line.usage.get(key, 0)))
        return started

    def _print_reply(self, block: _Block, margin: str) -> str:
        if block.type == "text":
            self._say(margin + block.text.replace("\n", f"\n{margin}"))
        if block.type != "tool_use":
            return ""
        argument = next((str(v) for v in block.input.values()), "")
        self._say(f"{margin}  > {block.name} {argument.replace(sys.executable, 'python3')}")
        return block.name

    def _print_result(self, block: _Block) -> None:
        if block.type != "tool_result":
            return
        text = block.content if isinstance(block.content, str) else str(block.content)
        lines = [line for line in text.splitlines() if line.strip()]
        shown = lines[-1][:96] if lines else "(nothing)"
        self._say(f"      {'failed' if block.is_error else 'ok'}, {len(lines)} lines, the last: {shown}")

    def _show_context(self) -> None:
        self._say(f"\n$ longrein context {self.session[:8]}\n")
        self._say(self._output("context", self.session))

    def _output(self, *words: str) -> str:
        command = [sys.executable, "-m", "longrein", *words]
        page = subprocess.run(command, cwd=self.project, env=self._environment(), capture_output=True, check=True)
        return page.stdout.decode().replace(sys.executable, "python3").rstrip()

    # --- Result ------------------------------------------------------------------------------------------------------

    def _verdict(self) -> int:
        passed = subprocess.run(
            [sys.executable, "-m", "unittest", "-q"], cwd=self.project, capture_output=True, check=False
        ).returncode
        changed = subprocess.run(
            ["git", "diff", "--stat"], cwd=self.project, capture_output=True, text=True, check=True
        ).stdout
        sent = sum(self.totals.values())
        share = 100 * self.totals["cache_read_input_tokens"] // max(1, sent)
        self._say("\nWhat happened")
        self._say(f"  replies         {self.requests}; two kills cut one command and lost none of them")
        self._say(
            f"  input tokens    {sent} in the runs that ended by themselves, {share} % of them read from the cache"
        )
        self._say(f"  files changed   {' '.join(changed.split()) or 'none'}")
        self._say(f"  the test now    {'passes' if passed == 0 else 'FAILS'}")
        return 0 if passed == 0 else 1


def _short(text: str) -> str:
    """Return the text in one line."""
    line = " ".join(text.replace(sys.executable, "python3").split())
    return line if len(line) <= 96 else line[:95] + "…"


def _blocks(line: _Line) -> list[_Block]:
    content = msgspec.json.decode(line.message, type=_Message).content
    return content if isinstance(content, list) else []


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
