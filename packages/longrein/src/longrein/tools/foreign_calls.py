"""Calls in the words of other agents, as models have learned them: names of tools and arguments.

A call is put into longrein's own words before it is logged, so that it runs, and so that the model
reads in each later request how it is called here. An argument that a tool has under its own name is
never touched, so that no call changes its meaning.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.tools.tool_port import Tool
from longrein.tools.tool_search import own_name
from longrein_context.events import CALL_TOOL, ToolCall, unwrapped

Arguments = dict[str, Any]

PREFIXES = ("functions.", "default_api.", "default_api:", "tools.")
"""What some models write in front of a tool's name."""
PATHS = "path filePath absolute_path filename file_name file target_file"
"""Other names of the argument `file_path`."""
FOLDERS = "directory dir dir_path folder search_path DirectoryPath"
TASKS = "bash_id shell_id taskId id session_id task"
WORDS: Mapping[str, Mapping[str, str]] = {
    "Read": {
        "file_path": PATHS,
        "offset": "line_offset start_line start",
        "limit": "n_lines num_lines line_count",
    },
    "Write": {"file_path": PATHS, "content": "contents text file_text file_content"},
    "Edit": {
        "file_path": PATHS,
        "old_string": "oldString old_str oldText old_text old search find",
        "new_string": "newString new_str newText new_text new replacement replace",
        "replace_all": "replaceAll allow_multiple",
    },
    "apply_patch": {"input": "patch patchText patch_text"},
    "Bash": {
        "command": "cmd commandLine command_line CommandLine script",
        "timeout": "timeout_ms timeoutMs yield_time_ms",
        "run_in_background": "background is_background isBackground runInBackground",
    },
    "Grep": {
        "pattern": "query regex search Query",
        "path": FOLDERS,
        "glob": "include include_pattern file_pattern filePattern includePattern",
        "-i": "ignore_case ignoreCase case_insensitive",
        "head_limit": "limit max_results maxResults",
        "-C": "context context_lines",
        "-A": "after_context",
        "-B": "before_context",
    },
    "Glob": {"pattern": "glob_pattern glob filePattern file_pattern", "path": FOLDERS},
    "TodoWrite": {"todos": "plan items todo_list"},
    "TaskOutput": {"task_id": TASKS, "grep": "filter", "wait": "timeout timeout_ms"},
    "TaskStop": {"task_id": TASKS},
    "TaskInput": {"task_id": TASKS, "text": "chars input"},
    "Agent": {
        "prompt": "task message instructions query",
        "subagent_type": "subagent_name agent agent_type agent_name",
        "description": "title name",
        "resume": "task_id session_id",
    },
    "WebFetch": {"url": "URL uri address"},
    "Skill": {"skill": "name skill_name command", "args": "arguments"},
    CALL_TOOL: {"name": "tool tool_name", "args": "arguments parameters"},
}
"""Tool -> its argument -> the names that it has in other agents."""
SAYING = (
    "description explanation reason justification title summary thought instruction toolSummary "
    "task_progress"
)
"""What models add to say why they call: no tool needs it."""
WITHOUT_EFFECT: Mapping[str, str] = {
    "Read": "*",
    "Bash": "is_input login max_output_tokens security_risk requires_approval shell tty blocking",
    "Grep": "-n -H line_number case_sensitive respect_git_ignore",
    "Glob": "case_sensitive respect_git_ignore recursive ignore limit depth",
    "TodoWrite": "merge",
    "TaskOutput": "block",
    "WebFetch": "format timeout extractMode max_length",
}
"""Tool -> arguments that change nothing here; `*` for all: what `Read` shows says what it is."""
USUAL_VALUES: Mapping[tuple[str, str], object] = {
    ("Edit", "expected_replacements"): 1,
    ("Write", "mode"): "overwrite",
}
"""Arguments with the value that a call without them has here."""
NO_EFFECT_VALUES: Sequence[object] = (None, False, "", "false", [], {})
EVERYTHING = "**/*"
FIRST_WORDS = 6
"""Words of a subagent's prompt that describe it."""
SECONDS_MAX = 1_000
"""A limit below it counts seconds, as in several agents: nothing is limited to less than one."""


