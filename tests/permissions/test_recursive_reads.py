"""Commands that read folders recursively: starting folders, file names, hidden and ignored files."""

import pytest

from longrein.permissions import RecursiveRead, Rules, find_recursive_reads, read_deny_rule, reads_file_name
from tests.permissions.calls import HOME, ROOT

FREE = [
    *(
        "ls",
        "ls -la",
        "ls -R",
        "git status",
        "git log -p",
        "git commit -m 'grep -r all'",
        "echo grep; echo -r",
        "cat a",
    ),
    *("grep x a.py", "grep -n x a.py b.py", "find . -name '*.py'", "find . -type f | sort", "rg --files", "fd x"),
    *("find . -name '*.pyc' -exec rm {} +", "find . -delete", "tar xzf a.tgz", "tar tf a.tar", "cp a b", "zip a.zip b"),
    *("git checkout archive", "git add .", "pip install ag", "mkdir -p a/r", "diff -u a b", "git ls-files", "tree", ""),
]


@pytest.mark.parametrize("command", FREE)
def test_what_reads_only_what_it_names_is_free_of_it(command: str) -> None:
    assert find_recursive_reads(command, ROOT, HOME) == ()


def at(*paths: str, names: str = "", **flags: bool) -> RecursiveRead:
    places = tuple(path if path.startswith("/") else f"{ROOT}/{path}".rstrip("/.") for path in paths)
    return RecursiveRead(places, (ROOT,), tuple(names.split()), **flags)


SWEEPS = [
    ("grep -r x .", at(".")),
    ("grep -rn 'a b' src", at("src")),
    ("grep -R x", at()),
    ("grep --recursive x .", at(".")),
    ("grep -d recurse x .", at(".")),
    ("grep -nr -A 3 x src", at("src")),
    ("grep -r -e x src", at("src")),
    ("/usr/bin/grep -r x .", at(".")),
    ("timeout 5 grep -r x .", at(".")),
    ("bash -c 'grep -r x .'", at(".")),
    ("true && grep -r x .", at(".")),
    ("grep -r --include='*.py' x .", at(".", names="*.py")),
    ("grep -r --include '*.py' x .", at(".", names="*.py")),
    ("rgrep x .", at(".")),
    ("rg x", at(dotted=False, ignored=False)),
    ("rg src", at(dotted=False, ignored=False)),
    ("rg --hidden x", at(ignored=False)),
    ("rg -uu x lib", at("lib")),
    ("rg -g '*.py' x lib", at("lib", names="*.py", dotted=False, ignored=False)),
    ("rg -g '!a' x lib", at("lib", dotted=False, ignored=False)),
    ("git grep x", at("grep", "x", ignored=False)),
    ("git -C sub grep x", at("sub", "grep", "x", ignored=False)),
    ("git archive HEAD", at("archive", "HEAD", ignored=False)),
    ("tar czf - .", at("czf", ".")),
    ("tar -cf a.tar lib", at("a.tar", "lib")),
    ("zip -r a.zip lib", at("a.zip", "lib")),
    ("cp -r lib .", at("lib")),
    ("rsync -a lib host:x", at("lib")),
    ("find . -exec cat {} +", at(".", "cat", "{}", "+")),
    ("find . -type f | xargs cat", at(".", "f")),
    ("cat $(find lib)", at("lib")),
    ("find . | while read f; do cat $f; done", at(".")),
    ("find . -name '*.py' -exec cat {} +", at(".", "*.py", "cat", "{}", "+", names="*.py")),
    ("find . ! -name '*.md' | xargs cat", at(".", "!", "*.md")),
    ("find . -path ./out -prune -o -name '*.py' | xargs cat", at(".", "out", "*.py", names="*.py")),
    ("find . -name '*.py' -o -type f | xargs cat", at(".", "*.py", "f")),
    ("rg --files | xargs cat", at(dotted=False, ignored=False)),
    ("git ls-files | xargs cat", at("ls-files", ignored=False)),
]


@pytest.mark.parametrize(("command", "expected"), SWEEPS)
def test_what_a_command_goes_through(command: str, expected: RecursiveRead) -> None:
    assert expected in find_recursive_reads(command, ROOT, HOME)


def test_where_it_goes_after_a_cd() -> None:
    assert find_recursive_reads("cd lib && grep -r x .", ROOT, HOME) == (
        RecursiveRead((f"{ROOT}/lib",), (f"{ROOT}/lib",)),
    )
    (both,) = find_recursive_reads("true; cd /else; grep -r x", ROOT, HOME)
    assert both.otherwise == (ROOT, "/else")


def test_which_files_it_reads() -> None:
    only = at(names="*.py .env?x [ab].md {c,d}.md")
    assert [reads_file_name(only, name) for name in ("a.py", ".env-x", "a.md", "c.md", "a.rs")] == [True] * 4 + [False]
    assert reads_file_name(at(), "anything")


@pytest.mark.parametrize(
    ("rule", "reached"),
    [("Read(.env)", True), ("Read", False), ("Read(", False), ("Edit(.env)", False), ("Read(./sub/.env)", False)],
)
def test_which_rules_speak_of_what_lies_on_the_way(rule: str, reached: bool) -> None:
    rules = Rules(deny=(rule,), base=ROOT, home=HOME)
    assert read_deny_rule(f"{ROOT}/.env", f"{ROOT}/.env", rules, ROOT) == (rule if reached else "")
