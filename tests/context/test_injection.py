"""S079, S074, S077: injected text stays data on every surface; a seeded slice of
`lab.campaigns.injection`.
"""

import random

import pytest

from lab.campaigns.injection import faults_of, payloads, results_on_the_wires
from tests.seeds import TIMES

pytestmark = pytest.mark.anyio
CORPUS = payloads()
SLICE = random.Random(7).sample(CORPUS, min(len(CORPUS), 40 * TIMES))


def test_the_corpus_is_large() -> None:
    assert len(CORPUS) >= 200


@pytest.mark.parametrize("payload", SLICE, ids=lambda payload: ascii(payload)[:60])
def test_S079_a_payload_speaks_nowhere_in_the_harness_channel(payload: str) -> None:
    assert faults_of(payload) == []


async def test_S079_results_stay_in_their_place_on_every_wire() -> None:
    assert await results_on_the_wires(SLICE[:25]) == []
