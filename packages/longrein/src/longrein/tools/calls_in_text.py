"""Calls that a model writes as text, in any of the forms that models have learned.

Small models and servers that do not know a model's form hand a call on as text: as JSON in a code
fence, between `<tool_call>` marks, as `functions.Read(...)`. Such a text is read as the call that
it is, so that it is done and not taken for an answer.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from longrein.models import balanced_object, repair_arguments
from longrein.tools.arguments import fit_arguments
from longrein.tools.foreign_calls import own_calls
from longrein.tools.tool_port import Tool
from longrein_context.events import ToolCall, unwrapped

FENCES = (
    "json|jsonc|json5|xml|tool|tools|tool_call|tool_calls|tool_code|tool_use|function|functions"
)
"""Info strings of code fences that hold calls, beside none."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n]*\n?")
_START = re.compile(
    r" {0,3}(?=[{]|\[\s*[{]|<tool_calls?>|<function_calls?>|<invoke\b|\[TOOL_CALLS\]|<\|"
    r"|functions\.\w)"
)
_BETWEEN = re.compile(
    r"(?:\[/?TOOL_CALLS\]|[\s,;\[\]]|</?tool_calls?>|</?function_calls?>|<\|(?:call|end|im_end|eot_id|start)\|>"
    r"|</s>|assistant(?=<\|)|<\|channel\|>(?:commentary|analysis) )*"
)
"""What stands before, between and after calls."""
_NAMED = re.compile(
    r"(?:to=)?functions\.(\w+)\s*(?:<\|constrain\|>\s*json\s*)?(?:<\|message\|>|\()?\s*(?=\{)"
)
_PYTHON = re.compile(r"functions\.(\w+)(?=\()")
_MISTRAL = re.compile(r"(\w+)\[ARGS\]\s*(?=\{)")
_BEGUN = re.compile(r"\{\s*\"(?:name|tool|function)\"\s*:\s*\"(\w+)\"\s*,")
_INVOKE = re.compile(r"(?s)<invoke name=\"([^\"]+)\">(.*?)</invoke>")
_PARAMETER = re.compile(r"(?s)<parameter name=\"([^\"]+)\"[^>]*>(.*?)</parameter>")
_LINE = re.compile(r"[^\n]*\n?")


class TextCalls(NamedTuple):
    """Calls that stand in a text."""

    calls: list[ToolCall]
    """Those of offered tools; of any tool if they end the text."""
    is_last: bool
    """True if nothing stands after the last call."""
    fits: bool
    """True if all may be carried out: nothing follows, and each fits the schema of its tool."""


def read_text_calls(text: str, tools: Mapping[str, Tool]) -> TextCalls:
    """Return the calls that stand in `text`. Quotations are no calls: other code fences,
    inline code, lines after `>`, and lines indented by four blanks.

    >>> read_text_calls("I look at it. `{}`", {}).calls
    []
    """
    calls, is_last = _calls(text)
    known = [call for call in calls if all(_tool(one, tools) for one in own_calls(call, tools))]
    fits = is_last and len(known) == len(calls)
    return TextCalls(
        calls if is_last else known,
        is_last,
        fits and all(_fits(one, tools) for call in known for one in own_calls(call, tools)),
    )


def _tool(call: ToolCall, tools: Mapping[str, Tool]) -> Tool | None:
    return tools.get(unwrapped(call).name)


def _fits(call: ToolCall, tools: Mapping[str, Tool]) -> bool:
    call = unwrapped(call)
    tool = tools[call.name]
    return call.arguments is not None and fit_arguments(tool, call.arguments)[1] is None


def _calls(text: str) -> tuple[list[ToolCall], bool]:
    """Return the calls of a text in order, and whether nothing stands after the last."""
    calls: list[ToolCall] = []
    at, after = 0, 0
    while at < len(text):
        fence = _FENCE.match(text, at)
        if fence is not None:
            close = re.compile(rf"(?m)^ {{0,3}}{fence[1][0]}{{{len(fence[1])},}}[ \t]*$").search(
                text, fence.end()
            )
            body = text[fence.end() : close.start() if close else len(text)]
            at = close.end() + 1 if close else len(text)
            if re.fullmatch(FENCES, fence[2] or "json", re.IGNORECASE):
                found, end = _sequence(body, 0)
                if found and end == len(body):
                    calls += found
                    after = at
            continue
        line = _LINE.match(text, at)
        assert line is not None
        if _START.match(text, at) is not None:
            found, end = _sequence(text, at)
            if found:
                calls += found
                at = after = end
                continue
        at = line.end()
    return calls, bool(calls) and not text[after:].strip()


def _sequence(text: str, at: int) -> tuple[list[ToolCall], int]:
    """Return the calls that follow each other from `at` on, and where they end."""
    calls: list[ToolCall] = []
    end = at
    while (found := _call(text, _skip(text, at))) is not None:
        call, at = found
        calls.append(call)
        end = at = _skip(text, at)
    return calls, end


def _skip(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _call(text: str, at: int) -> tuple[ToolCall, int] | None:
    """Return the call that begins at `at`, and its end."""
    if (invoke := _INVOKE.match(text, at)) is not None:
        arguments = {name: value.strip("\n") for name, value in _PARAMETER.findall(invoke[2])}
        return ToolCall("", invoke[1], arguments), invoke.end()
    named = _NAMED.match(text, at) or _MISTRAL.match(text, at)
    if named is None and (python := _PYTHON.match(text, at)) is not None:
        return _python_call(text, python)
    if (begin := named.end() if named else at) >= len(text) or text[begin] != "{":
        return None
    received, end = balanced_object(text, begin)
    whole = repair_arguments(received)
    if whole is None:  # a call that is cut, or whose quotes are wrong
        begun = named or _BEGUN.match(received)
        return (ToolCall("", begun[1], None, received), end) if begun else None
    if named is not None:
        return ToolCall("", named[1], whole), end + (text[end : end + 1] == ")")
    call = _of_object(whole)
    return (call, end) if call is not None else None


def _of_object(whole: Mapping[str, Any]) -> ToolCall | None:
    """Return the call that a JSON object is: a name and an object of arguments."""
    inner = whole.get("function")
    if isinstance(inner, dict):
        whole = inner
    name = next(
        (whole[key] for key in ("name", "tool", "tool_name", "function") if key in whole), None
    )
    arguments = next(
        (whole[key] for key in ("arguments", "args", "parameters", "input") if key in whole), None
    )
    if isinstance(arguments, str):
        arguments = repair_arguments(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return ToolCall("", name, arguments)


def _python_call(text: str, named: re.Match[str]) -> tuple[ToolCall, int] | None:
    """Return a call with keyword arguments, as Python writes it."""
    for close in re.finditer(r"\)", text[named.end() :]):
        end = named.end() + close.end()
        try:
            call = ast.parse(text[named.start() : end], mode="eval").body
            if isinstance(call, ast.Call) and not call.args:
                arguments = {one.arg or "": ast.literal_eval(one.value) for one in call.keywords}
                return ToolCall("", named[1], arguments), end
        except (SyntaxError, ValueError):
            continue
    return None
