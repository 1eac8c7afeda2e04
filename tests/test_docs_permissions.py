"""The examples of docs/permissions.md are decided as the page says."""

import re
from pathlib import Path

import pytest

from tests.permissions.calls import bash, verdict

PAGE = (Path(__file__).parent.parent / "docs/permissions.md").read_text(encoding="utf-8")
EXAMPLES = [
    (command.replace("\\|", "|"), rule, confined, bare)
    for command, rule, confined, bare in re.findall(
        r"^\| `(.+?)` \| (?:`(Bash\(.+?\))`)? ?\| (runs|asks) \| (runs|asks) \|$",
        PAGE,
        re.MULTILINE,
    )
]
SAID = {"allow": "runs", "ask": "asks"}


def test_the_examples_are_found() -> None:
    assert len(EXAMPLES) == 15
    assert sum(bool(rule) for _, rule, _, _ in EXAMPLES) == 6


@pytest.mark.parametrize(("command", "rule", "confined", "bare"), EXAMPLES)
def test_command_is_decided_as_page_says(command: str, rule: str, confined: str, bare: str) -> None:
    for expected, is_confined in ((confined, True), (bare, False)):
        decided = verdict(bash(command, confined=is_confined), allow=rule)
        assert SAID[decided.kind] == expected, decided.reason


def test_a_rule_for_bash_covers_scripts_but_not_their_text() -> None:
    assert verdict(bash("bash run.sh"), allow="Bash(bash:*)").kind == "allow"
    assert verdict(bash("bash -c 'npm test'"), allow="Bash(bash:*)").kind == "ask"
