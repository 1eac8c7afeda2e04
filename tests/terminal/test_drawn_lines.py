"""A yes covers only lines that were drawn, with windows of all sizes, any change and any keys."""

from hypothesis import given
from hypothesis import strategies as st

from longrein.frontends.terminal.approvals import Approval, Question, choices
from longrein.frontends.terminal.drawn_lines import DrawnLines
from longrein.frontends.terminal.event_lines import crop, line, plain
from longrein.frontends.terminal.page_view import PageView
from longrein_context.events import PermissionAsked

ASKED = PermissionAsked("c4.0", "Bash", "make test", "no rule allows this command", "Bash(make:*)")
WIDTHS, HEIGHTS = st.integers(4, 90), st.integers(0, 30)
KEYS = st.one_of(
    st.sampled_from(["y", "s", "a", "n", "down", "up", "page", "end", "home", "open", "close"]),
    st.tuples(WIDTHS, HEIGHTS),
)


class Window:
    """A window with a question, or the page of the question, as the terminal draws them."""

    def __init__(self, lengths: list[int], width: int, height: int) -> None:
        self.content = [[f"w{n}.{k}" for k in range(words)] for n, words in enumerate(lengths)]
        self.approval = Approval(Question(ASKED), [line(" ".join(row)) for row in self.content])
        self.page: PageView | None = None
        self.size = width, height
        self.seen: set[str] = set()
        """Words that stood whole on the screen, by the rows alone."""
        self.draw()

    def draw(self) -> None:
        width, height = self.size
        if self.page is not None:
            rows = self.page.draw(width, height)
        else:
            rows = self.approval.draw(width, max(height, 1))[:height]
            self.approval.mark_drawn(height)
        self.seen |= {word for row in rows for word in plain(crop(row, width)).split()}

    def press(self, key: str) -> None:
        view = self.page
        match key:
            case "open" if view is None:
                question = self.approval
                self.page = PageView(question.whole, question.drawn, question.lines_above)
            case "close":
                self.page = None
            case "end" | "home" if view is not None:
                view.go(end=key == "end")
            case "down" | "up" | "page":
                rows, pages = {"down": (1, 0), "up": (-1, 0), "page": (0, 1)}[key]
                if view is not None:
                    view.scroll(rows, pages)
                else:
                    self.approval.scroll(rows + pages * self.approval.page)

    def is_allowed(self, key: str) -> bool:
        return key in "ysa" and not self.approval.lines_unseen(key)


@given(st.lists(st.integers(0, 40), max_size=40), WIDTHS, HEIGHTS, st.lists(KEYS, max_size=60))
def test_nothing_is_allowed_with_a_line_that_was_not_drawn(
    lengths: list[int], width: int, height: int, keys: list[str | tuple[int, int]]
) -> None:
    window = Window(lengths, width, height)
    for key in keys:
        if isinstance(key, tuple):
            window.size = key
        elif not window.is_allowed(key):
            window.press(key)
        else:
            assert {word for row in window.content for word in row} <= window.seen
        window.draw()


@given(st.lists(st.integers(0, 40), max_size=40), st.integers(20, 90), st.integers(6, 30))
def test_who_pages_through_the_question_may_say_yes(
    lengths: list[int], width: int, height: int
) -> None:
    window = Window(lengths, width, height)
    window.press("open")
    for _ in range(400):
        window.draw()
        window.press("page")
    assert all(window.is_allowed(choice.value) for choice in choices(window.approval.question)[:3])


def test_a_line_counts_when_all_its_rows_were_drawn_at_one_width() -> None:
    text = DrawnLines([line("one two three"), line("four")])
    text.wrap(5)
    assert [plain(row) for row in text.rows] == ["one", "two", "three", "four"]
    text.mark(0, 2)
    text.wrap(6)
    text.mark(2, 2)
    assert text.drawn == {1}
    text.mark(0, 3)
    assert text.drawn == {0, 1}
