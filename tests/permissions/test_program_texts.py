"""Program texts of sed, awk and jq: which are known to open nothing and to run nothing."""

import pytest

from tests.permissions.calls import bash, verdict

AWK = [
    ("{print $1}", True),
    ("{print $NF, $(NF-1)}", True),
    ("NR>1 {print $2}", True),
    ("NR>=10 && NR<=20", True),
    ("NR==FNR{a[$1];next} $1 in a", True),
    ("{s+=$1} END {print s}", True),
    ('/a>b|c/ {print FILENAME ": " $0}', True),
    ("length>80", True),
    ("{ if ($3>5) print $1 }", True),
    ("{print ($1 > 5)}", True),
    ('BEGIN{FS=":"} /foo[0-9]+/{gsub(/a/,"b"); printf "%s\\n", $0}', True),
    ('BEGIN{ARGV[1]="/etc/passwd"; ARGC=2} {print}', False),
    ('{print ENVIRON["HOME"]}', False),
    ('{print > "o"}', False),
    ('{print $1 >> "o"}', False),
    ("{print NR>5}", False),
    ("{print a,\nNR>5}", False),
    ("{print a &&\nNR>5}", False),
    ("{print(1)NR>5}", False),
    ('{print | "sh"}', False),
    ('{print 1 / 2 | "sh" / 3}', False),
    ('{print x / 2 | "sh" / 3}', False),
    ('{x = a[1] / 2; print | "sh" / 3}', False),
    ('"date" | getline', False),
    ('{while ((getline line < "/etc/passwd") > 0) print line}', False),
    ('{system("x")}', False),
    ('{system ("x")}', False),
    ('{f = "system"; @f("x")}', False),
    ('@load "x"', False),
    ('@include "x"', False),
    ('BEGIN {print "x" |& "cat"}', False),
    ('BEGIN {close("x")}', False),
    ("# a comment\n{print}", False),
    ("", False),
]
JQ = [
    (".", True),
    (".a.b[0]", True),
    ('.a[] | select(.x == "y") | .z', True),
    ("{title, state, body: .body[:500]}", True),
    (".dependencies | keys[]", True),
    (". as {a:$x} | $x", True),
    ("{import, env}", True),
    ("{a: [.b], env}", True),
    ("[{a: {b}}, env]", False),
    (".import.env", True),
    ('import "a" as a {search:"/x"}; .', False),
    ('include "x" {search: "/"}; .', False),
    ("env.PATH", False),
    ("$ENV.PATH", False),
    ('"\\(env)"', False),
    ("{(env.X):1}", False),
    ("{a: env}", False),
    ("[{a}, env]", False),
    ('"x" | modulemeta', False),
    ("input_filename", False),
    ("get_search_list", False),
    ("$__prog_args", False),
]
SED = [
    ("10,20p", True),
    ("s/a/b/g;s|c|d|", True),
    ("/start/,/end/p", True),
    ("/a/!d", True),
    ("s/x/y/e", False),
    ("s/x/y/w o", False),
    ("1e touch x", False),
    ("r /etc/passwd", False),
    ("w o", False),
    ("1!w o", False),
    ("p;R x", False),
    ("{w o\n}", False),
    ("y/a/b/", False),
    ("F", False),
]


def check(command: str, known: bool) -> None:
    assert verdict(bash(command)).kind == ("allow" if known else "ask"), command
    program = command.split(maxsplit=1)[0]
    assert verdict(bash(command), allow=f"Bash({program}:*)").kind == ("allow" if known else "ask")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.mark.parametrize(("text", "known"), AWK)
def test_awk_reads_files_and_prints_and_does_nothing_else(text: str, known: bool) -> None:
    check(f"awk {quoted(text)} a.txt", known)
    check(f"awk -F: -v n=1 {quoted(text)} a.txt", known)


@pytest.mark.parametrize(("text", "known"), JQ)
def test_jq_reads_only_the_files_that_are_named(text: str, known: bool) -> None:
    check(f"jq -r {quoted(text)} a.json", known)


@pytest.mark.parametrize(("text", "known"), SED)
def test_sed_prints_and_replaces_and_does_nothing_else(text: str, known: bool) -> None:
    check(f"sed -n {quoted(text)} a.txt", known)


@pytest.mark.parametrize("command", [
    "awk -f x a",
    "awk -v ARGV=x 1 a",
    'awk "$X" a',
    "awk -v x=$X 1 a",
    "jq -f x .",
    "jq -L x .",
    'jq "$X" a',
    "jq --rawfile a b .",
    "jq .",
    "sed -f x a",
    'sed -n "$X" a',
    "sed -n 1p *",
    "sed -s 1p a",
])  # fmt: skip
def test_a_text_from_elsewhere_is_unknown(command: str) -> None:
    assert verdict(bash(command)).kind == ("allow" if command == "jq ." else "ask")
