"""The settings: one annotated field for each, one struct for each table of config.toml.

To add a setting, add a field with its `Setting` and its default, use it where the struct arrives,
and run `make docs`. Its key, checks, variable and built-in value (`config.settings_file`) and its
row in docs/settings.md or docs/screen.md are generated. A field without a `Setting` is no setting.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import msgspec

from longrein.choices import BACKGROUND_MODES, MODE_TEXTS, MODES, PROFILES

POLICIES = ("ask", "keep", "stop")
"""Policies for background tasks when longrein exits."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "max")
WIRES = ("anthropic", "openai-chat", "openai-responses", "gemini", "scripted")
MIB = 1024 * 1024


Options = TypeVar("Options", bound=msgspec.Struct)


class Setting(msgspec.Struct, frozen=True):
    """Mark of a field that users can set. The type of the field and this mark check its values."""

    help: str
    """Meaning, as Markdown for docs/settings.md."""
    project: Literal["set", "narrow", "add", "nothing"] = "set"
    """Power of a trusted project's file over the setting."""
    key: str = ""
    """Name in its table where it is not the field's."""
    factor: int = 1
    """Units of the field in one unit of the setting, such as bytes in a megabyte."""
    least: float = 0
    """Smallest number."""
    most: float = 0
    """Largest number; 0 for any."""
    choices: tuple[str, ...] = ()
    """Allowed texts; () for any."""
    check: Literal["", "model", "allow", "rules", "patterns", "headers"] = ""
    """Further check of its value."""
    replaces: bool = False
    """True for a list or table that replaces that of the layer before; other lists add to it."""
    flag: str = ""
    """Flag of the command line that sets it."""


class PermissionRules(msgspec.Struct, frozen=True):
    """Table `permissions`: rules such as `Bash(git status)`."""

    allow: Annotated[
        tuple[str, ...],
        Setting(
            "runs without a question. A command runs if a rule covers each of its parts",
            "nothing",
            check="allow",
            flag="--allowed-tools",
        ),
    ] = ()
    ask: Annotated[
        tuple[str, ...],
        Setting(
            "asks even when another rule allows it; not in `bypassPermissions`",
            "add",
            check="rules",
        ),
    ] = ()
    deny: Annotated[
        tuple[str, ...], Setting("is refused", "add", check="rules", flag="--disallowed-tools")
    ] = ()
    confined: Annotated[
        str,
        Setting(
            "commands that the sandbox confines, where a program or an editor answers permission "
            "questions: `ask` it about them too; `run` them as in a terminal, unless they say "
            "that they change files",
            "nothing",
            choices=("ask", "run"),
        ),
    ] = "ask"


class Provider(msgspec.Struct, frozen=True):
    """Table `providers.NAME`; '' and () where not set."""

    wire: Annotated[
        str,
        Setting(
            "`anthropic`, `openai-chat`, `openai-responses`, `gemini`; `scripted` plays a file",
            "nothing",
            choices=WIRES,
        ),
    ] = ""
    base_url: Annotated[
        str, Setting("address of requests; for `scripted` the path of the file", "nothing")
    ] = ""
    api_key_env: Annotated[str, Setting("the variable that holds the key", "nothing")] = ""
    headers: Annotated[
        tuple[tuple[str, str], ...],
        Setting("a table of further headers", "nothing", check="headers", replaces=True),
    ] = ()
    text_tools: Annotated[
        bool, Setting("for models without tool calls: tools are called in the text", "nothing")
    ] = False
    idle_timeout_s: Annotated[
        int,
        Setting(
            "longest pause inside an answer, in seconds; five times as long before its first byte",
            "nothing",
            least=1,
        ),
    ] = 120
    content_timeout_s: Annotated[
        int,
        Setting(
            "longest time without content, in seconds; comments, pings and empty events do not "
            "count",
            "nothing",
            least=1,
        ),
    ] = 900


