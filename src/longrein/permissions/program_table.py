"""Effects of known programs: what a simple command reads and writes, by program, subcommand and
options.

Each program lists the options that it may be called with. Any other option makes the call unknown:
the list of options that write or run something is never complete. An option is known only when it
is spelled out (`--color`, not `--col`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec

from longrein.permissions.bash_parser import OPEN, SPECIAL_VARIABLES, STREAMS, Part, Word, word_set
from longrein.permissions.git_history import prints_history


class Effect(msgspec.Struct, frozen=True):
    """Effect of one part of a command line."""

    reads: tuple[Word, ...] = ()
    """Files and folders it reads, relative to the folders of the part."""
    writes: tuple[Word, ...] = ()
    """Files and folders it creates, changes or removes; an open word where a known writer's are
    not known.
    """
    problem: str = ""
    """Reason why the effect is not known; '' for none."""
    lock: str = ""
    """Lock that calls of the same kind share, so that they never overlap: `git`, or the name of
    a package manager.
    """
    folder: Word | None = None
    """Folder it works in instead (`git -C`, `make -C`)."""
    follows: bool = False
    """True if it follows symbolic links that it finds below its folders (`grep -R`)."""
    history: bool = False
    """True if git may print contents of files from the history, which no sandbox masks."""


class Program(msgspec.Struct, frozen=True):
    """Known options of one program or subcommand, and the meaning of its operands."""

    operands: str
    """`reads` or `writes` files, `copies` (the last is written), `text`, `pattern` (then files),
    `pathspec`.
    """
    most: int
    """Most operands."""
    flags: str
    """Letters of the options without a value; `#` allows `-5`."""
    valued: str
    """Letters of the options with a value."""
    long: frozenset[str]
    """Long options; those with a value end with `=`."""
    files: frozenset[str]
    """Options whose value is a file that is read."""


# --- Checks of programs with a language of their own ----------------------------------------------


_SED_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\[^\n])+/I?)"
_SED_COMMAND = re.compile(
    rf"\s*(?:{_SED_ADDRESS}(?:\s*,\s*(?:{_SED_ADDRESS}|[+~]\d+))?\s*!?\s*)?"
    r"(?:[pdq=]|s(?P<sign>[/|,#:@!])(?:(?!(?P=sign))[^\\\n]|\\[^\n])*(?P=sign)(?:(?!(?P=sign))[^\\\n]|\\[^\n])*(?P=sign)[gpiI\d]*)\s*"
)


def _is_plain_sed(script: str) -> bool:
    """True for a script of `p`, `d`, `q`, `=` and `s` with addresses; `e`, `w` and `r` run,
    write and read files.
    """
    at = 0
    while at < len(script):
        match = _SED_COMMAND.match(script, at)
        if match is None or (match.end() < len(script) and script[match.end()] not in ";\n"):
            return False
        at = match.end() + 1
    return bool(script.strip())


def _sed(arguments: Sequence[Word]) -> Effect | None:
    scripts, files, in_place, at = [], [], False, 0
    while at < len(arguments):
        word = arguments[at]
        text = word.text
        if word.kind != "literal" and word.may_be_option:
            return Effect(problem="an argument of sed is not known")
        if text in ("-e", "--expression") and at + 1 < len(arguments):
            scripts.append(arguments[at + 1])
            at += 1
        elif (
            re.fullmatch(r"-[nEru]*i[\w.~]*|--in-place(=[\w.~]+)?", text) and word.kind == "literal"
        ):
            in_place = True
            if not re.fullmatch(r"-[nEru]*i(\.?[\w~]+)?|--in-place(=[\w.~]+)?", text):
                return Effect(writes=(OPEN,), problem="an unknown option of sed")
        elif text.startswith("-") and text != "-":
            if not re.fullmatch(
                r"-[nEru]+|--quiet|--silent|--regexp-extended|--sandbox|--posix", text
            ):
                return Effect(writes=(OPEN,), problem=f"the option {text} of sed")
        elif not scripts:
            scripts.append(word)
        else:
            files.append(word)
        at += 1
    if not all(script.kind == "literal" and _is_plain_sed(script.text) for script in scripts):
        changed = (OPEN,) if in_place else ()
        return Effect(writes=changed, problem="the script of sed may run or write something")
    return Effect(reads=() if in_place else tuple(files), writes=tuple(files) if in_place else ())


def _awk(arguments: Sequence[Word]) -> Effect | None:
    rest = list(arguments)
    while rest and rest[0].kind == "literal" and rest[0].text.startswith("-"):
        match = re.fullmatch(r"-([Fv])(.*)", rest[0].text, re.DOTALL)
        if match is None:
            return Effect(problem=f"the option {rest[0].text} of awk")
        rest = rest[1:] if match[2] else rest[2:]
    if not rest or rest[0].kind != "literal":
        return Effect(problem="the script of awk is not known")
    script = re.sub(r">=(?=\s*[\w$(])", " ", rest[0].text.replace("||", " "))
    if re.search(
        r"[|>@`]|system|getline|close|fflush|include|load|SYMTAB|FUNCTAB|\(\s*\w+\s*\)\s*\(", script
    ):
        return Effect(problem="the script of awk may run or write something")
    return Effect(
        reads=tuple(word for word in rest[1:] if not re.match(r"[A-Za-z_]\w*=", word.text))
    )


_FIND_VALUED = word_set(
    "-name -iname -path -ipath -wholename -regex -iregex -regextype -type -xtype -maxdepth "
    "-mindepth -size -mtime "
    "-mmin -ctime -cmin -atime -amin -perm -user -group -uid -gid -links -inum -printf -fstype "
    "-used -lname "
    "-ilname"
)
_FIND_FLAGS = word_set(
    "-not ! -o -or -a -and ( ) , -print -print0 -empty -prune -L -H -P -ls -quit -true -false "
    "-depth -xdev -mount "
    "-follow -readable -writable -executable -nouser -nogroup -daystart -noleaf "
    "-ignore_readdir_race -warn "
    "-nowarn"
)


def _find(arguments: Sequence[Word]) -> Effect | None:
    reads, at = [], 0
    while at < len(arguments):
        word = arguments[at]
        text = word.text if word.kind == "literal" else ""
        if text in _FIND_VALUED:
            at += 1
        elif text in ("-exec", "-execdir", "-ok", "-okdir"):  # its command is a part of its own
            at = next(
                (i for i in range(at, len(arguments)) if arguments[i].text in (";", "+")),
                len(arguments),
            )
        elif text in ("-newer", "-anewer", "-cnewer", "-samefile") and at + 1 < len(arguments):
            at += 1
            reads.append(arguments[at])
        elif text.startswith("-") or text in ("(", ")", "!", ","):
            if text not in _FIND_FLAGS:
                return Effect(writes=(OPEN,), problem=f"the option {text} of find")
        elif word.may_be_option:
            return Effect(problem="an argument of find is not known")
        else:
            reads.append(word)
        at += 1
    return Effect(reads=tuple(reads) or (Word("."),))


def _date(arguments: Sequence[Word]) -> Effect | None:
    after_value = False
    for word in arguments:
        if not after_value and not word.text.startswith(("-", "+")):
            return Effect(problem="date may set the clock")
        after_value = word.text in ("-d", "-r", "--date")
    return None


def _shell_options(arguments: Sequence[Word]) -> Effect | None:
    """`set -euo pipefail`."""
    known = r"[-+][eux]*o?|pipefail|errexit|nounset|xtrace"
    plain = all(word.kind == "literal" and re.fullmatch(known, word.text) for word in arguments)
    return Effect() if plain else Effect(problem="set with other arguments")


def _read(arguments: Sequence[Word]) -> Effect | None:
    special = [
        w.text
        for w in arguments
        if w.kind != "literal" or "[" in w.text or SPECIAL_VARIABLES.fullmatch(w.text)
    ]
    return Effect(problem="read may set a special variable or run a subscript") if special else None


def _printf(arguments: Sequence[Word]) -> Effect | None:
    """`printf -v NAME` sets a variable, and runs a command in the subscript of the name."""
    if not arguments or (arguments[0].text != "-v" and not arguments[0].may_be_option):
        return None
    name = arguments[1] if len(arguments) > 1 else OPEN
    plain = (
        arguments[0] == Word("-v")
        and name.kind == "literal"
        and re.fullmatch(r"[A-Za-z_]\w*", name.text)
    )
    known = plain and not SPECIAL_VARIABLES.fullmatch(name.text)
    return (
        None if known or arguments[0] == Word("--") else Effect(problem="printf may set a variable")
    )


def _test(arguments: Sequence[Word]) -> Effect | None:
    """`test -v NAME` runs a command in the subscript of the name."""
    plain = all(word.kind == "literal" and "[" not in word.text for word in arguments)
    return Effect() if plain else Effect(problem="test may evaluate an unknown value")


def _one_of(*verbs: str, bare: bool = False) -> Callable[[Sequence[Word]], Effect | None]:
    """Return a check that the first argument is one of `verbs`; none is known where `bare`."""

    def check(arguments: Sequence[Word]) -> Effect | None:
        if not arguments:
            return None if bare else Effect(problem="git changes the repository", lock="git")
        known = arguments[0].text in verbs or (bare and arguments[0].text.startswith("-"))
        return (
            None
            if known
            else Effect(problem=f"git … {arguments[0].text} may change the repository", lock="git")
        )

    return check


def _git_listing(arguments: Sequence[Word]) -> Effect | None:
    """`git branch` and `git tag` with a name and no option that makes it a filter create
    something.
    """
    names = (
        "--list",
        "-l",
        "--contains",
        "--no-contains",
        "--merged",
        "--no-merged",
        "--points-at",
    )
    lists = any(word.text.partition("=")[0] in names for word in arguments)
    named = any(not word.text.startswith("-") for word in arguments)
    return (
        Effect(problem="git with a name may change the repository", lock="git")
        if named and not lists
        else None
    )


def _git_config(arguments: Sequence[Word]) -> Effect | None:
    asks = any(
        word.text in ("--get", "--get-all", "--get-regexp", "--list", "-l") for word in arguments
    )
    if asks or (arguments and arguments[0].text in ("get", "list")):
        return None
    return Effect(problem="git config may change the configuration", lock="git")


def _tar(arguments: Sequence[Word]) -> Effect | None:
    """Only listing: `tar -tf FILE`."""
    if (
        len(arguments) == 2
        and re.fullmatch(r"-?t[vzjJ]*f", arguments[0].text)
        and arguments[0].kind == "literal"
    ):
        return Effect(reads=(arguments[1],))
    return Effect(writes=(OPEN,), problem="tar other than `tar -tf FILE`")


# --- Table: names | operands, at most how many | options ------------------------------------------
#
# `-abc` are options without a value, `-de=` options with one, `-#` numbers such as `-5`, `-f<` and
# `--file<` options whose value is a file.


_READERS = """
cat | reads | -AbeEnstTuv --number --number-nonblank --show-all --show-ends --show-nonprinting --show-tabs
    --squeeze-blank
