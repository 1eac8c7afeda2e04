"""Laws 1, 3 and 4 over random sessions of the seed profiles."""

import pytest

from longrein.context import render
from longrein.events import ToolCall, ToolResult, parse_handle
from tests.context.random_session import RandomSession, content, refold
from tests.seeds import seeds


@pytest.fixture(scope="module", params=["seed", "seed-later", "seed-new", "seed-framework"])
def walks(request: pytest.FixtureRequest) -> list[RandomSession]:
    return [RandomSession(n, request.param, (12_000, 40_000, 200_000)[n % 3]).run() for n in seeds(3)]


def test_law_1_the_same_log_gives_the_same_request(walks: list[RandomSession]) -> None:
    for walk in walks:
        for sent in [one for one in walk.sent if one.request.purpose == "turn"][::20]:
            assert content(render(refold(walk, sent.at), walk.budget)) == content(sent.request), f"seed {walk.seed}"


def test_law_3_each_call_has_exactly_one_result_in_its_place(walks: list[RandomSession]) -> None:
    for walk in walks:
        for sent in walk.sent:
            waiting: list[str] = []
            for item in sent.request.items:
                if isinstance(item.part, ToolResult):
                    assert item.part.call == (waiting or [""]).pop(0), f"seed {walk.seed}"
                else:
                    assert not waiting or isinstance(item.part, ToolCall), f"seed {walk.seed}"
                    waiting += [item.part.id] if isinstance(item.part, ToolCall) else []
            assert not waiting


def test_law_4_every_block_has_a_handle_that_the_log_knows(walks: list[RandomSession]) -> None:
    for walk in walks:
        for sent in walk.sent:
            for item in sent.request.items[: -1 if sent.request.purpose == "summary" else None]:
                handle = parse_handle(item.handle)
                assert item.kind == "ack" or (handle is not None and handle.seq <= len(walk.entries))


def test_no_session_gets_stuck(walks: list[RandomSession]) -> None:
    for walk in walks:
        assert len(walk.sent) > 15, f"seed {walk.seed}: {walk.stops}"
