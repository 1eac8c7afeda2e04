"""Fuzzy matching of file and folder names, for `@`. Pure; fast enough for each key on 100,000
files.

All paths stand in one text, shortest first, so that a search is one pass of the C library, and the
first matches are the best ones.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

MATCHES_MAX = 1_000
"""Matches of one kind that are looked at; a search that has more shows that there are more."""


class FileMatcher:
    """Files of one folder and the folders above them, to be searched with each key."""

    def __init__(self, files: Iterable[str]) -> None:
        """`files`: paths relative to the folder."""
        paths = dict.fromkeys(files)
        self.paths: list[str] = sorted(
            [*paths, *_folders(paths)], key=lambda path: (len(path), path)
        )
        """Files, and folders with `/` at their end; shortest first."""
        rows = ["\n" + path.replace("\n", " ").lower() for path in self.paths]
        self._text = "".join(rows)
        self._starts = list(accumulate(map(len, rows), initial=0))
        self._nothing = ""
        """A search without a match; a longer one has none either."""

    def find(self, typed: str, most: int) -> tuple[list[str], int]:
        """Return up to `most` matches, best first, and how many were found, at most `MATCHES_MAX`
        of each kind.

        Names that begin with `typed` come first, then paths that hold it, then paths that hold its
        letters in order. Case does not matter.
        """
        wanted = typed.lower().replace("\n", " ")
        if not wanted:
            return self.paths[:most], len(self.paths)
        if self._nothing and wanted.startswith(self._nothing):
            return [], 0
        found = dict.fromkeys(sorted({*self._names("/" + wanted), *self._names("\n" + wanted)}))
        found |= dict.fromkeys(self._exact(wanted))
        if len(found) < most:
            loose = sorted(self._fuzzy(wanted))
            found |= dict.fromkeys(n for _, n in loose)
            self._nothing = "" if found else wanted
        return [self.paths[n] for n in found][:most], len(found)

    def _exact(self, wanted: str) -> Iterator[int]:
        """Yield the paths that hold `wanted`, shortest first."""
        at = self._text.find(wanted)
        for _ in range(MATCHES_MAX):
            if at < 0:
                return
            n = self._path_at(at)
            yield n
            at = self._text.find(wanted, self._starts[n + 1])

    def _names(self, wanted: str) -> Iterator[int]:
        """Yield the paths whose last name begins with `wanted`, which begins with what stands
        before a name.
        """
        for n in self._exact(wanted):
            text = self._text[self._starts[n] : self._starts[n + 1]].rstrip("/")
            if text.find(wanted, max(text.rfind("/"), 0)) >= 0:
                yield n

    def _fuzzy(self, wanted: str) -> Iterator[tuple[int, int]]:
        """Yield (length of the match, path) of paths that hold the letters of `wanted` in order."""
        # one attempt for each path, from its beginning, and no way back
        steps = [f"[^\\n{re.escape(one)}]*+{re.escape(one)}" for one in wanted]
        search, at = re.compile(f"\\n{steps[0]}(){''.join(steps[1:])}").search, 0
        for _ in range(MATCHES_MAX):
            match = search(self._text, at)
            if match is None:
                return
            n = self._path_at(match.start())
            yield match.end() - match.start(1), n
            at = self._starts[n + 1]

    def _path_at(self, at: int) -> int:
        return bisect_right(self._starts, at) - 1


def _folders(files: Iterable[str]) -> set[str]:
    folders: set[str] = set()
    for path in files:
        at = path.rfind("/")
        while at > 0 and (folder := path[: at + 1]) not in folders:
            folders.add(folder)
            at = path.rfind("/", 0, at)
    return folders