tac | reads | -br -s= --before --regex --separator=
head | reads | -qvz# -cn= --bytes= --lines= --quiet --silent --verbose --zero-terminated
tail | reads | -fFqrvz# -cns= --bytes= --follow --follow= --lines= --pid= --quiet --retry --silent --verbose
nl | reads | -p -bdfhilnsvw= --body-numbering= --number-format= --number-width= --starting-line-number=
wc | reads | -clmLw --bytes --chars --lines --max-line-length --total= --words
od | reads | -abcdfiloshxv -ANSjtw= --address-radix= --format= --output-duplicates --read-bytes= --skip-bytes=
    --width=
hexdump | reads | -bcCdovx -ens=
xxd | reads<=1 | -abEeiu -cgolsn=
strings | reads | -afo -nte=
file | reads | -bhiILkLNprsz --brief --dereference --mime --mime-encoding --mime-type
stat | reads | -Lftx -c= --dereference --file-system --format= --printf= --terse
ls | reads | -1aAbBcCdfFgGhHiIklLmnNopqQrRsStTuUvwxXZ@% --all --almost-all --author --classify --color --color=
    --dereference --directory --escape --file-type --full-time --group-directories-first --hide-control-chars
    --hide= --human-readable --ignore-backups --ignore= --inode --kibibytes --literal --no-group
    --numeric-uid-gid --quote-name --recursive --reverse --si --size --sort= --time-style= --time= --width=
    --zero
