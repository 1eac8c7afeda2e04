"""Check of a call's arguments against the tool's schema, with one-line messages that a model can
act on.

A number in quotes, `null` for an optional argument and a list given as JSON text are converted.
Every other mismatch is an error that names the argument and the nearest valid key.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.tools.tool_port import Tool
from longrein_context.events import decode_json
from longrein_context.events.escape import shortened

# --- Nearest name, for "did you mean" -------------------------------------------------------------

MISSPELT_CHARS_MIN = 2


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the name most similar to `word`, or '' when none is near. Ignores case; ties go to
    the first.
    """
    best, best_score = "", 0.49
    for name in names:
        score = similarity(word.lower(), name.lower())
        if score > best_score:
            best, best_score = name, score
    return best


def misspelt(word: str, names: Iterable[str]) -> str:
    """Return the name of which `word` is a misspelling: at most one typo in three characters, and
    none in a name of one or two, where every other name is near. '' for none.
    """
    near = nearest(word, (name for name in names if len(name) > MISSPELT_CHARS_MIN))
    typos = edit_distance(word.lower(), near.lower()) if near else 0
    return near if typos * MISSPELT_CHARS_MIN < len(word) else ""


def similarity(one: str, other: str) -> float:
    """Return a similarity from 0.0 to 1.0 (equal). Quadratic in the length: for names only."""
    if one == other:
        return 1.0
    if not one or not other:
        return 0.0
    if min(len(one), len(other)) >= 3 and (one in other or other in one):
        return 0.8
    return 1.0 - edit_distance(one[:80], other[:80]) / max(len(one), len(other))


def edit_distance(one: str, other: str) -> int:
    """Return the number of typos: characters added, removed, replaced, or swapped with their
    neighbour.
    """
    two_ago, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        new = [i]
        for j, b in enumerate(other, 1):
            new.append(min(row[j] + 1, new[j - 1] + 1, row[j - 1] + (a != b)))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                new[j] = min(new[j], two_ago[j - 2] + 1)
        two_ago, row = row, new
    return row[-1]


# --- Arguments ------------------------------------------------------------------------------------


ARTICLES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}

SHOWN_CHARS_MAX = 60


class ArgumentMismatch(Exception):
    """Value that does not fit the schema. Internal to this module."""


def fit_arguments(
    tool: Tool, arguments: Mapping[str, Any], *, from_answer: bool = False
) -> tuple[dict[str, Any], str | None]:
    """Return the converted arguments and None, or {} and the error message.

    Without a conversion the first value equals `arguments`. `from_answer`: the user's answer has
    replaced the model's.
    """
    own = tool.user.arguments if tool.user and from_answer else ()
    given = {key: arguments[key] for key in own if key in arguments}
    try:
        return fit_object(
            tool.spec.schema, {k: v for k, v in arguments.items() if k not in given}, ""
        ) | given, None
    except ArgumentMismatch as misfit:
        return (
            {},
            (
                f"[bad-arguments] {tool.spec.name}: {misfit}. Nothing was done; correct the call "
                "and "
                "send it again."
            ),
        )


def malformed_arguments_message(name: str, received: str) -> str:
    """Return the error for arguments that are not a JSON object."""
    try:
        found = decode_json(received)
        kinds = {str: "a string", bool: "a boolean", list: "a list", type(None): "null"}
        why = f"they are {kinds.get(type(found), 'a number')}"
    except msgspec.DecodeError as error:
        why = str(error).removeprefix("JSON is malformed: ").split(" (byte")[0] + error_position(
            received, error
        )
    return (
        f"[bad-json] The arguments of {name} are not a JSON object: {why}. Nothing was done; "
        "send valid JSON."
    )


def error_position(received: str, error: Exception) -> str:
    """Return the position of a JSON error with the text around it."""
    _, _, digits = str(error).partition("(byte ")
    if not digits:
        return ""
    at = int(digits.rstrip(")"))
    near = received.encode("utf-8", "replace")[max(0, at - 20) : at + 20].decode("utf-8", "replace")
    return f" at byte {at}, near {quote_value(near)}"


