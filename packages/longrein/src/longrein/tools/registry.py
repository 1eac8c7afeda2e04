"""Tools from async functions: name, JSON schema and description come from the signature and the
docstring.

    async def Count(context: ToolContext, file_path: str, word: str = "TODO") -> Outcome:
        '''Count a word in a file.

        file_path: The file.
        word: What to count.
        '''

    COUNT = make_tool(Count, access="read", together=True, paths=[("file_path", False)])

A first parameter annotated with `ToolContext` receives it; the model does not see that parameter.
The function may return a string instead of an `Outcome`, or another value, which the model gets as
JSON. A call that cannot be done raises `ToolError`, whose text the model reads.
"""

import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypedDict, Union, Unpack, overload

import msgspec

from longrein.tools.tool_port import (
    Access,
    Listing,
    Outcome,
    RuleName,
    Tool,
    ToolContext,
    ToolKind,
    UserAnswer,
)
from longrein_context.events import ToolError, ToolSpec, ToolTraits

# --- Tool spec from signature and docstring -------------------------------------------------------
#
# The docstring is the prompt. Its last paragraph may hold one line per parameter, `name: meaning`,
# with an optional heading `Args:`; deeper indented lines continue the line above. Everything before
# is the description: wrapped lines are joined, lines that begin with `- ` or four blanks are kept.
# Keys come in a fixed order, so equal tools give equal bytes.


PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


class Parameter(typing.NamedTuple):
    """A parameter of a function's signature."""

    name: str
    hint: Any
    required: bool


def tool_spec(
    function: Callable[..., Any],
    names: Mapping[str, str],
    unseen: Sequence[str] = (),
    unlisted: Sequence[str] = (),
) -> ToolSpec:
    """Return the spec of `function`; `names` maps a parameter to the model's name for it
    (`{"ignore_case": "-i"}`).

    Parameters in `unseen` are left out; those in `unlisted` are taken but not offered, which JSON
    Schema calls deprecated. Raises TypeError for a type hint without a JSON schema.
    """
    found = [parameter for parameter in parameters(function) if parameter.name not in unseen]
    wire = [names.get(p.name, p.name) for p in found]
    text, said = read_docstring(function.__doc__ or "", wire)
    properties = {
        name: with_description(schema_of(parameter.hint), said.get(name, ""))
        | ({"deprecated": True} if parameter.name in unlisted else {})
        for name, parameter in zip(wire, found, strict=True)
    }
    required = [name for name, parameter in zip(wire, found, strict=True) if parameter.required]
    return ToolSpec(function.__name__, text, object_schema(properties, required))


def takes_context(function: Callable[..., Any]) -> bool:
    """Return True if the first parameter of a tool's function is for its `ToolContext`."""
    code = function.__code__
    first = code.co_varnames[0] if code.co_argcount else ""
    return hints_of(function).get(first) is ToolContext


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters that the model gives, in order. Avoids the slow import of `inspect`."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[takes_context(function) : count]
    defaults = function.__defaults__ or ()
    optional = set(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount])
    optional.update(function.__kwdefaults__ or ())
    hints = hints_of(function)
    return [Parameter(name, hints.get(name, str), name not in optional) for name in names]


def hints_of(holder: Any) -> Mapping[str, Any]:
    """Return the annotations of a function or class; evaluates them only when some are strings."""
    hints: Mapping[str, Any] = holder.__annotations__
    if any(isinstance(hint, str) for hint in hints.values()):
        return typing.get_type_hints(holder)
    return hints


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the JSON schema of a type hint. `X | None` gives the schema of X: `required` tells
    what is optional.
    """
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
        return (
            {"type": "array", "items": schema_of(arguments[0])} if arguments else {"type": "array"}
        )
    if origin is dict:
        return {"type": "object"}
    raise TypeError(
        f"a tool's parameter cannot be {hint!r}: use str, int, float, bool, list, dict, Literal, "
        "TypedDict"
    )


def typed_dict_schema(hint: Any) -> dict[str, Any]:
    """Return the schema of a `TypedDict`; its docstring describes the fields in the same format."""
    hints = hints_of(hint)
    _, said = read_docstring(hint.__doc__ or "", list(hints))
    properties = {
        name: with_description(schema_of(kind), said.get(name, "")) for name, kind in hints.items()
    }
    return object_schema(properties, [name for name in hints if name in hint.__required_keys__])


def object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the schema of an object with exactly these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def with_description(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Add `text` to `schema` as its description, unless it is empty."""
    return {**schema, "description": text} if text else schema


