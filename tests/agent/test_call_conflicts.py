"""Which calls of one reply run at the same time, and which keep the order of the reply."""

from pathlib import Path

import pytest

from longrein.agent.call_conflicts import command_footprint, in_conflict
from longrein.permissions import join_path, read_command
from longrein.settings_schema import ToolOptions
from longrein_context import Request
from tests.agent.disk_harness import DiskHarness, Script, call, results, says
from tests.tables import cases


def conflict(first: str, second: str) -> bool:
    """Whether two commands in /w keep their order."""
    prints = [
        command_footprint(
            read_command(text, "/w", "/home/u"), "/w", lambda path, folder: join_path(folder, path)
        )
        for text in (first, second)
    ]
    return in_conflict(*prints)


BESIDE = """\
sleep 1; echo x ~ sleep 1; echo x
make test ~ pytest -q tests 2>&1 | tail -5
cd /w && make test ~ cd /w && sleep 1 2>&1 | tail -1 || echo failed
cd /srv/app && make test ~ cd /srv/web && npm test
for i in 1 2 3; do curl -s http://localhost/$i; done ~ cargo build --release
i=1; while [ $i -lt 5 ]; do i=$((i+1)); sleep 1; done ~ make
python3 -c 'print(1 > 0)' ~ awk '$3 > 5 {print $1}' data.txt
git status && git diff HEAD~1 | grep -c '^+' ~ git log --oneline | head
ls missing 2>/dev/null || echo none ~ go test ./...
find . -name '*.py' -exec wc -l {} + ~ sed -n 1,20p a.py
pip list ~ FOO=1 ./run.sh
echo x > a.txt ~ echo y > b.txt
rm -r build ~ cat src/a.py
mkdir -p out ~ grep -rn x src
sed -i s/a/b/ a.py ~ wc -l b.py
cp a b ~ sleep 1
echo x > out ~ cat outer
rm a ~ rm b
"""

IN_ORDER = """\
rm x ~ cat x
rm -r src ~ cat src/a.py
touch src/a.py ~ ls src
touch a ~ ls
rm x ~ make test
make test ~ rm -r build
echo x > file ~ cat file
echo x > file ~ python3 use.py
echo x >> file ~ echo y >> file
python3 gen.py > in ~ python3 use.py < in
mv a b ~ cp b c
cp a b ~ cat b
sed -i s/a/b/ a.py ~ wc -l a.py
touch x ~ test -f x && echo there
touch x ~ [ -f x ] && echo there
rm "$FILE" ~ cat other
git commit -qm x ~ git log
git add a.py ~ git commit -m x
git -C sub checkout main ~ make
git stash ~ cat a.py
git diff --output=x ~ cat x
rm a.py ~ git status
pip install -e . ~ pytest
python -m pip install x ~ python use.py
sudo apt-get install -y jq ~ jq . a.json
npm ci ~ npm test
cd web && yarn ~ make
uv sync ~ pytest
cargo add serde ~ cargo build
python -m venv .venv ~ .venv/bin/python x.py
bash -c 'echo x > file' ~ cat file
echo "$(echo x > file)" ~ cat file
cat a | tee b ~ cat b
find . -name '*.pyc' -delete ~ ls
find . -name '*.pyc' | xargs rm ~ ls
find . -name '*.pyc' -exec rm {} + ~ ls
sort -o a a ~ cat a
perl -pi -e s/a/b/ a.py ~ cat a.py
curl -o file http://localhost/ ~ cat file
tar xf a.tgz ~ ls
unzip a.zip ~ make
chmod +x run.sh ~ ./run.sh
pkill -f server ~ ./server
cd sub ~ ls
cd sub && make ~ make
pushd sub ~ ls
eval "$SETUP" ~ make
rm ../w/x ~ cat x
rm * ~ cat x
cd sub && rm x ~ cat /w/sub/x
"""


@cases(
    "pair expect",
    *((line, False) for line in BESIDE.splitlines()),
    *((line, True) for line in IN_ORDER.splitlines()),
)
def test_commands_keep_their_order_where_one_writes_what_the_other_reads(
    pair: str, expect: bool
) -> None:
    first, second = pair.split(" ~ ")
    assert conflict(first, second) is expect


def test_a_command_too_long_to_be_read_runs_alone() -> None:
    assert conflict("echo " + "x" * 30_000, "sleep 1")


async def outcomes(harness: DiskHarness, *commands: str, **more: object) -> list[str]:
    """Results of a reply with these `Bash` calls."""
    model = Script(says(*(call("Bash", command=command) for command in commands)), says("done"))
    await harness.play(model, "go", **more)
    last: Request = model.requests[1]
    return results(last)


MEETING = [f"python3 {name}" for name in ("a.py", "b.py")]
PROGRAM = """\
import pathlib, sys, time
pathlib.Path("met_{me}").touch()
for _ in range({rounds}):
    if pathlib.Path("met_{other}").exists():
        sys.exit("met")
    time.sleep(0.02)
sys.exit("alone")
"""


def write_programs(tree: Path, rounds: int) -> None:
    """Write two programs that wait for each other, at most `rounds` times 20 ms."""
    for me, other in (("a", "b"), ("b", "a")):
        (tree / f"{me}.py").write_text(PROGRAM.format(me=me, other=other, rounds=rounds))


@pytest.mark.anyio
async def test_programs_of_one_reply_run_at_the_same_time(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path)
    write_programs(harness.tree, 1_000)
    compound = [f"cd {harness.tree} && {program} 2>&1 | tail -1; echo end" for program in MEETING]
    for commands in (MEETING, compound):
        for left in harness.tree.glob("met_*"):
            left.unlink()
        shown = await outcomes(harness, *commands, create=not harness.state.exists())
        assert [("met" in one, "alone" in one) for one in shown[-2:]] == [(True, False)] * 2


@pytest.mark.anyio
async def test_a_setting_runs_all_calls_in_order(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path)
    write_programs(harness.tree, 5)
    shown = await outcomes(harness, *MEETING, options=ToolOptions(parallel_calls=False))
    assert ["alone" in shown[0], "met" in shown[1]] == [True, True]


@pytest.mark.anyio
async def test_writers_and_what_reads_their_files_keep_order_of_the_reply(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path)
    commands = [
        "sleep 0.2; echo one > f",
        "sh show.sh",
        "sleep 0.1; rm f",
        "cat f || echo gone",
        "echo two > f",
    ]
    (harness.tree / "show.sh").write_text("cat f\n")
    shown = await outcomes(harness, *commands, "cat f")
    assert [one.rpartition("\n")[2] for one in shown] == [
        *("Bash ok: (no output)", "Bash ok: one", "Bash ok: (no output)", "gone"),
        *("Bash ok: (no output)", "Bash ok: two"),
    ]
