"""Lines of a read that hold words of the user's open request.

When the conversation shrinks, these lines stay: a model that no longer saw them would read the file
again. A word that stands in many lines of a text says nothing about any of them and is left out, so
that no list of common words is needed, in any language.
"""

import re

REQUEST_CHARS_MAX = 4_000  # Characters of a request that are looked at, its last
HITS_MAX = 8  # A word that a text holds more often says nothing about a line
LINES_MAX = 4  # Limit of the lines of one text
LINE_CHARS_MAX = 300  # Longer lines are data
DENSE = "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]"
"""A character of a script whose words are short or not parted by blanks."""
WORD = rf"(?:(?!{DENSE})\w){{3,}}|(?=({DENSE}{{2}}))"


def wanted_lines(text: str, request: str) -> tuple[str, ...]:
    """Return the lines of `text` that hold words of `request`, those with rare words first."""
    folded = text.casefold()
    lines, folded_lines = text.split("\n"), folded.split("\n")
    worth: dict[int, float] = {}
    for word in request_words(request):
        if 0 < folded.count(word) <= HITS_MAX:
            rows = [row for row, line in enumerate(folded_lines) if word in line]
            worth |= {row: worth.get(row, 0.0) + 1 / len(rows) for row in rows}
    best = sorted(worth, key=lambda row: (-worth[row], row))
    return tuple(lines[row] for row in best if len(lines[row]) <= LINE_CHARS_MAX)[:LINES_MAX]


def request_words(request: str) -> dict[str, None]:
    """Return the words of a request, without their endings, so that `keys` finds `key`; of a dense
    script each two neighbours.
    """
    matches = re.finditer(WORD, request[-REQUEST_CHARS_MAX:].casefold())
    words = (match[1] or match[0] for match in matches)
    return dict.fromkeys(word[: max(3, (3 * len(word) + 2) // 4)] for word in words)