class ModelSettings(msgspec.Struct, frozen=True):
    """Table `models."PROVIDER/MODEL"`; negative where not set."""

    window: Annotated[int, Setting("tokens, input and output together", "nothing", least=1)] = -1
    max_output: Annotated[int, Setting("tokens of one answer", "nothing", least=1)] = -1
    price_input: Annotated[
        float, Setting("US dollars for a million tokens; goes with `price_output`", "nothing")
    ] = -1.0
    price_output: Annotated[float, Setting("the same for output", "nothing")] = -1.0
    price_cache_read: Annotated[
        float,
        Setting(
            "for input read from the cache; default: the usual price of the provider's family",
            "nothing",
        ),
    ] = -1.0
    price_cache_write: Annotated[
        float, Setting("for input written to the cache; likewise", "nothing")
    ] = -1.0
    cache_ttl_s: Annotated[
        float, Setting("seconds a cached prefix lives after its last use", "nothing")
    ] = -1.0
    effort: Annotated[
        str,
        Setting(
            "effort of thinking: `none`, `minimal`, `low`, `medium`, `high`, `max`",
            "nothing",
            choices=EFFORTS,
        ),
    ] = ""


class ToolOptions(msgspec.Struct, frozen=True):
    """Table `tools`: limits of the tools. The model cannot raise them."""

    bash_timeout_s: Annotated[
        float,
        Setting("seconds of a command without a timeout; then it continues in the background"),
    ] = 120.0
    bash_timeout_max_s: Annotated[float, Setting("largest timeout of a command, in seconds")] = (
        600.0
    )
    output_inline_bytes: Annotated[
        int, Setting("output up to this is shown whole; larger output by both ends and a handle")
    ] = 30_000
    output_bytes_max: Annotated[int, Setting("a command that prints more is ended")] = 256 * MIB
    head_bytes: Annotated[int, Setting("shown start of a larger output")] = 4_000
    tail_bytes: Annotated[int, Setting("shown end of a larger output")] = 6_000
    parallel_calls: Annotated[
        bool,
        Setting(
            "calls of one reply run at once where none writes what another reads; `false` runs "
            "all in order"
        ),
    ] = True
    read_lines_max: Annotated[int, Setting("lines of a `Read` without a limit")] = 2_000
    search_lines_max: Annotated[int, Setting("lines of a `Grep` for content without a limit")] = 250
    read_bytes_max: Annotated[int, Setting("bytes of one `Read`")] = 256 * 1024
    line_chars_max: Annotated[int, Setting("longer lines are cut, with a note")] = 2_000
    keep_bytes_max: Annotated[
        int, Setting("larger files are not kept for rewinds and merges when read or changed")
    ] = 5 * MIB
    checkpoint_bytes_max: Annotated[
        int,
        Setting(
            "MB of a session's copies of the work tree, from which `/rewind` undoes what commands "
            "changed; 0: none",
            key="checkpoint_mb",
            factor=MIB,
        ),
    ] = 512 * MIB
    web_timeout_s: Annotated[
        float, Setting("seconds until the page of a `WebFetch` must have come")
    ] = 60.0
    web_bytes_max: Annotated[int, Setting("a larger page is cut")] = 5 * MIB
    web_private_hosts: Annotated[
        tuple[str, ...],
        Setting(
            "hosts on this machine or in a private network that `WebFetch` may reach, such as "
            "`localhost:8000`",
            "nothing",
        ),
    ] = ()
    web_search: Annotated[
        bool,
        Setting(
            "`true` lets the provider search the web with its own tool; each search has a price",
            "nothing",
        ),
    ] = False
    schedules: Annotated[
        bool,
        Setting(
            "`true` offers the model `CronCreate`, `CronList`, `CronDelete` in a terminal or an "
            "editor",
            "nothing",
        ),
    ] = False


SMALL_OUTPUT: Mapping[str, int] = {
    "output_inline_bytes": 3_200,
    "head_bytes": 1_200,
    "tail_bytes": 1_800,
    "read_lines_max": 200,
    "search_lines_max": 40,
}
"""Options of the tools in the profile `small`, where the settings have the usual ones: output of
some 40 lines, and files as whole as a refused `Write` gives them."""


