"""An open session with what frontends ask beside it: models, files, rules, extensions, its end."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from longrein.agent import Dependencies, OpenSession
from longrein.agent.extension_part import AskUser, ControlHandler, SlashCommand
from longrein.agent.hooks import SessionHooks
from longrein.app.run_context import CLOCK, RunContext, chosen_model, discard_unused
from longrein.config import door_points, full_model_name, home_folder, own_command, project_root
from longrein.extension_points import OBSERVERS_DOOR
from longrein.models import Model, ModelOptions, key_source, open_model
from longrein.permissions.hook_protocol import Hook
from longrein.settings_schema import Settings
from longrein.store import USER, Goals, HistoryReader, SessionLog, project_key
from longrein.tools import SkillInfo, SubagentType
from longrein.workspace.sandbox import network_problem
from longrein_context import Budget, Report, next_compacted, report
from longrein_context.events import Document, Image, LongreinError, UsageError

if TYPE_CHECKING:
    from longrein.agent.status_line_command import StatusCommand
    from longrein.app.app import App
    from longrein.app.attachments import AttachmentReader
    from longrein.app.file_names import FileNames, FilesFound
    from longrein.app.session_details import ChangedFile, MemoryFile, RuleRow
    from longrein.store import SessionHistory
    from longrein_context import LineReason

T = TypeVar("T")
FILE_BYTES_MAX = 1_000_000
"""Part of a file that is read to show a change."""


class AppSession:
    """An open session of an `App`. `session` is the conversation itself."""

    def __init__(
        self,
        app: "App",
        session: OpenSession,
        deps: Dependencies,
        log: SessionLog,
        notes: tuple[str, ...],
    ) -> None:
        """`notes` are lines for the user."""
        self.app = app
        self.session = session
        self.deps = deps
        self.log = log
        self.notes = notes
        self.finishes: tuple[Finish, ...] = ()
        self._effort = ""
        """Effort that the user has chosen in this session."""
        self._thinking: str | None = None
        """Limit of thinking that a program has chosen, in tokens; None for that of the settings."""
        self._open_model = deps.open_model
        """How models are opened by the settings alone."""

    # --- End --------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Let the observers of the session finish, such as send the last traces. Call it when the
        session has closed.
        """
        await finish_observers(self.finishes, self.app.say)

    async def discard_unused(self) -> None:
        """Delete the closed session if nothing was said in it."""
        session = self.session
        is_used = bool(session.state.words or session.pending)
        await discard_unused(self.app.context, session.id, said=is_used)

    # --- Model and context ------------------------------------------------------------------------

    @property
    def model(self) -> str:
        """`provider/model` of the present model."""
        return self.deps.model.name

    @property
    def key_source(self) -> str:
        """Place of the present model's key: a variable, the keyring, a file; `none` without one."""
        return key_source(self.deps.model)

    @property
    def budget(self) -> Budget:
        """Budget of the present model."""
        return self.deps.model.budget

    def models(self) -> Sequence[str]:
        """Return the models to choose from, the present one first."""
        return self.app.models(self.model)

    @property
    def effort(self) -> str:
        """Effort of thinking in force; '' for the provider's default."""
        if self._effort:
            return self._effort
        try:
            return chosen_model(self.app.context, self.model).effort
        except LongreinError:
            return ""  # a model of a plugin

    def set_effort(self, level: str) -> str:
        """Open models with effort `level` from now on.

        Returns the present model, which is to be opened again. Raises `LongreinError`.
        """
        return self._open_models(level, self._thinking)

    def set_thinking(self, tokens: int | None) -> str:
        """Open models with thinking up to `tokens` (None: as in the settings) from now on.

        Returns the present model, which is to be opened again. Raises `LongreinError`.
        """
        return self._open_models(self._effort, "" if tokens is None else str(tokens))

    def _open_models(self, effort: str, thinking: str | None) -> str:
        """Open models with this effort ('': as chosen before) and this limit of thinking (None: the
        same) from now on; those of plugins stay as they are.
        """
        context = self.app.context
        if thinking is not None:
            options = context.options
            options = options._replace(thinking="", max_thinking_tokens=thinking)
            context = msgspec.structs.replace(context, options=options)

        def choose(name: str) -> ModelOptions:
            chosen = chosen_model(context, name)
            return msgspec.structs.replace(chosen, effort=effort) if effort else chosen

        def open_again(name: str) -> Model:
            try:
                chosen = choose(name)
            except LongreinError:
                return self._open_model(name)  # a model of a plugin, or the reason why not
            return open_model(chosen, self.log.read_blob, CLOCK)

        choose(self.model)  # raises for one that a plugin opens
        self.deps.open_model = open_again
        self._effort, self._thinking = effort, thinking
        return self.model

    def full_model(self, name: str) -> str:
        """Return the `provider/model` that a name such as `sonnet` or `default` stands for; the
        name itself if it stands for none.
        """
        context = self.app.context
        full = full_model_name(name, context.settings, context.key_environ)
        return full or self.app.resolve_model("")

    def context_report(self) -> Report:
        """Return what fills the context."""
        state = self.session.state
        return report(state, self.budget, next_compacted(state, self.budget))

    def line_reasons(self, handle: str) -> "Sequence[LineReason]":
        """Return why the lines of an item are kept or cleared."""
        from longrein_context.clear_items import line_reasons

        return line_reasons(self.session.state, self.budget, handle)

    def compaction_analysis(self) -> Sequence[str]:
        """Return what a compaction would do now, line by line."""
        from longrein_context.analysis import analyse, analysis_lines

        return analysis_lines(analyse(self.session.state, self.budget))

    # --- Settings, rules and keys -----------------------------------------------------------------

    def changed_settings(self) -> Sequence[tuple[str, str, str]]:
        """Return (key, value without secrets, origin) of each setting that is not built in."""
        from longrein.app.session_details import changed_settings

        return changed_settings(self)

    def rules(self) -> "Sequence[RuleRow]":
        """Return the permission rules in force."""
        from longrein.app.session_details import rules_in_force

        return rules_in_force(self)

    def remove_rule(self, row: "RuleRow") -> None:
        """Remove a rule of this session or of the user's file. Raises `LongreinError`."""
        from longrein.app.session_details import remove_rule

        remove_rule(self, row)

    def hooks(self) -> Sequence[tuple[Hook, bool]]:
        """Return the hooks that run, then those that wait to be confirmed; True for one that
        runs.
        """
        running = [one.hook for one in self.session.part(SessionHooks).table.handlers]
        waiting = self.app.context.hooks.changed
        return [*((hook, True) for hook in running), *((hook, False) for hook in waiting)]

    def hide_key(self, key: str) -> None:
        """Mask a new key of a provider from now on."""
        self.session.hide([key])

    def renew_key(self, provider: str) -> bool:
        """Look for the key of a provider again; return True if the next request goes there."""
        is_present = self.model.partition("/")[0] == provider
        if is_present:
            self.deps.model = self.deps.open_model(self.model)
        return is_present

    # --- Log --------------------------------------------------------------------------------------

    async def read_history(self, work: "Callable[[SessionHistory], T]") -> T:
        """Run `work` on the session's log, in a thread."""
        return await HistoryReader(self.app.context.state_dir, self.session.id).reading(work)

    async def task_tail(self, task: str, lines: int) -> str:
        """Return the last `lines` of the output of a background task."""
        from longrein.app.task_output import output_tail

        folder = self.log.folder
        return await self.read_history(lambda past: output_tail(past, folder, task, lines))

    async def answer(self, nth: int) -> str:
        """Return the last answer but `nth` - 1; '' when there is none."""
        from longrein.app.session_details import nth_answer

        return await nth_answer(self, nth)

    async def changes(self) -> "Sequence[ChangedFile]":
        """Return the files that the session and its subagents changed with their tools."""
        from longrein.app.session_details import changed_files

        return await changed_files(self)

    async def fork(self) -> str:
        """Copy the session; return the id of the copy."""
        return await self.app.fork(self.session.id)

    async def export(self, path: str) -> None:
        """Write the session to a new file, in the format of its ending. Raises `LongreinError`."""
        await self.app.export(self.session.id, path)

    @property
    def goals(self) -> Goals:
        """Goals of the project, as the user changes them."""
        return Goals(
            self.app.context.state_dir,
            project_key(project_root(self.folders[0])),
            USER,
            self.wall_us,
            redact=self.deps.redact,
        )

    def wall_us(self) -> int:
        """Return the current time, microseconds UTC."""
        return self.deps.clock.wall_us()

    # --- Files ------------------------------------------------------------------------------------

    def file_text(self, path: str) -> str | None:
        """Return the present text of a file, at most 1 MB of it; None when there is none."""
        workspace = self.deps.workspace
        try:
            found = workspace.resolve(path, self.session.state.cwd)
            if found.kind != "file":
                return None
            return workspace.read(found.real, FILE_BYTES_MAX).decode("utf-8", "replace")
        except OSError:
            return None

    def keep_media(self, data: bytes, media: str) -> Image | Document:
        """Store a picture or a document; return its part of a message."""
        kind = Image if media.startswith("image/") else Document
        return kind(self.log.put_blob(data), media, len(data))

    def attachments(self) -> "AttachmentReader":
        """Return the reader of the files that a message names with `@`."""
        from longrein.app.attachments import AttachmentReader
        from longrein.permissions.rule_evaluation import is_read_denied

        session = self.session
        return AttachmentReader(
            workspace=self.deps.workspace,
            cwd=lambda: session.state.cwd,
            nonce=session.state.nonce,
            keep_blob=self.log.put_blob,
            is_denied=lambda path, real: is_read_denied(
                path, real, session.rules, session.state.cwd
            ),
        )

    @property
    def folders(self) -> Sequence[str]:
        """Folders that the session may work in."""
        return self.deps.workspace.roots

    def resolve_folder(self, written: str) -> str:
        """Return the path of a folder that the user names. Raises `UsageError`."""
        path = self.resolve_path(written)
        if not os.path.isdir(path):
            raise UsageError(f"{path} is not a folder")
        return path

    def resolve_path(self, written: str) -> str:
        """Return the absolute path of a file or folder that the user names."""
        cwd = self.session.state.cwd
        return os.path.abspath(os.path.join(cwd, os.path.expanduser(written)))

    def instruction_files(self) -> "Sequence[MemoryFile]":
        """Return the instruction files that the model was given, and those that it might be."""
        from longrein.app.session_details import instruction_files

        return instruction_files(self)

    async def complete_files(self, typed: str) -> "FilesFound":
        """Return the files whose names match what is typed, best first."""
        return await self._file_names.find(typed)

    @cached_property
    def _file_names(self) -> "FileNames":
        from longrein.app.file_names import FileNames

        workspace = self.deps.workspace
        return FileNames(workspace, lambda: self.session.state.cwd, CLOCK.mono_s)

    async def git(self, words: Sequence[str]) -> tuple[int, str]:
        """Run git in the session's folder; return (exit code, output)."""
        from longrein.workspace.git import run_git

        code, said = await run_git(self.deps.workspace, words, self.session.state.cwd)
        return code, said.decode("utf-8", "replace")

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run slow work beside the event loop."""
        return await self.deps.workspace.run_in_thread(work)

    @property
    def network_problem(self) -> str:
        """Reason why confined commands have no network; '' where they have."""
        if self.deps.sandbox is None:
            return ""
        return network_problem(self.app.context.settings.sandbox, self.deps.sandbox.rung)

    @property
    def sandbox(self) -> str:
        """Confinement of commands: `bubblewrap`, `landlock` or `none`."""
        return self.deps.sandbox.rung.name if self.deps.sandbox is not None else "none"

    # --- Skills and extensions --------------------------------------------------------------------

    @property
    def tool_names(self) -> Sequence[str]:
        """Names of the tools that the model may call."""
        return [name for name, tool in self.deps.tools.items() if not tool.withdrawn]

    @property
    def subagent_types(self) -> Sequence[SubagentType]:
        """Types of subagents that the model may start."""
        return self.deps.kinds

    def known_skills(self) -> Sequence[SkillInfo]:
        """Return the skills and commands of the user's files, as they were read last."""
        return self.session.skills.known if self.session.skills is not None else ()

    def find_skills(self) -> Sequence[SkillInfo]:
        """Return the skills and commands of the user's files, as they are on disk now."""
        return self.session.skills.all() if self.session.skills is not None else ()

    def connections(self) -> Sequence[tuple[str, str]]:
        """Return (name, status) of the servers that extensions use."""
        return [one for part in self.deps.extension_parts for one in part.connections()]

    def slash_commands(self) -> Sequence[SlashCommand]:
        """Return the slash commands of extensions."""
        return [one for part in self.deps.extension_parts for one in part.slash_commands()]

    def control_requests(self) -> dict[str, ControlHandler]:
        """Return the requests of a program that extensions answer, by subtype."""
        found: dict[str, ControlHandler] = {}
        for part in self.deps.extension_parts:
            found |= part.control_requests()
        return found

    def let_user_answer(self, ask: AskUser | None = None) -> None:
        """Let servers of extensions ask the user: by `ask`, else beside the conversation."""
        for part in self.deps.extension_parts:
            part.let_user_answer(ask)

    def status_command(self) -> "StatusCommand | None":
        """Return the user's command for the status line; None without one, and where no hook
        runs.
        """
        context = self.app.context
        command = context.settings.terminal.status_line
        if not command.strip() or context.settings.hooks.disable or context.hooks.disabled:
            return None
        from longrein.agent.status_line_command import StatusCommand

        project = project_root(self.folders[0])
        own = own_command(command, project, home_folder(context.environ))
        return StatusCommand(self.session, own, project, self.app.version, self.effort)


