"""One headless run: a prompt in, lines out, nobody there to ask, an exit code at the end."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from longrein.agent import Answer, GoOn, Noticed, OfChild, Said, SessionPort
from longrein.events import (
    AnyPart,
    Asked,
    Entry,
    LongreinError,
    PermissionAsked,
    SessionError,
    TurnEnded,
    UsageError,
)
from longrein.frontends.headless.input import ControlRequest, KeepImage, UserMessage, parse_line
from longrein.frontends.headless.output import BufferedOutput, RunReporter
from longrein.frontends.headless.partial_messages import SubagentStreams
from longrein.frontends.headless.result import Stop, error_line, exit_code
from longrein.frontends.headless.run_state import RunState, SessionFacts, Style
from longrein.frontends.text_format import escape_line

DENIAL = (
    "Nobody is here to approve this. Go on with what you may do without it; if it cannot be done without, "
    "stop and say exactly what needs permission."
)
"""What the model is told with each denial."""

WAITING_SAID_S = 3.0
"""A run that has its answer and stays longer than this says what for."""
FAREWELL_S = 2.0
"""How long the reader of stdout gets to take the last lines after a signal."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_headless(
    session: SessionPort,
    *,
    prompt: tuple[AnyPart, ...],
    facts: SessionFacts,
    style: Style,
    out: BufferedOutput,
    err: Callable[[str], None],
    lines: AsyncIterator[bytes] | None = None,
    keep_image: KeepImage | None = None,
) -> int:
    """Say `prompt` (() goes on with an open turn), then each of `lines`, and wait for the turns to end.

    The session must be open and idle; it is closed here, before the last result is said. What asks for permission is
    denied. `out` gets UTF-8 lines of `style.output`, `err` gets one line a call, without newline. SIGINT, SIGTERM and
    SIGHUP interrupt the turn (a second one drops it where it is) and give 128 + their number. Errors of ours become a
    result, a line on `err` and their exit code. Needs the main thread.
    """
    run = _Run(session, facts, style, out, err)
    with _signals(run.stop):
        return await run.go(prompt, lines, keep_image)


