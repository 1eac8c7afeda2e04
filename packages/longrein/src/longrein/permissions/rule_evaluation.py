"""Verdict on a tool call. Deny rules come before protected paths, ask rules, allow rules and the
mode.

Allow rules match exactly or not at all. Deny and ask rules match whenever in doubt.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from longrein.permissions.bash_parser import (
    LENGTH_MAX,
    Word,
    WordPart,
    join_path,
    parse_command,
    word_set,
)
from longrein.permissions.command_rules import (
    CHANGING_PROGRAMS,
    RAW_WORDS_MAX,
    SUGGESTION_LENGTH_MAX,
    SUGGESTIONS_MAX,
    KnownCommand,
    covers,
    exact_rule,
    matches,
    raw_words,
    suggest_part_rule,
)
from longrein.permissions.display import shown_call, visible
from longrein.permissions.git_history_reads import text_prints_history
from longrein.permissions.program_table import Effect, effect_of
from longrein.permissions.rules import (
    FILE_RULES,
    PROTECTED_ENDINGS,
    PROTECTED_NAMES,
    PROTECTED_PAIRS,
    UNPROTECTED_SUBFOLDERS,
    Rule,
    check_rule,
    folded,
    glob,
    names,
    parse_rule,
    path_pattern,
)
from longrein.permissions.types import Call, Mode, PartFacts, Rules, Touched, Verdict
from longrein_context.events.escape import plain_name

# --- Allow rules: exact matches only --------------------------------------------------------------


_URL = r"(?i)https?://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#][^\\\s]*)?"


def find_allow_rule(call: Call, rules: Rules) -> str:
    """Return the allow rule that covers `call` completely (for paths, the rule of the last one);
    '' for none.
    """
    if call.touched:
        found = [allow_rule_for_path(call, touched, rules) for touched in call.touched]
        return found[-1] if all(found) else ""
    read = [(text, parse_rule(text)) for text in rules.allow]
    named = [(text, rule) for text, rule in read if not rule.problem and names(rule, call.tool)]
    return next((text for text, rule in named if _surely_covers_call(call, rule)), "")


def allow_rule_for_path(call: Call, touched: Touched, rules: Rules) -> str:
    """Return the allow rule that covers one path of a call, both as written and with symlinks
    followed; '' for none.
    """
    for text in rules.allow:
        rule = parse_rule(text)
        if rule.problem or not _surely_concerns_access(rule, call, touched.writes):
            continue
        if not rule.spec:
            if touched.inside:
                return text
            continue
        regex = path_pattern(rule.spec, rules.base, rules.home, False)
        forms = (touched.path, touched.real)
        if not regex or not all(map(regex.match, forms)):
            continue
        if not any(_leaves_out(rule.spec, form, rules) for form in forms):
            return text
    return ""


NO_DOTFILE = "[!.]*"
"""Name of a path pattern for all but dotfiles, there and in all folders below."""


def _leaves_out(spec: str, path: str, rules: Rules) -> bool:
    """Return True if a pattern with `NO_DOTFILE` leaves out a path that it matches otherwise: one
    with a name that begins with a dot, and that the pattern does not name.
    """
    if NO_DOTFILE not in spec:
        return False
    folder = rules.home if spec.startswith("~") else rules.base
    whole = spec if spec.startswith("//") else f"{folder}/{spec}"
    return _count_dotfiles(path) > _count_dotfiles(whole)


def _count_dotfiles(path: str) -> int:
    return sum(name.startswith(".") and bool(name.strip(".")) for name in path.split("/"))


def _surely_concerns_access(rule: Rule, call: Call, writes: bool) -> bool:
    """Return True if a rule is about this access: a command reads and writes as the tools do."""
    if call.command is not None or rule.tool == call.rule_name:
        return rule.tool == ("Edit" if writes else "Read")
    return names(rule, call.tool)


def _surely_covers_call(call: Call, rule: Rule) -> bool:
    """True if a rule covers a call without paths: by its address or one of its arguments."""
    if call.command is not None:
        return rule.spec in ("", "*")
    if not rule.spec:
        return True
    if call.tool == "WebFetch":
        return _surely_covers_host(
            str(call.arguments.get("url", "")), rule.spec.removeprefix("domain:")
        )
    return any(glob(rule.spec, False).match(value) for value in named_values(call, rule.spec))


def named_values(call: Call, spec: str) -> list[str]:
    """Return the values to compare with a spec: `key:value` for each argument, and the plain
    value of the name.
    """
    named = [
        call.arguments[k]
        for k in ("subagent_type", "skill", "name")
        if isinstance(call.arguments.get(k), str)
    ]
    return [
        *named[:1],
        *(f"{key}:{value}" for key, value in call.arguments.items() if spec.startswith(f"{key}:")),
    ]


def _surely_covers_host(url: str, domain: str) -> bool:
    match = re.compile(_URL).fullmatch(url)
    host = match[1].lower().rstrip(".") if match else ""
    domain = domain.lower()
    if domain.startswith("*."):
        return host.endswith(domain[1:])
    return bool(host) and domain in (host, "*")


# --- Deny and ask rules: a match when in doubt ----------------------------------------------------


def find_matching_rule(call: Call, texts: tuple[str, ...], rules: Rules, cwd: str) -> str:
    """Return the first rule of `texts` that matches `call`; '' for none."""
    for text in texts:
        rule = parse_rule(text)
        if _may_match_call(call, rule, rules, cwd) or (
            call.command and _may_match_command(call, call.command, rule, rules, cwd)
        ):
            return text
    return ""


def _may_match_call(call: Call, rule: Rule, rules: Rules, cwd: str) -> bool:
    """Return True if a rule matches a call by its tool, its paths, its address or an argument."""
    if rule.problem:
        return names(rule, call.tool)
    if any(
        _may_concern_access(rule, call.tool, t.writes) and path_matches_rule(t, rule, rules, cwd)
        for t in call.touched
    ):
        return True
    if not names(rule, call.tool):
        return not rule.spec and not call.touched and rule.tool == call.rule_name
    if not rule.spec:
        return True
    if call.tool == "WebFetch":
        return _may_match_host(
            str(call.arguments.get("url", "")), rule.spec.removeprefix("domain:")
        )
    return any(
        glob(rule.spec, True).match(value)
        for value in (*named_values(call, rule.spec), *_started_types(call))
    )


def _started_types(call: Call) -> list[str]:
    """Return the types of all subagents that a call starts, including the synthesis."""
    if call.tool != "Agent":
        return []
    own, tasks = str(call.arguments.get("subagent_type") or "general"), call.arguments.get("tasks")
    tasks = tasks if isinstance(tasks, list) and tasks else [{}]
    types = [str(task.get("subagent_type") or own) for task in tasks if isinstance(task, dict)]
    return [*types, "synthesis"] if call.arguments.get("synthesis") else types


def _may_concern_access(rule: Rule, tool: str, writes: bool) -> bool:
    """Return True if a rule is about this access: `Read` for reading; `Edit`, and `Write` with a
    spec, for writing.
    """
    if rule.tool == "Read":
        return not writes or names(rule, tool)
    if rule.tool == "Edit" or (rule.tool == "Write" and rule.spec):
        return writes or names(rule, tool)
    return names(rule, tool)


def path_matches_rule(touched: Touched, rule: Rule, rules: Rules, cwd: str) -> bool:
    """Return True if a form or another name of a path matches, relative to the session's first
    folder or to the current one.
    """
    if not rule.spec:
        return True
    known = dict.fromkeys((touched.path, touched.real, *touched.other_names))
    return any(_may_match_path(path, rule.spec, rules, cwd) for path in known)


def _may_match_path(path: str, spec: str, rules: Rules, cwd: str) -> bool:
    path = folded(path)
    for base in dict.fromkeys((rules.base, cwd)):
        regex = path_pattern(spec, base, rules.home, True)
        if regex and regex.match(path):
            return True
    return False


def _may_match_host(url: str, domain: str) -> bool:
    host = re.split(r"[/?#\\]", url.strip().partition("//")[2] or url.strip(), maxsplit=1)[
        0
    ].rpartition("@")[2]
    host = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
    host, domain = host.lower().rstrip("."), domain.lower().removeprefix("*.").rstrip(".")
    return domain in ("*", host) or host.endswith("." + domain)


# --- Commands in deny and ask rules ---------------------------------------------------------------


def _may_match_command(
    call: Call, command: KnownCommand, rule: Rule, rules: Rules, cwd: str
) -> bool:
    """True if a deny or ask rule may match a command: by its parts, or by the files that it may
    read or write.
    """
    if rule.problem:
        return rule.tool == "Bash"
    if rule.tool == "Bash":
        return matches(rule.spec, command)
    if rule.tool not in FILE_RULES or not rule.spec:
        # without a path, such a rule forbids the tools, not commands with the same effect
        return False
    reads = rule.tool == "Read"
    is_masked = reads and call.masked
    if command.script.problem and not command.script.parts:
        return not is_masked
    words = [
        (Word(text, "open"), cwd) for text in raw_words(command.text) if command.script.problem
    ]
    for part, effect, fact in _judged_parts(call, command):
        named = _named_files(part, effect, reads=reads)
        words += [(word, folder) for word in named for folder in part.folders or (cwd,)]
        if any(t.writes != reads and path_matches_rule(t, rule, rules, cwd) for t in fact.touched):
            return True
    if is_masked:
        words = [(word, folder) for word, folder in words if not _WILD.search(word.text)]
    elif len(words) > RAW_WORDS_MAX:
        return True
    dots = bool(_MATCHES_DOTS.search(command.text))
    return any(_may_match_word(word, rule.spec, rules, folder, dots) for word, folder in words)


_WILD = re.compile(r"[*?\[]")
"""Marks a word that names files only by a pattern: of these, a mask hides the forbidden ones."""

_MATCHES_DOTS = re.compile("shopt|dotglob|GLOBIGNORE|zsh|fish")
"""Marks a command whose shell may let a `*` match a dot at the beginning of a name."""


def _judged_parts(
    call: Call, command: KnownCommand
) -> Iterator[tuple[WordPart, Effect, PartFacts]]:
    """Yield each part of a command with its effect and what the workspace knows about it."""
    facts = call.parts or (PartFacts(),) * len(command.script.parts)
    return zip(command.script.parts, command.effects, facts, strict=True)


def _named_files(part: WordPart, effect: Effect, *, reads: bool) -> list[Word]:
    """Return the words of a part that may name a file it reads or writes."""
    words = [*(part.reads if reads else part.writes), *(effect.reads if reads else effect.writes)]
    if effect.problem or part.program == "git":
        words += part.words[1:]
    return [
        word if word.kind != "open" else Word(word.text + "*", "open")
        for word in words
        if word.text or word.kind != "open"
    ]


def _may_match_word(named: Word, spec: str, rules: Rules, cwd: str, dots: bool) -> bool:
    """Return True if a word of a command may name a file that `spec` matches.

    `dots`: a pattern of the shell may match a dot at the beginning of a name.
    """
    word = named.text
    glued = word[2:] if word.startswith("-") else ""
    for piece in dict.fromkeys((word, *(word.rpartition(sign)[2] for sign in "=@:"), glued)):
        if piece and _may_match_path(absolute(piece, cwd, rules.home), spec, rules, cwd):
            return True
    name = spec.rstrip("/").rpartition("/")[2]
    if not _WILD.search(word) or _WILD.search(name):
        return False
    pattern = word.rpartition("/")[2] or "*"
    # the shell itself expands a pattern, but for `**` and the like, which stand for a whole tree
    is_expanded = named.kind == "glob" and "**" not in word and not dots
    if is_expanded and name.startswith(".") and _WILD.match(pattern):
        return False
    regex = path_pattern(pattern, "/", "", True)
    return bool(regex and regex.match("/" + folded(name)))


def absolute(word: str, cwd: str, home: str) -> str:
    """Return a word as an absolute path, with `~`, `$HOME`, `.` and `..` resolved."""
    for sign in ("${HOME}", "$HOME", "~"):
        if word == sign or word.startswith(sign + "/"):
            word = home + word[len(sign) :]
    return join_path(cwd, word)


# --- Protected paths: a write asks in every mode --------------------------------------------------
#
# These paths configure programs that run later. Names are compared without case and without
# invisible characters, since some file systems do not distinguish them.


def protected_name(touched: Touched, base: str) -> str:
    """Return the protected name in a path, as given or with symlinks followed; '' for none.

    The part of the path up to `base`, the session's first folder, is ignored.
    """
    return _protected_in(touched.path, base) or _protected_in(touched.real, base)


def _protected_in(path: str, base: str) -> str:
    root = base.rstrip("/")
    inner = path[len(root) :] if root and path.startswith(root + "/") else path
    names = [_visible_name(name) for name in inner.split("/") if name]
    for i, name in enumerate(names):
        after = names[i + 1] if i + 1 < len(names) else ""
        if name in PROTECTED_NAMES and after not in UNPROTECTED_SUBFOLDERS.get(name, ()):
            return name
        if name.endswith(PROTECTED_ENDINGS):
            return name
        if (name, after) in PROTECTED_PAIRS:
            return f"{name}/{after}"
    return ""


def _visible_name(name: str) -> str:
    """Return the name that a file system may take `name` for.

    Without case, width and invisible characters, with a plain `i`, without blanks and dots at the
    end, without the stream that NTFS reads after `:`, and the long name for the short one that NTFS
    gives (`GIT~1`).
    """
    name = plain_name(name).partition(":")[0].rstrip(" .")
    stem, tilde, number = name.partition("~")
    return _SHORT_NAMES.get(stem, name) if tilde and number[:1].isdigit() else name


_SHORT_NAMES = {
    name.lstrip(".").partition(".")[0][:6]: name for name in sorted(PROTECTED_NAMES, reverse=True)
}
"""First characters of a short name on NTFS -> protected name; `.git` and not `.gitconfig` for
`git`.
"""


# --- Suggested rules: what "always" may store -----------------------------------------------------


_HOST = r"(?i)https?://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#]|\Z)"


def suggest_rule(call: Call, base: str = "") -> str:
    """Return the rule that a person would name for a call that runs no command: changes below one
    folder of `base`, one file elsewhere, one domain. '' when no rule is safe.
    """
    rule = _rule(call, base)
    safe = (
        rule.isprintable()
        and len(rule) <= SUGGESTION_LENGTH_MAX
        and check_rule(rule, "allow") is None
    )
    return rule if rule and safe else ""


def _rule(call: Call, base: str) -> str:
    if call.touched:
        return _folder_rule(call, base) or _path_rule(call, base)
    if call.tool == "WebFetch":
        match = re.compile(_HOST).match(str(call.arguments.get("url", "")))
        return f"WebFetch(domain:{match[1].lower().rstrip('.')})" if match else ""
    name = next(
        (
            call.arguments[k]
            for k in ("subagent_type", "skill")
            if isinstance(call.arguments.get(k), str)
        ),
        "",
    )
    if name and "*" not in name:
        return f"{call.tool}({name})"
    if not name:
        return call.tool
    return ""


_SPECIAL = r"[*?\[\]\\!#]|\s$|\s\)|^\s|/$"
"""Characters that a pattern would not take as they are."""


def _folder_rule(call: Call, base: str) -> str:
    """Return the rule for all changes in a folder directly below `base`, as `Edit(src/**)`; ''
    where a path lies elsewhere, is protected, or holds a name that begins with a dot.
    """
    root = base.rstrip("/") + "/"
    if root == "/":
        return ""
    folders = set[str]()
    for touched in call.touched:
        if not (touched.writes and touched.inside) or protected_name(touched, base):
            return ""
        for path in (touched.path, touched.real):
            folder, slash, rest = path.removeprefix(root).partition("/")
            if not (path.startswith(root) and slash and rest) or "/." in path[len(root) - 1 :]:
                return ""
            folders.add(folder)
    folder = folders.pop()
    is_plain = not re.search(_SPECIAL, base) and re.fullmatch(r"[\w@+][\w@+ .-]*", folder)
    if folders or not is_plain or not folder.isascii() or call.rule_name != "Edit":
        return ""
    return f"Edit({folder}/**)"


def _path_rule(call: Call, base: str) -> str:
    """Return the rule for one file; '' for a change of `base` or of a folder above: the rule would
    cover all that lies in it.
    """
    paths = {t.path for t in call.touched} | {t.real for t in call.touched}
    writes = any(t.writes for t in call.touched)
    path = call.touched[0].path
    if writes and f"{base}/".startswith(f"{path}/"):
        return ""
    if len(paths) > 1 or re.search(_SPECIAL, path) or not path.startswith("/"):
        return ""
    name = call.rule_name if call.rule_name == ("Edit" if writes else "Read") else call.tool
    return f"{name}(/{path})"


def granted_rule(text: str, base: str) -> str:
    """Return the rule that a yes to a suggested one grants: that for a folder of `base` holds in
    `base` alone and leaves out dotfiles, others are as they are.
    """
    folder = suggested_folder(text)
    return f"Edit(/{base}/{folder}/{NO_DOTFILE})" if folder else text


def flag_rule(text: str) -> str:
    """Return the rule for a flag that grants what a yes to a suggested one grants, in the folder of
    the run.
    """
    folder = suggested_folder(text)
    return f"Edit({folder}/{NO_DOTFILE})" if folder else text


def suggested_folder(text: str) -> str:
    """Return the folder of a suggested rule such as `Edit(src/**)`; '' for other rules."""
    folder = text.removeprefix("Edit(").removesuffix("/**)")
    is_folder = text == f"Edit({folder}/**)" and "/" not in folder and folder[:1] != "~"
    return folder if is_folder else ""


# --- Verdict --------------------------------------------------------------------------------------


_PLAN_REASON = (
    "plan mode changes nothing: read, plan, and present the plan with ExitPlanMode; "
    "the user decides"
)
EDITING_MODES = ("acceptEdits", "auto")
"""Modes in which files of the session's folders are changed without a question."""
_NETWORK_TOOLS = ("WebFetch", "WebSearch", "mcp__", "ReadMcpResourceTool")
"""Reading tools that reach beyond this machine; they need a rule."""