def own_calls(call: ToolCall, tools: Mapping[str, Tool]) -> Sequence[ToolCall]:
    """Return a call in the names and arguments of `tools`; several for one that names several
    edits.

    A call that means nothing here is returned as it is, so that it is refused.
    """
    if call.name == CALL_TOOL and call.arguments is not None and CALL_TOOL in tools:
        whole = own_arguments(tools[CALL_TOOL], call.arguments)
        call = msgspec.structs.replace(call, arguments=whole)
    inner = unwrapped(call)
    if inner is not call:
        return [_wrapped(one) for one in own_calls(inner, tools)]
    given: Mapping[str, Any] | None = call.arguments
    name = call.name
    for prefix in PREFIXES:
        name = name.removeprefix(prefix) if name not in tools else name
    if name not in tools and given is not None and (made := _COMMANDS.get(name.lower())):
        name, given = made(dict(given))
    name = own_name(name, tools)
    if name not in tools or given is None:
        return [msgspec.structs.replace(call, name=name)]
    if name == "Bash" and _is_patch(given.get("command")) and "apply_patch" in tools:
        name, given = "apply_patch", {"input": given["command"][1]}
    if name == "Bash" and call.name != name:
        given = _in_milliseconds(given)
    found = [own_arguments(tools[name], one) for one in _single(name, given)]
    if name == "Glob" and call.name.lower() != "glob":  # a list of a folder names no pattern
        found = [{"pattern": EVERYTHING, **one} for one in found]
    return [msgspec.structs.replace(call, name=name, arguments=one) for one in found]


def _wrapped(call: ToolCall) -> ToolCall:
    return ToolCall(call.id, CALL_TOOL, {"name": call.name, "args": call.arguments})


