"""The options of `longrein` itself: each one is a field of `Options`, annotated with its flag. The
parser, the help, the completion, the man page and the docs are made of them.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple

from longrein.choices import BACKGROUND_MODES, MODE_TEXTS, PROFILES
from longrein.extension_points import HELP, STATE_DIR, Flag, flag
from longrein_context.events import UsageError

BYPASS = "bypassPermissions"
MODES = ("default", "acceptEdits", "plan", "auto", "dontAsk", BYPASS)
EFFORT_WORDS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_headless = partial(flag, group="Headless runs")
_of_programs = partial(flag, group="Programs (agent SDKs)")
_session = partial(flag, group="Which session")
_permission = partial(flag, group="What it may do")
_model = partial(flag, group="Model and instructions")


class Options(NamedTuple):
    """The options of a run, passed from `cli` to `app`. A field without a flag is not an option.

    '', 0 and () mean not given: settings apply. `prompt` is the first message; `resume` is '' to
    choose from a list.
    """

    prompt: str = ""
    typed: str = ""
    """Words of the prompt on the command line, in which `@` names files; piped text names none."""
    print: Annotated[
        bool, _headless("-p --print", "answer PROMPT (and what is piped in) on stdout, then exit")
    ] = False
    output_format: Annotated[
        Literal["text", "json", "stream-json"],
        _headless(
            "--output-format",
            "text: the answer; json: one result object; stream-json: a line for each thing that "
            "happens",
            "word",
            "FORMAT",
            ("text", "json", "stream-json"),
        ),
    ] = "text"
    input_format: Annotated[
        str,
        _headless(
            "--input-format",
            "text: stdin is added to PROMPT; stream-json: each line of stdin is a user message",
            "word",
            "FORMAT",
            ("text", "stream-json"),
        ),
    ] = "text"
    include_partial_messages: Annotated[
        bool, _headless("--include-partial-messages", "stream-json: also the reply while it grows")
    ] = False
    verbose: Annotated[bool, _headless("--verbose", "progress on stderr, a line for each call")] = (
        False
    )
    background: Annotated[
        str,
        _headless(
            "--background",
            "tasks and subagents that still work when the answer is done: exit leaves them, drain "
            "waits for them, steer (the default) goes on with what each brings",
            "word",
            "HOW",
            BACKGROUND_MODES,
        ),
    ] = ""
    wait_tasks: Annotated[
        int,
        _headless(
            "--wait-tasks",
            "wait S seconds at most, also for commands that went to the background by their time "
            "limit, which are ended at the answer otherwise",
            "count",
            "S",
        ),
    ] = 0
    max_turns: Annotated[
        int, _headless("--max-turns", "stop before the request after N; exit code 4", "count", "N")
    ] = 0
    max_budget_usd: Annotated[
        float,
        _headless("--max-budget-usd", "stop before spending more; exit code 4", "money", "DOLLARS"),
    ] = 0.0
    json_schema: Annotated[
        str,
        _headless(
            "--json-schema",
            "end with an object that fits this JSON schema; the result line has it as "
            "structured_output",
            "word",
            "SCHEMA",
        ),
    ] = ""
    permission_prompt_tool: Annotated[
        str,
        _of_programs(
            "--permission-prompt-tool",
            "stdio: with stream-json, the program on stdin answers permission questions",
            "word",
            "NAME",
        ),
    ] = ""
    include_hook_events: Annotated[
        bool, _of_programs("--include-hook-events", "stream-json: also the runs of hooks")
    ] = False
    replay_user_messages: Annotated[
        bool,
        _of_programs(
            "--replay-user-messages", "stream-json: also each message that was taken from stdin"
        ),
    ] = False
    debug: Annotated[
        bool, _of_programs("--debug --debug-to-stderr", "progress on stderr, a line for each call")
    ] = False
    continue_newest: Annotated[
        bool, _session("-c --continue", "go on with the newest session of this folder")
    ] = False
    resume: Annotated[
        str | None,
        _session(
            "-r --resume",
            "go on with this session (the beginning of its id is enough); without ID, choose",
            "maybe",
            "ID",
        ),
    ] = None
    worktree: Annotated[
        str | None,
        _session(
            "-w --worktree",
            "work in the git worktree NAME of this repository, made if missing",
            "maybe",
            "NAME",
        ),
    ] = None
    """Name of the git worktree to work in; '' for a new name, None for none."""
    fork_session: Annotated[bool, _session("--fork-session", "with -c or -r: go on in a copy")] = (
        False
    )
    session_id: Annotated[
        str, _session("--session-id", "the id a new session is to have", "word", "UUID")
    ] = ""
    resume_session_at: Annotated[
        str,
        _session(
            "--resume-session-at",
            "with -c or -r: go back to the message with this id first",
            "word",
            "UUID",
        ),
    ] = ""
    permission_mode: Annotated[
        str,
        _permission(
            "--permission-mode",
            "; ".join(f"{mode}: {MODE_TEXTS[mode]}" for mode in MODES).replace("`", ""),
            "word",
            "MODE",
            MODES,
        ),
    ] = ""
    allowed_tools: Annotated[
        tuple[str, ...],
        _permission(
            "--allowed-tools --allowedTools",
            "do not ask for these, such as 'Edit,Bash(git status)'",
            "rules",
            "RULES",
        ),
    ] = ()
    disallowed_tools: Annotated[
        tuple[str, ...],
        _permission(
            "--disallowed-tools --disallowedTools",
            "never allow these, whatever else allows them",
            "rules",
            "RULES",
        ),
    ] = ()
    tools: Annotated[
        str | None,
        _permission(
            "--tools",
            "the built-in tools to offer, such as 'Read,Edit'; '' for none, default for all",
            "text",
            "NAMES",
        ),
    ] = None
    skip_permissions: Annotated[
        bool,
        _permission(
            "--dangerously-skip-permissions",
            "the same as --permission-mode bypassPermissions",
        ),
    ] = False
    add_dirs: Annotated[
        tuple[str, ...],
        _permission(
            "--add-dir",
            "a further folder to work in; may be given again",
            "words",
            "DIR",
        ),
    ] = ()
    settings: Annotated[
        str,
        _permission(
            "--settings",
            "settings as in .claude/settings.json, a file or JSON: permissions, env, model and "
            "hooks of it are used",
            "word",
            "FILE|JSON",
        ),
    ] = ""
    setting_sources: Annotated[
        str | None,
        _permission(
            "--setting-sources",
            "which files to use: user, project, local; '' for none. Those of a project also need "
            "its trust",
            "text",
            "LIST",
        ),
    ] = None
    mcp_config: Annotated[
        tuple[str, ...],
        _permission(
            "--mcp-config",
            'MCP servers from this file or JSON: {"mcpServers": {…}}; may be given again',
            "words",
            "FILE|JSON",
        ),
    ] = ()
    plugin_dirs: Annotated[
        tuple[str, ...],
        _permission(
            "--plugin-dir-no-mcp --plugin-dir",
            "use the skills and commands of the plugin in this folder; may be given again",
            "words",
            "DIR",
        ),
    ] = ()
    strict_mcp_config: Annotated[
        bool, _permission("--strict-mcp-config", "only the MCP servers of --mcp-config")
    ] = False
    trust: Annotated[
        bool,
        _permission(
            "--trust",
            "use the settings, subagent types and instructions of this folder, in this run only",
        ),
    ] = False
    plain: Annotated[
        bool, _model("--plain", "interactive, but lines only: nothing is ever redrawn")
    ] = False
    model: Annotated[
        str,
        _model(
            "--model", "such as anthropic/claude-sonnet-4-5, or sonnet", "word", "PROVIDER/MODEL"
        ),
    ] = ""
    fallback_model: Annotated[
        str,
        _model(
            "--fallback-model",
            "the model to go on with when this one is overloaded",
            "word",
            "PROVIDER/MODEL",
        ),
    ] = ""
    effort: Annotated[
        str, _model("--effort", "how much the model thinks", "word", "LEVEL", EFFORT_WORDS)
    ] = ""
    max_thinking_tokens: Annotated[
        str, _model("--max-thinking-tokens", "the same as a number of tokens", "text", "N")
    ] = ""
    thinking: Annotated[
        str,
        _model(
            "--thinking",
            "adaptive: as the model likes; disabled: none",
            "word",
            "HOW",
            ("adaptive", "disabled"),
        ),
    ] = ""
    agents: Annotated[
        str,
        _model(
            "--agents",
            'further subagent types: {"NAME": {"description": "…", "prompt": "…", "tools": […], '
            '"model": "…"}}',
            "word",
            "JSON",
        ),
    ] = ""
    system_prompt: Annotated[
        str | None,
        _model("--system-prompt", "in place of longrein's own; '' for none", "text", "TEXT"),
    ] = None
    """None: longrein's own."""
    system_prompt_file: Annotated[
        str, _model("--system-prompt-file", "the same from a file", "word", "FILE")
    ] = ""
    append_system_prompt: Annotated[
        str, _model("--append-system-prompt", "after longrein's own", "text", "TEXT")
    ] = ""
    append_system_prompt_file: Annotated[
        str, _model("--append-system-prompt-file", "the same from a file", "word", "FILE")
    ] = ""
    profile: Annotated[
        str,
        _model(
            "--profile",
            "what a request holds; small: for small windows; seed: the plainest",
            "word",
            "NAME",
            PROFILES,
        ),
    ] = ""
    state_dir: Annotated[str, STATE_DIR] = ""
    list_tools: Annotated[
        bool,
        flag("--list-tools", "list the tools that each request holds, and those found by search"),
    ] = False
    without_effect: tuple[str, ...] = ()
    """Lines about flags that were accepted and do nothing."""


