"""Effects of known programs: what a simple command reads and writes, by program, subcommand and
options.

Each program lists the options that it may be called with. Any other option makes the call unknown:
the list of options that write or run something is never complete. An option is known only when it
is spelled out (`--color`, not `--col`). A program text of its own (`sed`, `awk`, `jq`) is known
only as a literal in a small subset that opens no file and runs nothing (`program_texts`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec

from longrein.permissions.bash_parser import (
    OPEN,
    STREAMS,
    Word,
    WordPart,
    exec_commands,
    is_inert_assignment,
    is_local_variable,
    is_system_program,
    join_path,
    word_set,
)
from longrein.permissions.filter_programs import is_plain_awk, is_plain_jq, is_plain_sed
from longrein.permissions.git_history_reads import prints_history


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
    """`reads` or `writes` files, `copies` (the last is written), `moves`, `text`, `pattern` (then
    files), `pathspec`.
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


# --- Checks of the arguments of single programs ---------------------------------------------------


_Check = Callable[[Sequence[Word]], Effect | None]


def _sed(arguments: Sequence[Word]) -> Effect | None:
    """Read the options of sed, its scripts and its files."""
    scripts: list[Word] = []
    files: list[Word] = []
    suffix: str | None = None
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        in_place = re.fullmatch(r"(?:-[nEru]*i|--in-place(?:=|\Z))([\w.~]*)", word.text)
        if word.kind != "literal" and word.may_be_option:
            return Effect(writes=(OPEN,), problem="an argument of sed is not known")
        if word.text in ("-e", "--expression") and rest:
            scripts.append(rest.pop(0))
        elif in_place:
            suffix = in_place[1]
        elif word.text.startswith("-") and word.text != "-":
            if not re.fullmatch(r"-[nEru]+|--(?:quiet|silent|regexp-extended|posix)", word.text):
                return Effect(writes=(OPEN,), problem=f"the option {word.text} of sed")
        else:
            (files if scripts else scripts).append(word)
    changed = () if suffix is None else tuple(files)
    if suffix:
        changed += tuple(Word(file.text + suffix, file.kind) for file in files)
    if not all(script.kind == "literal" and is_plain_sed(script.text) for script in scripts):
        writes = (OPEN,) if changed else ()
        return Effect(writes=writes, problem="the script of sed may run or write something")
    return Effect(reads=() if changed else tuple(files), writes=changed)


def _awk(arguments: Sequence[Word]) -> Effect | None:
    rest = list(arguments)
    while rest and rest[0].text.startswith("-"):
        option = rest.pop(0)
        match = re.fullmatch(r"-(?:F(.*)|v([a-z]\w*=.*|[OIF]FS=.*|))", option.text, re.DOTALL)
        if match is None or option.kind != "literal":
            return Effect(problem=f"the option {option.text} of awk")
        if option.text in ("-F", "-v") and rest:
            value = rest.pop(0)
            if option.text == "-v" and not re.match(r"(?:[a-z]\w*|[OIF]FS)=", value.text):
                return Effect(problem="awk gets a variable that is not known")
    if not rest or rest[0].kind != "literal" or not is_plain_awk(rest[0].text):
        return Effect(problem="the script of awk may run, write or open something")
    assigned = re.compile(r"[A-Za-z_]\w*=")
    return Effect(reads=tuple(word for word in rest[1:] if not assigned.match(word.text)))


def _jq(arguments: Sequence[Word]) -> Effect | None:
    scanned = _scan("jq", _tables()[0]["jq"], arguments)
    if isinstance(scanned, str):
        return Effect(problem=scanned)
    script, *files = scanned[0] or [OPEN]
    if script.kind != "literal" or not is_plain_jq(script.text):
        return Effect(problem="the script of jq may open something")
    return Effect(reads=tuple(files))


_FIND_VALUED = word_set(
    "-name -iname -path -ipath -wholename -regex -iregex -regextype -type -xtype -maxdepth "
    "-mindepth -size -mtime -mmin -ctime -cmin -atime -amin -perm -user -group -uid -gid -links "
    "-inum -printf -fstype -used -lname -ilname -newer -anewer -cnewer -samefile"
)
_FIND_FLAGS = word_set(
    "-not ! -o -or -a -and ( ) , -print -print0 -empty -prune -L -H -P -ls -quit -true -false "
    "-depth -xdev -mount -follow -readable -writable -executable -nouser -nogroup -daystart "
    "-noleaf -ignore_readdir_race -warn -nowarn"
)


