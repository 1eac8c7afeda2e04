"""Old logs always load. The golden session of each schema version holds every event, part and
field.

When the union grows, add a line to the golden session of the present version; never change an
existing line.
"""

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from longrein.store import Reader, export_jsonl
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    AnyPart,
    Entry,
    decode_entry,
    encode_entry,
)
from tests.store.fixtures import store, stored_log

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).parent / "golden_v1.jsonl"
SESSION = "0b5e4f6a-1c2d-4e3f-8a9b-0c1d2e3f4a5b"


def lines() -> list[bytes]:
    return GOLDEN.read_bytes().splitlines()


def structs(value: object) -> list[msgspec.Struct]:
    """Iterate every struct inside `value`, itself included."""
    match value:
        case msgspec.Struct():
            return [
                value,
                *(
                    one
                    for field in value.__struct_fields__
                    for one in structs(getattr(value, field))
                ),
            ]
        case tuple() | list():
            return [one for item in value for one in structs(item)]
        case _:
            return []


def test_R047_the_golden_session_loads_and_is_written_the_same() -> None:
    entries = [decode_entry(line) for line in lines()]
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [encode_entry(entry) for entry in entries] == lines()
    assert decode_entry(lines()[0]).event.version == SCHEMA_VERSION  # type: ignore[union-attr]


def test_the_golden_session_holds_every_event_every_part_and_every_field() -> None:
    found = structs([decode_entry(line) for line in lines()])
    kinds = {type(one) for one in found}
    assert set(get_args(AnyEvent)) - kinds == set()
    assert set(get_args(AnyPart)) - kinds == set()
    for kind in kinds - {Entry}:
        defaults = msgspec.structs.fields(kind)
        for field in defaults:
            values = [getattr(one, field.name) for one in found if type(one) is kind]
            assert any(value != field.default for value in values), (
                f"{kind.__name__}.{field.name} is never set"
            )


async def test_the_golden_session_makes_a_session_that_opens(tmp_path: Path) -> None:
    assert await store(tmp_path, map(decode_entry, lines())) == SESSION
    async with stored_log(tmp_path, SESSION) as log:
        assert list(log.entries) == [decode_entry(line) for line in lines()]
    with open(tmp_path / "out", "wb") as out:
        assert export_jsonl(Reader(str(tmp_path), SESSION), out) == len(lines())
    assert (tmp_path / "out").read_bytes().splitlines() == lines()
