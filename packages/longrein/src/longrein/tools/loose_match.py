"""Loose matching for `Edit`: accepts a unique match that differs from the old text only in its
writing. Pure.

Ignored differences: blanks at the end of lines, indentation shifted as a whole, typographic quotes,
dashes and spaces, composed and decomposed letters.

The change from the old to the new text is applied to the file's own text: unchanged characters stay
byte for byte, and new lines get the file's indentation. Several matches, or a change that does not
apply exactly, are not accepted.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from unicodedata import category, normalize

import msgspec

from longrein.tools.diff import common_prefix
from longrein.tools.find_replace import LINE_END, Replacement, find_all, with_lf
from longrein.tools.text_encoding import counted

TEXT_CHARS_MAX = 4_000_000
"""Maximum length of a file; a longer one is searched for exact text only."""
OLD_CHARS_MAX, OLD_LINES_MAX = 100_000, 2_000
"""Maximum size of the old text; longer text must match exactly."""
MATCHES_MAX = 5
"""Matches that are listed when there are several."""
TRIED_MAX = 200
"""Candidates with the same words that are compared; more count as ambiguous."""
BLANKS = " \t"
SPELLINGS = {
    "quotes": {"'": "\u2018\u2019\u201a\u201b\u02bc", '"': "\u201c\u201d\u201e\u201f"},
    "dashes": {"-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"},
    "no-break or typographic spaces": {
        " ": "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f"
    },
}
"""Characters with several forms: difference in words -> key -> other forms."""
KEY_OF = {
    ord(form): key
    for spelling in SPELLINGS.values()
    for key, forms in spelling.items()
    for form in forms
}


class LooseMatch(msgspec.Struct, frozen=True):
    """Match of the old text that differs only in its writing."""

    replacement: Replacement
    forgiven: tuple[str, ...]
    """Differences between the file and the old text, for the model."""


class _Line(msgspec.Struct, frozen=True):
    body: str
    end: str
    """Line end; '' for the last line."""
    start: int
    """Index of the first character."""
    flat: str
    """`plain` of the body, without blanks at the end."""


class _Span(msgspec.Struct, frozen=True):
    """Matched lines of the file, from character `start` of line `first` to character `stop` of
    the last line.
    """

    first: int
    start: int
    stop: int
    shift: str = ""
    """Extra indentation of the file's lines."""
    unshift: str = ""
    """Extra indentation of the old text."""


class _NotApplicable(Exception):
    """Change that does not apply exactly. Internal to this module."""


def find_loose_matches(text: str, old: str, new: str, eol: str) -> list[LooseMatch]:
    """Find loose matches of `old`, which has no exact match.

    A single match comes with its new text. Of several matches only the starts are given.
    """
    wanted = with_lf(old).split("\n")
    if (
        len(text) > TEXT_CHARS_MAX
        or len(old) > OLD_CHARS_MAX
        or len(wanted) > OLD_LINES_MAX
        or not old.strip()
    ):
        return []
    lines = list(_lines(text))
    try:
        found = _first_few(_spelling_matches(lines, wanted)) or _first_few(
            _indentation_matches(lines, wanted)
        )
        if len(found) > 1:
            return [
                LooseMatch(Replacement(lines[one.first].start, lines[one.first].start, ""), ())
                for one in found
            ]
        return [
            _apply(lines, one, wanted, with_lf(new).split("\n"), lines[one.first].end or eol)
            for one in found
        ]
    except _NotApplicable:
        return []


def plain(text: str) -> str:
    """Normalize `text` to one form of each letter, quote, dash and blank."""
    return text if text.isascii() else normalize("NFC", text).translate(KEY_OF)


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


# --- Search ---------------------------------------------------------------------------------------


def _spelling_matches(lines: Sequence[_Line], wanted: Sequence[str]) -> Iterator[_Span]:
    """Yield matches that ignore blanks at the end of lines and the forms of characters, not
    indentation.
    """
    flat = [plain(line).rstrip(BLANKS) for line in wanted]
    whole_end = flat[-1] != plain(
        wanted[-1]
    )  # the old text ends in blanks, so a line must end there
    if whole_end and not flat[-1]:
        return  # the old text ends in the indentation of a missing line
    starts = _starts([line.flat for line in lines])
    end_mark = "\n" * whole_end
    for at in find_all(
        "\n".join(line.flat for line in lines) + end_mark, "\n".join(flat) + end_mark, 1
    ):
        first = bisect_right(starts, at) - 1
        last = first + len(wanted) - 1
        start = at - starts[first]
        stop = len(flat[-1]) + (start if len(wanted) == 1 else 0)
        begin = _file_index(lines[first].body, start)
        end = len(lines[last].body) if whole_end else _file_index(lines[last].body, stop)
        if begin >= 0 and end >= 0:  # -1: inside a letter of the file
            yield _Span(first, begin, end)


def _indentation_matches(lines: Sequence[_Line], wanted: Sequence[str]) -> Iterator[_Span]:
    """Yield matches in which all lines are indented more, or less, by the same blanks."""
    rows = wanted[:-1] if wanted[-1] == "" else wanted
    bare = [plain(row).strip(BLANKS) for row in rows]
    if not any(bare):
        return
    flat = [line.flat.lstrip(BLANKS) for line in lines]
    starts = _starts(flat)
    text = "\n" + "".join(row + "\n" for row in flat)
    for tried, at in enumerate(find_all(text, "\n" + "".join(row + "\n" for row in bare), 1)):
        if tried > TRIED_MAX:
            raise _NotApplicable
        n = bisect_right(starts, at) - 1
        here = lines[n : n + len(rows)]
        if n + len(wanted) > len(lines):
            continue  # the old text has one more line end
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
    """Return the start of each line when lines are joined with one separator character."""
    return list(accumulate((len(line) + 1 for line in lines), initial=0))


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(BLANKS))]


