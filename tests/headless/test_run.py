"""Whole headless runs: stdout, stderr and exit code."""

import pytest

from longrein.agent import Answer, Continue, RetryPause, UserMessage, UserNotice
from longrein.frontends.headless import OutputOptions
from longrein.frontends.headless.reporter import progress
from longrein.frontends.headless.run_state import PROGRAM
from longrein.steps import Projection
from longrein_context.events import (
    Asked,
    AskFailed,
    Cleared,
    Form,
    HookAnswered,
    ModeSet,
    PermissionAnswered,
    PermissionAsked,
    Reminded,
    StoreFull,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSpoke,
)

from .harness import (
    DONE,
    SESSION,
    Raise,
    ScriptedSession,
    Step,
    answered,
    asked,
    call,
    ended,
    play,
    usage,
)

pytestmark = pytest.mark.anyio

HELLO: list[Step] = [UserSpoke((Text("do it"),)), asked(), answered(2, "All done, café ✓"), DONE]

EDIT: list[Step] = [
    UserSpoke((Text("do it"),)),  # 1
    asked(),  # 2
    answered(
        2, "Looking.", call(2, 0, "Read", path="a.py"), call(2, 1, "Bash", command="make")
    ),  # 3
    ToolStarted("c2.0", "Read"),
    ended("c2.0", "Read", "1\tx = 1"),
    ended("c2.1", "Bash", "no rule to make", "failed"),
    asked(),  # 7
    answered(7, "It is mended."),  # 8
    DONE,
]

RM = "rm -rf build"
BLOCKED: list[Step] = [
    UserSpoke((Text("do it"),)),
    asked(),
    answered(2, call(2, 0, "Bash", command=RM)),
    PermissionAsked("c2.0", "Bash", RM, "no rule allows it", "Bash(rm:*)"),
    PermissionAnswered("c2.0", "deny", "headless"),
    ended("c2.0", "Bash", "Denied: no rule allows it", "denied", 0),
    asked(),
    answered(7, "I may not remove it."),
    TurnEnded("blocked"),
]


async def test_text_is_the_answer_alone() -> None:
    ran = await play([EDIT], "text")
    assert (ran.code, ran.out, ran.err) == (0, b"It is mended.\n", [])


async def test_text_with_verbose_says_on_stderr_what_goes_on() -> None:
    turn = [*EDIT[:-1], UserNotice("the window is nearly full"), DONE]
    ran = await play([turn], OutputOptions("text", verbose=True))
    assert ran.out == b"It is mended.\n"
    assert ran.err == [
        "calls Read a.py",
        "calls Bash make",
        "Read ok after 0.0 s",
        "Bash failed after 0.0 s",
        "the window is nearly full",
    ]


async def test_json_is_one_result_object() -> None:
    ran = await play([EDIT], "json")
    [line] = ran.lines
    line.pop("uuid")
    assert ran.out.count(b"\n") == 1
    counts = {
        "inputTokens": 20,
        "outputTokens": 10,
        "cacheReadInputTokens": 40,
        "cacheCreationInputTokens": 60,
    }
    limits = {
        "webSearchRequests": 0,
        "costUSD": 0.5,
        "contextWindow": 200_000,
        "maxOutputTokens": 8_192,
    }
    assert line == {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 8000,
        "duration_api_ms": 2000,
        "num_turns": 2,
        "result": "It is mended.",
        "stop_reason": "end_turn",
        "total_cost_usd": 0.5,
        "usage": usage(20, 10, 60, 40),
        "modelUsage": {"mock/small": counts | limits},
        "permission_denials": [],
        "session_id": SESSION,
    }


