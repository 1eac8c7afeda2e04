"""Rules of the Gemini wire and of all wires: for each a request that breaks it, and the exact error."""

import json
from typing import Any

import pytest

from longrein.testing.loopback import Call, Limits, LoopbackProvider, Rules, Turn
from tests.testing.http_client import PATHS, Change, changed, check, png, post, table
from tests.testing.test_rules_anthropic import good as anthropic
from tests.testing.test_rules_chat import chat
from tests.testing.test_rules_responses import responses

START = {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}
pytestmark = pytest.mark.anyio


def turn(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def text(words: str) -> dict[str, Any]:
    return {"text": words}


def call(name: str = "Read", id_: str = "c3_0", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"id": id_, "name": name, "args": {"file_path": "a.py"}}, **more}


def response(name: str = "Read", id_: str = "c3_0") -> dict[str, Any]:
    return {"functionResponse": {"id": id_, "name": name, "response": {"output": "print(1)"}}}


def gemini() -> dict[str, Any]:
    return {
        "systemInstruction": {"parts": [text("You are careful.")]},
        "generationConfig": {"maxOutputTokens": 1000},
        "tools": [{"functionDeclarations": [{"name": "Read", "parametersJsonSchema": {"type": "object"}}]}],
        "contents": [
            turn("user", text("fix it")),
            turn("model", text("I look."), call(), call("Gone", "c3_1")),
            turn("user", response(), response("Gone", "c3_1"), text("and hurry")),
        ],
    }


def talk(*made: Any) -> Change:
    return lambda body: body.update(contents=list(made))


def picture(data: str, media: str = "image/png") -> dict[str, Any]:
    return {"inlineData": {"mimeType": media, "data": data}}


NUMBER = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
AFTER = "Please ensure that function response turn comes immediately after a function call turn."

