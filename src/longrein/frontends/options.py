"""What the command line said, typed and checked: the one thing that goes from `cli` to `app`."""

from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

import msgspec

from longrein.events import UsageError

BYPASS = "bypassPermissions"


class Options(msgspec.Struct, frozen=True):
    """Every flag of the main command. '' , 0 and () mean: not given, so settings and defaults decide."""

    prompt: str = ""
    """The first message. Text piped in is added to it by `cli`."""
    print: bool = False
    """`-p`: answer on stdout and leave."""
    output_format: Literal["text", "json", "stream-json"] = "text"
    """`text`, `json` or `stream-json`."""
    input_format: str = "text"
    """`text` or `stream-json`."""
    include_partial_messages: bool = False
    """Whether `stream-json` carries the reply while it grows."""
    verbose: bool = False
    """Whether progress goes to stderr."""
    background: str = ""
    """What `-p` does about work in the background when its answer is done: `exit`, `drain` or `steer`."""
    continue_newest: bool = False
    """`-c`: go on with the newest session of this folder."""
    resume: str | None = None
    """`-r`: id or unique beginning of one; '' asks which; None when not given."""
    fork_session: bool = False
    """Go on in a copy of the session."""
    session_id: str = ""
    """UUID that a new session is to have."""
    model: str = ""
    """`PROVIDER/MODEL`."""
    permission_mode: str = ""
    """`default`, `acceptEdits`, `plan` or `bypassPermissions`."""
    allowed_tools: tuple[str, ...] = ()
    """Rules that allow, such as `Bash(git status)`."""
    disallowed_tools: tuple[str, ...] = ()
    """Rules that deny."""
    max_turns: int = 0
    """Requests that one run may make; 0 for no limit."""
    max_budget_usd: float = 0.0
    """Money that one run may spend; 0 for no limit."""
    system_prompt: str = ""
    """Stands in place of longrein's own system prompt."""
    append_system_prompt: str = ""
    """Stands after the system prompt."""
    agents: str = ""
    """Further subagent types, as a JSON object."""
    add_dirs: tuple[str, ...] = ()
    """Further folders the session may work in, as written."""
    plain: bool = False
    """Interactive without ever redrawing."""
    profile: str = ""
    """Context policy: `seed`; '' for the default one."""
    state_dir: str = ""
    """Where sessions are kept."""


def options_of(values: Mapping[str, Any]) -> Options:
    """`values` (field to value) as checked `Options`. Raises `UsageError` where flags contradict each other.

    Of other fields only `skip_permissions` is known: a spelling of `permission_mode`.
    """
    given = dict(values)
    mode = given.get("permission_mode", BYPASS)
    if given.pop("skip_permissions", False):
        given["permission_mode"] = BYPASS
        if mode != BYPASS:
            raise UsageError(f"--dangerously-skip-permissions and --permission-mode {mode}: give one of them")
    options = Options(**given)
    for wrong, line in _rules(options):
        if wrong:
            raise UsageError(line)
    return options


def _rules(o: Options) -> tuple[tuple[bool, str], ...]:
    """What does not go together, and the line that says so and what to do."""
    resumes = o.continue_newest or o.resume is not None
    return (
        (o.continue_newest and o.resume is not None, "-c and -r name two sessions: give one of them"),
        (o.fork_session and not resumes, "--fork-session copies a session: say which with -c or -r ID"),
        (
            bool(o.session_id) and resumes and not o.fork_session,
            "--session-id names a new session: leave out -c and -r, or add --fork-session",
        ),
        (bool(o.session_id) and not _is_uuid(o.session_id), f"--session-id: {o.session_id!r} is not a UUID"),
        (o.print and o.resume == "", "-r needs an ID with -p: `longrein sessions` lists them"),
        (not o.print and o.output_format != "text", "--output-format goes with -p: add -p"),
        (not o.print and o.background != "", "--background goes with -p: add -p"),
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


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
