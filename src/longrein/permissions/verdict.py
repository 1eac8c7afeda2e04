"""Verdict on a tool call. Deny rules come before protected paths, ask rules, allow rules and the mode.

Allow rules match exactly or not at all. Deny and ask rules match whenever in doubt.
"""

import re

import msgspec

from longrein.permissions.escape import shown_call, visible
from longrein.permissions.rules import FILE_RULES, Rule, check_rule, folded, glob, names, parse_rule, path_pattern
from longrein.permissions.shell_parser import (
    LENGTH_MAX,
    META,
    TOO_LONG,
    Line,
    Reading,
    lines,
    plain_words,
    readings,
    spelled,
    unwrapped,
    word_set,
)
from longrein.permissions.types import Call, Mode, Rules, Touched, Verdict

# --- Allow rules: exact matches only ---------------------------------------------------------------------------------


_URL = r"(?i)https?://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#][^\\\s]*)?"

RISKY_OPTIONS = {
    "git": ("--config-env", "--exec-path", "--ext-diff", "--textconv", "--output", "--no-index", "-O",
            "--open-files-in-pager", "--upload-pack", "--receive-pack", "--exec"),
    "find": ("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"),
    "fd": ("-x", "--exec", "-X", "--exec-batch"),
    "rg": ("--pre", "--hostname-bin", "-z", "--search-zip"),
    "sed": ("-i", "--in-place", "-f", "--file"),
    "sort": ("-o", "--output", "--compress-program", "-T"),
    "tar": ("--to-command", "--checkpoint-action", "-I", "--use-compress-program", "--rsh-command"),
    "ssh": ("-o", "-F"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
}  # fmt: skip
"""Options with which a reading program writes or runs others; a rule with `*` covers them only if it names them."""


def find_allow_rule(call: Call, rules: Rules) -> str:
    """Return the allow rule that covers `call` completely (for paths, the rule of the last one); '' for none."""
    found = ""
    if call.touched:
        for touched in call.touched:
            found = allow_rule_for_path(call, touched, rules)
            if not found:
                return ""
        return found
    for text in rules.allow:
        rule = parse_rule(text)
        if not rule.problem and names(rule, call.tool) and _covers(call, rule):
            return text
    return ""


def allow_rule_for_path(call: Call, touched: Touched, rules: Rules) -> str:
    """Return the allow rule that covers one path of a call, both as written and with symlinks followed; '' for none."""
    for text in rules.allow:
        rule = parse_rule(text)
        if rule.problem or not _applies_to(rule, call, touched.writes):
            continue
        if not rule.spec:
            if touched.inside:
                return text
            continue
        regex = path_pattern(rule.spec, rules.base, rules.home, False)
        if regex and regex.match(touched.path) and regex.match(touched.real):
            return text
    return ""


def _applies_to(rule: Rule, call: Call, writes: bool) -> bool:
    if rule.tool == call.rule_name:
        return writes == (rule.tool == "Edit")
    return names(rule, call.tool)


def _covers(call: Call, rule: Rule) -> bool:
    """Whether a rule covers a call without paths: by its command, its address or one of its arguments."""
    command = call.arguments.get("command")
    if call.access == "command" and isinstance(command, str):
        return command_covered(command, rule.spec or "*")
    if not rule.spec:
        return True
    if call.tool == "WebFetch":
        return _host_covered(str(call.arguments.get("url", "")), rule.spec.removeprefix("domain:"))
    return any(glob(rule.spec, False).match(value) for value in named_values(call, rule.spec))


def named_values(call: Call, spec: str) -> list[str]:
    """Return the values to compare with a spec: `key:value` for each argument, and the plain value of the name."""
    named = [call.arguments[k] for k in ("subagent_type", "skill", "name") if isinstance(call.arguments.get(k), str)]
    return [*named[:1], *(f"{key}:{value}" for key, value in call.arguments.items() if spec.startswith(f"{key}:"))]


def command_covered(command: str, spec: str) -> bool:
    """Whether an allow rule's spec covers a plain command: exactly, or by `*` without any of `RISKY_OPTIONS`."""
    words, problem = plain_words(command)
    if problem:
        return False
    wild = "*" in spec
    wanted = _spelled_spec(spec)
    if not wanted:
        return False
    for form in dict.fromkeys((words, unwrapped(words))):
        text = spelled(form)
        if (not wild and text == wanted) or (
            wild and glob(wanted, False).match(text) and not _has_risky_option(form, spec)
        ):
            return True
    return False


def _spelled_spec(spec: str) -> str:
    """Return the spec in the spelling of commands; '' when it is not plain words."""
    return spelled(plain_words(spec, META - {"*"})[0])


def _has_risky_option(words: tuple[str, ...], spec: str) -> bool:
    program, named = words[0].rpartition("/")[2], spec.split()
    if program == "git" and "-c" not in named and _sets_config(words[1:]):
        return True
    options = RISKY_OPTIONS.get(program, ())
    for word in words[1:]:
        for option in options:
            if _is_option(word, option) and option not in named:
                return True
    return False


def _sets_config(words: tuple[str, ...]) -> bool:
    """Whether `-c name=value` precedes git's subcommand."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in ("-C", "--git-dir", "--work-tree", "--namespace"):
            return False
        if word.startswith("-c"):
            return True
        before = word
    return False


def _is_option(word: str, option: str) -> bool:
    """Whether a word is the option: also with a value, in a bundle of short options, or abbreviated."""
    if word == option or word.startswith(option + "="):
        return True
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 4 and name.startswith("--") and option.startswith(name)
    return len(option) == 2 and not word.startswith("--") and word.startswith("-") and option[1] in word[1:]


def _host_covered(url: str, domain: str) -> bool:
    match = re.compile(_URL).fullmatch(url)
    host = match[1].lower().rstrip(".") if match else ""
    domain = domain.lower()
    if domain.startswith("*."):
        return host.endswith(domain[1:])
    return bool(host) and domain in (host, "*")


# --- Deny and ask rules: a match when in doubt -----------------------------------------------------------------------


READERS = word_set(
    "cat tac head tail less more bat nl od xxd hexdump strings base64 base32 grep egrep fgrep rg ag ack sed awk gawk "
    "cut paste sort uniq wc tr diff cmp comm split tee cp mv ln scp rsync tar zip gzip bzip2 xz zstd 7z install dd "
    "vi vim view nano emacs ed ex source . jq yq python python3 node ruby perl php curl wget nc openssl gpg file "
    "fold fmt pr rev shuf column iconv join look pv xargs find stat readlink md5sum sha1sum sha256sum git docker"
)
"""Programs that show, copy or send a file's content."""

WRITERS = word_set(
    "tee cp mv ln rm rmdir touch truncate sed dd install rsync scp tar unzip patch chmod chown chgrp shred unlink "
    "mkdir mkfifo perl python python3 ruby node ed ex vi vim nano git curl wget sort split"
)
"""Programs that change files named in their arguments."""


def find_matching_rule(call: Call, texts: tuple[str, ...], rules: Rules, cwd: str) -> str:
    """Return the first rule of `texts` that matches `call`; '' for none."""
    if not texts:
        return ""
    given = call.arguments.get("command") if call.access == "command" else None
    parsed = [(text, parse_rule(text)) for text in texts]
    about = any(r.tool == "Bash" or (r.spec and r.tool in FILE_RULES) for _, r in parsed)
    command = _parse_command(given) if about and isinstance(given, str) else None
    for text, rule in parsed:
        if _matches_rule(call, rule, rules, cwd) or (command and _command_matches_rule(command, rule, rules, cwd)):
            return text
    return ""


def _matches_rule(call: Call, rule: Rule, rules: Rules, cwd: str) -> bool:
    """Whether a rule matches a call by its tool, its paths, its address or an argument."""
    if rule.problem:
        return names(rule, call.tool)
    if any(_is_about(rule, call.tool, t.writes) and path_matches_rule(t, rule, rules, cwd) for t in call.touched):
        return True
    if not names(rule, call.tool):
        return not rule.spec and not call.touched and rule.tool == call.rule_name
    if not rule.spec:
        return True
    if call.tool == "WebFetch":
        return _host_reached(str(call.arguments.get("url", "")), rule.spec.removeprefix("domain:"))
    return any(glob(rule.spec, True).match(value) for value in (*named_values(call, rule.spec), *_started_types(call)))


def _started_types(call: Call) -> list[str]:
    """Return the types of all subagents that a call starts, including the synthesis."""
    if call.tool != "Agent":
        return []
    own, tasks = str(call.arguments.get("subagent_type") or "general"), call.arguments.get("tasks")
    tasks = tasks if isinstance(tasks, list) and tasks else [{}]
    types = [str(task.get("subagent_type") or own) for task in tasks if isinstance(task, dict)]
    return [*types, "synthesis"] if call.arguments.get("synthesis") else types


def _is_about(rule: Rule, tool: str, writes: bool) -> bool:
    """Whether a rule is about this access: `Read` for all reading; `Edit`, and `Write` with a spec, for all writing."""
    if rule.tool == "Read":
        return not writes or names(rule, tool)
    if rule.tool == "Edit" or (rule.tool == "Write" and rule.spec):
        return writes or names(rule, tool)
    return names(rule, tool)


def path_matches_rule(touched: Touched, rule: Rule, rules: Rules, cwd: str) -> bool:
    """Whether either form of a path matches, relative to the session's first folder or to the current one."""
    if not rule.spec:
        return True
    return any(_path_matches(path, rule.spec, rules, cwd) for path in dict.fromkeys((touched.path, touched.real)))


def _path_matches(path: str, spec: str, rules: Rules, cwd: str) -> bool:
    path = folded(path)
    for base in dict.fromkeys((rules.base, cwd)):
        regex = path_pattern(spec, base, rules.home, True)
        if regex and regex.match(path):
            return True
    return False


def _host_reached(url: str, domain: str) -> bool:
    host = re.split(r"[/?#\\]", url.strip().partition("//")[2] or url.strip(), maxsplit=1)[0].rpartition("@")[2]
    host = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
    host, domain = host.lower().rstrip("."), domain.lower().removeprefix("*.").rstrip(".")
    return domain in ("*", host) or host.endswith("." + domain)


# --- Commands in deny and ask rules ----------------------------------------------------------------------------------


class _Command(msgspec.Struct, frozen=True):
    """Command parsed once for all rules."""

    whole: str
    """Command with single blanks."""
    found: list[Reading] | None
    """Simple commands it may run; None when it is too long: then every rule about commands matches."""
    lines: list[Line]
    """Texts to match."""


def _parse_command(command: str) -> _Command:
    found = readings(command) if len(command) <= LENGTH_MAX else None
    whole = " ".join(command.split()) if found is not None else ""
    return _Command(whole, found, [line for r in found or () for line in lines(r.words)])


def _command_matches_rule(command: _Command, rule: Rule, rules: Rules, cwd: str) -> bool:
    if rule.problem:
        return rule.tool == "Bash"
    if rule.tool in FILE_RULES:
        # without a path, such a rule forbids the tools, not commands with the same effect
        return bool(rule.spec) and (command.found is None or _command_touches_file(rule, command.found, rules, cwd))
    if rule.tool != "Bash":
        return False
    if not rule.spec or command.found is None:
        return True
    regex = glob(rule.spec, True)
    if regex.match(command.whole):
        return True
    return any(regex.match(line.text, line.starts) for line in command.lines)


def _command_touches_file(rule: Rule, found: list[Reading], rules: Rules, cwd: str) -> bool:
    reads = rule.tool == "Read"
    programs = READERS if reads else WRITERS
    for reading in found:
        named = list(reading.reads if reads else reading.writes)
        if any(word.rpartition("/")[2] in programs for word in reading.words):
            named.extend(reading.words[1:])
        if any(_word_matches(word, rule.spec, rules, cwd) for word in named):
            return True
    return False


def _word_matches(word: str, spec: str, rules: Rules, cwd: str) -> bool:
    """Whether a word of a command may name a file that `spec` matches."""
    glued = word[2:] if word.startswith("-") else ""
    for piece in dict.fromkeys((word, *(word.rpartition(sign)[2] for sign in "=@:"), glued)):
        if piece and _path_matches(absolute(piece, cwd, rules.home), spec, rules, cwd):
            return True
    if any(c in word for c in "*?["):
        name = spec.rstrip("/").rpartition("/")[2]
        regex = path_pattern(word.rpartition("/")[2] or "*", "/", "", True)
        return bool(regex and not any(c in name for c in "*?[") and regex.match("/" + folded(name)))
    return False


def absolute(word: str, cwd: str, home: str) -> str:
    """Return a word as an absolute path, with `~`, `$HOME`, `.` and `..` resolved."""
    for sign in ("${HOME}", "$HOME", "~"):
        if word == sign or word.startswith(sign + "/"):
            word = home + word[len(sign) :]
    parts: list[str] = []
    for part in (word if word.startswith("/") else f"{cwd}/{word}").split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


# --- Protected paths: a write asks in every mode ---------------------------------------------------------------------
#
# These paths configure programs that run later. Names are compared without case and without invisible characters,
# since some file systems do not distinguish them.


PROTECTED_NAMES = frozenset(
    (
        *(".git", ".vscode", ".idea", ".husky", ".claude", ".longrein", ".ssh", ".gnupg"),
        *(".mcp.json", ".envrc", ".gitconfig", ".gitmodules", ".ripgreprc"),
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
        *(".zshrc", ".zprofile", ".zshenv", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout"),
    )
)
"""Protected files and folders; a folder protects everything below it."""

UNPROTECTED_SUBFOLDERS = {".claude": frozenset(("commands", "skills", "worktrees"))}
"""Unprotected folders inside protected ones."""

PROTECTED_PAIRS = frozenset(((".config", "longrein"), (".config", "git"), (".config", "fish"), (".agents", "agents")))
"""Protected pairs of consecutive names."""


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
        if (name, after) in PROTECTED_PAIRS:
            return f"{name}/{after}"
    return ""


def _visible_name(name: str) -> str:
    if not name.isascii() or not name.isprintable():
        name = "".join(c for c in name if c.isprintable() and not "\ufe00" <= c <= "\ufe0f").casefold()
    name = name.lower().rstrip(" .").partition("::")[0]
    return ".git" if name == "git~1" else name


# --- Suggested rules: the narrowest rule that "always" may store -----------------------------------------------------


SUGGESTION_LENGTH_MAX = 200
"""Maximum length of a suggested rule; nobody would read a longer one."""

_HOST = r"(?i)https?://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#]|\Z)"


def suggest_rule(call: Call) -> str:
    """Return the narrowest rule that covers `call`; '' when no rule is safe."""
    rule = _rule(call)
    safe = rule.isprintable() and len(rule) <= SUGGESTION_LENGTH_MAX and check_rule(rule, "allow") is None
    return rule if rule and safe else ""


def _rule(call: Call) -> str:
    command = call.arguments.get("command")
    if call.access == "command" and isinstance(command, str):
        return _command_rule(call.tool, command.strip(" \t"))
    if call.touched:
        return _path_rule(call)
    if call.tool == "WebFetch":
        match = re.compile(_HOST).match(str(call.arguments.get("url", "")))
        return f"WebFetch(domain:{match[1].lower().rstrip('.')})" if match else ""
    name = next((call.arguments[k] for k in ("subagent_type", "skill") if isinstance(call.arguments.get(k), str)), "")
    return f"{call.tool}({name})" if name and "*" not in name else call.tool if not name else ""


def _command_rule(tool: str, command: str) -> str:
    words, problem = plain_words(command)
    if problem or any("*" in word for word in words) or not command_covered(command, command):
        return ""
    return f"{tool}({command})"


def _path_rule(call: Call) -> str:
    paths = {t.path for t in call.touched} | {t.real for t in call.touched}
    writes = any(t.writes for t in call.touched)
    path = call.touched[0].path
    if len(paths) > 1 or re.search(r"[*?\[\]\\!#]|\s$|\s\)|^\s|/$", path) or not path.startswith("/"):
        return ""
    name = call.rule_name if call.rule_name == ("Edit" if writes else "Read") else call.tool
    return f"{name}(/{path})"


# --- Verdict ---------------------------------------------------------------------------------------------------------


_PLAN_REASON = "plan mode changes nothing: read, plan and report; the user ends it by choosing another mode"
_NETWORK_TOOLS = ("WebFetch", "WebSearch", "mcp__")
"""Reading tools that reach beyond this machine; they need a rule."""


def judge(call: Call, rules: Rules, mode: Mode | str, cwd: str) -> Verdict:
    """Return the verdict on `call`.

    `cwd` is the absolute current folder: relative paths of deny rules are tried from there too. Rules granted for the
    session are in `rules.allow`. An unknown mode counts as `default`. Pure, deterministic; never raises.
    """
    rule = find_matching_rule(call, rules.deny, rules, cwd)
    if rule:
        return Verdict("deny", _why_deny(call, rule), rule)
    changes = call.access in ("write", "command") or any(t.writes for t in call.touched)
    if mode == "plan" and changes:
        return Verdict("deny", _PLAN_REASON)
    for touched in call.touched:
        name = protected_name(touched, rules.base) if touched.writes else ""
        if name:
            return _ask(call, f"{name} is protected: what stands there runs or is obeyed later")
    if mode == "bypassPermissions":
        return Verdict("allow", "mode bypassPermissions")
    rule = find_matching_rule(call, rules.ask, rules, cwd)
    if rule:
        return _ask(call, f"the rule {visible(rule)} asks", rule)
    return _by_rule_or_mode(call, rules, mode)


def is_read_denied(path: str, real: str, rules: Rules, cwd: str) -> bool:
    """Whether a `Read` deny rule matches a file, so that listings and searches must omit it."""
    touched = Touched(path, path, real, inside=True, writes=False)
    denying = (parse_rule(text) for text in rules.deny)
    return any(r.tool == "Read" and (r.problem or path_matches_rule(touched, r, rules, cwd)) for r in denying)


def _by_rule_or_mode(call: Call, rules: Rules, mode: str) -> Verdict:
    if not call.touched:
        rule = find_allow_rule(call, rules)
        if rule:
            return Verdict("allow", f"rule {visible(rule)}", rule)
        if call.access == "none" or (call.access == "read" and not call.tool.startswith(_NETWORK_TOOLS)):
            return Verdict("allow", "it changes nothing outside the session")
        return _ask(call, _why_ask(call), suggest=True)
    deciding = ""
    for touched in call.touched:
        free = touched.inside and (not touched.writes or mode == "acceptEdits")
        rule = "" if free else allow_rule_for_path(call, touched, rules)
        if not free and not rule:
            return _ask(call, _why_path(touched), suggest=True)
        deciding = rule or deciding
    if call.access == "command" and not find_allow_rule(call, rules):
        return _ask(call, "a command that no rule allows", suggest=True)
    return Verdict("allow", f"rule {visible(deciding)}" if deciding else f"mode {mode}: inside the roots", deciding)


def _why_deny(call: Call, rule: str) -> str:
    if call.access == "command" and len(str(call.arguments.get("command", ""))) > LENGTH_MAX:
        return (
            f"the command has {TOO_LONG}, too many to see whether the user's rule {visible(rule)} forbids it; "
            "write its text to a file and let a short command use that"
        )
    return f"the user's rule {visible(rule)} forbids this; do not look for a way around it"


def _why_path(touched: Touched) -> str:
    if touched.inside:
        return f"it changes {visible(touched.given)}"
    verb = "changes" if touched.writes else "reads"
    real = "" if touched.real == touched.path else f" (really {visible(touched.real)})"
    return f"it {verb} {visible(touched.path)}{real}, outside the session's folders"


def _why_ask(call: Call) -> str:
    command = call.arguments.get("command")
    if call.access == "command" and isinstance(command, str):
        problem = plain_words(command)[1]
        if problem == TOO_LONG:
            return f"the command has {problem}, so it is not read and no rule can allow it"
        return f"the command holds {problem}, so no rule can allow it" if problem else "no rule allows this command"
    return f"no rule allows {visible(call.tool)}"


def _ask(call: Call, reason: str, rule: str = "", *, suggest: bool = False) -> Verdict:
    return Verdict("ask", reason, rule, suggest_rule(call) if suggest else "", shown_call(call.arguments))
