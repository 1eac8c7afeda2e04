"""The two readings of shell commands against a real bash: plain words are what bash makes of them,
and whatever bash would run is reached by a deny rule. The commands are random but the same each
time.
"""

import os
import random
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from longrein.permissions.bash_parser import parse_command
from tests.permissions.calls import bash, verdict

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="bash is the oracle")

PIECES = [
    "a",
    "b",
    " ",
    "  ",
    "\t",
    "'",
    '"',
    "=",
    "-",
    ".",
    "/",
    "%",
    "^",
    "]",
    ",",
    ":",
    "@",
    "+",
    "é",
    "日",
    "\n",
    "$",
]

BEFORE = [
    *(
        "",
        "A=1 ",
        "A='b c' ",
        "A=$(echo x) ",
        "! ",
        "time ",
        "eval ",
        "exec ",
        "command ",
        "{ ",
        "( ",
        "if ",
        "true && ",
    ),
    *(
        "true;",
        "x |",
        "echo $(",
        'echo "$(',
        "echo `",
        'echo "`',
        ": <(",
        ": ${x:-$(",
        ">f ",
        "2>&1 ",
        "<<<x ",
        "until ",
    ),
    *(
        "for i in x; do ",
        "case x in x) ",
        "f() { ",
        "trap '",
        "bash -c '",
        'eval "',
        "coproc ",
        "echo x; #",
        "\n",
        "\\\n",
    ),
    *(
        'echo \\" ; ',
        "echo '\\' ; ",
        "echo $'a\\'b' ; ",
        "x=${y:-'}'}; ",
        "cat <<'E'\n'\nE\n",
        'echo "$(echo ")")" ; ',
    ),
]
NAMES = [
    *(
        "rm",
        "r''m",
        '"rm"',
        "\\rm",
        "r\\m",
        "$'rm'",
        "$'\\162m'",
        "$'\\x72\\x6d'",
        "${x}rm",
        "r$@m",
        "r${x}m",
        "r\\\nm",
    ),
    *("rm$IFS", "rm${IFS}", "${x:-}rm", "'r'\"m\"", '$"rm"', "r$*m", "r${x:+}m", "$x rm"),
]
AFTER = [
    *(
        "",
        " x",
        " x\n",
        " x;",
        " x | x",
        ">f",
        "&",
        ";true",
        " x)",
        ' x)"',
        " x`",
        ' x`"',
        " x'",
        ' x"',
        "; then x; fi",
    ),
    *(" x; done", " x ;; esac", " x }", "; }; f", " x' EXIT", "; do break; done", " x)}"),
]


def run(script: str, folder: Path) -> bytes:
    """What a bash without any program in reach writes."""
    path = folder / "script"
    path.write_bytes(script.encode("utf-8"))
    environ = {"PATH": "/nonexistent", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [BASH, "--norc", str(path)], cwd=folder, env=environ, stdout=subprocess.PIPE, check=False
    )
    return done.stdout


def test_plain_words_are_what_bash_makes_of_them(tmp_path: Path) -> None:
    deal = random.Random(4)
    texts = ["".join(deal.choices(PIECES, k=deal.randint(1, 9))) for _ in range(6000)]
    plain = []
    for text in texts:
        script = parse_command(f"p {text}", "/", "/h")
        words = script.parts[0].words if len(script.parts) == 1 else ()
        if not script.problem and words and all(word.kind == "literal" for word in words):
            plain.append((text, [word.text for word in words]))
    assert len(plain) > 1000
    said = run(
        "p() { printf '%s\\0' p \"$@\"; printf '\\1'; }\n"
        + "".join(f"p {text}\n" for text, _ in plain),
        tmp_path,
    )
    for (text, words), out in zip(plain, said.split(b"\1")[:-1], strict=True):
        assert out == b"".join(word.encode() + b"\0" for word in words), text


def test_S022_whatever_bash_runs_a_deny_rule_reaches(tmp_path: Path) -> None:
    deal = random.Random(int(os.environ.get("FUZZ_SEED", "1")))
    commands = [
        "".join(deal.choices(BEFORE, k=deal.randint(0, 3)))
        + deal.choice(NAMES)
        + "".join(deal.choices(AFTER, k=2))
        for _ in range(int(os.environ.get("FUZZ_COMMANDS", "200")))
    ]
    script = 'rm() { echo "$I" >&9; }\nexport -f rm\nexec 9>&1 >/dev/null 2>&1\n' + "".join(
        f"( ulimit -t 1; I={i}; export I; eval {shlex.quote(command)} ) </dev/null\n"
        for i, command in enumerate(commands)
    )
    ran = {int(line) for line in run(script, tmp_path).split()}
    assert len(ran) > len(commands) // 20
    for i in sorted(ran):
        assert (
            verdict(bash(commands[i]), deny="Bash(rm *)", mode="bypassPermissions").kind == "deny"
        ), commands[i]
