"""Forms of results that are sent for the first time: whole while they fit, else by their ends."""

from longrein_context import Budget, births
from longrein_context.events import Asked, Replied, Text, ToolCall, ToolEnded, ToolStarted, call_id
from tests.context.log_builder import LogBuilder
from tests.tables import cases

LARGE = Budget(200_000, 8_000)
SMALL = Budget(32_000, 4_000)
LINE = "def total(rows): return sum(row.amount for row in rows)  # {}\n"


def batch(count: int, chars: int, log: LogBuilder | None = None) -> LogBuilder:
    """A reply with `count` calls at once, each with a result of about so many characters."""
    log = log or LogBuilder()
    log.user("read them all")
    asked = log.write(Asked("turn", log.seq, 2))
    calls = [ToolCall(call_id(asked, n), "Read", {"file_path": f"f{n}"}) for n in range(count)]
    log.write(Replied(asked, tuple(calls), "calls"))
    for call in calls:
        text = "".join(LINE.format(f"{call.id} {n}") for n in range(chars // len(LINE)))
        log.write(ToolStarted(call.id, "Read"), ToolEnded(call.id, "Read", "ok", (Text(text),)))
    return log


def check(log: LogBuilder, budget: Budget) -> list[int]:
    """Return the characters of the results that are shortened."""
    forms = births(log.state, budget)
    view = log.state.view_tokens
    assert all("Recall(handle=" in form.text for form in forms), "a cut text says so"
    assert forms or view <= budget.usable_tokens
    return [len(form.text) for form in forms]


@cases(
    "count chars budget",
    (1, 28_000, LARGE),
    (8, 28_000, LARGE),
    (12, 28_000, LARGE),
    (3, 14_000, SMALL),
)
def test_a_batch_that_fits_is_shown_whole_once(count: int, chars: int, budget: Budget) -> None:
    assert check(batch(count, chars), budget) == []


def test_a_larger_batch_shares_half_of_what_is_left_below_the_watermark() -> None:
    shown = check(batch(20, 28_000), LARGE)
    assert len(shown) == 20
    assert 10_000 < min(shown) < 14_000, "half of the room, so that the next page fits too"


def test_a_batch_beside_a_full_view_gets_less() -> None:
    log = batch(12, 28_000)
    log.says("seen")
    shown = check(batch(12, 28_000, log), LARGE)
    assert len(shown) == 12
    assert max(shown) < 16_000
