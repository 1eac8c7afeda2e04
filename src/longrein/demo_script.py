"""The demo's material: a small project with a bug, and what the played model says about it."""

from typing import Any

from longrein.demo_beside import branches

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
    """Minutes of many meetings; one line of them matters."""
    lines = ["# Notes", ""]
    for day in range(1, 281):
        topic = TOPICS[day % len(TOPICS)]
        if day == 97:
            lines.append("- day 97: DECIDED: an amount in parentheses is a refund, so it is negative.")
        else:
            lines.append(f"- day {day}: talked about {topic}; {day % 5 + 2} people were there, nothing was decided.")
    return "\n".join(lines) + "\n"


def script(test: str, window_tokens: int) -> dict[str, Any]:
    """What the played model says, for `models.script`. `test` is the command that runs the tests."""
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
