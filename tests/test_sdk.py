"""The public names of longrein, and `Session` as an agent inside a program."""

import ast
import asyncio
import json
import pydoc
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longrein
from longrein import Session, TurnFailed, UsageError
from longrein.frontends.subcommands import MAIN
from longrein.models import Failure
from longrein.sdk import library_words
from longrein.testing.loopback import LoopbackProvider, Turn
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein_context import events
from longrein_context.events import PermissionAsked, Replied, Text, ToolSpec, TurnEnded
from tests.tables import cases, record

pytestmark = pytest.mark.anyio


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of `open` for a session in a temporary folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return {"folder": str(tmp_path), "state_dir": str(tmp_path / "state")}


def tools_sent(model: ScriptedModel) -> list[str]:
    specs: tuple[ToolSpec, ...] = model.requests[-1].prefix.tools
    return [spec.name for spec in specs]


# --- Public names ---------------------------------------------------------------------------------


def test_dir_and_help_show_the_public_names() -> None:
    assert set(longrein.__all__) < set(dir(longrein))
    page = pydoc.plain(pydoc.render_doc(longrein))
    for name in ("Session", "engine(", "tool(", "UsageError", "VERSION"):
        assert name in page, name


def test_the_version_is_that_of_the_installed_package() -> None:
    code = (
        "import importlib.metadata as m, longrein; print(m.version('longrein') == "
        "longrein.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    assert re.fullmatch(r"\d+\.\d+\.\d+", longrein.__version__)


def test_every_error_of_the_tree_can_be_caught_by_its_public_name() -> None:
    def below(error: type) -> set[str]:
        return {
            error.__name__,
            *(name for child in error.__subclasses__() for name in below(child)),
        }

    tree = {name for name in below(longrein.LongreinError) if not name.startswith("_")}
    public = {name for name in longrein.__all__ if isinstance(getattr(longrein, name), type)}
    assert {name for name in tree if hasattr(events, name)} <= public | {"Session"}


def test_the_engine_imports_no_package_but_msgspec() -> None:
    """A program that uses the engine alone imports no terminal, HTTP or command line package."""
    code = """
import sys, importlib.abc, importlib.metadata
class Refuse(importlib.abc.MetaPathFinder):
    names = {"rich", "prompt_toolkit", "httpx2", "httpcore2", "h11", "psutil", "pathspec", "platformdirs"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"the engine needs {name}")
sys.meta_path.insert(0, Refuse())
import longrein, tempfile
with tempfile.TemporaryDirectory() as folder:
    with longrein.engine("openai/gpt-5", state_dir=folder, session="s") as engine:
        engine.prepare([{"role": "user", "content": "hi"}])
        engine.recall("r3")
print(sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}))
"""  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-S", "-c", _with_path(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"'(\w+)'", done.stdout)) <= {
        "longrein",
        "longrein_context",
        "msgspec",
        "typing_extensions",
    }


def _with_path(code: str) -> str:
    return f"import sys; sys.path[:] = {[path for path in sys.path if path]!r}\n{code}"


# --- One prompt -----------------------------------------------------------------------------------


async def test_open_can_be_awaited_too(here: dict[str, Any]) -> None:
    session = await Session.open(ScriptedModel(says("Yes.")), **here)
    async with session:
        assert await session.ask("Are you there?") == "Yes."
    async with Session.resume(
        session.id, ScriptedModel(says("Still.")), state_dir=here["state_dir"]
    ) as again:
        assert await again.ask("And now?") == "Still."