tree | reads | -adfhinprstuvxACDFNQSX -LPI= --dirsfirst --du --filelimit= --gitignore --noreport --prune --si
du | reads | -abcchHklLmPsSxX0 -dt= --all --apparent-size --bytes --exclude= --human-readable --max-depth=
    --summarize --threshold= --total
df | reads | -ahHiklPT -tx= --all --human-readable --inodes --local --portability --print-type --total --type=
basename | text | -az -s= --multiple --suffix= --zero
dirname | text | -z --zero
realpath | reads | -eLmPqsz --canonicalize-existing --canonicalize-missing --logical --no-symlinks --physical
    --quiet --relative-base= --relative-to= --strip
readlink | reads | -efmnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline
diff | reads | -abBcdeEilnNpqrstTuwWyZ# -CUFIxW= --brief --color --color= --context= --exclude= --ignore-all-space
    --ignore-blank-lines --ignore-case --ignore-space-change --minimal --new-file --recursive
    --report-identical-files --side-by-side --stat --strip-trailing-cr --text --unified --unified= --width=
cmp | reads | -bls -in=
comm | reads | -123z --check-order --nocheck-order --output-delimiter= --total
md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum shasum | reads | -bctwz --binary --check
    --quiet --status --strict --tag --text --warn --zero
md5 | reads | -qr -s=
grep egrep fgrep | pattern | -EFGPivwxbnHhoqsaIrRLlcTZzUy# -emABCdD= --file< -f< --after-context= --basic-regexp
    --before-context= --binary-files= --byte-offset --color --color= --colour --colour= --context= --count
    --dereference-recursive --exclude-dir= --exclude= --extended-regexp --file= --files-with-matches
    --files-without-match --fixed-strings --ignore-case --include= --initial-tab --invert-match --label=
    --line-buffered --line-number --line-regexp --max-count= --no-filename --no-ignore-case --no-messages --null
    --null-data --only-matching --perl-regexp --quiet --recursive --regexp= --silent --text --with-filename
    --word-regexp
rg | pattern | -abcFHhIilNnoPpqSsUuvwx0 -ABCeEgjmMrtT= --file< -f< --after-context= --before-context=
    --case-sensitive --color= --colors= --column --context= --count --count-matches --crlf --files
    --files-with-matches --files-without-match --fixed-strings --glob= --heading --hidden --iglob=
    --ignore-case --invert-match --json --line-number --line-regexp --max-columns-preview --max-columns=
    --max-count= --max-depth= --max-filesize= --multiline --multiline-dotall --no-column --no-config
    --no-filename --no-heading --no-hidden --no-ignore --no-ignore-vcs --no-line-number --no-messages --null
    --only-matching --passthru --pcre2 --pretty --quiet --regexp= --replace= --smart-case --sort= --sortr=
    --stats --text --threads= --trim --type-list --type-not= --type= --unrestricted --version --vimgrep
    --with-filename --word-regexp
cut | reads | -nsz -bcdf= --bytes= --characters= --complement --delimiter= --fields= --only-delimited
    --output-delimiter=
