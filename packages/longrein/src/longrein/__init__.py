"""A coding agent for the terminal, and the context engine under it as a library.

    async def main() -> None:
        async with longrein.Session.open("anthropic/claude-sonnet-4-5") as session:
            print(await session.ask("Why does the build fail?"))

`Session` is an agent, `tool` turns an async function into a tool of it, `engine` is the context
engine for a message list of your own loop, and `context` the package that it is made of.

Errors are all below `LongreinError`. Each public name is imported at first use.
"""

import sys

_MAIN_MODULE = sys.orig_argv[-len(sys.argv)].removeprefix("-m") if sys.argv[:1] == ["-m"] else ""
if _MAIN_MODULE.partition(".")[0] == "longrein" and not sys.flags.safe_path:
    del sys.path[
        0
    ]  # `python -m longrein`: import nothing from the current folder, which may be a stranger's


__version__ = "0.1.0"

_HOMES = {
    "Session": "longrein.sdk",
    "TurnFailed": "longrein_context.events",
    "context": "",
    "engine": "longrein.integrations",
    "tool": "longrein.tools",
    **dict.fromkeys(
        (
            "BudgetError",
            "LongreinError",
            "ModelUnknown",
            "SessionBusy",
            "SessionClosed",
            "SessionError",
            "SessionReadOnly",
            "SessionTakenOver",
            "SessionUnknown",
            "SettingsError",
            "StoreDamaged",
            "StoreFull",
            "ToolError",
            "UsageError",
        ),
        "longrein_context.events",
    ),
}
"""Public name -> the module that holds it; '' for a package of longrein. `__init__.pyi` has
their types.
"""

__all__ = [*sorted(_HOMES)]  # noqa: PLE0604 - they are strings


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"longrein has no public name {name!r}; it has {', '.join(__all__)}")
    from importlib import (
        import_module,
    )  # not above: `__main__` removes the current folder from the path first

    return getattr(import_module(home), name) if home else import_module(f"longrein.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
