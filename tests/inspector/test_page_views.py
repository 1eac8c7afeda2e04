"""The inspector's views in headless Chromium: what they show is what the data say."""

import json

import pytest

from tests.inspector.chromium import Json, Page
from tests.inspector.conftest import OpenPage
from tests.inspector.example import inspection
from tests.tables import split_words

VIEWS = ("context", "cost", "time", "items", "transcript", "subagents", "files")


def texts(page: Page, selector: str) -> list[str]:
    """Texts of all elements that a selector names."""
    found: list[str] = page.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((node) => node.textContent)"
    )
    return found


def text(page: Page, selector: str) -> str:
    return texts(page, selector)[0]


def table(page: Page, caption: str) -> list[list[str]]:
    """Rows of the table with this caption, its head included."""
    script = """(caption) => {
        const found = [...document.querySelectorAll("table")].find((table) => table.caption.textContent === caption);
        return [...found.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
    }"""  # noqa: E501
    rows: list[list[str]] = page.run(f"({script})({json.dumps(caption)})")
    return rows


def open_details(page: Page, summary: str) -> None:
    page.run(
        "[...document.querySelectorAll('summary')].find((one) => one.textContent === "
        f"{json.dumps(summary)}).click()"
    )
    page.wait_until("document.querySelector('details[open] table')")


def focus(page: Page, selector: str) -> None:
    page.run(f"document.querySelector({json.dumps(selector)}).focus()")


def value(page: Page) -> str:
    """What a screen reader says of the chart with the focus."""
    said: str = page.run("document.activeElement.getAttribute('aria-valuetext')")
    return said


def money(usd: float) -> str:
    digits = 2 if usd == 0 or usd >= 1 else 4 if usd >= 0.0001 else 6
    return f"${usd:.{digits}f}"


def grouped(number: int) -> str:
    return f"{number:,}"


# --- The context over time ------------------------------------------------------------------------


def test_context_chart_says_the_numbers_of_the_chosen_request(open_page: OpenPage) -> None:
    data = inspection(200)
    page = open_page(data, "context")
    focus(page, "[role=slider]")
    page.press("Home")
    for request in data["requests"][:4]:
        said = value(page)
        assert said.startswith(
            f"Request {request['n']}, total {grouped(sum(request['tokens'].values()))}"
        )
        for module, tokens in request["tokens"].items():
            assert (f"{module} {grouped(tokens)}" in said) == bool(tokens)
        page.press("ArrowRight")
    page.press("End")
    assert value(page).startswith(f"Request {data['requests'][-1]['n']},")


def test_context_shows_each_break_with_cause_and_price(open_page: OpenPage) -> None:
    data = inspection(900)
    broken = [request for request in data["requests"] if "break" in request]
    assert len(broken) > 1
    page = open_page(data, "context")
    rows = table(page, "Breaks, equal ones in one row")[1:]
    groups: dict[tuple[str, str], list[Json]] = {}
    for request in broken:
        found = request["break"]
        groups.setdefault((found["cause"], found.get("detail", "")), []).append(request)
    assert max(map(len, groups.values())) > 1
    assert [row[0] for row in rows] == [str(group[0]["n"]) for group in groups.values()]
    for row, ((cause, detail), group) in zip(rows, groups.items(), strict=True):
        times = f" × {len(group)}" if len(group) > 1 else ""
        assert row[1].startswith(f"{cause} ({detail}){times} " if detail else f"{cause}{times} ")
        assert row[2] == money(sum(request["break"]["price_usd"] for request in group))
        for cell, key in zip(row[3:5], ("tokens_before", "tokens_after"), strict=True):
            counts = sorted({request["break"][key] for request in group})
            assert cell == " to ".join(map(grouped, dict.fromkeys((counts[0], counts[-1]))))
        links = row[5].split()
        assert len(links) == min(len(group), 8) + (len(group) > 8)
    focus(page, "[role=slider]")
    page.press("Home")
    for _ in range(broken[0]["n"] - 1):
        page.press("ArrowRight")
    assert f"break {broken[0]['break']['cause']}" in value(page)


