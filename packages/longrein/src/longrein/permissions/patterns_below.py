"""Path patterns of rules as they hold below another folder, such as a copy of a repository."""

import re
from collections.abc import Iterator, Sequence

from longrein.permissions.rules import folded, name_pattern, rooted


def patterns_below(pattern: str, folder: str, base: str, home: str) -> list[str]:
    """Return what a path pattern matches below `folder`, as patterns that start with `/` there.

    Example: `//srv/*/app/keys` matches `/keys` below `/srv/eu/app`. Letter case does not count.
    """
    root, rest, anchored = rooted(pattern, base, home)
    if root is None:
        return []
    names = [re.sub(r"([\\*?\[])", r"\\\1", name) for name in root.split("/") if name]
    own = [name for name in rest.split("/") if name]
    names += own if anchored or len(own) > 1 else ["**", *own]
    states = {0}
    for name in filter(None, folder.split("/")):
        states = {after for state in states for after in _states_after(names, state, name)}
    end = "/" * rest.endswith("/")
    left = ["/".join(names[state:]) for state in sorted(states)]
    return [f"/{one}{end}" if one else "/**" for one in left]


def _states_after(names: Sequence[str], state: int, name: str) -> Iterator[int]:
    """Yield how many of the `names` of a pattern are over after one more name of a path."""
    if state == len(names):
        yield state  # all below a match is matched
    elif names[state] == "**":
        yield state
        yield from _states_after(names, state + 1, name)
    elif name_pattern(folded(names[state]), loose=True).fullmatch(folded(name)):
        yield state + 1
