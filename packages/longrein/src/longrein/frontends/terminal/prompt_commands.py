"""Slash commands that are prompts: `/init` and `/review`. A command of the user's files with the
same name wins.
"""

from typing import Literal

from longrein.agent import UserMessage
from longrein.frontends.terminal.command_types import Command, CommandContext, CommandResult
from longrein_context.events import Text

INIT = """\
Write the file AGENTS.md at the top of this project: instructions for coding agents that will work here.

Look first: the README, the build and package files, CI, the layout of the folders, the tests, files with rules for
agents (CLAUDE.md, GEMINI.md, .cursor/rules, .github/copilot-instructions.md). Run nothing that changes anything.

Write down only what an agent cannot see at once, in at most 60 lines:
- the exact commands to build, check, test (also one single test) and run;
- how the code is cut: what lies where, the few rules that the layers keep;
- conventions that reviewers here insist on, and traps.
No general advice, no list of every file, nothing that is invented. If AGENTS.md is there already, improve it: keep what
is right, correct what is not, and say what you changed."""  # noqa: E501

REVIEW = """\
Review a change of this project, as a careful colleague who will have to maintain it. Change no file.

What to review: {what}

Read the diff, then the code around each hunk and its callers as far as needed to be sure. Look for: wrong results,
cases that are not handled, races, leaks, security holes, broken contracts, missing or empty tests; then for code that
could be simpler. Leave out style that a formatter settles.

Report the findings, the worst first: `path:line`, what goes wrong and for which input, and what to do. Say how sure you
are where you are not. When nothing is wrong say so in one line, with what you checked."""  # noqa: E501

WORKING_TREE = (
    "the uncommitted changes of the working tree (`git status`, `git diff HEAD`, and the "
    "untracked files); when there "
    "are none, the last commit (`git show`)."
)


def prompted(context: CommandContext, name: str, argument: str, text: str) -> CommandResult:
    """Send a prompt that the scrollback shows as the command that was typed."""
    typed = Text(f"/{name} {argument}".rstrip())
    how: Literal["queued", "prompt"] = "queued" if context.session.busy else "prompt"
    if any(one.name == name for one in context.opened.known_skills()):
        return CommandResult(message=UserMessage((typed,), how))
    return CommandResult(message=UserMessage((typed, Text(text)), how, skill=name))


def _init(context: CommandContext, more: str) -> CommandResult:
    return prompted(context, "init", more, f"{INIT}\n\nThe user adds: {more}" if more else INIT)


def _review(context: CommandContext, what: str) -> CommandResult:
    return prompted(context, "review", what, REVIEW.format(what=what or WORKING_TREE))


PROMPT_COMMANDS = (
    Command("init", "[MORE]", "write AGENTS.md; the model does, for this project", _init),
    Command("review", "[WHAT]", "review the working tree; or a commit, a branch", _review),
)
