"""Offer to the model: tools, subagent types, skills, and the prefix of the conversation."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from longrein.agent import builtin_kinds, compose_system
from longrein.agent.extension_part import ExtensionPart
from longrein.app.additions import Additions
from longrein.app.run_context import RunContext
from longrein.choices import is_small
from longrein.config import (
    SkillFiles,
    describe_environment,
    load_instructions,
    load_plugins,
    load_subagent_types,
    session_points,
    sign_line,
)
from longrein.models import WEB_SEARCH, Model, can_search_web, is_trained_on_patches
from longrein.permissions import Call, Rules, denies_every_call, escape, with_tool_names
from longrein.tools import (
    ASK_USER,
    EDITORS,
    SKILL,
    SubagentType,
    Tool,
    agent_tool,
    alias_names,
    builtin_tools,
    catalogue,
    goal_tools,
    named_tools,
    offer_tools,
    own_name,
    tools_by_name,
)
from longrein.workspace.sandbox import SessionSandbox
from longrein_context import DOCUMENT_NAMES, State
from longrein_context.events import PrefixSet, UsageError, framed, marker_sign


def with_plugins(run_context: RunContext, additions: Additions) -> Additions:
    """Add the parts of extensions and of plugins that the user's settings name. Raises
    `SettingsError`.
    """
    settings = run_context.settings
    if not settings.plugins and not session_points():
        return additions
    known = [tool.spec.name for tool in (*built_in((), None), *additions.tools)]
    plugins = load_plugins(settings.plugins, known, settings.providers)
    return msgspec.structs.replace(
        additions, tools=(*plugins.tools, *additions.tools), plugins=plugins
    )


class Offer(NamedTuple):
    """Offer to the model: the prefix, and the tools, subagent types and skills in it."""

    prefix: Callable[[Model, str], PrefixSet]
    tools: dict[str, Tool]
    kinds: tuple[SubagentType, ...]
    library: SkillFiles
    notes: tuple[str, ...]
    denies: Callable[[str], bool]
    """Returns True if a rule forbids every call of a tool."""


def make_offer(
    run_context: RunContext,
    additions: Additions,
    state: State,
    parts: Sequence[ExtensionPart],
    sandbox: SessionSandbox,
    branch: str,
    nonce: str,
) -> Offer:
    """Choose tools, subagent types and skills for the session. Further tools are those that
    `parts` have when the prefix is made.
    """
    library, listed, unknown = _skills(run_context, additions.skills)
    before = [spec.name for spec in state.prefix.callable_tools] if state.prefix else []
    asks = ASK_USER.spec.name in before if state.prefix else additions.asks_user
    chosen = ((SKILL, bool(listed)), (ASK_USER, asks))
    without = {tool.spec.name for tool, offered in chosen if not offered}
    kinds, tools, unread = _kinds_and_tools(run_context, additions, without)
    registry = tools_by_name(tools)
    search = _may_search_web(run_context, additions)
    read = partial(_static_context, run_context, additions, sandbox, branch, listed, nonce)
    is_seed = run_context.settings.profile.startswith("seed")
    shown = _document_tools(tools, additions.tools) if is_seed else tools
    prefix, told = _prefix(run_context, read, state, shown, parts, nonce, search=search)
    denies = partial(denies_every_call, _rules(run_context, builtin_tools()).deny)
    notes = (*told, *unread, *unknown, *library.notes)
    return Offer(prefix, registry, kinds, library, notes, denies)


def _skills(
    run_context: RunContext, only: Sequence[str] | None
) -> tuple[SkillFiles, str, tuple[str, ...]]:
    """Return the skills and custom commands on disk, the catalogue for the model, '' for none; and
    a note on the names in `only` that no skill has.
    """
    library = SkillFiles(
        run_context.cwd,
        run_context.home,
        run_context.environ,
        run_context.trusted.cover,
        run_context.options.plugin_dirs,
        only,
    )
    found = library.all()
    missing = ", ".join(sorted({*(only or ())} - {skill.name for skill in found}))
    note = (f"skills: there is no {escape(missing)}",) if missing else ()
    return library, catalogue(found), note


def built_in(kinds: Sequence[SubagentType], chosen: Sequence[str] | None) -> list[Tool]:
    """Return the built-in tools named in `chosen`, in their usual order; all for None.

    Raises `UsageError` for an unknown name.
    """
    tools = [*builtin_tools(), agent_tool(tuple(kinds)), *goal_tools(), SKILL]
    if chosen is None:
        return tools
    names = [tool.spec.name for tool in tools]
    if unknown := [name for name in chosen if name not in names]:
        raise UsageError(f"there is no built-in tool {unknown[0]!r}; there are {', '.join(names)}")
    wanted = {*chosen, *(EDITORS if EDITORS[0] in chosen else ())}
    return [*named_tools(tool for tool in tools if tool.spec.name in wanted)]


def _document_tools(tools: Iterable[Tool], added: Collection[Tool]) -> list[Tool]:
    """Return the tools of the founding documents under their names there, and those of a
    program. Longrein's others can be called all the same.
    """
    return [
        msgspec.structs.replace(
            tool,
            spec=msgspec.structs.replace(tool.spec, name=DOCUMENT_NAMES[tool.spec.name]),
            listing="listed",
        )
        if tool.spec.name in DOCUMENT_NAMES
        else tool
        for tool in tools
        if tool.spec.name in DOCUMENT_NAMES or tool in added
    ]


def _chosen_tools(
    kinds: Sequence[SubagentType], flag: str | None, named: Sequence[str] | None
) -> tuple[Sequence[str] | None, str]:
    """Return the names of the built-in tools to offer, None for all, and a note on names that
    `--tools` has wrong.

    `flag`: the value of `--tools`. `named`: what a program names in its place.
    """
    if named is not None or flag is None or flag.strip() == "default":
        return named, ""
    tools = {tool.spec.name: tool for tool in built_in(kinds, None)}
    wanted = [own_name(name.strip(), tools) for name in flag.split(",") if name.strip()]
    missing = ", ".join(name for name in wanted if name not in tools and name != WEB_SEARCH.name)
    note = f"--tools: there is no {missing}; there are {', '.join(tools)}" if missing else ""
    return [name for name in wanted if name in tools], note


def _may_search_web(run_context: RunContext, additions: Additions) -> bool:
    """Return whether the user wants the provider to search the web, and no rule or flag takes the
    tool away.

    The provider searches without asking, so that a rule that asks takes it away too.
    """
    settings = run_context.settings
    name = WEB_SEARCH.name
    flag = run_context.options.tools
    named: Collection[str] | None = additions.builtin
    if named is None and flag is not None and flag.strip() != "default":
        named = [one.strip() for one in flag.split(",")]
    if not settings.tools.web_search or (named is not None and name not in named):
        return False
    from longrein.permissions.rule_evaluation import judge

    rules = _rules(run_context, builtin_tools())
    return judge(Call(name, {}, "none"), rules, "default", run_context.cwd).kind == "allow"


def _rules(run_context: RunContext, tools: Iterable[Tool]) -> Rules:
    """Return the rules of the settings that deny and ask, by the names of `tools`."""
    given = run_context.settings.permissions
    rules = Rules(ask=given.ask, deny=given.deny, base=run_context.cwd)
    return with_tool_names(rules, alias_names(tools))


def search_note(run_context: RunContext, model: Model) -> str:
    """Return a line for the user where the search that the settings turn on does not exist; ''
    otherwise.
    """
    if not run_context.settings.tools.web_search or can_search_web(model.wire, model.model):
        return ""
    return (
        f"tools.web_search: {model.name} has no search of its own over {model.wire}; WebFetch "
        "reads single pages"
    )


def _kinds_and_tools(
    run_context: RunContext, additions: Additions, without: Collection[str]
) -> tuple[tuple[SubagentType, ...], tuple[Tool, ...], tuple[str, ...]]:
    """Return the subagent types, all tools of the session, and notes on what was ignored of files
    and of `--tools`.

    Where there is an editor, the tools work in it. `without`: built-in tools that only a program
    can ask for.
    """
    kinds, unread = _kinds(run_context, additions.tools)
    chosen, missing = _chosen_tools(kinds, run_context.options.tools, additions.builtin)
    offered = [
        tool
        for tool in built_in(kinds, chosen)
        if chosen is not None or tool.spec.name not in without
    ]
    _check_names((*offered, *additions.tools))
    deny = _rules(run_context, (*built_in(kinds, None), *additions.tools)).deny
    tools = [
        msgspec.structs.replace(tool, withdrawn=True)
        if denies_every_call(deny, tool.spec.name, tool.rule_name)
        else tool
        for tool in (*offered, *additions.tools)
    ]
    if additions.editor is not None:
        tools = [*map(additions.editor.wrap, tools)]
    return kinds, tuple(tools), (*unread, missing)


def _check_names(tools: Sequence[Tool]) -> None:
    """Raise `UsageError` when two tools have one name, of which only one could be called."""
    taken: set[str] = set()
    builtin = {tool.spec.name for tool in built_in((), None)}
    for tool in tools:
        name = tool.spec.name
        if name in taken:
            advice = ", or leave the built-in one out of `builtin_tools`" if name in builtin else ""
            raise UsageError(f"tools: there are two tools {name!r}: rename one{advice}")
        taken.add(name)


def _kinds(
    run_context: RunContext, more: Sequence[Tool]
) -> tuple[tuple[SubagentType, ...], tuple[str, ...]]:
    """Return the subagent types, and notes on parts of their files that were ignored."""
    return load_subagent_types(
        builtin_kinds(),
        run_context.cwd,
        run_context.home,
        run_context.environ,
        trusted=run_context.trusted.cover,
        own=run_context.uses("user"),
        given=run_context.options.agents,
        known_tools=(*builtin_tools(), *goal_tools(), SKILL, *more),
    )


StaticContext = tuple[tuple[str, ...], Any, Iterable[str]]
"""Texts of the static context, the files that they come from, and notes on them."""


def _prefix(
    run_context: RunContext,
    read: Callable[[], StaticContext],
    state: State,
    tools: Sequence[Tool],
    parts: Sequence[ExtensionPart],
    nonce: str,
    *,
    search: bool,
) -> tuple[Callable[[Model, str], PrefixSet], Iterable[str]]:
    """Return (model, reason) -> prefix of the conversation; and notes on the files read for it.

    `read` is called at the start of a session; what it returns is frozen then.
    """
    stored = state.prefix
    context, sources, notes = (
        (marked_context(stored.context, nonce), stored.sources, ()) if stored else read()
    )
    own = [tool.spec.name for tool in built_in((), None)]

    def prefix(model: Model, reason: str) -> PrefixSet:
        small = is_small(run_context.settings.profile, model.budget.window_tokens)
        names, usable_tokens = (model.provider, model.model, model.wire), model.budget.usable_tokens
        added = [tool for part in parts for tool in part.offered]
        told = offer_tools(
            (*tools, *added),
            usable_tokens,
            next((part.deferral for part in parts if part.deferral is not None), None),
            search=any(part.grows for part in parts),
            patches=is_trained_on_patches(model.model),
            small=own if small else (),
        )
        system = compose_system(
            [spec.name for spec in (*told.listed, *told.deferred)],
            model=model.name,
            small=small,
            replaced=run_context.options.system_prompt,
            appended=run_context.options.append_system_prompt,
        )
        around = (*context, *_instructions(parts, nonce))
        hosted = (WEB_SEARCH,) if search and can_search_web(model.wire, model.model) else ()
        return PrefixSet(
            reason, *names, system, (*told.listed, *hosted), around, sources, told.deferred
        )

    return prefix, notes


def _instructions(parts: Sequence[ExtensionPart], nonce: str) -> list[str]:
    """Return what the parts say of their tools, each text between two marks."""
    said = [part.instructions for part in parts]
    return [framed(nonce, kind, text) for kind, text in said if text]


_BEGINNINGS = {
    "Environment:": "environment",
    "Instructions from ": "instructions",
    "Notes of MCP servers": "MCP servers",
}
"""Beginning of a text of the static context -> its kind; others are the skills."""


def marked_context(context: Sequence[str], nonce: str) -> tuple[str, ...]:
    """Return a stored static context with its marks, which an earlier longrein did not set.

    The system prompt says which words are the user's by the marks around them.
    """
    sign, found = f"[{marker_sign(nonce)}", list[str]()
    for text in context:
        kinds = (kind for start, kind in _BEGINNINGS.items() if text.startswith(start))
        kind = next(kinds, "skills")
        body = f"{sign_line(sign)}\n" * (kind == "environment") + text
        found.append(text if text.startswith(sign) else framed(nonce, kind, body))
    return tuple(found)


def _static_context(
    run_context: RunContext,
    additions: Additions,
    sandbox: SessionSandbox,
    branch: str,
    skills: str,
    nonce: str,
) -> StaticContext:
    """Return environment, instruction files and skills, each between two marks of the session."""
    commands = sandbox.describe()
    if not (additions.asks_user or run_context.options.permission_prompt_tool):
        commands += "\nNobody answers questions in this run: what would be asked is refused."
    environment = describe_environment(
        cwd=run_context.cwd,
        day=time.strftime("%Y-%m-%d"),
        roots=run_context.roots,
        branch=branch,
        commands=commands,
        sign=f"[{marker_sign(nonce)}",
    )
    texts, sources, notes = load_instructions(
        run_context.cwd,
        run_context.home,
        run_context.environ,
        run_context.settings,
        run_context.trusted.cover,
        own=run_context.uses("user"),
    )
    listed = [framed(nonce, "skills", skills)] * bool(skills)
    instructions = [framed(nonce, "instructions", text) for text in texts]
    return (framed(nonce, "environment", environment), *instructions, *listed), sources, notes
