"""Birth forms: new items that are too large are sent with only their two ends.

Every form has the handle that recalls the whole, inside a marker that only the harness can write.
"""

from collections.abc import Callable, Sequence
from math import inf

from longrein_context.events import Document, Form, Text, ToolResult, marker
from longrein_context.state.request_types import Budget, Item
from longrein_context.state.state import State

Cost = Callable[[str], int]  # Function that returns the tokens of a text

BIRTH_SHARE_MAX = 0.30  # Share of the usable window for all new results of one step
BIRTH_SHARE_MIN = 0.05  # Share that they get in any case, however full the window is
BIRTH_TOKENS_MAX = 50_000  # Limit of that share in tokens
OVERSIZE_SHARE = 0.50  # Share of the room that results take which do not fit into it
WORDS_SHARE_MAX = 0.40  # Largest share of the usable window for new user messages
TRIM_TRIES_MAX = (
    4  # Limit of attempts: the ends of a text may have more tokens per character than its middle
)
HEAD_SHARE = (
    0.4  # Share of the head in a trimmed text. The tail gets more, because errors are at the end.
)


def births(state: State, budget: Budget, *, roomy: bool = False) -> tuple[Form, ...]:
    """Return the birth forms of items that the next request sends for the first time; other items
    go whole.

    A batch of results is shown whole once if the view then stays below the share at which a summary
    is prepared. A larger batch takes at most `min(30 % of usable, 50k)` tokens or half of what is
    left below that share, so that the next page of it fits as well; the user's messages at most
    40 % of usable; both less if the view leaves less.
    Messages are shortened further only without `roomy`, which says that room is made first. The
    smallest items are kept whole first. The `seed` profiles shorten nothing that the window holds.
    """
    fresh = [item for item in _unsent_items(state) if item.form == "full"]
    results = [item for item in fresh if item.kind == "result"]
    words = [item for item in fresh if item.kind == "user" and isinstance(item.part, Text)]
    usable = budget.usable_tokens
    most_words = usable * WORDS_SHARE_MAX
    if state.profile.startswith("seed") and state.view_tokens <= budget.window_tokens:
        most = most_words = inf
    else:
        said = sum(state.gauge.tokens_of(item.part) for item in words)
        came = sum(state.gauge.tokens_of(item.part) for item in results)
        before = state.view_tokens - said - came
        kept = min(said, most_words)
        most = min(usable * BIRTH_SHARE_MAX, BIRTH_TOKENS_MAX)
        if usable - state.view_tokens < most:
            least = usable * BIRTH_SHARE_MIN
            left = usable - before
            most = min(most, max(left - kept, least))
            if not roomy:
                most_words = min(most_words, max(left - min(came, most), least))
        quiet = budget.prepare_share * usable - before - kept
        most = max(most, quiet if came <= quiet else quiet * OVERSIZE_SHARE)
    forms = [*_birth_forms(state, results, most), *_birth_forms(state, words, most_words)]
    return tuple(sorted(forms, key=lambda form: state.index[form.handle]))


def _birth_forms(state: State, fresh: list[Item], limit: float) -> list[Form]:
    """Return the forms that keep `fresh` within `limit` tokens, the smallest items whole first."""
    if not fresh:
        return []
    cost = state.gauge.tokens_of_text
    texts = {item.handle: birth_text(item, state.nonce) for item in fresh}
    wanted = {f"r{one.seq}": one.lines for one in state.ledger.wanted.values()}
    forms = []
    for item, share in _shares(fresh, texts, limit, cost):
        text = texts[item.handle]
        if cost(text) > share:
            kept = wanted.get(item.handle, ())
            text = trim_to_tokens(text, share, item.handle, state.nonce, cost, kept)
        elif not any(
            isinstance(part, Document) and part.media.startswith("text/") for part in _parts(item)
        ):
            continue
        forms.append(Form(item.handle, "trimmed", text))
    return forms