async def test_stream_json_has_init_first_and_one_result_last() -> None:
    ran = await play([EDIT])
    assert ran.kinds == "init assistant user user assistant result"
    init, first, read, bash, _, _ = ran.lines
    assert (init["cwd"], init["tools"], init["longrein_version"]) == (
        "/w/caffè",
        ["Read", "Bash"],
        "0.1.0",
    )
    assert first["message"]["content"] == [
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "c2.0", "name": "Read", "input": {"path": "a.py"}},
        {"type": "tool_use", "id": "c2.1", "name": "Bash", "input": {"command": "make"}},
    ]
    assert first["message"]["stop_reason"] == "tool_use"
    assert read["message"]["content"] == [
        {"type": "tool_result", "tool_use_id": "c2.0", "content": "1\tx = 1"}
    ]
    assert bash["message"]["content"][0]["is_error"] is True
    assert bash["tool_use_result"] == {"status": "failed", "elapsed_ms": 12}
    assert len({line["uuid"] for line in ran.lines}) == 6


async def test_what_asks_is_denied_and_recorded() -> None:
    ran = await play([BLOCKED])
    assert ran.code == 3
    denial = next(word for word in ran.session.said if isinstance(word, Answer))
    assert (denial.call, denial.verdict, denial.by) == ("c2.0", "deny", "headless")
    assert ran.kinds == "init assistant permission_denied user assistant result"
    assert ran.lines[2]["message"] == RM
    result = ran.lines[-1]
    assert (result["subtype"], result["is_error"]) == ("error_during_execution", True), (
        "blocked is no success"
    )
    assert (result["result"], result["errors"]) == ("I may not remove it.", ran.err)
    assert result["permission_denials"] == [
        {"tool_name": "Bash", "tool_use_id": "c2.0", "tool_input": {"command": RM}}
    ]
    assert ran.err == [NEEDS]


REFUSED: list[Step] = [
    *BLOCKED[:3],
    HookAnswered("./guard", "PreToolUse", "deny", "c2.0", "not on Sundays\nnor at night"),
    *BLOCKED[5:],
]
BY_PROGRAM: list[Step] = [
    *BLOCKED[:3],
    HookAnswered("cb", "PreToolUse", "deny", "c2.0", "no", source=PROGRAM),
    *BLOCKED[5:],
]
BY_RULE: list[Step] = [*BLOCKED[:3], *BLOCKED[5:]]
"""A turn that ends on a call that a rule or the mode has denied."""
BY_RULE_LATER: list[Step] = [
    asked(),
    answered(7, call(7, 0, "Read", path="a.py")),
    ended("c7.0", "Read", "Denied: by a rule", "denied", 0),
]
NEEDS = "blocked: Bash needs permission (rm -rf build): allow it with --allowedTools 'Bash(rm:*)'"
STOPPED = TurnEnded("blocked", "enough for today")


@pytest.mark.parametrize(
    ("turn", "subtype", "code", "said"),
    [
        (
            [TurnEnded("blocked", "the prompt was not sent: no")],
            "error_during_execution",
            3,
            "the prompt was not sent: no",
        ),
        (REFUSED, "success", 0, ""),
        (BY_RULE, "success", 0, ""),
        ([*BLOCKED[:-3], *BY_RULE_LATER, *BLOCKED[-3:]], "error_during_execution", 3, NEEDS),
        (BY_PROGRAM, "success", 0, ""),
        ([*REFUSED[:-1], STOPPED], "error_during_execution", 3, "enough for today"),
        ([*BY_PROGRAM[:-1], STOPPED], "error_during_execution", 3, "enough for today"),
        ([*HELLO[:-1], STOPPED], "error_during_execution", 3, "enough for today"),
        ([*REFUSED[:-1], DONE], "success", 0, ""),
    ],
)
async def test_a4_a_run_is_blocked_by_a_hook_that_stops_it_or_by_a_question_without_an_answer(
    turn: list[Step], subtype: str, code: int, said: str
) -> None:
    ran = await play([turn], OutputOptions("json", structured=turn[-1] == STOPPED))
    assert (ran.lines[-1]["subtype"], ran.code, ran.err) == (subtype, code, [said] if said else [])


