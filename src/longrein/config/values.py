"""One value of one setting: is it what the key holds, and if not, in which words to say so."""

import re
from typing import Any

from longrein.config.keys import EFFORTS, MODES, POLICIES, PROFILES, STAYS, WIRES
from longrein.permissions import check_rule

_CHOICES = {"mode": MODES, "profile": PROFILES, "wire": WIRES, "effort": EFFORTS, "policy": POLICIES, "stay": STAYS}
COUNT_MAX = 2**53
"""A larger number is a slip."""


def problem_with(kind: str, value: Any) -> str:
    """What is wrong with a value, to stand after its key; '' when nothing is."""
    if kind in _CHOICES:
        return "" if value in _CHOICES[kind] else f"must be one of {', '.join(_CHOICES[kind])}, not {_said(value)}"
    if kind == "model":
        return "" if isinstance(value, str) and _is_model(value) else f"must be PROVIDER/MODEL, not {_said(value)}"
    if kind in ("text", "flag"):
        right = isinstance(value, str if kind == "text" else bool)
        return "" if right else f"must be {'a text' if kind == 'text' else 'true or false'}, not {_said(value)}"
    if kind in ("count", "size", "number"):
        return _number_problem(kind, value)
    if kind == "headers":
        right = isinstance(value, dict) and all(isinstance(v, str) and "\n" not in v for v in value.values())
        return "" if right else f"must be a table of texts, not {_said(value)}"
    return _list_problem(kind, value)


def _number_problem(kind: str, value: Any) -> str:
    types, least = (int, float) if kind == "number" else int, 1 if kind == "size" else 0
    right = isinstance(value, types) and not isinstance(value, bool) and least <= value <= COUNT_MAX
    what = "a number" if kind == "number" else "a whole number"
    return "" if right else f"must be {what} of {least} or more, not {_said(value)}"


def _list_problem(kind: str, value: Any) -> str:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        return f"must be a list of texts, not {_said(value)}"
    for item in value:
        problem = ""
        if kind in ("rules", "allow"):
            problem = check_rule(item, kind) or ""
        elif kind == "patterns":
            problem = _pattern_problem(item)
        if problem:
            return f"{_said(item)}: {problem}"
    return ""


def _pattern_problem(pattern: str) -> str:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        return f"is no regular expression ({error})"
    return "matches the empty text" if compiled.match("") else ""


def _is_model(name: str) -> bool:
    provider, slash, model = name.partition("/")
    return bool(provider and slash and model) and name.isprintable() and " " not in name


def _said(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return text if len(text) <= 60 else text[:57] + "…"


def from_text(kind: str, text: str) -> Any:
    """The value of an environment variable; what is no number stays text and is refused later."""
    if kind in ("count", "size", "number"):
        try:
            return int(text)
        except ValueError:
            pass
    if kind == "number":
        try:
            return float(text)
        except ValueError:
            pass
    return text