def _find(arguments: Sequence[Word]) -> Effect | None:
    reads: list[Word] = []
    rest, _ = exec_commands(arguments)  # the commands are parts of their own
    if any(word.kind == "glob" and word.may_be_option for word in arguments):
        return Effect(writes=(OPEN,), problem="a file name may be an option of find")
    while rest:
        word = rest.pop(0)
        if word.kind != "literal" and word.may_be_option:
            return Effect(writes=(OPEN,), problem="an argument of find is not known")
        if word.text in _FIND_VALUED and rest:
            value = rest.pop(0)
            if value.kind == "glob" or value.may_split:
                return Effect(writes=(OPEN,), problem=f"{word.text} of find may get several values")
            reads += [value] if "newer" in word.text or word.text == "-samefile" else []
        elif not word.text.startswith("-") and word.text not in ("(", ")", "!", ","):
            reads.append(word)
        elif word.text not in _FIND_FLAGS:
            return Effect(writes=(OPEN,), problem=f"the option {word.text} of find")
    return Effect(reads=tuple(reads) or (Word("."),))


def _matching(pattern: str, problem: str) -> _Check:
    """Return a check that all arguments are literals that match a pattern."""

    def check(arguments: Sequence[Word]) -> Effect | None:
        known = (word.kind == "literal" and re.fullmatch(pattern, word.text) for word in arguments)
        return Effect() if all(known) else Effect(problem=problem)

    return check


def _date(arguments: Sequence[Word]) -> Effect | None:
    scanned = _scan("date", _tables()[0]["date"], arguments)
    if isinstance(scanned, str):
        return Effect(problem=scanned)
    shown = all(word.text.startswith("+") for word in scanned[0])
    return Effect() if shown else Effect(problem="date may set the clock")


def _read(arguments: Sequence[Word]) -> Effect | None:
    names = [word.text for word in arguments if not word.text.startswith("-")]
    known = all(map(is_local_variable, names)) and all(w.kind == "literal" for w in arguments)
    return None if known else Effect(problem="read may set a variable of other programs")


def _printf(arguments: Sequence[Word]) -> Effect | None:
    """`printf -v NAME` and `printf %n NAME` set a variable."""
    first, name, *rest = (*arguments, OPEN, OPEN)
    if first == Word("-v") and name.kind == "literal" and is_local_variable(name.text):
        first = rest[0]
    if len(arguments) == 1 and first.single:
        return None
    sets = first.kind != "literal" or re.search(r"%[^a-zA-Z%]*n", first.text)
    return Effect(problem="printf may set a variable") if sets or first.may_be_option else None


def _strings(arguments: Sequence[Word]) -> Effect | None:
    """`strings @FILE` takes options and files from a file."""
    plain = all(word.kind == "literal" and word.text[:1] != "@" for word in arguments)
    return None if plain else Effect(problem="strings may take names from a file")


def _one_of(*verbs: str) -> _Check:
    """Return a check that the first argument is one of `verbs`."""

    def check(arguments: Sequence[Word]) -> Effect | None:
        if arguments and arguments[0] in map(Word, verbs):
            return None
        return Effect(problem="git may change the repository", lock="git")

    return check


def _git_reflog(arguments: Sequence[Word]) -> Effect | None:
    shows = all(word.text.startswith("-") for word in arguments)
    return None if shows else _one_of("show")(arguments)


_GIT_LISTS = word_set(
    "--list -l --contains --no-contains --merged --no-merged --points-at --show-current"
)


def _git_listing(arguments: Sequence[Word]) -> Effect | None:
    """`git branch` and `git tag` with a name and no option that makes it a filter create
    something.
    """
    texts = [word.text for word in arguments]
    options = texts[: texts.index("--")] if "--" in texts else texts
    lists = any(text.partition("=")[0] in _GIT_LISTS for text in options)
    named = any(not text.startswith("-") for text in texts) or len(options) < len(texts)
    creates = named and not lists
    return Effect(problem="git may change the repository", lock="git") if creates else None


_CHANGES_CONFIGURATION = Effect(problem="git config may change the configuration", lock="git")
_GIT_CONFIG_READS = word_set("--get --get-all --get-regexp --list -l get list")


def _git_config(arguments: Sequence[Word]) -> Effect | None:
    """Read of one name. Options behind it are values: `git config alias.x --list` writes."""
    for at, word in enumerate(arguments):
        if word.text in _GIT_CONFIG_READS:
            return None
        if not word.text.startswith("--") or word == Word("--"):
            is_name = len(arguments) == at + 1 and word != Word("--") and word.kind == "literal"
            return None if is_name else _CHANGES_CONFIGURATION
    return _CHANGES_CONFIGURATION


