"""Calls in the words of other agents: each name and argument with what it comes to here."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from longrein.agent import builtin_kinds
from longrein.tools import agent_tool, builtin_tools, fit_arguments, own_calls
from longrein.tools.foreign_calls import WORDS
from longrein_context.events import ToolCall

TOOLS = {tool.spec.name: tool for tool in (*builtin_tools(), agent_tool(builtin_kinds()))}


def meant(name: str, arguments: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What a call comes to; `!` in front of the name of a tool that refuses it."""
    found = []
    for call in own_calls(ToolCall("c", name, dict(arguments)), TOOLS):
        tool = TOOLS.get(call.name)
        problem = tool is None or fit_arguments(tool, call.arguments or {})[1]
        found.append(("!" * bool(problem) + call.name, call.arguments or {}))
    return found


CALLS = """
Grep {"pattern": "f", "-n": true} = Grep {"pattern": "f"}
Grep {"pattern": "f", "-n": false, "-H": true} = Grep {"pattern": "f"}
Grep {"pattern": "f", "-A": 1, "-B": 2} = Grep {"pattern": "f", "-A": 1, "-B": 2}
Grep {"pattern": "f", "context": 2} = Grep {"pattern": "f", "-C": 2}
Grep {"pattern": "f", "-C": 1, "context": 2} = !Grep {"pattern": "f", "-C": 1, "context": 2}
Grep {"pattern": "f", "type": "py"} = Grep {"pattern": "f", "glob": "*.{py,pyi}"}
Grep {"pattern": "f", "type": "go"} = Grep {"pattern": "f", "glob": "*.go"}
Grep {"pattern": "f", "type": "go", "glob": "src/**"} = Grep {"pattern": "f", "glob": "src/**/*.go"}
Grep {"pattern": "f", "type": "go", "glob": "**/*"} = Grep {"pattern": "f", "glob": "*.go"}
Grep {"pattern": "f", "type": "ts", "glob": "*.test.ts"}
  = Grep {"pattern": "f", "glob": "*.test.ts"}
Grep {"pattern": "f", "type": "ts", "glob": "a"} = !Grep {"pattern": "f", "type": "ts", "glob": "a"}
Grep {"pattern": "f", "exclude": "*.md"} = !Grep {"pattern": "f", "exclude": "*.md"}
Grep {"pattern": "f.", "literal": true} = Grep {"pattern": "f\\\\."}
Grep {"pattern": "f", "case_sensitive": false} = Grep {"pattern": "f", "-i": true}
grep {"pattern": "f", "include": "*.c", "ignoreCase": true}
  = Grep {"pattern": "f", "glob": "*.c", "-i": true}
search_file_content {"query": "f", "dir_path": "s", "max_results": 3}
  = Grep {"pattern": "f", "path": "s", "head_limit": 3}
Read {"file_path": "a", "pages": ""} = Read {"file_path": "a"}
Read {"file_path": "a", "encoding": "utf-8"} = Read {"file_path": "a"}
read {"filePath": "a", "offset": 1, "limit": 2} = Read {"file_path": "a", "offset": 1, "limit": 2}
ReadFile {"path": "a", "line_offset": 3, "n_lines": 2}
  = Read {"file_path": "a", "offset": 3, "limit": 2}
read_file {"target_file": "a", "start_line": 3, "end_line": 5}
  = Read {"file_path": "a", "offset": 3, "limit": 3}
read_file {"path": "a", "end_line": 5} = Read {"file_path": "a", "limit": 5}
str_replace_editor {"command": "view", "path": "a", "view_range": [2, 4]}
  = Read {"file_path": "a", "offset": 2, "limit": 3}
str_replace_editor {"command": "view", "path": "a", "view_range": [2, -1]}
  = Read {"file_path": "a", "offset": 2}
str_replace_editor {"command": "create", "path": "a", "file_text": "x"}
  = Write {"file_path": "a", "content": "x"}
str_replace_editor {"command": "str_replace", "path": "a", "old_str": "x", "new_str": "y"}
  = Edit {"file_path": "a", "old_string": "x", "new_string": "y"}
str_replace_editor {"command": "undo_edit", "path": "a"}
  = !str_replace_editor {"command": "undo_edit", "path": "a"}
WriteFile {"path": "a", "content": "x", "mode": "overwrite"}
  = Write {"file_path": "a", "content": "x"}
WriteFile {"path": "a", "content": "x", "mode": "append"}
  = !Write {"file_path": "a", "content": "x", "mode": "append"}
edit {"filePath": "a", "oldString": "x", "newString": "y", "replaceAll": true}
  = Edit {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": true}
replace {"file_path": "a", "old_string": "x", "new_string": "y", "expected_replacements": 1}
  = Edit {"file_path": "a", "old_string": "x", "new_string": "y"}
replace {"file_path": "a", "old_string": "x", "new_string": "y", "expected_replacements": 2}
  = !Edit {"file_path": "a", "old_string": "x", "new_string": "y", "expected_replacements": 2}
StrReplaceFile {"path": "a", "edit": {"old": "x", "new": "y"}}
  = Edit {"file_path": "a", "old_string": "x", "new_string": "y"}
edit {"path": "a", "edits": [{"oldText": "x", "newText": "y"}]}
  = Edit {"file_path": "a", "old_string": "x", "new_string": "y"}
Edit {"path": "a", "old_string": "x", "new_string": "y", "file_path": "b"}
  = !Edit {"path": "a", "old_string": "x", "new_string": "y", "file_path": "b"}
Bash {"command": "ls", "dangerouslyDisableSandbox": false} = Bash {"command": "ls"}
Bash {"command": "ls", "description": "List", "dangerouslyDisableSandbox": true}
  = Bash {"command": "ls", "description": "List", "outside_sandbox": "List"}
Bash {"command": "ls", "timeout": 500} = Bash {"command": "ls", "timeout": 500}
Shell {"command": "ls", "timeout": 5} = Bash {"command": "ls", "timeout": 5000}
bash {"command": "ls", "timeout": 5000} = Bash {"command": "ls", "timeout": 5000}
shell {"command": ["bash", "-lc", "ls | wc"], "timeout_ms": 5000}
  = Bash {"command": "ls | wc", "timeout": 5000}
functions.shell {"command": ["ls", "a b"]} = Bash {"command": "ls 'a b'"}
shell {"command": ["apply_patch", "*** Begin Patch"]} = apply_patch {"input": "*** Begin Patch"}
shell {"command": ["ls"], "with_escalated_permissions": true, "justification": "net"}
  = Bash {"command": "ls", "outside_sandbox": "net"}
shell_command {"command": "ls", "workdir": "s"} = Bash {"command": "(cd s || exit\\nls\\n)"}
run_shell_command {"command": "ls", "directory": "."} = Bash {"command": "ls"}
exec_command {"cmd": "ls", "yield_time_ms": 1000, "tty": true}
  = Bash {"command": "ls", "timeout": 1000}
execute_bash {"command": "ls", "is_input": "false"} = Bash {"command": "ls"}
execute_bash {"command": "ls", "env": {"A": "1"}} = !Bash {"command": "ls", "env": {"A": "1"}}
background_run {"command": "sleep 1"} = Bash {"command": "sleep 1", "run_in_background": true}
check {"task_id": "b1"} = TaskOutput {"task_id": "b1"}
check_background {} = TaskList {}
BashOutput {"bash_id": "b1", "filter": "x"} = TaskOutput {"task_id": "b1", "grep": "x"}
TaskOutput {"task_id": "b1", "block": true, "timeout": 9} = TaskOutput {"task_id": "b1", "wait": 9}
TaskOutput {"task_id": "b1", "block": true} = TaskOutput {"task_id": "b1", "wait": 30000}
TaskOutput {"task_id": "b1", "block": false, "timeout": 9} = TaskOutput {"task_id": "b1"}
KillShell {"shell_id": "b1"} = TaskStop {"task_id": "b1"}
write_stdin {"session_id": "b1", "chars": "y"} = TaskInput {"task_id": "b1", "text": "y"}
glob {"pattern": "*.py", "case_sensitive": false} = Glob {"pattern": "*.py"}
list {"path": "s"} = Glob {"path": "s", "pattern": "**/*"}
list_files {"dir_path": "s", "recursive": true} = Glob {"path": "s", "pattern": "**/*"}
TodoWrite {"todos": [{"id": "1", "content": "a", "status": "pending", "priority": "high"}]}
  = TodoWrite {"todos": [{"content": "a", "status": "pending"}]}
TodoWrite {"todos": [{"content": "a", "status": "pending", "activeForm": "As"}]}
  = TodoWrite {"todos": [{"content": "a", "status": "pending", "activeForm": "As"}]}
update_plan {"explanation": "e", "plan": [{"step": "a", "status": "in_progress"}]}
  = TodoWrite {"todos": [{"content": "a", "status": "in_progress"}]}
SetTodoList {"todos": [{"title": "a", "status": "In Progress"}, {"title": "b", "status": "Done"}]}
  = TodoWrite {"todos": [{"content": "a", "status": "in_progress"}, {"content": "b",
    "status": "completed"}]}
write_todos {"todos": [{"description": "a", "status": "cancelled"}]} = TodoWrite {"todos": []}
Agent {"prompt": "Find all uses of foo in src."}
  = Agent {"prompt": "Find all uses of foo in src.", "description": "Find all uses of foo in"}
Task {"description": "d", "prompt": "p", "subagent_type": "general-purpose"}
  = Agent {"description": "d", "prompt": "p", "subagent_type": "general"}
Agent {"description": "d", "prompt": "p", "subagent_type": "Explore"}
  = Agent {"description": "d", "prompt": "p", "subagent_type": "explore"}
Agent {"description": "d", "prompt": "p", "subagent_type": "Plan"}
  = Agent {"description": "d", "prompt": "p", "subagent_type": "plan"}
CallTool {"name": "check", "args": {"task_id": "b1"}}
  = !CallTool {"name": "TaskOutput", "args": {"task_id": "b1"}}
web_fetch {"url": "http://a", "format": "text"} = WebFetch {"url": "http://a"}
no_such_tool {"a": 1} = !no_such_tool {"a": 1}
"""