def judge(call: Call, rules: Rules, mode: Mode | str, cwd: str) -> Verdict:
    """Return the verdict on `call`.

    `cwd` is the absolute current folder: relative paths of deny rules are tried from there too.
    Rules granted for the session are in `rules.allow`. An unknown mode counts as `default`. Pure,
    deterministic; never raises.
    """
    verdict = _judge(call, rules, mode, cwd)
    if verdict.kind != "ask" or mode in EDITING_MODES:
        return verdict
    if mode != "dontAsk":
        edits = _judge(call, rules, "acceptEdits", cwd).kind == "allow"
        return msgspec.structs.replace(verdict, edits=edits)
    rule = f"; a rule that allows it: {', '.join(verdict.suggestions)}"
    reason = f"{verdict.reason}; nobody is asked in this mode{rule * bool(verdict.suggestions)}"
    return Verdict("deny", reason, verdict.rule, verdict.suggestions)


def _judge(call: Call, rules: Rules, mode: Mode | str, cwd: str) -> Verdict:
    if rule := find_matching_rule(call, rules.deny, rules, cwd):
        return Verdict("deny", _why_deny(call, rule), rule)
    if call.command is not None and mode != "bypassPermissions":
        return _judge_command(call, call.command, rules, mode, cwd)
    if call.asks:
        return _ask(call, call.asks)
    changes = call.access in ("write", "command") or any(t.writes for t in call.touched)
    if mode == "plan" and changes:
        return Verdict("deny", _PLAN_REASON)
    for touched in call.touched:
        name = protected_name(touched, rules.base) if touched.writes else ""
        if name:
            return _ask(call, f"{name} is protected: what stands there runs or is obeyed later")
    if mode == "bypassPermissions":
        return Verdict("allow", "mode bypassPermissions")
    if rule := find_matching_rule(call, rules.ask, rules, cwd):
        return _ask(call, f"the rule {visible(rule)} asks", rule)
    return _by_rule_or_mode(call, rules, mode)