def _tar(arguments: Sequence[Word]) -> Effect | None:
    """Only listing a local file: `tar -tf FILE`; `HOST:FILE` starts a remote shell."""
    options, file, *more = (*arguments, OPEN, OPEN)
    lists = re.fullmatch(r"-?t[vzjJ]*f", options.text) and len(more) == 2
    if lists and {options.kind, file.kind} == {"literal"} and ":" not in file.text:
        return Effect(reads=(file,))
    return Effect(writes=(OPEN,), problem="tar other than `tar -tf FILE`")


_PS_WORD = re.compile(
    r"-[efFlHLTMjw]+|-[axulwTH]+|[afhjlmrsTuvwx]+|\d[\d,]*|--forest|--no-headers|"
    r"--(?:pid|ppid|sort)=[\w,+-]+|(?P<valued>-e?[oCGpqtU]|--(?:pid|ppid|sort))"
)


def _ps(arguments: Sequence[Word]) -> Effect | None:
    """`ps e` prints environments, and `ps -auxe` counts as `ps auxe`."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        match = _PS_WORD.fullmatch(word.text)
        if match is None or word.kind != "literal" or (match["valued"] and not rest):
            return Effect(problem="ps may print the environments of processes")
        if match["valued"]:
            rest.pop(0)
    return Effect()


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
file | reads | -bhiILkLNrs --brief --dereference --mime --mime-encoding --mime-type
stat | reads | -Lftx -c= --dereference --file-system --format= --printf= --terse
ls | reads | -1aAbBcCdfFgGhHiIklLmnNopqQrRsStTuUvwxXZ@% --all --almost-all --author --classify --color --color=
    --dereference --directory --escape --file-type --full-time --group-directories-first --hide-control-chars
    --hide= --human-readable --ignore-backups --ignore= --inode --kibibytes --literal --no-group
    --numeric-uid-gid --quote-name --recursive --reverse --si --size --sort= --time-style= --time= --width=
    --zero
tree | reads | -adfhinprstuvxACDFNQSX -LPI= --dirsfirst --du --filelimit= --gitignore --noreport --prune --si
du | reads | -abchHklLmPsSx0 -dt= --all --apparent-size --bytes --exclude= --human-readable --max-depth=
    --summarize --threshold= --total
df | reads | -ahHiklPT -tx= --all --human-readable --inodes --local --portability --print-type --total --type=
basename | text | -az -s= --multiple --suffix= --zero
dirname | text | -z --zero
realpath | reads | -eLmPqsz --canonicalize-existing --canonicalize-missing --logical --no-symlinks --physical
    --quiet --relative-base= --relative-to= --strip
readlink | reads | -efmnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline
diff | reads | -abBcdeEinNpqrstTuwyZ# -CUFIxW= --brief --color --color= --context= --exclude= --ignore-all-space
    --ignore-blank-lines --ignore-case --ignore-space-change --minimal --new-file --recursive
    --report-identical-files --side-by-side --stat --strip-trailing-cr --text --unified --unified= --width=
cmp | reads | -bls -in=
comm | reads | -123z --check-order --nocheck-order --output-delimiter= --total
md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum | reads | -btz --binary --tag --text --zero
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
jq | text | -nrRcCMaSsej --ascii-output --color-output --compact-output --exit-status
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
ps | text | -aefFjlHLMTwxu -oCGpqtU= --forest --no-headers --pid= --ppid= --sort=
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
blame | pathspec | -bceflnpstwMC -L= --date= --line-porcelain --porcelain --root --show-email --show-name
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
merge | text | -nqv -m= --no-ff --ff-only --ff --squash --abort --continue --quit --no-edit --no-commit --commit
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
tag | text | -adfln -mF= --annotate --delete --force --list --message= --sort= --format=
stash | text | -uakqp -m= --include-untracked --all --keep-index --quiet --message= --patch --index --stat
worktree | text | -fbBdv --force --detach --porcelain --verbose --checkout --no-checkout --expire=
remote | text | -vnft --verbose --prune --tags --no-tags --push --all
init | text | -qb= --quiet --bare --initial-branch=
submodule | text | --quiet --init --recursive --remote --checkout --depth=
notes reflog gc fsck prune repack | text | -q --auto --quiet --all --full --unreachable --dangling --no-dangling
    --prune=
"""  # noqa: E501


