"""`longrein schedule`: list, add and remove the schedules of a session from another process."""

from collections.abc import Sequence
from contextlib import closing

from longrein.agent import AddSchedule, RemoveSchedule
from longrein.app.run_context import RunContext
from longrein.commands.report_event import named_session, send
from longrein.extensions.schedules.times import describe, split_when
from longrein.frontends.argv import clean
from longrein.frontends.stdio import say, show
from longrein.steps.human_text import escape_line
from longrein.store import Reader
from longrein_context import State
from longrein_context.events import Reminded, SchedulesSet, UsageError

USAGE = "longrein schedule [add WHEN PROMPT | remove ID]; see longrein schedule --help"


def schedule(run_context: RunContext, words: Sequence[str], *, session: str = "") -> int:
    """Run `longrein schedule WORDS`; return the exit code."""
    named = named_session(run_context, session)
    with closing(Reader(run_context.state_dir, named)) as reader:
        state = _schedules(reader)
    match words:
        case []:
            rows = [escape_line(describe(one, state)) for one in state.schedules]
            show("".join(f"{row}\n" for row in rows) or "nothing is scheduled in this session\n")
        case ["add", *rest]:
            when, prompt = split_when(clean(" ".join(rest)))
            send(run_context, named, AddSchedule(when, prompt))
            say(f"scheduled in session {named}; it comes while that session is open")
        case ["remove", name]:
            if name not in [one.id for one in state.schedules]:
                raise UsageError(
                    f"nothing is scheduled as {name}; `longrein schedule` lists what is"
                )
            send(run_context, named, RemoveSchedule(name))
        case _:
            raise UsageError(f"what is to be done with {words[0]!r}? {USAGE}")
    return 0


def _schedules(reader: Reader) -> State:
    """Return a state with the schedules of a log and the times at which they fired."""
    state = State(session=reader.session)
    for entry in reader.of_kind("SchedulesSet"):
        if isinstance(entry.event, SchedulesSet):
            state.schedules = entry.event.schedules
        break
    first = min((one.created_at for one in state.schedules), default=0)
    for entry in reader.of_kind("Reminded") if state.schedules else ():
        if entry.at < first:
            break
        if (
            isinstance(entry.event, Reminded)
            and entry.event.kind == "cron_fired"
            and not entry.event.text
        ):
            state.fired.setdefault(entry.event.source.partition(" ")[0], entry.at)
    return state
