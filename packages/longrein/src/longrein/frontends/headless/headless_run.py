"""A headless run: a prompt in, lines out, an exit code at the end. Permission questions are
denied.
"""

import asyncio
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from longrein.agent import Answer, Continue, OpenSession, UserMessage
from longrein.app import AppSession
from longrein.frontends.headless.control_lines import (
    NO_PROGRAM,
    ControlChannel,
    ControlOptions,
    ControlRequest,
    ControlResponse,
)
from longrein.frontends.headless.partial_messages import SubagentStreams
from longrein.frontends.headless.reporter import RunReporter
from longrein.frontends.headless.run_state import (
    OutputOptions,
    RunState,
    Stop,
    StructuredRetries,
    call_of,
)
from longrein.frontends.headless.slash_commands import SlashCommand, answer_of, slash_command
from longrein.frontends.loop_streams import SIGNALS, STOP_REASONS, BufferedOutput, signal_handlers
from longrein.steps import (
    CallStep,
    Projection,
    QuestionStep,
    RequestStep,
    Step,
    TurnEndStep,
)
from longrein.steps.human_text import escape_line
from longrein.tools import EXIT_PLAN_MODE
from longrein.workspace import nesting_depth
from longrein_context.events import AnyPart, Entry, LongreinError, SessionError, UsageError

if TYPE_CHECKING:
    from longrein.frontends.headless.control_requests import HostRequests
    from longrein.frontends.headless.permission_prompt import HostPermissions
    from longrein.frontends.headless.stream_json_input import InputMessage


DENIAL = (
    "Nobody is here to approve this. Go on with what you may do without it; if it cannot be done "
    "without, "
    "stop and say exactly what needs permission."
)
"""Message to the model with each denial."""

