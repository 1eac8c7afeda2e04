"""A tool is an async function: name, schema and prompt come from its signature and docstring.

    async def Count(hands: ToolContext, file_path: str, word: str = "TODO") -> Outcome:
        '''Count a word in a file.

        file_path: The file.
        word: What to count.
        '''

    COUNT = make_tool(Count, access="read", together=True, paths=[("file_path", False)])

A call that cannot be done raises `ToolError`; the model reads its text. `hands` may be left out, and a plain string
may be returned instead of an `Outcome`.
"""

import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Union

from longrein.events import ToolError, ToolSpec
from longrein.tools.port import Access, Outcome, Tool, ToolContext

# --- From a function's signature and docstring to what the model is told: name, description, JSON schema -------------
#
# A docstring is the prompt. Its last paragraph may hold one line per parameter, `name: what it means` (a heading
# `Args:` above them is allowed, deeper indented lines continue the one above). Everything before it is the
# description; wrapped lines are joined, lines that begin with `- ` stay lines. Keys come in a fixed order, so the
# bytes do too.


PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


class Parameter(typing.NamedTuple):
    """One parameter of a function as the signature has it."""

    name: str
    hint: Any
    required: bool


def tool_spec(function: Callable[..., Any], names: Mapping[str, str]) -> ToolSpec:
    """The spec of `function`; `names` maps a parameter to the name the model uses (`{"ignore_case": "-i"}`).

    Raises TypeError for a hint that has no JSON schema: a mistake in the tool, found when it is registered.
    """
    found = parameters(function)
    wire = [names.get(p.name, p.name) for p in found]
    text, said = read_docstring(function.__doc__ or "", wire)
    properties = {
        name: with_description(schema_of(parameter.hint), said.get(name, ""))
        for name, parameter in zip(wire, found, strict=True)
    }
    required = [name for name, parameter in zip(wire, found, strict=True) if parameter.required]
    return ToolSpec(function.__name__, text, object_schema(properties, required))


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """The parameters after `hands`, in order. `inspect` is not used: importing it costs more than all of this."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = [name for name in code.co_varnames[:count] if name != "hands"]
    defaults = function.__defaults__ or ()
    optional = set(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount])
    optional.update(function.__kwdefaults__ or ())
    hints = hints_of(function)
    return [Parameter(name, hints.get(name, str), name not in optional) for name in names]


def hints_of(holder: Any) -> Mapping[str, Any]:
    """Annotations of a function or class; only those written as strings cost an evaluation."""
    hints: Mapping[str, Any] = holder.__annotations__
    if any(isinstance(hint, str) for hint in hints.values()):
        return typing.get_type_hints(holder)
    return hints


def schema_of(hint: Any) -> dict[str, Any]:
    """JSON schema of one type hint. `X | None` is the schema of X: optional is said by `required`."""
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if hint is Any:
        return {}
    if typing.is_typeddict(hint):
        return typed_dict_schema(hint)
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is Literal:
        return {"type": PLAIN[type(arguments[0])], "enum": list(arguments)}
    if origin in (typing.NotRequired, typing.Required):
        return schema_of(arguments[0])
    if origin in (Union, types.UnionType):
        kinds = [schema_of(one) for one in arguments if one is not type(None)]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(arguments[0])} if arguments else {"type": "array"}
    if origin is dict:
        return {"type": "object"}
    raise TypeError(f"a tool's parameter cannot be {hint!r}: use str, int, float, bool, list, dict, Literal, TypedDict")


def typed_dict_schema(hint: Any) -> dict[str, Any]:
    """Schema of a `TypedDict`, its fields described by its docstring in the same format."""
    hints = hints_of(hint)
    _, said = read_docstring(hint.__doc__ or "", list(hints))
    properties = {name: with_description(schema_of(kind), said.get(name, "")) for name, kind in hints.items()}
    return object_schema(properties, [name for name in hints if name in hint.__required_keys__])


def object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """An object that takes these keys and no others."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def with_description(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """`schema` with a description, if there is one."""
    return {**schema, "description": text} if text else schema


def read_docstring(doc: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """Description and what is said of each of `names`."""
    lines = dedented_lines(doc)
    while lines and not lines[-1].strip():
        lines.pop()
    start = max((i + 1 for i, line in enumerate(lines) if not line.strip()), default=0)
    block = lines[start:]
    if block and block[0].strip() in ("Args:", "Arguments:", "Parameters:"):
        block = block[1:]
    if not block or documented_parameter(block[0], names) is None:
        return join_wrapped(lines), {}
    said: dict[str, str] = {}
    current = ""
    for line in block:
        name = documented_parameter(line, names)
        if name is None:
            said[current] += " " + line.strip()
        else:
            current = name
            said[name] = line.strip()[len(name) + 1 :].strip()
    return join_wrapped(lines[:start]), said


def documented_parameter(line: str, names: list[str]) -> str | None:
    """The parameter that a line of the last paragraph begins with."""
    head, colon, _ = line.strip().partition(":")
    return head if colon and head in names else None


def dedented_lines(doc: str) -> list[str]:
    """Lines of a docstring without the indentation that all but the first share."""
    first, *rest = doc.split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return [first.strip(), *(line[indent:].rstrip() for line in rest)]


def join_wrapped(lines: list[str]) -> str:
    """Paragraphs with their wrapped lines joined."""
    text = ""
    for line in lines:
        breaks = not line or line.startswith("- ") or not text or text.endswith("\n")
        text += ("\n" if text and (line.startswith("- ") or not line) else "") if breaks else " "
        text += line.strip() if line else "\n"
    return text.replace("\n\n\n", "\n\n").strip()


# --- registry --------------------------------------------------------------------------------------------------------


Together = bool | Callable[[Mapping[str, Any]], bool]
Paths = Sequence[tuple[str, bool]] | Callable[[Mapping[str, Any]], tuple[tuple[str, bool], ...]]
Run = Callable[..., Awaitable[Outcome]]


def make_tool(
    function: Callable[..., Awaitable[Outcome | str]],
    *,
    access: Access,
    together: Together = False,
    paths: Paths = (),
    names: Mapping[str, str] | None = None,
    deferred: bool = False,
) -> Tool:
    """The tool that `function` is.

    `together`: whether calls may run beside others, or a function of the arguments that says so. `paths`: pairs of a
    parameter that names a path and whether it is written, or a function of the arguments that gives (path, writes)
    pairs. `names`: parameters the model calls by another name. `deferred`: whether the model may have to look it up.
    Raises TypeError for a hint that has no JSON schema.
    """
    renamed = names or {}
    return Tool(
        tool_spec(function, renamed),
        access,
        make_runner(function, {wire: name for name, wire in renamed.items()}),
        together if callable(together) else (lambda _: together),
        paths if callable(paths) else (lambda arguments: named_paths(paths, arguments)),
        deferred,
    )


def tool(
    *, access: Access = "command", together: Together = False, paths: Paths = ()
) -> Callable[[Callable[..., Awaitable[Outcome | str]]], Tool]:
    """Decorator form of `make_tool`. Without `access` each call asks, as a command does."""
    return lambda function: make_tool(function, access=access, together=together, paths=paths)


def named_paths(pairs: Sequence[tuple[str, bool]], arguments: Mapping[str, Any]) -> tuple[tuple[str, bool], ...]:
    """(path, writes) of those parameters that were given."""
    return tuple((str(arguments[name]), writes) for name, writes in pairs if arguments.get(name) is not None)


def make_runner(function: Callable[..., Awaitable[Outcome | str]], names: Mapping[str, str]) -> Run:
    """`run(hands, **arguments)`: parameters renamed, a returned string made an outcome, a `ToolError` a failed one.

    Other exceptions are faults of the tool and come through; the loop tells the model of them.
    """
    wants_hands = "hands" in function.__code__.co_varnames[: function.__code__.co_argcount]

    async def run(hands: ToolContext, **arguments: Any) -> Outcome:
        given = {names.get(name, name): value for name, value in arguments.items()} if names else arguments
        try:
            found = await (function(hands, **given) if wants_hands else function(**given))
        except ToolError as refusal:
            return Outcome.fail(str(refusal))
        return Outcome.of(found) if isinstance(found, str) else found

    return run
