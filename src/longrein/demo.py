"""`longrein demo`: a small real job, offline and without a key. Only the model is played; everything else is real.

A git project with a really failing test is made in a temporary folder. The demo starts longrein on it as a user would,
kills it with SIGKILL in the middle of a command, goes on with it, and at the end runs the test itself. In a second act
things run beside the conversation (tasks, subagents), and the one that is to outlive a second kill does.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

import msgspec

from longrein import demo_beside
from longrein.demo_script import FILES, notes, script
from longrein.frontends.stdout import show

PROMPT = "The tests of this project fail. Find out why, mend it, and follow what NOTES.md says about amounts."
WINDOW_TOKENS = 14_300
"""Small on purpose: the notes do not fit beside the rest, so that old results are cleared and one is recalled."""


class _Line(msgspec.Struct):
    """What the demo reads of a stream-json line."""

    type: str
    subtype: str = ""
    message: msgspec.Raw = msgspec.Raw(b"null")
    result: str = ""
    usage: dict[str, object] = {}
    content: str = ""
    session_id: str = ""
    compact_metadata: dict[str, object] = {}
    parent_tool_use_id: str | None = None
    task_id: str = ""
    description: str = ""
    summary: str = ""


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    name: str = ""
    input: dict[str, object] = {}
    content: object = ""
    is_error: bool = False


class _Message(msgspec.Struct):
    content: list[_Block] | str = []


def demo(*, keep: bool) -> int:
    """Play the demo; 0 only if the mended test really passes. With `keep` its folder stays."""
    folder = tempfile.mkdtemp(prefix="longrein-demo-")
    try:
        return _Demo(folder).play()
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    """One showing in its own folder, with its own home and state."""

    def __init__(self, folder: str) -> None:
        self.project = os.path.join(folder, "project")
        self.home = os.path.join(folder, "home")
        self.test = f"{shlex.quote(sys.executable)} -m unittest -q"
        self.totals = {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
        self.requests = 0
        self.session = ""

    def play(self) -> int:
        self._say("longrein demo: the model's part is played from a script, offline. Files, commands, the log,")
        self._say("the kill and the resume are real.\n")
        self._make()
        self._say(f"A git project with a failing test: {self.project}")
        self._say(f"$ longrein -p {PROMPT!r}\n")
        killed = self._run(["-p", PROMPT], kill_at="Bash")
        if killed:
            self._say("\n  *** kill -9: longrein dies in the middle of that command ***\n")
            self._say("$ longrein -p -c\n")
            self._run(["-p", "-c"])
        self._show_context()
        self._beside()
        return self._verdict()

    def _beside(self) -> None:
        """The second act: three tasks, a promotion, two subagents that contradict each other, a kill, an adoption."""
        for name, text in demo_beside.FILES.items():
            _write(os.path.join(self.project, name), text)
        self._say(f"\n$ longrein -p {demo_beside.PROMPT!r}\n")
        if self._run(["-p", demo_beside.PROMPT], kill_at="Glob"):
            self._say("\n  *** kill -9 again. The till is still watched: its command is to outlive longrein ***\n")
            self._say("$ longrein tasks\n")
            self._say(self._output("tasks"))
            self._say("\n$ longrein -p -c\n")
            self._run(["-p", "-c"])

    def _say(self, line: str) -> None:
        show(f"{line}\n")

    # --- the stage -------------------------------------------------------------------------------------------

    def _make(self) -> None:
        os.makedirs(self.project)
        for name, text in {**FILES, "NOTES.md": notes()}.items():
            _write(os.path.join(self.project, name), text)
        for command in ("init -q", "add -A", "-c user.name=demo -c user.email=demo@localhost commit -q -m start"):
            subprocess.run(["git", *command.split()], cwd=self.project, check=True, env=self._environment())
        played = os.path.join(self.home, "script.json")
        _write(played, msgspec.json.encode(script(self.test, WINDOW_TOKENS)).decode())
        _write(
            os.path.join(self.home, ".config", "longrein", "config.toml"),
            'model = "demo/played"\n[providers.demo]\nwire = "scripted"\n'
            f"base_url = {msgspec.json.encode(played).decode()}\n",
        )

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "LONGREIN_", "GIT_"))}
        return {**kept, "HOME": self.home, "LONGREIN_STATE_DIR": os.path.join(self.home, "state")}

    # --- the play --------------------------------------------------------------------------------------------

    def _run(self, words: Sequence[str], kill_at: str = "") -> bool:
        """Run longrein and tell what it does; kill it when it starts the tool `kill_at`. Whether it was killed."""
        commands = dict.fromkeys([self.test, demo_beside.SLOW, *(command for _, command in demo_beside.CHECKS)])
        rules = ",".join(["Edit", *(f"Bash({command})" for command in commands)])
        command = [sys.executable, "-m", "longrein", *words, "--output-format", "stream-json", "--allowedTools", rules]
        with subprocess.Popen(
            command, cwd=self.project, env=self._environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process:
            for line in self._lines(process):
                if kill_at and self._tell(line) == kill_at:
                    process.send_signal(signal.SIGKILL)
                    return True
                if not kill_at:
                    self._tell(line)
        return False

    def _lines(self, process: "subprocess.Popen[bytes]") -> Iterator[_Line]:
        assert process.stdout is not None
        for line in process.stdout:
            yield msgspec.json.decode(line, type=_Line)

    def _tell(self, line: _Line) -> str:
        """One line of the stream in a person's words; gives the last tool that it starts."""
        started = ""
        match line.type, line.subtype:
            case "assistant", _:
                self.requests += 1
                for block in _blocks(line):
                    begun = self._tell_reply(block, "  | " if line.parent_tool_use_id else "  ")
                    started = started if line.parent_tool_use_id else begun or started
            case "user", _:
                for block in _blocks(line) if not line.parent_tool_use_id else ():
                    self._tell_result(block)
            case "system", "init":
                self.session = line.session_id
            case "system", "task_started":
                self._say(f"      {line.task_id} begins: {_short(line.description)}")
            case "system", "task_notification":
                self._say(f"      {line.task_id} is over: {_short(line.summary)}")
            case "system", "compact_boundary" if line.compact_metadata.get("trigger") == "manual":
                self._say("  --- summed up: the user's words and the records by code, the prose by the model ---")
            case "system", "compact_boundary":
                self._say("  --- the window is nearly full: what is probably dead was cleared; the lines worth")
                self._say("      keeping and a handle stand in its place ---")
            case "result", _:
                for key in self.totals:
                    self.totals[key] += int(str(line.usage.get(key, 0)))
        return started

    def _tell_reply(self, block: _Block, margin: str) -> str:
        if block.type == "text":
            self._say(margin + block.text.replace("\n", f"\n{margin}"))
        if block.type != "tool_use":
            return ""
        argument = next((str(v) for v in block.input.values()), "")
        self._say(f"{margin}  > {block.name} {argument.replace(sys.executable, 'python3')}")
        return block.name

    def _tell_result(self, block: _Block) -> None:
        if block.type != "tool_result":
            return
        text = block.content if isinstance(block.content, str) else str(block.content)
        lines = [line for line in text.splitlines() if line.strip()]
        shown = lines[-1][:96] if lines else "(nothing)"
        self._say(f"      {'failed' if block.is_error else 'ok'}, {len(lines)} lines, the last: {shown}")

    def _show_context(self) -> None:
        self._say(f"\n$ longrein context {self.session[:8]}\n")
        self._say(self._output("context", self.session))

    def _output(self, *words: str) -> str:
        command = [sys.executable, "-m", "longrein", *words]
        page = subprocess.run(command, cwd=self.project, env=self._environment(), capture_output=True, check=True)
        return page.stdout.decode().replace(sys.executable, "python3").rstrip()

    # --- the end ---------------------------------------------------------------------------------------------

    def _verdict(self) -> int:
        passed = subprocess.run(
            [sys.executable, "-m", "unittest", "-q"], cwd=self.project, capture_output=True, check=False
        ).returncode
        changed = subprocess.run(
            ["git", "diff", "--stat"], cwd=self.project, capture_output=True, text=True, check=True
        ).stdout
        sent = sum(self.totals.values())
        share = 100 * self.totals["cache_read_input_tokens"] // max(1, sent)
        self._say("\nWhat happened")
        self._say(f"  replies         {self.requests}; two kills cut one command and lost none of them")
        self._say(
            f"  input tokens    {sent} in the runs that ended by themselves, {share} % of them read from the cache"
        )
        self._say(f"  files changed   {' '.join(changed.split()) or 'none'}")
        self._say(f"  the test now    {'passes' if passed == 0 else 'FAILS'}")
        return 0 if passed == 0 else 1


def _short(text: str) -> str:
    """One line of it."""
    line = " ".join(text.replace(sys.executable, "python3").split())
    return line if len(line) <= 96 else line[:95] + "…"


def _blocks(line: _Line) -> list[_Block]:
    content = msgspec.json.decode(line.message, type=_Message).content
    return content if isinstance(content, list) else []


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