def _flags() -> Iterator[Flag]:
    for name, annotation in Options.__annotations__.items():
        for made in getattr(annotation, "__metadata__", ()):
            yield made._replace(field=name)
    yield flag("-v --version", "show the version and exit")
    yield HELP


MAIN_GROUPS: Mapping[str, tuple[Flag, ...]] = {
    group: tuple(flags) for group, flags in groupby(_flags(), lambda one: one.group)
}
"""Flags of longrein itself under their headings of the help page."""


def options_of(values: Mapping[str, Any]) -> Options:
    """Make checked `Options` of `values` (field -> value). Raises `UsageError` for contradictions.

    `skip_permissions` is accepted as another spelling of `permission_mode`.
    """
    given = dict(values)
    mode = given.get("permission_mode", BYPASS)
    if given.pop("skip_permissions", False):
        given["permission_mode"] = BYPASS
        if mode != BYPASS:
            raise UsageError(
                f"--dangerously-skip-permissions and --permission-mode {mode}: give one of them"
            )
    if given.get("input_format") == given.get("output_format") == "stream-json":
        given["print"] = True  # agent SDKs leave out -p
    options = Options(**given)
    for wrong, line in _contradictions(options):
        if wrong:
            raise UsageError(line)
    return options


def _contradictions(o: Options) -> tuple[tuple[bool, str], ...]:
    """(condition, error message) of flags that do not go together."""
    resumes = o.continue_newest or o.resume is not None
    return (
        (
            o.continue_newest and o.resume is not None,
            "-c and -r name two sessions: give one of them",
        ),
        (
            o.fork_session and not resumes,
            "--fork-session copies a session: say which with -c or -r ID",
        ),
        (
            bool(o.session_id) and resumes and not o.fork_session,
            "--session-id names a new session: leave out -c and -r, or add --fork-session",
        ),
        (bool(o.resume_session_at) and not resumes, "--resume-session-at goes with -c or -r ID"),
        (
            bool(o.max_thinking_tokens) and not o.max_thinking_tokens.isdecimal(),
            _not_tokens(o.max_thinking_tokens),
        ),
        (o.system_prompt is not None and o.system_prompt_file != "", _twice("--system-prompt")),
        (
            o.append_system_prompt != "" and o.append_system_prompt_file != "",
            _twice("--append-system-prompt"),
        ),
        (o.json_schema != "" and not o.print, "--json-schema goes with -p: add -p"),
        *_contradictions_of_programs(o),
        (
            bool(o.session_id) and not _is_uuid(o.session_id),
            f"--session-id: {o.session_id!r} is not a UUID",
        ),
        (o.print and o.resume == "", "-r needs an ID with -p: `longrein sessions` lists them"),
        (not o.print and o.output_format != "text", "--output-format goes with -p: add -p"),
        (not o.print and o.background != "", "--background goes with -p: add -p"),
        (not o.print and o.wait_tasks != 0, "--wait-tasks goes with -p: add -p"),
        (not o.print and o.input_format != "text", "--input-format goes with -p: add -p"),
        (
            o.input_format == "stream-json" and o.output_format != "stream-json",
            "--input-format stream-json goes with --output-format stream-json: add it",
        ),
        (
            o.include_partial_messages and o.output_format != "stream-json",
            "--include-partial-messages goes with -p --output-format stream-json: add them",
        ),
    )


def _contradictions_of_programs(o: Options) -> tuple[tuple[bool, str], ...]:
    """Contradictions among the flags of agent SDKs."""
    unknown = [
        name for name in (o.setting_sources or "").split(",") if name.strip() not in ("", *SOURCES)
    ]
    tool = o.permission_prompt_tool
    return (
        (
            bool(unknown),
            (
                f"--setting-sources: {unknown[0] if unknown else ''!r} is not one of "
                f"{', '.join(SOURCES)}"
            ),
        ),
        (
            tool == "stdio" and o.input_format != "stream-json",
            "--permission-prompt-tool stdio goes with --input-format stream-json",
        ),
        (
            tool not in ("", "stdio"),
            (
                f"--permission-prompt-tool: {tool!r} cannot be asked yet; stdio asks the program "
                "that "
                "runs longrein"
            ),
        ),
    )


SOURCES = ("user", "project", "local")


def _twice(name: str) -> str:
    return f"{name} and {name}-file: give one of them"


def _not_tokens(text: str) -> str:
    return f"--max-thinking-tokens: {text!r} is not a number of tokens"


def _is_uuid(text: str) -> bool:
    from uuid import UUID

    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
