"""An open session with what frontends ask beside it: models, files, rules, extensions, its end."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from longrein.agent import Dependencies, OpenSession
from longrein.agent.extension_part import AskUser, ControlHandler, SlashCommand
from longrein.app.observers import Finish, finish_observers
from longrein.app.run_context import CLOCK, chosen_model, discard_unused
from longrein.context import Budget, Report, next_compacted, report
from longrein.events import Document, Image
from longrein.models import ModelOptions, open_model
from longrein.store import SessionLog
from longrein.tools import SkillInfo, SubagentType

if TYPE_CHECKING:
    from longrein.app.app import App
    from longrein.app.attachments import AttachmentReader

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
        key_source: str,
        notes: tuple[str, ...],
    ) -> None:
        """`key_source` names the place of the model's key; `notes` are lines for the user."""
        self.app = app
        self.session = session
        self.deps = deps
        self.log = log
        self.key_source = key_source
        self.notes = notes
        self.finishes: tuple[Finish, ...] = ()

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
    def budget(self) -> Budget:
        """Budget of the present model."""
        return self.deps.model.budget

    def models(self) -> Sequence[str]:
        """Return the models to choose from, the present one first."""
        return self.app.models(self.model)

    def set_thinking(self, tokens: int | None) -> str:
        """Open models with thinking up to `tokens` (None: as in the settings) from now on.

        Returns the present model, which is to be opened again. Raises `LongreinError`.
        """
        context = self.app.context
        limit = "" if tokens is None else str(tokens)
        options = msgspec.structs.replace(context.options, thinking="", max_thinking_tokens=limit)
        changed = msgspec.structs.replace(context, options=options)
        return self._open_models_by(lambda name: chosen_model(changed, name))

    def _open_models_by(self, choose: Callable[[str], ModelOptions]) -> str:
        choose(self.model)  # raises for one that a plugin opens
        read_blob = self.log.read_blob
        self.deps.open_model = lambda name: open_model(choose(name), read_blob, CLOCK)
        return self.model

    def context_report(self) -> Report:
        """Return what fills the context."""
        state = self.session.state
        return report(state, self.budget, next_compacted(state, self.budget))

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
        from longrein.permissions.verdict import is_read_denied

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
