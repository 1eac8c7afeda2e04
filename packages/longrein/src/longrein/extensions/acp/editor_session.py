"""Session of the editor: prompts in, updates and permission questions out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from acp import RequestError

from longrein.agent import InboxMessage, SessionUpdate, SetMode, SetModel, UserMessage, session_usd
from longrein.agent.extension_part import user_answer
from longrein.app import AppSession
from longrein.app.user_requests import mode_message
from longrein.choices import MODE_TEXTS, MODES
from longrein.extensions.acp import editor_commands, editor_questions
from longrein.extensions.acp.tool_calls import Update
from longrein.extensions.acp.updates import StreamSource, UpdateStream, chunk, notice
from longrein.frontends.stdio import say
from longrein.steps import (
    BreakStep,
    CallStep,
    Projection,
    PromptStep,
    QuestionStep,
    RequestStep,
    SettingStep,
    Step,
    TurnEndStep,
)
from longrein_context.events import AnyPart, Entry, LongreinError, Rewound, UsageError

AUTH_REQUIRED, INTERNAL_ERROR = -32000, -32603
OUTPUT_EVERY_S = 0.3
"""Interval in which new output of running commands is sent."""
CLOSE_S = 5.0
"""Seconds that an interrupted turn has to end before the session is closed."""
STOPS = {"length": "max_tokens", "refusal": "refusal"}
"""Stop reason of the last reply -> that of a turn that is done; others are `end_turn`."""


class Peer(Protocol):
    """The editor (`acp.connection.Connection`)."""

    async def send_request(self, method: str, params: Any) -> Any: ...
    async def send_notification(self, method: str, params: Any) -> None: ...


class EditorPrompt:
    """A prompt that has no answer yet."""

    def __init__(self) -> None:
        self.stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The stop reason."""
        self.begun = False
        """True once the prompt's message is in the log."""
        self.cancelled = False

    def end(self, stop: str | RequestError) -> None:
        if self.stop.done():
            return
        if isinstance(stop, str):
            self.stop.set_result("cancelled" if self.cancelled else stop)
        elif self.cancelled:
            self.stop.set_result("cancelled")
        else:
            self.stop.set_exception(stop)


