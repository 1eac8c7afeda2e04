"""What a query means, and where a text answers it. Pure.

Words apart are all wanted, in any order; words in double quotes are wanted as they stand. Every word is a piece of
text, so `parse` finds `parser_of`; case does not count. That needs no notion of a language, and so finds Chinese too.
"""

import re

import msgspec

WORDS_MAX = 16
"""Words of a query; further ones are dropped."""
WORD_CHARS_MAX = 300
"""Of one word or quoted phrase."""
SNIPPET_CHARS = 160
"""Of a line that is shown with what was found in it."""
PLACES_MAX = 200
"""Places of the rarest word that are compared for the one with most of the others near."""
NEAR_CHARS = 200
"""How near."""


class Query(msgspec.Struct, frozen=True):
    """What is looked for, in small letters."""

    words: tuple[str, ...]
    """All of them must occur; none: nothing is looked for."""
    phrase: str
    """All of it as it was written; a place where it stands like that is shown before others."""


class Place(msgspec.Struct, frozen=True):
    """Where a text answers a query."""

    start: int
    """Offset of the best place."""
    length: int
    """Characters there."""
    count: int
    """How often the whole query, or where it never stands as it was written its longest word, occurs."""
    exact: bool
    """Whether the query stands there as it was written."""


def query_of(text: str) -> Query:
    """`text` as the user or the model wrote it."""
    pairs = re.findall(r'"([^"]+)"|(\S+)', text)
    words = [small(quoted or word.strip('"'))[:WORD_CHARS_MAX] for quoted, word in pairs]
    wanted = tuple(dict.fromkeys(word for word in words if word.strip()))[:WORDS_MAX]
    return Query(wanted, small(" ".join(text.replace('"', " ").split())))


def small(text: str) -> str:
    """`text` in small letters, each character still in its place."""
    low = text.lower()
    if len(low) != len(text):
        low = "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
    return low if low.isascii() else low.replace("ς", "σ")


def place_of(text: str, query: Query) -> Place | None:
    """The best place for `query` in `text`, which is in small letters; None unless every word occurs."""
    if not query.words or any(word not in text for word in query.words):
        return None
    at = text.find(query.phrase)
    if at >= 0:
        return Place(at, len(query.phrase), text.count(query.phrase), exact=True)
    word = max(query.words, key=len)
    others = [other for other in query.words if other != word]
    return Place(_best(text, word, others), len(word), text.count(word), exact=len(query.words) == 1)


def _best(text: str, word: str, others: list[str]) -> int:
    """Offset of `word` where most of `others` are near; the first of equals."""
    best, most, at = text.find(word), -1, -1
    for _ in range(PLACES_MAX if others else 0):
        at = text.find(word, at + 1)
        if at < 0:
            break
        around = text[max(0, at - NEAR_CHARS) : at + len(word) + NEAR_CHARS]
        near = sum(other in around for other in others)
        if near > most:
            best, most = at, near
    return best


def line_of(text: str, at: int) -> int:
    """Number of the line that holds offset `at`, from 1."""
    return text.count("\n", 0, at) + 1


def snippet(text: str, place: Place) -> str:
    """The line around `place`, cut on both sides where it is long, on one line and without control characters."""
    first = text.rfind("\n", 0, place.start) + 1
    last = text.find("\n", place.start)
    last = len(text) if last < 0 else last
    room = max(SNIPPET_CHARS - place.length, 40) // 2
    start, end = max(first, place.start - room), min(last, place.start + min(place.length, SNIPPET_CHARS) + room)
    shown = " ".join("".join(sign if sign.isprintable() else " " for sign in text[start:end]).split())
    return ("…" if start > first else "") + shown + ("…" if end < last else "")
