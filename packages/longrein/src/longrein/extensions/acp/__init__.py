"""The agent side of the Agent Client Protocol (ACP), version 1: sessions for an editor over
stdin and stdout.
"""

from longrein.extension_points import HELP, STATE_DIR, Command, flag

ACP = Command(
    "acp",
    "[FLAGS]",
    "Serve an editor over stdin and stdout by the Agent Client Protocol (Zed, JetBrains, "
    "neovim …). The editor "
    "starts it; docs/editors.md has the settings.",
    (flag("--doctor", "only say what is missing, then exit"), STATE_DIR, HELP),
    0,
    run="longrein.extensions.acp.acp_command:acp",
    after="doctor",
)
