"""A tool is an async function: name, schema and prompt come from its signature and docstring.

    async def Count(hands: Hands, file_path: str, word: str = "TODO") -> Outcome:
        '''Count a word in a file.

        file_path: The file.
        word: What to count.
        '''

    COUNT = make_tool(Count, access="read", together=True, paths=[("file_path", False)])

A call that cannot be done raises `ToolError`; the model reads its text. `hands` may be left out, and a plain string
may be returned instead of an `Outcome`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from longrein.events import ToolError
from longrein.tools.port import Access, Hands, Outcome, Tool
from longrein.tools.schema import tool_spec

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
        runner(function, {wire: name for name, wire in renamed.items()}),
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


def runner(function: Callable[..., Awaitable[Outcome | str]], names: Mapping[str, str]) -> Run:
    """`run(hands, **arguments)`: parameters renamed, a returned string made an outcome, a `ToolError` a failed one.

    Other exceptions are faults of the tool and come through; the loop tells the model of them.
    """
    wants_hands = "hands" in function.__code__.co_varnames[: function.__code__.co_argcount]

    async def run(hands: Hands, **arguments: Any) -> Outcome:
        given = {names.get(name, name): value for name, value in arguments.items()} if names else arguments
        try:
            found = await (function(hands, **given) if wants_hands else function(**given))
        except ToolError as refusal:
            return Outcome.fail(str(refusal))
        return Outcome.of(found) if isinstance(found, str) else found

    return run