class _Run:
    def __init__(
        self, session: SessionPort, facts: SessionFacts, style: Style, out: BufferedOutput, err: Callable[[str], None]
    ) -> None:
        state = session.state
        self.session, self.facts, self.style, self.out, self.err = session, facts, style, out, err
        self.start = state.seq
        """Last entry before the run."""
        self.tally = RunState(facts.session, facts.model)
        self.tally.calls.update((call, opened.call) for call, opened in state.calls.items())
        self.company = SubagentStreams(self.tally, state)
        self.voice = RunReporter(facts, style, out, self.start, err)
        self.signal = 0
        self.error: LongreinError | None = None
        self.driving: asyncio.Task[None] | None = None
        self.fresh = asyncio.Event()
        """Set when there is something to run for, or nothing will come any more."""
        self.talks = False
        """Whether each turn gets a result of its own (stream-json input)."""
        self.mistyped: UsageError | None = None
        """The first line of stdin that could not be read: the run goes on, and is no success."""
        self.waiting: asyncio.TimerHandle | None = None
        self.code: int | None = None
        """Exit code of the last turn that has its result."""

    async def go(
        self, prompt: tuple[AnyPart, ...], lines: AsyncIterator[bytes] | None, keep_image: KeepImage | None
    ) -> int:
        """The whole run."""
        self.talks = lines is not None
        self.session.stay(self.style.background, self.style.background_s)
        self.voice.begin()
        for note in self.facts.notes:
            self.voice.heard(Noticed(note), self.tally)
        listening = asyncio.create_task(self._listen())
        self.driving = asyncio.create_task(self._drive(prompt, lines, keep_image))
        await asyncio.wait({self.driving, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not self.driving.done():  # the log cannot be followed any more
            self.session.interrupt()
        await _wait_end(self.driving)
        await self._close(listening)
        return await self._finish()

    async def _close(self, listening: asyncio.Task[None]) -> None:
        """Close the session, so that who follows it has heard all and the next run may open it at once."""
        if self.waiting is not None:
            self.waiting.cancel()
        for act in (self._leave_work, self.session.close):  # closed in any case, so that nobody else has to
            try:
                await act()
            except LongreinError as error:
                self.error = self.error or error
                listening.cancel()
        await _wait_end(listening)

    async def _leave_work(self) -> None:
        """Say what goes on without us."""
        stored = not isinstance(self.error, SessionError)  # else nobody knows whether they are in the log
        for agent in self.session.agents() if stored else ():
            if agent.depth == 1 and agent.state in ("queued", "running", "asking"):
                self.err(f"subagent {agent.label} has not ended; it goes on with `longrein -c`")
        for task in await self.session.leave("keep"):
            how = "waits for `longrein -c` to begin" if task.state == "queued" else self._goes_on
            self.err(f"{task.id} {how}: {escape_line(task.command)}")

    @property
    def _goes_on(self) -> str:
        most = ", at most until the longrein above this one is left" if self.facts.nested else ""
        return f"goes on in the background{most}"

    def stop(self, number: int) -> None:
        """A signal came."""
        if self.signal and self.driving is not None:
            self.driving.cancel()
        self.signal = self.signal or number
        self.session.stay("exit")
        self.out.hurry()
        self.session.interrupt()
        self.fresh.set()

    async def _drive(
        self, prompt: tuple[AnyPart, ...], lines: AsyncIterator[bytes] | None, keep_image: KeepImage | None
    ) -> None:
        """Put the words in and run the loop; an error of ours is kept for the result."""
        try:
            for call, opened in list(self.session.state.calls.items()):
                if opened.asked is not None and opened.answer is None:  # asked before a crash
                    self.tally.questions[call] = opened.asked
                    await self._deny(call)
            if prompt:
                await self.session.tell(Said(prompt))
                self.fresh.set()
            elif self.session.state.turn_open or self.session.state.unanswered:
                await self.session.tell(GoOn())
                self.fresh.set()
            elif lines is None and not self.session.pending:
                raise UsageError("nothing to go on with: the last turn has ended; give a prompt")
            if lines is not None:
                await self._converse(lines, keep_image)
            elif not self.signal:
                await self.session.run(once=True)
        except LongreinError as error:
            self.error = error

    async def _converse(self, lines: AsyncIterator[bytes], keep_image: KeepImage | None) -> None:
        """Run a turn whenever a line has come, until stdin ends."""
        pump = asyncio.create_task(self._pump(lines, keep_image))
        try:
            while not self.signal and not self.out.deaf:
                await self.fresh.wait()
                ended = pump.done()
                self.fresh.clear()
                if not self.signal:
                    await self.session.run(once=True)
                if ended:
                    break
        finally:
            pump.cancel()
        await _wait_end(pump)

    async def _pump(self, lines: AsyncIterator[bytes], keep_image: KeepImage | None) -> None:
        try:
            async for line in lines:
                try:
                    word = parse_line(line, keep_image)
                except UsageError as error:
                    self._pass_over(error)
                    continue
                if isinstance(word, ControlRequest):
                    self.voice.answer(word.request)
                elif word is not None:
                    await self._said(word)
        finally:
            asyncio.get_running_loop().call_soon(self.fresh.set)  # when this task counts as done

    def _pass_over(self, error: UsageError) -> None:
        """A line that cannot be read harms no other: it is told, and the run goes on."""
        self.mistyped = self.mistyped or error
        self.err(str(error))
        if self.style.output == "stream-json":
            self.voice.heard(Noticed(str(error)), self.tally)

    async def _said(self, word: UserMessage) -> None:
        if word.how == "now":
            self.session.interrupt()
        if not self.session.busy:
            await self.session.tell(Said(word.parts))
        else:
            await self.session.tell(Said(word.parts, "steer" if word.how == "steer" else "queued"))
        self.fresh.set()

    async def _listen(self) -> None:
        try:
            async for heard in self.session.follow(self.start, streaming=self.voice.partial):
                if isinstance(heard, OfChild):
                    await self._of_child(heard)
                else:
                    self.voice.heard(heard, self.tally)
                if isinstance(heard, Entry):
                    await self._entry(heard)
                if self.out.waiting_bytes:
                    await self.out.drain()
                if self.out.deaf:
                    self.session.interrupt()
                    self.fresh.set()
        except LongreinError as error:
            self.error = error

    async def _entry(self, entry: Entry) -> None:
        self.tally.step(entry)
        match entry.event:
            case PermissionAsked(call=call):
                await self._deny(call)
            case Asked() if self.signal:
                self.session.interrupt()  # the signal came before the turn had begun
            case TurnEnded() if self.talks:
                self._end_turn()
            case TurnEnded() if self.tally.beside:
                self.voice.say(self.tally)  # the run may go on for what works in the background
                self.waiting = asyncio.get_running_loop().call_later(WAITING_SAID_S, self._say_waiting)
            case _:
                pass

    async def _of_child(self, of: OfChild) -> None:
        """Something of a subagent: what it asks is denied like what the session itself asks."""
        self.voice.of_child(of, self.company)
        if isinstance(of.heard, Entry):
            self.company.tally(of).step(of.heard)
            if isinstance(of.heard.event, PermissionAsked):
                await self._deny(of.heard.event.call, of.child)

    def _say_waiting(self) -> None:
        """What the run still stays for although it has its answer: without a word it would look as if it hung."""
        tasks = [task for task in self.session.tasks() if task.state in ("queued", "running")]
        if tasks and not (self.session.busy or self.signal):
            names = ", ".join(f"{task.id} ({escape_line(task.command)[:80]})" for task in tasks[:5])
            more = f" and {len(tasks) - 5} more" if len(tasks) > 5 else ""
            self.err(f"waiting at most {self.style.background_s:g} s for {names}{more}")

    async def _deny(self, call: str, child: str = "") -> None:
        await self.session.tell(Answer(call, "deny", message=DENIAL, by="headless", session=child))

    def _end_turn(self) -> None:
        self.voice.end(self.tally, self._stop())
        self.code = exit_code(self.tally, self._stop())
        self._complain()
        self.tally.next_turn()

    async def _finish(self) -> int:
        """Say how it ended, unless the last turn has said it."""
        if self.talks and self.code is None and not (self.signal or self.error or self.tally.replies):
            self.error = self.mistyped or UsageError("the prompt is empty: stdin held no user message")
        if self.code is None or self.error or self.tally.replies or self.tally.failure:
            self.voice.end(self.tally, self._stop())
            self.code = None
        await self.out.drain(FAREWELL_S if self.signal else None)
        if self.code is None or self.signal or self.out.deaf:
            self._complain()
            return exit_code(self.tally, self._stop())
        return self.code or (self.mistyped.exit_code if self.mistyped else 0)

    def _stop(self) -> Stop:
        return Stop(self.signal, self.error, self.out.deaf)

    def _complain(self) -> None:
        line = error_line(self.tally, self._stop())
        if line and (self.error is None or self.error is not self.mistyped):
            self.err(line)


async def _wait_end(task: asyncio.Task[None]) -> None:
    """Wait for `task`, which may have been cancelled; raises what it raised."""
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


@contextmanager
def _signals(stop: Callable[[int], None]) -> Iterator[None]:
    """Send signals to `stop`; those that were ignored from outside (`nohup`, a script's `&`) stay ignored."""
    loop = asyncio.get_running_loop()
    caught = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in caught:
        loop.add_signal_handler(number, stop, int(number))
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