_MANY = 1_000_000
"""Number of operands that is no limit."""


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
            int(most or _MANY),
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
VERSIONED = word_set(
    "python python3 node npm npx pnpm yarn bun deno go cargo rustc rustup gcc g++ clang cc "
    "make cmake java javac mvn gradle ruby gem bundle php composer perl docker podman kubectl "
    "terraform aws gh brew apt uv pip pip3 poetry ruff mypy pytest tsc eslint swift dotnet "
    "bash zsh rg fd jq curl wget ssh tmux sqlite3 psql redis-cli"
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
    "cat tac head tail ls stat nl od cut basename dirname echo true false : sleep which whoami "
    "arch id seq tr nproc printenv yes type exit return break continue shift times printf"
)
"""Programs with no option that writes, runs or opens something, so that a file named like an
option does no harm.
"""
_CHECKS: Mapping[str, _Check] = {
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("awk", "gawk", "mawk"), _awk),
    **dict.fromkeys(("find", "gfind"), _find),
    **dict.fromkeys(("test", "["), _matching(r"[^\[]*|\[", "test may evaluate an unknown value")),
    "expr": lambda _: Effect(),
    "printf": _printf,
    "tar": _tar,
    "date": _date,
    "set": _matching(r"[-+][eux]*o?|pipefail|errexit|nounset|xtrace", "set with other arguments"),
    "read": _read,
    "jq": _jq,
    "ps": _ps,
    "strings": _strings,
    "git stash": _one_of("list", "show"),
    "git worktree": _one_of("list"),
    "git reflog": _git_reflog,
    "git branch": _git_listing,
    "git tag": _git_listing,
    "git config": _git_config,
}
"""A closer look at the arguments of some programs; None continues with the table."""


# --- Effect of a part -----------------------------------------------------------------------------


def effect_of(part: WordPart) -> Effect:
    """Return the effect of one part; a problem where it is not known."""
    name, arguments = part.program, part.words[1:]
    if not part.words:
        effect = Effect(part.reads, part.writes)
    elif not is_system_program(name):
        return Effect(problem=f"{name} is not a program of the system")
    else:
        effect = _known_effect(name.rpartition("/")[2], arguments)
    another = "it runs as another user" if {"sudo", "doas"} & set(part.wrappers) else ""
    return msgspec.structs.replace(
        effect,
        reads=tuple(word for word in effect.reads if word not in STREAMS),
        writes=tuple(_written(word, name) for word in effect.writes if word not in STREAMS),
        problem=another or part.problem or effect.problem or _variable_problem(part),
        follows=_follows_links(name.rpartition("/")[2], arguments),
    )


def _written(word: Word, program: str) -> Word:
    """Return a written word; an open one for a pattern, which may name a protected file."""
    removes = program in ("rm", "rmdir") and not re.search(r"[*?\[].*/|(?:^|/)\.[^/]*$", word.text)
    return word if word.kind != "glob" or removes else OPEN


def _follows_links(name: str, arguments: Sequence[Word]) -> bool:
    """True for programs that read through the symbolic links below a folder."""
    texts = [word.text for word in arguments]
    if name in ("grep", "egrep", "fgrep"):
        return any(re.match(r"--dereference-r|-[A-Za-z]*R", text) for text in texts)
    return name == "diff" and _is_recursive(arguments)


def _variable_problem(part: WordPart) -> str:
    own = part.program == "read"  # `IFS= read x` sets it for `read` only
    for text in part.assigned:
        name = text.partition("=")[0]
        if not is_inert_assignment(text) and not (own and name == "IFS"):
            return f"it sets {name}"
    return ""


def _known_effect(name: str, arguments: Sequence[Word]) -> Effect:
    effect = _single_effect(name, arguments)
    safe = name in _SAFE_WITH_ANY_OPTION
    if effect.problem or safe or not any(word.may_split for word in arguments):
        return effect
    return msgspec.structs.replace(effect, problem=f"an argument of {name} may be several")


def _single_effect(name: str, arguments: Sequence[Word]) -> Effect:
    if name == "git":
        return _git(arguments)
    asks_version = arguments in [(Word(text),) for text in ("--version", "-V", "version")]
    if asks_version and name in VERSIONED:
        return Effect()
    if name.startswith("python") and len(arguments) > 2 and arguments[0] == Word("-m"):
        module = arguments[1].text
        if module in ("pip", "venv", "virtualenv"):
            name, arguments = module, arguments[2:]
    if name not in INSTALLERS:
        return _apply(name, _tables()[0].get(name), arguments)
    verb = next((word.text for word in arguments if not word.text.startswith("-")), "")
    locks = not INSTALLERS[name] or verb in INSTALLERS[name] or (name, verb) == ("yarn", "")
    return Effect(problem=f"{name} is not known to only read", lock=name if locks else "")


