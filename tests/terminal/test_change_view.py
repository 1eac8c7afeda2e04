"""The diff of an approval, and the page that shows it: every changed line, numbered, with three
lines of context.
"""

import pytest

from longrein.frontends.terminal.approvals import QuestionForm, change_view, numbered_diff
from longrein.frontends.terminal.event_lines import GAP, cells, line, plain
from longrein.frontends.terminal.page_view import Page, PageView, Section
from tests.terminal.scripted_session import texts

TEXT = "".join(f"line {n}\n" for n in range(1, 13))


def edit(old: str, new: str, **more: object) -> dict[str, object]:
    return {"file_path": "a.txt", "old_string": old, "new_string": new, **more}


@pytest.mark.parametrize(
    ("text", "arguments", "rows"),
    [
        (
            TEXT,
            edit("line 6\n", "six\nand more\n"),
            [
                "  ⋮",
                " 3   line 3",
                " 4   line 4",
                " 5   line 5",
                " 6 - line 6",
                " 6 + six",
                " 7 + and more",
                " 8   line 7",
                " 9   line 8",
                "10   line 9",
                "  ⋮",
            ],
        ),
        (
            TEXT,
            edit("line 1", "one", replace_all=True),
            [
                " 1 - line 1",
                " 1 + one",
                " 2   line 2",
                " 3   line 3",
                " 4   line 4",
                "  ⋮",
                " 7   line 7",
                " 8   line 8",
                " 9   line 9",
                "10 - line 10",
                "11 - line 11",
                "12 - line 12",
                "10 + one0",
                "11 + one1",
                "12 + one2",
            ],
        ),
        (
            TEXT,
            edit("line 1", "one"),
            ["- line 1", "+ one"],
        ),  # it stands there four times: `Edit` refuses
        (TEXT, edit("not there", "one"), ["- not there", "+ one"]),
        (None, edit("a", "b"), ["- a", "+ b"]),
        ("a\r\nb\r\n", edit("b\n", "c\n"), ["1   a", "2 - b", "2 + c"]),
        ("a\nb", edit("b", "b\n"), ["1   a", "2   b", "3 + "]),
        ("a\n", edit("a", "\x1b[2J\u202e"), [r"1 - a", r"1 + \x1b[2J\u202e"]),
        ("", edit("", "new\ntext"), ["1 + new", "2 + text", "\\ no newline at the end"]),
        (TEXT, {"file_path": "a.txt", "content": TEXT + "more\n"}, ["  ⋮", "10   line 10"]),
        (None, {"file_path": "a.txt", "content": "new\n"}, ["1 + new"]),
        (TEXT, {"file_path": "a.txt"}, []),
    ],
)
def test_I13_a_change_is_shown_with_numbers_and_context(
    text: str | None, arguments: dict[str, object], rows: list[str]
) -> None:
    tool = "Write" if "content" in arguments else "Edit"
    shown = texts(change_view(tool, arguments, lambda _: text))
    assert shown[: len(rows)] == [row.rstrip() for row in rows]
    assert len(shown) == len(rows) or tool == "Write"


def test_I13_near_changes_share_their_context_and_far_ones_are_parted() -> None:
    new = (
        TEXT.replace("line 2\n", "two\n")
        .replace("line 6\n", "six\n")
        .replace("line 12\n", "twelve\n")
    )
    rows = numbered_diff(TEXT, new)
    assert (
        texts(rows).count(plain(GAP)) == 0
    )  # lines 3 to 5 and 7 to 11 lie within three lines of a change
    far = numbered_diff(TEXT * 3, TEXT + "x\n" + TEXT * 2)
    assert texts(far) == [
        "  ⋮",
        "10   line 10",
        "11   line 11",
        "12   line 12",
        "13 + x",
        "14   line 1",
        "15   line 2",
        "16   line 3",
        "  ⋮",
    ]
    assert {row[0][0] for row in far} == {"dim", "add"}


def page(*texts_of: str) -> PageView:
    sections = [
        Section(line(f"head {n}"), [line(row) for row in text.split("\n")])
        for n, text in enumerate(texts_of)
    ]
    return PageView(Page("a page", sections))


@pytest.mark.parametrize(
    ("width", "height"), [(19, 6), (23, 8), (39, 12), (79, 24), (199, 60), (5, 1)]
)
def test_I13_a_page_fills_every_window_and_reaches_every_line(width: int, height: int) -> None:
    view = page("\n".join(f"{n} " + "日本" * (n % 20) for n in range(90)), "end")
    seen = ""
    for _ in range(3_000):
        rows = view.draw(width, height)
        assert len(rows) == height
        assert all(cells(plain(row)) <= width for row in rows)
        seen += "".join(map(plain, rows[1:-1] if height > 2 else rows))
        above = view.top
        view.scroll(rows=max(height - 2, 1))
        if view.top == above:
            break
    assert seen.replace(" ", "").endswith("end")
    if width >= 39:
        assert all(f"{n} 日"[:2] in seen for n in range(1, 90))


def test_I13_a_search_goes_around_and_keeps_its_place() -> None:
    view = page("\n".join(f"row {n}" for n in range(40)) + "\nneedle one", "Needle two\nmore")
    view.draw(40, 12)

    for _ in range(3):
        view.search("needle")
        assert any(
            "eedle" in plain(row) and any(style == "you" for style, _ in row)
            for row in view.draw(40, 12)
        )
    view.go(end=False)
    view.draw(40, 12)
    view.search("row 39")
    assert any("row 39" in plain(row) for row in view.draw(40, 12))
    view.next_section(1)
    assert any(plain(row) == "head 1" for row in view.draw(40, 12))
    view.search("nowhere")
    assert plain(view.draw(40, 12)[-1]) == "not found: nowhere"


@pytest.mark.parametrize("options", [5, "ab", None, [3]])
def test_a_question_whose_options_are_no_list_is_shown_without_them(options: object) -> None:
    form = QuestionForm({"questions": [{"question": "Which?", "options": options}]})
    assert [plain(row) for row in form.lines(keys=True)] == ["Which?"]
    assert not form.take("this")
    form.say("this")
    assert form.arguments()["answers"] == {"Which?": "this"}
