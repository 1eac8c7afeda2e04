"""Texts of the terminal in the user's language. The catalogues are keyed by the English text.

`translate` is called where a text is about to be drawn, never on what a model, a file or a command
says. A key may hold placeholders: `{count} queued` stands for `3 queued`.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

PLACEHOLDER = re.compile(r"\{(\w+)\}")
TEXTS_WITHIN = ("why", "what", "how", "place")
"""Placeholders for texts of longrein, which are translated too; others stand for names, figures
and what a user or a model wrote.
"""
VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
"""Variables that name the language, the strongest first."""


class Catalogue(msgspec.Struct, frozen=True):
    """Texts of one language."""

    texts: Mapping[str, str]
    """English text without placeholders -> its translation."""
    patterns: tuple[tuple["re.Pattern[str]", str], ...]
    """(pattern of the English text, translation with placeholders), in the order of trial."""


_NONE = Catalogue({}, ())
_in_use: list[Catalogue] = [_NONE]
"""The catalogue in use; one language for the process, as there is one terminal."""


def use_language(name: str) -> None:
    """Translate all that is drawn from now on: `en` or `zh`."""
    found = _NONE
    if name == "zh":
        found = _catalogue(read_texts(name))
    _in_use[0] = found
    _looked_up.cache_clear()


def read_texts(language: str) -> dict[str, str]:
    """Return the texts of `texts_LANGUAGE.toml`: the English one -> its translation."""
    import tomllib

    path = os.path.join(os.path.dirname(__file__), f"texts_{language}.toml")
    with open(path, "rb") as file:
        return tomllib.load(file)


def language_of(environ: Mapping[str, str]) -> str:
    """Return the language that the environment names, `zh` or `en`."""
    named = next((environ[name] for name in VARIABLES if environ.get(name)), "")
    return "zh" if named.lower().startswith("zh") else "en"


def translate(text: str) -> str:
    """Return `text` in the language in use; as it is where the catalogue lacks it. Blanks around
    it are kept.
    """
    return _looked_up(text) if _in_use[0].texts and not text.isspace() else text


@lru_cache(maxsize=4_096)
def _looked_up(text: str) -> str:
    catalogue, bare = _in_use[0], text.strip()
    found = catalogue.texts.get(bare)
    if found is None:
        found = next(
            (
                _filled(shown, match)
                for pattern, shown in catalogue.patterns
                if (match := pattern.fullmatch(bare))
            ),
            bare,
        )
    return text.replace(bare, found, 1) if bare else text


def _filled(shown: str, match: "re.Match[str]") -> str:
    return PLACEHOLDER.sub(
        lambda name: translate(match[name[1]]) if name[1] in TEXTS_WITHIN else match[name[1]],
        shown,
    )


def _catalogue(texts: Mapping[str, str]) -> Catalogue:
    with_places = sorted(
        (key for key in texts if PLACEHOLDER.search(key)),
        key=lambda key: (_rank(key), -len(key)),
    )
    return Catalogue(
        {key: shown for key, shown in texts.items() if key not in with_places},
        tuple((_pattern(key), texts[key]) for key in with_places),
    )


def _rank(key: str) -> int:
    """Return 0 for a key that begins with another text, 1 for one that begins with words, 2 for one
    that begins with a name: the first is the outermost, the last matches most.
    """
    first = PLACEHOLDER.match(key)
    if first is None:
        return 1
    return 0 if first[1] in TEXTS_WITHIN else 2


def _pattern(key: str) -> "re.Pattern[str]":
    parts = PLACEHOLDER.split(key)
    return re.compile(
        "".join(f"(?P<{part}>.*?)" if n % 2 else re.escape(part) for n, part in enumerate(parts)),
        re.DOTALL,
    )