def small_output(options: ToolOptions) -> ToolOptions:
    """Return `options` for a small window."""
    usual = ToolOptions()
    changed = {
        name: value
        for name, value in SMALL_OUTPUT.items()
        if getattr(options, name) == getattr(usual, name)
    }
    return msgspec.structs.replace(options, **changed)


class Limits(msgspec.Struct, frozen=True):
    """Table `limits`, and the limits of a subagent. 0 means no limit."""

    turns_max: Annotated[
        int, Setting("requests for one prompt", "narrow", key="max_turns", flag="--max-turns")
    ] = 0
    usd_max: Annotated[
        float,
        Setting(
            "money of a session, its subagents included",
            "narrow",
            key="max_budget_usd",
            flag="--max-budget-usd",
        ),
    ] = 0.0
    parallel_max: Annotated[
        int, Setting("calls that run at once; in the `seed` profiles 10", "narrow", least=1)
    ] = 32
    continuations_max: int = 3
    """Times the model is told to continue an answer that the output limit cut."""
    barren_steps_max: int = 20
    """Steps in a row without one successful call."""
    empty_max: int = 1
    """Empty answers in a row that are asked again before the model is told of them."""
    tokens_max: int = 0
    """Input and output tokens of the session and its subagents."""
    seconds_max: float = 0.0
    """Wall time of one turn; for a subagent, of its task."""
    agents_max: Annotated[
        int, Setting("subagents that run at once; in the `seed` profiles 10", "narrow", least=1)
    ] = 20
    depth_max: Annotated[
        int, Setting("levels of subagents", "narrow", key="agents_depth", least=1)
    ] = 1
    spawns_max: Annotated[
        int, Setting("subagents of one session in all", "narrow", key="agents_spawns", least=1)
    ] = 200
    memory_mb: Annotated[
        int,
        Setting(
            "memory limit of longrein itself, MB; the system's limits apply in any case", "narrow"
        ),
    ] = 0


class TaskOptions(msgspec.Struct, frozen=True):
    """Table `tasks`: limits and notices of background tasks. 0 means no limit."""

    running_max: Annotated[
        int, Setting("tasks that run at once; more wait", "narrow", key="max", least=1)
    ] = 32
    keep_s: Annotated[
        float,
        Setting(
            "hours that a task continues without longrein", "narrow", key="keep_hours", factor=3600
        ),
    ] = 24 * 3600.0
    quota_bytes: Annotated[
        int,
        Setting(
            "MB of output kept per task: the first and the newest half",
            "narrow",
            key="quota_mb",
            factor=MIB,
            least=1,
        ),
    ] = 64 * MIB
    memory_bytes: Annotated[
        int,
        Setting(
            "MB of memory of a task and its child processes", "narrow", key="memory_mb", factor=MIB
        ),
    ] = 0
    cpu_s: Annotated[float, Setting("CPU seconds of a task and its child processes", "narrow")] = 0
    timeout_s: Annotated[
        float, Setting("seconds of a task without a timeout; in the `seed` profiles 300", "narrow")
    ] = 0
    policy: Annotated[
        str,
        Setting(
            "on exit of the terminal: `keep`, `stop` or `ask`; default: ask",
            "nothing",
            choices=POLICIES,
        ),
    ] = ""
    promote: Annotated[
        bool, Setting("a command becomes a task at its timeout; `false` ends it")
    ] = True
    wake: Annotated[bool, Setting("an end wakes an idle agent")] = True
    wake_after_s: Annotated[float, Setting("seconds to wait for further ends before that")] = 0.5
    stall_s: Annotated[
        float,
        Setting(
            "seconds of silence after which a task that seems to ask a question is reported; 0 "
            "for never"
        ),
    ] = 45.0
    background: Annotated[
        str,
        Setting(
            "headless run that has its answer while tasks run: `exit`, `drain`, `steer`",
            "nothing",
            choices=BACKGROUND_MODES,
            flag="--background",
        ),
    ] = "steer"
    background_s: Annotated[
        float, Setting("longest wait for these tasks, in seconds", "nothing", flag="--wait-tasks")
    ] = 600.0
    tail_bytes: int = 2_000
    """End of the output that goes with the notice."""
    leave_s: float = 5.0
    """Wait for tasks that are ended when longrein leaves."""


