"""The commands about what works beside the conversation, the same with a screen and without one."""

from collections.abc import Callable, Sequence

import msgspec

from longrein.agent import AgentView, Pending, Said, SessionPort, StopChild, StopTask
from longrein.events import Text
from longrein.frontends.acts import key_argument
from longrein.frontends.goals_page import goal_rows
from longrein.frontends.safe import escape, escape_line
from longrein.frontends.terminal import beside_rows
from longrein.frontends.terminal.beside import Beside
from longrein.frontends.terminal.beside_rows import OPEN
from longrein.frontends.terminal.chooser import Row
from longrein.frontends.terminal.facts import TerminalFacts
from longrein.frontends.terminal.lines import Line, line
from longrein.frontends.terminal.waiting import Waiting

TAIL_LINES = 20
"""Of a task's output, when it is not said how many."""
TAIL_LINES_MAX = 1_000

NOTHING_RUNS = "no command runs that could go to the background"
TOO_LATE = "that message waits no more: it has been delivered"


class Told(msgspec.Struct, frozen=True):
    """What a command answers."""

    title: str = ""
    rows: Sequence[Line] = ()
    notice: str = ""
    """One line, in place of the rows."""
    edit: str = ""
    """Text for the input."""


class Company:
    """One session, and what its user may know and do of what works beside it."""

    def __init__(self, session: SessionPort, facts: TerminalFacts, beside: Beside) -> None:
        self._session, self._facts, self._beside = session, facts, beside
        self.waiting = Waiting(session)

    async def obey(self, name: str, argument: str, expand: Callable[[str], str]) -> Told:
        """Carry out `/name argument`; `expand` puts folded pastes in place. Raises what `tell` raises."""
        match name:
            case "tasks":
                return await self._tasks(argument)
            case "agents":
                return await self._agents(argument, expand)
            case "goals":
                return await self._goals(argument)
            case "queue":
                return self._queue(argument)
            case "stop":
                return await self._stop(argument)
            case _:
                return Told(notice="" if self._session.background() else NOTHING_RUNS)

    def label(self, child: str) -> str:
        """How a subagent is called; '' for one that is not known."""
        worker = self._beside.workers.get(child)
        return worker.label if worker else next((v.label for v in self._session.agents() if v.child == child), "")

    def edited(self, taken: Pending) -> str:
        """A message that was taken back, as it is typed again."""
        return f"/agents tell {self.label(taken.to)} {taken.text}" if taken.to else taken.text

    # --- tasks -----------------------------------------------------------------------------------------------

    async def _tasks(self, argument: str) -> Told:
        views = self._session.tasks()
        word, _, rest = argument.partition(" ")
        if not word:
            return Told("background tasks", beside_rows.task_list(views))
        wanted = rest.strip() if word == "stop" else word
        view = next((one for one in views if one.id == wanted), None)
        if view is None:
            known = ", ".join(one.id for one in views) or "there are none"
            return Told(notice=f"no task {escape_line(wanted) or '(say which)'}; known: {escape_line(known)}")
        if word == "stop":
            if view.state not in OPEN:
                return Told(notice=f"task {view.id} is over already: {view.state}")
            await self._session.tell(StopTask(view.id))
            return Told(notice=f"task {view.id} is being stopped")
        lines = int(rest) if rest.isascii() and rest.isdigit() else TAIL_LINES
        tail = await self._facts.task_tail(view.id, min(lines, TAIL_LINES_MAX))
        rows = [line("  ", row) for row in escape(tail).expandtabs(4).splitlines()]
        return Told(f"task {view.id}", [beside_rows.task_line(view), *(rows or [line(("dim", "  no output yet"))])])

    # --- subagents -------------------------------------------------------------------------------------------

    async def _agents(self, argument: str, expand: Callable[[str], str]) -> Told:
        views = self._session.agents()
        word, _, rest = argument.partition(" ")
        if not word:
            return Told("subagents", beside_rows.agent_list(views))
        wanted, _, text = rest.strip().partition(" ") if word in ("stop", "tell") else (word, "", "")
        if word == "tell" and "\n" in wanted:
            wanted, _, text = rest.strip().partition("\n")
        view = next((one for one in views if one.label in (wanted, f"a{wanted}")), None)
        if view is None:
            known = ", ".join(one.label for one in views) or "there are none"
            back = f"/agents {argument}" if text else ""
            notice = f"no subagent {escape_line(wanted) or '(say which)'}; known: {escape_line(known)}"
            return Told(notice=notice, edit=back)
        if word in ("stop", "tell"):
            return await self._to_agent(view, word, expand(text.strip()))
        return self._agent(view)

    async def _to_agent(self, view: AgentView, word: str, text: str) -> Told:
        again = f"/agents tell {view.label} {text}" if text else ""
        if view.state not in OPEN:
            return Told(notice=f"{view.label} is over ({view.state}); ask the model to ask it again", edit=again)
        if word == "stop":
            await self._session.tell(StopChild(view.child))
            return Told(notice=f"{view.label} is being stopped; it reports what it has")
        if not text:
            return Told(notice=f"say what: /agents tell {view.label} TEXT")
        stored = self._session.tell(Said((Text(text),), "steer", view.child))
        waits = any(one.to == view.child and one.text == text for one in self._session.pending)
        await stored
        return Told() if waits else Told(edit=again)  # it has just ended

    def _agent(self, view: AgentView) -> Told:
        worker, now = self._beside.workers.get(view.child), self._session.state.children.get(view.child)
        task = worker.started.task if worker else now.started.task if now else ""
        report = now.ended.report if now and now.ended else ""
        acts = [*self._beside.acts.get(view.child, ())]
        return Told(f"subagent {view.label}", beside_rows.agent_page(view, task, report, acts))

    # --- stopping one thing --------------------------------------------------------------------------------------

    def running(self) -> list[Row]:
        """All that can be stopped alone: calls, subagents, tasks."""
        calls = [(call, one) for call, one in self._session.state.calls.items() if one.started]
        return [
            *(Row(call, f"{one.call.name} {key_argument(one.call.arguments)}".rstrip(), "call") for call, one in calls),
            *(Row(v.label, f"{v.kind}: {v.description}", v.label) for v in self._session.agents() if v.state in OPEN),
            *(Row(v.id, v.command, v.id) for v in self._session.tasks() if v.state in OPEN),
        ]

    async def _stop(self, wanted: str) -> Told:
        rows = self.running()
        if not wanted and rows:
            shown = [line(("name", f"  {escape_line(row.value)}  "), escape_line(row.label)) for row in rows]
            return Told("what runs", [*shown, line(("dim", "  /stop ID stops one"))])
        found = next((row for row in rows if row.value == wanted), None)
        if found is None:
            missing = f"nothing that runs is called {escape_line(wanted)}; /stop lists what can be stopped"
            return Told(notice=missing if wanted else "nothing runs that could be stopped")
        if found.note == "call":
            self._session.cancel(wanted)
            return Told(notice=f"{found.label} is being stopped")
        if any(view.label == wanted for view in self._session.agents()):
            return await self._agents(f"stop {wanted}", str)
        return await self._tasks(f"stop {wanted}")

    # --- goals, messages -------------------------------------------------------------------------------------

    async def _goals(self, argument: str) -> Told:
        if self._facts.goals is None:
            return Told(notice="goals are kept by project, and here is none")
        return Told("goals", [line(f"  {row}") for row in await goal_rows(self._facts.goals, argument)])

    def _queue(self, argument: str) -> Told:
        drop, _, number = argument.partition(" ") if argument.startswith("drop ") else ("", "", argument)
        if not number:
            numbered = self.waiting.numbered()
            labels = {one.to: self.label(one.to) for _, one in numbered if one.to}
            return Told("waiting messages", beside_rows.queue_list(numbered, labels))
        if not (number.isascii() and number.isdigit()):
            return Told(notice="say which: /queue NUMBER, /queue drop NUMBER; /queue lists them")
        taken = self.waiting.take(int(number)) if int(number) else None
        if taken is None:
            return Told(notice=TOO_LATE)
        return Told(notice=f"thrown away: {taken.text}") if drop else Told(edit=self.edited(taken))
