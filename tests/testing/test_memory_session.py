"""Memory workspace compared with the plain one, and sessions built from doubles."""

import os
from pathlib import Path

import pytest

from lab.support.spawner import spawner_in
from longrein.agent import Answer, OpenSession, UserMessage
from longrein.permissions import Rules
from longrein.testing.clock import run_virtual
from longrein.testing.harness import Answers, Approver, memory_dependencies, open_test_session
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein.testing.store import MemoryDisk
from longrein.testing.workspace import MemorySpawner, MemoryWorkspace
from longrein.workspace import Workspace, open_workspace
from longrein_context.events import PermissionAsked, Text, ToolEnded

FILES = {
    "a.py": "a = 1\n",
    "src/b.py": "b\n",
    "src/c.log": "log\n",
    ".gitignore": "*.log\nbuild/\n",
    "build/x.py": "",
}
LINKS = {"link.py": "a.py", "out": "/var", "loop": "loop", "in": "src"}


def plain(folder: Path) -> Workspace:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, target in LINKS.items():
        os.symlink(target, folder / name)
    return open_workspace(
        (str(folder),), spawner=spawner_in(folder.parent / "spool"), environment={}
    )


def memory(root: str) -> Workspace:
    files = {f"{root}/{name}": text for name, text in FILES.items()}
    return MemoryWorkspace(
        {**files, "/var/tmp/x": ""},
        roots=(root,),
        links={f"{root}/{n}": t for n, t in LINKS.items()},
    )


LOOKED = [
    "a.py",
    "src",
    "in/b.py",
    "link.py",
    "out/tmp",
    "../x",
    "./src/../a.py",
    "none/x",
    "loop/x",
    "a\0b",
    "",
    "/",
]


def looked(space: Workspace, root: str) -> list[tuple[object, ...]]:
    places = [space.resolve(path, root) for path in LOOKED]
    return [
        (p.given, p.path, p.inside, p.kind)
        + ((p.real, p.size_bytes) if "loop" not in p.given else ())
        for p in places
    ]


def attempt(space: Workspace, act: str, path: str, **more: str) -> str:
    try:
        match act:
            case "read":
                return space.read(path).decode()
            case "write":
                space.replace(path, b"new", expect=more.get("expect", space.hash(path)))
            case _:
                space.remove(path)
    except OSError as error:
        return type(error).__name__
    return space.hash(path)[:6]


ACTS = [
    ("read", "a.py", {}),
    ("read", "src", {}),
    ("read", "none.py", {}),
    ("write", "a.py", {"expect": ""}),
    ("read", "a.py", {}),
    ("write", "new/deep.py", {"expect": ""}),
    ("write", "src", {}),
    ("remove", "link.py", {}),
    ("read", "a.py", {}),
    ("remove", "a.py", {}),
    ("remove", "a.py", {}),
]


def walked(space: Workspace, root: str) -> list[str]:
    found: list[str] = []

    def visit(path: str, is_folder: bool) -> bool:
        found.append(path[len(root) :] + "/" * is_folder)
        return True

    assert space.walk(root, visit)
    return found


def test_files_in_memory_are_as_files_on_disk(tmp_path: Path) -> None:
    root = str(tmp_path)
    real, double = plain(tmp_path), memory(root)
    assert looked(double, root) == looked(real, root)
    assert walked(double, root) == walked(real, root)
    for act, name, more in ACTS:
        outcome = (
            attempt(double, act, f"{root}/{name}", **more),
            attempt(real, act, f"{root}/{name}", **more),
        )
        assert outcome[0] == outcome[1], (act, name)
    assert walked(double, root) == walked(real, root)


# --- whole sessions -------------------------------------------------------------------------------


async def say(session: OpenSession, *prompts: str) -> None:
    for prompt in prompts:
        session.tell(UserMessage((Text(prompt),)))
        await session.run(once=True)
    await session.close()


def ask(question: PermissionAsked) -> Answer:
    return Answer(question.call, "deny", message=f"not {question.name} today")


ANSWERED: list[tuple[Answers | None, list[str]]] = [
    (None, ["denied"]),
    ({"Bash": "deny", "make": "allow"}, ["ok"]),
    ({"Bash": "session"}, ["ok"]),
    (ask, ["denied"]),
]


@pytest.mark.parametrize(("answers", "statuses"), ANSWERED)
def test_the_approver_answers_by_its_table(answers: Answers | None, statuses: list[str]) -> None:
    disk = MemoryDisk()
    model = ScriptedModel(says(call("Bash", command="make")), says("ok"))
    deps = memory_dependencies(
        model,
        disk,
        workspace=MemoryWorkspace(spawner=MemorySpawner({"make": "made\n"})),
        rules=Rules(),
    )
    approver = Approver(answers)

    async def main() -> None:
        session = open_test_session(model, disk=disk, deps=deps)
        async with approver.answering(session):
            await say(session, "make it")

    run_virtual(main())
    assert [q.shown for q in approver.asked] == ["make"]
    assert [e.event.status for e in disk.entries() if isinstance(e.event, ToolEnded)] == statuses
