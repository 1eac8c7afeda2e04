"""The interactive terminal: run one session after another until the user leaves."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from longrein import __version__
from longrein.agent import BYPASS, bypass_warning
from longrein.agent.hooks import SessionHooks
from longrein.app import Additions, App, AppSession
from longrein.app.run_context import CLOCK, RunContext, chosen_model, model_names
from longrein.commands.first_run import chosen_line, first_run_notices, show_no_model
from longrein.commands.login import key_commands
from longrein.commands.next_session import adopt_one_shot, next_session, session_rows
from longrein.commands.terminal_facts import command_facts, folder_name, input_facts
from longrein.config import home_folder, own_command, project_root
from longrein.config.model_choice import NoModelFound
from longrein.context import next_compacted, report
from longrein.events import LongreinError
from longrein.frontends import first_frame
from longrein.frontends.reports.task_lists import output_tail
from longrein.frontends.secret_input import KeyCommands, SecretQuestion
from longrein.frontends.stdio import say
from longrein.frontends.terminal import FilesFound, Outcome, TerminalFacts, run_terminal
from longrein.frontends.terminal.file_matching import MATCHES_MAX, FileMatcher
from longrein.permissions.hook_protocol import hook_line
from longrein.store import USER, Goals, HistoryReader, project_key
from longrein.workspace import Workspace, spooled_tasks, stop_background_task
from longrein.workspace.sandbox import network_problem

if TYPE_CHECKING:
    from longrein.agent.status_line_command import StatusCommand
    from longrein.context import LineReason

ASKING = Additions(asks_user=True)
FILES_MAX = 500_000
"""Files searched for `@`, where git does not list them."""
FILES_LIMIT_S = 5.0
"""Longest search for these files, seconds."""
FILES_KEPT_S = 10.0
"""Seconds that a list of files is reused while the user types."""
FRESH_S = 0.03
"""Seconds that a key waits for a new list of files before it uses the old one."""
FILES_SHOWN_MAX = 50
"""Files offered at once."""


async def run_interactive(context: RunContext) -> int:
    """Run the session of the options, then those that the user opens. Return the exit code."""
    app = App(context, say)
    options = context.options
    first_frame.poll()
    try:
        opened = await app.open(additions=ASKING)
    except NoModelFound as error:
        first_frame.close()
        show_no_model()
        return error.exit_code
    first_frame.poll()
    prompt = options.prompt
    choosing = options.resume == ""
    while True:
        adopt_one_shot(opened)
        outcome = await _run_session(opened, prompt, choosing=choosing)
        await opened.finish()
        left = opened
        if outcome.kind == "exit":
            await left.discard_unused()
            return outcome.code
        try:
            app = app.with_folder(outcome.folder) if outcome.folder else app
            copies = choosing and options.fork_session
            session, fresh = await next_session(app, left.session, outcome, copies=copies)
            opened = await app.open(session, fresh=fresh, additions=ASKING)
            if outcome.kind == "new":
                opened.session.part(SessionHooks).source = "clear"
            prompt = ""
            choosing = False
            if opened.session.id != left.session.id:
                await left.discard_unused()
        except LongreinError as error:
            say(str(error))
            opened = await app.open(opened.session.id, additions=ASKING)
            prompt = ""


async def _run_session(opened: AppSession, prompt: str, *, choosing: bool) -> Outcome:
    built = opened
    place = opened.app.context
    folder = os.path.join(place.state_dir, "history")
    names = FileNames(built.deps.workspace, lambda: built.session.state.cwd, CLOCK.mono_s)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    outcome = await run_terminal(
        built.session,
        facts=_facts(place, built, choosing=choosing),
        complete_files=names.find,
        history=os.path.join(folder, folder_name(place.cwd)),
        plain=place.options.plain or place.environ.get("TERM", "dumb") in ("dumb", ""),
        prompt=prompt,
    )
    if outcome.tasks == "stop":
        await _end_tasks(built.log.folder)
    return outcome


async def _end_tasks(folder: str) -> None:
    """Stop the running tasks of a closed session; its next start takes their ends into the log."""
    running = [one.task for one in spooled_tasks(folder) if one.state == "running"]
    if running:
        say(f"ending {', '.join(running)}")
        await asyncio.gather(
            *(
                stop_background_task(folder, task, "stopped by longrein on leaving")
                for task in running
            )
        )


def _reasons(built: AppSession, handle: str) -> "list[LineReason]":
    from longrein.context.clear_items import line_reasons

    return line_reasons(built.session.state, built.deps.model.budget, handle)


def _analysis(built: AppSession) -> list[str]:
    from longrein.context.analysis import analyse, analysis_lines

    return analysis_lines(analyse(built.session.state, built.deps.model.budget))


def _facts(place: RunContext, built: AppSession, *, choosing: bool) -> TerminalFacts:
    deps, session = built.deps, built.session
    for part in deps.extension_parts:
        part.let_user_answer()
    is_root = os.geteuid() == 0
    return TerminalFacts(
        model=deps.model.name,
        cwd=session.state.cwd,
        version=__version__,
        notices=(
            *((bypass_warning(is_root),) if is_root and session.mode == BYPASS else ()),
            *built.notes,
        ),
        colour=not place.environ.get("NO_COLOR"),
        window_tokens=lambda: deps.model.budget.usable_tokens,
        context_report=lambda: report(
            session.state, deps.model.budget, next_compacted(session.state, deps.model.budget)
        ),
        reasons=lambda handle: _reasons(built, handle),
        analysis=lambda: _analysis(built),
        sessions=lambda: session_rows(place),
        models=lambda: model_names(place, deps.model.name),
        file_text=lambda path: _file_text(built, path),
        wall_us=CLOCK.wall_us,
        custom_commands=lambda: session.skills.known if session.skills is not None else (),
        task_tail=lambda task, lines: _task_tail(place, built, task, lines),
        goals=Goals(
            place.state_dir,
            project_key(project_root(deps.workspace.roots[0])),
            USER,
            CLOCK.wall_us,
            redact=deps.redact,
        ),
        hooks=lambda: _hooks(place, built),
        slash_commands=lambda: [
            one for part in deps.extension_parts for one in part.slash_commands()
        ],
        commands=command_facts(place, built),
        sandbox=lambda: _sandbox(place, built),
        read_history=HistoryReader(place.state_dir, session.id).reading,
        is_root=is_root,
        leave_policy=place.settings.tasks.policy or "ask",
        choosing=choosing,
        options=place.settings.terminal,
        environ=place.environ,
        status_line=_status_line(place, built),
        input=input_facts(place, built),
        chosen=chosen_line(deps.model.name, built.key_source),
        later_notices=lambda: first_run_notices(place),
        keys=_key_commands(place, built),
    )


def _status_line(place: RunContext, built: AppSession) -> "StatusCommand | None":
    """Return the user's command for the status line; None without one, and where no hook runs."""
    command = place.settings.terminal.status_line
    if not command.strip() or place.settings.hooks.disable or place.hooks.disabled:
        return None
    from longrein.agent.status_line_command import StatusCommand

    project, home = project_root(built.deps.workspace.roots[0]), home_folder(place.environ)
    effort = ""
    with suppress(LongreinError):  # the model of a plugin
        effort = chosen_model(place, built.deps.model.name).effort
    return StatusCommand(
        built.session, own_command(command, project, home), project, __version__, effort
    )