class SessionSettings(msgspec.Struct, frozen=True):
    """Table `sessions`: space of the stored sessions."""

    notice_bytes: Annotated[
        int,
        Setting(
            "MB of all sessions above which the terminal says so, once a day; 0 for never",
            "nothing",
            key="notice_mb",
            factor=MIB,
        ),
    ] = 2_000 * MIB
    one_shot_days: Annotated[
        int,
        Setting(
            "days after which `longrein sessions prune` also takes runs of `longrein -p`; 0: as "
            "other sessions",
            "nothing",
        ),
    ] = 0
    store: Annotated[
        str,
        Setting(
            "address of the PostgreSQL database in which new sessions are kept, such as "
            "`postgresql://HOST/DATABASE` ([how](postgresql.md)); empty: files of the state "
            "folder",
            "nothing",
        ),
    ] = ""


class InstructionOptions(msgspec.Struct, frozen=True):
    """Table `context`: instruction files and the clearing policy."""

    files: Annotated[
        tuple[str, ...],
        Setting("instruction files; the first that exists per folder", replaces=True),
    ] = (
        "AGENTS.override.md",
        "AGENTS.md",
        "CLAUDE.md",
        "GEMINI.md",
    )
    bytes_max: Annotated[int, Setting("bytes of all instruction files together")] = 32 * 1024
    prepare_at: Annotated[
        int,
        Setting(
            "percent of the usable window at which a summary is prepared in the background; 30 or "
            "more, below "
            "`compact_at`",
            least=30,
            most=90,
        ),
    ] = 80
    compact_at: Annotated[
        int,
        Setting(
            "percent of the usable window at which the view must shrink; 60 to 95",
            least=60,
            most=95,
        ),
    ] = 92
    visibility: Annotated[
        float,
        Setting(
            "how much to pay for fewer missing lines, in units of the usual price of a line that "
            "is needed and not shown; 0.1 to 10",
            least=0.1,
            most=10,
        ),
    ] = 1.0
    git: Annotated[
        bool,
        Setting(
            "a session that begins in a git repository tells the model its status, newest commits "
            "and files once"
        ),
    ] = True
    weights: Annotated[
        str,
        Setting(
            "file of `lab.fit`: weights of the clearing policy in place of the shipped ones. "
            "A relative path "
            "begins in the folder of your settings",
            "nothing",
        ),
    ] = ""


class EnvironmentOptions(msgspec.Struct, frozen=True):
    """Table `env`."""

    keep: Annotated[
        tuple[str, ...],
        Setting(
            "variables that commands get beside the usual ones; `AWS_*` matches all with this "
            "prefix that do not look "
            "like a secret",
            "nothing",
        ),
    ] = ()


class RedactOptions(msgspec.Struct, frozen=True):
    """Table `redact`: secrets."""

    patterns: Annotated[
        tuple[str, ...],
        Setting(
            "regular expressions of secrets: matches never reach the log", "add", check="patterns"
        ),
    ] = ()
    env: Annotated[tuple[str, ...], Setting("variables whose values are secrets", "add")] = ()