@pytest.mark.parametrize("trust", [False, True])
async def test_files_are_used_only_with_trust(
    tmp_path: Path, here: dict[str, Any], trust: bool
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("answer in verse\n")
    model = ScriptedModel(says("a rose"))
    async with Session.open(model, **{**here, "folder": str(project)}, trust=trust) as session:
        await session.ask("go")
    assert ("answer in verse" in "".join(model.requests[-1].prefix.context)) is trust


async def test_the_answer_is_the_last_reply_after_the_tools(here: dict[str, Any]) -> None:
    model = ScriptedModel(says("I look.", call("Glob", pattern="*")), says("Nothing here."))
    async with Session.open(model, **here) as session:
        assert await session.ask("What is here?") == "Nothing here."


async def test_a_call_is_denied_unless_somebody_approves(here: dict[str, Any]) -> None:
    def script() -> ScriptedModel:
        return ScriptedModel(says(call("Write", file_path="n.txt", content="one")), says("Done."))

    note = Path(here["folder"]) / "n.txt"
    async with Session.open(script(), **here) as session:
        assert await session.ask("Write it.") == "Done."
        assert not note.exists()
    async with Session.open(script(), **here) as session:
        shown: list[str] = []

        def approve(asked: PermissionAsked) -> bool:
            shown.append(asked.name)
            return True

        assert await session.ask("Write it.", approve=approve) == "Done."
        assert shown == ["Write"]
        assert note.read_text() == "one"
    note.unlink()
    async with Session.open(script(), allow=["Write"], **here) as session:
        await session.ask("Write it.")
        assert note.read_text() == "one"


async def test_an_awaitable_approval_is_awaited(here: dict[str, Any]) -> None:
    async def approve(_asked: PermissionAsked) -> bool:
        await asyncio.sleep(0)
        return False

    model = ScriptedModel(
        says(call("Write", file_path="n.txt", content="one")), says("As you like.")
    )
    async with Session.open(model, **here) as session:
        assert await session.ask("Write it.", approve=approve) == "As you like."


async def test_a_turn_without_an_answer_says_why(here: dict[str, Any]) -> None:
    steps = [says(call("Glob", pattern="*")) for _ in range(4)]
    async with Session.open(ScriptedModel(*steps), max_turns=2, **here) as session:
        with pytest.raises(TurnFailed, match="2") as limit:
            await session.ask("Look for ever.")
        assert limit.value.reason == "limit"
    refused = ScriptedModel(Failure("auth", status=401, message="the key is wrong"))
    async with Session.open(refused, **here) as session:
        with pytest.raises(TurnFailed, match="the key is wrong") as failed:
            await session.ask("Hello?")
        assert failed.value.reason == "error"


# --- Tools and settings of a session --------------------------------------------------------------


@longrein.tool(access="none")
async def Double(number: int) -> str:
    """Double a number.

    number: The number.
    """
    return str(2 * number)


async def read_number() -> int:
    """Read a number."""
    return 4


@longrein.tool
async def Read(file: str) -> str:
    """Read in another way."""
    return file


@cases(
    "chosen sent",
    ((), ["Double"]),
    (("Read",), ["Read", "Double"]),
    (("Grep", "Read"), ["Read", "Grep", "Double"]),
)
async def test_tools_are_chosen_by_name_also_after_a_resume(
    chosen: tuple[str, ...], sent: list[str], here: dict[str, Any]
) -> None:
    model = ScriptedModel(says(call("Double", number=4)), says("8"))
    async with Session.open(model, tools=[Double], builtin_tools=chosen, **here) as session:
        assert await session.ask("Double 4.") == "8"
        assert tools_sent(model) == sent
    model = ScriptedModel(says("Still 8."))
    options: dict[str, Any] = record(
        tools=[Double], builtin_tools=chosen, state_dir=here["state_dir"]
    )
    async with Session.resume(session.id, model, **options) as again:
        assert await again.ask("Sure?") == "Still 8."
        assert tools_sent(model) == sent


async def test_instructions_come_after_system_prompt_or_in_its_place(here: dict[str, Any]) -> None:
    model = ScriptedModel(says("Ahoy."), says("Ahoy."))
    async with Session.open(model, instructions="Speak like a sailor.", **here) as session:
        await session.ask("Hello.")
    system = model.requests[-1].prefix.system
    assert system.endswith("Speak like a sailor.\n")
    assert len(system) > 500
    async with Session.open(model, system_prompt="You are a sailor.", **here) as session:
        await session.ask("Hello.")
    assert model.requests[-1].prefix.system == "You are a sailor."


@cases(
    "wrong line",
    ({"allow": "Read"}, "allow is a list of texts, not a text: write allow=['Read']"),
    ({"builtin_tools": ["Reed"]}, "there is no built-in tool 'Reed'; there are Read, "),
    (
        {"builtin_tools": "Read"},
        "builtin_tools is a list of texts, not a text: write builtin_tools=['Read']",
    ),
    (
        {"window": 100_000},
        ("window and max_output go with the name of a model: a model object has its own `budget`"),
    ),
    (
        {"model": "openai/gpt-5", "window": 1000, "max_output": 2000},
        "window 1000 must be larger than max_output 2000",
    ),
    ({"folder": "/nowhere"}, "folder: /nowhere is not a folder"),
    ({"model": 123}, "model is 'PROVIDER/MODEL' or a longrein.models.Model, not 123"),
    ({"tools": len}, "tools is a list of tools, not builtin_function_or_method"),
    (
        {"tools": [read_number]},
        "tools: read_number is a function, not a tool: write @longrein.tool above",
    ),
    ({"tools": [lambda: 1]}, "tools: <lambda> is a function, not a tool"),
    ({"tools": [Double, Double]}, "tools: there are two tools 'Double': rename one"),
    (
        {"tools": [Read]},
        "tools: there are two tools 'Read': rename one, or leave the built-in one out of",
    ),
)
async def test_an_argument_that_cannot_be_is_refused(
    wrong: dict[str, Any], line: str, here: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with pytest.raises(UsageError) as refused:
        await Session.open(**{"model": ScriptedModel(), **here, **wrong})
    assert line in str(refused.value)


async def test_a_built_in_tool_is_replaced_where_it_is_left_out(here: dict[str, Any]) -> None:
    model = ScriptedModel(says("ok"))
    async with Session.open(model, tools=[Read], builtin_tools=["Glob"], **here) as session:
        await session.ask("go")
    assert tools_sent(model) == ["Glob", "Read"]


async def test_a_missing_await_is_named(here: dict[str, Any]) -> None:
    line = "write `session = await Session.open"
    with pytest.raises(UsageError, match=f"not open yet, so it has no ask: {line}"):
        Session.open(ScriptedModel(), **here).ask("hi")  # type: ignore[attr-defined]
    with (
        pytest.raises(UsageError, match=f"`with` is not enough for a session: {line}"),
        Session.open(ScriptedModel(), **here),
    ):
        pass
    async with Session.open(ScriptedModel(), **here) as session:
        for use in (session.ask, session.send):
            with pytest.raises(UsageError, match="`await` is missing before it"):
                await use(read_number())  # type: ignore[operator]
        with pytest.raises(UsageError, match="a message is a text or a list of parts"):
            await session.ask(4)  # type: ignore[arg-type]
        for empty in ("", " \n", [], [Text("")]):
            with pytest.raises(UsageError, match="the message is empty"):
                await session.send(empty)
    with pytest.raises(UsageError, match="tools: read_number is a coroutine, not a tool"):
        await Session.open(ScriptedModel(), tools=[read_number()], **here)  # type: ignore[list-item]


@cases(
    "arguments line",
    ({"allow": ["Bsh(x)"]}, "no tool is called Bsh: did you mean Bash? The rule has no"),
    (
        {"mcp_servers": {"gone": {"command": "/nowhere/server"}}},
        "MCP server gone: it cannot be started: /nowhere/server: no such file",
    ),
)
async def test_notes_are_those_of_the_terminal(
    arguments: dict[str, Any], line: str, here: dict[str, Any]
) -> None:
    if "mcp_servers" in arguments:
        pytest.importorskip("mcp")
    async with Session.open(ScriptedModel(says("ok")), **here, **arguments) as session:
        await session.ask("go")
        assert [note for note in session.notes if line in note], session.notes


def test_no_message_of_the_library_names_a_flag() -> None:
    """Each text of the program that names a flag of the command line, in the library's words."""
    flag = re.compile(r"(?<![\w-])--[a-z][\w-]+|(?<=with )-c\b|`longrein -c`")
    flags = {name for one in MAIN.flags for name in one.names} | {"-c", "`longrein -c`"}
    root = Path(longrein.__file__).parent
    apart = ("cli.py", "commands", "extensions", "frontends", "testing", "transcripts")
    texts: set[str] = set()
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] not in apart:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            texts |= {
                node.value
                for node in nodes
                if isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and flags & {*flag.findall(node.value)}
            }
    assert len(texts) > 10
    for text in texts:
        assert not flags & {*flag.findall(library_words(text))}, library_words(text)


async def test_errors_of_a_session_name_arguments(here: dict[str, Any]) -> None:
    model = ScriptedModel(*[says(call("Glob", pattern="*"))] * 2)
    async with Session.open(model, max_turns=1, **here) as session:
        with pytest.raises(TurnFailed, match=r"`Session\.resume` and a higher max_turns"):
            await session.ask("Look.")
    with pytest.raises(longrein.SettingsError, match=r"^permission_mode must be one of plan, "):
        await Session.open(model, permission_mode="all", **here)  # type: ignore[arg-type]
    with pytest.raises(longrein.ModelUnknown, match="another with model='PROVIDER/MODEL'"):
        await Session.open("anthropic/claude-sonnet-4-5", **here)


async def test_a_window_is_named_for_a_model_that_nobody_knows(
    here: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    async with LoopbackProvider([Turn(text="Hi.")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        async with Session.open("openai/unheard-of", window=16_000, **here) as session:
            assert await session.ask("Hello?") == "Hi."
        assert server.requests[0].json["max_tokens"] == 4_000, "a quarter of the window"


async def test_a_subagent_may_be_approved_too(here: dict[str, Any]) -> None:
    class Two(ScriptedModel):
        def _next(self, request: Any) -> Any:
            self.requests.append(request)
            child = any("TASK" in str(item.part) for item in request.items if item.kind == "user")
            results = sum(item.kind == "result" for item in request.items)
            if child:
                return (
                    says("written")
                    if results
                    else says(call("Write", file_path="n.txt", content="one"))
                )
            return (
                says("done")
                if results
                else says(call("Agent", description="write it", prompt="TASK"))
            )

    async with Session.open(Two(), **here) as session:
        assert await session.ask("go", approve=lambda asked: asked.name == "Write") == "done"
        entries = [entry async for entry in session.follow()]
    assert (Path(here["folder"]) / "n.txt").read_text() == "one"
    assert [entry for entry in entries if isinstance(entry.event, Replied)]


async def test_what_happened_goes_with_the_next_request_and_starts_no_turn(
    here: dict[str, Any],
) -> None:
    model = ScriptedModel(says("ok"))
    async with Session.open(model, **here) as session:
        for _ in range(2):
            await session.happened("program_message", "the build failed", source="ci")
        with pytest.raises(UsageError, match="there is no kind of event 'mode'"):
            await session.happened("mode", "bypassPermissions")
        assert not model.requests
        await session.ask("go")
    told = [item.part.text for item in model.requests[0].items if item.kind == "reminder"]
    (below,) = [text.split("\n")[1:-1] for text in told]  # between its two marks
    assert below == ["* ci", "| the build failed"]


# --- Several at once, cancelled, closed -----------------------------------------------------------


class Echo(ScriptedModel):
    """Answer each message with its own text, when `gate` is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        super().__init__(wait=self.gate.wait)

    def _next(self, request: Any) -> Any:
        texts = [item.part.text for item in request.items if item.kind == "user"]
        return says(f"to {texts[-1]}")


async def requests_reach(model: ScriptedModel, count: int) -> None:
    while len(model.requests) < count:  # noqa: ASYNC110 - the model tells nobody
        await asyncio.sleep(0.001)


async def test_an_answer_belongs_to_its_own_message(here: dict[str, Any]) -> None:
    model = Echo()
    async with Session.open(model, **here) as session:
        model.gate.set()
        both = asyncio.gather(session.ask("a"), session.ask("b"))
        assert await both == ["to a", "to b"]
        model.gate.clear()
        await session.send("c")
        later = asyncio.ensure_future(session.ask("d"))
        await requests_reach(model, 3)
        model.gate.set()
        assert await later == "to d"


async def test_ask_that_a_hook_refuses_has_no_answer(tmp_path: Path, here: dict[str, Any]) -> None:
    line = {"type": "command", "command": "grep -q 1234 && { echo no passwords >&2; exit 2; } || :"}
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_text(
        json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [line]}]}})
    )
    (tmp_path / "project").mkdir()
    model = Echo()
    model.gate.set()
    async with Session.open(model, **{**here, "folder": str(tmp_path / "project")}) as session:
        both = [session.ask("my password is 1234"), session.ask("b")]
        refused, answer = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(refused, TurnFailed)
        assert "no passwords" in str(refused)
        assert answer == "to b"


async def test_a_cancelled_waiter_never_cancels_the_turn(here: dict[str, Any]) -> None:
    model = Echo()
    async with Session.open(model, **here) as session:
        waits: list[Any] = [
            lambda: session.ask("a"),
            session.wait,
            lambda: anext(session.follow(10_000)),
        ]
        for made in waits:
            waiter = asyncio.ensure_future(made())
            await requests_reach(model, 1)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
        sent = asyncio.ensure_future(session.send("b"))
        await asyncio.sleep(0)
        sent.cancel()
        late = asyncio.ensure_future(session.ask("c"))
        model.gate.set()
        assert await late == "to c"
        ends = [e.event async for e in session.follow() if isinstance(e.event, TurnEnded)]
        assert [end.reason for end in ends] == ["done"] * 3


async def test_an_interrupt_ends_the_turn_of_a_cancelled_ask(here: dict[str, Any]) -> None:
    model = Echo()
    async with Session.open(model, **here) as session:
        waiter = asyncio.ensure_future(session.ask("a"))
        await requests_reach(model, 1)
        waiter.cancel()
        session.interrupt()
        model.gate.set()
        assert await session.ask("b") == "to b"
        ends = [e.event async for e in session.follow() if isinstance(e.event, TurnEnded)]
        assert [end.reason for end in ends] == ["interrupted", "done"]


async def test_a_closed_session_says_so(here: dict[str, Any]) -> None:
    model = Echo()
    session = await Session.open(model, **here)
    waiting = asyncio.ensure_future(session.ask("a"))
    await requests_reach(model, 1)
    first = asyncio.ensure_future(session.close())
    await asyncio.gather(session.close(), first)
    with pytest.raises(TurnFailed, match="closed before the turn had ended"):
        await waiting
    uses: list[Any] = [
        lambda: session.ask("b"),
        lambda: session.send("b"),
        lambda: session.happened("program_message", "b"),
        session.go_on,
        session.compact,
        lambda: session.rewind(1),
        lambda: session.preview_rewind(1),
        lambda: session.answer("c1", "deny"),
        lambda: session.leave("stop"),
        lambda: anext(session.follow()),
    ]
    for use in uses:
        with pytest.raises(longrein.SessionClosed, match=f"resume.'{session.id}'"):
            await use()
    with pytest.raises(longrein.SessionClosed):
        session.interrupt()
    await session.wait()
    assert session.spent_usd == 0  # a reserve is no money spent; the next start counts the loss


async def test_close_ends_an_ask_whose_approval_waits(here: dict[str, Any]) -> None:
    asked = asyncio.Event()

    async def approve(_asked: PermissionAsked) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    model = ScriptedModel(says(call("Write", file_path="n.txt", content="one")))
    session = await Session.open(model, **here)
    waiting = asyncio.ensure_future(session.ask("Write it.", approve=approve))
    await asked.wait()
    await session.close()
    with pytest.raises(TurnFailed, match="closed before"):
        await waiting


@cases(
    "approve error line",
    (lambda _: "deny", UsageError, "`approve` returned 'deny' for Write: return True"),
    (lambda _: 1 / 0, ZeroDivisionError, "division by zero"),
)
async def test_a_broken_approval_interrupts_its_turn(
    approve: Any, error: type[Exception], line: str, here: dict[str, Any]
) -> None:
    model = ScriptedModel(says(call("Write", file_path="n.txt", content="one")), says("Next."))
    async with Session.open(model, **here) as session:
        with pytest.raises(error, match=line):
            await session.ask("Write it.", approve=approve)
        assert await session.ask("And now?") == "Next."
    assert not (Path(here["folder"]) / "n.txt").exists()


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(("ask", "send", "cancel", "pause", "gate")), st.integers(0, 5)),
    max_size=12,
)


@given(steps=STEPS, closes=st.booleans())
@settings(max_examples=25)
def test_any_interleaving_gives_each_ask_its_own_answer(steps: list[Step], closes: bool) -> None:
    """Or, when the session is closed before, an error that says so."""

    async def one_session(folder: str) -> None:
        model = Echo()
        session = await Session.open(model, folder=folder, state_dir=f"{folder}/state")
        asks: list[tuple[str, asyncio.Task[str]]] = []
        for number, (act, value) in enumerate(steps):
            match act:
                case "ask":
                    words = f"ask {number}"
                    asks.append((words, asyncio.ensure_future(session.ask(words))))
                case "send":
                    await session.send(f"send {number}")
                case "cancel" if asks:
                    asks[value % len(asks)][1].cancel()
                case "pause":
                    for _ in range(value * 10):
                        await asyncio.sleep(0)
                case "gate":
                    (model.gate.set if value % 2 else model.gate.clear)()
                case _:
                    pass
        if closes:
            await session.close()
        model.gate.set()
        found = await asyncio.gather(*(ask for _, ask in asks), return_exceptions=True)
        for (words, _), answer in zip(asks, found, strict=True):
            if isinstance(answer, longrein.SessionClosed | TurnFailed):
                assert closes
            elif not isinstance(answer, asyncio.CancelledError):
                assert answer == f"to {words}"
        await session.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(one_session(folder))
