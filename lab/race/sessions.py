"""Scripts of sessions: what the scripted model does request by request, and which lines it must see
for each step.

A script is made from a seed alone, before any policy is known. The needs of a step are lines of
files that an earlier step has read. Three kinds of needs:

- `random`: any place of any file read before.
- `edits`: the place that is edited now; the next edits are near it, in the same file, or in a
  recently read file.
- `plan`: an early message lists the work. Each step needs its line of the list and the place that
  the line names.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.race.sources import choose_files

NEEDS = ("random", "edits", "plan")
SHAPES = ("plain", "numbered", "json")
"""Forms in which `read_file` shows a file."""
PLAN = "PLAN.md"
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]{4,}")
LINE_MIN = 14
"""Characters of a line that can be needed; shorter ones are visible by chance."""


@dataclass(frozen=True)
class Need:
    """Lines of a file that a step must see, by number from 0."""

    path: str
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A tool call of the scripted model. `old` and `new` of an edit are filled in when it is
    played.
    """

    tool: str
    path: str = ""
    lines: tuple[int, int] = (0, 0)
    """First and last line, from 0, of an edit or of a read of a part; (0, 0) for the whole file."""
    pattern: str = ""


@dataclass(frozen=True)
class Step:
    """Request: needed visible lines, and the model's answer. Without calls it ends the turn."""

    needs: tuple[Need, ...]
    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Turn:
    """A message of the user, and the steps that answer it."""

    user: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Setting:
    """Parameters of a session, its seed included."""

    seed: int
    needs: str
    window: int
    """Tokens."""
    requests: int
    overflow: float
    """Tokens read by the session / window."""
    shape: str
    repair: str
    """`range` when the model reads only a place again, `whole` when it reads the whole file."""
    price: str

    @property
    def name(self) -> str:
        return (
            f"{self.needs}, window {self.window // 1000}k, {self.requests} steps, reads "
            f"{self.overflow:g} windows, "
            f"{self.shape}, repair {self.repair}, {self.price}, seed {self.seed}"
        )


@dataclass
class Script:
    """A whole session: its files, and its turns."""

    setting: Setting
    files: dict[str, list[str]]
    turns: list[Turn] = field(default_factory=list)


BYTES_PER_TOKEN = 4.0  # of source code, as `count_tokens` counts
READ_SHARE = 0.34
"""Share of the steps that read a file not read before."""


def write_script(setting: Setting) -> Script:
    """Write the script of a session."""
    return _Writer(setting).write()


