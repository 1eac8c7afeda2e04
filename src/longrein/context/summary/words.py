"""Text within a budget of tokens: the user's words with their middles elided, and lines by rank."""

from collections.abc import Callable, Sequence

from longrein.context.summary.records import Word
from longrein.context.tokens import CHARS_PER_TOKEN_CODE, Gauge, estimate_text
from longrein.events import marker

WORD_TOKENS_MIN = 40
"""A message that gets less is not shown by its ends but listed by its handle."""

Cost = Callable[[str], int]
"""Calibrated tokens of a text."""


def cost_of(gauge: Gauge) -> Cost:
    """What texts cost, never guessed below the rate of code, so that the sum of parts bounds the whole."""

    def cost(text: str) -> int:
        plain = gauge.scale(max(estimate_text(text), round(len(text) / CHARS_PER_TOKEN_CODE)))
        return max(plain, gauge.tokens_of_text(text)) + 1

    return cost


def shortened(text: str, tokens: int, handle: str, nonce: str, cost: Cost, what: str = "the user's message") -> str:
    """`text` in at most `tokens`: whole, or its two ends around a marker with its handle, or the marker alone."""
    if cost(text) <= tokens:
        return text
    chars = len(text)
    for _ in range(12):
        chars = min(chars - 1, int(chars * 0.9 * tokens / max(1, cost(text[:chars]))))
        short = _ends(text, max(0, chars), handle, nonce, what)
        if chars <= 0 or cost(short) <= tokens:
            return short
        chars = int(chars * 0.8)
    return _ends(text, 0, handle, nonce, what)


def _ends(text: str, chars: int, handle: str, nonce: str, what: str) -> str:
    head = text[: chars // 2]
    tail = text[len(text) - (chars - chars // 2) :] if chars > 1 else ""
    gone = len(text) - len(head) - len(tail)
    note = marker(nonce, "elided", f'{gone} characters of {what}; Recall(handle="{handle}") brings them')
    return "\n".join(part for part in (head, note, tail) if part)


def said(words: Sequence[Word], tokens: int, nonce: str, cost: Cost) -> list[str]:
    """The messages in order in at most about `tokens`: small ones whole, long ones by their ends.

    Where there are too many even for that, the oldest but the first are listed by their handles.
    """
    listed, shown = _listed(words, tokens, cost)
    left = tokens - (cost(_list(listed, tokens // 2, nonce, cost)) if listed else 0)
    sizes = sorted((cost(word.text), at) for at, word in enumerate(shown))
    lines = [""] * len(shown)
    for done, (_, at) in enumerate(sizes):
        share = left // (len(sizes) - done)
        lines[at] = message(shown[at], share, nonce, cost)
        left -= cost(lines[at])
    if listed:
        lines.insert(1, _list(listed, tokens // 2, nonce, cost))
    return lines


def _listed(words: Sequence[Word], tokens: int, cost: Cost) -> tuple[list[Word], list[Word]]:
    """(those that are only listed, those that are shown): the first is shown, and the newest that have room."""
    least = [min(WORD_TOKENS_MIN, cost(title(word) + word.text)) for word in words]
    if sum(least) <= tokens:
        return [], list(words)
    room = tokens * 3 // 4 - (least[0] if words else 0)
    cut = len(words)
    while cut > 1 and room >= least[cut - 1]:
        cut -= 1
        room -= least[cut]
    return list(words[1:cut]), [*words[:1], *words[cut:]]


def _list(words: Sequence[Word], tokens: int, nonce: str, cost: Cost) -> str:
    """`Recall(handle="r3"), Recall(handle="r9") …`, shorter where that is too long."""
    span = f"{len(words)} messages of the user, r{words[0].seq} to r{words[-1].seq}"
    full = ", ".join(f'Recall(handle="r{word.seq}")' for word in words)
    bare = " ".join(f"r{word.seq}" for word in words)
    if cost(full) <= tokens:
        how = f"{full} bring them"
    elif cost(bare) <= tokens:
        how = f'Recall(handle="r{words[0].seq}") brings the first, and so for {bare}'
    else:
        how = f'Recall(handle="r{words[0].seq}") brings the first, Recall(query="…") finds the others'
    return marker(nonce, "elided", f"{span}: {how}")


def title(word: Word) -> str:
    """`r12 (steer): `."""
    origin = "" if word.origin == "prompt" else f" ({word.origin})"
    media = f" [with {', '.join(word.media)}]" if word.media else ""
    return f"r{word.seq}{origin}{media}: "


def message(word: Word, tokens: int, nonce: str, cost: Cost) -> str:
    """A message with its handle before it, in at most about `tokens`; whole if that fits."""
    head = title(word)
    handle = f"r{word.seq}"
    text = shortened(word.text, max(0, tokens - cost(head)), handle, nonce, cost)
    if word.gone and text == word.text:
        note = f'{word.gone} characters of the message; Recall(handle="{handle}") brings them'
        text += "\n" + marker(nonce, "elided", note)
    return head + text


def within(lines: Sequence[str], tokens: int, cost: Cost) -> list[str]:
    """The first of `lines`, best first, that fit in `tokens`."""
    kept = []
    for line in lines:
        tokens -= cost(line)
        if tokens < 0:
            break
        kept.append(line)
    return kept
