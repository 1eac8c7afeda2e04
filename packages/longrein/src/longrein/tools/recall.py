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
    """Bring back the original of what was shortened, cleared or summarised: results, arguments, the
    user's words, images. Give a handle, or search by query, path or time.

    handle: Such as r412 or a398/r412 (subagent a398).
    query: Words that all occur.
    time: Such as 10:05 or 2h ago.
    lines: Such as 100-200.
    """
    given = {"handle": handle, "query": query, "path": path, "time": time}
    from longrein.tools.recall_lookup import recall

    return await recall(context, given, lines)


RECALL = make_tool(Recall, access="none", together=True, kind="read", quiet=True)
