"""Matching for `Edit` that forgives how text is written, where it is clear which place is meant. Pure.

Forgiven: blanks at the end of lines, indentation that is shifted as a whole, typographic quotes, dashes and spaces,
composed and decomposed letters.

The change from the old to the new text is applied to what stands in the file: what the model left alone stays as the
file has it, byte for byte, and an indentation that is shifted is shifted in the new lines too. Text that stands at
several places, or does not fit without a doubt, is not taken.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from itertools import accumulate
from unicodedata import category, normalize

import msgspec

from longrein.tools.diff import common_prefix
from longrein.tools.find_replace import LINE_END, Replacement, with_lf

TEXT_CHARS_MAX = 4_000_000
"""A longer file is searched for exact text only."""
OLD_CHARS_MAX, OLD_LINES_MAX = 100_000, 2_000
"""So is a file for longer text."""
MATCHES_MAX = 5
"""Places that are counted when there are several."""
TRIED_MAX = 200
"""Places with the same words that are looked at; with more it is not clear which is meant."""
BLANKS = " \t"
SPELLINGS = {
    "quotes": {"'": "\u2018\u2019\u201a\u201b\u02bc", '"': "\u201c\u201d\u201e\u201f"},
    "dashes": {"-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"},
    "no-break or typographic spaces": {" ": "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f"},
}
"""What is typed with one key and has several forms."""


class LooseMatch(msgspec.Struct, frozen=True):
    """A place where the old text stands but for how it is written."""

    replacement: Replacement
    forgiven: tuple[str, ...]
    """Differences between the file and the old text, for the model."""


class _Line(msgspec.Struct, frozen=True):
    body: str
    end: str
    """Its line end; '' for the last line."""
    start: int
    """Index of its first character."""
    flat: str
    """`plain` of the body, without blanks at its end."""


class _Span(msgspec.Struct, frozen=True):
    """Lines `first` and following of the file, from character `start` of the first up to `stop` of the last."""

    first: int
    start: int
    stop: int
    shift: str = ""
    """Blanks that the file's lines have in front and the old text has not."""
    unshift: str = ""
    """Blanks that the old text has in front and the file's lines have not."""


class _NotApplicable(Exception):
    """The change cannot be applied here without a doubt. Never leaves this file."""


def find_loose_matches(text: str, old: str, new: str, eol: str) -> list[LooseMatch]:
    """Find the places of `old`, which stands nowhere exactly, that differ from it only in writing.

    One place comes with its new text. Of several only the starts are given: it is not clear which is meant.
    """
    wanted = with_lf(old).split("\n")
    if len(text) > TEXT_CHARS_MAX or len(old) > OLD_CHARS_MAX or len(wanted) > OLD_LINES_MAX or not old.strip():
        return []
    lines = list(_lines(text))
    try:
        found = _first_few(_spelling_matches(lines, wanted)) or _first_few(_indentation_matches(lines, wanted))
        if len(found) > 1:
            return [LooseMatch(Replacement(lines[one.first].start, lines[one.first].start, ""), ()) for one in found]
        return [_apply(lines, one, wanted, with_lf(new).split("\n"), lines[one.first].end or eol) for one in found]
    except _NotApplicable:
        return []


def plain(text: str) -> str:
    """`text` with one form of each letter, quote, dash and blank."""
    return text if text.isascii() else normalize("NFC", text).translate(_spelling_table())


@cache
def _spelling_table() -> dict[int, str]:
    return {ord(form): key for forms in SPELLINGS.values() for key, all_forms in forms.items() for form in all_forms}


def _lines(text: str) -> Iterator[_Line]:
    at = 0
    for match in re.compile(LINE_END).finditer(text):
        yield _line(text[at : match.start()], match.group(), at)
        at = match.end()
    yield _line(text[at:], "", at)


def _line(body: str, end: str, start: int) -> _Line:
    return _Line(body, end, start, plain(body).rstrip(BLANKS))


def _first_few(found: Iterator[_Span]) -> list[_Span]:
    return [one for one, _ in zip(found, range(MATCHES_MAX), strict=False)]


