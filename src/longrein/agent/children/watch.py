"""The watchdog of subagents: one that hangs is told, then ended; its parent gets a report with the cause."""

from longrein.agent.children.progress import End, Tell, idle
from longrein.agent.children.tree import Working
from longrein.agent.session import Session

LOOK_EVERY_S = 60.0
"""How often each one that works is looked at."""
GRACE_S = 60.0
"""What a task may go on beyond its time, for a call that runs: before each request the limit is kept anyway."""


async def watch(parent: Session, one: Working) -> None:
    """Look at `one` while it works, until it is cancelled; ends what makes no progress or stays beyond its time."""
    clock, session = parent.crew.clock, one.session
    while True:
        await clock.sleep(LOOK_EVERY_S)
        verdict = idle(session.state, session.lasting.quiet_s) or _late(one)
        match verdict:
            case Tell(reminded):
                session.append(reminded)
                session.commit(flush=False)
            case End(message):
                one.cause = message
                one.stop()
                return
            case None:
                pass


def _late(one: Working) -> End | None:
    """Whether a call keeps it beyond the time of its task. What waits for the user may take its time."""
    state, limit_s = one.session.state, one.session.crew.limits.seconds_max
    if not limit_s or state.asking or one.session.lasting.task_s < limit_s + GRACE_S:
        return None
    return End(f"the time limit of {limit_s:g} s has passed")
