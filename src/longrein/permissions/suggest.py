"""The narrowest rule that "always" could store for a call, or none."""

import re

from longrein.permissions.allowing import command_covered
from longrein.permissions.plain import plain_words
from longrein.permissions.port import Call
from longrein.permissions.rules import READING, WRITING, check_rule

LENGTH_MAX = 200
"""Characters of a rule that is offered; a longer one is nothing a person would read."""

_HOST = r"(?i)https?://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#]|\Z)"


def suggestion(call: Call) -> str:
    """A rule that covers this very call and as little else as the syntax can say; '' when there is none."""
    rule = _rule(call)
    safe = rule.isprintable() and len(rule) <= LENGTH_MAX and check_rule(rule, "allow") is None
    return rule if rule and safe else ""


def _rule(call: Call) -> str:
    command = call.arguments.get("command")
    if call.access == "command" and isinstance(command, str):
        return _command_rule(call.tool, command.strip(" \t"))
    if call.touched:
        return _path_rule(call)
    if call.tool == "WebFetch":
        match = re.compile(_HOST).match(str(call.arguments.get("url", "")))
        return f"WebFetch(domain:{match[1].lower().rstrip('.')})" if match else ""
    name = next((call.arguments[k] for k in ("subagent_type", "skill") if isinstance(call.arguments.get(k), str)), "")
    return f"{call.tool}({name})" if name and "*" not in name else call.tool if not name else ""


def _command_rule(tool: str, command: str) -> str:
    words, problem = plain_words(command)
    if problem or any("*" in word for word in words) or not command_covered(command, command):
        return ""
    return f"{tool}({command})"


def _path_rule(call: Call) -> str:
    paths = {t.path for t in call.touched} | {t.real for t in call.touched}
    writes = any(t.writes for t in call.touched)
    path = call.touched[0].path
    if len(paths) > 1 or re.search(r"[*?\[\]\\!#]|\s$|\s\)|^\s|/$", path) or not path.startswith("/"):
        return ""
    name = "Edit" if call.tool in WRITING and writes else "Read" if call.tool in READING and not writes else call.tool
    return f"{name}(/{path})"