# --- where it stands ---------------------------------------------------------------------------------------------


def _spelling_matches(lines: Sequence[_Line], wanted: Sequence[str]) -> Iterator[_Span]:
    """Places where it stands, indentation included, but for blanks at the end of lines and the forms of characters."""
    flat = [plain(line).rstrip(BLANKS) for line in wanted]
    whole_end = flat[-1] != plain(wanted[-1])  # it ends in blanks, so a line must end there
    if whole_end and not flat[-1]:
        return  # it ends in the indentation of a line that is not there
    starts = _starts([line.flat for line in lines])
    end_mark = "\n" * whole_end
    for at in _find_overlapping("\n".join(line.flat for line in lines) + end_mark, "\n".join(flat) + end_mark):
        first = bisect_right(starts, at) - 1
        last = first + len(wanted) - 1
        start = at - starts[first]
        stop = len(flat[-1]) + (start if len(wanted) == 1 else 0)
        begin = _file_index(lines[first].body, start)
        end = len(lines[last].body) if whole_end else _file_index(lines[last].body, stop)
        if begin >= 0 and end >= 0:  # else it would cut a letter of the file
            yield _Span(first, begin, end)


def _indentation_matches(lines: Sequence[_Line], wanted: Sequence[str]) -> Iterator[_Span]:
    """Places where all of its lines stand, each with the same blanks more, or less, in front."""
    rows = wanted[:-1] if wanted[-1] == "" else wanted
    bare = [plain(row).strip(BLANKS) for row in rows]
    if not any(bare):
        return
    flat = [line.flat.lstrip(BLANKS) for line in lines]
    starts = _starts(flat)
    text = "\n" + "".join(row + "\n" for row in flat)
    for tried, at in enumerate(_find_overlapping(text, "\n" + "".join(row + "\n" for row in bare))):
        if tried > TRIED_MAX:
            raise _NotApplicable
        n = bisect_right(starts, at) - 1
        here = lines[n : n + len(rows)]
        if n + len(wanted) > len(lines):
            continue  # it has a line end more
        pairs = [
            (_indentation(line.body), _indentation(row))
            for line, row, some in zip(here, rows, bare, strict=True)
            if some
        ]
        shift = _indentation_shift(pairs)
        if shift is not None:
            stop = 0 if rows is not wanted else len(here[-1].body)
            yield _Span(n, 0, stop, *shift)


def _starts(lines: Iterable[str]) -> list[int]:
    """Index at which each line begins when they are joined with one character between two."""
    return list(accumulate((len(line) + 1 for line in lines), initial=0))


def _find_overlapping(text: str, part: str) -> Iterator[int]:
    """Every index at which `part` stands, also where two of them overlap."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(BLANKS))]


def _indentation_shift(pairs: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """(blanks that the file has more, blanks that it has less) of (file's, text's) indentations; None where the lines
    differ among each other."""
    file, text = pairs[0]
    if file.endswith(text):
        more, less = file[: len(file) - len(text)], ""
    elif text.endswith(file):
        more, less = "", text[: len(text) - len(file)]
    else:
        return None
    return (more, less) if all(less + theirs == more + mine for theirs, mine in pairs) else None


# --- what is put there -------------------------------------------------------------------------------------------


def _apply(lines: Sequence[_Line], found: _Span, wanted: Sequence[str], new: Sequence[str], eol: str) -> LooseMatch:
    here = lines[found.first : found.first + len(wanted)]
    parts = [line.body for line in here]
    parts[-1] = parts[-1][: found.stop]
    parts[0] = parts[0][found.start :]
    made: list[tuple[str, str]] = []
    """Lines with their ends."""
    for a, b, c, d in _changed_ranges(wanted, new):
        if b - a == d - c:
            rows = zip(parts[a:b], wanted[a:b], new[c:d], here[a:b], strict=True)
            made += [(_apply_to_line(part, old, now, found), line.end) for part, old, now, line in rows]
        else:
            made += [(_shifted(line, found), eol) for line in new[c:d]]
    if [plain(body).rstrip(BLANKS) for body, _ in made] != [plain(_shifted(row, found)).rstrip(BLANKS) for row in new]:
        raise _NotApplicable
    text = "".join(body + (end or eol) for body, end in made[:-1]) + made[-1][0]
    replacement = Replacement(here[0].start + found.start, here[-1].start + found.stop, text)
    return LooseMatch(replacement, tuple(_forgiven_differences(parts, wanted, found)))


def _changed_ranges(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Ranges (a, b, c, d): lines a to b of `old` became c to d of `new`. One range where both have as many lines."""
    if len(old) == len(new):
        yield 0, len(old), 0, len(new)
        return
    for _, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield a, b, c, d


