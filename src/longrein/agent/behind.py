"""What most sessions never need, imported with its first use: the commands of an agent, and its subagents.

A session gets these with its crew: what stands behind knows the session, and the session must not know it.
"""

from importlib import import_module

from longrein.agent.company import Company
from longrein.agent.opening import OpenSession
from longrein.agent.session import Session
from longrein.agent.tasks.desk import TaskDesk
from longrein.agent.tasks.pool import TaskPool


def desk_of(session: Session, pool: TaskPool) -> TaskDesk:
    """Commands and background tasks of `session`."""
    desk: TaskDesk = import_module("longrein.agent.tasks.commands").Commands(session, pool)
    return desk


def company_of(session: OpenSession) -> Company:
    """Subagents of `session`."""
    company: Company = import_module("longrein.agent.children.running").Children(session)
    return company