SANDBOX_MODES = ("off", "auto", "required")
"""Modes of the sandbox, least strict first."""
TOOL_CHAINS = (
    *(
        ".local/bin",
        ".local/lib",
        ".local/share/uv",
        ".local/share/pipx",
        ".local/share/pnpm",
        ".local/share/mise",
    ),
    *(
        ".local/share/fnm",
        ".local/share/virtualenvs",
        ".local/share/nvim/mason",
        ".asdf",
        ".pyenv",
        ".rbenv",
    ),
    *(
        ".nvm",
        ".fnm",
        ".volta",
        ".n",
        ".bun",
        ".deno",
        ".cargo",
        ".rustup",
        "go",
        "sdk",
        ".sdkman",
        ".jabba",
    ),
    *(
        ".gradle",
        ".m2",
        ".ivy2",
        ".sbt",
        ".nuget",
        ".dotnet",
        ".ghcup",
        ".cabal",
        ".stack",
        ".opam",
        ".elan",
    ),
    *(
        ".julia",
        ".juliaup",
        ".nix-profile",
        ".linuxbrew",
        "miniconda3",
        "anaconda3",
        "miniforge3",
        "mambaforge",
    ),
    *(
        ".conda",
        ".npm",
        ".npm-global",
        ".yarn",
        ".pnpm-store",
        ".gem",
        ".bundle",
        ".composer",
        ".hex",
        ".mix",
    ),
    *(".pub-cache", "flutter", ".terminfo", ".gitconfig", ".config/git", ".cache/uv", ".cache/pip"),
    *(
        ".cache/pypoetry",
        ".cache/pre-commit",
        ".cache/ms-playwright",
        ".cache/huggingface",
        ".cache/torch",
    ),
    *(".cache/bazel", ".cache/yarn"),
)
"""Places of tool chains and their downloads below home, and git's settings of the user."""


class SandboxOptions(msgspec.Struct, frozen=True):
    """Table `sandbox`: how commands are confined."""

    mode: Annotated[
        str,
        Setting(
            "`auto` confines commands where a sandbox works, and says where none does; `required` "
            "refuses to start "
            "without one; `off` runs commands as you",
            "narrow",
            choices=SANDBOX_MODES,
        ),
    ] = "auto"
    home: Annotated[
        tuple[str, ...],
        Setting(
            "what confined commands may read of your home: names below it, or absolute paths. "
            "Default: the usual "
            "places of tool chains and git's settings; known files with tokens in them stay hidden",
            "nothing",
            replaces=True,
        ),
    ] = TOOL_CHAINS
    home_writable: Annotated[
        tuple[str, ...],
        Setting(
            "what confined commands may change of it, such as `.cache/go-build`. Whatever runs "
            "from there later was "
            "perhaps changed by a command that nobody was asked about",
            "nothing",
        ),
    ] = ()
    write: Annotated[
        tuple[str, ...],
        Setting("further folders that confined commands may change, absolute or `~/…`", "nothing"),
    ] = ()
    image: Annotated[
        str,
        Setting(
            "folder with an unpacked root file system that commands see, and may change, in place "
            "of this machine's files; bash is to be at the same place in it. Needs bubblewrap",
            "nothing",
        ),
    ] = ""
    network: Annotated[
        tuple[str, ...],
        Setting(
            "`[]`: confined commands have no network but loopback of their own. Hosts "
            "(`pypi.org`, `*.debian.org`, "
            "`10.1.0.0/16:8080`): those, by an HTTP proxy; another host is asked for at its first "
            'use. `["ask"]`: each '
            'host is asked for. `["*"]`: all of the network',
            "nothing",
        ),
    ] = ()


class HookOptions(msgspec.Struct, frozen=True):
    """Table `hooks`: how hooks run. The hooks themselves are in `hooks.json` and in files of
    other agents.
    """

    disable: Annotated[bool, Setting("`true` runs no hook at all", "nothing")] = False
    may_allow: Annotated[
        bool,
        Setting(
            "`true` lets your own hooks answer a question with yes, where no rule asks or denies. "
            "Otherwise a hook can "
            "only narrow",
            "nothing",
        ),
    ] = False
    outside_sandbox: Annotated[
        bool,
        Setting(
            "`true` runs the commands of your own hooks outside the sandbox. Those of a project "
            "always run in it",
            "nothing",
        ),
    ] = False
    timeout_s: Annotated[
        float, Setting("seconds of a command or address that names no limit", "nothing", least=1)
    ] = 60.0


class SkillOptions(msgspec.Struct, frozen=True):
    """Table `skills`: skills and custom commands."""

    disable_commands: Annotated[
        bool,
        Setting(
            "`true`: what a text runs with ``!`command` `` is not run, and a remark stands there",
            "narrow",
        ),
    ] = False