tr | text | -cCdst --complement --delete --squeeze-repeats --truncate-set1
sort | reads | -bcCdfghiMnRrsuVz -kt= --check --dictionary-order --field-separator= --general-numeric-sort
    --human-numeric-sort --ignore-case --ignore-leading-blanks --ignore-nonprinting --key= --merge --month-sort
    --numeric-sort --reverse --sort= --stable --unique --version-sort --zero-terminated
uniq | reads<=1 | -cdDiuz -fsw= --all-repeated --check-chars= --count --ignore-case --repeated --skip-chars=
    --skip-fields= --unique
paste | reads | -sz -d= --delimiters= --serial --zero-terminated
join | reads | -i -aetvo12j= --check-order --header --ignore-case --nocheck-order
column | reads | -tnx -sco= --output-separator= --separator= --table --table-columns=
fold | reads | -bs -w= --bytes --spaces --width=
fmt | reads | -cstu -wp= --width=
rev tsort | reads |
expand | reads | -i -t=
unexpand | reads | -a -t=
base64 base32 | reads | -di -w= --decode --ignore-garbage --wrap=
jq | pattern | -nrRcCMaSsej --arg= --argjson= --ascii-output --color-output --compact-output --exit-status
    --indent= --join-output --monochrome-output --null-input --raw-input --raw-output --slurp --sort-keys
    --stream --tab
echo | text | -neE
printf true false : sleep test yes whoami arch lscpu lsblk printenv exit return break continue shift wait times
    | text |
seq | text | -w -sf=
nproc | text | --all
pwd | reads | -LP
id | text | -agGnruz
uname | reads | -asnrvmpio --all
hostname | text<=0 | -fisdI
uptime | reads | -ps
free | reads | -bkmghtw
date | text | -uR -dr= --date= --iso-8601 --iso-8601= --rfc-3339= --rfc-email --utc
which | text | -as
type | text | -afptP
hash | text<=0 | -rt
ps | text | -AaefFjlHLMTrwxu -oCGpqtU= --forest --no-headers --pid= --ppid= --sort=
pgrep | text | -aflnovxic -GPuUt=
locale | text | -a
tty | reads | -s
env | text<=0 |
cd | reads | -LPe
jobs | text | -lprs
read | text | -rs -adinNptu=
mkdir | writes | -pv -m= --mode= --parents --verbose
touch | writes | -acm -dt= --reference< -r< --date= --no-create
rm | writes | -dfirRvI --dir --force --recursive --verbose
rmdir | writes | -pv --ignore-fail-on-non-empty --parents --verbose
cp | copies | -afinprRuvLPHdx --archive --dereference --force --no-clobber --no-dereference
    --preserve --recursive --update --verbose
mv | moves | -finuvT --force --no-clobber --no-target-directory --update --verbose
tee | writes | -ai --append --ignore-interrupts
truncate | writes | -c -s= --no-create --size=
"""  # noqa: E501
_GIT_READERS = """
status | pathspec | -sbvuz --ahead-behind --branch --column --ignore-submodules --ignored --ignored= --long
    --no-renames --porcelain --porcelain= --short --show-stash --untracked-files --untracked-files= --verbose
log show diff whatchanged rev-list diff-tree diff-index diff-files range-diff | pathspec | -pqsuzbwRMCatcmn#
    -nGSUL= --abbrev-commit --abbrev= --after= --all --all-match --ancestry-path --author= --before= --binary
    --boundary --branches --cached --cc --check --cherry --cherry-mark --cherry-pick --color --color=
    --combined-all-paths --committer= --compact-summary --count --date-order --date= --decorate --decorate=
    --diff-algorithm= --diff-filter= --dirstat --do-walk --dst-prefix= --exclude= --exit-code --find-copies
    --find-renames --first-parent --follow --format= --full-index --function-context --glob= --graph --grep=
    --histogram --ignore-all-space --ignore-blank-lines --ignore-space-at-eol --ignore-space-change
    --ignore-submodules --inter-hunk-context= --invert-grep --left-only --left-right --max-count= --merge-base
    --merges --minimal --name-only --name-status --no-abbrev-commit --no-color --no-decorate --no-ext-diff
    --no-merges --no-patch --no-prefix --no-renames --no-textconv --no-walk --not --numstat --oneline --patch
    --patience --pretty --pretty= --quiet --raw --reflog --relative --relative-date --remotes --reverse
    --right-only --shortstat --simplify-by-decoration --since= --skip= --source --src-prefix=
    --staged --stat --stat= --submodule --submodule= --summary --tags --topo-order --unified= --until=
    --walk-reflogs --word-diff --word-diff=
shortlog | pathspec | -nsec --all --email --no-merges --numbered --since= --summary --until=
rev-parse | pathspec | -q --abbrev-ref --abbrev-ref= --absolute-git-dir --all --branches --git-common-dir
    --git-dir --is-bare-repository --is-inside-work-tree --quiet --short --short= --show-cdup --show-current
    --show-prefix --show-toplevel --symbolic-full-name --tags --verify
ls-files | pathspec | -cdmoikstuvz -x= --cached --deduplicate --deleted --error-unmatch --exclude-standard
    --exclude= --full-name --ignored --killed --modified --others --recurse-submodules --stage --unmerged