GEMINI = table(
    ("as it should be", lambda body: None, 200, ""),
    ("contents", talk(), 400, "* GenerateContentRequest.contents: contents is not specified"),
    (
        "no unknown field",
        lambda b: b.update(model="x"),
        400,
        'Invalid JSON payload received. Unknown name "model": Cannot find field.',
    ),
    ("known roles", talk(turn("assistant", text("x"))), 400, "Please use a valid role: user, model."),
    (
        "no empty turn",
        talk(turn("user")),
        400,
        "* GenerateContentRequest.contents[0].parts: contents.parts must not be empty.",
    ),
    (
        "a part is an object",
        talk(turn("user", "x")),
        400,
        "Invalid value at 'contents[0].parts[0]' (part): expected an object",
    ),
    (
        "a call is an object",
        talk(turn("user", text("a")), turn("model", {"functionCall": "Read"})),
        400,
        "Invalid value at 'contents[1].parts[0].functionCall'",
    ),
    (
        "alphabet of a tool's name",
        lambda b: b["tools"][0]["functionDeclarations"][0].update(name="9a"),
        400,
        (
            "* GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name. "
            "Must start with a letter "
            "or an underscore."
        ),
    ),
    (
        "a request of 20 MB",
        talk(turn("user", text("x" * 20_971_520))),
        400,
        "Request payload size exceeds the limit: 20971520 bytes.",
    ),
    (
        "3,601 pictures",
        talk(turn("user", *[picture(png(9, 9))] * 3_601)),
        400,
        "Please use fewer images: at most 3600 are allowed in one request.",
    ),
    (
        "no empty part",
        talk(turn("user", {})),
        400,
        (
            "* GenerateContentRequest.contents[0].parts[0].data: required oneof field 'data' must have one initialized "
            "field"
        ),
    ),
    (
        "roles alternate",
        talk(turn("user", text("a")), turn("user", text("b"))),
        400,
        "Please ensure that multiturn requests alternate between user and model.",
    ),
    (
        "first the user",
        talk(turn("model", text("a")), turn("user", text("b"))),
        400,
        "Please ensure that multiturn requests start with a user turn.",
    ),
    (
        "no prefill",
        talk(turn("user", text("a")), turn("model", text("b"))),
        400,
        "Please ensure that multiturn requests end with a user role or a function response.",
    ),
    ("a response is missing", lambda b: b["contents"][2]["parts"].pop(1), 400, NUMBER),
    ("no response at all", talk(turn("user", text("a")), turn("model", call()), turn("user", text("b"))), 400, NUMBER),
    ("calls at the end", talk(turn("user", text("a")), turn("model", call())), 400, NUMBER),
    (
        "two responses for one call",
        talk(turn("user", text("a")), turn("model", call()), turn("user", response(), response())),
        400,
        NUMBER,
    ),
    ("a response without a call", talk(turn("user", response())), 400, AFTER),
    (
        "a response of another call",
        talk(turn("user", text("a")), turn("model", call()), turn("user", response("Write"))),
        400,
        "Please ensure that function response parts match the function call parts by name and id.",
    ),
    (
        "responses come first",
        talk(turn("user", text("a")), turn("model", call()), turn("user", text("b"), response())),
        400,
        "Please ensure that function response parts come before all other parts of their turn.",
    ),
    (
        "a call is the model's",
        talk(turn("user", call())),
        400,
        "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
    ),
    (
        "ids are unique",
        talk(turn("user", text("a")), turn("model", call(), call()), turn("user", response(), response())),
        400,
        "Duplicate function call id 'c3_0' in contents[1].",
    ),
    (
        "a call has a name",
        talk(turn("user", text("a")), turn("model", call(""))),
        400,
        "* GenerateContentRequest.contents[1].parts[0].function_call.name: Name cannot be empty.",
    ),
    (
        "alphabet of names",
        talk(turn("user", text("a")), turn("model", call("9a"))),
        400,
        (
            "* GenerateContentRequest.contents[1].parts[0].function_call.name: Invalid function name. "
            "Must start with a "
            "letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.) or "
            "dashes (-), with a "
            "maximum length of 64."
        ),
    ),
    (
        "tool names are unique",
        lambda b: b["tools"].append(b["tools"][0]),
        400,
        "Duplicate function declaration found: Read",
    ),
    (
        "R027 no foreign signature",
        talk(turn("user", text("a") | {"thoughtSignature": "x"})),
        400,
        "Corrupted thought signature.",
    ),
    ("a good picture", talk(turn("user", picture(png(9, 9)))), 200, ""),
    ("a picture that is none", talk(turn("user", picture("aGk="))), 400, "Unable to process input image."),
    (
        "a picture of an unknown kind",
        talk(turn("user", picture("aGk=", "image/tiff"))),
        400,
        "Unsupported MIME type: image/tiff",
    ),
)


@pytest.mark.parametrize(**GEMINI)
async def test_a_gemini_rule_is_enforced_in_the_providers_words(change: Change, status: int, said: str) -> None:
    answer = await check("gemini", changed(gemini, change), status, said)
    if status != 200:
        assert json.loads(answer.body)["error"]["status"] == "INVALID_ARGUMENT"


async def test_the_gemini_window_is_held() -> None:
    words = "The input token count (133) exceeds the maximum number of tokens allowed (100)."
    await check("gemini", gemini(), 400, words, limits=Limits(window_tokens=100))
    words = (
        "Unable to submit request because it has a maxOutputTokens value of 1000 but the supported range is from 1 "
        "(inclusive) to 901 (exclusive). Update the value and try again."
    )
    await check("gemini", gemini(), 400, words, limits=Limits(output_tokens_max=900))
    words = "API key not valid. Please pass a valid API key."
    await check("gemini", gemini(), 400, words, rules=Rules(keys=("k-1",)), headers={"x-goog-api-key": "k-2"})
    await check("gemini", gemini(), 200, "", rules=Rules(keys=("k-1",)), path=PATHS["gemini"] + "&key=k-1")


async def test_gemini_3_wants_the_signatures_of_the_calls_of_this_turn() -> None:
    path = PATHS["gemini"].replace("gemini-2.5-pro", "gemini-3-pro")
    missing = (
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
        "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function "
        "call `default_api:Read` , position 2."
    )
    answered = turn("user", response(), response("Gone", "c3_1"))
    now = [*gemini()["contents"][:2], answered]
    await check("gemini", gemini() | {"contents": now}, 400, missing, path=path)
    before = [*now, turn("model", text("Done.")), turn("user", text("And now?"))]
    await check("gemini", gemini() | {"contents": before}, 200, "", path=path)
    skipped = call(thoughtSignature="skip_thought_signature_validator")
    step = [turn("user", text("a")), turn("model", skipped), turn("user", response())]
    await check("gemini", gemini() | {"contents": step}, 200, "", path=path)


