"""The tool that brings back what was taken out of the context.

It stands alone because a start loads it; the rest comes with its first call.
"""

from longrein.tools.registry import make_tool
from longrein.tools.tool_port import Outcome, ToolContext


async def Recall(
    context: ToolContext,
    handle: str = "",
    query: str = "",
    path: str = "",
    time: str = "",
    lines: str = "",
) -> Outcome:
    """Bring back the original of what was shortened, cleared or summarised (results, arguments, the
    user's words, images), also from before a restart or fork. Give a handle, or search by query,
    path or time; you get a page and the call for the next. For a file as it is now: Read.

    handle: From a marker or `⋮ 9 lines, r412`: r412, r412.2 (part), a398/r412 (subagent a398).
    query: Words that all occur, or a quoted phrase.
    path: A file: its versions, and the newest content.
    time: 10:05, 2026-11-21T10:05 or 2h ago: what happened then; with path, the file then.
    lines: 100-200, 100- or 7:4001-8000 (characters of line 7). Of a query: hits, 21-.
    """
    given = {"handle": handle, "query": query, "path": path, "time": time}
    from longrein.tools.recall_lookup import recall

    return await recall(context, given, lines)


RECALL = make_tool(Recall, access="none", together=True, kind="read", quiet=True)
