"""Whether a call's arguments fit a tool's schema, said in one line that a model can act on.

Strict in what it accepts, gentle in how: a number in quotes, `null` for what is optional and a list that came as JSON
text are read as what they plainly mean; anything else is named, with the nearest valid key.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.events import decode_json
from longrein.tools.port import Tool

# --- The name a person or a model probably meant ---------------------------------------------------------------------


def nearest(word: str, names: Iterable[str]) -> str:
    """The one of `names` most like `word`, or '' when none is near. Case does not count; ties go to the first."""
    best, best_score = "", 0.49
    for name in names:
        score = similarity(word.lower(), name.lower())
        if score > best_score:
            best, best_score = name, score
    return best


def similarity(one: str, other: str) -> float:
    """1.0 for equal words, 0.0 for words without a common pair of letters. Quadratic in the length: for names only."""
    if one == other:
        return 1.0
    if not one or not other:
        return 0.0
    if min(len(one), len(other)) >= 3 and (one in other or other in one):
        return 0.8
    return 1.0 - edit_distance(one[:80], other[:80]) / max(len(one), len(other))


def edit_distance(one: str, other: str) -> int:
    """Letters to insert, delete or replace (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        corner, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (a != b))
    return row[-1]


# --- arguments -------------------------------------------------------------------------------------------------------


ARTICLES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}

SHOWN_CHARS_MAX = 60


class ArgumentMismatch(Exception):
    """A value does not fit; the text says why. Never leaves this file."""


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """What is wrong with `arguments`, or None."""
    return fit_arguments(tool, arguments)[1]


def fit_arguments(tool: Tool, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The arguments to run with, and what is wrong with them (then the first value means nothing).

    When nothing had to be read gently the first value equals `arguments`.
    """
    try:
        return fit_object(tool.spec.schema, arguments, ""), None
    except ArgumentMismatch as misfit:
        return {}, f"[bad-arguments] {tool.spec.name}: {misfit}. Nothing was done; correct the call and send it again."


def malformed_arguments_message(name: str, received: str) -> str:
    """What the model is told when its arguments were no JSON object."""
    try:
        found = decode_json(received)
        why = f"they are {value_type_words(found)}"
    except msgspec.DecodeError as error:
        why = str(error).removeprefix("JSON is malformed: ").split(" (byte")[0] + error_position(received, error)
    return f"[bad-json] The arguments of {name} are not a JSON object: {why}. Nothing was done; send valid JSON."


def error_position(received: str, error: Exception) -> str:
    """The place of a JSON error, with the text around it."""
    _, _, digits = str(error).partition("(byte ")
    if not digits:
        return ""
    at = int(digits.rstrip(")"))
    near = received.encode("utf-8", "replace")[max(0, at - 20) : at + 20].decode("utf-8", "replace")
    return f" at byte {at}, near {quote_value(near)}"


def unknown_tool_message(name: str, names: Sequence[str]) -> str:
    """What the model is told of a tool that does not exist."""
    near = nearest(name, names)
    hint = f" Did you mean {near}?" if near else ""
    return f"[unknown-tool] There is no tool {quote_value(name)}.{hint} Tools: {', '.join(names)}."


def fit_object(schema: Mapping[str, Any], value: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Every key known, every required one there, every value of its type."""
    properties: dict[str, Any] = schema.get("properties", {})
    if schema.get("additionalProperties", True) is False:
        refuse_unknown(value, properties, schema["required"], at)
    fitted = {}
    for key, one in value.items():
        if one is None and key in properties and key not in schema["required"]:
            continue
        fitted[key] = fit_value(properties[key], one, f"{at}{key}") if key in properties else one
    missing = [key for key in schema.get("required", ()) if key not in fitted]
    if missing:
        raise ArgumentMismatch(
            "missing " + ", ".join(f'"{at}{key}" ({type_words(properties[key])})' for key in missing)
        )
    return fitted


def refuse_unknown(value: Mapping[str, Any], properties: Mapping[str, Any], required: Sequence[str], at: str) -> None:
    """Name each key that is not in the schema, and what may have been meant."""
    unknown = [key for key in value if key not in properties]
    if not unknown:
        return
    said = []
    for key in unknown:
        near = nearest(key, [name for name in properties if name not in value])
        said.append(f'unknown argument "{at}{key}"' + (f' (did you mean "{at}{near}"?)' if near else ""))
    known = ", ".join(name + (" (required)" if name in required else "") for name in properties)
    raise ArgumentMismatch(f"{', '.join(said)}; it takes {known or 'no arguments'}")


def fit_value(schema: Mapping[str, Any], value: Any, at: str) -> Any:
    """`value` as what `schema` wants."""
    if "anyOf" in schema:
        return fit_any(schema["anyOf"], value, at)
    kind = schema.get("type")
    if kind is None:
        return value
    fitted = read_as(kind, value)
    if fitted is None:
        raise ArgumentMismatch(f'"{at}" must be {type_words(schema)}, not {quote_value(value)}')
    if "enum" in schema and fitted not in schema["enum"]:
        near = nearest(str(fitted), [str(one) for one in schema["enum"]])
        hint = f' (did you mean "{near}"?)' if near else ""
        raise ArgumentMismatch(f'"{at}" must be {type_words(schema)}, not {quote_value(value)}{hint}')
    if kind == "array" and "items" in schema:
        return [fit_value(schema["items"], one, f"{at}[{i}]") for i, one in enumerate(fitted)]
    return fit_object(schema, fitted, f"{at}.") if kind == "object" and "properties" in schema else fitted


def fit_any(schemas: Sequence[Mapping[str, Any]], value: Any, at: str) -> Any:
    """`value` as the first of `schemas` that takes it."""
    for schema in schemas:
        try:
            return fit_value(schema, value, at)
        except ArgumentMismatch:
            continue
    raise ArgumentMismatch(
        f'"{at}" must be {" or ".join(type_words(schema) for schema in schemas)}, not {quote_value(value)}'
    )


def read_as(kind: str, value: Any) -> Any:
    """`value` if it is, or plainly means, a `kind`; else None."""
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
    """3, 3.0 and "3" are whole numbers; 3.5 is not."""
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
    """A list or object that came as JSON text."""
    try:
        found = decode_json(value)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, list if kind == "array" else dict) else None


def type_words(schema: Mapping[str, Any]) -> str:
    """The type in words."""
    if "enum" in schema:
        return " or ".join(f'"{one}"' for one in schema["enum"])
    return ARTICLES.get(schema.get("type", ""), "a value")


def value_type_words(value: Any) -> str:
    """What a JSON value is, in words."""
    kinds = {str: "a string", bool: "a boolean", list: "a list", type(None): "null"}
    return kinds.get(type(value), "a number")


def quote_value(value: Any) -> str:
    """A value as the model wrote it, short."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, UnicodeEncodeError, OverflowError):
        text = ascii(value)
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"