class OtherAgentOptions(msgspec.Struct, frozen=True):
    """Table `other_agents`: what is used of the settings of other agents."""

    read: Annotated[
        bool,
        Setting(
            "rules, variables and hooks of `~/.claude/settings.json`, of `~/.codex/hooks.json` "
            "and of such files in a trusted project are used, and your instructions for other "
            "agents (`~/.claude/CLAUDE.md` …); `false` leaves them all out",
            "nothing",
        ),
    ] = True
    full: Annotated[
        tuple[str, ...],
        Setting(
            "folders of projects whose such settings may also widen: allow calls, set variables, "
            "mode and model. "
            "Absolute or `~/…`",
            "nothing",
        ),
    ] = ()


THEMES = ("auto", "dark", "light", "ansi", "colour-blind")
LANGUAGES = ("en", "zh")


class TerminalOptions(msgspec.Struct, frozen=True):
    """Table `terminal`: the interactive terminal."""

    theme: Annotated[
        str,
        Setting(
            "colours: `dark`, `light`, `ansi` (the sixteen of your terminal), `colour-blind`; "
            "`auto` asks the terminal "
            "for its background",
            "nothing",
            choices=THEMES,
        ),
    ] = "auto"
    language: Annotated[
        str,
        Setting(
            "language of hints, questions and commands: `en`, `zh`; default: that of `LANG`",
            choices=LANGUAGES,
        ),
    ] = ""
    title: Annotated[
        bool, Setting("the title of the window names the session and its state", "nothing")
    ] = True
    notify: Annotated[
        str,
        Setting(
            "what calls you to a window without focus when a question waits or a long turn ends: "
            "`all`, `bell`, "
            "`message`, `off`",
            "nothing",
            choices=("all", "bell", "message", "off"),
        ),
    ] = "all"
    notify_after_s: Annotated[
        float,
        Setting("seconds that a question waits, or a turn takes, before you are called", "nothing"),
    ] = 10.0
    progress: Annotated[
        str,
        Setting(
            "progress in the tab or task bar while a turn runs: `on`, `off`; `auto` where the "
            "terminal shows it",
            "nothing",
            choices=("auto", "on", "off"),
        ),
    ] = "auto"
    status_line: Annotated[
        str,
        Setting(
            "command whose output is shown above the last line; it gets JSON about the session. "
            "Default: "
            "`statusLine` of `~/.claude/settings.json`",
            "nothing",
        ),
    ] = ""
    status_line_padding: Annotated[int, Setting("blanks on the left of it", "nothing")] = 0
    status_line_refresh_s: Annotated[
        float, Setting("seconds after which it runs again without news; 0 for never", "nothing")
    ] = 0.0


class KeyOptions(msgspec.Struct, frozen=True):
    """Table `keys`: keys of the terminal. `/keys` shows those that hold."""

    vim: Annotated[
        bool, Setting("`true`: the input has the keys of vim; the footer shows its mode", "nothing")
    ] = False
    steer: Annotated[
        tuple[str, ...],
        Setting("send into the turn that goes on, such as `ctrl-s`", "nothing", replaces=True),
    ] = ("ctrl-s",)
    background: Annotated[
        tuple[str, ...],
        Setting("send the running command to the background", "nothing", replaces=True),
    ] = ("ctrl-b",)
    new_line: Annotated[
        tuple[str, ...],
        Setting("new line; `\\` and Enter makes one on every terminal", "nothing", replaces=True),
    ] = ("alt-enter", "shift-enter", "ctrl-j")
    next_mode: Annotated[
        tuple[str, ...], Setting("next permission mode", "nothing", replaces=True)
    ] = ("shift-tab",)
    history_search: Annotated[
        tuple[str, ...], Setting("search what was sent before", "nothing", replaces=True)
    ] = ("ctrl-r",)
    editor: Annotated[
        tuple[str, ...],
        Setting("edit the input in `$VISUAL` or `$EDITOR`", "nothing", replaces=True),
    ] = ("ctrl-g",)
    paste_image: Annotated[
        tuple[str, ...], Setting("paste a picture of the clipboard", "nothing", replaces=True)
    ] = ("ctrl-v",)
    open_results: Annotated[
        tuple[str, ...],
        Setting("open the last results, thinking and diffs whole", "nothing", replaces=True),
    ] = ("ctrl-o",)
    pin_todos: Annotated[
        tuple[str, ...],
        Setting("pin the todo list above the input, or unpin it", "nothing", replaces=True),
    ] = ("ctrl-t",)
    redraw: Annotated[
        tuple[str, ...], Setting("draw the screen again", "nothing", replaces=True)
    ] = ("ctrl-l",)
    suspend: Annotated[
        tuple[str, ...],
        Setting("stop longrein until `fg`, while commands go on", "nothing", replaces=True),
    ] = ("ctrl-z",)