def births_gain(state: State, forms: Sequence[Form]) -> int:
    """Return the tokens that birth forms remove from the view."""
    gauge = state.gauge
    shorter = [(state.items[state.index[form.handle]].part, Text(form.text)) for form in forms]
    return sum(gauge.tokens_of(whole) - gauge.tokens_of(born) for whole, born in shorter)


def _unsent_items(state: State) -> list[Item]:
    found = []
    for at in range(len(state.items) - 1, state.context_items - 1, -1):
        item = state.items[at]
        if item.kind in ("result", "user") and item.seqs[0] > state.sent_reach:
            found.append(item)
        elif item.seqs[1] <= state.sent_reach:
            break
    return found[::-1]


def _parts(item: Item) -> Sequence[object]:
    return item.part.parts if isinstance(item.part, ToolResult) else (item.part,)


def _shares(
    fresh: list[Item], texts: dict[str, str], limit: float, cost: Cost
) -> list[tuple[Item, float]]:
    sized = sorted(
        ((cost(texts[i.handle]), n, i) for n, i in enumerate(fresh)), key=lambda s: s[:2]
    )
    shares, left = [], limit
    for done, (tokens, _, item) in enumerate(sized):
        share = left / (len(sized) - done)
        left -= min(tokens, share)
        shares.append((item, share))
    return shares


def birth_text(item: Item, nonce: str) -> str:
    """Return all text of an item as first shown; a document by its two ends."""
    shown = []
    for part in _parts(item):
        if isinstance(part, Text):
            shown.append(part.text)
        elif isinstance(part, Document) and part.media.startswith("text/"):
            shown += [part.head, _gap(part, item.handle, nonce), part.tail]
    return "\n".join(filter(None, shown))


def _gap(part: Document, handle: str, nonce: str) -> str:
    first, last = part.head.count("\n") + 1, part.lines - part.tail.count("\n")
    return marker(
        nonce,
        "elided",
        f"lines {first + 1} to {max(first + 1, last - 1)} of {part.lines} ({part.size_bytes} "
        "bytes) are not shown; "
        f'Recall(handle="{handle}", lines="{first + 1}-{first + 200}") brings any of them',
    )


def trim_to_tokens(
    text: str,
    tokens_max: float,
    handle: str,
    nonce: str,
    cost: Cost,
    kept: Sequence[str] = (),
) -> str:
    """Trim `text` to about `tokens_max` tokens as counted by `cost`, in any script.

    `kept`: lines of it that stay, if they take at most half of that.
    """
    chars = tokens_max * len(text) / max(1, cost(text))
    for _ in range(TRIM_TRIES_MAX):
        shown = trim(text, round(chars), handle, nonce, kept)
        tokens = cost(shown)
        if tokens <= tokens_max:
            break
        chars *= 0.95 * tokens_max / tokens
    return shown


def trim(text: str, chars_max: int, handle: str, nonce: str, kept: Sequence[str] = ()) -> str:
    """Return head and tail of `text` in about `chars_max` characters, cut at line ends where
    possible, with the lines `kept` of what is cut out.
    """
    kept = kept if 2 * len("\n".join(kept)) <= chars_max else ()
    chars_max -= len("\n".join(kept))
    head = _cut_head(text, round(chars_max * HEAD_SHARE))
    tail = _cut_tail(text, chars_max - round(chars_max * HEAD_SHARE))
    lines, first = text.count("\n") + 1, head.count("\n") + 1
    last = lines - tail.count("\n")
    gone = f"{len(text) - len(head) - len(tail)} characters (lines {first} to {last} of {lines})"
    note = f'{gone} are not shown; Recall(handle="{handle}") brings them'
    between = [line for line in kept if line not in head and line not in tail]
    return "\n".join([head, marker(nonce, "elided", note), *between, tail])


def _cut_head(text: str, chars: int) -> str:
    cut = text.rfind("\n", 0, chars)
    return text[: cut if cut > chars // 2 else chars]


def _cut_tail(text: str, chars: int) -> str:
    if chars <= 0:
        return ""
    start = len(text) - chars
    cut = text.find("\n", start)
    return text[cut + 1 if 0 <= cut < start + chars // 2 else start :]
