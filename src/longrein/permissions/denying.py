"""Does a deny or ask rule reach a call? When in doubt, yes."""

import re

import msgspec

from longrein.permissions.allowing import named_values
from longrein.permissions.overread import Line, Reading, lines, readings, word_set
from longrein.permissions.patterns import folded, path_pattern
from longrein.permissions.plain import LENGTH_MAX
from longrein.permissions.port import Call, Rules, Touched
from longrein.permissions.rules import READING, WRITING, Rule, glob, names, parse_rule

READERS = word_set(
    "cat tac head tail less more bat nl od xxd hexdump strings base64 base32 grep egrep fgrep rg ag ack sed awk gawk "
    "cut paste sort uniq wc tr diff cmp comm split tee cp mv ln scp rsync tar zip gzip bzip2 xz zstd 7z install dd "
    "vi vim view nano emacs ed ex source . jq yq python python3 node ruby perl php curl wget nc openssl gpg file "
    "fold fmt pr rev shuf column iconv join look pv xargs find stat readlink md5sum sha1sum sha256sum git docker"
)
"""Programs that show, copy or send what a file holds."""

WRITERS = word_set(
    "tee cp mv ln rm rmdir touch truncate sed dd install rsync scp tar unzip patch chmod chown chgrp shred unlink "
    "mkdir mkfifo perl python python3 ruby node ed ex vi vim nano git curl wget sort split"
)
"""Programs that change files named on their line."""


def reaching(call: Call, texts: tuple[str, ...], rules: Rules, cwd: str) -> str:
    """The text of the first of `texts` that reaches `call`; '' when none does."""
    if not texts:
        return ""
    given = call.arguments.get("command") if call.access == "command" else None
    parsed = [(text, parse_rule(text)) for text in texts]
    about = any(r.tool == "Bash" or (r.spec and r.tool in ("Read", "Edit", "Write")) for _, r in parsed)
    command = _read(given) if about and isinstance(given, str) else None
    for text, rule in parsed:
        if _reaches(call, rule, rules, cwd) or (command and _command_reached(command, rule, rules, cwd)):
            return text
    return ""


def _reaches(call: Call, rule: Rule, rules: Rules, cwd: str) -> bool:
    """By its name, its paths, its address or an argument."""
    if rule.problem:
        return names(rule, call.tool)
    if any(_speaks_for(rule, call.tool, t.writes) and path_reached(t, rule, rules, cwd) for t in call.touched):
        return True
    if not names(rule, call.tool):
        return not rule.spec and not call.touched and call.tool in {"Read": READING, "Edit": WRITING}.get(rule.tool, ())
    if not rule.spec:
        return True
    if call.tool == "WebFetch":
        return _host_reached(str(call.arguments.get("url", "")), rule.spec.removeprefix("domain:"))
    return any(glob(rule.spec, True).match(value) for value in (*named_values(call, rule.spec), *_started(call)))


def _started(call: Call) -> list[str]:
    """Types of the subagents that a call starts: in each of its tasks, by default, and the one that joins reports."""
    if call.tool != "Agent":
        return []
    own, tasks = str(call.arguments.get("subagent_type") or "general"), call.arguments.get("tasks")
    tasks = tasks if isinstance(tasks, list) and tasks else [{}]
    types = [str(task.get("subagent_type") or own) for task in tasks if isinstance(task, dict)]
    return [*types, "synthesis"] if call.arguments.get("synthesis") else types


def _speaks_for(rule: Rule, tool: str, writes: bool) -> bool:
    """`Read` speaks for all reading; `Edit`, and `Write` with a pattern, for all writing."""
    if rule.tool == "Read":
        return not writes or names(rule, tool)
    if rule.tool == "Edit" or (rule.tool == "Write" and rule.spec):
        return writes or names(rule, tool)
    return names(rule, tool)


def path_reached(touched: Touched, rule: Rule, rules: Rules, cwd: str) -> bool:
    """Whether either spelling of a path matches, from the session's first folder or from the present one."""
    if not rule.spec:
        return True
    return any(_matches(path, rule.spec, rules, cwd) for path in dict.fromkeys((touched.path, touched.real)))


def _matches(path: str, spec: str, rules: Rules, cwd: str) -> bool:
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


# --- commands ----------------------------------------------------------------------------------------------------


class _Command(msgspec.Struct, frozen=True):
    """A command, read once for all rules."""

    whole: str
    """With single blanks."""
    found: list[Reading] | None
    """What it may run; None where there was too much to read: then every rule about commands reaches it."""
    lines: list[Line]
    """Texts to match."""


def _read(command: str) -> _Command:
    found = readings(command) if len(command) <= LENGTH_MAX else None
    whole = " ".join(command.split()) if found is not None else ""
    return _Command(whole, found, [line for r in found or () for line in lines(r.words)])


def _command_reached(command: _Command, rule: Rule, rules: Rules, cwd: str) -> bool:
    if rule.problem:
        return rule.tool == "Bash"
    if rule.tool in ("Read", "Edit", "Write"):
        # such a rule alone, without a path, forbids the tools, not every command that could do the same
        return bool(rule.spec) and (command.found is None or _file_reached(rule, command.found, rules, cwd))
    if rule.tool != "Bash":
        return False
    if not rule.spec or command.found is None:
        return True
    regex = glob(rule.spec, True)
    if regex.match(command.whole):
        return True
    return any(regex.match(line.text, line.starts) for line in command.lines)


def _file_reached(rule: Rule, found: list[Reading], rules: Rules, cwd: str) -> bool:
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
    """Whether a word of a command may name a file that `spec` means."""
    glued = word[2:] if word.startswith("-") else ""
    for piece in dict.fromkeys((word, *(word.rpartition(sign)[2] for sign in "=@:"), glued)):
        if piece and _matches(absolute(piece, cwd, rules.home), spec, rules, cwd):
            return True
    if any(c in word for c in "*?["):
        name = spec.rstrip("/").rpartition("/")[2]
        regex = path_pattern(word.rpartition("/")[2] or "*", "/", "", True)
        return bool(regex and not any(c in name for c in "*?[") and regex.match("/" + folded(name)))
    return False


def absolute(word: str, cwd: str, home: str) -> str:
    """A word as an absolute path, `~` and `$HOME` at its start and `.` and `..` taken away."""
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