async def test_what_a_hook_has_asked_of_a_model_is_counted() -> None:
    asked_model = HookAnswered(
        "safe?", "Stop", "none", usage=Usage(7, output_tokens=2), cost_usd=0.25
    )
    ran = await play([[*HELLO[:-1], asked_model, DONE]], "json")
    assert ran.lines[-1]["total_cost_usd"] == 0.5
    assert ran.lines[-1]["usage"]["input_tokens"] == 17


async def test_a_denial_that_did_not_matter_in_the_end_is_still_listed() -> None:
    ran = await play([[*BLOCKED[:-1], DONE]], "json")
    assert ran.code == 0
    assert len(ran.lines[0]["permission_denials"]) == 1


FAILS = "error_during_execution"


@pytest.mark.parametrize(
    ("last", "code", "subtype", "error"),
    [
        (
            [TurnEnded("limit", "the limit of 3 turns is reached")],
            4,
            "error_max_turns",
            "the limit of 3 turns is reached",
        ),
        ([TurnEnded("budget", "$1 is spent")], 4, "error_max_budget_usd", "$1 is spent"),
        ([TurnEnded("error", "nothing came of it")], 1, FAILS, "nothing came of it"),
        (
            [asked(), AskFailed(4, "overload", "full", 529), TurnEnded("error", "full")],
            75,
            FAILS,
            "full",
        ),
        (
            [asked(), AskFailed(4, "auth", "a bad key", 401), TurnEnded("error", "a bad key")],
            1,
            FAILS,
            "a bad key",
        ),
        (
            [asked(), AskFailed(4, "empty", "no answer"), TurnEnded("error", "empty answers")],
            1,
            FAILS,
            "empty answers",
        ),
        ([TurnEnded("interrupted")], 1, FAILS, "stopped: interrupted"),
        ([Raise(StoreFull("no room on the disk"))], 1, FAILS, "no room on the disk"),
    ],
)
async def test_A6_7_how_a_turn_ends(last: list[Step], code: int, subtype: str, error: str) -> None:
    begun: list[Step] = [
        UserSpoke((Text("do it"),)),
        asked(),
        answered(2, call(2, 0, "Read", path="a")),
    ]
    ran = await play([[*begun, *last]])
    result = ran.lines[-1]
    again = "; `longrein -p -c` tries again" if code == 75 else ""
    assert (ran.code, result["subtype"], result["errors"], ran.err) == (
        code,
        subtype,
        [error],
        [error + again],
    )
    text = await play([[*begun, *last]], "text")
    assert (text.code, text.out, text.err) == (code, b"", [error + again])


async def test_a_failed_request_is_also_an_assistant_line_with_its_error() -> None:
    turn: list[Step] = [
        asked(),
        AskFailed(1, "auth", "the key was refused", 401),
        TurnEnded("error", "refused"),
    ]
    ran = await play([turn])
    assert ran.kinds == "init assistant result"
    assert ran.lines[1]["error"] == "authentication_failed"
    assert ran.lines[1]["message"]["content"] == [{"type": "text", "text": "the key was refused"}]


async def test_retries_notices_compaction_and_tasks_are_system_lines() -> None:
    turn: list[Step] = [
        UserSpoke((Text("do it"),)),  # 1
        ModeSet("plan"),  # 2
        asked(),  # 3
        AskFailed(3, "rate", "slow down", 429),  # 4
        RetryPause(3, "rate", 429, 1, 10, 2.5, "slow down"),
        asked(),  # 5
        answered(5, "half", stop="length"),  # 6
        Asked("summary", 6, 1),  # 7
        answered(7, "a summary nobody should read as an answer"),  # 8
        Summarized(1, 6, "…", "watermark"),  # 9
        Cleared((Form("r3", "placeholder", "…"),), "request"),  # 10
        Reminded("continue", "go on exactly where it stopped"),  # 11
        TaskStarted("t1", "make serve", "c5.0"),  # 12
        TaskEnded("t1", "failed", 2, "", "r12"),  # 13
        UserNotice("folder is on a network mount"),
        asked(),  # 14
        answered(14, "whole"),
        DONE,
    ]
    ran = await play([turn])
    assert ran.kinds == (
        "init status api_retry assistant status status compact_boundary "
        "compact_boundary user task_started task_notification informational assistant result"
    )
    retry = [
        ran.lines[2][key]
        for key in ("attempt", "max_retries", "retry_delay_ms", "error_status", "error")
    ]
    assert retry == [1, 10, 2500, 429, "rate_limit"]
    assert ran.lines[1]["permissionMode"] == "plan"
    assert ran.lines[3]["error"] == "max_output_tokens"
    assert [line["status"] for line in ran.lines[4:6]] == ["compacting", None]
    assert ran.lines[6]["compact_metadata"] == {"trigger": "auto", "pre_tokens": 65}
    assert ran.lines[7]["compact_metadata"]["trigger"] == "manual"
    assert ran.lines[8]["isSynthetic"] is True
    result = ran.lines[-1]
    assert (result["result"], result["num_turns"], result["usage"]["output_tokens"]) == (
        "whole",
        2,
        15,
    )


