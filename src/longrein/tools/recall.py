"""`Recall`: any byte that was cleared, cut or summarised comes back (law 4). `recalling` does it, at first use."""

import importlib

from longrein.tools.port import Hands, Outcome
from longrein.tools.registry import make_tool


async def Recall(
    hands: Hands, handle: str = "", query: str = "", path: str = "", time: str = "", lines: str = ""
) -> Outcome:
    """Bring back what you no longer see: the original of anything shortened, cleared or summarised (results, your
    arguments, the user's words, images), also from before a compaction, restart or fork. Give a handle, or find it by
    query, path or time; you get a page and the call for the next one. A file as it is now comes from Read.

    handle: As in markers: r412, r412.2 (second part), a398/r412 (log of subagent a398).
    query: Words that all occur, or a quoted phrase; gives places.
    path: A file: its versions, and what the newest held.
    time: 10:05, 2026-11-21T10:05 or 2h ago: what happened then. With path: the file then.
    lines: 100-200, 100- or 7:4001-8000 (characters of line 7). Of a query: hits, 21-.
    """
    given = {"handle": handle, "query": query, "path": path, "time": time}
    brought: Outcome = await importlib.import_module("longrein.tools.recalling").recall(hands, given, lines)
    return brought


RECALL = make_tool(Recall, access="none", together=True)