def test_context_marks_window_and_watermarks_and_draws_the_chart(open_page: OpenPage) -> None:
    page = open_page(inspection(400), "context")
    assert texts(page, ".legend span")[:4] == [
        "window 200k",
        "usable 168k",
        "watermark 134k",
        "watermark 155k",
    ]
    page.wait_until("document.querySelector('.plot canvas')?.width > 300")
    page.run("document.querySelector('#whole-window').click()")
    assert "window 200k" not in texts(page, ".legend span")
    page.run("document.querySelector('.legend button').click()")  # hides a module
    assert (
        page.run("document.querySelector('.legend button').getAttribute('aria-pressed')") == "false"
    )


def test_pointer_chooses_a_request_and_a_click_opens_its_entry(open_page: OpenPage) -> None:
    page = open_page(inspection(200), "context")
    page.wait_until("document.querySelector('.plot .u-over')?.clientWidth")
    box = page.run(
        "(() => { const b = document.querySelector('.u-over').getBoundingClientRect(); return "
        "[b.x, b.y]; })()"
    )
    at = {"x": box[0] + 12, "y": box[1] + 50}
    page.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
    page.wait_until("document.querySelector('.readout strong').textContent === 'Request 1'")
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
    page.wait_until("location.hash.startsWith('#transcript/')")


# --- The cache and the cost -----------------------------------------------------------------------


def test_cost_shows_sums(open_page: OpenPage) -> None:
    data = inspection(300)
    page = open_page(data, "cost")
    figures = text(page, "#panel dl.figures")
    assert f"Money${data['requests'][-1]['total_usd']:.2f}" in figures


# --- Time -----------------------------------------------------------------------------------------


def test_time_keys_move_through_spans_and_lanes_and_enter_opens_entry(open_page: OpenPage) -> None:
    data = inspection(200)
    page = open_page(data, "time")
    focus(page, "[role=slider]")
    assert value(page).startswith("main main agent, kind waiting for the user")
    page.press("ArrowRight")
    assert "kind model" in value(page)
    page.press("ArrowDown")
    page.press("Home")
    assert value(page).startswith("a7 explore: find the callers, kind model, what turn")
    page.press("ArrowRight")
    assert "what Grep" in value(page)
    page.press("Enter")
    page.wait_until("location.hash === '#transcript/a7:4'")
    page.wait_until("document.activeElement.getAttribute('aria-label') === 'result by tool, a7 r4'")
    assert "src/cart.py:12" in page.run("document.activeElement.textContent")


# --- An item's life -------------------------------------------------------------------------------


def test_item_shows_each_stage_with_its_exact_text_and_reason(open_page: OpenPage) -> None:
    data = inspection(900)
    item = next(item for item in data["items"] if item["stages"][-1]["form"] == "trimmed")
    row = next(row for row in data["transcript"] if row.get("handle") == item["handle"])
    page = open_page(data, f"items/{item['handle']}")
    stages = list(zip(texts(page, ".stages h4"), texts(page, ".stages pre"), strict=True))
    first, second = item["stages"]
    assert stages[0] == (
        f"Request {first['request']}: shown whole {grouped(first['tokens'])} tokens r{item['seq']}",
        row["text"],
    )
    assert stages[1][0].startswith(
        f"Request {second['request']}: shortened {grouped(first['tokens'])} → "
        f"{grouped(second['tokens'])} tokens"
    )
    assert stages[1][1] == second["text"]
    assert f"Why: {second['why']}" in text(page, ".stages")
    assert f"with {grouped(second['tokens'])} tokens from request {second['request']}" in page.run(
        "document.querySelector('.strip').getAttribute('aria-label')"
    )


FORMS: list[tuple[Json, str]] = [
    ({"form": "placeholder", "text": "[cleared]", "tokens": 4}, "cleared to a line"),
    ({"form": "folded"}, "folded into another line"),
    ({"form": "summarised"}, "in a summary"),
    ({"form": "recalled"}, "recalled"),
    ({"form": "restored"}, "brought back"),
    ({"form": "gone"}, "taken away"),
]