async def test_no_prompt_goes_on_with_the_turn_that_was_cut() -> None:
    session = ScriptedSession([[asked(), answered(41, "There."), DONE]], seq=40, open_turn=True)
    ran = await play([], "text", prompt="", session=session)
    assert (ran.code, ran.out, ran.session.said) == (0, b"There.\n", [Continue()])


async def test_no_prompt_and_no_open_turn_is_a_usage_error() -> None:
    ran = await play([], "text", prompt="", session=ScriptedSession([], seq=40))
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err == ["nothing to go on with: the last turn has ended; give a prompt"]


async def test_A18_12_stream_has_the_published_types_and_the_prompt_went_in() -> None:
    ran = await play([HELLO], prompt="sum")
    assert [line["type"] for line in ran.lines] == ["system", "assistant", "result"]
    assert ran.session.said == [UserMessage((Text("sum"),))]


async def test_R095_a_line_is_one_line_of_utf8_whatever_stands_in_the_text() -> None:
    odd = 'quote " back\\slash \u2028\u2029\x85\x0b\x1c\r\n\x07 漢字 🦎'
    ran = await play(
        [
            [
                asked(),
                answered(1, odd, call(1, 0, "Bash", command="\ud800")),
                asked(),
                answered(3, odd),
                DONE,
            ]
        ]
    )
    assert ran.kinds == "init assistant assistant result"
    assert ran.lines[1]["message"]["content"][0]["text"] == odd
    assert ran.lines[-1]["result"] == odd
    assert "漢字" in ran.out.decode()


async def test_what_happened_before_anybody_listened_is_told_first() -> None:
    ran = await play(
        [HELLO], OutputOptions("stream-json", verbose=True), notes=("a torn entry was set aside",)
    )
    assert ran.kinds == "init informational assistant result"
    assert ran.err == ["a torn entry was set aside"]


def pause_line(pause: RetryPause) -> list[str]:
    return [line for step in Projection().read(pause) for line in progress(step)]


def test_a_wait_on_account_of_another_request_is_no_attempt() -> None:
    assert pause_line(RetryPause(3, "rate", 429, 1, 10, 2.5, "slow down")) == [
        "retrying in 2.5 s, attempt 2 of 10: slow down"
    ]
    assert pause_line(RetryPause(3, "rate", 429, 0, 10, 2.5, "slow down")) == [
        "waiting 2.5 s for the provider: slow down"
    ]


async def test_a_summary_whose_model_fails_is_told_on_stderr() -> None:
    failed = AskFailed(3, "network", "no connection")
    turn: list[Step] = [UserSpoke((Text("go"),)), ModeSet("plan"), Asked("summary", 1, 1), failed]
    turn += [asked(), answered(5, "so"), DONE]
    ran = await play([turn])
    assert ran.err == []
    ran = await play([turn], OutputOptions("text"))
    assert ran.err == ["the model wrote no summary: no connection"]
    assert ran.out == b"so\n"
