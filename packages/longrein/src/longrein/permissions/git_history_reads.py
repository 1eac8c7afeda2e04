"""Git commands that print contents of files from the history, the index or a stash.

No sandbox masks a denied file there: `Read(.env)` hides the file, `git log -p` prints its old
versions. What is not known to print names and messages only counts as printing contents.
"""

import re
from collections.abc import Sequence

from longrein.permissions.bash_parser import Word, word_set

_SILENT = word_set(
    "branch tag remote config rev-parse ls-files ls-tree add commit push pull fetch merge rebase "
    "checkout switch "
    "restore reset worktree init clone describe merge-base for-each-ref show-ref name-rev "
    "check-ignore check-attr "
    "count-objects symbolic-ref version var gc fsck prune mv rm clean notes submodule cherry-pick "
    "revert shortlog status help"
)
"""Subcommands that print no contents without an option for it."""
_PATCH = r"-[a-zA-Z]*[puvW].*|--patch.*|--verbose|--dry-run|--interactive|-[a-zA-Z]*i"
"""Options with which some of them print changes (`status -v`, `add -p`)."""
_SAFE_VERBOSE = word_set(
    "branch tag remote push pull fetch worktree init clone ls-files ls-tree rev-parse describe "
    "show-ref rebase merge "
    "check-ignore clean mv rm gc fsck prune"
)
"""Subcommands whose `-v`, `-u`, `-p` and `-i` print no contents."""
_STASH_VERBS = word_set("push pop apply drop clear store list save show")
_NAMES_ONLY = (
    r"--(?:name-only|name-status|stat|shortstat|numstat|summary|no-patch|quiet|dirstat)(?:=.*)?|-s"
)
_LOG_OPTIONS = (  # compiled with the first command of git, as the others: 1.1 ms together
    r"--(?:oneline|graph|all|reverse|follow|merges|first-parent|format|pretty|since|until|after|before|author|committer|"
    r"grep|max-count|skip|decorate|date|branches|tags|remotes|abbrev|abbrev-commit|topo-order|date-order|diff-filter|"
    r"no-[a-z-]+|color|count|left-right|cherry|cherry-pick|left-only|right-only|boundary|not|find-renames|cached|staged|"
    r"exit-code|merge-base|invert-grep|all-match|source|reflog|walk-reflogs)(?:=.*)?|-\d+|-n\d*|-[SGMCiEFwbqz].*|--"
)


def text_prints_history(text: str) -> bool:
    """Return True if a command that cannot be read may print contents by git.

    It does not where each `git` in it is followed by a subcommand that prints none.
    """
    return not _SAFE_VERBOSE.issuperset(match[1] for match in re.finditer(_GIT_WORD, text))


_GIT_WORD = r"(?<![\w.@-])git(?![\w.:/@])(?:[ \t]+([a-z-]+)(?![\w-]))?"
"""The word `git`, not as a part of a name such as `.git`, and the subcommand behind it."""


def prints_history(verb: str, arguments: Sequence[Word]) -> bool:
    """Return True if `git VERB ARGUMENTS` may print the contents of files that git keeps."""
    if any(word.may_be_option and word.kind != "literal" for word in arguments):
        return True
    options = [word.text for word in arguments if word.text.startswith("-")]
    known = all(
        re.fullmatch(_LOG_OPTIONS, text) or re.fullmatch(_NAMES_ONLY, text) for text in options
    )
    names_only = known and any(re.fullmatch(_NAMES_ONLY, text) for text in options)
    if verb == "stash":
        first = arguments[0].text if arguments else "push"
        return first not in _STASH_VERBS or not known
    if verb in ("log", "reflog", "rev-list"):
        return not known
    if verb in ("diff", "diff-tree", "diff-index", "diff-files", "whatchanged"):
        return not names_only
    if verb == "show":  # `HEAD:.env` and the number of a blob print a file with any option
        named = [word.text for word in arguments if not word.text.startswith("-")]
        return not names_only or any(
            ":" in text or re.fullmatch(r"[0-9a-f]{4,}", text) for text in named
        )
    if verb == "cat-file":
        return (
            any(text not in ("-t", "-s", "-e", "--batch-check") for text in options) or not options
        )
    return verb not in _SILENT or any(
        re.fullmatch(_PATCH, text) for text in options if verb not in _SAFE_VERBOSE
    )
