"""`longrein demo`: a small real job, offline and without a key. Only the model is scripted; the
rest is real.

The demo makes a git project with a failing test in a temporary folder, starts longrein on it as a
user would, kills it with SIGKILL during a command, resumes it, and runs the test itself at the end.
The second part runs background tasks and subagents; one task outlives a second kill.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.frontends.stdio import show
from longrein_context.events.escape import one_line, shortened

# --- Second part: scripted turns of the background work -------------------------------------------


TILL_PROMPT = (
    "While the checks run, find out what an amount in parentheses means here, and what "
    "becomes of old receipts."
)
GOAL = "Say what an amount in parentheses means in this project, and where that is decided."
ASK_NOTES = "Look into NOTES.md only: what was decided about amounts in parentheses?"
ASK_GUIDE = "Look into GUIDE.md only: what does it say about amounts in parentheses?"
GUIDE = """# Guide for the shop

Type amounts as on the receipt. An amount in parentheses is only a remark: it is left out of the total.
"""  # noqa: E501
TILL_FILES = {
    "GUIDE.md": GUIDE,
    # five minutes, if nobody ends it
    "till.sh": "for n in $(seq 1 3000); do echo tick $n; sleep 0.1; done\n",
    "receipts.sh": "for n in 1 2 3 4; do echo part $n of the receipts; sleep 0.3; done\n",
}
PYTHON = shlex.quote(sys.executable)
LONGREIN = (sys.executable, "-P", "-m", "longrein")
"""Command of the longreins that the demo starts; `-P`: imports nothing from the current folder."""
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
        {
            "when": ASK_NOTES,
            "turns": _looks("NOTES.md", 97, "Day 97: DECIDED, a refund, so it is negative."),
        },
        {
            "when": ASK_GUIDE,
            "turns": _looks("GUIDE.md", 3, "It is only a remark and is left out of the total."),
        },
        {"when": TILL_PROMPT, "turns": _main()},
    ]


def _turn(text: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {key: value for key, value in {"text": text, **more, "calls": calls}.items() if value}


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


KILL_S = 1.5
"""Seconds of thought before which the second kill must come, or the turn would be over."""


def _main() -> list[dict[str, Any]]:
    started = [
        _call("Bash", command=command, description=what, run_in_background=True)
        for what, command in CHECKS
    ]
    jobs = [
        {"description": "what the notes say", "prompt": ASK_NOTES, "subagent_type": "explore"},
        {"description": "what the guide says", "prompt": ASK_GUIDE, "subagent_type": "explore"},
    ]
    return [
        _turn("Three things take a while. I start them and go on.", *started),
        _turn(
            "The receipts may be quick: I wait half a second for them.",
            _call("Bash", command=SLOW, description="read the receipts", timeout=500),
        ),
        _turn(
            "It goes on in the background. Meanwhile two subagents look, and a third makes one "
            "answer of it.",
            _call("Agent", description="amounts in parentheses", tasks=jobs, synthesis=GOAL),
        ),
        _turn("Now the old receipts.", _call("Glob", pattern="*receipts*")),
        _turn(
            "Something happened to longrein. What still runs?",
            _call("TaskList"),
            delay_s=KILL_S,
        ),
        _turn(
            "The till is watched as before: nobody told that command to end. Its newest lines, "
            "then I end it.",
            _call("TaskOutput", task_id="b3", tail=2),
            _call("TaskStop", task_id="b3"),
        ),
        _turn(
            "An amount in parentheses is a refund (NOTES.md, day 97); GUIDE.md:3 says otherwise "
            "and should be "
            "mended. Old receipts stand in receipts.txt. The tests pass."
        ),
        _turn("That was the last one that ran. Nothing is left to do."),
    ]


def _looks(path: str, line: int, found: str) -> list[dict[str, Any]]:
    return [
        _turn(f"I read {path}.", _call("Read", file_path=path)),
        _turn(f"{found} ({path}:{line}). I did not look into other files, as I was told."),
    ]


def _synthesis() -> list[dict[str, Any]]:
    return [
        _turn(
            "The two contradict each other, so I look at what decides: the code that is tested.",
            _call("Grep", pattern="refund", output_mode="content"),
        ),
        _turn(
            "**Result**: an amount in parentheses is a refund, so it is negative.\n"
            "**Conflict**: {{first}} says a refund (NOTES.md, day 97), {{second}} says a remark "
            "that is left out "
            "(GUIDE.md:3). I searched for both: `test_refund_in_parentheses` expects a negative "
            "amount. The notes "
            "hold; the guide is out of date.\n"
            "**Found by one alone**: the guide wants amounts typed as on the receipt ({{second}}).",
            find={"first": r"\[1\] (a\d+)", "second": r"\[2\] (a\d+)"},
        ),
    ]


# --- First part: the project and the scripted turns -----------------------------------------------


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
    f"day {n}, bottles and bread: {'({}.25)' if n % 9 == 4 else '{}.20'}\n".format(n % 7)
    for n in range(1, 341)
)

FILES = {
    "ledger.py": LEDGER,
    "test_ledger.py": TESTS,
    "README.md": README,
    "receipts.txt": RECEIPTS,
}

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

TOPICS = (
    "rounding",
    "bread prices",
    "the shop's till",
    "the yearly report",
    "opening hours",
    "coins",
    "old receipts",
)


def notes() -> str:
    """Return long meeting notes, of which one line matters."""
    lines = ["# Notes", ""]
    for day in range(1, 281):
        topic = TOPICS[day % len(TOPICS)]
        if day == 97:
            lines.append(
                "- day 97: DECIDED: an amount in parentheses is a refund, so it is negative."
            )
        else:
            lines.append(
                f"- day {day}: talked about {topic}; {day % 5 + 2} people were there, nothing was "
                "decided."
            )
    return "\n".join(lines) + "\n"


OLD = """    digits = text.strip().replace(",", "").strip("()")
    whole, _, fraction = digits.partition(".")
    return int(whole) * 100 + int(fraction.ljust(2, "0")[:2] or 0)
