"""A7: what servers send, as parts of a result, names and schemas; without the SDK."""

import base64
import json
import re
from typing import Any

import pytest

from longrein.extensions.mcp.mcp_port import ListedTool
from longrein.extensions.mcp.result_content import error_line, outcome_of, resource_parts
from longrein.extensions.mcp.tool_specs import (
    DEPTH_MAX,
    DESCRIPTION_CHARS_MAX,
    tool_name,
    tool_names,
    tool_spec,
    usable_schema,
)
from longrein.tools import Tool, fit_arguments
from longrein_context.events import Document, Image, Text, ToolSpec

PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    + (3).to_bytes(4, "big")
    + (2).to_bytes(4, "big")
    + b"\x08\x06\0\0\0"
)


class Blobs:
    """Blobs in memory."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def put_blob(self, data: bytes) -> str:
        self.kept.append(data)
        return f"b{len(self.kept)}"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def media(kind: str, data: str, mime: str) -> dict[str, str]:
    return {"type": kind, "data": data, "mimeType": mime}


RESOURCE = {"type": "resource", "resource": {"uri": "a://b", "text": "c"}}
LINK = {"type": "resource_link", "uri": "a://b", "name": "n", "description": "d"}
GIF = media("image", b64(PNG), "image/gif")
N = {"structuredContent": {"n": 1}}
FAILED = {"isError": True}
CONTENT: tuple[tuple[list[Any], dict[str, Any], tuple[Any, ...]], ...] = (
    # content, other fields, what the model sees
    ([text("a"), text("b")], {}, (Text("a"), Text("b"))),
    ([text("no")], FAILED, (Text("no"),)),
    ([], {}, (Text("[no content]"),)),
    ([], FAILED, (Text("[the server reported an error without a text]"),)),
    ([], N, (Text('{"n":1}'),)),
    ([text('{"n": 1}')], N, (Text('{"n": 1}'),)),
    ([text("\x1b[2Jx\x00\ud800")], {}, (Text("x\ufffd"),)),
    ([GIF], {}, (Image("b1", "image/png", len(PNG), 3, 2),)),
    ([media("image", "?", "image/png")], {}, (Text("[image: its data is no base64]"),)),
    ([media("audio", b64(b"wave"), "audio/wav")], {}, (Document("b1", "audio/wav", 4, "audio"),)),
    ([RESOURCE], {}, (Text("[resource a://b]\nc"),)),
    ([LINK], {}, (Text("[resource a://b: n d]"),)),
    ([{"type": "hologram"}], {}, (Text("[content of the unknown type hologram]"),)),
)


@pytest.mark.parametrize(("content", "more", "parts"), CONTENT)
def test_a_result(content: list[Any], more: dict[str, Any], parts: tuple[Any, ...]) -> None:
    found = outcome_of({"content": content, **more}, Blobs(), 1_000)  # type: ignore[arg-type]
    assert (found.status, found.parts) == ("failed" if more == FAILED else "ok", parts)


def test_a_result_of_many_parts_is_cut() -> None:
    found = outcome_of({"content": [text("x")] * 250}, Blobs(), 1_000)  # type: ignore[arg-type]
    assert len(found.parts) == 101
    assert found.parts[-1] == Text("[150 more parts are left out]")


def test_a_long_text_is_shown_by_its_ends() -> None:
    (part,) = outcome_of({"content": [text("a" * 600 + "z" * 600)]}, Blobs(), 1_000).parts  # type: ignore[arg-type]
    assert part == Document("b1", "text/plain", 1_200, "result", 1, "a" * 400, "z" * 600)


def test_a_binary_resource_is_kept() -> None:
    (part,) = resource_parts({"uri": "a://b", "blob": b64(b"\0\1")}, Blobs())  # type: ignore[arg-type]
    assert part == Document("b1", "application/octet-stream", 2, "resource a://b")


NAMES = (
    ("get", "mcp__s__get"),
    ("get.all things", "mcp__s__get_all_things"),
    ("Ä", "mcp__s___"),
    ("x" * 100, r"mcp__s__x{49}_[0-9a-f]{6}"),
)


@pytest.mark.parametrize(("name", "pattern"), NAMES)
def test_the_name_of_a_tool(name: str, pattern: str) -> None:

    assert re.fullmatch(pattern, tool_name("s", name))
    assert len(tool_name("s", name)) <= 64


def test_tools_whose_names_differ_in_a_sign_alone_are_two() -> None:
    found = tool_names("s", ["a.b", "a_b", "a-b", "x" * 100, "x" * 101])
    assert [*found.values()] == ["a.b", "a_b", "a-b", "x" * 100, "x" * 101]
    assert all(len(name) <= 64 for name in found)
    assert next(iter(found)) == "mcp__s__a_b"


@pytest.mark.parametrize(("printed", "line"), [
    ("", ""),
    ("cannot work here\n", "cannot work here"),
    ("Traceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'a'\n",
     "ModuleNotFoundError: No module named 'a'"),
    ("throw err;\n\nError: No module 'a'\n- b\n    at load (x)\n  code: 'E'\n}\n\nNode.js v2",
     "Error: No module 'a'"),
    ("Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'a'\n    at x\n",
     "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'a'"),
    ("npm error code E404\nnpm error 404\nA complete log is in: /x\n", "npm error 404"),
])  # fmt: skip
def test_the_line_with_the_error_is_told(printed: str, line: str) -> None:
    assert error_line(printed) == line


def test_descriptions_are_cut() -> None:
    found = len(tool_spec("mcp__s__a", ListedTool("a", "x" * 10_000, {}), "n").description)
    assert found == DESCRIPTION_CHARS_MAX


EMPTY = {"type": "object", "properties": {}, "required": []}
SCHEMAS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, EMPTY),
    ({"type": "string"}, EMPTY),
    ({"$schema": "x", "oneOf": [{}], "anyOf": [{}], "allOf": []}, EMPTY),
    ({"properties": 5, "required": "a"}, EMPTY),
    (
        {
            "properties": {"a": {}},
            "anyOf": [
                {"properties": {"b": {"type": "string"}, "c": {}}, "required": ["b", "c"]},
                {"properties": {"b": {}, "d": {}}, "required": ["b"]},
            ],
            "allOf": [{"properties": {"e": {}}, "required": ["e"]}, 5],
        },
        {
            "type": "object",
            "properties": {"e": {}, "b": {"type": "string"}, "c": {}, "d": {}, "a": {}},
            "required": ["e", "b"],
        },
    ),
    (
        {"properties": {"a": {}}, "required": ["a", "b", 5]},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
    ),
    ({"properties": {"a": {"description": "x" * 100_000}}}, EMPTY),
)


@pytest.mark.parametrize(("schema", "usable"), SCHEMAS)
def test_a_schema_is_made_usable(schema: dict[str, Any], usable: dict[str, Any]) -> None:
    assert usable_schema(schema) == usable


FITS: tuple[tuple[dict[str, Any], dict[str, Any], Any], ...] = (
    ({"a": {"type": ["string", "null"]}}, {"a": None}, {}),
    ({"a": {"type": ["integer", "null"]}}, {"a": "5"}, {"a": 5}),
    ({"a": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]}}, {"a": "true"}, {"a": True}),
    ({"a": True}, {"a": [1]}, {"a": [1]}),
    ({"a": {"$ref": "#/x"}}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ({"a": {"type": "tuple"}}, {"a": 1}, {"a": 1}),
    ({"a": {"type": "array", "items": [{"type": "integer"}]}}, {"a": ["x"]}, {"a": ["x"]}),
    ({"a": {"type": "object", "properties": 5}}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ({"a": {"type": "object", "properties": {"b": {}}, "required": "b"}}, {"a": {}}, {"a": {}}),
    (
        {
            "a": {
                "type": "object",
                "properties": {"b": {}},
                "required": ["b"],
                "additionalProperties": False,
            }
        },
        {"a": {}},
        None,
    ),
    ({"a": {"enum": 5, "type": "string"}}, {"a": "x"}, {"a": "x"}),
    ({"a": {"type": "integer"}}, {"a": "x"}, None),
)


@pytest.mark.parametrize(("properties", "given", "fitted"), FITS)
def test_arguments_for_a_foreign_schema(
    properties: dict[str, Any], given: dict[str, Any], fitted: Any
) -> None:
    async def run(*_: Any) -> Any: ...

    schema = usable_schema({"properties": properties})
    tool = Tool(ToolSpec("mcp__s__x", "", schema), "command", run, lambda _: False, lambda _: ())
    found, problem = fit_arguments(tool, given)
    assert (found, problem is None) == ((fitted, True) if fitted is not None else ({}, False)), (
        problem
    )


@pytest.mark.parametrize("around", ['{"properties": {"a": %s}}', '{"enum": [%s]}', "[%s]"])
def test_a_deep_schema_is_cut(around: str) -> None:
    text = "{}"
    for _ in range(100):
        text = around % text
    usable = json.dumps(usable_schema({"properties": {"a": json.loads(text)}}))
    assert DEPTH_MAX <= usable.count("{") + usable.count("[") <= DEPTH_MAX + 2