PLAN_TAKEN = (
    "The user gets this plan as the answer of this run and judges it later; plan mode goes on. End "
    "your turn now with one line, which may hold what is open; do not repeat the plan."
)
"""Message to the model when it presents a plan."""
STATE_VARIABLES = ("CLAUDE_CODE_SDK_READS_SESSION_STATE", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")
"""Variables with which a program asks for lines `session_state_changed`: for its SDK, and for
itself.
"""
WAITING_SAID_S = 3.0
"""Seconds after the answer until a run that still waits for background work says so on stderr."""
FAREWELL_S = 2.0
"""Seconds that the reader of stdout has to take the last lines after a signal."""


async def run_headless(
    opened: AppSession,
    *,
    prompt: tuple[AnyPart, ...],
    options: OutputOptions,
    out: BufferedOutput,
    err: Callable[[str], None],
    lines: AsyncIterator[bytes] | None = None,
    control: ControlOptions = NO_PROGRAM,
) -> int:
    """Send `prompt` (() resumes an open turn), then each of `lines`, wait for the turns, and return
    the exit code.

    The session must be open and idle; it is closed here, before the last result is written.
    Permission questions are denied. `out` gets UTF-8 lines of `options.output`, `err` one line per
    call, without newline. SIGINT, SIGTERM and SIGHUP interrupt the turn (a second one cancels it)
    and give 128 + their number. A `LongreinError` becomes a result, a line on `err` and its exit
    code. Needs the main thread. `control` is for requests of a program on `lines`.
    """
    run = _Run(opened, options, out, err, control)
    run.streams_input = lines is not None
    caught = [
        number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
    ]  # as under `nohup`
    with signal_handlers({number: partial(run.stop, number) for number in caught}):
        return await run.go(run.drive(prompt, lines))


class _Run:
    def __init__(
        self,
        opened: AppSession,
        options: OutputOptions,
        out: BufferedOutput,
        err: Callable[[str], None],
        control: ControlOptions,
    ) -> None:
        session: OpenSession = opened.session
        state = session.state
        self.opened = opened
        self.session = session
        self.options = options
        self.out = out
        self.err = err
        self.start = state.seq
        """Last entry before the run."""
        self.run_state = RunState(session.id, opened.model)
        self.projection = Projection()
        self.projection.prime(state)
        self.subagents = SubagentStreams(self.run_state, state)
        self.reporter = RunReporter(opened, options, out, self.start, err)
        self.control = control
        self.channel = control.channel or ControlChannel(self.reporter.put_line)
        self.reports_state = [
            opened.app.context.environ.get(name, "").lower() in ("1", "true")
            for name in STATE_VARIABLES
        ]
        """Whether the SDK of the program, and the program itself, ask for the state."""
        self.requests: HostRequests | None = None
        """Serves the requests of a program; None without lines of stdin."""
        self.permissions = self._host_permissions()
        self.retries = StructuredRetries(session) if options.structured else None
        self.seen, self.entry_seen = self.start, asyncio.Event()
        """Last entry that was handled here."""
        self.signal = 0
        self.error: LongreinError | None = None
        self.main_task: asyncio.Task[None] | None = None
        self.work_ready = asyncio.Event()
        """Set when a message waits, or when no more will come."""
        self.held: deque[InputMessage | SlashCommand] = deque()
        """Slash commands that wait for the end of a turn, and what came after them."""
        self.streams_input = False
        """True if stdin is stream-json, so that each turn gets a result of its own."""
        self.input_error: UsageError | None = None
        """Error of the first malformed line of stdin: the run continues, and its exit code is
        not 0.
        """
        self.waiting_notice: asyncio.TimerHandle | None = None
        self.code: int | None = None
        """Exit code of the last turn whose result was written."""

    def _host_permissions(self) -> "HostPermissions | None":
        if self.opened.app.context.options.permission_prompt_tool != "stdio":
            return None
        from longrein.frontends.headless.permission_prompt import HostPermissions

        return HostPermissions(self.session, self.channel, self._notice, self._report_state)

    async def go(self, drive: Coroutine[Any, Any, None]) -> int:
        """Do the whole run, in which `drive` sends the messages; return the exit code."""
        self.session.stay(
            self.options.background,
            self.options.background_s,
            promoted=self.options.waits_for_promoted,
        )
        self.reporter.begin()
        for note in self.opened.notes:
            self.reporter.notice(note)
        listening = asyncio.create_task(self._listen())
        self.main_task = asyncio.create_task(drive)
        await asyncio.wait({self.main_task, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not self.main_task.done():  # following the log has failed
            self.session.interrupt()
        await _wait_end(self.main_task)
        await self._close(listening)
        return await self._finish()

    async def _close(self, listening: asyncio.Task[None]) -> None:
        """Close the session, so that its followers get all updates and the next run can open it."""
        if self.waiting_notice is not None:
            self.waiting_notice.cancel()
        if self.requests is not None:
            await self.requests.close()
        if self.permissions is not None:
            await self.permissions.close()
        for act in (self._report_left_work, self.session.close):  # closed in any case
            try:
                await act()
            except LongreinError as error:
                self.error = self.error or error
                listening.cancel()
        await _wait_end(listening)

    async def _report_left_work(self) -> None:
        """Report on stderr what continues without this process."""
        stored = not isinstance(self.error, SessionError)  # else they may be missing in the log
        for agent in self.session.agents() if stored else ():
            if agent.depth == 1 and agent.state in ("queued", "running", "asking"):
                self.err(f"subagent {agent.label} has not ended; it goes on with `longrein -p -c`")
        going = [task for task in self.session.tasks() if task.state in ("queued", "running")]
        kept = await self.session.leave("keep")
        for task in going:
            if task.id not in [one.id for one in kept]:
                self.err(
                    f"{task.id} was not over when the answer was done, so it was ended "
                    f"(--wait-tasks S waits for it): {escape_line(task.command)}"
                )
        for task in kept:
            is_nested = nesting_depth(self.opened.app.context.environ) > 0
            most = ", at most until the longrein above this one is left" * is_nested
            how = (
                "waits for `longrein -p -c` to begin"
                if task.state == "queued"
                else f"goes on in the background{most}"
            )
            self.err(f"{task.id} {how}: {escape_line(task.command)}")

    def _terminal_commands(self) -> set[str]:
        """Return the names of the slash commands that need the terminal."""
        added = (one.name for one in self.opened.slash_commands())
        skills = {one.name for one in self.opened.find_skills()}
        return {*self.control.terminal_commands(), *added} - skills

    def stop(self, number: int) -> None:
        if self.signal and self.main_task is not None:
            self.main_task.cancel()
        self.signal = self.signal or number
        self.session.stay("exit")
        self.out.stop_waiting()
        self.session.stop_reason = STOP_REASONS.get(self.signal, self.session.stop_reason)
        self.session.interrupt()
        self.work_ready.set()

    async def drive(
        self,
        prompt: tuple[AnyPart, ...],
        lines: AsyncIterator[bytes] | None,
    ) -> None:
        """Send the messages and run the loop; a `LongreinError` is kept for the result."""
        try:
            for question in self.projection.open_questions():  # asked before a crash
                await self._decide(question)
            command = slash_command(prompt, self._terminal_commands)
            if command:
                self.held.append(command)
                await self._run_held()
            elif prompt:
                await self.session.tell(UserMessage(prompt))
                self.work_ready.set()
            elif (
                self.session.state.turn_open or self.session.state.unanswered
            ) and not self.control.waits:
                await self.session.tell(Continue())
                self.work_ready.set()
            elif lines is None and not self.session.pending:
                raise UsageError("nothing to go on with: the last turn has ended; give a prompt")
            if lines is not None:
                await self._run_input(lines)
            elif not (self.signal or command):
                await self._run_turns()
        except LongreinError as error:
            self.error = error

    async def _run_input(self, lines: AsyncIterator[bytes]) -> None:
        """Run a turn whenever a line arrives, until stdin ends."""
        from longrein.frontends.headless.control_requests import HostRequests

        self.requests = HostRequests(self.opened, self._wake, self.reporter.put_line)
        pump = asyncio.create_task(self._read_input(lines, self.requests))
        try:
            while not self.signal and not self.out.write_error:
                await self.work_ready.wait()
                ended = pump.done()
                self.work_ready.clear()
                if not self.signal:
                    await self._run_turns()
                    await self._run_held()
                    self._report_idle()
                if ended:
                    break
        finally:
            pump.cancel()
        await _wait_end(pump)

    async def _run_turns(self) -> None:
        """Run what waits, and again while the ends of turns bring new messages."""
        await self.session.run(once=True)
        while self.retries is not None and not self.signal:
            await self._until_seen()  # the end of the turn was judged
            if not self.session.pending:
                break
            await self.session.run(once=True)

    async def _until_seen(self) -> None:
        """Wait until every entry of the log was handled here."""
        while self.seen < self.session.state.seq and self.error is None:
            self.entry_seen.clear()
            await self.entry_seen.wait()

    async def _run_held(self) -> None:
        """Do what was held back, in its order."""
        while self.held and not self.signal:
            held = self.held[0]
            if isinstance(held, SlashCommand):  # what comes meanwhile waits behind it
                await self._act(held)
                self.held.popleft()
            else:
                self.held.popleft()
                await self._tell(held)
                await self._run_turns()

    async def _act(self, command: SlashCommand) -> None:
        """Do a slash command; what it says is the answer."""
        answer = await answer_of(command, self.opened)
        await self._until_seen()
        self.run_state.answer(answer)
        if self.streams_input:
            self._end_turn()

    async def _read_input(self, lines: AsyncIterator[bytes], requests: "HostRequests") -> None:
        from longrein.frontends.headless.stream_json_input import InputMessage, parse_line

        try:
            async for line in lines:
                try:
                    match parse_line(line, self.opened.keep_media):
                        case ControlRequest() as request:
                            await requests.serve(request)
                        case ControlResponse() as response:
                            self.channel.receive(response)
                        case InputMessage() as message:
                            await self._send(message)
                    await self.out.drain()
                except UsageError as error:  # report the line and continue with the next
                    self.input_error = self.input_error or error
                    self.err(str(error))
                    if self.options.output == "stream-json":
                        self.reporter.notice(str(error))
        finally:
            self.channel.close(
                "the program that runs longrein has closed stdin, so nobody can be asked"
            )
            asyncio.get_running_loop().call_soon(
                self.work_ready.set
            )  # when this task counts as done

    async def _send(self, message: "InputMessage") -> None:
        command = None
        if not message.verbatim:
            command = slash_command(message.parts, self._terminal_commands)
        if message.how == "now":
            self.session.interrupt()
        if command or self.held:
            self.held.append(command or message)
            self.work_ready.set()
        else:
            await self._tell(message)

    async def _tell(self, message: "InputMessage") -> None:
        self._report_state("running")
        how: Literal["prompt", "steer", "queued"] = "prompt"
        if self.session.busy:
            how = "steer" if message.how == "steer" else "queued"
        await self.session.tell(UserMessage(message.parts, how, verbatim=message.verbatim))
        self.work_ready.set()

    async def _listen(self) -> None:
        try:
            async for heard in self.session.follow(self.start, streaming=self.options.partial):
                for step in self.projection.read(heard):
                    await self._apply(step)
                if isinstance(heard, Entry):
                    self.seen = heard.seq
                    self.entry_seen.set()
                if self.out.unwritten:
                    await self.out.drain()
                if self.out.write_error:
                    self.session.interrupt()
                    self.work_ready.set()
        except LongreinError as error:
            self.error = error
            self.entry_seen.set()

    async def _apply(self, step: Step) -> None:
        """Handle a step of the session or a subagent; permission questions are denied."""
        self.reporter.apply(step, self.subagents)
        if step.seq:
            self.subagents.run_state(step.agent).step(step)
        subagent = step.agent.session
        match step:
            case QuestionStep(answer=None):
                await self._decide(step)
            case CallStep(phase="ended", id=call) if self.permissions is not None:
                self.permissions.forget(call, subagent)
            case RequestStep(reply=None, failure=None) if self.signal and not subagent:
                self.session.interrupt()  # the signal came before the turn had begun
            case TurnEndStep() if not subagent:
                await self._turn_ended()

    async def _turn_ended(self) -> None:
        """Ask again, write the result, or print the answer while background work goes on."""
        if self.retries is not None and await self.retries.wants_another(self.run_state):
            return
        if self.streams_input:
            self._end_turn()
        elif self._has_background_work():
            self.reporter.print_answer(self.run_state)
            self.waiting_notice = asyncio.get_running_loop().call_later(
                WAITING_SAID_S, self._say_waiting
            )

    def _has_background_work(self) -> bool:
        subagents = self.run_state.children.values()
        return bool(self.run_state.tasks) or any(
            subagent.started.background for subagent in subagents
        )

    def _say_waiting(self) -> None:
        """Say on stderr which tasks the run still waits for, so that it does not look hung."""
        tasks = [task for task in self.session.tasks() if task.state in ("queued", "running")]
        if tasks and not (self.session.busy or self.signal):
            names = ", ".join(f"{task.id} ({escape_line(task.command)[:80]})" for task in tasks[:5])
            more = f" and {len(tasks) - 5} more" if len(tasks) > 5 else ""
            self.err(f"waiting at most {self.options.background_s:g} s for {names}{more}")

    async def _decide(self, step: QuestionStep) -> None:
        """Ask the program about a call; without one, deny the call."""
        subagent, asked = step.agent.session, step.asked
        if self.permissions is None:
            is_plan = asked is not None and asked.name == EXIT_PLAN_MODE.spec.name and not subagent
            await self._deny(step.id, subagent, PLAN_TAKEN if is_plan else DENIAL)
        elif asked is not None:
            run_state = self.subagents.run_state(step.agent)
            self.permissions.ask(asked, call_of(step), run_state, subagent)

    def _wake(self) -> None:
        self.work_ready.set()

    def _notice(self, text: str) -> None:
        self.err(text)
        if self.options.output == "stream-json":
            self.reporter.notice(text)

    def _report_state(self, state: str) -> None:
        """Tell a program that wants to know whether the session works, waits for it or is idle."""
        for_sdk, for_all = self.reports_state
        if for_sdk or for_all:
            self.reporter.report_state(state, host_only=not for_all)

    def _report_idle(self) -> None:
        if not self.session.busy and not self.session.pending:
            self._report_state("idle")

    async def _deny(self, call: str, subagent: str, why: str) -> None:
        await self.session.tell(Answer(call, "deny", message=why, by="headless", session=subagent))

    def _end_turn(self) -> None:
        self.reporter.end(self.run_state, self._stop())
        self.code = self._exit_code()
        self._complain()
        self.run_state.reset_turn()
        if not any(
            agent.state in ("queued", "running", "asking") for agent in self.session.agents()
        ):
            self._report_state("idle")  # commands in the background are not waited for

    async def _finish(self) -> int:
        said_nothing = not (self.signal or self.error or self.run_state.replies)
        has_asked = self.control.waits or (self.requests is not None and self.requests.served)
        if (
            self.streams_input
            and self.code is None
            and said_nothing
            and has_asked
            and not self.input_error
        ):
            await self.out.drain()
            return 0  # a program that has only asked questions, such as `initialize`
        if self.streams_input and self.code is None and said_nothing:
            self.error = self.input_error or UsageError(
                "the prompt is empty: stdin held no user message"
            )
        if self.code is None or self.error or self.run_state.replies or self.run_state.failure:
            self.reporter.end(self.run_state, self._stop())
            self.code = None
        await self.out.drain(FAREWELL_S if self.signal else None)
        if self.code is None or self.signal or self.out.write_error:
            self._complain()
            return self._exit_code()
        return self.code or (self.input_error.exit_code if self.input_error else 0)

    def _stop(self) -> Stop:
        return Stop(self.signal, self.error, self.out.write_error)

    def _exit_code(self) -> int:
        from longrein.frontends.headless.result import exit_code

        return exit_code(self.run_state, self._stop())

    def _complain(self) -> None:
        from longrein.frontends.headless.result import TRY_AGAIN, error_line

        line = error_line(self.run_state, self._stop())
        if line and (self.error is None or self.error is not self.input_error):
            again = "; `longrein -p -c` tries again" if self._exit_code() == TRY_AGAIN else ""
            self.err(line + again)


async def _wait_end(task: asyncio.Task[None]) -> None:
    """Wait for `task`, which may have been cancelled; raise its exception."""
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