class EditorSession:
    """A session that an editor has open."""

    def __init__(self, opened: AppSession, peer: Peer, *, forms: bool = False) -> None:
        """`forms`: whether the editor can show a form (`elicitation`)."""
        self.opened = opened
        self._peer = peer
        self._forms = forms
        self.port = opened.session
        self.id = opened.session.id
        self._stream = UpdateStream(
            StreamSource(
                self.id,
                opened.file_text,
                opened.log.read_blob,
                lambda: opened.budget.window_tokens,
                lambda: session_usd(self.port.state, self.port.agents()),
            )
        )
        self._projection = Projection()
        self._prompts: list[EditorPrompt] = []
        self._questions: dict[tuple[str, str], asyncio.Task[None]] = {}
        """(session of the subagent or '', call) -> the question in the editor."""
        self._notes = list(opened.notes)
        """Notices that wait for the first prompt: before it, editors may drop what they get."""
        if self.port.state.turn_open:
            self._notes.append("the last turn was cut off; this prompt goes on with it")
        self._mode = self.port.state.mode
        self._model = ""
        """The model that was asked for, until the session has changed to it."""
        self._announced: list[Update] = []
        """The slash commands that the editor knows."""
        self._last_stop = self._failure = ""
        self._error: LongreinError | None = None
        self._flush: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._news: AsyncIterator[SessionUpdate] = self.port.follow(0)

    # --- life -------------------------------------------------------------------------------------

    async def start(self, *, replay: bool) -> None:
        """Run the session; with `replay`, send its history first."""
        state = self.port.state
        last = state.seq
        if not replay and state.words:
            self._stream.prime(state)
            self._projection.prime(state)
            self._news = self.port.follow(last)
        self._spawn(self._run())
        if replay:
            await self._replay(last)
        self._spawn(self._listen())

    async def close(self) -> None:
        """Interrupt the turn, close the session, and delete it if nothing was said."""
        prompts = [prompt.stop for prompt in self._prompts]
        self.cancel()
        if prompts:
            await asyncio.wait(prompts, timeout=CLOSE_S)
        for question in self._questions.values():
            question.cancel()
        if self._flush is not None:
            self._flush.cancel()
        try:
            await self.port.close()
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=CLOSE_S)
            for task in self._tasks:
                task.cancel()
            for prompt in self._prompts:
                prompt.end("cancelled")
            await self.opened.finish()
            await self.opened.discard_unused()

    async def _run(self) -> None:
        try:
            await self.port.run(once=False)
        except LongreinError as error:
            self._fail(error)
        except Exception as error:
            self._fail(
                LongreinError(
                    f"{type(error).__name__}: {error} (a bug in longrein, please report it)"
                )
            )

    def _fail(self, error: LongreinError) -> None:
        """End all prompts, also later ones, with an error."""
        self._error = self._error or error
        say(f"session {self.id}: {error}")
        for prompt in self._prompts:
            prompt.end(RequestError(INTERNAL_ERROR, str(error)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- requests of the editor -------------------------------------------------------------------

    async def prompt(self, parts: tuple[AnyPart, ...]) -> str:
        """Send the user's message and wait for the end of its turn; return the stop reason.

        A prompt during a turn waits for the end of that turn. Raises `RequestError` when the turn
        failed.
        """
        await self._show_notes()
        if self._error is not None:
            raise RequestError(INTERNAL_ERROR, str(self._error))
        for step in self._projection.open_questions():  # asked before a crash
            if ("", step.id) not in self._questions:
                self._ask(step)
        prompt = EditorPrompt()
        self._prompts.append(prompt)
        try:
            await self.port.tell(UserMessage(parts, "queued" if self.port.busy else "prompt"))
            return await prompt.stop
        finally:
            self._prompts.remove(prompt)

    async def run_command(self, run: Callable[[AppSession, str], str], argument: str) -> str:
        """Run a slash command and send its text; return the stop reason."""
        await self._show_notes()
        try:
            text = run(self.opened, argument)
        except LongreinError as error:
            text = str(error)
        await self.send(chunk("agent_message_chunk", text))
        return "end_turn"

    async def _show_notes(self) -> None:
        notes, self._notes = self._notes, []
        for note in notes:
            await self.send(notice(note))

    def cancel(self) -> None:
        """Stop the turn and drop the prompts that wait; each of them ends with `cancelled`."""
        for prompt in self._prompts:
            prompt.cancelled = True
        waiting = [prompt for prompt in self._prompts if not prompt.begun]
        for message in [message for message in self.port.pending if not message.to]:
            self.port.unqueue(message.id)
            if waiting:  # messages are taken in order, so the newest prompts are those that wait
                waiting.pop().end("cancelled")
        self.port.interrupt()

    async def set_mode(self, mode: str) -> None:
        """Change the permission mode. Raises `UsageError` for an unknown one."""
        message = mode_message(mode)
        self._mode = mode
        await self.port.tell(message)

    async def set_model(self, model: str) -> None:
        """Change the model. Raises `UsageError` for one that was not offered."""
        if model not in self.opened.models():
            raise UsageError(f"there is no model {model!r} to choose")
        self._model = model
        await self.port.tell(SetModel(model))

    def options(self) -> dict[str, Any]:
        """Return modes and configuration options as they are now, as in the result of
        `session/new`.
        """
        model = self._model or self.opened.model
        return {
            "modes": modes(self._mode),
            "configOptions": config_options(self._mode, model, self.opened.models()),
        }

    async def announce(self) -> None:
        """Send the slash commands where they are not those that the editor knows."""
        available = editor_commands.available(self.opened.find_skills())
        if available != self._announced:
            self._announced = available
            await self.send(
                {"sessionUpdate": "available_commands_update", "availableCommands": available}
            )

    async def show_terminal(self, call: str, command: str, terminal: str) -> None:
        """Show a terminal of the editor in the call whose command it runs."""
        update = self._stream.terminal_update(call, command, terminal)
        if update is not None:
            await self.send(update)

    # --- updates ----------------------------------------------------------------------------------

    async def send(self, update: Update) -> None:
        """Send one update; does nothing when the editor has gone."""
        try:
            await self._peer.send_notification(
                "session/update", {"sessionId": self.id, "update": update}
            )
        except ConnectionError:
            return

    async def _replay(self, last: int) -> None:
        """Send the history up to entry `last`, without what a rewind has taken back."""
        entries: list[Entry] = []
        async for heard in self._news:
            if not isinstance(heard, Entry):
                continue
            if isinstance(heard.event, Rewound):
                to = heard.event.to
                entries = [entry for entry in entries if entry.seq <= to]
            entries.append(heard)
            if heard.seq >= last:
                break
        self._stream.replaying = True
        for entry in entries:
            for step in self._projection.read(entry):
                await self._show(step)
        self._stream.replaying = False

    async def _listen(self) -> None:
        try:
            async for heard in self._news:
                for step in self._projection.read(heard):
                    await self._show(step)
                    await self._act(step)
        except LongreinError as error:
            self._fail(error)

    async def _show(self, step: Step) -> None:
        """Send the updates of a step; one that cannot be drawn is left out."""
        try:
            updates = self._stream.apply(step)
        except Exception as error:
            say(
                f"an update could not be shown: {type(error).__name__}: {error} (a bug in "
                "longrein, please report it)"
            )
            return
        for update in updates:
            await self.send(update)

    async def _act(self, step: Step) -> None:
        subagent = step.agent.session
        match step:
            case CallStep(phase="output"):
                self._flush_soon()
            case QuestionStep(answer=None):
                self._ask(step)
            case QuestionStep(id=call) | CallStep(phase="ended", id=call):
                self._drop_question(subagent, call)
            case _ if not subagent:
                await self._act_for_prompts(step)

    async def _act_for_prompts(self, step: Step) -> None:
        match step:
            case PromptStep():
                waiting = next((prompt for prompt in self._prompts if not prompt.begun), None)
                if waiting is not None:
                    waiting.begun = True
            case RequestStep(reply=reply) if reply:
                self._last_stop, self._failure = reply.stop, ""
            case RequestStep(failure=failure) if failure:
                self._last_stop, self._failure = "", failure.kind
            case SettingStep(name="mode", value=mode):
                self._mode = mode
                await self.send({"sessionUpdate": "current_mode_update", "currentModeId": mode})
                await self._send_options()
            case BreakStep(prefix=prefix) if prefix and prefix.reason != "start":
                self._model = ""
                await self._send_options()
            case TurnEndStep():
                await self._end_turn(step)
            case RequestStep() if any(one.begun and one.cancelled for one in self._prompts):
                self.port.interrupt()  # the cancellation came before the turn had begun

    async def _send_options(self) -> None:
        options = self.options()["configOptions"]
        await self.send({"sessionUpdate": "config_option_update", "configOptions": options})

    async def _end_turn(self, ended: TurnEndStep) -> None:
        begun = [prompt for prompt in self._prompts if prompt.begun and not prompt.stop.done()]
        refused = self._last_stop == "refusal"
        if ended.reason == "error" and (refused or not begun) and ended.message:
            await self.send(notice(ended.message, "turn_ended"))
        for prompt in begun:
            prompt.end(self._stop_reason(ended))
        await asyncio.sleep(
            0
        )  # the answers to these prompts come before the updates of the next turn

    def _stop_reason(self, ended: TurnEndStep) -> str | RequestError:
        match ended.reason:
            case "interrupted":
                return "cancelled"
            case "limit" | "budget":
                return "max_turn_requests"
            case "error" if self._last_stop != "refusal":
                code = AUTH_REQUIRED if self._failure == "auth" else INTERNAL_ERROR
                return RequestError(
                    code, ended.message or "the turn failed", {"kind": self._failure}
                )
            case _:
                return STOPS.get(self._last_stop, "end_turn")

    def _flush_soon(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(
                OUTPUT_EVERY_S, lambda: self._spawn(self._send_output())
            )

    async def _send_output(self) -> None:
        self._flush = None
        for update in self._stream.live_output():
            await self.send(update)

    # --- permission questions ---------------------------------------------------------------------

    def _ask(self, step: QuestionStep) -> None:
        agent, asked = step.agent, step.asked
        if asked is None:
            return
        stream = self._stream.of(agent)
        question = editor_questions.Question(
            asked,
            stream.call_view(step.id),
            stream.qualified(step.id),
            agent.session,
            f"{agent.label} {agent.kind}" if agent.session else "",
        )
        self._questions[agent.session, step.id] = self._spawn(self._wait_for_answer(question))

    async def _wait_for_answer(self, question: editor_questions.Question) -> None:
        """Ask the editor. A question that it cancels, refuses or leaves open by going away is
        denied.
        """
        stop = False
        modes: tuple[SetMode, ...] = ()
        try:
            if editor_questions.questions_of(question):
                answer, stop = await editor_questions.ask(
                    question, self._request, forms=self._forms
                )
            else:
                params = {
                    "toolCall": editor_questions.tool_call(question),
                    "options": editor_questions.options(question),
                }
                option = editor_questions.chosen(
                    await self._request("session/request_permission", params)
                )
                answer, stop = editor_questions.answer(question, option), option == "stop"
                if option == editor_questions.ALL_EDITS and question.asked.edits:
                    modes = (SetMode("acceptEdits"),)
        except (ConnectionError, RequestError):
            answer = editor_questions.answer(question, "")
        finally:
            self._questions.pop((question.session, question.asked.call), None)
        try:
            words: tuple[InboxMessage, ...] = (*modes, answer)
            told = [self.port.tell(word) for word in words]
            if stop:
                self.port.interrupt()
            for written in told:
                await written
        except LongreinError:
            return  # the inbox is full, or the session has just failed

    async def answer_server(
        self, server: str, message: str, schema: Mapping[str, Any], url: str
    ) -> Any:
        """Show a question of an MCP server as a form (see `AskUser`); one that needs a browser is
        declined.
        """
        if url:
            return "decline", {}
        params = {
            "mode": "form",
            "message": f"MCP server {server}: {message}",
            "requestedSchema": dict(schema),
        }
        try:
            return user_answer(await self._request("elicitation/create", params))
        except (ConnectionError, RequestError):
            return "cancel", {}

    async def _request(self, method: str, params: Update) -> Any:
        return await self._peer.send_request(method, {"sessionId": self.id, **params})

    def _drop_question(self, subagent: str, call: str) -> None:
        question = self._questions.get((subagent, call))
        if question is not None:
            question.cancel()


_NAMES = ("Plan", "Don't ask", "Default", "Accept edits", "Auto", "Bypass permissions")
MODE_NAMES = {
    mode: (name, MODE_TEXTS[mode].replace("`", ""))
    for mode, name in zip(MODES, _NAMES, strict=True)
}
"""Permission mode -> name and description."""

Option = dict[str, Any]


def modes(current: str) -> Option:
    """Return the session modes, for editors without configuration options."""
    available = [
        {"id": mode, "name": MODE_NAMES[mode][0], "description": MODE_NAMES[mode][1]}
        for mode in MODES
    ]
    return {"currentModeId": current, "availableModes": available}


def config_options(mode: str, model: str, models: Sequence[str]) -> list[Option]:
    """Return all configuration options with their present values."""
    mode_values = [
        {"value": m, "name": MODE_NAMES[m][0], "description": MODE_NAMES[m][1]} for m in MODES
    ]
    model_values = [{"value": name, "name": name} for name in dict.fromkeys((model, *models))]
    return [
        _select("mode", "Permission mode", "mode", mode, mode_values),
        _select("model", "Model", "model", model, model_values),
    ]


def _select(option: str, name: str, category: str, value: str, values: list[Option]) -> Option:
    return {
        "id": option,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": value,
        "options": values,
    }
