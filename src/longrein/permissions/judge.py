"""The verdict: deny over protected over ask over allow over the mode."""

from longrein.permissions.allowing import allowing, path_rule
from longrein.permissions.denying import path_reached, reaching
from longrein.permissions.plain import LENGTH_MAX, TOO_LONG, plain_words
from longrein.permissions.port import Call, Mode, Rules, Touched, Verdict
from longrein.permissions.protected import protected_name
from longrein.permissions.rules import parse_rule
from longrein.permissions.shown import shown_call, visible
from longrein.permissions.suggest import suggestion

_PLAN = "plan mode changes nothing: read, plan and report; the user ends it by choosing another mode"
_BEYOND = ("WebFetch", "WebSearch", "mcp__")
"""Reading tools that reach beyond this machine: not free."""


def judge(call: Call, rules: Rules, mode: Mode | str, cwd: str) -> Verdict:
    """What may become of `call`.

    `cwd` is the absolute present folder: a deny rule's relative path is tried from there too. Rules given for the
    session stand in `rules.allow`. An unknown mode counts as `default`. Pure; never raises; same input, same verdict.
    """
    rule = reaching(call, rules.deny, rules, cwd)
    if rule:
        return Verdict("deny", _why_deny(call, rule), rule)
    changes = call.access in ("write", "command") or any(t.writes for t in call.touched)
    if mode == "plan" and changes:
        return Verdict("deny", _PLAN)
    for touched in call.touched:
        name = protected_name(touched, rules.base) if touched.writes else ""
        if name:
            return _ask(call, f"{name} is protected: what stands there runs or is obeyed later")
    if mode == "bypassPermissions":
        return Verdict("allow", "mode bypassPermissions")
    rule = reaching(call, rules.ask, rules, cwd)
    if rule:
        return _ask(call, f"the rule {visible(rule)} asks", rule)
    return _by_rule_or_mode(call, rules, mode)


def hidden(path: str, real: str, rules: Rules, cwd: str) -> bool:
    """Whether a `Read` deny rule reaches a file, so that listings and searches must leave it out."""
    touched = Touched(path, path, real, inside=True, writes=False)
    denying = (parse_rule(text) for text in rules.deny)
    return any(r.tool == "Read" and (r.problem or path_reached(touched, r, rules, cwd)) for r in denying)


def _by_rule_or_mode(call: Call, rules: Rules, mode: str) -> Verdict:
    if not call.touched:
        rule = allowing(call, rules)
        if rule:
            return Verdict("allow", f"rule {visible(rule)}", rule)
        if call.access == "none" or (call.access == "read" and not call.tool.startswith(_BEYOND)):
            return Verdict("allow", "it changes nothing outside the session")
        return _ask(call, _why_ask(call), suggest=True)
    deciding = ""
    for touched in call.touched:
        free = touched.inside and (not touched.writes or mode == "acceptEdits")
        rule = "" if free else path_rule(call, touched, rules)
        if not free and not rule:
            return _ask(call, _why_path(touched), suggest=True)
        deciding = rule or deciding
    if call.access == "command" and not allowing(call, rules):
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
    return Verdict("ask", reason, rule, suggestion(call) if suggest else "", shown_call(call.arguments))
