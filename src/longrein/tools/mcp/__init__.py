"""MCP servers as a source of tools, resources and prompts. The `mcp` SDK is imported when the
first server connects.
"""

from longrein.tools.mcp.server_config import McpServer as McpServer
from longrein.tools.mcp.server_config import OAuthOptions as OAuthOptions
