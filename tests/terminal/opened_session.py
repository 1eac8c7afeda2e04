"""An `AppSession` around a scripted session, for the terminal: nothing of it is on disk."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longrein.app import App
from longrein.app.attachments import Attachments
from longrein.app.file_names import FilesFound
from longrein.app.run_context import CLOCK, RunContext
from longrein.config import TrustedFolders
from longrein.options import Options
from longrein.permissions.hook_protocol import Hook
from longrein.settings_schema import KeyOptions, Settings
from longrein.store import Reader, SessionInfo
from longrein_context import Budget, Price, Report, ReportRow
from longrein_context.events import Entry, Image
from tests.terminal.scripted_session import ScriptedSession

REPORT = Report(
    (
        ReportRow("system", "system", "", "", "full", 1_400, 0.0, goes=False, begins="You are"),
        ReportRow(
            "calls and results",
            "result",
            "Read",
            "r7",
            "full",
            3_200,
            0.0123,
            goes=True,
            begins="def main",
        ),
        ReportRow("user requests", "user", "", "", "full", 20_000, 0.0, goes=False, begins=""),
    ),
    24_600,
    24_600,
    1.02,
    100_000,
    128_000,
)
DAY_US = 24 * 3_600 * 1_000_000


class ScriptedApp(App):
    """An `App` over a folder, with two stored sessions that cannot be read."""

    version = "0.1.0"
    is_root = False

    def __init__(
        self,
        folder: str,
        environ: Mapping[str, str],
        keys: Mapping[str, Sequence[str]],
        *,
        vim: bool,
        leave_policy: str,
    ) -> None:
        origin = {f"keys.{name}": "the test" for name in keys}
        settings = Settings(keys=KeyOptions(vim=vim, **keys), origin=origin)
        place = (folder, folder, f"{folder}/state")
        super().__init__(
            RunContext(Options(), settings, environ, *place, (folder,), TrustedFolders()), print
        )
        self._folder = folder
        self._leave_policy = leave_policy

    @property
    def leave_policy(self) -> str:
        return self._leave_policy

    def sessions(self) -> Sequence[SessionInfo]:
        cwd = self.context.cwd
        now = CLOCK.wall_us() - DAY_US
        return [
            SessionInfo("11111111-aaaa", "", 0, now, cwd, "mend the parser", 12, False),
            SessionInfo("2222", "", 0, now, cwd, "日本語 title", 3, False),
        ]

    def is_open(self, written: str) -> bool:
        return False

    async def read(self, session: str, work: Callable[[Reader], Any]) -> Any:
        return ()

    def models(self, present: str) -> Sequence[str]:
        return (present, "mock/large")

    def budget(self, name: str) -> Budget:
        return Budget(200_000, 0, Price(3.0, 15.0))

    def is_first_run(self) -> bool:
        return False

    def kept_file(self, folder: str) -> str:
        return f"{self._folder}/{folder}" + "/here" * (folder == "drafts")

    def note_files(self) -> Sequence[tuple[str, str]]:
        return [
            ("this project", f"{self._folder}/AGENTS.md"),
            ("all your projects", f"{self._folder}/own/AGENTS.md"),
        ]


class ScriptedAttachments:
    """See `AttachmentReader`: pictures only, known by their paths."""

    def read(self, text: str) -> Attachments:
        return Attachments()

    def image(self, path: str) -> Image | None:
        if not os.path.isfile(path):
            return None
        return Image("b" * 64, "image/png", os.path.getsize(path))

    def image_of(self, data: bytes) -> Image:
        return Image("c" * 64, "image/png", len(data))


class ScriptedHistory:
    """See `SessionHistory`: the entries that were played so far."""

    def __init__(self, session: ScriptedSession) -> None:
        self._entries = session.entries

    def entries(self, after: int = 0, last: int = 0) -> Sequence[Entry]:
        return [entry for entry in self._entries if after < entry.seq <= (last or entry.seq)]

    def entry(self, seq: int) -> Entry | None:
        return next((entry for entry in self._entries if entry.seq == seq), None)

    def of_kind(self, *kinds: str) -> Sequence[Entry]:
        return [entry for entry in reversed(self._entries) if type(entry.event).__name__ in kinds]

    def child(self, session: str) -> None:
        """Subagents have no log."""

    def tail(self) -> tuple[int, int]:
        return len(self._entries), 0


class OpenedSession:
    """See `AppSession`."""

    model = "mock/small"
    budget = Budget(100_000, 0)
    key_source = "none"
    sandbox = effort = network_problem = ""
    notes: Sequence[str] = ()
    goals: Any = None

    def __init__(
        self,
        session: ScriptedSession,
        folder: str = os.devnull,
        environ: Mapping[str, str] | None = None,
        keys: Mapping[str, Sequence[str]] | None = None,
        *,
        vim: bool = False,
        leave_policy: str = "ask",
    ) -> None:
        self.app = ScriptedApp(
            folder, environ or {}, keys or {}, vim=vim, leave_policy=leave_policy
        )
        self.session = session
        self.folders = (folder,)

    def models(self) -> Sequence[str]:
        return self.app.models(self.model)

    def full_model(self, name: str) -> str:
        return name

    def context_report(self) -> Report:
        return REPORT

    def line_reasons(self, handle: str) -> Sequence[Any]:
        return ()

    def compaction_analysis(self) -> Sequence[str]:
        return ["nothing"]

    def nothing(self) -> Sequence[Any]:
        return ()

    rules = known_skills = slash_commands = connections = instruction_files = nothing
    changed_settings = nothing

    def hooks(self) -> Sequence[tuple[Hook, bool]]:
        return ()

    async def changes(self) -> Sequence[Any]:
        return ()

    async def answer(self, nth: int) -> str:
        return ""

    async def git(self, words: Sequence[str]) -> tuple[int, str]:
        return 127, ""

    async def fork(self) -> str:
        return "3333"

    def set_effort(self, level: str) -> str:
        return self.model

    def resolve_folder(self, written: str) -> str:
        return written

    async def read_history(self, work: Callable[[Any], Any]) -> Any:
        return work(ScriptedHistory(self.session))

    async def task_tail(self, task: str, lines: int) -> str:
        return "".join(f"line {n} of {task} \x1b[2J\n" for n in range(lines))

    async def complete_files(self, typed: str) -> FilesFound:
        names = ("src/app.py", "src/with blank.py", "tests/test_app.py")
        more = "1,234 more; type on" if typed == "app" else ""
        return FilesFound([name for name in names if typed in name], more)

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(work)

    def file_text(self, path: str) -> str | None:
        return None

    def attachments(self) -> ScriptedAttachments:
        return ScriptedAttachments()

    def status_command(self) -> None:
        return None

    def wall_us(self) -> int:
        return CLOCK.wall_us()
