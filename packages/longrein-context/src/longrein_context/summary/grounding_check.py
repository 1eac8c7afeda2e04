"""Audit of a summary's prose: a sentence that names something absent from the summarised span is
struck, and one that points to no entry is set apart.

The audit is deterministic and narrow. Paths, commands, identifiers, hashes, quotations, and numbers
that look like facts must occur in the span; this removes invented names (poisoning). What remains
is a claim of the summariser, which needs a pointer (`pointers`). Sentences that give orders against
the user are struck too, by a few plain patterns. That is no security boundary; the protection is
the label that the summary is reference.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Literal

import msgspec

from longrein_context.events.escape import one_line, whole_number
from longrein_context.summary.pointers import Verdict

QUOTE_WORDS_MIN = (
    3  # A shorter quotation is a word in quotation marks, not a claim about what was said
)
TRIES_MAX = 5_000  # Matches examined one by one before a regular expression takes over
MISSES_MAX = 20  # Number of claims not found before the words of the texts are indexed
_WORD = r"[A-Za-z0-9_]+"

Kind = Literal["code", "path", "name", "number", "quote"]


class Claim(msgspec.Struct, frozen=True):
    """Something that prose names."""

    kind: Kind
    text: str


class AuditResult(msgspec.Struct, frozen=True):
    """Prose, parted by what bears it."""

    prose: str  # Sentences that point to an entry
    unchecked: str  # Sentences that point nowhere
    struck: tuple[str, ...]  # Each claim, order or sentence that was removed


class ClaimLookup:
    """Lookup of claims in texts. Built once; a lookup is a search (about 0.5 ms a MB).

    After some claims that are not found, all words are indexed once (80 ms a MB), so that further
    misses cost nothing.

    `roots`: folders that a path may be relative to. `last`: handles up to this entry are valid
    names.
    """

    def __init__(self, texts: Iterable[str], roots: Iterable[str] = (), last: int = 0) -> None:
        self._text = "\n".join(texts)
        self._roots = tuple(root.rstrip("/") + "/" for root in roots)
        self._last = last
        self._folded: str | None = None
        self._known: dict[Claim, bool] = {}
        self._misses = 0
        self._words: frozenset[str] | None = None
        self._numbers: frozenset[str] = frozenset()

    def __call__(self, claim: Claim) -> bool:
        """True if the texts contain the claim."""
        known = self._known.get(claim)
        if known is None:
            known = self._known[claim] = self._look(claim)
        return known

    def _look(self, claim: Claim) -> bool:
        match claim.kind:
            case "number":
                return any(self._bounded(form, number=True) for form in _spellings(claim.text))
            case "quote":
                return self._quoted(claim.text)
            case _:
                text = claim.text.strip()
                bare = text.strip(" .,;:'\"()")
                return (
                    self._named(text)
                    or (bare != text and self._named(bare))
                    or self._composed(text)
                )

    def _named(self, text: str) -> bool:
        if not text:
            return True
        handle = re.fullmatch(r"r(\d{1,12})(?:\.\d{1,6})?", text)
        if handle is not None and 0 < int(handle[1]) <= self._last:
            return True
        if self._bounded(text):
            return True
        return any(
            text.startswith(root) and self._bounded(text[len(root) :]) for root in self._roots
        )

    def _bounded(self, text: str, *, number: bool = False) -> bool:
        """True if `text` occurs and is not part of a longer word."""
        if self._words is not None and not self._may(text, number=number):
            return False
        at, tries = self._text.find(text), 0
        while at >= 0:
            tries += 1
            if tries > TRIES_MAX:  # it is often part of longer words
                return self._search(text, at, number=number)
            before, after = self._text[at - 1 : at], self._text[at + len(text) : at + len(text) + 1]
            goes_on = after.isdigit() if number else _wordy(after) and _wordy(text[-1])
            if not goes_on and not (_wordy(before) and _wordy(text[0])):
                return True
            at = self._text.find(text, at + 1)
        self._missed()
        return False

    def _search(self, text: str, at: int, *, number: bool) -> bool:
        ends = ""
        if _wordy(text[-1]):
            ends = r"(?!\d)" if number else r"(?![A-Za-z0-9_])"
        start = r"(?<![A-Za-z0-9_])" if _wordy(text[0]) else ""
        return re.compile(start + re.escape(text) + ends).search(self._text, at) is not None

    def _missed(self) -> None:
        self._misses += 1
        if self._misses == MISSES_MAX:
            self._words = frozenset(re.findall(_WORD, self._text))
            self._numbers = frozenset(re.findall(r"(?<![A-Za-z0-9_])[0-9]+", self._text))

    def _may(self, text: str, *, number: bool) -> bool:
        """True if each word of `text` is a word of the texts; otherwise it cannot occur."""
        words = self._words or frozenset()
        pieces = re.findall(_WORD, text)
        if number:
            return all(piece in self._numbers or piece in words for piece in pieces)
        return all(piece in words for piece in pieces)

    def _composed(self, text: str) -> bool:
        """True if each piece of a composed name (line, call, `Class.method`) occurs. Commands
        must be whole.
        """
        lined = re.fullmatch(r"(\S+?):(?:L?(\d+))(?:[-–:]L?(\d+))?", text)
        if lined is not None:
            numbers = [n for n in lined.groups()[1:] if n]
            return self._named(lined[1]) and all(self._bounded(n, number=True) for n in numbers)
        if " " in text and "(" not in text:
            return self._bounded(one_line(text))
        if "/" in text or not re.search(r"[.:#(]|->", text):
            return False
        pieces = [piece for piece in re.split(r"\W+", text, flags=re.ASCII) if piece]
        return bool(pieces) and all(self._bounded(piece) for piece in pieces)

    def _quoted(self, text: str) -> bool:
        if self._folded is None:
            self._folded = one_line(self._text).casefold()
        return one_line(text).casefold().strip(" .,;:!?…") in self._folded


def _wordy(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _spellings(number: str) -> tuple[str, ...]:
    plain = number.replace(",", "")
    value = whole_number(plain)
    grouped = f"{value:,}" if value > 999 and not plain.startswith("0") else plain
    return tuple(
        dict.fromkeys((number, plain, grouped, grouped.replace(",", "_"), number.removeprefix("v")))
    )


# --- Claims of a sentence -------------------------------------------------------------------------

_BRANDS = frozenset(
    (
        "node.js",
        "next.js",
        "vue.js",
        "nuxt.js",
        "three.js",
        "d3.js",
        "express.js",
        "macos",
        "iphone",
        "e.g",
        "i.e",
    )
)
_LITERALS = frozenset(("true", "false", "null", "none", "undefined", "self", "this", "ok"))
_ABOUT = r"(?:about|around|roughly|approximately|nearly|almost|some|over|under|than|least|most|to|~|≈)\s*\Z"  # noqa: E501


@cache
def _plain() -> re.Pattern[str]:
    """Return the pattern of code-like words outside backticks; the first alternative that fits
    counts.
    """
    ends = "py|pyi|js|jsx|ts|tsx|mjs|go|rs|c|h|cc|cpp|hpp|java|kt|rb|php|cs|swift|scala|lua|md|rst|txt|toml|json|jsonl"  # noqa: E501
    more = "yaml|yml|ini|cfg|conf|env|sh|bash|sql|html|css|scss|xml|csv|lock|proto|ipynb|log|db|sqlite|tf|gradle"  # noqa: E501
    return re.compile(
        r"(?P<url>https?://[^\s<>\"')\]]+)"
        r"|(?P<path>(?<![\w/.~])(?:~|\.{1,2})?/(?:[\w.@+-]+/)*[\w.@+-]+(?::\d+(?:-\d+)?)?"
        rf"|(?<![\w/.])(?:[\w@+-][\w.@+-]*/)*[\w@+-][\w.@+-]*\.(?:{ends}|{more})(?![\w/])(?::\d+(?:-\d+)?)?)"
        r"|(?P<uuid>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b)"
        r"|(?P<hash>\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b)"
        r"|(?P<name>(?<![\w-])--[a-z][\w-]+|\b\w+(?:\.\w+)*\(\)|\b[A-Za-z]\w*(?:::\w+)+"
        r"|\b[A-Za-z]*[A-Za-z0-9]_\w*[A-Za-z0-9]\b|\b_+[a-z]\w+|\b[A-Z][A-Z0-9]*-\d{2,}\b|\br\d{2,}(?:\.\d+)?\b"
        r"|\b[a-z]{2,}[A-Z]\w*\b)"
        r"|(?P<number>(?<![\w.])v?\d[\d,]*(?:\.\d+)*(?![\d,]*\d))",
        re.ASCII,
    )


_CODE = r"`+([^`\n]+)`+"
_QUOTE = r"\"([^\"\n]{8,})\"|“([^”\n]{8,})”|「([^」\n]{4,})」"


def find_claims(sentence: str) -> list[Claim]:
    """Return what `sentence` names, in no particular order."""
    found: list[Claim] = []

    def code(match: re.Match[str]) -> str:
        text = match[1].strip()
        if re.search(r"[^\W_]", text) and text.lower() not in _LITERALS:
            found.append(Claim("code", text))
        return " "

    def quote(match: re.Match[str]) -> str:
        text = next(group for group in match.groups() if group)
        if len(text.split()) >= QUOTE_WORDS_MIN or not text.isascii():
            found.append(Claim("quote", text))
            return " "
        return match[0]

    rest = re.sub(_QUOTE, quote, sentence) if "`" not in sentence else sentence
    rest = re.sub(_CODE, code, rest)
    rest = re.sub(_QUOTE, quote, rest)
    for match in _plain().finditer(rest):
        claim = _claim_of(match, rest)
        if claim is not None:
            found.append(claim)
    return found


def _claim_of(match: re.Match[str], rest: str) -> Claim | None:
    text, group = match[0].rstrip(".,;:"), match.lastgroup
    if group == "number":
        digits = sum(char.isdigit() for char in text)
        if digits < 2 or re.match(r"(?:st|nd|rd|th)\b", rest[match.end() :]):
            return None
        return None if re.search(_ABOUT, rest[: match.start()]) else Claim("number", text)
    if text.lower() in _BRANDS or not text:
        return None
    return Claim("path" if group in ("path", "url") else "name", text)


_ORDERS = (
    (
        r"\b(?:ignore|disregard|forget|override|bypass)\s+(?:(?:all|any|every|everything|what|of|the|your|his|her|"
        r"previous|prior|earlier|above|system)\s+)*(?:users?|instructions?|prompts?|rules?|constraints?|orders?)\b"
    ),
    (
        r"\b(?:do not|don't|never)\s+(?:tell|inform|ask|alert|notify|obey|listen "
        r"to)\s+(?:the\s+)?user\b"
    ),
    r"\b(?:new|updated|real|actual)\s+(?:system\s+)?(?:instructions?|prompt|orders)\s*:",
    r"\byou\s+(?:are now|must now|must obey|will now)\b",
)
"""Patterns of orders against the user or the system, as smuggled in through tool results."""


@cache
def _order() -> re.Pattern[str]:
    return re.compile("|".join(_ORDERS), re.I)


# --- Striking sentences ---------------------------------------------------------------------------

_SENTENCES = r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z0-9\"'`“(\[*])|(?<=[。！？])"
_BULLET = r"\s*(?:[-*•>]|\d{1,2}[.)])\s+(?:\[[ x>]\]\s+)?"


Check = Callable[[str], tuple[Verdict, str]]
"""Verdict on a sentence, and the sentence as it is to stand: see `Pointers.check`."""


def audit(prose: str, covered: Callable[[Claim], bool], check: Check) -> AuditResult:
    """Strike sentences of `prose` that name what is not `covered`, contradict a record, or give
    orders; part the others by whether they point to an entry.
    """
    judge = _Auditor(covered, check)
    fenced = False
    for line in prose.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            judge.keep(line)
        elif fenced:
            judge.fenced(line)
        else:
            judge.line(line)
    return AuditResult("\n".join(judge.checked), "\n".join(judge.unchecked), tuple(judge.struck))


class _Auditor:
    """Auditor of one text. Headings, lines that end with a colon and code go with the sentences
    beside them.
    """

    def __init__(self, covered: Callable[[Claim], bool], check: Check) -> None:
        self._covered, self._check = covered, check
        self.checked: list[str] = []
        self.unchecked: list[str] = []
        self.struck: list[str] = []
        self._present = self.checked
        self._lead: list[str] = []

    def keep(self, line: str) -> None:
        """Let a line stand where the last sentence stands."""
        self._present.append(line)

    def fenced(self, line: str) -> None:
        """Keep a line of code, if it occurs in the texts."""
        text = line.strip()
        if not re.search(r"[^\W_]{2}", text) or self._covered(Claim("code", text)):
            self.keep(line)
        else:
            self.struck.append(text)

    def line(self, line: str) -> None:
        """Part the sentences of a line."""
        bullet = re.match(_BULLET, line)
        start = bullet.end() if bullet is not None else 0
        if not line.strip():
            return
        if line.startswith("#") or line.rstrip().endswith((":", "：")):
            if not self._wrong(line):
                self._lead = [line]
            return
        points, unchecked = list[str](), list[str]()
        for sentence in _sentences(line[start:]):
            wrong = self._wrong(sentence)
            verdict, told = self._check(sentence)
            if verdict == "refuted" and not wrong:
                self.struck.append(sentence.strip())
            elif not wrong:
                (points if verdict == "points" else unchecked).append(told)
        for page, kept in ((self.checked, points), (self.unchecked, unchecked)):
            if kept:
                page += [*self._lead, line[:start] + "".join(kept).rstrip()]
                self._present = page
        if points or unchecked:
            self._lead = []

    def _wrong(self, sentence: str) -> bool:
        """Return whether a sentence must go, and note why."""
        wrong = [claim.text for claim in find_claims(sentence) if not self._covered(claim)]
        if _order().search(sentence):
            wrong.append(sentence.strip())
        self.struck.extend(wrong)
        return bool(wrong)


def _sentences(text: str) -> Sequence[str]:
    """Return the sentences of a line, each with the blank after it."""
    ends = [match.end() for match in re.finditer(_SENTENCES, text)]
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
