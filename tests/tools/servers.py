"""Sixty generated tools that stand in for the tools of five MCP servers."""

from longrein.tools import Tool, make_tool

SERVERS = {
    "github": "create_issue list_issues close_issue create_pull_request merge_pull_request "
    "list_commits search_code get_file add_comment list_branches create_branch list_releases",
    "crm": "find_customer create_customer update_customer list_orders get_order cancel_order "
    "refund_order list_invoices send_invoice add_note list_notes export_customers",
    "calendar": "list_events create_event move_event delete_event find_free_slot invite_guest "
    "list_rooms book_room cancel_room set_reminder list_calendars share_calendar",
    "wiki": "searchPages getPage createPage updatePage movePage listSpaces addLabel listLabels "
    "exportPage restoreVersion listVersions commentPage",
    "db": "run_query list_tables describe_table explain_query list_indexes create_index drop_index "
    "vacuum_table list_locks kill_query list_users grant_role",
}
"""Server -> its twelve tools."""
LONG = (
    "Works on the objects of this server only; what it returns is a page of at most the given "
    "number of rows, newest first, as JSON with the fields id, title, state, author and the times "
    "of creation and last change."
)


def server_tool(server: str, name: str) -> Tool:
    """Make one tool, which returns its arguments."""

    async def run(query: str, count: int = 10, filters: list[str] | None = None) -> str:
        return f"{server}.{name}({query!r}, {count})"

    run.__name__ = f"mcp__{server}__{name}"
    run.__doc__ = f"""{name.replace("_", " ").capitalize()} of the {server} server. {LONG}

    query: What to look for: words, an id, or an expression in the query language of the server.
    count: How many rows at most.
    filters: Names of the fields that must not be empty.
    """
    return make_tool(run, access="command")


def server_tools() -> tuple[Tool, ...]:
    """Make all sixty tools."""
    return tuple(
        server_tool(server, name) for server, names in SERVERS.items() for name in names.split()
    )
