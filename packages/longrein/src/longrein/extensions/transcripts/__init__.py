"""Conversations in the formats of others: import of Claude Code and Codex, export to HTML,
Markdown and ATIF.
"""