@pytest.mark.parametrize("line", re.sub(r"\n +", " ", CALLS).strip().split("\n"))
def test_a_call_comes_to_one_of_ours(line: str) -> None:
    given, _, expected = line.partition(" = ")
    (name, arguments), (own, wanted) = (one.split(" ", 1) for one in (given, expected))
    assert meant(name, json.loads(arguments)) == [(own, json.loads(wanted))]


@pytest.mark.parametrize(("name", "arguments", "number"), [
    ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}] * 3}, 3),
    ("edit", {"path": "a", "edits": [{"oldText": "x", "newText": "y"}] * 2}, 2),
    ("read_many_files", {"paths": ["a", "b"]}, 2),
])  # fmt: skip
def test_a_call_for_several_comes_to_several(
    name: str, arguments: Mapping[str, Any], number: int
) -> None:
    found = meant(name, arguments)
    assert len(found) == number
    assert not any(own.startswith("!") for own, _ in found)


@pytest.mark.parametrize("tool", WORDS)
def test_every_word_means_an_argument_of_its_tool_and_no_own_word_is_touched(tool: str) -> None:
    known = TOOLS[tool].spec.schema["properties"] if tool in TOOLS else {}
    for own, others in WORDS[tool].items():
        assert own in known or tool not in TOOLS, own
        values: dict[str, Any] = {"integer": 7, "boolean": True, "array": [], "string": "v"}
        value = values.get(known.get(own, {}).get("type", ""))
        for other in others.split():
            if tool in TOOLS and other not in known:
                ((_, found),) = meant(tool, {other: value})
                assert found.get(own) == value, (tool, other)
    whole = dict.fromkeys(known, "kept")
    assert meant(tool, whole)[0][1] == whole or tool in ("TodoWrite", "Agent")


def test_other_peoples_tools_are_left_alone() -> None:
    own = ToolCall("c", "mcp__a__b", {"path": "x", "cmd": False})
    assert own_calls(own, TOOLS) == [own]
