"""A10 permission rules: paths judged by git, whose pattern syntax they have, and command lines
split by bash.
"""

import subprocess
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.permissions import Call, Rules, Touched, judge
from tests.permissions.calls import bash, verdict
from tests.tables import split_words

WORDS = ("a", "b", "src", ".env", "x.py", "y.test.py", "a b", "ä")
PATHS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map("/".join)
PATTERNS = (
    st.lists(
        st.sampled_from(split_words("a b src .env *.py x.* ** * ? [ab] *.test.py ä s*c")),
        min_size=1,
        max_size=4,
    )
    .map("/".join)
    .flatmap(lambda text: st.sampled_from([text, f"{text}/", f"{text}/**", f"**/{text}"]))
)


def covered(tool: str, pattern: str, path: str, cwd: Path) -> bool:
    """Whether a rule to deny reads, or to allow edits, covers a path."""
    whole = f"{cwd}/{path}"
    touched = (Touched(whole, whole, whole, inside=True, writes=tool == "Edit"),)
    call = Call(tool, {"file_path": whole}, "write" if tool == "Edit" else "read", touched, tool)
    rule = (f"{tool}({pattern})",)
    rules = Rules(*((rule, (), ()) if tool == "Edit" else ((), (), rule)), str(cwd), "/home/ann")
    return judge(call, rules, "default", str(cwd)).kind == ("allow" if tool == "Edit" else "deny")


def ignored(pattern: str, paths: list[str], cwd: Path) -> set[str]:
    """The paths that git ignores by a pattern."""
    (cwd / ".gitignore").write_text(f"{pattern}\n", encoding="utf-8")
    ran = subprocess.run(
        ["git", "-c", "core.quotePath=false", "check-ignore", "--no-index", "-z", "--stdin"],
        input="\0".join(paths),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    return set(ran.stdout.split("\0")) - {""}


@given(pattern=PATTERNS, paths=st.lists(PATHS, min_size=5, max_size=12, unique=True))
@settings(max_examples=60, deadline=None)
def test_A10_rules_cover_what_git_ignores_by_same_pattern(pattern: str, paths: list[str]) -> None:
    with tempfile.TemporaryDirectory() as made:
        cwd = Path(made).resolve()
        subprocess.run(["git", "init", "-q", str(cwd)], check=True)
        if "?" in pattern or "[" in pattern:
            # git compares bytes: `?` does not match `ä`
            paths = [path for path in paths if path.isascii()]
        theirs = ignored(pattern, paths, cwd)
        # Whether a path is a folder is not known here: to deny, it counts as one.
        as_folder = ignored(pattern.removesuffix("/").removesuffix("/**"), paths, cwd)
        denied = {path for path in paths if covered("Read", pattern, path, cwd)}
        assert theirs <= denied <= theirs | as_folder
        assert {path for path in paths if covered("Edit", pattern, path, cwd)} == theirs


LINES = st.lists(
    st.tuples(
        st.sampled_from(
            ["ok 1", "ok 'a; b'", 'ok "$(ok 2)"', "bad 1", "ok a#b", "ok \\; c", "ok '&&' d"]
        ),
        st.sampled_from([" && ", " || ", "; ", " | ", " |& ", " & ", "\n"]),
    ),
    min_size=1,
    max_size=4,
).map(lambda parts: "".join(f"{part}{sign}" for part, sign in parts[:-1]) + parts[-1][0])


@given(line=LINES)
@settings(max_examples=60, deadline=None)
def test_A10_a_line_is_allowed_only_if_bash_starts_nothing_else(line: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        for name, code in (("ok", "exit 0"), ("bad", "exit 0")):
            (Path(made) / name).write_text(f'#!/bin/bash\necho {name} >> "{made}/ran"\n{code}\n')
            (Path(made) / name).chmod(0o755)
        for failing in (0, 1):  # both ways past `&&` and `||`
            (Path(made) / "ok").write_text(
                f'#!/bin/bash\necho ok >> "{made}/ran"\nexit {failing}\n'
            )
            subprocess.run(
                ["bash", "-c", f"{line}\nwait"],
                env={"PATH": f"{made}:/usr/bin:/bin"},
                capture_output=True,
                check=False,
            )
        started = set((Path(made) / "ran").read_text().split())
        allowed = verdict(bash(line), allow="Bash(ok *)").kind == "allow"
        assert not allowed or started == {"ok"}, line
        assert allowed or "bad" in line or "$(" in line, line  # `$(…)` is not read
