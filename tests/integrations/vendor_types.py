"""Values built at random from the type definitions of vendors' libraries."""

import collections.abc
import enum
import types
import typing
from datetime import UTC, datetime
from random import Random
from typing import Any, Literal, Union

DEPTH_MAX = 5
"""Depth from which optional fields and items of lists are left out."""


def random_value(hint: Any, random: Random, depth: int = 0) -> Any:  # noqa: PLR0911 - a case for each kind
    """Build a value of a type hint: TypedDict, pydantic model, union, literal, collection, scalar.

    Unknown hints give a text.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(hint, "__value__"):  # `type X = …`
        return random_value(hint.__value__, random, depth)
    if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired):
        return random_value(arguments[0], random, depth)
    if origin is Literal:
        return random.choice(arguments)
    if origin in (Union, types.UnionType):
        return random_value(random.choice(arguments), random, depth)
    if hasattr(hint, "__required_keys__"):
        return _random_dict(hint, random, depth)
    if hasattr(hint, "model_fields"):
        return _random_model(hint, random, depth)
    if origin in (list, collections.abc.Iterable, collections.abc.Sequence):
        count = random.randrange(3) if depth < DEPTH_MAX else 0
        return [random_value(arguments[0], random, depth + 1) for _ in range(count)]
    if origin in (dict, collections.abc.Mapping) or hint is dict:
        return {"k": random.randrange(9)} if random.randrange(2) else {}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return random.choice(list(hint))
    return _random_scalar(hint, random)


def _random_scalar(hint: Any, random: Random) -> Any:
    made = {
        type(None): None,
        int: random.randrange(1000),
        float: random.randrange(1000) / 8,
        bool: bool(random.randrange(2)),
        bytes: random.randbytes(8),
        datetime: datetime.fromtimestamp(random.randrange(10**9), UTC),
    }
    text = " ".join(f"w{random.randrange(10**6)}" for _ in range(random.randrange(1, 5)))
    return made.get(hint, text)


def _random_dict(hint: Any, random: Random, depth: int) -> dict[str, Any]:
    hints = typing.get_type_hints(hint, include_extras=True)
    return {
        name: random_value(kind, random, depth + 1)
        for name, kind in hints.items()
        if _is_required(hint, name, kind) or (depth < DEPTH_MAX and random.randrange(2))
    }


def _is_required(hint: Any, name: str, kind: Any) -> bool:
    """Return whether a key is required, also where annotations were texts and hid `Required`."""
    if typing.get_origin(kind) is typing.NotRequired:
        return False
    return typing.get_origin(kind) is typing.Required or (
        hint.__total__ and name in hint.__required_keys__
    )


def _random_model(hint: Any, random: Random, depth: int) -> Any:
    given = {
        name: random_value(field.annotation, random, depth + 1)
        for name, field in hint.model_fields.items()
        if field.is_required() or (depth < DEPTH_MAX and random.randrange(3) == 0)
    }
    return hint.model_construct(**given)


def random_shape(shape: Any, random: Random, depth: int = 0) -> Any:
    """Build a value of a shape of botocore's service models. A union gets one member."""
    match shape.type_name:
        case "structure":
            names = list(shape.members)
            if getattr(shape, "is_tagged_union", False):
                names = [random.choice(names)]
            elif depth >= DEPTH_MAX:
                names = list(shape.required_members)
            else:
                needed = shape.required_members
                names = [name for name in names if name in needed or random.randrange(2)]
            return {name: random_shape(shape.members[name], random, depth + 1) for name in names}
        case "list":
            count = random.randrange(3) if depth < DEPTH_MAX else 0
            return [random_shape(shape.member, random, depth + 1) for _ in range(count)]
        case "map":
            return {"k": random_shape(shape.value, random, depth + 1)}
        case "string" if shape.enum:
            return random.choice(shape.enum)
        case kind:
            scalars = {"integer": int, "long": int, "float": float, "double": float}
            hints = {**scalars, "boolean": bool, "blob": bytes, "timestamp": datetime}
            return _random_scalar(hints.get(kind, str), random)
