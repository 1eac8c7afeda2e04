"""What is left to a session of a tree, counted from all logs that are at hand."""

from longrein.agent.children.bond import Bond
from longrein.agent.children.grants import kept_back, left, less
from longrein.agent.children.tree import Tree
from longrein.agent.ports import UNBOUND, Room
from longrein.agent.session import Session


def room_of(session: Session, tree: Tree, more: int = 0) -> Room:
    """What is left to `session` and all below it, without what it keeps back for its own answer.

    `more`: subagents that it is about to start, whose reports that answer will carry too.
    """
    crew, above = session.crew, session.crew.above
    room = room_of(above.parent, tree) if isinstance(above, Bond) else UNBOUND
    rest = left(session.state, crew.limits, session.lasting.task_s, tree.states, room)
    return less(rest, kept_back(session.state, crew.model.budget, more))