# --- Coverage by allow rules ----------------------------------------------------------------------


_OTHER_PROGRAM = word_set(
    "script-shell shell userconfig globalconfig node-options require import loader config "
    "config-file rcfile init-script settings global-settings settings-file eval exec toolexec "
    "vettool overlay modfile ldflags gccgoflags prefix cwd directory chdir makefile file "
    "include-dir manifest-path rootdir confcutdir override-ini plugin plugins rulesdir "
    "resolve-plugins-relative-to project-dir build-file gradle-user-home toolchains"
)
"""Options by which build tools take another configuration, folder or program than the project's."""
_NPM_FOLDERS = {"cache", "logs-dir"}
"""Options by which npm writes files of its own elsewhere."""
_OTHER_PROGRAM_SHORT = {
    **dict.fromkeys(("make", "gmake"), r".*[fCIE]"),
    **dict.fromkeys(("npm", "pnpm", "yarn"), r".*C"),
    "ninja": r".*[fC]",
    "cargo": r".*[CZ]",
    "pytest": r".*[cpo]",
    "go": r"C",
    "gradle": r"[bcIpgD]",
    "mvn": r"[fstD]",
}
"""The same as letters behind one dash, by program."""


def has_known_arguments(part: WordPart) -> bool:
    """True if a rule with `*` covers the arguments of a part.

    A program of the table must have known options only, whether it reads or writes. Another one
    must keep its configuration, and no argument may turn into an option when the command runs.
    """
    name = part.program.rpartition("/")[2]
    if name == "git":
        return _has_known_git_options(part.words[1:])
    if name in _tables()[0] or name in _CHECKS:
        return not effect_of(part).problem
    return not any(_may_run_another(name, word) for word in part.words[1:])


def is_in_table(part: WordPart) -> bool:
    """True if the table knows the options of the program of a part."""
    name = part.program.rpartition("/")[2]
    return name == "git" or name in _tables()[0] or name in _CHECKS


def _may_run_another(program: str, word: Word) -> bool:
    """Return True if an argument may change what a known build tool runs (`make SHELL=x`)."""
    if word.kind != "literal" and word.may_be_option:
        return True
    dashes, name = re.match(r"(-*)([^=.]*)", word.text).groups()  # type: ignore[union-attr]
    if not dashes:
        return program in ("make", "gmake") and "=" in word.text
    name, letters = name.replace("_", "-"), _OTHER_PROGRAM_SHORT.get(program)
    if dashes == "-" and letters and re.match(letters, name):
        return True
    swaps = _OTHER_PROGRAM | (_NPM_FOLDERS if program in ("npm", "pnpm", "yarn") else set())
    abbreviates = any(full.startswith(name) for full in swaps)
    return name in swaps or (dashes == "--" and bool(name) and abbreviates)


_REMOTE = re.compile(r"origin|upstream|(?:https|ssh)://.+|git@[\w.-]+:.+")
_GIT_NETWORK = word_set("push pull fetch")


def _has_known_git_options(words: Sequence[Word]) -> bool:
    verb, arguments, _, problem = _git_verb(words)
    readers, writers = _tables()[1:]
    if problem or any(word.may_split for word in words) or _runs_text(verb, arguments):
        return False
    programs = [table[verb] for table in (readers, writers) if verb in table]
    return any(isinstance(_scan(verb, one, arguments), tuple) for one in programs)


def _runs_text(verb: str, arguments: Sequence[Word]) -> bool:
    """Return True for subcommands of git that run or store a program of their arguments.

    A push to a folder runs the hooks in it.
    """
    names = [word.text for word in arguments if not word.text.startswith("-")]
    if verb == "config":
        return _git_config(arguments) is not None
    if verb == "push" and names and not _REMOTE.fullmatch(names[0]):
        return True
    if verb in _GIT_NETWORK:
        return any(re.match(r"[./~]|\w+::|file:", name) for name in names)
    if verb == "submodule":
        return names[:1] == ["foreach"] or "add" in names
    return _shows_signatures(arguments)


