"""What is asked: one table of calls, modes and places, judged as the agent judges them, and the
same table in docs/permissions.md.
"""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from longrein.agent import Answer, OpenSession
from longrein.agent.current_rules import current_rules
from longrein.agent.permission_check import call_verdict
from longrein.agent.session import Approvals, Session
from longrein.choices import MODE_TEXTS, MODES
from longrein.permissions import Rules
from longrein.settings_schema import SandboxOptions
from longrein.workspace.sandbox import SessionSandbox
from longrein.workspace.sandbox.rung import Rung
from longrein_context.events import PermissionAsked
from tests.agent.disk_harness import DiskHarness, Script
from tests.tables import read_rows

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs/permissions.md"
WORDS = {"allow": "runs", "ask": "asks", "deny": "refused"}
ANYWHERE = ("no sandbox", "sandbox", "sandbox, gate")
COLUMNS = ("default", "acceptEdits", "auto", "plan", "dontAsk", "bypassPermissions")

Arguments = dict[str, str]
READS = ("ls | head -3", "grep -rn x . && git log --oneline", "cat a.txt 2>/dev/null")
SAYS = (
    "echo x > a.txt", "printf x >> a.txt", "rm a.txt", "mv a.txt b.txt", "cp a.txt b.txt",
    "sed -i s/a/b/ a.txt", "echo x | tee a.txt", "touch new.txt", "mkdir -p build",
    "cd sub; cat > x <<E\nx\nE", "truncate -s0 a.txt",
    "echo $(rm a.txt)", "bash -c 'echo x > a.txt'",
)  # fmt: skip
SAYS_MORE = (
    "git commit -m x", "git add -A && git commit -m x", "git checkout -- a.txt", "chmod +x a.txt",
    "git -C sub reset --hard", "npm test > a.txt", "rm -rf $X", "find . -delete", "patch -p1",
    "ln -s a.txt b.txt", "python3 -c 1 && rm a.txt", "(cd sub && git stash)", "sed -i 1e a.txt",
    "ls | xargs rm", "cd $X; echo x > a.txt",
)  # fmt: skip
UNKNOWN = (
    "make", "npm test", "python3 x.py", "./configure", "pytest 2>&1 | tail -5", "$X", "cat $X",
    "cargo build > /dev/null", "git push", "echo a <<", "sort -o", "make > /tmp/log",
)  # fmt: skip
LATER = ("touch .husky/pre-commit", "echo x > .envrc", "cp a.txt .github/workflows/ci.yml")


def commands(lines: tuple[str, ...], **more: str) -> tuple[Arguments, ...]:
    return tuple({"command": text, **more} for text in lines)


CALLS: dict[str, tuple[Arguments, ...]] = {
    "reads": ({"file_path": "a.txt"}, *commands(READS)),
    "writes": ({"file_path": "new.txt", "content": "x"}, {"file_path": "sub/x", "content": "x"}),
    "says": commands(SAYS),
    "says more": commands(SAYS_MORE),
    "unknown": commands(UNKNOWN),
    "leaves": commands(("make", "ls", SAYS[0]), outside_sandbox="x"),
    "writes what is obeyed": (
        *({"file_path": path, "content": "x"} for path in (".envrc", ".git/config")),
    ),
    "later": commands(LATER),
    "outside": ({"file_path": "/etc/x.conf", "content": "x"},),
}
ROWS = read_rows("""
reads inside the folders: a tool, or a command that only reads =>
    anywhere => runs runs runs runs runs runs => reads
changes a file: `Edit`, `Write` => anywhere => asks runs runs refused refused runs => writes
changes a file: a command that says so (`>`, `rm`, `mv`, `cp`, `sed -i`, `tee` …) =>
    anywhere => asks runs runs refused refused runs => says
changes files longrein cannot list beforehand (`git commit`, `rm $X`, `npm test > log`) =>
    sandbox => asks runs runs refused refused runs => says more
the same => sandbox, gate => asks asks runs refused refused runs => says more
the same => no sandbox => asks asks asks refused refused runs => says more
runs another program (`make`, `npm test`), or cannot be read =>
    sandbox => runs runs runs refused runs runs => unknown
the same => sandbox, gate => asks asks runs refused refused runs => unknown
the same => no sandbox => asks asks asks refused refused runs => unknown
leaves the sandbox (`outside_sandbox`) =>
    sandbox and sandbox, gate => asks asks asks refused refused asks => leaves
changes what is obeyed later: `Edit`, `Write` =>
    anywhere => asks asks asks refused refused asks => writes what is obeyed
changes what is obeyed later: a command that says so =>
    sandbox => asks runs runs refused refused runs => later
the same => sandbox, gate => asks asks runs refused refused runs => later
the same => no sandbox => asks asks asks refused refused runs => later
reads or changes files outside the folders: a tool =>
    anywhere => asks asks asks refused refused runs => outside
""")
"""What a call does, where it is judged so, the outcome in each mode, calls of this kind."""


