"""Facts from the output of a command: exit code, most informative line, failed and passed tests;
and from an edit: what it changed.

Only notes written by our own `Bash` and the formats of common test runners are read. Output counts
as test output only if the command runs something that can test; a printed log proves nothing.
"""

import re
from collections.abc import Mapping
from functools import cache

import msgspec

from longrein_context.events.escape import whole_number

TEXT_CHARS_MAX = (
    60_000  # Only both ends of longer output are read; runners print their counts at the end
)
LABEL_CHARS_MAX = 60  # Characters of a line in a label
WRITTEN_TEXTS = ("content", "file_text")
"""Arguments that hold the whole text of a file."""
NAMES_MAX = 500  # Limit of named tests taken from one output


class Counts(msgspec.Struct, frozen=True):
    """Counts of a test runner, summed over the runs of one command."""

    runner: str
    passed: int = 0
    failed: int = 0  # Failures and errors

    @property
    def clean(self) -> bool:
        """True if something ran and nothing failed."""
        return self.passed > 0 and self.failed == 0


class CommandFindings(msgspec.Struct, frozen=True):
    """Test results found in one output."""

    verdicts: dict[str, bool]  # Test name -> whether it passed
    counts: Counts | None


def clip(text: str, chars: int) -> str:
    """Return `text` on one line in at most `chars` characters."""
    line = " ".join(text[: 4 * chars].split())
    return line if len(line) <= chars and len(text) <= 4 * chars else line[: chars - 1] + "…"


# --- Edits ----------------------------------------------------------------------------------------


