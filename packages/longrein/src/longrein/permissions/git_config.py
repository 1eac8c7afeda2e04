"""Git configuration of a repository: does it name programs that git would run?

A command of git obeys the configuration of the repository it stands in: `core.fsmonitor`,
`diff.external`, text conversions, filters, pagers, aliases and includes all run programs. The list
of such keys grows with git, so only keys that are known to be harmless pass.
"""

import re

_SECTION = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"(?:[^"\\\n]|\\["\\])*")?[ \t]*\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=.*|[#;].*)?")

_HARMLESS = """
core: repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol safecrlf
    quotepath untrackedcache preloadindex abbrev commentchar longpaths sharedrepository compression bigfilethreshold
    whitespace protectntfs protecthfs sparsecheckout sparsecheckoutcone commitgraph multipackindex
branch: remote merge rebase description pushremote vscode-merge-base github-pr-owner-number sort autosetupmerge
    autosetuprebase gh-merge-base
remote: url fetch pushurl push tagopt prune prunetags mirror gh-resolved skipdefaultupdate
user: name email signingkey useconfigonly
author: name email
pull: rebase ff
push: default autosetupremote followtags
fetch: prune prunetags parallel writecommitgraph
rebase: autostash autosquash updaterefs
merge: conflictstyle ff renames log
diff: renames algorithm colormoved mnemonicprefix noprefix wserrorhighlight context interhunkcontext indentheuristic
init: defaultbranch
commit: verbose gpgsign
tag: sort gpgsign
log: date decorate follow abbrevcommit
status: showuntrackedfiles branch short relativepaths
submodule: active url
extensions: worktreeconfig objectformat
gc: auto pruneexpire reflogexpire
index: version threads
feature: manyfiles
rerere: enabled autoupdate
help: autocorrect
lfs: repositoryformatversion access
column: ui branch status
blame: date coloring
"""  # noqa: E501


def _parse_table() -> frozenset[str]:
    rows = (row.partition(":") for row in _HARMLESS.replace("\n    ", " ").strip().split("\n"))
    return frozenset(f"{section}.{key}" for section, _, keys in rows for key in keys.split())


_HARMLESS_KEYS = _parse_table()
_HARMLESS_SECTIONS = frozenset(("color", "advice", "gui", "gitk"))


def find_risky_key(text: str) -> str:
    """Return the first key of a configuration file that may run something or is not known; '' for
    none.

    A line that is not read is returned as it is.
    """
    section = ""
    for line in text.removeprefix("\ufeff").split("\n"):
        rest = line.strip(" \t\r")
        if match := _SECTION.match(rest):
            section, rest = match[1].lower().partition(".")[0], rest[match.end() :].strip(" \t")
        if not rest or rest[0] in "#;":
            continue
        key = _KEY.fullmatch(rest)
        if key is None or not section or rest.endswith("\\") or "\0" in rest:
            return rest[:80]
        name = f"{section}.{key[1].lower()}"
        if name not in _HARMLESS_KEYS and section not in _HARMLESS_SECTIONS:
            return name
    return ""


HOOKS = (
    *(
        "applypatch-msg",
        "pre-applypatch",
        "post-applypatch",
        "pre-commit",
        "pre-merge-commit",
        "prepare-commit-msg",
    ),
    *(
        "commit-msg",
        "post-commit",
        "pre-rebase",
        "post-checkout",
        "post-merge",
        "pre-push",
        "post-rewrite",
    ),
    *("post-index-change", "reference-transaction", "pre-auto-gc"),
)
"""Files in `hooks` that git runs."""
READING_HOOKS = ("post-index-change",)
"""Hooks that also run when git only reads, because it refreshes its index."""
GITLINK = b"\0\0\xe0\0"
"""Mode of a submodule in the index. Git enters it and obeys its configuration."""