def _key_commands(place: RunContext, built: AppSession) -> KeyCommands:
    """Return what `/login` does: as the subcommand; the new key is masked in this session from
    now on.
    """
    commands, deps = key_commands(place), built.deps

    def login(provider: str) -> SecretQuestion:
        question = commands.login(provider)

        def keep(text: str) -> str:
            told = question.keep(text)
            built.session.hide([text.strip()])
            if deps.model.name.partition("/")[0] != provider:
                return f"{told}; /model chooses a model of {provider}"
            deps.model = deps.open_model(deps.model.name)
            return f"{told}; the next request uses it"

        return SecretQuestion(question.text, keep)

    return msgspec.structs.replace(commands, login=login)


def _hooks(place: RunContext, built: AppSession) -> Sequence[tuple[str, str]]:
    """Describe the hooks that run, then those that wait to be confirmed."""
    running = [one.hook for one in built.session.part(SessionHooks).table.handlers]
    waiting = [(f"not confirmed: {hook_line(hook)}", hook.source) for hook in place.hooks.changed]
    return [*((hook_line(hook), hook.source) for hook in running), *waiting]


def _sandbox(place: RunContext, built: AppSession) -> str:
    rung = built.deps.sandbox.rung if built.deps.sandbox is not None else None
    if rung is None or not rung.confines:
        return "no sandbox"
    return (
        f"{rung.name}, no network" if network_problem(place.settings.sandbox, rung) else rung.name
    )