async def test_R027_gemini_3_signs_the_first_call_and_knows_its_hand() -> None:
    path = PATHS["gemini"].replace("gemini-2.5-pro", "gemini-3-pro")
    made = (Call("Read", {"file_path": "a.py"}), Call("Read", {"file_path": "b.py"}))
    async with LoopbackProvider([Turn(calls=made)] * 2) as server:
        parts = [e["candidates"][0]["content"]["parts"][0] for e in (await post(server, path, gemini() | START)).events]
        plain = (await post(server, PATHS["gemini"], gemini() | START)).body
    first, second = parts[:2]
    assert ("thoughtSignature" in first, "thoughtSignature" in second) == (True, False)
    assert b"thoughtSignature" not in plain
    answers = turn("user", *({"functionResponse": {"name": "Read", "response": {}}} for _ in made))
    step = [turn("user", text("a")), turn("model", first, second), answers]
    await check("gemini", gemini() | {"contents": step}, 200, "", path=path)
    first["functionCall"]["args"] = {"file_path": "c.py"}
    await check("gemini", gemini() | {"contents": step}, 400, "Corrupted thought signature.", path=path)


# --- what all wires share ----------------------------------------------------------------------------------------

BODIES = {"anthropic": anthropic, "openai-chat": chat, "openai-responses": responses, "gemini": gemini}
DEEP = json.loads("[" * 120 + "]" * 120)


def with_raw(wire: str, raw: bytes) -> bytes:
    """A good body with `raw` in place of the user's words."""
    return json.dumps(BODIES[wire]()).encode().replace(b"fix it", raw)


@pytest.mark.parametrize("wire", BODIES)
async def test_text_that_is_no_unicode_is_refused_by_all(wire: str) -> None:
    for raw, words in (
        (b"a\xffb", "The request body is not valid JSON: 'utf-8' codec can't decode byte 0xff in position "),
        (b"a\\ud83dz", "The request body is not valid JSON: JSON is malformed: "),
        (b"a\\udc00", "The request body is not valid JSON: JSON is malformed: "),
        (b"a\\u0000b", "The request body is not valid: \\u0000 cannot be converted to text"),
    ):
        async with LoopbackProvider(lambda _: Turn(text="fine")) as server:
            answer = await post(server, PATHS[wire], with_raw(wire, raw))
        assert (answer.status, answer.said[: len(words)]) == (400, words)
    await check(wire, with_raw(wire, b"a\\\\u0000b \\ud83d\\ude00"), 200, "")


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + max(map(depth_of, inner), default=0)


@pytest.mark.parametrize("wire", BODIES)
async def test_what_is_no_request_is_refused_by_all(wire: str) -> None:
    for body, words in (
        (b"", "The request body is not valid JSON: Input data was truncated"),
        (b"[]", "The request body is not valid JSON: Expected `object`, got `array`"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "The request body is not valid JSON: nested deeper than 100 levels"),
    ):
        await check(wire, body, 400, words)
    deep = BODIES[wire]()
    deep["tools"] = DEEP
    await check(wire, deep, 400, "The request body is not valid JSON: nested deeper than 100 levels")
    depth = depth_of(BODIES[wire]())
    await check(wire, BODIES[wire](), 200, "", limits=Limits(depth_max=depth))
    said = f"The request body is not valid JSON: nested deeper than {depth - 1} levels"
    await check(wire, BODIES[wire](), 400, said, limits=Limits(depth_max=depth - 1))
    await check(wire, BODIES[wire](), 413, "Request exceeds the maximum size", limits=Limits(request_bytes_max=100))


async def test_paths_that_no_wire_has() -> None:
    async with LoopbackProvider([]) as server:
        server.models = ("small", "large")
        answer = await post(server, "/v1/embeddings", {})
        assert (answer.status, answer.said) == (404, "Not Found: no wire is spoken at this path")
        assert server.requests == []