def new_harness(folder: Path) -> DiskHarness:
    harness = DiskHarness(folder)
    (harness.tree / "a.txt").write_text("a\n")
    (harness.tree / "sub").mkdir()
    return harness


def sandbox_of(harness: DiskHarness, rung: str = "bubblewrap") -> SessionSandbox:
    """Return a sandbox that counts as working; nothing is run in it here."""
    (harness.tree.parent / "session").mkdir(exist_ok=True)
    sandbox = SessionSandbox(
        SandboxOptions("off"),
        folder=str(harness.tree.parent / "session"),
        home=str(harness.tree.parent / "home"),
        state_dir=str(harness.state),
        environ=os.environ,
        roots=[str(harness.tree)],
    )
    sandbox.rung = Rung(rung, "chosen by the test")
    return sandbox


def opened(harness: DiskHarness, mode: str, where: str, **rules: tuple[str, ...]):  # type: ignore[no-untyped-def]
    """Open a session in a mode: `no sandbox`, `sandbox`, `landlock`, or one `, gate`."""
    parts: dict[str, object] = {"gated": where.endswith(", gate")}
    if where != "no sandbox":
        rung = "landlock" if where == "landlock" else "bubblewrap"
        parts["sandbox"] = sandbox_of(harness, rung)
    found = Rules(base=str(harness.tree), home="/home/ann", **rules)
    return harness.session(Script(), rules=found, mode=mode, **parts)


def tool_of(arguments: Arguments) -> str:
    if "command" in arguments:
        return "Bash"
    return "Write" if "content" in arguments else "Read"


def outcome(session: OpenSession, arguments: Arguments) -> str:
    tool = session.deps.tools[tool_of(arguments)]  # type: ignore[attr-defined]
    return WORDS[call_verdict(current_rules(session), tool, dict(arguments)).kind]  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ANYWHERE)
async def test_what_is_asked_in_each_mode(tmp_path: Path, where: str) -> None:
    harness, wrong = new_harness(tmp_path), []
    for column, mode in enumerate(COLUMNS):
        harness.state = tmp_path / mode
        async with opened(harness, mode, where) as session:
            for name, places, outcomes, calls in ROWS:
                wanted = outcomes.split()[column]
                is_here = places == "anywhere" or where in places.split(" and ")
                wrong += [
                    (mode, name, arguments, found)
                    for arguments in CALLS[calls]
                    if is_here and (found := outcome(session, arguments)) != wanted
                ]
    assert wrong == []


async def test_the_client_is_asked_no_more_than_a_user_where_it_wants_so(tmp_path: Path) -> None:
    harness = new_harness(tmp_path)
    async with opened(harness, "default", "sandbox") as session:
        assert outcome(session, {"command": "make"}) == "runs"
        assert outcome(session, {"command": "rm a.txt"}) == "asks"