def reads_files(command: str) -> bool:
    """Return True if it is known that a command reads files or lists folders and changes
    nothing.
    """
    script = parse_command(command, "/", "/")
    judged = [(part.words, effect_of(part)) for part in script.parts]
    if script.problem or any(effect.problem or effect.writes for _, effect in judged):
        return False
    programs = [(words[0].text, effect.reads) for words, effect in judged if words]
    return any(name == "ls" or (reads and name != "cd") for name, reads in programs)


# --- Verdict on a command, by its parts -----------------------------------------------------------


def _judge_command(call: Call, command: KnownCommand, rules: Rules, mode: str, cwd: str) -> Verdict:
    """Judge a command that no deny rule matches: every part must be read-only, covered by a
    rule, or confined without saying that it changes files.
    """
    rule = find_matching_rule(call, rules.ask, rules, cwd)
    if rule and mode != "plan":
        return _ask(call, f"the rule {visible(rule)} asks", rule)
    judged = [
        (part, effect, fact, _part_problem(call, part, effect, fact, rules, mode))
        for part, effect, fact in _judged_parts(call, command)
    ]
    pending = [one for one in judged if one[3]]
    problem = command.script.problem
    if not pending and not problem:
        return Verdict("allow", "it only reads, or rules cover all its parts")
    if mode == "plan":
        return Verdict("deny", _PLAN_REASON)
    if rule := find_allow_rule(call, rules):
        return Verdict("allow", f"rule {visible(rule)}", rule)
    problem = problem and f"the command cannot be read: {visible(problem)}"
    if call.confined and (mode == "auto" or not call.gated):
        problem = _unread_history(command, rules, [one[0] for one in pending])
        edits = mode in EDITING_MODES
        pending = [
            one for one in pending if _HISTORY in one[3] or (not edits and _says_change(*one))
        ]
        if not pending and not problem:
            return Verdict("allow", "the sandbox confines it")
    if problem:
        return _ask(call, problem)
    done = [part.text for part, _, _, reason in judged if not reason and part.words]
    reason = f"{pending[0][3]}{_others(done, len(pending) - 1)}"
    suggestions = _suggestions([(part, fact) for part, _, fact, _ in pending], rules.base)
    exact = _exact_rule(call, command, rules, mode)
    exact = "" if (exact,) == suggestions else exact
    return Verdict("ask", reason, "", suggestions, shown_call(call.arguments), exact)