async def _task_tail(place: RunContext, built: AppSession, task: str, lines: int) -> str:
    archive = HistoryReader(place.state_dir, built.session.id)
    return await archive.reading(lambda past: output_tail(past, built.log.folder, task, lines))


def _file_text(built: AppSession, path: str) -> str | None:
    workspace = built.deps.workspace
    try:
        found = workspace.resolve(path, built.session.state.cwd)
        return (
            workspace.read(found.real, 1_000_000).decode("utf-8", "replace")
            if found.kind == "file"
            else None
        )
    except OSError:
        return None


class FileNames:
    """Completion of file names in a folder, for `@`."""

    def __init__(
        self,
        workspace: Workspace,
        cwd: Callable[[], str],
        mono_s: Callable[[], float],
        files_max: int = FILES_MAX,
    ) -> None:
        self._workspace = workspace
        self._cwd = cwd
        self._mono_s = mono_s
        self._files_max = files_max
        self._of, self._listed_s = "", 0.0
        self._matcher = FileMatcher(())
        self._files = 0
        self._whole = True
        """True if the list is complete."""
        self._renewing: asyncio.Task[None] | None = None

    async def find(self, typed: str) -> FilesFound:
        """Return the files and folders that match `typed`, best first.

        A list that is old is renewed beside the search, so that only the first key in a folder
        waits for it.
        """
        cwd, now_s = self._cwd(), self._mono_s()
        if cwd != self._of:
            await self._renew(cwd)
        elif (not typed or now_s - self._listed_s > FILES_KEPT_S) and (
            self._renewing is None or self._renewing.done()
        ):
            self._renewing = asyncio.ensure_future(self._renew(cwd))
            await asyncio.wait([self._renewing], timeout=FRESH_S)
        shown, found = self._matcher.find(typed, FILES_SHOWN_MAX)
        left = found - len(shown)
        is_counted = not typed or found < MATCHES_MAX
        more = ""
        if left:
            more = f"{left:,} more; type on" if is_counted else "more; type on"
        partial = "" if self._whole else f"only {self._files:,} files of this folder were looked at"
        return FilesFound(shown, "; ".join(filter(None, (more, partial))))

    async def _renew(self, cwd: str) -> None:
        paths, whole = await self._list(cwd)
        self._matcher = await self._workspace.run_in_thread(lambda: FileMatcher(paths))
        self._of = cwd
        self._listed_s = self._mono_s()
        self._files = len(paths)
        self._whole = whole

    async def _list(self, cwd: str) -> tuple[list[str], bool]:
        """Return the files that git knows, else those of a walk with a time limit; and whether
        they are complete.
        """
        from longrein.workspace.git import GIT_CUT, run_git

        listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        code, listed = await run_git(self._workspace, listing, cwd)
        if code in (0, GIT_CUT):
            return listed.decode("utf-8", "surrogateescape").split("\0")[:-1], code == 0
        paths: list[str] = []
        whole = True
        folder = self._workspace.resolve(cwd, "/").real
        above = os.path.join(folder, "")

        def note(path: str, is_folder: bool) -> bool:
            nonlocal whole
            if len(paths) >= self._files_max:
                whole = False
            elif not is_folder:
                paths.append(path.removeprefix(above))
            return whole

        walking = asyncio.ensure_future(
            self._workspace.run_in_thread(
                lambda: self._workspace.walk(folder, note, limit_s=FILES_LIMIT_S)
            )
        )
        try:
            in_time = await asyncio.shield(walking)
        except asyncio.CancelledError:
            whole = False  # the walk ends soon without a waiter
            raise
        return paths, whole and in_time
