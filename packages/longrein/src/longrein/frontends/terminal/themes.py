"""Themes of the terminal: the colours of each style word, and the guess whether the background is
dark or light.

`use_theme` changes `event_lines.STYLES` in place, the one table from which every line is coloured.
"""

import re
from collections.abc import Mapping

from longrein.frontends.terminal.event_lines import STYLES
from longrein_context.events.escape import whole_number

ANSI: Mapping[str, tuple[str, str]] = dict(STYLES)
"""The sixteen colours of the terminal, so that the user's own palette applies."""


DARK = {
    "dim": "#9e9e9e",
    "you": "#87d7ff",
    "ok": "#87d787",
    "bad": "#ff8787",
    "warn": "#ffd75f",
    "run": "#5fd7d7",
    "add": "#87d787",
    "del": "#ff8787",
}
LIGHT = {
    "dim": "#626262",
    "you": "#005faf",
    "ok": "#008700",
    "bad": "#af0000",
    "warn": "#875f00",
    "run": "#005f87",
    "add": "#008700",
    "del": "#af0000",
}
COLOUR_BLIND = {
    "dim": "#808080",
    "you": "#0087d7",
    "ok": "#0087d7",
    "bad": "#d75f00",
    "warn": "#af8700",
    "run": "#0087d7",
    "add": "#0087d7",
    "del": "#d75f00",
}
"""Blue and orange instead of green and red, on dark and on light backgrounds."""
LEVELS = (0, 95, 135, 175, 215, 255)
"""Red, green or blue of the colours 16 to 231 of 256."""


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of `#rrggbb`, each 0 to 255."""
    value = int(colour[1:], 16)
    return value >> 16, value >> 8 & 255, value & 255


def colour_number(colour: str) -> int:
    """Number of `#rrggbb` among 256 colours. Raises `ValueError` if it is none of them."""
    red, green, blue = rgb(colour)
    if red == green == blue and red not in LEVELS:
        return 232 + (red - 8) // 10
    return 16 + 36 * LEVELS.index(red) + 6 * LEVELS.index(green) + LEVELS.index(blue)


def _coloured(
    colours: Mapping[str, str], bold: tuple[str, ...] = ("you",)
) -> dict[str, tuple[str, str]]:
    """Return the styles of colours: ANSI attributes, and the style of prompt_toolkit."""
    heavy = {word: ("1;", "bold ") if word in bold else ("", "") for word in colours}
    styles = {
        word: (f"{heavy[word][0]}38;5;{colour_number(colour)}", heavy[word][1] + colour)
        for word, colour in colours.items()
    }
    return {**ANSI, **styles}


THEMES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "dark": _coloured(DARK),
    "light": _coloured(LIGHT),
    "ansi": ANSI,
    "colour-blind": _coloured(COLOUR_BLIND, ("you", "bad", "del")),
}
NOTES = {
    "auto": "by the background of the terminal",
    "dark": "for a dark background",
    "light": "for a light background",
    "ansi": "the sixteen colours of the terminal",
    "colour-blind": "blue and orange instead of green and red",
}


def use_theme(name: str) -> None:
    """Colour all lines that are drawn from now on by a theme of `THEMES`. Style words of no
    theme stay as they are.
    """
    STYLES.update(THEMES[name])


_chosen = [""]


def choose(name: str) -> None:
    """Remember the user's choice for the sessions that follow in this process; '' for none."""
    _chosen[0] = name


def chosen() -> str:
    """The user's choice in this process; '' without one."""
    return _chosen[0]


def theme_in_use() -> str:
    """Name of the theme in use."""
    return next(
        (
            name
            for name, styles in THEMES.items()
            if all(STYLES.get(k) == v for k, v in styles.items())
        ),
        "ansi",
    )


def is_light(colour: str) -> bool | None:
    """Return whether an answer to OSC 11 such as `rgb:ffff/ffff/dddd` is a light background;
    None for no colour.
    """
    found = re.fullmatch(
        r"rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)(/[0-9a-fA-F]+)?", colour
    )
    if found is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups()[:3])
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5)


def guessed_theme(environ: Mapping[str, str]) -> str:
    """Return the theme that COLORFGBG tells (`15;0`: light on black); '' where it is not set."""
    background = whole_number(environ.get("COLORFGBG", "").rpartition(";")[2], -1)
    if background < 0:
        return ""
    return theme_for(light=background in (7, *range(9, 16)), environ=environ)


def theme_for(*, light: bool, environ: Mapping[str, str]) -> str:
    """Return the theme for a background; a terminal of sixteen colours keeps its own."""
    many = "256color" in environ.get("TERM", "") or bool(environ.get("COLORTERM"))
    if not many:
        return "ansi"
    return "light" if light else "dark"
