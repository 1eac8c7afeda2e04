"""Lines put back after a background summary: names used meanwhile that the summary does not have.

A background summary knows nothing of the steps made meanwhile. Names that those steps use, and that
only the replaced span explains, would be missing from the next request on.
"""

from longrein_context.clearing.text_features import identifiers, line_key
from longrein_context.state.request_types import Item
from longrein_context.state.state import State
from longrein_context.state.token_estimate import estimate_text
from longrein_context.summary.summary_text import part_texts, take_fitting

LINE_CHARS_MAX = 300  # Longer lines are cut


def reexpand_lines(state: State, span: tuple[int, int], summary: str, tokens_max: int) -> str:
    """Return the newest line of the span for each name used after it and missing from `summary`.

    Each line names its source (`r412: …`). At most `tokens_max` tokens, the names used last first;
    '' without any.
    """
    items = state.conversation
    after = [item for item in items if item.seqs[0] > span[1]]
    known = dict.fromkeys(identifiers(summary))
    for item in after:
        if not item.mine:  # a later result is visible anyway
            known.update(
                dict.fromkeys(name for text in part_texts(item.part) for name in identifiers(text))
            )
    wanted = [name for name in _used(after) if name not in known]
    if not wanted:
        return ""
    return "\n".join(
        take_fitting(_lines(items, span, wanted), tokens_max, lambda line: estimate_text(line) + 1)
    )


def _used(after: list[Item]) -> list[str]:
    """Return the names in what the model wrote after the span, the last first."""
    found: dict[str, None] = {}
    for item in reversed(after):
        if item.kind in ("text", "call"):
            found.update(
                dict.fromkeys(name for text in part_texts(item.part) for name in identifiers(text))
            )
    return list(found)


def _lines(items: list[Item], span: tuple[int, int], wanted: list[str]) -> list[str]:
    """Return the newest line of the span for each of `wanted`."""
    missing, found = dict.fromkeys(wanted), {}
    for item in reversed(items):
        if not missing:
            break
        if item.kind in ("user", "summary") or not span[0] <= item.seqs[0] <= span[1]:
            continue
        for text in part_texts(item.part):
            for line in text.splitlines():
                if line_key(line):
                    for name in [name for name in identifiers(line) if name in missing]:
                        found[name] = f"{item.handle}: {line.strip()[:LINE_CHARS_MAX]}"
                        del missing[name]
    return list(dict.fromkeys(found[name] for name in wanted if name in found))
