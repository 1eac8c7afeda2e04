"""Does an allow rule cover a call? Exactly, or not at all."""

import re

from longrein.permissions.patterns import path_pattern
from longrein.permissions.plain import META, plain_words, spelled, unwrapped
from longrein.permissions.port import Call, Rules, Touched
from longrein.permissions.rules import READING, WRITING, Rule, glob, names, parse_rule

_URL = r"(?i)https?://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#][^\\\s]*)?"

ARMED = {
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
"""Options with which a program that was allowed for reading runs others or writes; a rule with `*` does not cover
them unless it names them."""


def allowing(call: Call, rules: Rules) -> str:
    """The text of an allow rule that covers `call` wholly; for paths, the rule of the last one. '' when none does."""
    found = ""
    if call.touched:
        for touched in call.touched:
            found = path_rule(call, touched, rules)
            if not found:
                return ""
        return found
    for text in rules.allow:
        rule = parse_rule(text)
        if not rule.problem and names(rule, call.tool) and _covers(call, rule):
            return text
    return ""


def path_rule(call: Call, touched: Touched, rules: Rules) -> str:
    """The allow rule that covers one path of a call: by both its own spelling and what is behind its links."""
    for text in rules.allow:
        rule = parse_rule(text)
        if rule.problem or not _speaks_for(rule, call.tool, touched.writes):
            continue
        if not rule.spec:
            if touched.inside:
                return text
            continue
        regex = path_pattern(rule.spec, rules.base, rules.home, False)
        if regex and regex.match(touched.path) and regex.match(touched.real):
            return text
    return ""


def _speaks_for(rule: Rule, tool: str, writes: bool) -> bool:
    if rule.tool == "Edit" and tool in WRITING:
        return writes
    if rule.tool == "Read" and tool in READING:
        return not writes
    return names(rule, tool)


def _covers(call: Call, rule: Rule) -> bool:
    """A call that touches no path: by its command, its address or one of its arguments."""
    command = call.arguments.get("command")
    if call.access == "command" and isinstance(command, str):
        return command_covered(command, rule.spec or "*")
    if not rule.spec:
        return True
    if call.tool == "WebFetch":
        return _host_covered(str(call.arguments.get("url", "")), rule.spec.removeprefix("domain:"))
    return any(glob(rule.spec, False).match(value) for value in named_values(call, rule.spec))


def named_values(call: Call, spec: str) -> list[str]:
    """What a spec without a path is compared with: `key:value` for each argument, and the plain value of its name."""
    named = [call.arguments[k] for k in ("subagent_type", "skill", "name") if isinstance(call.arguments.get(k), str)]
    return [*named[:1], *(f"{key}:{value}" for key, value in call.arguments.items() if spec.startswith(f"{key}:"))]


def command_covered(command: str, spec: str) -> bool:
    """Whether an allow rule's spec covers a command: plain words only; exact, or by `*` without armed options."""
    words, problem = plain_words(command)
    if problem:
        return False
    wild = "*" in spec
    wanted = _spelled_spec(spec)
    if not wanted:
        return False
    for form in dict.fromkeys((words, unwrapped(words))):
        text = spelled(form)
        if (not wild and text == wanted) or (wild and glob(wanted, False).match(text) and not _armed(form, spec)):
            return True
    return False


def _spelled_spec(spec: str) -> str:
    """The spec in the same spelling as a command; '' when it is not plain."""
    return spelled(plain_words(spec, META - {"*"})[0])


def _armed(words: tuple[str, ...], spec: str) -> bool:
    program, named = words[0].rpartition("/")[2], spec.split()
    if program == "git" and "-c" not in named and _sets_config(words[1:]):
        return True
    options = ARMED.get(program, ())
    for word in words[1:]:
        for option in options:
            if _is_option(word, option) and option not in named:
                return True
    return False


def _sets_config(words: tuple[str, ...]) -> bool:
    """Whether `-c name=value` stands before git's subcommand."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in ("-C", "--git-dir", "--work-tree", "--namespace"):
            return False
        if word.startswith("-c"):
            return True
        before = word
    return False


def _is_option(word: str, option: str) -> bool:
    """Whether a word is the option: with its value, in a bundle of short ones, or a long one cut short."""
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
