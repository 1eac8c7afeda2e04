"""`Recall`: any byte that was cleared, cut or summarised comes back (law 4). `recalling` does it, at first use."""

import importlib

from longrein.tools.port import Hands, Outcome
from longrein.tools.registry import make_tool


async def Recall(
    hands: Hands, handle: str = "", query: str = "", path: str = "", time: str = "", lines: str = ""
) -> Outcome:
    """Bring back what you no longer see: the original of anything shortened, cleared or summarised (results, arguments
    of your calls, the user's words, images), also from before a compaction, a restart or a fork. Give a handle, or
    find it by query, path or time. You get a page and the call for the next one. Use it rather than repeating a call
    or guessing; but a file as it is now comes from Read.

    handle: As markers name it: r412, r412.2 (its second part), a398/r412 (in the log of the subagent of r398).
    query: Words that all occur, in any language, or "words as they stand". Gives places with their handles.
    path: A file: its versions, read or written in this session, and what the newest held.
    time: Such as "10:05", "2026-11-21T10:05" or "2h ago": what happened around it. With path: the file as it was then.
    lines: Of what comes: "100-200", "100-" or "7:4001-8000" (characters of line 7). With query: which hits, "21-".
    """
    given = {"handle": handle, "query": query, "path": path, "time": time}
    brought: Outcome = await importlib.import_module("longrein.tools.recalling").recall(hands, given, lines)
    return brought


RECALL = make_tool(Recall, access="none", together=True)