def table() -> str:
    """Return the table as docs/permissions.md shows it."""
    head = ["what the call does", "where", *(f"`{mode}`" for mode in COLUMNS)]
    rows = [head, ["---"] * len(head)]
    for name, places, outcomes, _ in ROWS:
        where = "" if places == "anywhere" else places
        where = where.replace(", gate", "; an SDK or editor answers")
        rows.append([name, where, *outcomes.split()])
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)


def test_the_docs_show_this_table() -> None:
    assert set(COLUMNS) == set(MODES)
    page = DOCS.read_text(encoding="utf-8")
    assert table() in page
    assert [mode for mode in MODES if f"| `{mode}` | {MODE_TEXTS[mode]} |" not in page] == []


LASTING = [
    # command or file, lasting rules, whether "all edits" is offered
    ({"file_path": "a.txt", "content": "x"}, ("Edit(/{root}/a.txt)",), True),
    ({"command": "echo x > a.txt"}, ("Edit(/{root}/a.txt)",), True),
    ({"command": "npm test > a.txt"}, ("Edit(/{root}/a.txt)",), True),
    ({"file_path": "src/a/b.txt", "content": "x"}, ("Edit(src/**)",), True),
    ({"command": "echo x > src/a.txt"}, ("Edit(src/**)",), True),
    ({"file_path": "src/.env", "content": "x"}, ("Edit(/{root}/src/.env)",), True),
    ({"command": "git commit -m x"}, ("Bash(git commit:*)",), True),
    ({"command": "touch a.txt && make"}, ("Bash(touch a.txt)",), True),
    ({"command": "rm -rf $X"}, (), True),
    ({"command": "make", "outside_sandbox": "x"}, (), False),
    ({"file_path": ".envrc", "content": "x"}, (), False),
    ({"file_path": "/etc/x.conf", "content": "x"}, ("Edit(//etc/x.conf)",), False),
]


async def test_a_command_offers_the_lasting_answers_of_an_edit(tmp_path: Path) -> None:
    harness, wrong = new_harness(tmp_path), []
    async with opened(harness, "default", "sandbox") as session:
        for arguments, rules, edits in LASTING:
            tool = session.deps.tools[tool_of(arguments)]
            found = call_verdict(current_rules(session), tool, dict(arguments))
            wanted = tuple(rule.format(root=harness.tree) for rule in rules)
            if (found.kind, found.suggestions, found.edits) != ("ask", wanted, edits):
                wrong.append((arguments, found.suggestions, found.edits))
    assert wrong == []


async def test_a_rule_for_edits_covers_the_commands_that_make_them(tmp_path: Path) -> None:
    harness = new_harness(tmp_path)
    for where in ("no sandbox", "sandbox"):
        harness.state = tmp_path / where
        async with opened(
            harness, "default", where, allow=("Edit(/sub/**)", "Read(//etc/**)")
        ) as s:
            assert outcome(s, {"file_path": "sub/x", "content": "x"}) == "runs"
            assert outcome(s, {"command": "echo x > sub/x && rm sub/x"}) == "runs"
            assert outcome(s, {"command": "cat /etc/x.conf"}) == "runs"
            assert outcome(s, {"command": "echo x > a.txt"}) == "asks"
            assert outcome(s, {"command": "echo x > sub/.envrc"}) == "asks"


def test_a_yes_in_a_worktree_holds_in_the_worktree() -> None:
    """The question was judged by the rules of the subagent, whose base is its worktree."""
    worktree = Rules(base="/state/worktrees/w1")
    session = SimpleNamespace(approvals=Approvals(), rules=worktree, notice=lambda _line: None)
    question = PermissionAsked("c1", "Edit", "", "", "Edit(src/**)")
    answer = Answer("c1", "allow", scope="session", rule="Edit(src/**)")
    stored = Session.grant(session, answer, question).rule  # type: ignore[arg-type]
    assert stored == "Edit(//state/worktrees/w1/src/[!.]*)", "the answer names it as it is stored"
    assert session.approvals.rules == ("Edit(//state/worktrees/w1/src/[!.]*)",)