ls-tree | pathspec | -drtlz --abbrev --format= --full-name --full-tree --long --name-only --name-status
    --object-only
blame | pathspec | -bceflnpstwMC -LS= --date= --line-porcelain --porcelain --root --show-email --show-name
    --show-number --since=
grep | pathspec | -aEFGIiLlHhnoPpqvwWcz# -eABCfm= -f< --all-match --and --break --cached --color --color= --column
    --context= --count --extended-regexp --files-with-matches --files-without-match --fixed-strings --heading
    --ignore-case --invert-match --line-number --max-depth= --name-only --no-color --not
    --only-matching --or --perl-regexp --quiet --recursive --word-regexp
branch | text | -arvlq --abbrev= --all --color --color= --column --contains --format= --ignore-case --list
    --merged --no-color --no-column --no-contains --no-merged --points-at= --remotes --show-current --sort=
    --verbose
tag | text | -ln --color --column --contains --format= --list --merged --no-contains --no-merged --points-at=
    --sort=
remote | text<=0 | -v --verbose
stash | text | --format= --include-untracked --name-only --oneline --patch --stat -p
worktree | text | -vz --porcelain --verbose
reflog | text | -# -n= --all --date= --format= --max-count= --oneline
config | text | -lz --default= --get --get-all --get-regexp --global --list --local --name-only --null
    --show-origin --show-scope --system --type=
describe | text | --abbrev= --all --always --candidates= --contains --dirty --exact-match --exclude=
    --first-parent --long --match= --tags
cat-file | text | -tspe --batch --batch-check --buffer
merge-base | text | -a --all --fork-point --independent --is-ancestor --octopus
name-rev | text | --always --name-only --refs= --tags
for-each-ref | text | --contains --count= --format= --merged --no-contains --no-merged --points-at= --sort=
show-ref | text | -dqs --abbrev --dereference --hash --head --heads --quiet --tags --verify
check-ignore | pathspec | -qvzn --no-index --non-matching --quiet --verbose
check-attr | pathspec | -az --all --cached
count-objects | text | -vH --human-readable --verbose
symbolic-ref | text<=1 | -q --quiet --short
version | text | --build-options
var | text | -l
"""  # noqa: E501

_GIT_WRITERS = """
add | text | -AufnpvN --all --update --force --dry-run --patch --verbose --intent-to-add --no-all --renormalize
commit | text | -aqsvnpz -mFCc= --all --message= --file= --amend --no-edit --edit --signoff --no-verify
    --verbose --quiet --allow-empty --allow-empty-message --author= --date= --fixup= --squash= --reuse-message=
    --dry-run --no-gpg-sign --trailer= --include --only
push | text | -ufnqvd --set-upstream --force --force-with-lease --force-with-lease= --force-if-includes --tags
    --all --delete --dry-run --follow-tags --no-verify --quiet --verbose --atomic --prune --porcelain --progress
pull | text | -qvrf --rebase --rebase= --no-rebase --ff-only --no-ff --ff --autostash --tags --quiet --verbose
    --prune --no-edit --all --depth=
fetch | text | -aptfqvn --all --prune --tags --force --depth= --deepen= --unshallow --quiet --verbose --no-tags
    --dry-run --prune-tags --progress
checkout | text | -fqbBdt --force --quiet --detach --track --no-track --ours --theirs --orphan= --merge
switch | text | -fqcCdt --create= --force-create= --detach --force --quiet --track --no-track --discard-changes
merge | text | -mnqv= --no-ff --ff-only --ff --squash --abort --continue --quit --no-edit --no-commit --commit
    --message= --quiet --verbose --stat --no-stat --allow-unrelated-histories --strategy-option=
rebase | text | -qv --onto= --abort --continue --skip --quit --autostash --no-autostash --quiet --verbose
    --rebase-merges --root --keep-base --autosquash --no-autosquash
reset | text | -qN --soft --mixed --hard --merge --keep --quiet
restore | text | -SWqp -s= --staged --worktree --source= --quiet --ours --theirs --patch
cherry-pick revert | text | -nxse -m= --no-commit --abort --continue --skip --quit --no-edit --mainline=
    --signoff
rm mv | text | -rfnqkv --cached --force --dry-run --quiet --ignore-unmatch
clean | text | -dfnxXq -e= --force --dry-run --exclude= --quiet
branch | text | -adrvlqDmMcCfu --all --delete --move --copy --force --list --remotes --verbose --show-current
    --set-upstream-to= --unset-upstream --merged --no-merged --contains --no-contains --sort= --format= --track
    --no-track
tag | text | -adflns -mF= --annotate --delete --force --list --message= --sort= --format=
stash | text | -uakqp -m= --include-untracked --all --keep-index --quiet --message= --patch --index --stat
worktree | text | -fbBdv --force --detach --porcelain --verbose --checkout --no-checkout --expire=
remote | text | -vnft --verbose --prune --tags --no-tags --push --all
init | text | -qb= --quiet --bare --initial-branch=
submodule | text | --quiet --init --recursive --remote --checkout --depth=
notes reflog gc fsck prune repack | text | -q --auto --quiet --all --full --unreachable --dangling --no-dangling
    --prune=