class _Writer:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.rng = random.Random(f"{setting.seed} {setting.needs}")
        count = max(6, round(setting.requests * READ_SHARE))
        window_bytes = round(setting.window * BYTES_PER_TOKEN)
        self.files = choose_files(
            self.rng, count, round(setting.overflow * window_bytes), window_bytes // 6
        )
        self.unread = list(self.files)
        self.read: list[str] = []
        counts: dict[str, int] = {}
        for lines in self.files.values():
            for line in lines:
                counts[line.strip()] = counts.get(line.strip(), 0) + 1
        # only lines of one place: a copy elsewhere would make a lost line visible
        self.usable = {
            path: [
                n
                for n, line in enumerate(lines)
                if len(line.strip()) >= LINE_MIN and counts[line.strip()] == 1
            ]
            for path, lines in self.files.items()
        }
        self.steps: list[Step] = []
        self.place = ("", 0)

    def write(self) -> Script:
        makers = {"random": self._random, "edits": self._edits, "plan": self._plan}
        first = makers[self.setting.needs]()
        return Script(self.setting, self.files, self._in_turns(first))

    # --- The three kinds of needs -----------------------------------------------------------------

    def _random(self) -> str:
        while len(self.steps) < self.setting.requests:
            draw = self.rng.random()
            if self._must_read(draw):
                self._read_next()
            elif draw < 0.85:
                need = self._block(self.rng.choice(self.read))
                name = self._name_in(need)
                self._step((need,), f"`{name}` matters here.", Call("search", pattern=name))
            else:
                self._tests(self.rng.choice(self.read))
        return (
            "Find out how these packages report errors. Read what you need, search, and run "
            "the tests."
        )

    def _edits(self) -> str:
        while len(self.steps) < self.setting.requests:
            draw = self.rng.random()
            if self._must_read(draw):
                self._read_next()
            elif draw < 0.8:
                self._edit(*self._near())
            else:
                self._tests(self.place[0] or self.rng.choice(self.read))
        return (
            "Make the errors of these packages say what to do. Change file by file and run the "
            "tests."
        )

    def _near(self) -> tuple[str, int]:
        """Return file and line of the next edit: near the last one, elsewhere in its file, or in
        another file.
        """
        path, line = self.place
        draw = self.rng.random()
        if path and draw < 0.45:
            return path, max(0, line + self.rng.randint(-30, 30))
        if path and draw < 0.72:
            return path, self.rng.choice(self.usable[path])
        back = min(int(self.rng.expovariate(1 / 5)), len(self.read) - 1)  # recent files more often
        path = self.read[-1 - back]
        return path, self.rng.choice(self.usable[path])

    def _plan(self) -> str:
        survey = max(4, round(self.setting.requests * 0.25))
        items = round(self.setting.requests * 0.36)
        order = self.unread[:survey]
        places = [
            (path := self.rng.choice(order), self.rng.choice(self.usable[path]))
            for _ in range(items)
        ]
        names = [self._name_in(self._block_at(*place)) for place in places]
        plan = [
            f"- [ ] {n + 1}. {path}, near line {line + 1}: let `{name}` say what to do "
            f"(#{self.rng.randrange(10**6)})"
            for n, ((path, line), name) in enumerate(zip(places, names, strict=True))
        ]
        self.files[PLAN] = ["# Work", "", *plan]
        told = self.rng.random() < 0.5
        if not told:
            self._step((), "I read the plan first.", Call("read_file", PLAN))
        while len(self.read) < survey:
            self._read_next()
        for n, (path, line) in enumerate(places):
            if len(self.steps) >= self.setting.requests:
                break
            self._edit(path, line, Need(PLAN, (n + 2,)))
            draw = self.rng.random()
            if draw < 0.45:
                self._tests(path)
            elif draw < 0.7 and self.unread:
                self._read_next()
        while len(self.steps) < self.setting.requests and self.unread:
            self._read_next()
        listed = "\n".join(self.files[PLAN])
        return (
            f"Do this work item by item, in this order (it is also in {PLAN}). First read the "
            f"files.\n\n{listed}"
            if told
            else f"Do the work that {PLAN} lists, item by item, in its order. First read the files."
        )

    # --- Steps ------------------------------------------------------------------------------------

    def _must_read(self, draw: float) -> bool:
        return bool(self.unread) and (len(self.read) < 4 or draw < READ_SHARE * 1.05)

    def _read_next(self) -> None:
        several = min(1 if self.rng.random() < 0.75 else self.rng.choice((2, 3)), len(self.unread))
        paths = [self.unread.pop(0) for _ in range(several)]
        paths = [path for path in paths if len(self.usable[path]) >= 8] or paths[:1]
        self.read += [path for path in paths if len(self.usable[path]) >= 8]
        if not self.read:
            self.read += paths
        self._step((), f"I read {', '.join(paths)}.", *(Call("read_file", path) for path in paths))

    def _edit(self, path: str, line: int, *more: Need) -> None:
        need = self._block_at(path, line)
        self.place = (path, need.lines[0])
        name = self._name_in(need)
        self._step(
            (*more, need),
            f"I change `{name}` in {path}.",
            Call("edit_file", path, (need.lines[0], need.lines[-1])),
        )

    def _tests(self, path: str) -> None:
        self._step((), "I run the tests.", Call("run_tests", path))

    def _step(self, needs: tuple[Need, ...], text: str, *calls: Call) -> None:
        self.steps.append(Step(needs, text, calls))

    def _block(self, path: str) -> Need:
        return self._block_at(path, self.rng.choice(self.usable[path]))

    def _block_at(self, path: str, line: int) -> Need:
        """Return the usable lines among the three to eight from the usable one nearest to
        `line`.
        """
        usable = self.usable[path]
        first = min(usable, key=lambda n: abs(n - line))
        last = first + self.rng.randint(3, 8)
        return Need(path, tuple(n for n in usable if first <= n < last))

    def _name_in(self, need: Need) -> str:
        text = " ".join(self.files[need.path][n] for n in need.lines)
        names = sorted(set(_NAME.findall(text)), key=len)
        return names[-1] if names else "error"

    def _in_turns(self, first: str) -> list[Turn]:
        turns, at = [], 0
        while at < len(self.steps):
            size = self.rng.randint(8, 26)
            steps = (*self.steps[at : at + size], Step((), "This part is done."))
            turns.append(Turn(first if not at else self.rng.choice(GO_ON), steps))
            at += size
        return turns


GO_ON = (
    "Good. Go on.",
    "Go on with the next part, please.",
    "Fine so far. Continue.",
    "Yes. And the rest?",
)


def flatten(turns: Sequence[Turn]) -> list[Step]:
    """Return the steps of all turns."""
    return [step for turn in turns for step in turn.steps]
