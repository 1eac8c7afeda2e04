"""Lines of reads that hold words of the request: which ones, and where they stay."""

from longrein_context import Budget, due_reminders
from longrein_context.state.wanted_lines import wanted_lines
from longrein_context.summary.summary_text import build_digest
from longrein_context.truncation import births
from tests.context.log_builder import LogBuilder
from tests.tables import cases

HAY = ["a line of the file that says nothing of it"] * 40
BUDGET = Budget(20_000, 500)


def file_of(*needles: str) -> str:
    return "\n".join([*HAY, *needles, *HAY])


@cases(
    "request_text needles expected",
    ("Tell me the keys.", ["key = 5"], ["key = 5"]),
    ("Tell me the key", ["API_KEYS: 5"], ["API_KEYS: 5"]),
    ("find the passwords", ["password 5", "pass 6"], ["password 5"]),
    ("what does a line of the file say?", ["7"], []),  # words of every line
    ("the port of red", ["port 1", "port 2 of red"], ["port 2 of red", "port 1"]),
    ("port", [f"port {n}" for n in range(9)], []),  # too many lines to choose
    ("port", [f"port {n}" for n in range(6)], [f"port {n}" for n in range(4)]),
    ("port", ["port " + "x" * 300], []),
    ("请告诉我密钥。", ["甲的密钥是 5"], ["甲的密钥是 5"]),
    ("какие ключи", ["ключ 5"], ["ключ 5"]),
    ("", ["port 1"], []),
)
def test_lines_that_hold_words_of_the_request(
    request_text: str, needles: list[str], expected: list[str]
) -> None:
    assert wanted_lines(file_of(*needles), request_text) == tuple(expected)


def digest_of(log: LogBuilder) -> str:
    return build_digest(log.state, BUDGET, 3, log.seq, "watermark").text


def test_they_stand_in_a_digest_until_the_file_changes_or_the_user_asks_for_more() -> None:
    log = LogBuilder()
    log.user("find the port")
    at = log.read("/w/a.txt", file_of("41\tport 5"))
    line = f"- r{at} a.txt: 41\tport 5"
    assert line in digest_of(log)
    log.user("and the host", "steer")
    assert line in digest_of(log)
    log.edit("/w/a.txt")
    assert line not in digest_of(log)
    log.read("/w/a.txt", file_of("41\tport 6"))
    assert "41\tport 6" in digest_of(log)
    log.says("It is 6.")
    log.user("thank you")
    assert "41\tport 6" not in digest_of(log)


def test_they_stay_in_a_result_that_is_too_large_when_it_comes() -> None:
    log = LogBuilder()
    log.user("find the port")
    log.read("/w/a.txt", file_of("41\tport 5"))
    [form] = births(log.state, Budget(1_000, 200))
    assert "]\n41\tport 5\n" in form.text


def test_a_model_is_told_once_after_three_readings_of_the_same_lines() -> None:
    log = LogBuilder()
    log.user("find the port")
    for times in range(1, 8):
        at = log.read("/w/a.txt", file_of("41\tport 5"))
        log.read("/w/a.txt", "another page", offset=90 * times)
        told = [one for one in due_reminders(log.state, BUDGET, 0) if one.kind == "reread"]
        assert len(told) == (times in (3, 6)), times
        for one in told:
            assert f"* /w/a.txt: read {times} times, last r{at}" in one.text
            assert "41\tport 5" in one.text
        log.write(*told)
        assert not due_reminders(log.state, BUDGET, 0)