def _apply_to_line(part: str, old: str, new: str, found: _Span) -> str:
    """`part` of the file, which is `old`, with what makes `new` of `old`."""
    if new == old:
        return part
    if not new.strip(BLANKS):
        return new
    (lead, body, tail), (old_lead, old_body, old_tail), (_, new_body, new_tail) = map(_split_blanks, (part, old, new))
    was, now, there = _letters(old_body), _letters(new_body), _letters(body)
    if len(was) != len(there):
        raise _NotApplicable
    start = common_prefix(was, now)
    end = min(common_prefix(was[::-1], now[::-1]), len(was) - start, len(now) - start)
    middle = now[start : len(now) - end]
    lead = lead if _indentation(new) == old_lead else _indentation(_shifted(new, found))
    kept = [*there[:start], *middle, *there[len(there) - end :]]
    return lead + "".join(kept) + (tail if new_tail == old_tail else new_tail)


def _shifted(line: str, found: _Span) -> str:
    """A new line, indented as its neighbours are in the file."""
    if not line.strip(BLANKS):
        return line
    if not line.startswith(found.unshift):
        raise _NotApplicable
    return found.shift + line[len(found.unshift) :]


def _split_blanks(line: str) -> tuple[str, str, str]:
    """Blanks in front, text, blanks at the end; of a line without text all are at the end."""
    body = line.strip(BLANKS)
    lead = _indentation(line) if body else ""
    return lead, body, line[len(lead) + len(body) :]


def _letters(text: str) -> list[str]:
    """Characters with the marks that belong to them."""
    if text.isascii():
        return list(text)
    letters: list[str] = []
    for char in text:
        if letters and (category(char)[0] == "M" or "\u1160" <= char <= "\u11ff"):
            letters[-1] += char
        else:
            letters.append(char)
    return letters


def _file_index(body: str, count: int) -> int:
    """Index in `body` after so many characters of `plain(body)`; -1 inside a letter."""
    if body.isascii():
        return count
    at = seen = 0
    for letter in _letters(body):
        if seen >= count:
            break
        at, seen = at + len(letter), seen + len(plain(letter))
    return at if seen == count else -1


def _forgiven_differences(parts: Sequence[str], wanted: Sequence[str], found: _Span) -> Iterator[str]:
    """Differences between what stands in the file and the old text, in words for the model."""
    if found.shift or found.unshift:
        blanks = _blank_words(found.shift or found.unshift)
        yield f"its indentation ({blanks} {'more' if found.shift else 'less'} in the file)"
    if any(_split_blanks(part)[2] != _split_blanks(row)[2] for part, row in zip(parts, wanted, strict=True)):
        yield "blanks at the end of lines"
    pairs = [
        pair
        for part, row in zip(parts, wanted, strict=True)
        for pair in zip(_letters(_split_blanks(part)[1]), _letters(_split_blanks(row)[1]), strict=False)
        if pair[0] != pair[1]
    ]
    for name, forms in SPELLINGS.items():
        keys = "".join(forms)
        if any(plain(one) in keys for one, _ in pairs):
            yield name
    if any(plain(one) not in "'\"- " for one, _ in pairs):
        yield "composed and decomposed letters"


def _blank_words(shift: str) -> str:
    """`4 blanks`, `1 tab`."""
    word = "tab" if shift.strip("\t") == "" else "blank"
    return f"{len(shift)} {word}{'s' * (len(shift) != 1)}"
