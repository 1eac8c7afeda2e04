"""Execution of commands: environment, workspace, supervisor, sandbox; and the hooks."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from longrein.agent.hooks import HookHandler, HookTable
from longrein.app.run_context import CLOCK, RunContext
from longrein.config import expanded_headers, fingerprint, project_root
from longrein.permissions import Hook
from longrein.settings_schema import SandboxOptions
from longrein.store import SessionLog
from longrein.store.session_folder import CHECKPOINTS
from longrein.workspace import (
    SPOOL,
    SupervisedSpawner,
    SupervisionOptions,
    Workspace,
    open_workspace,
)
from longrein.workspace.sandbox import SessionSandbox, image_problem
from longrein_context.events import UsageError

if TYPE_CHECKING:
    from longrein.agent.checkpoints import SessionCheckpoints
    from longrein.tools.editor_services import Editor


def variables(run_context: RunContext) -> dict[str, str]:
    """Return the environment with the variables that settings of other agents add."""
    return {**run_context.environ, **dict(run_context.settings.variables)}


def _environ(run_context: RunContext) -> Mapping[str, str]:
    """Return the environment of commands; a longrein they start uses the same state folder if
    one was named.
    """
    environ = variables(run_context)
    named = run_context.options.state_dir or run_context.environ.get("LONGREIN_STATE_DIR")
    return {**environ, "LONGREIN_STATE_DIR": run_context.state_dir} if named else environ


def open_workspaces(
    run_context: RunContext,
    roots: tuple[str, ...],
    spawner: SupervisedSpawner,
    sandbox: SessionSandbox,
    editor: "Editor | None",
) -> tuple[Workspace, Callable[[tuple[str, ...]], Workspace]]:
    """Return the workspace of the session, over the editor's buffers if there are any; and how
    to open others.
    """
    environ, settings = _environ(run_context), run_context.settings
    keep_env = (*settings.env.keep, *(name for name, _ in settings.variables))
    shared = sandbox.shared_folders
    in_roots = partial(
        open_workspace, spawner=spawner, environment=environ, keep_env=keep_env, shared=shared
    )
    if editor is None:
        return in_roots(roots), in_roots
    return editor.open_workspace(
        roots, spawner=spawner, environment=environ, keep_env=keep_env, shared=shared
    ), in_roots


def make_spawner(
    run_context: RunContext,
    log: SessionLog,
    roots: Sequence[str],
    nonce: str,
    secrets: tuple[str, ...],
) -> SupervisedSpawner:
    """Build the spawner of commands, through the session's supervisor."""
    settings = run_context.settings
    options = SupervisionOptions(
        nonce, secrets, settings.redact.patterns, settings.tasks.keep_s, settings.tasks.quota_bytes
    )
    return SupervisedSpawner(
        os.path.join(log.folder, SPOOL),
        options,
        wall_us=CLOCK.wall_us,
        notice=log.notes.append,
        environ=run_context.environ,
        roots=roots,
    )


def make_sandbox(run_context: RunContext, log: SessionLog, roots: Sequence[str]) -> SessionSandbox:
    """Build the sandbox of commands. Raises `UsageError` where it is required and none works."""
    sandbox = sandbox_in(run_context, log.folder, roots)
    _check_sandbox(run_context.settings.sandbox, sandbox)
    return sandbox


def sandbox_in(run_context: RunContext, folder: str, roots: Sequence[str]) -> SessionSandbox:
    """Build the sandbox that the settings ask for. Its private folders are made in `folder`."""
    return SessionSandbox(
        run_context.settings.sandbox,
        folder=folder,
        home=run_context.home,
        state_dir=run_context.state_dir,
        environ=run_context.environ,
        roots=roots,
    )


def _check_sandbox(options: SandboxOptions, sandbox: SessionSandbox) -> None:
    """Raise `UsageError` where the settings ask for what no sandbox gives here."""
    if options.network:
        from longrein.permissions.network_hosts import entry_problem

        for entry in options.network:
            if problem := entry_problem(entry):
                raise UsageError(f"sandbox.network names {entry!r}: {problem}")
    if problem := image_problem(options, sandbox.rung):
        raise UsageError(problem)
    if options.mode == "required" and not sandbox.rung.confines:
        raise UsageError(
            f'no sandbox works here, and sandbox.mode is "required": {sandbox.rung.reason}. '
            'Set sandbox.mode to "auto" to work without one; `longrein doctor` shows what is '
            "missing"
        )


def hook_table(
    run_context: RunContext, roots: Sequence[str], more: Sequence[HookHandler]
) -> HookTable:
    """Build the table of hooks: those of files, then `more`."""
    options, environ = run_context.settings.hooks, run_context.environ
    handlers = [_handler(hook, environ) for hook in run_context.hooks.hooks]
    project = project_root(roots[0])
    return HookTable(
        (*handlers, *more),
        env={"CLAUDE_PROJECT_DIR": project, "LONGREIN_PROJECT_DIR": project},
        timeout_s=options.timeout_s,
        may_allow=options.may_allow,
        outside_sandbox=options.outside_sandbox,
        make=_head_hook_maker(run_context),
    )


def _handler(hook: Hook, environ: Mapping[str, str]) -> HookHandler:
    from longrein.agent.model_hooks import handler_of

    return handler_of(hook, expanded_headers(hook, environ))


def _head_hook_maker(run_context: RunContext) -> Callable[[Hook, str], HookHandler | None] | None:
    """Return a function that makes the handler of a hook of a skill or subagent type, for an event;
    None for no hooks.

    The hook of a project must be as the user has confirmed it.
    """
    if run_context.settings.hooks.disable or run_context.hooks.disabled:
        return None

    def make(hook: Hook, event: str) -> HookHandler | None:
        known = hook.is_own or run_context.options.trust
        if not known and fingerprint(hook) not in run_context.trusted.confirmed_hooks(
            run_context.cwd
        ):
            return None
        return _handler(msgspec.structs.replace(hook, event=event), run_context.environ)

    return make


# --- Checkpoints ----------------------------------------------------------------------------------
#
# Choice of the place where the work tree is kept before commands, if it is kept.


def checkpoint_opener(
    run_context: RunContext, log: SessionLog, workspace: Workspace
) -> "Callable[[], SessionCheckpoints] | None":
    """Return a function that opens the checkpoints of a session; None where the settings switch
    them off.
    """
    bytes_max = run_context.settings.tools.checkpoint_bytes_max
    if not bytes_max:
        return None

    def open_them() -> "SessionCheckpoints":
        from longrein.agent.checkpoints import SessionCheckpoints, place_of
        from longrein.workspace.root_copies import CheckpointStore

        store = CheckpointStore(
            os.path.join(log.folder, CHECKPOINTS),
            workspace.environment(""),
            [run_context.state_dir],
        )
        return SessionCheckpoints(
            store,
            bytes_max,
            keeps_index=not run_context.options.print,
            place=place_of(store.folder, workspace.roots[0]) if log.is_shared else "",
        )

    return open_them
