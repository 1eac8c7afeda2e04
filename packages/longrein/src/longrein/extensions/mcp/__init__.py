"""MCP servers as a source of tools, resources and prompts.

The `mcp` SDK is imported when the first server connects.
"""

from longrein.extension_points import HELP, JSON, STATE_DIR, Command, flag

MCP = Command(
    "mcp",
    "[list | get NAME | add NAME COMMAND… | add NAME URL | add-json NAME JSON | remove "
    "NAME | test [NAME] | "
    "approve [NAME…] | reset-project-choices | login NAME | logout NAME] [FLAGS]",
    "Configure and try MCP servers. Put `--` before a command that has flags: "
    "longrein mcp add files -- npx -y @modelcontextprotocol/server-filesystem .",
    (
        flag(
            "-t --transport",
            "stdio (the default), http or sse",
            "word",
            "KIND",
            ("stdio", "http", "sse"),
        ),
        flag(
            "-s --scope",
            "user: every folder (the default); local: this folder, for you; project: "
            ".mcp.json, for everybody",
            "word",
            "SCOPE",
            ("user", "local", "project"),
        ),
        flag(
            "-e --env",
            "NAME=VALUE for the server; may be given again",
            "words",
            "NAME=VALUE",
        ),
        flag(
            "-H --header",
            "'NAME: VALUE' for its requests; may be given again",
            "words",
            "HEADER",
        ),
        flag(
            "--sandbox",
            "strict: as commands; network: also the network and what the entry names; off: as you",
            "word",
            "HOW",
            ("strict", "network", "off"),
        ),
        JSON,
        STATE_DIR,
        HELP,
    ),
    1000,
    run="longrein.extensions.mcp.mcp_command:mcp",
    after="trust",
)
