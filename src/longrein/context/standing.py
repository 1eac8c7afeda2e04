"""Whether an earlier reading of a file still stands in the view, so that it need not be given once more."""

from longrein.context.state import State


def standing(state: State, path: str, digest: str, first: int, last: int) -> str:
    """Handle of a reading of `path` with this content that stands whole in the view and covers the lines; else ''.

    One that a re-reading was already pointed at does not count: who asks twice gets the lines.
    """
    for reading in reversed(state.readings.get(path, ())):
        at = state.index.get(reading.handle, -1)
        covers = reading.first <= first and last <= reading.last
        if reading.hash == digest and covers and not reading.told and at >= 0 and state.items[at].form == "full":
            return reading.handle
    return ""
