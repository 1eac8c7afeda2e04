"""The tool `StructuredOutput`: the model ends with an object that fits a JSON schema of the
user.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from longrein.tools.tool_port import Outcome, Tool
from longrein_context.events import ToolSpec, ToolTraits, UsageError, decode_json

STRUCTURED_OUTPUT = "StructuredOutput"
DESCRIPTION = (
    "Give the final answer of this task as an object that fits the schema. Call it exactly once, "
    "at the end, when "
    "everything else is done; only this call counts as the answer."
)
ERROR_CHARS_MAX = 500


def structured_output_tool(text: str) -> Tool:
    """Return the tool for the JSON schema in `text`, the value of `--json-schema`. Raises
    `UsageError`.
    """
    try:
        schema: Any = decode_json(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"--json-schema is no JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise UsageError(
            '--json-schema must describe an object: {"type": "object", "properties": {…}}'
        )
    schema = {"type": "object", "properties": {}, **schema}
    problem = _validator(schema)

    async def run(_context: object, /, **arguments: Any) -> Outcome:
        misfit = problem(arguments)
        if misfit:
            return Outcome.fail(
                f"[bad-output] {misfit}. Correct it and call {STRUCTURED_OUTPUT} again."
            )
        return Outcome.of("The answer was taken. End your turn now.")

    spec = ToolSpec(STRUCTURED_OUTPUT, DESCRIPTION, schema, ToolTraits(kind="other"))
    return Tool(spec, "none", run, lambda _: False, lambda _: ())


def _validator(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that describes why arguments do not fit `schema`; '' where they do.

    The package `jsonschema` checks everything; without it, types, required keys and enums are
    checked before the call.
    """
    try:
        from jsonschema import Draft202012Validator, exceptions
    except ImportError:
        return lambda _: ""
    try:
        Draft202012Validator.check_schema(schema)
    except exceptions.SchemaError as error:
        raise UsageError(
            f"--json-schema is no JSON schema: {error.message[:ERROR_CHARS_MAX]}"
        ) from None
    validator = Draft202012Validator(schema)

    def problem(arguments: Mapping[str, Any]) -> str:
        found = exceptions.best_match(validator.iter_errors(dict(arguments)))
        return f"{found.json_path}: {found.message}"[:ERROR_CHARS_MAX] if found is not None else ""

    return problem
