"""Calls that stand in a text: the forms that models have learned, and what is only a quotation."""

import json

import pytest

from longrein.tools import builtin_tools, read_text_calls

TOOLS = {tool.spec.name: tool for tool in builtin_tools()}
ARGUMENTS = {"file_path": "a.py", "limit": 3}
OBJECT = json.dumps({"name": "Read", "arguments": ARGUMENTS})
INNER = json.dumps(ARGUMENTS)
WIRE = {"type": "function", "function": {"name": "Read", "arguments": INNER}}
INVOKE = (
    '<function_calls>\n<invoke name="Read">\n<parameter name="file_path">a.py</parameter>\n'
    '<parameter name="limit">3</parameter>\n</invoke>\n</function_calls>'
)
FORMS = {
    "fence": f"```json\n{OBJECT}\n```",
    "fence without a language": f"```\n{OBJECT}\n```",
    "fence with tildes": f"~~~json\n{OBJECT}\n~~~\n",
    "fence that is not closed": f"```json\n{OBJECT}\n",
    "fence in a list": f"   ```json\n   {OBJECT}\n   ```",
    "bare": OBJECT,
    "bare on many lines": json.dumps(json.loads(OBJECT), indent=2),
    "list": f"[{OBJECT}]",
    "of a wire": json.dumps(WIRE),
    "parameters": json.dumps({"tool": "Read", "parameters": ARGUMENTS}),
    "python": "{'name': 'Read', 'arguments': {'file_path': 'a.py', 'limit': 3}}",
    "mark": f"<tool_call>\n{OBJECT}\n</tool_call>",
    "mark that is not closed": f"<tool_call>{OBJECT}",
    "invoke": INVOKE,
    "mistral": f"[TOOL_CALLS] [{OBJECT}]",
    "newer mistral": f"[TOOL_CALLS]Read[ARGS]{INNER}",
    "harmony": "<|channel|>commentary to=functions.Read <|constrain|>json<|message|>"
    f"{INNER}<|call|>",
    "functions": f"functions.Read({INNER})",
    "functions, python": 'functions.Read(file_path="a.py", limit=3)',
    "another agent's name": json.dumps(
        {"name": "read_file", "arguments": {"path": "a.py", "limit": 3}}
    ),
}


@pytest.mark.parametrize("before", ["", "I read the file first:\n\n", "Say `{}`.\n> {}\n\n"])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_the_call(form: str, before: str) -> None:
    calls, _, fit = read_text_calls(before + FORMS[form], TOOLS)
    assert fit
    assert len(calls) == 1
    assert "a.py" in str(calls[0].arguments)


def test_calls_that_follow_each_other_are_all_read() -> None:
    second = FORMS["fence"].replace("a.py", "b.py")
    calls, _, fit = read_text_calls(f"1. Look\n{FORMS['fence']}\n2. And then\n{second}", TOOLS)
    assert fit
    assert [call.arguments and call.arguments["file_path"] for call in calls] == ["a.py", "b.py"]


@pytest.mark.parametrize(
    "text",
    [
        f"> {OBJECT}",
        f"    {OBJECT}",
        f"`{OBJECT}`",
        f"```python\n{OBJECT}\n```",
        f"````md\n{FORMS['fence']}\n````",
        f"It writes {OBJECT}",
        '{"name": "longrein", "version": "1"}',
        '{"name": "Read"}',
        INNER,
        "functions.Read is a function",
        "functions.Read(path)",
        "",
    ],
)
def test_what_is_quoted_explained_or_no_tool_is_no_call(text: str) -> None:
    assert read_text_calls(text, TOOLS)[::2] == ([], False)


@pytest.mark.parametrize(
    "text",
    [
        OBJECT.replace("file_path", "colour"),
        f"{FORMS['fence']}\nThis reads the file.",
        f"{OBJECT} reads the file.",
        OBJECT[:-1],
        OBJECT.replace("Read", "Reed"),
        '```json\n{"name": "Write", "arguments": {"content": "say "hi""}}\n```',
    ],
)
def test_a_call_that_does_not_fit_is_known_and_not_done(text: str) -> None:
    calls, _, fit = read_text_calls(text, TOOLS)
    assert (len(calls), fit) == (1, False)


@pytest.mark.parametrize("form", FORMS)
def test_no_form_begins_inside_what_is_cut(form: str) -> None:
    """Whatever piece of a text comes, nothing fails, and what fits names a tool."""
    text = FORMS[form]
    for end in range(len(text)):
        calls, _, fit = read_text_calls(text[:end], TOOLS)
        assert not fit or all(call.name in {"Read", "read_file"} for call in calls)
