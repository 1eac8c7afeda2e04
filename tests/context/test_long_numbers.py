"""Numbers of 5,000 digits, which Python refuses to read, wherever a text of others is read."""

from longrein.frontends.terminal.input_completion import Pastes
from longrein.frontends.terminal.terminal_input import legacy_keys
from longrein.models.failures import kind_of_error_event
from longrein.permissions.network_hosts import entry_problem
from longrein.steps.call_results import result_figures
from longrein_context.events import Text, ToolEnded, positive_number
from longrein_context.events.escape import whole_number
from longrein_context.state.command_results import read_tests
from tests.tables import cases

LONG = "9" * 5_000


@cases(
    "text number",
    ("0", 0),
    ("0012", 12),
    ("9" * 15, 10**15 - 1),
    ("9" * 16, -1),
    (LONG, -1),
    ("", -1),
    ("-1", -1),
    (" 1", -1),
    ("1_0", -1),
    ("²", -1),  # a digit for `str.isdigit`, and none for `int`
    ("٣", -1),
)
def test_a_number_is_read_up_to_its_bound(text: str, number: int) -> None:
    assert whole_number(text, -1) == number


@cases(
    "value number",
    *((value, value) for value in (1, 1.5, 10**15, 5e-324)),
    *((value, 0.0) for value in (10**400, -(10**400), 1e308, 0, -1, True, None, "1", [1])),
    *((value, 0.0) for value in (float("nan"), float("inf"), float("-inf"))),
)
def test_a_number_of_json_is_one_that_a_float_can_be(value: object, number: float) -> None:
    assert positive_number(value) == number


@cases(
    "command output",
    ("pytest", "== N failed, N passed in 1.0s =="),
    ("python -m unittest", "Ran N tests in 1s\n\nFAILED (failures=N, errors=N)"),
    ("cargo test", "test result: FAILED. N passed; N failed; 0 ignored"),
    ("npx jest", "Tests: N failed, N passed, N total"),
    ("bun test", " N pass\n N fail"),
    ("npx mocha", "  N passing\n  N failing"),
    ("node --test", "# tests N\n# pass N\n# fail N"),
)
def test_counts_of_a_test_run(command: str, output: str) -> None:
    seven = read_tests(command, output.replace("N", "7"))
    assert seven is not None
    assert seven.counts is not None
    assert read_tests(command, output.replace("N", LONG)) is None


@cases(
    "kind arguments text",
    ("read", {}, f"{LONG}\tx\n{LONG}\ty"),
    ("read", {}, f"[lines 1-{LONG} of {LONG};"),
    ("search", {"pattern": "x", "output_mode": "count"}, f"a.py: {LONG}"),
    ("shell", {}, f"[exit code {LONG}]"),
)
def test_figures_of_a_result(kind: str, arguments: dict[str, object], text: str) -> None:
    end = ToolEnded("c1.0", "Tool", "ok", (Text(text),), 1)
    assert LONG not in result_figures(end, arguments, kind)


def test_other_texts() -> None:
    assert Pastes().expand(mark := f"[Pasted text #{LONG} +3 lines]") == mark
    assert legacy_keys(f"\x1b[{LONG}u") == f"\x1b[{LONG}u"
    assert kind_of_error_event(LONG, "") == kind_of_error_event("", "")
    assert entry_problem(f"example.org:{LONG}")
