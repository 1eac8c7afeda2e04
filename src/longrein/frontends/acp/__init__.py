"""The agent side of the Agent Client Protocol (ACP), version 1: sessions for an editor over
stdin and stdout.
"""
