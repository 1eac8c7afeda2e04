"""Files that programs run or obey later: who writes one acts outside the sandbox at a later time.

One table for all: file tools ask before they change a protected one, commands in the sandbox cannot
make or change it, and new ones of the others are reported after the command that made them.
"""

from typing import NamedTuple


class ObeyedFile(NamedTuple):
    """A file or folder, and what obeys it. A folder stands for all in it."""

    name: str
    """One name or two consecutive ones (`.github/workflows`), at any depth; `*x` for an ending."""
    by: str
    """Program that runs or obeys it."""


def _rows(by: str, names: str) -> tuple[ObeyedFile, ...]:
    return tuple(ObeyedFile(name, by) for name in names.split())


PROTECTED = (
    *_rows("git", ".git .githooks .gitconfig .gitmodules .gitattributes .config/git"),
    *_rows("git hooks", ".husky .lefthook lefthook.yml .lefthook.yml lefthook.yaml .lefthook.yaml"),
    *_rows("git hooks", ".pre-commit-config.yaml .pre-commit-config.yml"),
    *_rows("ssh and gpg", ".ssh .gnupg"),
    *_rows("development containers", ".devcontainer .devcontainer.json"),
    *_rows("VS Code and its kin", ".vscode *.code-workspace"),
    *_rows("other editors", ".idea .zed .fleet .exrc .nvimrc .nvim.lua .vimrc .dir-locals.el"),
    *_rows("longrein", ".longrein .config/longrein"),
    *_rows("Claude Code", ".claude .mcp.json"),
    *_rows("other coding agents", ".codex .cursor .gemini .opencode opencode.json opencode.jsonc"),
    *_rows("other coding agents", ".kimi .vibe .crush crush.json .windsurf .kiro .qwen .amazonq"),
    *_rows("other coding agents", ".agents/agents .agents/skills .agents/commands .agents/plugins"),
    *_rows("other coding agents", ".github/skills .pi/skills .goose/skills .continue .roo .cline"),
    *_rows("GitHub and its kin", ".github/workflows .github/actions .gitea/workflows"),
    *_rows("GitHub and its kin", ".forgejo/workflows"),
    *_rows("other CI services", ".gitlab-ci.yml .circleci .travis.yml .buildkite .cirrus.yml"),
    *_rows("other CI services", "azure-pipelines.yml bitbucket-pipelines.yml Jenkinsfile"),
    *_rows(
        "other CI services", ".drone.yml .woodpecker .woodpecker.yml appveyor.yml .appveyor.yml"
    ),
    *_rows("other CI services", ".teamcity .semaphore cloudbuild.yaml"),
    *_rows("direnv, mise and debuggers", ".envrc .mise.toml mise.toml .lldbinit .gdbinit"),
    *_rows("cargo", ".cargo/config.toml .cargo/config"),
    *_rows("package managers", ".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs"),
    *_rows("ripgrep", ".ripgreprc"),
    *_rows("Python", "sitecustomize.py"),
    *_rows("shells", ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile"),
    *_rows("shells", ".inputrc .zshrc .zprofile .zshenv .zlogin .zlogout .kshrc .cshrc .tcshrc"),
    *_rows("shells", ".login .logout .config/fish"),
)
"""Protected files. The sources are the manuals of the programs."""
REPORTED = (
    *_rows("coding agents", "AGENTS.md CLAUDE.md GEMINI.md QWEN.md .cursorrules .windsurfrules"),
    *_rows("coding agents", ".clinerules .github/copilot-instructions.md"),
    *_rows("git, in its folder", ".git"),
)
"""Files that a command may make in folders of the project; new ones are told to the model and the
user. A `.git` is one of them below the first folder.
"""
INSTALLED_PROGRAMS = frozenset(
    (folder, name)
    for folder, name in (
        ("node_modules", ".bin"),
        (".venv", "bin"),
        ("venv", "bin"),
        (".venv", "scripts"),
        ("venv", "scripts"),
    )
)
"""Folders, as pairs of consecutive names, into which package managers install programs."""
UNPROTECTED_SUBFOLDERS = {".claude": frozenset(("worktrees",))}
"""Unprotected folders inside protected ones."""
_SINGLE = [one.name for one in PROTECTED if "/" not in one.name]
PROTECTED_NAMES = frozenset(name.lower() for name in _SINGLE if not name.startswith("*"))
"""Protected files and folders, in lower case; a folder protects everything below it."""
PROTECTED_ENDINGS = tuple(name[1:] for name in _SINGLE if name.startswith("*"))
"""Endings of the names of protected files."""
NAMED_PAIRS = frozenset(
    (one.name.partition("/")[0], one.name.partition("/")[2]) for one in PROTECTED if "/" in one.name
)
"""Protected pairs of consecutive names."""
PROTECTED_PAIRS = INSTALLED_PROGRAMS | NAMED_PAIRS
"""Protected pairs of consecutive names, with the folders of installed programs."""


def obeyed_by(path: str) -> str:
    """Return what obeys a file that is only reported; '' for other files."""
    above, _, name = path.rpartition("/")
    pair = f"{above.rpartition('/')[2]}/{name}"
    return next((one.by for one in REPORTED if one.name in (name, pair)), "")