"""  # noqa: E501


@cache
def _tables() -> tuple[Mapping[str, Program], Mapping[str, Program], Mapping[str, Program]]:
    """Return the known programs, the subcommands of git that read, and those that write."""
    return _parse_table(_READERS), _parse_table(_GIT_READERS), _parse_table(_GIT_WRITERS)


def _parse_table(text: str) -> dict[str, Program]:
    found: dict[str, Program] = {}
    for row in text.replace("\n    ", " ").strip().split("\n"):
        programs, meaning, options = (cell.strip() for cell in row.split("|"))
        operands, _, most = meaning.partition("<=")
        words = options.split()
        short = [word for word in words if not word.startswith("--") and not word.endswith("<")]
        program = Program(
            operands,
            int(most or 1_000_000),
            "".join(word[1:] for word in short if not word.endswith("=")),
            "".join(word[1:-1] for word in short if word.endswith("=")),
            frozenset(word for word in words if word.startswith("--") and not word.endswith("<")),
            frozenset(word[:-1] for word in words if word.endswith("<")),
        )
        found.update(dict.fromkeys(programs.split(), program))
    return found


_GIT_GLOBAL = frozenset(
    (
        "--no-pager",
        "-P",
        "--no-optional-locks",
        "--literal-pathspecs",
        "--no-replace-objects",
        "--version",
        "-v",
    )
)
VERSIONED = frozenset(
    [
        "python",
        "python3",
        "node",
        "npm",
        "npx",
        "pnpm",
        "yarn",
        "bun",
        "deno",
        "go",
        "cargo",
        "rustc",
        "rustup",
        "gcc",
        "g++",
        "clang",
        "cc",
        "make",
        "cmake",
        "java",
        "javac",
        "mvn",
        "gradle",
        "ruby",
        "gem",
        "bundle",
        "php",
        "composer",
        "perl",
        "docker",
        "podman",
        "kubectl",
        "terraform",
        "aws",
        "gh",
        "brew",
        "apt",
        "uv",
        "pip",
        "pip3",
        "poetry",
        "ruff",
        "mypy",
        "pytest",
        "tsc",
        "eslint",
        "swift",
        "dotnet",
        "bash",
        "zsh",
        "rg",
        "fd",
        "jq",
        "curl",
        "wget",
        "ssh",
        "tmux",
        "sqlite3",
        "psql",
        "redis-cli",
    ]
)
"""Programs that may be asked for their version."""
INSTALLERS = {
    "npm": word_set("install ci add i update uninstall remove rm link dedupe prune audit"),
    "pnpm": word_set("install add i update remove rm up link prune"),
    "yarn": word_set("install add remove upgrade up link"),
    "bun": word_set("install add remove update link i"),
    **dict.fromkeys(("pip", "pip3"), word_set("install uninstall download")),
    "uv": word_set("sync add remove lock pip venv tool"),
    "poetry": word_set("install add remove update lock"),
    "cargo": word_set("add remove update install"),
    "go": word_set("get mod install work"),
    **dict.fromkeys(
        ("bundle", "gem", "composer", "brew"),
        word_set("install uninstall update upgrade add remove require"),
    ),
    **dict.fromkeys(
        (
            "apt",
            "apt-get",
            "dnf",
            "yum",
            "pacman",
            "conda",
            "mamba",
            "rustup",
            "pipx",
            "dpkg",
            "apk",
        ),
        (),
    ),
}
"""Package managers and the subcommands that take their lock; () for all of them."""
CHANGERS = word_set(
    "ln chmod chown chgrp dd install shred unlink patch rsync scp wget zip unzip gzip gunzip "
    "bzip2 bunzip2 xz unxz "
    "zstd unzstd 7z sponge mkfifo mknod kill pkill killall venv virtualenv rename"
)
"""Programs that change files or end processes, which the table does not know: nothing runs
beside them.
"""
_OUTPUT_OPTIONS = {"perl": r"-[a-zA-Z0]*i", "curl": r"-[a-zA-Z]*[oO]|--output|--remote-name"}
"""Option that makes another program write a file, as a regular expression."""


_SAFE_WITH_ANY_OPTION = word_set(
    "cat tac head tail wc ls stat nl od grep egrep fgrep cut du basename dirname md5sum sha256sum"
)
"""Programs with no option that writes or runs something, so that a file named like an option
does no harm.
"""
_CHECKS: Mapping[str, Callable[[Sequence[Word]], Effect | None]] = {
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("awk", "gawk", "mawk"), _awk),
    **dict.fromkeys(("find", "gfind"), _find),
    "[": _test,
    "expr": lambda _: Effect(),
    "printf": _printf,
    "tar": _tar,
    "date": _date,
    "set": _shell_options,
    "read": _read,
    "test": _test,
    "git stash": _one_of("list", "show"),
    "git worktree": _one_of("list"),
    "git reflog": _one_of("show", bare=True),
    "git branch": _git_listing,
    "git tag": _git_listing,
    "git config": _git_config,
}
"""A closer look at the arguments of some programs; None continues with the table."""


# --- Effect of a part -----------------------------------------------------------------------------


def effect_of(part: Part) -> Effect:
    """Return the effect of one part; a problem where it is not known."""
    if not part.words:
        return Effect(part.reads, part.writes, part.problem or _variable_problem(part))
    name, arguments = part.program, part.words[1:]
    if "/" in name and not name.startswith(
        ("/usr/bin/", "/bin/", "/usr/local/bin/", "/opt/homebrew/bin/")
    ):
        return Effect(problem=f"{name} is not a program of the system")
    name = name.rpartition("/")[2]
    effect = _known_effect(name, arguments)
    another = "it runs as another user" if {"sudo", "doas", "su"} & set(part.wrappers) else ""
    problem = another or part.problem or effect.problem or _variable_problem(part)
    reads, writes = (
        tuple(w for w in words if w not in STREAMS) for words in (effect.reads, effect.writes)
    )
    return msgspec.structs.replace(
        effect, reads=reads, writes=writes, problem=problem, follows=_follows_links(name, arguments)
    )


def _follows_links(name: str, arguments: Sequence[Word]) -> bool:
    """True for programs that read through the symbolic links below a folder."""
    texts = [word.text for word in arguments]
    if name in ("grep", "egrep", "fgrep"):
        return any(re.match(r"--dereference-r|-[A-Za-z]*R", text) for text in texts)
    return name == "diff" and _is_recursive(arguments)


def _variable_problem(part: Part) -> str:
    reads = part.program == "read"  # `IFS= read x` sets it for `read` only
    return next(
        (
            f"it sets {name}"
            for name in part.assigned
            if not is_harmless_variable(name) and not (reads and name == "IFS")
        ),
        "",
    )


def _may_gain_options(name: str, arguments: Sequence[Word]) -> bool:
    """Return True if an argument may turn into several, among them an option that does harm."""
    program = _tables()[0].get(name)
    harmless = name in _SAFE_WITH_ANY_OPTION or (program is not None and program.operands == "text")
    return not harmless and any(word.may_split for word in arguments)


def _known_effect(name: str, arguments: Sequence[Word]) -> Effect:
    effect = _single_effect(name, arguments)
    if effect.problem or not _may_gain_options(name, arguments):
        return effect
    return msgspec.structs.replace(effect, problem=f"an argument of {name} may be several")


def _single_effect(name: str, arguments: Sequence[Word]) -> Effect:
    if name == "git":
        return _git(arguments)
    if (
        len(arguments) == 1
        and name in VERSIONED
        and arguments[0] in (Word("--version"), Word("-V"), Word("version"))
    ):
        return Effect()
    if name.startswith("python") and len(arguments) > 2 and arguments[0] == Word("-m"):
        module = arguments[1].text
        name, arguments = (
            (module, arguments[2:])
            if module in ("pip", "venv", "virtualenv")
            else (name, arguments)
        )
    if name in INSTALLERS:
        first = next((word.text for word in arguments if not word.text.startswith("-")), "")
        lock = (
            name
            if not INSTALLERS[name] or first in INSTALLERS[name] or (name, first) == ("yarn", "")
            else ""
        )
        return Effect(problem=f"{name} is not known to only read", lock=lock)
    return _apply(name, _tables()[0].get(name), arguments)


def is_in_table(part: Part) -> bool:
    """True if the table knows the program of a part, so that a rule with `*` covers known
    options only.
    """
    name = part.program.rpartition("/")[2]
    return name == "git" or name in _tables()[0] or name in _CHECKS


def has_known_options(part: Part) -> bool:
    """True if a part of a known program has only known options, whether it reads or writes."""
    name = part.program.rpartition("/")[2]
    if name != "git":
        return not effect_of(part).problem
    verb, arguments, _, problem = _git_verb(part.words[1:])
    if any(word.may_split for word in part.words):
        return False
    readers, writers = _tables()[1:]
    programs = [table[verb] for table in (readers, writers) if verb in table]
    return not problem and any(
        isinstance(_scan(verb, program, arguments), tuple) for program in programs
    )


def _git_verb(arguments: Sequence[Word]) -> tuple[str, Sequence[Word], Word | None, str]:
    """Return (subcommand, its arguments, folder of `-C`, problem)."""
    at, folder = 0, None
    while at < len(arguments) and arguments[at].text.startswith("-"):
        text = arguments[at].text
        if text == "-C" and at + 1 < len(arguments):
            folder, at = arguments[at + 1], at + 2
        elif text in _GIT_GLOBAL and arguments[at].kind == "literal":
            at += 1
        else:
            return "", (), None, f"the option {text} of git"
    if at == len(arguments):
        return "version", (), folder, ""
    verb = arguments[at].text if arguments[at].kind == "literal" else ""
    return verb, arguments[at + 1 :], folder, "" if verb else "the subcommand of git is not known"


def _git(arguments: Sequence[Word]) -> Effect:
    verb, rest, folder, problem = _git_verb(arguments)
    if problem:
        return Effect(problem=problem, lock="git", history=True)
    program = _tables()[1].get(verb)
    effect = _apply(f"git {verb}", program, rest)
    lock = "git" if program is None and verb in _tables()[2] else effect.lock
    return msgspec.structs.replace(
        effect, folder=folder, lock=lock, history=prints_history(verb, rest)
    )


def _apply(name: str, program: Program | None, arguments: Sequence[Word]) -> Effect:
    """Check the options of a call; return the effect of its operands."""
    if name in _CHECKS and (found := _CHECKS[name](arguments)) is not None:
        return found
    if program is None:
        option = _OUTPUT_OPTIONS.get(name)
        changes = name in CHANGERS or (
            option and any(re.match(option, word.text) for word in arguments)
        )
        changed = (OPEN,) if changes else ()
        return Effect(writes=changed, problem=f"{name or 'the program'} is not known to only read")
    scanned = _scan(name, program, arguments)
    return (
        Effect(writes=(OPEN,), problem=scanned)
        if isinstance(scanned, str)
        else _operand_effect(name, program, *scanned, _is_recursive(arguments))
    )


def _is_recursive(arguments: Sequence[Word]) -> bool:
    return any(
        re.fullmatch(r"-[A-Za-z]*[rR][A-Za-z]*|--(dereference-)?recursive", word.text)
        for word in arguments
    )


def _scan(
    name: str, program: Program, arguments: Sequence[Word]
) -> tuple[list[Word], list[Word], bool] | str:
    """Return (operands, files of options, True if a pattern stands in an option), or the problem
    of the call.
    """
    operands: list[Word] = []
    reads: list[Word] = []
    pattern_given = False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == Word("--"):
            operands += rest
            break
        if (
            not word.may_be_option
            or word == Word("-")
            or (word.kind == "glob" and word.text[0] != "-" and name in _SAFE_WITH_ANY_OPTION)
        ):
            operands.append(word)
            continue
        option, value, valued = (
            _option(word.text, program) if word.kind == "literal" else ("", None, False)
        )
        if (
            not option
            and program.operands == "text"
            and (word.kind != "literal" or name in ("echo", "printf"))
        ):
            operands.append(word)
        elif not option or (valued and value is None and not rest):
            return (
                f"the option {word.text} of {name}"
                if word.kind == "literal"
                else f"an argument of {name} is not known"
            )
        value = rest.pop(0) if valued and value is None else value
        if value is not None and (
            value.may_split or value.kind == "glob"
        ):  # its other words are operands
            if name not in _SAFE_WITH_ANY_OPTION:
                return f"an argument of {name} may be several"
            reads.append(value)
        pattern_given = pattern_given or option in ("-e", "-f", "--regexp", "--file")
        if option in program.files and value is not None:
            reads.append(value)
    return (
        f"{name} with so many arguments"
        if len(operands) > program.most
        else (operands, reads, pattern_given)
    )


def _option(text: str, program: Program) -> tuple[str, Word | None, bool]:
    """Return (option, value in the same word, True if it takes a value); an empty option where
    it is not known.
    """
    if text.startswith("--"):
        name, sign, value = text.partition("=")
        valued = f"{name}=" in program.long or name in program.files
        if valued and (sign or name not in program.long):
            return name, Word(value) if sign else None, True
        return (name, None, False) if name in program.long and not sign else ("", None, False)
    if "#" in program.flags and re.fullmatch(r"-\d+", text):
        return text, None, False
    for i, letter in enumerate(text[1:], 1):
        if letter in program.valued or f"-{letter}" in program.files:
            return f"-{letter}", Word(text[i + 1 :]) if i + 1 < len(text) else None, True
        if letter not in program.flags or letter == "#":
            return "", None, False
    return text, None, False


def _operand_effect(
    name: str,
    program: Program,
    operands: list[Word],
    reads: list[Word],
    pattern_given: bool,
    recursive: bool,
) -> Effect:
    match program.operands:
        case "text":
            return Effect(tuple(reads))
        case "pattern":
            several = not operands or operands[0].may_split or operands[0].kind == "glob"
            files = operands if pattern_given or several else operands[1:]
            searches = name == "rg" or (name in ("grep", "egrep", "fgrep") and recursive)
            return Effect((*reads, *(files or ([Word(".")] if searches else []))))
        # revisions and paths: git stays inside its repository, but `diff --no-index` reads any two
        # files
        case "pathspec":
            outside = [
                word
                for word in operands
                if word.kind == "open" or word.text.startswith("/") or ".." in word.text.split("/")
            ]
            return Effect((*reads, *outside))
        case "writes":
            return Effect(tuple(reads), tuple(operands))
        case "copies" if any(
            word.text.rstrip("/").rpartition("/")[2] in (".", "..") for word in operands[:-1]
        ):
            return Effect(
                (*reads, *operands[:-1]), (OPEN,)
            )  # what is in the folder gets names that nobody reads here
        case "copies":
            return Effect((*reads, *operands[:-1]), tuple(operands[-1:]))
        case "moves":
            return Effect(tuple(reads), tuple(operands))
        case _:
            return Effect((*reads, *operands))


_HARMLESS_VARIABLES = re.compile(
    r"LANG|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|CI|TERM|COLUMNS|LINES|[a-z_][a-z0-9_]*|NODE_ENV|RUST_BACKTRACE|RUST_LOG|"
    r"PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|DEBUG|VERBOSE|GOOS|GOARCH|CGO_ENABLED"
)


def is_harmless_variable(name: str) -> bool:
    """True if setting a variable cannot make a known program run or load anything."""
    return bool(_HARMLESS_VARIABLES.fullmatch(name)) and not name.endswith(("_proxy",))