_CHANGING_WORDS = {
    "git": word_set(
        "add am apply checkout cherry-pick clean commit merge mv pull rebase reset restore revert "
        "rm stash switch"
    ),
    "find": word_set("-delete"),
    "sed": word_set("-i --in-place"),
    "perl": word_set("-i -pi -i.bak -pi.bak"),
}
"""Arguments with which a program says that it changes files."""


def _says_change(part: WordPart, effect: Effect, facts: PartFacts, _: str) -> bool:
    """Return True if a part says that it changes files of the session's folders, or files that
    are not known. A sandbox does not settle that.
    """
    if not (effect.problem and part.words):
        changed = [t for t in facts.touched if t.writes and not t.is_scratch]
        return any(t.inside or not t.path.startswith("/") for t in changed)
    name = part.program.rpartition("/")[2]
    said = _CHANGING_WORDS.get(name, frozenset())
    return name in CHANGING_PROGRAMS or any(word.text in said for word in part.words)


def _suggestions(pending: Sequence[tuple[WordPart, PartFacts]], base: str) -> tuple[str, ...]:
    """Return the narrow rules that together cover parts of a command; () when there are too many,
    or one part has none.
    """
    rules = [
        (suggest_part_rule(part),) if part.words else _file_rules(fact, base)
        for part, fact in pending
    ]
    found = tuple(dict.fromkeys(rule for some in rules for rule in some))
    return found if all(rules) and all(found) and len(found) <= SUGGESTIONS_MAX else ()