def fit_object(schema: Mapping[str, Any], value: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Convert an object: all keys known, required keys present, values of their types."""
    properties: dict[str, Any] = schema.get("properties", {})
    required: Sequence[str] = schema.get("required", ())
    required = required if isinstance(required, list | tuple) else ()
    if schema.get("additionalProperties", True) is False:
        refuse_unknown(value, properties, required, at)
    fitted = {}
    for key, one in value.items():
        if one is None and key in properties and key not in required:
            continue
        fitted[key] = fit_value(properties[key], one, f"{at}{key}") if key in properties else one
    missing = [key for key in required if key not in fitted]
    if missing:
        raise ArgumentMismatch(
            "missing "
            + ", ".join(f'"{at}{key}" ({type_words(properties.get(key, {}))})' for key in missing)
        )
    return fitted


def refuse_unknown(
    value: Mapping[str, Any], properties: Mapping[str, Any], required: Sequence[str], at: str
) -> None:
    """Raise for keys that are not in the schema, with the nearest valid ones."""
    unknown = [key for key in value if key not in properties]
    if not unknown:
        return
    said = []
    for key in unknown:
        near = misspelt(key, [name for name in properties if name not in value])
        said.append(
            f'unknown argument "{at}{key}"' + (f' (did you mean "{at}{near}"?)' if near else "")
        )
    known = ", ".join(
        name + (" (required)" if name in required else "")
        for name, one in properties.items()
        if not one.get("deprecated")
    )
    raise ArgumentMismatch(f"{', '.join(said)}; it takes {known or 'no arguments'}")


def fit_value(schema: Any, value: Any, at: str) -> Any:
    """Convert `value` to the type in `schema`. What a foreign schema says beyond that is left to
    its server.
    """
    if not isinstance(schema, Mapping):
        return value
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return fit_any(schema[key], value, at)
    kind = schema.get("type")
    if isinstance(kind, list):
        return fit_any([{**schema, "type": one} for one in kind], value, at)
    if not isinstance(kind, str) or kind not in ARTICLES or (kind == "null" and value is None):
        return value
    fitted = read_as(kind, value)
    if fitted is None:
        raise ArgumentMismatch(f'"{at}" must be {type_words(schema)}, not {quote_value(value)}')
    if isinstance(schema.get("enum"), list) and fitted not in schema["enum"]:
        near = nearest(str(fitted), [str(one) for one in schema["enum"]])
        hint = f' (did you mean "{near}"?)' if near else ""
        raise ArgumentMismatch(
            f'"{at}" must be {type_words(schema)}, not {quote_value(value)}{hint}'
        )
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return [fit_value(schema["items"], one, f"{at}[{i}]") for i, one in enumerate(fitted)]
    is_known = kind == "object" and isinstance(schema.get("properties"), Mapping)
    return fit_object(schema, fitted, f"{at}.") if is_known else fitted


def fit_any(schemas: Sequence[Mapping[str, Any]], value: Any, at: str) -> Any:
    """Convert `value` by the first of `schemas` that accepts it."""
    for schema in schemas:
        try:
            return fit_value(schema, value, at)
        except ArgumentMismatch:
            continue
    raise ArgumentMismatch(
        f'"{at}" must be {" or ".join(type_words(schema) for schema in schemas)}, not '
        f"{quote_value(value)}"
    )


def read_as(kind: str, value: Any) -> Any:
    """Convert `value` to the JSON type `kind`; None when that is not possible."""
    match kind, value:
        case "string", str():
            return value
        case "string", int() | float() if not isinstance(value, bool):
            return str(value)
        case "boolean", bool():
            return value
        case "boolean", str() if value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        case (("integer" | "number"), str() | int() | float()) if not isinstance(value, bool):
            return read_number(kind, value)
        case ("array", list()) | ("object", dict()):
            return value
        case (("array" | "object"), str()):
            return read_json(kind, value)
    return None


def read_number(kind: str, value: str | float) -> int | float | None:
    """Convert to a number. For `integer`, 3, 3.0 and "3" are accepted and 3.5 is not."""
    if isinstance(value, int):
        return value
    try:
        number = float(value)
        whole = int(value) if isinstance(value, str) and kind == "integer" else int(number)
    except (ValueError, OverflowError):
        return None
    if kind == "integer":
        return whole if whole == number else None
    return number


def read_json(kind: str, value: str) -> Any:
    """Parse a list or object given as JSON text; None for anything else."""
    try:
        found = decode_json(value)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, list if kind == "array" else dict) else None


def type_words(schema: Any) -> str:
    """Describe the type that `schema` wants, in words."""
    if not isinstance(schema, Mapping):
        return "a value"
    if isinstance(schema.get("enum"), list):
        return " or ".join(f'"{one}"' for one in schema["enum"])
    return ARTICLES.get(str(schema.get("type", "")), "a value")


def quote_value(value: Any) -> str:
    """Quote a value as JSON, at most `SHOWN_CHARS_MAX` characters."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, UnicodeEncodeError, OverflowError):
        text = ascii(value)
    return shortened(text, SHOWN_CHARS_MAX)
