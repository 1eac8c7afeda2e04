"""A kept task ended from outside its session, which another process may have open."""

import os

from longrein.workspace.kept import END_S, KeptTasks
from longrein.workspace.link import HELLO_S, Link, connect
from longrein.workspace.port import Spooled
from longrein.workspace.spool import SPOOL, has_end, usable_id


async def stop_spooled(session_folder: str, task: str, cause: str = "the user") -> Spooled | None:
    """End a kept task of a session that another process may have open, and wait for it to be over.

    Its supervisor is asked; one that speaks another version, or is dead, is done without: by mark and start time. Gives
    the task as it is then; None for one that the spool does not know.
    """
    folder = os.path.join(session_folder, SPOOL)
    kept = KeptTasks(folder, "longrein")
    spooled = kept.spooled(task) if usable_id(task) else None
    if spooled is None or spooled.state not in ("running", "lost") or has_end(folder, task):
        return spooled
    sock = connect(folder)
    link = Link(sock, None, lambda _: None, lambda _: None) if sock is not None else None
    owner = kept.record(task)["owner"]
    if link is not None:
        link.owner = owner
        link.wake()
    try:
        asked = link.ask(limit_s=HELLO_S, do="stop", task=task, cause=cause) if link else None
        answer = await asked if asked else {"known": False}
    except ConnectionError:
        answer = {"known": False}
    if not answer["known"]:
        kept.stop(task)
    await kept.wait_over(task, END_S)
    if link is not None:
        link.close()
    return kept.spooled(task)