def _file_rules(fact: PartFacts, base: str) -> tuple[str, ...]:
    """Return the rules that cover the files of a redirect; () when one of them has none."""
    named = [("Edit" if touched.writes else "Read", touched) for touched in fact.touched]
    rules = tuple(suggest_rule(Call(name, {}, "write", (t,), name), base) for name, t in named)
    return rules if all(rules) else ()


def _exact_rule(call: Call, command: KnownCommand, rules: Rules, mode: str) -> str:
    """Return the rule that allows this command and no other; '' when no rule does."""
    rule = exact_rule(command.script.parts)
    allowing = msgspec.structs.replace(rules, allow=(*rules.allow, rule)) if rule else rules
    parts = _judged_parts(call, command)
    return "" if any(_part_problem(call, *part, allowing, mode) for part in parts) else rule


def _others(done: list[str], pending: int) -> str:
    """Return a note on the other parts of a command."""
    if pending:
        return f" (and {pending} more part{'s' if pending > 1 else ''})"
    return f" (the other part, `{visible(done[0])[:60]}`, is allowed)" if len(done) == 1 else ""


def _part_problem(
    call: Call, part: WordPart, effect: Effect, facts: PartFacts, rules: Rules, mode: str
) -> str:
    """Return the reason why a part may not run unasked; '' if it may."""
    for touched in facts.touched:
        if touched.writes and (name := protected_name(touched, rules.base)):
            return f"{name} is protected: what stands there runs or is obeyed later"
    if facts.armed:
        return f"`{visible(part.text)[:80]}`: {visible(facts.armed)}"
    named = [rule for rule in map(parse_rule, rules.allow) if rule.tool == call.tool and rule.spec]
    if mode != "plan" and any(not rule.problem and covers(rule.spec, part) for rule in named):
        return ""
    if effect.history and not facts.clean_history and (rule := _read_rule(rules)):
        return f"`{visible(part.text)[:80]}` {_HISTORY}{visible(rule)} forbids"
    if facts.foreign or effect.problem:
        return (
            f"`{visible(part.text)[:80]}` is covered by no rule: "
            f"{visible(facts.foreign or effect.problem)}"
        )
    for touched in facts.touched:
        free = _is_free(call, touched, mode)
        if not free and not (mode != "plan" and allow_rule_for_path(call, touched, rules)):
            return f"`{visible(part.text)[:80]}`: {_why_path(touched)}"
    return ""