"""
NEW = """    refund = text.strip().startswith("(")
    digits = text.strip().replace(",", "").strip("()")
    whole, _, fraction = digits.partition(".")
    cents = int(whole) * 100 + int(fraction.ljust(2, "0")[:2] or 0)
    return -cents if refund else cents
"""


def script(test: str, window_tokens: int) -> dict[str, Any]:
    """Return the model's part, for `models.script`. `test`: the command that runs the tests."""
    run = _call("Bash", command=test, description="run the tests")
    return {
        "window_tokens": window_tokens,
        "max_output_tokens": 2_000,
        "price": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
        "turns": [
            _turn(
                "I read the notes and the code first.",
                *_reads("NOTES.md", "ledger.py", "test_ledger.py"),
            ),
            _turn("Now I see how the tests fail.", run),
            _turn("That run was cut. Running tests twice does no harm, so once more.", run),
            _turn(
                "Refunds in parentheses come out positive. Do such amounts occur?",
                *_reads("receipts.txt"),
            ),
            _turn(
                "They do. Before I decide what they mean, a last look at the project.",
                *_reads("README.md", "test_ledger.py", "ledger.py"),
            ),
            _turn(
                "The first reading of the notes was put away to make room. The log still has it; "
                "I bring back "
                "the lines about refunds.",
                _call("Recall", handle="{{handle}}", lines="97-101"),
                find={"handle": r"cleared: ok, 1\d\d lines; Recall\(\"(r\d+)\"\)"},
            ),
            _turn(
                "Decided on day 97: parentheses mean a refund, so it is negative. I change that "
                "one function.",
                _call("Edit", file_path="ledger.py", old_string=OLD, new_string=NEW),
            ),
            _turn("", run),
            _turn(
                "It passes. I sum up what was done, to have room for whatever comes next.",
                _call("Compact", focus="what was decided about refunds"),
            ),
            _turn(
                "One more look at the words of that decision, which stand in the log and nowhere "
                "else now.",
                _call("Recall", query="DECIDED amount in parentheses"),
            ),
            _turn(
                "Mended: `parse_amount` in `ledger.py:4` takes an amount in parentheses as a "
                "refund, as "
                "decided on day 97 of the notes. All four tests pass."
            ),
        ],
        "summaries": [{"text": SUMMARY}],
        "branches": branches(),
    }