def read_docstring(doc: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description and the text of each parameter in `names`."""
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
    """Return the parameter that a line of the last paragraph describes, or None."""
    head, colon, _ = line.strip().partition(":")
    return head if colon and head in names else None


def dedented_lines(doc: str) -> list[str]:
    """Split a docstring into lines without their common indentation."""
    first, *rest = doc.split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return [first.strip(), *(line[indent:].rstrip() for line in rest)]


def join_wrapped(lines: list[str]) -> str:
    """Join the wrapped lines of each paragraph; lists and lines indented by four stay."""
    text = ""
    for line in lines:
        stays = line.startswith(("- ", "    "))
        breaks = not line or stays or not text or text.endswith("\n")
        if not breaks:
            text += " "
        elif text and (stays or not line):
            text += "\n"
        text += line.removeprefix("    ").rstrip() if line else "\n"
    return text.replace("\n\n\n", "\n\n").strip()


# --- Tools from functions -------------------------------------------------------------------------


Together = bool | Callable[[Mapping[str, Any]], bool]
Paths = Sequence[tuple[str, bool]] | Callable[[Mapping[str, Any]], tuple[tuple[str, bool], ...]]
Run = Callable[..., Awaitable[Outcome]]
Function = Callable[..., Awaitable[Any]]
"""Function that a tool is made of."""
ASYNC_CODE = 0x80 | 0x100
"""Flags of the code of `async def` and of `types.coroutine`."""


class Traits(TypedDict, total=False):
    """Fields of `events.ToolTraits`, as arguments of `make_tool`."""

    kind: ToolKind
    quiet: bool
    polls: bool
    key_argument: str
    task_argument: str


def make_tool(  # noqa: PLR0913 - each is a property of the tool
    function: Function,
    *,
    access: Access,
    together: Together = False,
    paths: Paths = (),
    names: Mapping[str, str] | None = None,
    listing: Listing = "listed",
    unlisted_arguments: Sequence[str] = (),
    rule_name: RuleName = "",
    aliases: Sequence[str] = (),
    check: Callable[..., Awaitable[None]] | None = None,
    user: UserAnswer | None = None,
    traced: bool = False,
    **traits: Unpack[Traits],
) -> Tool:
    """Make a tool from `function`.

    `together`: whether calls may run in parallel, or a function of the arguments. `paths`: pairs of
    a path parameter and whether the path is written, or a function from arguments to (path, writes)
    pairs. `names`: the model's names for parameters. `unlisted_arguments`: parameters that are
    taken but not offered. `listing`, `rule_name`, `aliases`, `check`, `user`, `traced`: see `Tool`.
    `traits`: fields of `events.ToolTraits`. Raises TypeError for a type hint without a JSON schema,
    for a path parameter without `paths`, which rules would not see, and for what is no async
    function.
    """
    code = getattr(function, "__code__", None)
    if code is None or not (code.co_flags & ASYNC_CODE or hasattr(function, "__wrapped__")):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(
            f"a tool is made of an async function, and {name} is none: write `async def {name}`"
        )
    renamed = names or {}
    unseen = [
        parameter.name for parameter in parameters(function) if parameter.name.endswith("path")
    ]
    if access in ("read", "write") and not paths and unseen:
        raise TypeError(f"{function.__name__}: state paths=[({unseen[0]!r}, {access == 'write'})]")
    return Tool(
        msgspec.structs.replace(
            tool_spec(function, renamed, user.arguments if user else (), unlisted_arguments),
            traits=ToolTraits(**traits),
        ),
        access,
        make_runner(function, {wire: name for name, wire in renamed.items()}),
        together if callable(together) else (lambda _: together),
        paths if callable(paths) else (lambda given: named_paths(paths, given)),
        listing,
        rule_name=rule_name,
        aliases=tuple(aliases),
        check=check,
        user=user,
        traced=traced,
    )


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *,
    access: Access = "command",
    together: Together = False,
    paths: Paths = (),
    rule_name: RuleName = "",
    aliases: Sequence[str] = (),
    **traits: Unpack[Traits],
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    access: Access = "command",
    together: Together = False,
    paths: Paths = (),
    rule_name: RuleName = "",
    aliases: Sequence[str] = (),
    **traits: Unpack[Traits],
) -> Tool | Callable[[Function], Tool]:
    """Decorator form of `make_tool`, with or without brackets.

    Without `access`, each call asks for permission like a command. Raises TypeError as `make_tool`
    does.
    """

    def made(function: Function) -> Tool:
        return make_tool(
            function,
            access=access,
            together=together,
            paths=paths,
            rule_name=rule_name,
            aliases=aliases,
            **traits,
        )

    return made if function is None else made(function)


def named_paths(
    pairs: Sequence[tuple[str, bool]], arguments: Mapping[str, Any]
) -> tuple[tuple[str, bool], ...]:
    """Return (path, writes) for each parameter of `pairs` that is given."""
    return tuple(
        (str(arguments[name]), writes) for name, writes in pairs if arguments.get(name) is not None
    )


def make_runner(function: Function, names: Mapping[str, str]) -> Run:
    """Return `run(context, **arguments)`, which calls `function` and always gives an `Outcome`.

    A returned string becomes an `Outcome`, any other value its JSON text, a `ToolError` a failed
    one. Other exceptions propagate to the loop.
    """
    wants_context = takes_context(function)

    async def run(context: ToolContext, /, **arguments: Any) -> Outcome:
        given = (
            {names.get(name, name): value for name, value in arguments.items()}
            if names
            else arguments
        )
        try:
            found = await (function(context, **given) if wants_context else function(**given))
        except ToolError as refusal:
            return Outcome.fail(str(refusal), *refusal.facts)
        return found if isinstance(found, Outcome) else Outcome.of(text_of_value(found))

    return run


def text_of_value(value: Any) -> str:
    """Return what a tool returned as text for the model: a string as it is, else its JSON.

    Raises TypeError for a value without a JSON form, and for an awaitable.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Awaitable):
        if isinstance(value, Coroutine):
            value.close()
        raise TypeError("the tool returned a coroutine: `await` is missing before it")
    return msgspec.json.encode(value, enc_hook=_fields_of_value).decode()


def _fields_of_value(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(
        f"the tool returned {type(value).__name__}, which has no JSON form: return a text, or "
        "values of JSON"
    )
