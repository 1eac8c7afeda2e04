"""The commands of the command line with their flags, declared once for the parser, the help pages
and the error messages. The flags of longrein itself are in `options`; those of extensions stand
with the extensions, and `argv` finds them.
"""

from collections.abc import Mapping

from longrein.extension_points import HELP, JSON, STATE_DIR, Command, flag
from longrein.options import MAIN_GROUPS

SHELLS = ("bash", "zsh", "fish")
OWN_FORMATS = ("jsonl", "transcript")
"""Formats of `longrein export`; those of extensions come between them."""

MAIN = Command(
    "",
    "[FLAGS] [PROMPT]",
    "A coding agent for the terminal. Without -p it is interactive and PROMPT is its first "
    "message.",
    tuple(one for group in MAIN_GROUPS.values() for one in group),
    1,
)

COMMANDS: Mapping[str, Command] = {
    c.name: c
    for c in (
        MAIN,
        Command(
            "sessions",
            "[delete ID... | prune] [FLAGS]",
            "List the sessions on this machine, newest first. delete removes sessions with all "
            "their files. prune shows which sessions go, with their sizes, and removes them after "
            "a yes: those older than --days, then the oldest until the rest fits --keep-mb. One "
            "that is open, or has running tasks, stays.",
            (
                flag("--days", "prune: sessions without an entry for N days", "count", "N"),
                flag(
                    "--keep-mb",
                    "prune: the oldest of them, until those left have N MB",
                    "count",
                    "N",
                ),
                flag("--here", "prune: only sessions of this folder"),
                flag("--one-shot", "prune: only runs of longrein -p"),
                flag("--yes", "prune without a question"),
                flag(
                    "--watch",
                    "follow the open ones, those that wait for an answer first; Ctrl-C ends",
                ),
                JSON,
                STATE_DIR,
                HELP,
            ),
            1_000,
        ),
        Command(
            "usage",
            "[day | model | project] [FLAGS]",
            "Show the requests, tokens and money of all sessions on this machine, by day, by model "
            "and by project.",
            (
                flag("--days", "only the newest N days with requests", "count", "N"),
                JSON,
                STATE_DIR,
                HELP,
            ),
            1,
        ),
        Command(
            "context",
            "ID [FLAGS]",
            "Show what fills a session's context, item by item.",
            (
                flag("--as-sent", "its request N as the model got it, from 1", "count", "N"),
                flag("--json", "one JSON object"),
                STATE_DIR,
                HELP,
            ),
            1,
            1,
            run="longrein.commands.sessions:context",
        ),
        Command(
            "search",
            "QUERY [FLAGS]",
            "Find words in everything that was said, run and read in this folder's sessions, "
            "newest first. All "
            'words must occur in one place, "quoted" ones as they stand; case does not count; '
            "parts of words are "
            "found. Exit code 0: found; 1: nothing found.",
            (
                flag("--session", "in this session only, wherever it was", "word", "ID"),
                flag("--all", "in the sessions of every folder", field="every"),
                flag("--page", "which page of the hits", "count", "N"),
                flag("--json", "one JSON array of all hits"),
                STATE_DIR,
                HELP,
            ),
            1000,
            run="longrein.commands.sessions:search",
        ),
        Command(
            "export",
            "ID [FLAGS]",
            "Write a session out, every byte of it.",
            (
                flag(
                    "--format",
                    "jsonl: every entry of the log; html and markdown: a page to read; atif: a "
                    "trajectory for other "
                    "tools; transcript: the conversation as providers spell it, in a new file of "
                    ".transcripts or of the folder that -o names",
                    "word",
                    "FORMAT",
                    OWN_FORMATS,
                ),
                flag("--whole", "one file that `longrein import` takes on another machine"),
                flag("-o --output", "write here and not to stdout", "word", "FILE"),
                STATE_DIR,
                HELP,
            ),
            1,
            1,
            run="longrein.commands.sessions:export",
        ),
        Command(
            "import",
            "FILE... | claude|codex|gemini|opencode [FLAGS]",
            "Take over sessions that can be resumed: files of `longrein export --whole`, "
            "transcripts of Claude Code "
            "(~/.claude/projects/*/*.jsonl) and rollouts of Codex "
            "(~/.codex/sessions/*/*/*/*.jsonl). They work in the "
            "current folder from then on. A session that is there is never changed. With the name "
            "of an agent: show "
            "what of its settings can be taken over, and write it to your own after a yes.",
            (flag("--yes", "write settings without a question"), STATE_DIR, HELP),
            1000,
            1,
            run="longrein.commands.import_settings:import_named",
        ),
        Command(
            "tasks",
            "[SESSION | SESSION/TASK | stop SESSION/TASK] [FLAGS]",
            "List the background tasks of every session that run, or ended and were not told yet; "
            "with SESSION "
            "all of that one. With SESSION/TASK show one and the end of its output. The beginning "
            "of an id is "
            "enough; b3 alone will do where only one session has such a task.",
            (flag("--tail", "how many lines of the output", "count", "N"), JSON, STATE_DIR, HELP),
            2,
        ),
        Command(
            "agents",
            "[SESSION] [FLAGS]",
            "Show the subagents that work now, in every open session; with SESSION all that it "
            "ever had: state, "
            "time, requests, tokens, money and what each did last.",
            (JSON, STATE_DIR, HELP),
            1,
            run="longrein.commands.tasks:agents",
        ),
        Command(
            "happened",
            "KIND [TEXT] [FLAGS]",
            "Tell the model of a session that something happened: in an editor, a server, a "
            "script. A working session "
            "is told with its next request, an idle one with your next prompt. The text is data, "
            "never an order. "
            "Without TEXT, stdin is the text. KIND is one of program_message, diagnostics, "
            "selected_lines_in_ide, "
            "opened_file_in_ide, mcp_resource, mcp_resource_updated, teammate_message.",
            (
                flag("--source", "what it is about, such as a file or a program", "word", "NAME"),
                flag(
                    "--session",
                    "the session; default: $LONGREIN_SESSION, else this folder's newest",
                    "word",
                    "ID",
                ),
                STATE_DIR,
                HELP,
            ),
            1000,
            run="longrein.commands.report_event:report_event",
        ),
        Command(
            "worktrees",
            "[merge NAME | remove NAME] [FLAGS]",
            "List the git worktrees that subagents have left with changes. merge brings one into "
            "your folder as "
            "uncommitted changes, whole or, where both sides changed the same lines, not at all. "
            "remove takes one "
            "away with its branch. Exit code 1: refused, with the reason.",
            (
                flag("--unmerged", "remove it even with commits that were not merged"),
                JSON,
                STATE_DIR,
                HELP,
            ),
            2,
        ),
        Command(
            "watch",
            "[SESSION] [FLAGS]",
            "Follow a session that another process has open, read-only; without SESSION the "
            "newest open one of this "
            "folder. Ctrl-C ends. The process that works in it is not disturbed.",
            (STATE_DIR, HELP),
            1,
        ),
        Command(
            "login",
            "[PROVIDER] [FLAGS]",
            "Keep the key of a provider: it is asked for and not shown, or read from stdin. It "
            "goes into the system's "
            "keyring (the keyring package, secret-tool or security), else into a file that only "
            "you can read. Without "
            "PROVIDER: list the providers and where the key of each comes from.",
            (STATE_DIR, HELP),
            1,
        ),
        Command(
            "logout",
            "[PROVIDER] [FLAGS]",
            "Remove a kept key; PROVIDER may be left out for the only one.",
            (STATE_DIR, HELP),
            1,
            run="longrein.commands.login:logout",
        ),
        Command(
            "help",
            "[COMMAND] [FLAGS]",
            "Show this page, or that of COMMAND.",
            (flag("--man", "the man page of all commands, for `man -l -`"), HELP),
            1,
            run="longrein.frontends.help_page:help",
        ),
        Command(
            "completion",
            "bash|zsh|fish",
            "Write what completes commands and flags in your shell: source <(longrein completion "
            "bash), the same with "
            "zsh, or longrein completion fish | source.",
            (HELP,),
            1,
            1,
        ),
        Command(
            "doctor",
            "[FLAGS]",
            "Say what longrein finds here and what is missing. With --live ask the model of the "
            "settings six small questions, each with one row: text, a tool call, parallel calls, "
            "thinking, a cache hit, an image. The cost is said first, and nothing is stored. Exit "
            "code 0: all that the model claims works.",
            (
                flag("--live", "make six cheap requests to the model"),
                flag(
                    "--json", "one JSON array of findings; with --live one object", field="as_json"
                ),
                STATE_DIR,
                HELP,
            ),
            0,
        ),
        Command(
            "report",
            "[SESSION] [FLAGS]",
            "Write a file for a bug report: versions, what longrein doctor says, the settings that "
            "are set, and the kinds and sizes of the last entries of SESSION, or of the newest of "
            "this folder. Secrets are replaced. Nothing is sent.",
            (
                flag("-o --output", "write here and not to longrein-report.json", "word", "FILE"),
                flag("--entries", "how many entries (200)", "count", "N"),
                flag("--with-content", "with the redacted texts of these entries"),
                STATE_DIR,
                HELP,
            ),
            1,
        ),
        Command(
            "trust",
            "[FLAGS]",
            "Use what this folder brings from now on: settings and rules, which can only narrow "
            "what may happen, "
            "hooks, MCP servers, skills, commands, subagent types and instruction files. Holds "
            "for this repository "
            "at this place, not for another one inside it or in its place.",
            (
                flag("--undo", "take the trust back"),
                flag("--show", "only list what would be used", field="show_only"),
                STATE_DIR,
                HELP,
            ),
            0,
        ),
        Command(
            "demo",
            "[FLAGS]",
            "Watch a real small job, offline and without a key.",
            (flag("--keep", "leave the project, the log and the state where they are"), HELP),
            0,
        ),
    )
}

NOT_YET = frozenset(
    (
        *("--agent", "--output-last-message", "--output-schema"),
        *("--ephemeral", "--skip-git-repo-check", "-i"),
    )
)
"""Flags of other agents that longrein does not have yet."""

WITHOUT_EFFECT: Mapping[str, tuple[bool, str]] = {
    "--allow-dangerously-skip-permissions": (False, ""),
    "--betas": (True, "no beta header is sent"),
    "--debug-file": (True, "--debug writes to stderr"),
    "--no-session-persistence": (False, "the session is kept, as every session is"),
    "--resume-drops-turn": (True, "the resume does not check what it drops"),
    "--session-mirror": (
        False,
        "the session is stored by longrein, not in the program's session store",
    ),
    "--task-budget": (True, "the model is not told a budget; --max-budget-usd limits money"),
    "--thinking-display": (True, "thoughts are always shown as the model gives them"),
}
"""Flags of agent SDKs that are accepted and do nothing: whether they take a value, and the line
said on stderr.
"""
