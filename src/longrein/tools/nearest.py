"""The name a person or a model probably meant."""

from collections.abc import Iterable


def nearest(word: str, names: Iterable[str]) -> str:
    """The one of `names` most like `word`, or '' when none is near. Case does not count; ties go to the first."""
    best, best_score = "", 0.49
    for name in names:
        score = likeness(word.lower(), name.lower())
        if score > best_score:
            best, best_score = name, score
    return best


def likeness(one: str, other: str) -> float:
    """1.0 for equal words, 0.0 for words without a common pair of letters. Quadratic in the length: for names only."""
    if one == other:
        return 1.0
    if not one or not other:
        return 0.0
    if min(len(one), len(other)) >= 3 and (one in other or other in one):
        return 0.8
    return 1.0 - distance(one[:80], other[:80]) / max(len(one), len(other))


def distance(one: str, other: str) -> int:
    """Letters to insert, delete or replace (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        corner, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (a != b))
    return row[-1]