def first_change(arguments: Mapping[str, object]) -> str:
    """Return the first line that an edit changed, `+` for a new one, `-` for one that is gone; of
    a written file the number of lines.
    """
    old, new = arguments.get("old_string"), arguments.get("new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        texts = [value for key in WRITTEN_TEXTS if isinstance(value := arguments.get(key), str)]
        return f", {len(texts[0].splitlines())} lines written" if texts else ""
    before, after = old.split("\n"), new.split("\n")
    added = next((line for line in after if line.strip() and line not in before), "")
    gone = next((line for line in before if line.strip() and line not in after), "")
    if added:
        return f", + {clip(added, LABEL_CHARS_MAX)}"
    return f", - {clip(gone, LABEL_CHARS_MAX)}" if gone else ""


# --- Exit codes and errors ------------------------------------------------------------------------

_ENDING = r"\[exit code (\d{1,3})(?: \([a-z ]+\))?\]\Z"
_NOTE = (
    r"\[(?:current folder is now |the current folder is gone|.* is outside the session's folders)"
)
_ENDED = (
    r"\[(?:exit code|timed out after|interrupted|ended by signal|ended: it printed|could not be)"
)


def code_of(text: str, status: str) -> int | None:
    """Return the exit code of a `Bash` result; None if the command did not exit by itself.

    Only the note that our tool writes after the output is read. A result with status `ok` has exit
    code 0.
    """
    if status == "ok":
        return 0
    for line in reversed(text.rsplit("\n", 3)[-3:]):
        match = re.match(_ENDING, line)
        if match is not None:
            return int(match[1])
        if not re.match(_NOTE, line):
            return None
    return None


_TELLING: tuple[str, ...] = (
    "Error",
    "error",
    "Exception",
    "Failure",
    "FAILED",
    "fatal",
    "panic",
    "denied",
)
_TELLING += ("not found", "No such", "cannot ")
_ECHOES = ("make: ***", "npm ERR!", "npm error", "error Command failed", "ERROR: Job failed")
"""Beginnings of lines by which a runner only reports that its command failed."""
# Characters at the end of a failed output that are searched for its most informative line
GIST_CHARS_MAX = 8_000


def gist(text: str) -> str:
    """Return the most informative line of a failed output: the last that names an error, else
    the last.
    """
    lines = [line for line in text[-GIST_CHARS_MAX:].split("\n") if line.strip()]
    ended = next((line for line in reversed(lines[-2:]) if re.match(_ENDED, line)), "")
    body = [
        line
        for line in lines
        if not (line[0] == "[" and (re.match(_ENDED, line) or re.match(_NOTE, line)))
    ]
    body = [line for line in body if not line.startswith(_ECHOES)] or body
    said = next(
        (line for line in reversed(body) if any(word in line for word in _TELLING)),
        body[-1] if body else "",
    )
    return clip(said or ended, 200)


_SHOWING = frozenset(("diff", "log", "show", "blame"))
"""Subcommands of git that only show content."""
_COMMITTED = re.compile(r"^\[\S+(?: \([a-z-]+\))? [0-9a-f]{7,40}\] .+$", re.MULTILINE)


def told_by_output(line: str, text: str, status: str) -> str:
    """Return how command `line` ended, in one line, from its output: the counts of its tests, the
    commit it made, or the most informative line; '' where the output is content that was shown.
    """
    found = read_tests(line, text)
    if found is not None and found.counts is not None:
        told = f"{found.counts.failed} failed, {found.counts.passed} passed"
        return f"{told}: {gist(text)}" if found.counts.failed else told
    if status == "ok" and shows_content(line):
        return ""
    commits = _COMMITTED.findall(text) if "commit" in line else []
    return clip(commits[-1], 200) if commits and status == "ok" else gist(text)


def shows_content(line: str) -> bool:
    """True if all that a command line does is to print files or the history of git."""
    found = False
    for piece in re.split(r"&&|\|\|?|;|\n", line):
        words = [word for word in piece.split() if "=" not in word or word.startswith("-")]
        if not words or words[0] == "cd":
            continue
        if words[0] not in _READERS or (words[0] == "git" and _SHOWING.isdisjoint(words[1:4])):
            return False
        found = True
    return found


# --- Test runners ---------------------------------------------------------------------------------

_READERS = frozenset(
    (
        *(
            "cat",
            "grep",
            "rg",
            "head",
            "tail",
            "echo",
            "printf",
            "sed",
            "awk",
            "less",
            "more",
            "ls",
            "git",
            "find",
        ),
        *(
            "sort",
            "uniq",
            "tee",
            "cd",
            "jq",
            "diff",
            "cut",
            "tr",
            "which",
            "sleep",
            "rm",
            "cp",
            "mv",
            "mkdir",
            "wc",
        ),
    )
)
"""Programs that only print or move files."""
_NO_TESTERS = _READERS | {"gh", "curl"}  # Their arguments often speak of tests and checks
_TESTERS = r"test|spec\b|check|\b(?:make|tox|nox|jest|mocha|just|gradlew?|mvn|ctest|ci)\b"


_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?.*?^\s*\1\b", re.DOTALL | re.MULTILINE)
_QUOTED_LINES = re.compile(r"\"[^\"]*\n[^\"]*\"|'[^']*\n[^']*'")


def may_test(line: str) -> bool:
    """True if a command line may run a test runner. What it only hands on, such as the message of
    a commit, is no command.
    """
    if "\n" in line:
        line = _QUOTED_LINES.sub("", _HEREDOC.sub("", line))
    for piece in re.split(r"&&|\|\|?|;|\n", line):
        words = [word for word in piece.split() if "=" not in word or word.startswith("-")]
        is_run = words and words[0] not in _NO_TESTERS and words[0][0] != "#"
        if is_run and re.search(_TESTERS, piece):
            return True
    return False


class _Shape(msgspec.Struct, frozen=True):
    """Output format of one test runner."""

    runner: str
    sign: str  # Text that every output with counts contains; checked first
    names: str  # Pattern of a line that names a test: groups `word` (the verdict) and `name`
    counts: str  # Pattern of the counts: groups `failed` and `passed`, and others by runner
    bad: tuple[str, ...] = ("FAILED", "ERROR", "FAIL")  # Values of `word` that mean failure


_SHAPES = (
    _Shape(
        "pytest",
        " in ",
        r"^(?:(?P<word>FAILED|ERROR|PASSED) (?P<name>\S+\.py(?:::[^\n]*?)?)(?: - .*)?"
        r"|(?P<name2>\S+\.py::\S+(?: \S+\])?) (?P<word2>PASSED|FAILED|ERROR)\b.*)$",
        r"^=*(?: |)(?=\d+ (?:failed|passed|error))(?:(?P<failed>\d+) failed,? "
        r"?)?(?:(?P<passed>\d+) passed,? ?)?"
        r"(?:\d+ (?:skipped|xfailed|xpassed|deselected|warnings?|rerun),? ?)*(?:(?P<errors>\d+) "
        r"errors?)?"
        r".* in [\d.]+ ?s",
    ),
    _Shape(
        "unittest",
        "Ran ",
        r"^(?:(?P<word>FAIL|ERROR): (?P<name>\w+ \([\w.]+\)).*|(?P<name2>\w+ "
        r"\([\w.]+\))(?:\n.*?)? \.\.\. "
        r"(?P<word2>ok|FAIL|ERROR))$",
        r"^Ran (?P<ran>\d+) tests? in [\d.]+s\n+(?:OK\b|FAILED "
        r"\((?:failures=(?P<failed>\d+))?(?:, )?"
        r"(?:errors=(?P<errors>\d+))?)",
    ),
    _Shape(
        "go",
        "\t",
        r"^\s*--- (?P<word>FAIL|PASS): (?P<name>\S+) \(",
        r"^(?:(?P<ok1>ok)  ?\t|(?P<bad1>FAIL)\t)\S+",
    ),
    _Shape(
        "cargo",
        "test result:",
        r"^test (?P<name>\S+)(?: - should panic)? \.\.\. (?P<word>ok|FAILED)$",
        r"^test result: (?:ok|FAILED)\. (?P<passed>\d+) passed; (?P<failed>\d+) failed",
    ),
    _Shape(
        "jest",
        "Tests",
        r"^ *(?P<word>✓|✔|√|✕|✖|×|FAIL|PASS|❯)\s+(?P<name>\S[^\n]*?)(?: \(?\d+ ?m?s\)?)?$",
        r"^ *Tests:? +(?:(?P<failed>\d+) failed(?:,| \|)? *)?(?:\d+ \w+(?:,| \|) "
        r"*)*?(?:(?P<passed>\d+) passed)?"
        r"(?:(?:,| \|) *\d+ \w+)*(?:, \d+ total| \(\d+\))",
        ("✕", "✖", "×", "FAIL"),
    ),
    _Shape(
        "bun",
        " fail",
        r"^\((?P<word>pass|fail)\) (?P<name>\S[^\n]*?)(?: \[[\d.]+ ?m?s\])?$",
        r"^ *(?P<passed>\d+) pass\n(?: *\d+ (?:skip|todo|filtered out)\n)* *(?P<failed>\d+) fail$",
        ("fail",),
    ),
    _Shape(
        "mocha",
        " passing",
        "",
        r"^  (?P<passed>\d+) passing\b[^\n]*(?:\n  \d+ pending)?(?:\n  (?P<failed>\d+) failing)?",
    ),
    _Shape(
        "tap",
        "# ",
        r"^ *(?P<word>ok|not ok) \d+ (?:- )?(?P<name>[^\n#]+?)(?: #.*)?$",
        r"^(?:# pass (?P<passed>\d+)|# fail (?P<failed>\d+))$",
        ("not ok",),
    ),
)


@cache
def _compiled(runner: str) -> tuple[re.Pattern[str] | None, re.Pattern[str]]:
    shape = next(shape for shape in _SHAPES if shape.runner == runner)
    return (re.compile(shape.names, re.M) if shape.names else None), re.compile(shape.counts, re.M)


def read_tests(line: str, text: str) -> CommandFindings | None:
    """Return the test results in the output `text` of command `line`; None if it is no test run.

    The runner whose counts are found decides how names are read, so formats are not mixed.
    """
    if not may_test(line):
        return None
    if len(text) > TEXT_CHARS_MAX:
        text = text[: TEXT_CHARS_MAX // 4] + "\n" + text[-TEXT_CHARS_MAX * 3 // 4 :]
    for shape in _SHAPES:
        if shape.sign not in text:
            continue
        names, counts = _compiled(shape.runner)
        counted = _counted(shape.runner, counts, text)
        if counted is not None:
            verdicts = _named(shape, names, text) if names is not None else {}
            return CommandFindings(verdicts, counted)
    return None


def _counted(runner: str, counts: re.Pattern[str], text: str) -> Counts | None:
    passed = failed = 0
    for match in counts.finditer(text):
        groups = match.groupdict("")
        bad = sum(whole_number(groups.get(name, "")) for name in ("failed", "errors"))
        bad += bool(groups.get("bad1"))
        good = whole_number(groups.get("passed", "")) + bool(groups.get("ok1"))
        if groups.get("ran"):
            good = max(0, whole_number(groups["ran"]) - bad)
        passed, failed = passed + good, failed + bad
    return Counts(runner, passed, failed) if passed + failed else None


def _named(shape: _Shape, names: re.Pattern[str], text: str) -> dict[str, bool]:
    verdicts: dict[str, bool] = {}
    for match in names.finditer(text):
        groups = match.groupdict()
        name = clip(groups["name"] or groups.get("name2") or "", 300)
        word = groups["word"] or groups.get("word2") or ""
        verdicts[name] = word not in shape.bad and verdicts.get(name, True)
        if len(verdicts) >= NAMES_MAX:
            break
    return verdicts