# --- Observers ------------------------------------------------------------------------------------
#
# Observers of a session: functions of extensions that are called when a session has opened.

FINISH_S = 10.0
"""Longest wait for an observer at the end of a session."""

Finish = Callable[[], Awaitable[None]]
"""What an observer does when the session has closed."""


class ObservedSession(msgspec.Struct, frozen=True):
    """Argument of an observer."""

    session: OpenSession
    """The session; `follow(seq)` yields its events as they come."""
    notice: Callable[[str], None]
    """Shows the user a line."""
    environ: Mapping[str, str]
    settings: Settings
    wall_us: Callable[[], int]
    """The time in microseconds."""


def start_observers(
    run_context: RunContext, session: OpenSession, say: Callable[[str], None]
) -> tuple[Finish, ...]:
    """Call the observers of all extensions; return what they do at the end.

    The user is told of one that fails, and the session goes on without it; by `say` once the
    session is closed.
    """

    def notice(line: str) -> None:
        (say if session.closed else session.notice)(line)

    settings = run_context.settings
    observed = ObservedSession(session, notice, run_context.environ, settings, CLOCK.wall_us)
    finishes: list[Finish] = []
    for point in door_points(OBSERVERS_DOOR, settings.plugins):
        try:
            finish = point.load()(observed)
        except Exception as error:
            notice(f"the observer {point.value} of {point.extension} failed: {error!r}")
            continue
        if finish is not None:
            finishes.append(finish)
    return tuple(finishes)


async def finish_observers(finishes: Sequence[Finish], say: Callable[[str], None]) -> None:
    """Let the observers finish, after the session has closed."""
    for finish in finishes:
        try:
            async with asyncio.timeout(FINISH_S):
                await finish()
        except Exception as error:
            say(f"an observer of the session failed: {error!r}")
