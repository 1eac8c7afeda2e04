"""Task tools: one line per task, and the result of `Bash` for a command in the background."""

import pytest

from longrein.tools import BackgroundedCommand, TaskView
from longrein.tools.background_tasks import task_line
from longrein.tools.bash import background_message
from tests.tables import read_rows

WAITING = TaskView("b1", "running", "init", 50, 9, silent_s=45.2, waits_for_input="name ")
STANDS = f"""
b1 running, for 12.0 s; 3.4 kB of output: `npm test`
b1 running, for 50.0 s; 9 bytes of output, silent for 45 s: `init`; it seems to wait for input: name
b2 done, exit code 0, after 1.5 s: `make`
b2 failed, exit code 2, after 1.5 s; 10 bytes of output, all of it: Recall r7: `make`
b3 timed out, its time limit of 5 s, after 5.0 s: `sleep 99`
b4 queued, waits for its turn: `ls`
a7.b1 lost, gone: `x y{"z" * 96}…`
"""


def test_how_a_task_stands() -> None:
    views = [
        TaskView("b1", "running", "npm test", 12.04, 3_400),
        WAITING,
        TaskView("b2", "done", "make", 1.5, code=0),
        TaskView("b2", "failed", "make", 1.5, 10, code=2, handle="r7"),
        TaskView("b3", "timed_out", "sleep 99", 5, cause="its time limit of 5 s"),
        TaskView("b4", "queued", "ls", cause="waits for its turn"),
        TaskView("a7.b1", "lost", "x\ny" + "z" * 200, cause="gone"),
    ]
    assert [task_line(view) for view in views] == STANDS.strip().splitlines()


@pytest.mark.parametrize(("why", "state", "printed", "text"), read_rows("""
asked => running =>  => Started in the background as b1. {look} Do not wait for it: go on.
asked => queued =>  =>
    Queued as b1: as many tasks as may run at once do. It starts when one ends. {look}
timeout => running => a => a⏎[not over after 120 s: it goes on in the background as b1. {look}]
user => running =>  => [the user sent it to the background: it goes on as b1. {look}]
"""))  # fmt: skip
def test_a_command_that_goes_on(why: str, state: str, printed: str, text: str) -> None:
    look = (
        "A note tells its end; until then TaskOutput shows what it prints and TaskStop(b1) ends it."
    )
    found = background_message(BackgroundedCommand(TaskView("b1", state, "x"), why), printed, 120.0)
    assert found == text.format(look=look)


@pytest.mark.parametrize(("program", "commands"), [
    ("tail", ["tail -f x", "tail -n 5 -f x", "tail -fn5 x", "cd a && tail -F x"]),
    ("tail", ["tail --follow=name x"]),
    ("watch", ["watch date", "make; watch -n 1 'ls -l'"]),
    ("journalctl", ["journalctl -u app -f"]),
    ("", ["tail x", "tail -n 5 x-f", "tail -f x | grep -m1 done", "timeout 9 tail -f x"]),
    ("", ["watchman", "make watch"]),
])  # fmt: skip
def test_a_command_that_never_ends_by_itself_is_called_so(
    program: str, commands: list[str]
) -> None:
    for command in commands:
        told = background_message(
            BackgroundedCommand(TaskView("b1", "running", command), "timeout"), "", 120.0
        )
        begins = f"[{program} never ends by itself; not over" if program else "[not over"
        assert told.startswith(f"{begins} after 120 s: it goes on in the background as b1."), (
            command
        )
