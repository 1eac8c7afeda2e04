"""Control requests that a program makes of longrein: what is answered, and what is refused with
a reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import Any

from longrein.agent import OpenSession, Rewind, SetModel, StopSubagent, StopTask
from longrein.agent.extension_part import ControlHandler
from longrein.app import AppSession
from longrein.app.user_requests import mode_message
from longrein.frontends.headless.control_lines import (
    ControlError,
    ControlRequest,
    error_line,
    success_line,
)
from longrein.frontends.headless.stream_json_blocks import Line
from longrein.frontends.loop_streams import cancel_all
from longrein_context.events import LongreinError, entry_uuid

Handler = Callable[[Mapping[str, Any]], Awaitable[Line]]


ELSEWHERE = "it is a service of Claude Code, which longrein has not"
WAITING = frozenset({"rewind_files"})
"""Requests that are answered once the session has done its part, other lines before them."""
BY_USER = "longrein's settings are files of the user, which no program changes"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        """
        claude_authenticate claude_oauth_callback claude_oauth_wait_for_completion claim_session remote_control
        channel_enable message_rated submit_feedback submit_survey_feedback ultrareview_launch get_chrome_browsers
        get_chrome_dialog select_chrome_browser set_chrome_browser_hints
        """.split(),  # noqa: E501, SIM905
        ELSEWHERE,
    ),
    **dict.fromkeys(("update_settings", "register_repo_root"), BY_USER),
    **dict.fromkeys(
        (
            "get_hooks_listing",
            "get_memory_dialog",
            "get_sandbox_dialog",
            "get_skills_dialog",
            "get_plan",
            "get_status",
        ),
        "it fills a dialog of Claude Code's own screen",
    ),
    **dict.fromkeys(
        ("rename_session", "generate_session_title", "set_color"),
        "a session is named by its first message",
    ),
    **dict.fromkeys(
        ("mcp_authenticate", "mcp_clear_auth", "mcp_oauth_callback_url"),
        "`longrein mcp login` and `logout` do it",
    ),
    **dict.fromkeys(("get_usage", "get_session_cost"), "each result has the costs"),
    **dict.fromkeys(
        ("read_file", "file_suggestions"), "read the files yourself: they are on this machine"
    ),
    **dict.fromkeys(
        ("set_prompt_suggestions_paused", "set_has_subscribers"),
        "no prompts are suggested, and all lines are sent",
    ),
    "cancel_async_message": "a message that was sent is taken; interrupt ends its turn",
    "export_conversation": "`longrein export` writes it",
    "get_task_output": "the line task_notification names the file with the output",
    "list_permission_rules": "`longrein doctor` shows the rules",
    "mcp_call": "tools are called by the model only",
    "seed_read_state": "the model reads a file before it edits it",
    "set_cwd": "a session keeps its folder; commands may cd below it",
    "set_mcp_permission_mode_override": "permission rules hold for MCP servers too: `mcp__server`",
    "side_question": "begin another session with --fork-session",
}
"""Control request that SDKs can send -> why it is not answered."""
SENT_ONLY = ("can_use_tool", "hook_callback", "mcp_message", "elicitation", "request_user_dialog")
"""Control requests that go from longrein to the program."""


class HostRequests:
    """Serves the requests of the program that runs longrein."""

    def __init__(
        self,
        opened: AppSession,
        wake: Callable[[], None],
        put: Callable[[Line], None] = lambda _: None,
    ) -> None:
        """`wake` lets the session take what was put into its inbox; `put` writes a line to the
        program.
        """
        self._opened = opened
        self._session: OpenSession = opened.session
        self._wake = wake
        self._put = put
        self._handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "interrupt": self._interrupt,
            "set_permission_mode": self._set_permission_mode,
            "set_model": self._set_model,
            "set_max_thinking_tokens": self._set_max_thinking_tokens,
            "apply_flag_settings": self._apply_flag_settings,
            "get_settings": self._get_settings,
            "get_context_usage": self._context_usage,
            "get_binary_version": self._version,
            "list_models": partial(self._offered, "models", "models"),
            "reload_skills": partial(self._offered, "skills", "commands"),
            "reload_plugins": self._reload_plugins,
            "reload_output_styles": partial(
                self._offered, "available_output_styles", "available_output_styles"
            ),
            "rewind_files": self._rewind_files,
            "stop_task": self._stop_task,
            "background_tasks": self._background_tasks,
            "mcp_status": self._no_servers,
        }
        self._slow: set[asyncio.Task[None]] = set()
        """Requests that wait, perhaps for the program itself."""
        self.served = 0
        """Number of requests."""

    async def serve(self, request: ControlRequest) -> None:
        """Answer a request; one that may wait for the program itself is answered later."""
        self.served += 1
        added = self._added.get(request.subtype)
        waits = request.subtype in WAITING if added is None else added.waits
        if not waits:
            self._put(await self.answer(request))
            return
        task = asyncio.create_task(self._serve_slowly(request))
        self._slow.add(task)
        task.add_done_callback(self._slow.discard)

    @cached_property
    def _added(self) -> Mapping[str, ControlHandler]:
        return self._opened.control_requests()

    def _handler(self, subtype: str) -> Handler | None:
        """Return the handler of a request; an extension comes before longrein."""
        added = self._added.get(subtype)
        return self._handlers.get(subtype) if added is None else added.answer

    async def _serve_slowly(self, request: ControlRequest) -> None:
        self._put(await self.answer(request))

    async def close(self) -> None:
        """Leave the requests that still wait without an answer."""
        await cancel_all(list(self._slow))

    async def answer(self, request: ControlRequest) -> Line:
        """Return the line that answers a request; an error for one that is not known or cannot
        be done.
        """
        handler = self._handler(request.subtype)
        if handler is None:
            return error_line(request.id, self._refusal(request.subtype))
        try:
            return success_line(request.id, await handler(request.request))
        except (ControlError, LongreinError) as error:
            return error_line(request.id, str(error))

    def _refusal(self, subtype: str) -> str:
        if subtype in REFUSED:
            return f"longrein does not do {subtype}: {REFUSED[subtype]}"
        known = ", ".join(dict.fromkeys((*self._handlers, *self._added)))
        return f"longrein has no control request {subtype[:60]!r}; it has {known}"

    async def _initialize(self, _request: Mapping[str, Any]) -> Line:
        raise ControlError(
            "initialize must be the first line on stdin, as the session is open already"
        )

    async def _interrupt(self, _request: Mapping[str, Any]) -> Line:
        self._session.interrupt()
        return {}

    # --- settings of the session ------------------------------------------------------------------

    async def _set_permission_mode(self, request: Mapping[str, Any]) -> Line:
        mode = request.get("mode")
        await self._session.tell(mode_message(mode))
        self._wake()
        return {"mode": mode}

    async def _set_model(self, request: Mapping[str, Any]) -> Line:
        wanted = request.get("model")
        name = self._opened.app.resolve_model("" if wanted in (None, "default") else str(wanted))
        await self._session.tell(SetModel(name))
        self._wake()
        return {"model": name}

    async def _set_max_thinking_tokens(self, request: Mapping[str, Any]) -> Line:
        tokens = request.get("max_thinking_tokens")
        if not (
            tokens is None
            or (isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0)
        ):
            raise ControlError(f"max_thinking_tokens: {tokens!r} is not a whole number of tokens")
        await self._session.tell(SetModel(self._opened.set_thinking(tokens)))
        self._wake()
        return {}

    async def _apply_flag_settings(self, request: Mapping[str, Any]) -> Line:
        given = request.get("settings")
        settings: Mapping[str, Any] = given if isinstance(given, dict) else {}
        permissions = settings.get("permissions") or {}
        if not isinstance(permissions, dict):
            raise ControlError("apply_flag_settings: permissions must be an object")
        unknown = [str(name) for name in settings if name not in ("model", "permissions")]
        unknown += [f"permissions.{name}" for name in permissions if name != "defaultMode"]
        if unknown:
            raise ControlError(
                f"apply_flag_settings: {', '.join(unknown)[:200]} cannot change in an open "
                "session; give --settings"
            )
        if "model" in settings:
            await self._set_model(settings)
        if "defaultMode" in permissions:
            await self._set_permission_mode({"mode": permissions["defaultMode"] or "default"})
        return {}

    async def _get_settings(self, _request: Mapping[str, Any]) -> Line:
        model = self._opened.model
        mode = self._session.state.mode
        effective = {"model": model, "permissions": {"defaultMode": mode}}
        return {
            "effective": effective,
            "sources": [],
            "applied": {"model": model, "effort": None},
        }

    def _offer(self) -> Line:
        from longrein.frontends.headless.initialize import offer_fields

        return offer_fields(self._opened)

    async def _version(self, _request: Mapping[str, Any]) -> Line:
        return {"version": self._opened.app.version}

    async def _offered(self, name: str, field: str, _request: Mapping[str, Any]) -> Line:
        return {name: self._offer()[field]}

    async def _reload_plugins(self, _request: Mapping[str, Any]) -> Line:
        offer = self._offer()
        status = self._handler("mcp_status") or self._no_servers
        servers = await status({})
        return {
            "commands": offer["commands"],
            "agents": offer["agents"],
            "plugins": [],
            "error_count": 0,
            **servers,
        }

    async def _no_servers(self, _request: Mapping[str, Any]) -> Line:
        return {"mcpServers": []}

    async def _context_usage(self, _request: Mapping[str, Any]) -> Line:
        from longrein.frontends.reports.context import context_usage

        state = self._session.state
        model = f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else ""
        return context_usage(self._opened.context_report(), state, model)

    # --- files and background work ----------------------------------------------------------------

    async def _rewind_files(self, request: Mapping[str, Any]) -> Line:
        wanted = str(request.get("user_message_id") or "")
        session = self._session
        seq = next(
            (n for n in range(session.state.seq, 0, -1) if entry_uuid(session.id, n) == wanted), 0
        )
        if not seq:
            raise ControlError(f"no message of this session has the id {wanted!r}")
        if session.busy:
            raise ControlError("files can be put back when the turn has ended; interrupt it first")
        preview = await session.preview_rewind(seq, conversation=False)
        changed, kept = sorted([*preview.restored, *preview.removed]), list(preview.kept)
        told: Line = {"notes": list(preview.notes)} if preview.notes else {}
        if not changed and preview.missing:
            return {"canRewind": False, "error": "; ".join(preview.missing), **told}
        if not request.get("dry_run"):
            message = Rewind(seq, files=True, conversation=False)
            outcome = session.restored(message)
            await session.tell(message)
            self._wake()
            puts = await outcome
            changed = [put.path for put in puts if put.done]
            kept = [put for put in puts if not put.done]
        files_kept = [{"path": put.path, "reason": put.why} for put in kept]
        return {"canRewind": True, "filesChanged": changed, "filesKept": files_kept, **told}

    async def _stop_task(self, request: Mapping[str, Any]) -> Line:
        wanted = str(request.get("task_id") or "")
        agent = next((one for one in self._session.agents() if one.label == wanted), None)
        if agent is not None:
            await self._session.tell(StopSubagent(agent.child))
        elif any(task.id == wanted for task in self._session.tasks()):
            await self._session.tell(StopTask(wanted))
        else:
            raise ControlError(f"no task {wanted!r} is known here")
        self._wake()
        return {}

    async def _background_tasks(self, _request: Mapping[str, Any]) -> Line:
        return {"backgrounded": self._session.background()}