def test_item_names_every_form(open_page: OpenPage) -> None:
    data = inspection(60)
    item = next(item for item in data["items"] if item["kind"] == "result")
    item["stages"] += [
        stage | {"request": at + 2, "seq": item["seq"]} for at, (stage, _) in enumerate(FORMS)
    ]
    item["lines"] = [{"line": "x = 1", "stays": True, "chance": 0.75, "why": "it was edited"}]
    page = open_page(data, f"items/{item['handle']}")
    heads = texts(page, ".stages h4")
    assert [
        head.split(": ")[1].startswith(words)
        for head, (_, words) in zip(heads[1:], FORMS, strict=True)
    ] == [True] * 6
    assert texts(page, ".stages .empty") == ["Nothing of it was shown."] * 3
    open_details(page, "Why its lines would stay or go if it were cleared now")
    assert table(page, "Lines")[1] == ["x = 1", "stays", "75.0 %", "it was edited"]


def test_items_are_found_by_text_and_chosen_by_keys(open_page: OpenPage) -> None:
    data = inspection(900)
    page = open_page(data, "items")
    changed = [item for item in data["items"] if len(item["stages"]) > 1]
    assert (
        text(page, "#panel .tools [role=status]")
        == f"{grouped(len(changed))} of {grouped(len(data['items']))} items"
    )
    page.press("/")
    handle = changed[len(changed) // 2]["handle"]
    page.type(handle)
    page.wait_until(f"document.querySelector('.item a')?.textContent === '{handle}'")
    page.press("Enter")
    page.press("Enter")
    page.wait_until(f"document.querySelector('.detail h3').textContent.startsWith('{handle} ')")


# --- Subagents, files, comparison -----------------------------------------------------------------


def test_subagents_are_a_tree_with_budgets(open_page: OpenPage) -> None:
    page = open_page(inspection(100), "subagents")
    assert texts(page, "section > .tree > li > article h3") == ["a7 done find the callers"]
    assert texts(page, ".tree .tree h3") == ["a7.a2 limit check one"]
    budgets = texts(page, "section > .tree > li > article .budgets li")
    assert [words.strip() for words in budgets] == [
        "money: $0.0400 of $0.5000",
        "tokens: 8,200 of 50,000",
        "requests: 3 of 20",
        "time: 25.0 s, no limit",
    ]
    assert "It may make 2 requests." in text(page, ".tree .tree")
    page.run("document.querySelector('a[href=\"#transcript/a7:2\"]').click()")
    page.wait_until("document.activeElement.textContent.includes('Find the callers of total().')")


def test_files_name_who_touched_them(open_page: OpenPage) -> None:
    data = inspection(100)
    page = open_page(data, "files")
    head, app, cart = table(page, "Files that the session read or changed")
    assert head == ["File", "Reads", "Changes", "Changed by", "Entries"]
    assert app[:4] == [
        "src/app.py",
        str(data["files"][0]["reads"]),
        str(data["files"][0]["changes"]),
        "agent, user",
    ]
    assert cart == ["src/cart.py", "1", "0", "", "read by a7: a7 r4"]


def test_comparison_puts_two_sessions_side_by_side(open_page: OpenPage) -> None:
    one, other = inspection(300), inspection(200, seed=2)
    other["session"] |= {"id": "other", "title": "The same with summaries"}
    page = open_page({"a": one, "b": other})
    assert texts(page, "[role=tab]")[0] == "Comparison"
    rows = {row[0]: row[1:] for row in table(page, "Figures of both")}
    assert rows["Requests"][:2] == [str(len(one["requests"])), str(len(other["requests"]))]
    assert rows["Money, paid"][:2] == [
        f"${data['requests'][-1]['total_usd']:.2f}" for data in (one, other)
    ]
    assert rows["Figure"] == [
        f"A: {one['session']['title']}",
        "B: The same with summaries",
        "B against A",
    ]
    page.run("document.querySelector('#side-1').click()")
    assert text(page, "#title") == "The same with summaries"
    page.run("document.querySelector('#tab-files').click()")
    page.wait_until("document.querySelector('caption')?.textContent.startsWith('Files')")


@pytest.mark.parametrize("view", VIEWS)
def test_empty_session_opens(open_page: OpenPage, view: str) -> None:
    session = {"id": "x", "title": "", "model": "", "cwd": "/", "started_us": 1, "ended_us": 1}
    lists = split_words("""
        watermarks requests lanes items transcript subagents files
    """)
    document = {"version": 1, "session": session, "window_tokens": 0, "usable_tokens": 0} | {
        name: [] for name in lists
    }
    page = open_page(document, view)
    assert page.run("document.querySelector('#panel h2').textContent")
