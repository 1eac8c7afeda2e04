"""Subscribers get entries once they are committed, and the reply to a request after the request."""

import asyncio

import pytest

from longrein.agent import ReplyDelta
from longrein.agent.subscribers import Subscribers
from longrein.models import TextDelta
from longrein_context.events import Asked, AskFailed, Entry
from tests.tables import cases

pytestmark = pytest.mark.anyio


def delta(asked: int, text: str) -> ReplyDelta:
    return ReplyDelta(asked, [TextDelta(text)])


ASKED, FAILED = Asked("turn", 0, 1), AskFailed(1, "truncated", "cut")
FIRST, ENDED, SECOND = Entry(1, 0, ASKED), Entry(2, 0, FAILED), Entry(3, 0, ASKED)
A, B, C = delta(1, "a"), delta(1, "b"), delta(3, "c")


@cases(
    "published heard",
    ([[FIRST], A, B, [ENDED]], [FIRST, A, B, ENDED]),
    ([A, [FIRST], B, [ENDED]], [FIRST, A, B, ENDED]),
    ([A, B, [FIRST, ENDED]], [FIRST, A, B, ENDED]),
    ([A, [FIRST, ENDED], C, [SECOND]], [FIRST, A, ENDED, SECOND, C]),
    ([A], []),  # it was never committed
)
async def test_a_reply_follows_its_request(
    published: list[ReplyDelta | list[Entry]], heard: list[object]
) -> None:
    subscribers = Subscribers(lambda first, last: (), committed=0)

    async def listen() -> list[object]:
        return [one async for one in subscribers.follow(0, streaming=True)]

    listening = asyncio.ensure_future(listen())
    await asyncio.sleep(0)
    assert subscribers.streaming
    for one in published:
        if isinstance(one, ReplyDelta):
            subscribers.publish(one)
        else:
            subscribers.commit(one)
    subscribers.close()
    assert await listening == heard