def own_arguments(tool: Tool, given: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a call under the tool's own names."""
    known: Mapping[str, Any] = tool.spec.schema.get("properties", {})
    words = {
        other: own
        for own, others in WORDS.get(tool.spec.name, {}).items()
        for other in others.split()
        if own in known and other not in known
    }
    found: Arguments = {}
    for name, value in given.items():
        own = words.get(name, name)
        found[name if own in given or own in found else own] = value
    if convert := _CONVERSIONS.get(tool.spec.name):
        convert(found)
    if tool.spec.schema.get("additionalProperties", True) is False:
        idle = WITHOUT_EFFECT.get(tool.spec.name, "")
        dropped = {*idle.split(), *SAYING.split()} if idle != "*" else {*found}
        for name in [one for one in found if one not in known]:
            idle_values = (*NO_EFFECT_VALUES, USUAL_VALUES.get((tool.spec.name, name)))
            if name in dropped or found[name] in idle_values:
                del found[name]
    return found


# --- Names that stand for a tool with arguments ---------------------------------------------------


def _editor(given: Arguments) -> tuple[str, Arguments]:
    """`str_replace_editor` and its like: one tool with several commands."""
    kinds = {"view": "Read", "create": "Write", "str_replace": "Edit"}
    command = given.get("command")
    if command not in kinds:
        return "str_replace_editor", given
    del given["command"]
    return kinds[command], given


def _check(given: Arguments) -> tuple[str, Arguments]:
    """Look at one background task, or at all of them."""
    return ("TaskOutput" if any(given.values()) else "TaskList"), given


_COMMANDS: Mapping[str, Callable[[Arguments], tuple[str, Arguments]]] = {
    "str_replace_editor": _editor,
    "str_replace_based_edit_tool": _editor,
    "check": _check,
    "check_background": _check,
    "background_run": lambda given: ("Bash", given | {"run_in_background": True}),
}


# --- Values ---------------------------------------------------------------------------------------


def _single(name: str, given: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the arguments of each of the calls that one call stands for."""
    if name == "Read" and isinstance(paths := given.get("paths"), list) and paths:
        return [{"file_path": path} for path in paths]
    inner = given.get("edits", given.get("edit"))
    several = [inner] if isinstance(inner, dict) else inner
    if name != "Edit" or not isinstance(several, list) or not several:
        return [given]
    common = {name: value for name, value in given.items() if name not in ("edit", "edits")}
    return [common | one for one in several if isinstance(one, dict)] or [given]


def _is_patch(command: object) -> bool:
    return isinstance(command, list) and len(command) == 2 and command[0] == "apply_patch"


def _in_milliseconds(given: Mapping[str, Any]) -> Mapping[str, Any]:
    limit = given.get("timeout")
    is_seconds = isinstance(limit, int | float) and 0 < limit < SECONDS_MAX
    return {**given, "timeout": int(limit * 1000)} if is_seconds and limit else given


def _read(found: Arguments) -> None:
    first, last = found.get("offset"), found.pop("end_line", None)
    if isinstance(pair := found.pop("view_range", None), list) and len(pair) == 2:
        first, last = pair
        found["offset"] = first
    if isinstance(last, int) and last > 0 and "limit" not in found:
        found["limit"] = max(last - (first if isinstance(first, int) and first > 1 else 1) + 1, 1)


def _bash(found: Arguments) -> None:
    command = found.get("command")
    if isinstance(command, list) and command and all(isinstance(one, str) for one in command):
        is_shell = len(command) == 3 and command[1] in ("-c", "-lc", "-ic")
        found["command"] = command[2] if is_shell else shlex.join(command)
    for name in ("timeout_s", "timeout_seconds", "timeoutSeconds"):
        if isinstance(seconds := found.pop(name, None), int | float):
            found.setdefault("timeout", int(seconds * 1000))
    for name in ("workdir", "cwd", "directory", "dir", "dir_path", "working_directory"):
        folder = found.pop(name, None)
        if isinstance(folder, str) and folder not in ("", ".") and "command" in found:
            found["command"] = f"(cd {shlex.quote(folder)} || exit\n{found['command']}\n)"
    asked = found.pop("sandbox_permissions", "") == "require_escalated"
    asked |= found.pop("dangerouslyDisableSandbox", False) is True
    asked |= found.pop("with_escalated_permissions", False) is True
    if asked:
        why = found.get("justification") or found.get("description")
        found.setdefault("outside_sandbox", why or "the call asks for it")


TYPES = {
    "python": "*.{py,pyi}",
    "py": "*.{py,pyi}",
    "js": "*.{js,jsx,mjs,cjs,vue}",
    "ts": "*.{ts,tsx,mts,cts}",
    "typescript": "*.{ts,tsx,mts,cts}",
    "javascript": "*.{js,jsx,mjs,cjs,vue}",
    "rust": "*.rs",
    "ruby": "*.rb",
    "cpp": "*.{cc,cpp,cxx,h,hh,hpp,hxx,inl}",
    "c": "*.{c,h}",
    "cs": "*.cs",
    "csharp": "*.cs",
    "kotlin": "*.{kt,kts}",
    "markdown": "*.{md,markdown,mdx}",
    "md": "*.{md,markdown,mdx}",
    "yaml": "*.{yaml,yml}",
    "html": "*.{html,htm}",
    "sh": "*.{sh,bash,zsh}",
    "perl": "*.{pl,pm}",
}
"""Types of files as `rg --type-list` has them; any other name is an ending."""


def _grep(found: Arguments) -> None:
    kind = found.pop("type", "")
    if isinstance(kind, str) and kind:
        names, glob = TYPES.get(kind, f"*.{kind}"), str(found.get("glob") or "")
        folder = glob.rstrip("*/")
        if glob != folder or not glob:
            found["glob"] = f"{folder}/**/{names}" if folder else names
        elif "." not in glob:
            found["type"] = kind
    if found.get("-i") is None and found.get("case_sensitive") in (False, "false"):
        found["-i"] = True
    literal = [
        found.pop(name, False) for name in ("literal", "fixed_strings", "fixedStrings", "-F")
    ]
    if True in literal and isinstance(found.get("pattern"), str):
        found["pattern"] = _literal(found["pattern"])


def _literal(text: str) -> str:
    return "".join(f"\\{one}" if one in r"\.^$*+?{}[]|()" else one for one in text)


STATUSES = {
    "todo": "pending",
    "not_started": "pending",
    "open": "pending",
    "doing": "in_progress",
    "active": "in_progress",
    "done": "completed",
    "complete": "completed",
    "finished": "completed",
}


def _todos(found: Arguments) -> None:
    todos = found.get("todos")
    if isinstance(todos, list) and all(isinstance(one, dict) for one in todos):
        items = map(_todo, todos)
        found["todos"] = [one for one in items if one.get("status") != "cancelled"]


def _todo(item: Arguments) -> Arguments:
    names = ("content", "step", "title", "task", "text", "name", "description")
    content = next((item[name] for name in names if item.get(name)), "")
    status = str(item.get("status", "pending")).lower().replace("-", "_").replace(" ", "_")
    kept = {"content": content, "status": STATUSES.get(status, status)}
    return kept | ({"activeForm": item["activeForm"]} if item.get("activeForm") else {})


def _task_output(found: Arguments) -> None:
    if found.get("block") in (True, "true"):
        found.setdefault("wait", 30_000)
    elif "block" in found:
        found.pop("wait", None)


def _agent(found: Arguments) -> None:
    prompt = found.get("prompt")
    if not found.get("description") and isinstance(prompt, str) and prompt.split():
        found["description"] = " ".join(prompt.split()[:FIRST_WORDS])[:60]
    kind = found.get("subagent_type")
    if kind in ("", "general-purpose", "general_purpose", "default", "coder"):
        found["subagent_type"] = "general"
    elif kind in ("Explore", "Plan"):
        found["subagent_type"] = kind.lower()


def _call_tool(found: Arguments) -> None:
    """Take arguments that stand beside the name as those of the inner call."""
    if "args" not in found and isinstance(found.get("name"), str):
        found["args"] = {name: found.pop(name) for name in [*found] if name != "name"}


_CONVERSIONS: Mapping[str, Callable[[Arguments], None]] = {
    "Read": _read,
    "Bash": _bash,
    "Grep": _grep,
    "TodoWrite": _todos,
    "TaskOutput": _task_output,
    "Agent": _agent,
    CALL_TOOL: _call_tool,
}