def _reads(*paths: str) -> list[dict[str, Any]]:
    return [_call("Read", file_path=path) for path in paths]


# --- The run --------------------------------------------------------------------------------------


PROMPT = (
    "The tests of this project fail. Find out why, mend it, and follow what NOTES.md says "
    "about amounts."
)
WINDOW_TOKENS = 12_200
"""Small, so that the notes do not fit beside the rest: old results are cleared and one is
recalled.
"""


_Json = dict[str, Any]
"""A line of stream-json, or a block of a message in it."""


def demo(_place: None, _words: Sequence[str], *, keep: bool = False) -> int:
    """Run the demo; 0 only if the mended test really passes. With `keep` its folder stays."""
    folder = tempfile.mkdtemp(prefix="longrein-demo-")
    try:
        return _Demo(folder).play()
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    """A run in its own folder, with its own home and state."""

    def __init__(self, folder: str) -> None:
        self.project = os.path.join(folder, "project")
        self.home = os.path.join(folder, "home")
        self.test = f"{shlex.quote(sys.executable)} -m unittest -q"
        self.totals = {
            "input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        }
        self.requests = 0
        self.session = ""

    def play(self) -> int:
        self._say(
            "longrein demo: the model's part is played from a script, offline. Files, commands, "
            "the log,"
        )
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
        """Run the second part: three tasks, a promotion, two subagents that disagree, a kill, an
        adoption.
        """
        for name, text in TILL_FILES.items():
            _write(os.path.join(self.project, name), text)
        self._say(f"\n$ longrein -p {TILL_PROMPT!r}\n")
        if self._run(["-p", TILL_PROMPT], kill_at="Glob"):
            self._say(
                "\n  *** kill -9 again. The till is still watched: its command is to outlive "
                "longrein ***\n"
            )
            self._say("$ longrein tasks\n")
            self._say(self._output("tasks"))
            self._say("\n$ longrein -p -c\n")
            self._run(["-p", "-c"])

    def _say(self, line: str) -> None:
        show(f"{line}\n")

    # --- Setup ------------------------------------------------------------------------------------

    def _make_project(self) -> None:
        os.makedirs(self.project)
        for name, text in {**FILES, "NOTES.md": notes()}.items():
            _write(os.path.join(self.project, name), text)
        for command in (
            "init -q",
            "add -A",
            "-c user.name=demo -c user.email=demo@localhost commit -q -m start",
        ):
            subprocess.run(
                ["git", *command.split()], cwd=self.project, check=True, env=self._environment()
            )
        played = os.path.join(self.home, "script.json")
        _write(played, msgspec.json.encode(script(self.test, WINDOW_TOKENS)).decode())
        _write(
            os.path.join(self.home, ".config", "longrein", "config.toml"),
            'model = "demo/played"\nprofile = "standard"\n[providers.demo]\nwire = "scripted"\n'
            f"base_url = {msgspec.json.encode(played).decode()}\n",
        )

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("XDG_", "LONGREIN_", "GIT_"))
        }
        own = {"HOME": self.home, "LONGREIN_STATE_DIR": os.path.join(self.home, "state")}
        return {
            **kept,
            **own,
            "LONGREIN_SANDBOX_MODE": "off",
        }  # its Python may lie in a folder that a sandbox hides

    # --- Runs and their output --------------------------------------------------------------------

    def _run(self, words: Sequence[str], kill_at: str = "") -> bool:
        """Run longrein and print its events; kill it at the start of tool `kill_at`. Return
        whether it was killed.
        """
        commands = dict.fromkeys([self.test, SLOW, *(command for _, command in CHECKS)])
        rules = ",".join(["Edit", *(f"Bash({command})" for command in commands)])
        command = [*LONGREIN, *words, "--output-format", "stream-json", "--allowedTools", rules]
        with subprocess.Popen(
            command,
            cwd=self.project,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        ) as process:
            try:
                return self._follow(process, kill_at)
            except KeyboardInterrupt:  # it must not write while the folder is removed
                process.terminate()
                process.wait()
                raise

    def _follow(self, process: "subprocess.Popen[bytes]", kill_at: str) -> bool:
        assert process.stdout is not None
        for line in process.stdout:
            started = self._print_line(msgspec.json.decode(line))
            if kill_at and started == kill_at:
                process.kill()
                return True
        return False

    def _print_line(self, line: _Json) -> str:
        """Print one line of the stream in plain words; return the last tool that it starts."""
        started = ""
        by_subagent = line.get("parent_tool_use_id")
        match line["type"], line.get("subtype"):
            case "assistant", _:
                self.requests += 1
                for block in line["message"]["content"]:
                    begun = self._print_reply(block, "  | " if by_subagent else "  ")
                    started = started if by_subagent else begun or started
            case "user", _ if not by_subagent:
                for block in line["message"]["content"]:
                    self._print_result(block)
            case "system", "init":
                self.session = line["session_id"]
            case "system", "task_started":
                self._say(f"      {line['task_id']} begins: {_short(line['description'])}")
            case "system", "task_notification":
                self._say(f"      {line['task_id']} is over: {_short(line['summary'])}")
            case "system", "compact_boundary" if line["compact_metadata"]["trigger"] == "manual":
                self._say(
                    "  --- summed up: the user's words and the records by code, the prose by the "
                    "model ---"
                )
            case "system", "compact_boundary":
                self._say(
                    "  --- the window is nearly full: what is probably dead was cleared; the "
                    "lines worth"
                )
                self._say("      keeping and a handle stand in its place ---")
            case "result", _:
                for key in self.totals:
                    self.totals[key] += line["usage"][key]
        return started

    def _print_reply(self, block: _Json, margin: str) -> str:
        if block["type"] == "text":
            self._say(margin + block["text"].replace("\n", f"\n{margin}"))
        if block["type"] != "tool_use":
            return ""
        argument = next((str(v) for v in block["input"].values()), "")
        self._say(f"{margin}  > {block['name']} {argument.replace(sys.executable, 'python3')}")
        return str(block["name"])

    def _print_result(self, block: _Json | str) -> None:
        if isinstance(block, str) or block["type"] != "tool_result":
            return
        lines = [line for line in str(block["content"]).splitlines() if line.strip()]
        shown = lines[-1][:96] if lines else "(nothing)"
        self._say(
            f"      {'failed' if block.get('is_error') else 'ok'}, {len(lines)} lines, the last: "
            f"{shown}"
        )

    def _show_context(self) -> None:
        self._say(f"\n$ longrein context {self.session[:8]}\n")
        self._say(self._output("context", self.session))

    def _output(self, *words: str) -> str:
        command = [*LONGREIN, *words]
        page = subprocess.run(
            command, cwd=self.project, env=self._environment(), capture_output=True, check=True
        )
        return page.stdout.decode().replace(sys.executable, "python3").rstrip()

    # --- Result -----------------------------------------------------------------------------------

    def _verdict(self) -> int:
        passed = subprocess.run(
            [sys.executable, "-m", "unittest", "-q"],
            cwd=self.project,
            capture_output=True,
            check=False,
        ).returncode
        changed = subprocess.run(
            ["git", "diff", "--stat"], cwd=self.project, capture_output=True, text=True, check=True
        ).stdout
        sent = sum(self.totals.values())
        share = 100 * self.totals["cache_read_input_tokens"] // max(1, sent)
        self._say("\nWhat happened")
        self._say(
            f"  replies         {self.requests}; two kills cut one command and lost none of them"
        )
        self._say(
            f"  input tokens    {sent} in the runs that ended by themselves, {share} % of them "
            "read from the cache"
        )
        self._say(f"  files changed   {' '.join(changed.split()) or 'none'}")
        self._say(f"  the test now    {'passes' if passed == 0 else 'FAILS'}")
        return 0 if passed == 0 else 1


def _short(text: str) -> str:
    """Return the text in one line."""
    return shortened(one_line(text.replace(sys.executable, "python3")), 96)


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
