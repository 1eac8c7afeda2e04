"""Program texts of `sed`, `awk` and `jq`: the small subsets that open no file and run nothing.

Each language can do both in ways that no list of dangerous words holds (`ARGV[1] = "/x"`,
`import "a" as a {search: "/x"}`). So a text is known only if each of its tokens is.
"""

import re

from longrein.permissions.bash_parser import word_set

# --- sed ------------------------------------------------------------------------------------------


_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\[^\n])+/I?)"
_PIECE = r"(?:(?!(?P=sign))[^\\\n]|\\[^\n])*(?P=sign)"
_SED_COMMAND = (  # compiled with the first script, as the others: 1.5 ms together
    rf"\s*(?:{_ADDRESS}(?:\s*,\s*(?:{_ADDRESS}|[+~]\d+))?\s*!?\s*)?"
    rf"(?:[pdq=]|s(?P<sign>[/|,#:@!]){_PIECE}{_PIECE}[gpiI\d]*)\s*"
)


def is_plain_sed(script: str) -> bool:
    """True for a script of `p`, `d`, `q`, `=` and `s` with addresses; `e`, `w` and `r` run,
    write and read files.
    """
    at, command = 0, re.compile(_SED_COMMAND)
    while at < len(script):
        match = command.match(script, at)
        if match is None or (match.end() < len(script) and script[match.end()] not in ";\n"):
            return False
        at = match.end() + 1
    return bool(script.strip())


# --- awk ------------------------------------------------------------------------------------------


_AWK_TOKEN = r"""(?x)
    (?P<blank>[ \t\n]+)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<name>[A-Za-z_]\w*)(?P<call>[ \t]*\()?
    | (?P<regex>/(?:[^]/\\\n\[]|\\.|\[\^?[^]\[/\\\n]+\])+/)
    | (?P<closing>[])]|\+\+|--)
    | (?P<operator>&&|\|\||[=!<>]=|!~|[-+*%^]=?|[<=!~?:,;{}$([])
    """
_AWK_NAMES = word_set("NR NF FNR FS OFS RS ORS FILENAME BEGIN END RSTART RLENGTH")
_AWK_WORDS = word_set("print printf if else for while do in next exit delete break continue")
_AWK_FUNCTIONS = word_set(
    "length substr index split sub gsub match tolower toupper int sprintf sqrt exp log sin cos "
    "if for while in print printf"
)
_AWK_FORBIDDEN = word_set(
    "getline system close fflush func function namespace include load nextfile switch case "
    "default extension return"
)
_AWK_COMPARISON = r"(?:\A|[}(])\s*(?:NR|NF|FNR|\$\w+|length)\s*>\s*\d+(?=\s*(?:[){;]|&&|\Z))"
"""A `>` that cannot be a redirect: at the beginning of a pattern, or just inside parentheses."""


def is_plain_awk(script: str) -> bool:
    """True for a script of known tokens without redirect, pipe, `getline` and foreign functions.

    A name in capitals is a variable of awk's own; `ARGV` and `ENVIRON` are not known here. A `/`
    counts as the beginning of a pattern only where no value stands in front.
    """
    script = re.sub(_AWK_COMPARISON, lambda match: match[0].replace(">", "=="), script)
    at, after_value, tokens = 0, False, re.compile(_AWK_TOKEN)
    while at < len(script):
        token = tokens.match(script, at)
        if token is None or (token["regex"] and after_value):
            return False
        if token["name"] and not _is_known_in_awk(token["name"], bool(token["call"])):
            return False
        if not token["blank"]:
            is_word = token["name"] in _AWK_WORDS or token["call"]
            after_value = not (token["operator"] or is_word)
        at = token.end()
    return bool(script.strip())


def _is_known_in_awk(name: str, is_call: bool) -> bool:
    if is_call:
        return name in _AWK_FUNCTIONS
    own = re.fullmatch("[a-z][a-z0-9_]*", name) and name not in _AWK_FORBIDDEN
    return bool(own) or name in _AWK_NAMES


# --- jq -------------------------------------------------------------------------------------------


_JQ_TOKEN = r"""(?x)
    \s+ | "(?:[^"\\]|\\[^(])*" | \d+(?:\.\d+)? | \.\w* | \$(?!ENV\b|__)\w+ | @\w+
    | (?P<sign>[][(){}|,:?;+*/%<>=!-]) | (?P<name>\w+)
    """
_JQ_WORDS = word_set(
    "map select keys keys_unsorted values length has in sort sort_by group_by unique unique_by "
    "to_entries from_entries with_entries add first last nth max min max_by min_by test match "
    "capture scan contains inside startswith endswith split join tostring tonumber type not and or "
    "if then elif else end as reduce foreach try catch empty null true false any all range flatten "
    "ascii_downcase ascii_upcase ltrimstr rtrimstr reverse index rindex indices recurse paths "
    "leaf_paths getpath tojson fromjson del map_values path limit until while floor round sqrt "
    "gsub sub trim ltrim rtrim arrays objects strings numbers booleans nulls iterables scalars "
    "input inputs input_line_number error halt implode explode splits transpose"
)


def is_plain_jq(script: str) -> bool:
    """True for a script of paths, operators and known functions; `import`, `include` and
    `modulemeta` open files, `env` and `$ENV` print the environment.
    """
    at, tokens = 0, re.compile(_JQ_TOKEN)
    around = [""]
    is_key = False
    while at < len(script):
        token = tokens.match(script, at)
        if token is None or (token["name"] and not is_key and token["name"] not in _JQ_WORDS):
            return False
        sign = token["sign"] or ""
        around += [sign] if sign and sign in "{([" else []
        around = around[:-1] or [""] if sign and sign in "})]" else around
        if token[0].strip():  # what stands in an object behind `{` or `,` is a key
            is_key = around[-1] == "{" and sign in ("{", ",")
        at = token.end()
    return True
