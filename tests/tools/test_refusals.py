"""Each refusal that a model can get names what to do next.

A refusal begins with its tag in brackets. `TABLE` has a row for each tag of the source: what every
message with the tag says of the next call. `…` stands before the end of a head to which a function
adds what is there and a call that works, as the tests of the tools show.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[2] / "packages"
TAG = re.compile(r"\[([a-z]+(?:-[a-z]+)*)\] ")
TABLE = """
bad-arguments    | correct the call
bad-command      | Leave it out
bad-count        | from 1 to
bad-handle       | {HANDLE_FORMATS}|{told}
bad-json         | send valid JSON
bad-label        | labels look like
bad-output       | Correct it and call
bad-patch        | correct the patch
bad-path         | give the path of a file|{ODD_NAME_HINT}
bad-pattern      | to list files use Glob|give one such as|Correct the pattern|search for
bad-range        | must|goes upwards|there are lines 1 to
bad-time         | write "2026|{TIME_FORMATS}
bad-timeout      | Give 120000
binary           | with Bash
blocked          | Reach those first
broken-picture   | Look into it with Bash
busy             | Try again
changed          | … since you read it|…just now|…else ''}|list the goals|Create it with Write
claimed          | take another goal
contradiction    | Give one of|leave run_in_background out|give resume and prompt alone
cycle            | out of blocked_by
damaged          | Ask the user
deleted          | leave it out
disk-full        | Go on without goals
empty            | give one|Give one|give each one
encoding         | Leave the character out
exists           | change it with|Move to another path|give the text to replace
folder           | {_shown_folder
goals            | Go on without goals
ignored-path     | use git
link             | with Bash
lost             | Read its source again|Recall(query=
marker           | Get the real bytes|write what is meant
mcp              | {clean_text(str(failure))
moved            | look again
newer            | upgrade this one
no-background    | Call again without
no-file          | It knows|{hint}|read it|name a later time
no-goals         | use TodoWrite
no-input         | Next: call TaskOutput|start it again
no-match         | {explain_no_match|Take a line as|…is not in {one_line(place.path)}.
no-query         | Give one
no-schedule      | List what is scheduled
no-schedules     | say in your report
no-skill         | {hint}
no-skills        | do the task without
no-subagents     | do the work yourself
no-text          | Download it
not-a-file       | Name a
not-a-folder     | {next_call
not-converted    | download it
not-fetched      | Try another address
not-found        | {look}|…: {one_line(place.path)}.
not-kept         | with Bash
not-planning     | go on without it
not-read         | …you have not read it|{next_call|Send it again
not-running      | Next: call TaskOutput
not-unique       | Take in more
not-yours        | do your task without
notebook         | Change it with Bash
nothing          | {_no_hits_message|go on with the task
one-report       | use tasks or samples
over             | set it to pending
past-end         | {next_call|lines must begin|begin at one
questions        | from 1 to
same             | new_string, or go on|Go on
sandbox          | Try again
skill            | {skill.source}|the file {path}
status           | use {
title            | goes into body
too-large        | with Bash|Use Bash|make it smaller
too-long         | shorten it|in pieces
too-many         | complete or delete|name fewer|Join small ones
two-active       | leave the others
unknown-goal     | {self._open_goals_text()}
unknown-handle   | Take handles from|for what it holds|{there}|{advice}
unknown-task     | {there}|Bash starts one
unknown-tool     | Tools: {listed}|ToolSearch|{why}|{error}
unreadable       | Look why
unwritable       | Look why
user-only        | go on without
what             | give one of
when             | give another time
which-file       | Name one
"""


def text_of(node: ast.AST) -> str | None:
    """Text of a literal, with `{expression}` for what is put in; None for any other node."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "" for part in parts)
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case _:
            return None


def messages() -> Iterator[tuple[str, str]]:
    """Tag and text of each literal of the packages that begins with a tag."""
    for path in sorted(PACKAGES.rglob("*.py")):
        source = path.read_text()
        if not TAG.search(source) or "frontends" in path.parts:
            continue
        waiting: list[ast.AST] = [ast.parse(source)]
        while waiting:
            text = text_of(node := waiting.pop())
            if text is None:
                waiting.extend(ast.iter_child_nodes(node))
            elif found := TAG.match(text):
                yield found[1], text


def rows() -> dict[str, list[str]]:
    """Tag -> what a message with it may say of the next call."""
    lines = [line.split("|") for line in TABLE.strip().splitlines()]
    return {tag.strip(): [one.strip() for one in words] for tag, *words in lines}


@pytest.mark.scan
def test_each_refusal_names_what_to_do_next() -> None:
    table, used = rows(), set[str]()
    for tag, text in messages():
        used.add(tag)
        assert tag in table, f"no row for [{tag}]: {text}"
        said = any(text.endswith(one[1:]) if one[0] == "…" else one in text for one in table[tag])
        assert said, f"no next call in: {text}"
    assert used == set(table), "a row without a message"
