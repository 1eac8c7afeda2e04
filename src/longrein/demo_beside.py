"""The demo's second act: what is done while other things run, and what the played model and its subagents say of it."""

import shlex
import sys
from typing import Any

PROMPT = "While the checks run, find out what an amount in parentheses means here, and what becomes of old receipts."
GOAL = "Say what an amount in parentheses means in this project, and where that is decided."
ASK_NOTES = "Look into NOTES.md only: what was decided about amounts in parentheses?"
ASK_GUIDE = "Look into GUIDE.md only: what does it say about amounts in parentheses?"
GUIDE = """# Guide for the shop

Type amounts as on the receipt. An amount in parentheses is only a remark: it is left out of the total.
"""
FILES = {
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
"""Takes longer than the half second that it is given."""


def branches() -> list[dict[str, Any]]:
    """The conversations of the second act, for `models.script`."""
    return [
        {"when": GOAL, "turns": _synthesis()},
        {"when": ASK_NOTES, "turns": _looks("NOTES.md", 97, "Day 97: DECIDED, a refund, so it is negative.")},
        {"when": ASK_GUIDE, "turns": _looks("GUIDE.md", 3, "It is only a remark and is left out of the total.")},
        {"when": PROMPT, "turns": _main()},
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