def _is_free(call: Call, touched: Touched, mode: str) -> bool:
    """Return True if a path needs no rule: a read inside, an edit in an editing mode, scratch."""
    is_scratch = touched.is_scratch and not call.gated
    return touched.inside and (not touched.writes or is_scratch or mode in EDITING_MODES)


_HISTORY = "may print from git's history what the rule "


def _read_rule(rules: Rules) -> str:
    """Return the first deny rule that forbids to read some files; '' for none."""
    return next(
        (text for text in rules.deny if (rule := parse_rule(text)).tool == "Read" and rule.spec), ""
    )


def _unread_history(command: KnownCommand, rules: Rules, pending: list[WordPart]) -> str:
    """Return the reason why a command that cannot be read may print denied files by git; '' for
    none.
    """
    rule = _read_rule(rules)
    unknown = command.script.problem or any(part.words and not part.program for part in pending)
    if not (rule and unknown):
        return ""
    prints = text_prints_history(command.text)
    return f"it cannot be read, and {_HISTORY}{visible(rule)} forbids" if prints else ""


def is_read_denied(path: str, real: str, rules: Rules, cwd: str) -> bool:
    """Return True if a `Read` deny rule matches a file, so that listings and searches must omit
    it.
    """
    touched = Touched(path, path, real, inside=True, writes=False)
    denying = (parse_rule(text) for text in rules.deny)
    return any(
        r.tool == "Read" and (r.problem or path_matches_rule(touched, r, rules, cwd))
        for r in denying
    )


