"""Keys that the user can change: actions, names of keys, check of the settings. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from longrein.frontends.localization import translate
from longrein.frontends.terminal.event_lines import Line, cells, crop, line, pad
from longrein.settings_schema import KeyOptions, Settings
from longrein.steps.human_text import escape_line

Sequences = tuple[tuple[str, ...], ...]
"""Keys of one action, each as names of prompt_toolkit."""


class KeyAction(msgspec.Struct, frozen=True):
    """An action whose keys can be changed."""

    name: str
    """Key in the table `keys` of the settings."""
    keys: tuple[str, ...]
    """Keys where the settings name none."""
    summary: str


_USUAL = KeyOptions()

ACTIONS = (
    KeyAction("steer", _USUAL.steer, "send into the turn that goes on"),
    KeyAction("background", _USUAL.background, "background the running command (in tmux: twice)"),
    KeyAction("new_line", _USUAL.new_line, "new line"),
    KeyAction("next_mode", _USUAL.next_mode, "next permission mode"),
    KeyAction("history_search", _USUAL.history_search, "search what was sent before"),
    KeyAction("editor", _USUAL.editor, "edit the input in $VISUAL or $EDITOR"),
    KeyAction("paste_image", _USUAL.paste_image, "paste a picture of the clipboard"),
    KeyAction(
        "open_results", _USUAL.open_results, "open the last results, thinking and diffs whole"
    ),
    KeyAction("pin_todos", _USUAL.pin_todos, "pin the todo list above the input, or unpin it"),
    KeyAction("redraw", _USUAL.redraw, "redraw"),
    KeyAction("suspend", _USUAL.suspend, "stop longrein until `fg`, while commands go on"),
)

FIXED = (
    ("Enter", "send; while a turn goes on: queue for after it"),
    ("Esc, Ctrl-C", "interrupt; Ctrl-C twice leaves"),
    ("Esc Esc", "when idle and nothing is typed: go back to a prompt"),
    ("Up on an empty line", "take a queued message back; else history"),
    ("Tab", "complete"),
    ("Ctrl-D", "leave"),
    ("?", "alone on the line: show these keys"),
    ("@", "attach a file, a folder or a picture"),
    ("!COMMAND", "run COMMAND; its output joins the conversation"),
    ("#TEXT", "add TEXT to a file of instructions"),
    ("\\ and Enter", "new line, on every terminal"),
)
"""Keys and first characters that cannot be changed."""

_NAMED = {
    name: name
    for name in ("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "insert")
}
_NAMED |= {"delete": "delete", "tab": "tab", "enter": "enter", "space": " ", "backspace": "c-h"}
_NAMED |= {f"f{n}": f"f{n}" for n in range(1, 25)}
_RESERVED = {"c-c", "c-d", "c-m", "c-i", "c-h", "c-[", "escape", "enter", "tab"}
_BARE = {f"f{n}" for n in range(1, 25)} | {"insert", "pageup", "pagedown"}


def parse_key(text: str) -> tuple[str, ...]:
    """Return the names for prompt_toolkit of a key such as `ctrl-g`, `alt-enter`, `f5` or `ctrl-x
    ctrl-e`.

    Raises `ValueError` with the reason, for a key that does not exist, types text or is needed
    elsewhere.
    """
    words = text.lower().split()
    if not words:
        raise ValueError("is empty")
    names = tuple(name for word in words for name in _one_key(word))
    if len(words) == 1 and len(names) == 1 and names[0] in _RESERVED:
        raise ValueError("has a meaning of its own that stays")
    first = names[0]
    if len(first) == 1 or (
        first in _NAMED.values() and first not in _BARE and not first.startswith("c-")
    ):
        raise ValueError("types or moves; use it with ctrl or alt, or take a function key")
    return names


def _one_key(word: str) -> tuple[str, ...]:
    *modifiers, base = word.replace("--", "-minus").split("-") if word != "-" else ["-"]
    base = "-" if base == "minus" else base
    wrong = len({*modifiers} & {"ctrl", "alt", "shift"}) < len(modifiers)
    if wrong or (base not in _NAMED and len(base) != 1):
        raise ValueError("is no key; write it as ctrl-g, alt-enter, shift-tab or f5")
    alt = ("escape",) if "alt" in modifiers else ()
    if base == "enter" and "shift" in modifiers and "ctrl" not in modifiers:
        return ("escape", "enter")  # terminal_input.py reads Shift-Enter as Alt-Enter
    return (*alt, _with_modifiers(base, ctrl="ctrl" in modifiers, shift="shift" in modifiers))


def _with_modifiers(base: str, *, ctrl: bool, shift: bool) -> str:
    name = _NAMED.get(base, base)
    if len(base) == 1 and shift:
        raise ValueError("is no key: shift and a letter type the letter")
    if base == "space" and ctrl:
        return "c-@"
    if len(base) == 1 and ctrl:
        if not (base.isascii() and base.isalpha()) and base not in "\\]^_@":
            raise ValueError("is no key that terminals can tell")
        return f"c-{base}"
    if base == "tab" and shift and not ctrl:
        return "s-tab"
    if (ctrl or shift) and base in ("tab", "enter", "backspace", "space"):
        raise ValueError("is no key that terminals can tell")
    return "c-" * ctrl + "s-" * shift + name


def chosen_keys(settings: Settings) -> dict[str, Sequence[str]]:
    """Return the keys of the actions that the settings name."""
    return {
        action.name: getattr(settings.keys, action.name)
        for action in ACTIONS
        if f"keys.{action.name}" in settings.origin
    }


def keymap(chosen: Mapping[str, Sequence[str]]) -> tuple[dict[str, Sequences], list[str]]:
    """Return the keys of each action and a line for each mistake. `chosen`: action -> keys of the
    settings.

    A wrong key leaves the action its usual keys. Of two actions with one key the one that the
    settings name gets it.
    """
    found: dict[str, Sequences] = {}
    problems: list[str] = []
    owners: dict[tuple[str, ...], str] = {}
    for action in sorted(ACTIONS, key=lambda one: one.name not in chosen):
        sequences: list[tuple[str, ...]] = []
        try:
            sequences = [parse_key(key) for key in chosen.get(action.name, action.keys)]
        except ValueError as error:
            wrong = next(key for key in chosen[action.name] if _is_wrong(key))
            problems.append(
                f"keys.{action.name}: `{escape_line(wrong)}` {error}; {shown_keys(action.keys)} "
                "stays"
            )
            sequences = [parse_key(key) for key in action.keys]
        for sequence in [*dict.fromkeys(sequences)]:
            if owners.setdefault(sequence, action.name) == action.name:
                continue
            sequences = [one for one in sequences if one != sequence]
            if action.name in chosen:
                problems.append(
                    f"keys.{action.name}: the key is that of keys.{owners[sequence]} already; "
                    "left out"
                )
        found[action.name] = tuple(dict.fromkeys(sequences))
    return found, problems


def _is_wrong(key: str) -> bool:
    try:
        parse_key(key)
    except ValueError:
        return True
    return False


def shown_keys(keys: Sequence[str]) -> str:
    """Return keys for people: `Alt-Enter, Ctrl-J`."""
    return ", ".join(
        " ".join("-".join(map(str.capitalize, word.split("-"))) for word in key.split())
        for key in keys
    )


def key_rows(chosen: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str]]:
    """Return a row for each key, as `/keys` shows it: key, meaning, name of the setting ('' for
    a fixed key).
    """
    own = []
    for action in ACTIONS:
        keys = chosen.get(action.name, action.keys)
        if any(_is_wrong(key) for key in keys):
            keys = action.keys
        own.append((shown_keys(keys) or "no key", action.summary, f"keys.{action.name}"))
    return [*own, *((translate(key), summary, "") for key, summary in FIXED)]


SHORTCUTS = "?"
"""Text that shows the keys, as `/keys` does."""


MEANING_CELLS_MIN = 40
"""Cells beside the column of keys; a narrower screen has no columns."""


def shortcut_rows(chosen: Mapping[str, Sequence[str]], width: int, room: int) -> list[Line]:
    """Return the keys in at most `room` rows of `width`, shown while `?` alone is typed."""
    rows = [(escape_line(key), translate(what)) for key, what, _ in key_rows(chosen)]
    wide = max(cells(key) for key, _ in rows)
    wide = wide if wide + MEANING_CELLS_MIN <= width else 0
    shown = [line(("name", f"  {pad(key, wide)}  "), ("dim", what)) for key, what in rows]
    last = line(("dim", translate("  Enter prints them all; /help has the commands too")))
    return [crop(row, width) for row in [*shown[: max(room - 1, 0)], last]][: max(room, 0)]