class Settings(msgspec.Struct, frozen=True):
    """All settings, merged."""

    model: Annotated[
        str,
        Setting(
            "`PROVIDER/MODEL`; without it the first whose key is in the environment, then a local "
            "server",
            check="model",
            flag="--model",
        ),
    ] = ""
    fallback_model: Annotated[
        str,
        Setting(
            "the model to change to after three overloads in a row",
            check="model",
            flag="--fallback-model",
        ),
    ] = ""
    compact_model: Annotated[
        str, Setting("the model that writes summaries; without it the session's own", check="model")
    ] = ""
    permission_mode: Annotated[
        str,
        Setting(
            "; ".join(f"`{mode}` {text}" for mode, text in MODE_TEXTS.items())
            + ". `-c`, `-r` and `/rewind` never restore `auto` and `bypassPermissions`. "
            "[What each asks](permissions.md#what-is-asked)",
            "narrow",
            choices=MODES,
            flag="--permission-mode",
        ),
    ] = "default"
    profile: Annotated[
        str,
        Setting(
            "what a request holds; `small`: six tools, short texts and results, chosen by itself "
            "for windows of at most 32k; `standard`: also there all of it. `seed`, `seed-later`, "
            "`seed-new` and `seed-framework` are simple ones for comparison",
            choices=PROFILES,
            flag="--profile",
        ),
    ] = "default"
    plugins: Annotated[
        tuple[str, ...],
        Setting(
            "installed Python packages whose tools, commands and other parts are used",
            "nothing",
        ),
    ] = ()
    permissions: PermissionRules = PermissionRules()
    providers: Mapping[str, Provider] = {}
    """By name."""
    models: Mapping[str, ModelSettings] = {}
    """By `provider/model`."""
    tools: ToolOptions = ToolOptions()
    limits: Limits = Limits()
    tasks: TaskOptions = TaskOptions()
    sessions: SessionSettings = SessionSettings()
    context: InstructionOptions = InstructionOptions()
    env: EnvironmentOptions = EnvironmentOptions()
    redact: RedactOptions = RedactOptions()
    sandbox: SandboxOptions = SandboxOptions()
    hooks: HookOptions = HookOptions()
    skills: SkillOptions = SkillOptions()
    other_agents: OtherAgentOptions = OtherAgentOptions()
    terminal: TerminalOptions = TerminalOptions()
    keys: KeyOptions = KeyOptions()
    variables: tuple[tuple[str, str], ...] = ()
    """Variables that settings of other agents give to commands."""
    folders: tuple[str, ...] = ()
    """Further folders of a session that such settings name."""
    origin: Mapping[str, str] = {}
    """Origin of each value that is not built in: key to `file:line`, variable or flag."""
    notes: tuple[str, ...] = ()
    """Lines for the user: values that were left out, and why."""
    tables: Mapping[str, msgspec.Struct] = {}
    """Tables of extensions that are not as built in, by name."""

    def of(self, options: type[Options]) -> Options:
        """Return the table of an extension by its struct."""
        found = (table for table in self.tables.values() if isinstance(table, options))
        return next(found, options())