def read_deny_rule(path: str, real: str, rules: Rules, cwd: str, tool: str = "Read") -> str:
    """Return the deny rule with a path that forbids reading (or for `Edit` changing) a file or
    folder; '' for none.
    """
    touched = Touched(path, path, real, inside=True, writes=False)
    read = [(text, parse_rule(text)) for text in rules.deny]
    about = [(text, rule) for text, rule in read if rule.tool == tool and not rule.problem]
    return next(
        (t for t, rule in about if rule.spec and path_matches_rule(touched, rule, rules, cwd)), ""
    )


def _by_rule_or_mode(call: Call, rules: Rules, mode: str) -> Verdict:
    if not call.touched:
        if rule := find_allow_rule(call, rules):
            return Verdict("allow", f"rule {visible(rule)}", rule)
        if call.access == "none" or (
            call.access == "read" and not call.tool.startswith(_NETWORK_TOOLS)
        ):
            return Verdict("allow", "it changes nothing outside the session")
        return _ask(call, f"no rule allows {visible(call.tool)}", suggestion=suggest_rule(call))
    deciding = ""
    for touched in call.touched:
        free = _is_free(call, touched, mode)
        rule = "" if free else allow_rule_for_path(call, touched, rules)
        if not free and not rule:
            return _ask(call, _why_path(touched), suggestion=suggest_rule(call, rules.base))
        deciding = rule or deciding
    return Verdict(
        "allow",
        f"rule {visible(deciding)}" if deciding else f"mode {mode}: inside the roots",
        deciding,
    )


def _why_deny(call: Call, rule: str) -> str:
    if (
        call.command is not None
        and not call.command.script.parts
        and len(call.command.text) > LENGTH_MAX
    ):
        return (
            f"the command has more than {LENGTH_MAX:,} characters, too many to see whether the "
            "user's rule "
            f"{visible(rule)} forbids it; write its text to a file and let a short command use that"
        )
    return f"the user's rule {visible(rule)} forbids this; do not look for a way around it"


def _why_path(touched: Touched) -> str:
    real = "" if touched.real == touched.path else f" (really {visible(touched.real)})"
    if touched.inside:
        return f"it changes {visible(touched.given)}{real}"
    verb = "changes" if touched.writes else "reads"
    return f"it {verb} {visible(touched.path)}{real}, outside the session's folders"


def _ask(call: Call, reason: str, rule: str = "", *, suggestion: str = "") -> Verdict:
    suggestions = (suggestion,) if suggestion else ()
    return Verdict("ask", reason, rule, suggestions, shown_call(call.arguments))