def _indentation_shift(pairs: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Return (extra blanks of the file, extra blanks of the text) for pairs of (file's, text's)
    indentation.

    None when the lines do not all differ by the same blanks.
    """
    file, text = pairs[0]
    if file.endswith(text):
        more, less = file[: len(file) - len(text)], ""
    elif text.endswith(file):
        more, less = "", text[: len(text) - len(file)]
    else:
        return None
    return (more, less) if all(less + theirs == more + mine for theirs, mine in pairs) else None


# --- Replacement text -----------------------------------------------------------------------------


def _apply(
    lines: Sequence[_Line], found: _Span, wanted: Sequence[str], new: Sequence[str], eol: str
) -> LooseMatch:
    here = lines[found.first : found.first + len(wanted)]
    parts = [line.body for line in here]
    parts[-1] = parts[-1][: found.stop]
    parts[0] = parts[0][found.start :]
    made: list[tuple[str, str]] = []
    """Lines with their ends."""
    for a, b, c, d in _changed_ranges(wanted, new):
        if b - a == d - c:
            rows = zip(parts[a:b], wanted[a:b], new[c:d], here[a:b], strict=True)
            made += [
                (_apply_to_line(part, old, now, found), line.end) for part, old, now, line in rows
            ]
        else:
            made += [(_shifted(line, found), eol) for line in new[c:d]]
    if [plain(body).rstrip(BLANKS) for body, _ in made] != [
        plain(_shifted(row, found)).rstrip(BLANKS) for row in new
    ]:
        raise _NotApplicable
    text = "".join(body + (end or eol) for body, end in made[:-1]) + made[-1][0]
    replacement = Replacement(here[0].start + found.start, here[-1].start + found.stop, text)
    return LooseMatch(replacement, tuple(_forgiven_differences(parts, wanted, found)))


def _changed_ranges(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (a, b, c, d): lines a to b of `old` became c to d of `new`. One range for an equal
    number of lines.
    """
    if len(old) == len(new):
        yield 0, len(old), 0, len(new)
        return
    for _, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield a, b, c, d


def _apply_to_line(part: str, old: str, new: str, found: _Span) -> str:
    """Apply the change from `old` to `new` to one line `part` of the file."""
    if new == old:
        return part
    if not new.strip(BLANKS):
        return new
    (lead, body, tail), (old_lead, old_body, old_tail), (_, new_body, new_tail) = map(
        _split_blanks, (part, old, new)
    )
    was = _letters(old_body)
    now = _letters(new_body)
    there = _letters(body)
    if len(was) != len(there):
        raise _NotApplicable
    start = common_prefix(was, now)
    end = min(common_prefix(was[::-1], now[::-1]), len(was) - start, len(now) - start)
    middle = now[start : len(now) - end]
    lead = lead if _indentation(new) == old_lead else _indentation(_shifted(new, found))
    kept = [*there[:start], *middle, *there[len(there) - end :]]
    return lead + "".join(kept) + (tail if new_tail == old_tail else new_tail)


def _shifted(line: str, found: _Span) -> str:
    """Indent a new line like its neighbours in the file."""
    if not line.strip(BLANKS):
        return line
    if not line.startswith(found.unshift):
        raise _NotApplicable
    return found.shift + line[len(found.unshift) :]


def _split_blanks(line: str) -> tuple[str, str, str]:
    """Split into leading blanks, text and trailing blanks; the blanks of a line without text are
    trailing.
    """
    body = line.strip(BLANKS)
    lead = _indentation(line) if body else ""
    return lead, body, line[len(lead) + len(body) :]


def _letters(text: str) -> list[str]:
    """Split into characters with their combining marks."""
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
    """Return the index in `body` after `count` characters of `plain(body)`; -1 inside a letter."""
    if body.isascii():
        return count
    at = seen = 0
    for letter in _letters(body):
        if seen >= count:
            break
        at, seen = at + len(letter), seen + len(plain(letter))
    return at if seen == count else -1


def _forgiven_differences(
    parts: Sequence[str], wanted: Sequence[str], found: _Span
) -> Iterator[str]:
    """Yield the differences between the file and the old text, in words for the model."""
    if found.shift or found.unshift:
        shift = found.shift or found.unshift
        blanks = counted(len(shift), "blank" if shift.strip("\t") else "tab")
        yield f"its indentation ({blanks} {'more' if found.shift else 'less'} in the file)"
    if any(
        _split_blanks(part)[2] != _split_blanks(row)[2]
        for part, row in zip(parts, wanted, strict=True)
    ):
        yield "blanks at the end of lines"
    pairs = [
        pair
        for part, row in zip(parts, wanted, strict=True)
        for pair in zip(
            _letters(_split_blanks(part)[1]), _letters(_split_blanks(row)[1]), strict=False
        )
        if pair[0] != pair[1]
    ]
    for name, forms in SPELLINGS.items():
        keys = "".join(forms)
        if any(plain(one) in keys for one, _ in pairs):
            yield name
    if any(plain(one) not in "'\"- " for one, _ in pairs):
        yield "composed and decomposed letters"