def _shows_signatures(arguments: Sequence[Word]) -> bool:
    """Return True if a format lets git run the program that checks signatures."""
    return any(re.search(r"%[-+ ]?G|%\(\*?signature", word.text) for word in arguments)


# --- Git ------------------------------------------------------------------------------------------


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
    if not effect.problem and _shows_signatures(rest):
        effect = Effect(problem="git runs a program for signatures")
    history = prints_history(verb, rest)
    return msgspec.structs.replace(effect, folder=folder, lock=lock, history=history)


# --- Options and operands -------------------------------------------------------------------------


def _apply(name: str, program: Program | None, arguments: Sequence[Word]) -> Effect:
    """Check the options of a call; return the effect of its operands."""
    if name in _CHECKS and (found := _CHECKS[name](arguments)) is not None:
        return found
    if program is None:
        option = _OUTPUT_OPTIONS.get(name)
        gives = bool(option) and any(re.match(option or "", word.text) for word in arguments)
        writes = (OPEN,) if gives or name in CHANGERS else ()
        return Effect(writes=writes, problem=f"{name or 'the program'} is not known to only read")
    scanned = _scan(name, program, arguments)
    if isinstance(scanned, str):
        return Effect(writes=(OPEN,), problem=scanned)
    return _operand_effect(name, program, *scanned, _is_recursive(arguments))


def _is_recursive(arguments: Sequence[Word]) -> bool:
    recursive = re.compile(r"-[A-Za-z]*[rRa][A-Za-z]*|--(?:(?:dereference-)?recursive|archive)")
    return any(recursive.fullmatch(word.text) for word in arguments)


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
        if _is_operand(name, program, word):
            operands.append(word)
            continue
        option, value, valued = _option(word.text, program)
        if word.kind != "literal":
            return f"an argument of {name} is not known"
        if not option or (valued and value is None and not rest):
            return f"the option {word.text} of {name}"
        value = rest.pop(0) if valued and value is None else value
        if value is not None and (value.may_split or value.kind == "glob"):
            if name not in _SAFE_WITH_ANY_OPTION:  # its other words are operands
                return f"an argument of {name} may be several"
            reads.append(value)
        pattern_given = pattern_given or option in ("-e", "-f", "--regexp", "--file")
        if option in program.files and value is not None:
            reads.append(value)
    several = any(word.kind == "glob" for word in operands)
    if len(operands) > program.most or (several and program.most < _MANY):
        return f"{name} with so many arguments"
    return operands, reads, pattern_given


def _is_operand(name: str, program: Program, word: Word) -> bool:
    """Return True if a word cannot be an option, or no option of the program does harm."""
    if not word.may_be_option or word == Word("-"):
        return True
    if word.kind == "literal":
        return name in ("echo", "printf") and not _option(word.text, program)[0]
    return name in _SAFE_WITH_ANY_OPTION and (program.operands == "text" or word.kind == "glob")


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
        case "pathspec":
            return Effect((*reads, *filter(_may_be_outside, operands)))
        case "writes":
            return Effect(tuple(reads), tuple(operands))
        case "copies" | "moves":
            changed = operands if program.operands == "moves" else operands[-1:]
            read = operands[:-1] if program.operands == "copies" else []
            return Effect((*reads, *read), (*changed, *_arrivals(operands)))
        case _:
            return Effect((*reads, *operands))


def _may_be_outside(word: Word) -> bool:
    """Return True for a path that git reads outside its repository (`diff --no-index`)."""
    return word.kind == "open" or word.text.startswith("/") or ".." in word.text.split("/")


_FOLDER_OF_PROGRAMS = re.compile(r"\..*|venv|node_modules|bin|scripts", re.IGNORECASE)


def _arrivals(operands: Sequence[Word]) -> list[Word]:
    """Return the names that copied or moved files get inside the last operand; an open word where
    the contents of a folder get names that nobody reads here.
    """
    if not operands:
        return []
    *sources, target = operands
    names = [Word(word.text.rstrip("/").rpartition("/")[2], word.kind) for word in sources]
    ends = [name.text for name in (*names, Word(join_path("/", target.text).rpartition("/")[2]))]
    if any(text in ("", ".", "..") or _FOLDER_OF_PROGRAMS.fullmatch(text) for text in ends[:-1]):
        return [OPEN]
    if _FOLDER_OF_PROGRAMS.fullmatch(ends[-1]) or any(name.kind != "literal" for name in names):
        return [OPEN]
    return [Word(f"{target.text}/{name.text}", target.kind) for name in names]
