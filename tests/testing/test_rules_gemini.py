"""Rules of the Gemini wire: requests that break one, and the refusal; … stands for more words."""

from typing import Any

import pytest

from longrein.testing.loopback import Call, Limits, LoopbackProvider, Rules, Turn
from tests.testing.http_client import PATHS, Change, changed, check, png, post

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
        "tools": [
            {"functionDeclarations": [{"name": "Read", "parametersJsonSchema": {"type": "object"}}]}
        ],
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


ASKED = turn("user", text("a"))
GEMINI: list[tuple[Change, str]] = [
    (lambda body: None, ""),
    (talk(), "* GenerateContentRequest.contents: contents is not specified"),
    (lambda b: b.update(model="x"), 'Invalid JSON payload received. Unknown name "model": Cannot…'),
    (talk(turn("assistant", text("x"))), "Please use a valid role: user, model."),
    (talk(turn("user")), "* GenerateContentRequest.contents[0].parts: contents.parts must not be…"),
    (talk(turn("user", "x")), "Invalid value at 'contents[0].parts[0]' (part): expected an object"),
    (
        lambda b: b["tools"][0]["functionDeclarations"][0].update(name="9a"),
        "* GenerateContentRequest.…an underscore.",
    ),
    (talk(turn("user", text("x" * 20_971_520))), "Request payload size exceeds the limit:…"),
    (talk(turn("user", *[picture(png(9, 9))] * 3_601)), "Please use fewer images: at most 3600…"),
    (talk(turn("user", {})), "* GenerateContentRequest.contents[0].parts[0].data: …must have one…"),
    (talk(ASKED, turn("user", text("b"))), "Please ensure that multiturn requests alternate…"),
    (talk(turn("model", text("a")), turn("user", text("b"))), "Please ensure that multiturn…"),
    (talk(ASKED, turn("model", text("b"))), "Please ensure that multiturn requests end with …or…"),
    (lambda b: b["contents"][2]["parts"].pop(1), "Please ensure that the number of function …the…"),
    (talk(ASKED, turn("model", call()), turn("user", response(), response())), "Please ensure…"),
    (talk(turn("user", response())), "Please ensure that function response turn comes …after a…"),
    (talk(ASKED, turn("model", call()), turn("user", response("Write"))), "Please ensure that…"),
    (talk(ASKED, turn("model", call()), turn("user", text("b"), response())), "Please ensure…"),
    (talk(turn("user", call())), "Please ensure that function call turn comes …after a function…"),
    (
        talk(ASKED, turn("model", call(), call()), turn("user", response(), response())),
        "Duplicate …contents[1].",
    ),
    (talk(ASKED, turn("model", call(""))), "* GenerateContentRequest.contents[1].parts[0].…Name…"),
    (talk(ASKED, turn("model", call("9a"))), "* GenerateContentRequest.contents[1].parts[0].…a…"),
    (lambda b: b["tools"].append(b["tools"][0]), "Duplicate function declaration found: Read"),
    # R027
    (talk(turn("user", text("a") | {"thoughtSignature": "x"})), "Corrupted thought signature."),
    (talk(turn("user", picture(png(9, 9)))), ""),
    (talk(turn("user", picture("aGk="))), "Unable to process input image."),
    (talk(turn("user", picture("aGk=", "image/tiff"))), "Unsupported MIME type: image/tiff"),
]


@pytest.mark.parametrize(("change", "said"), GEMINI)
async def test_a_rule_of_the_wire(change: Change, said: str) -> None:
    await check("gemini", changed(gemini, change), said)


KEYS = Rules(keys=("k-1",))
WINDOW = "The input token count (133) exceeds the maximum number of tokens allowed (100)."
OUTPUT = (
    "Unable to submit request because it has a maxOutputTokens value of 1000 …to 901 (exclusive). …"
)
KEY = "API key not valid. Please pass a valid API key."
SWITCHES: list[tuple[str, dict[str, Any]]] = [
    (WINDOW, {"limits": Limits(window_tokens=100)}),
    (OUTPUT, {"limits": Limits(output_tokens_max=900)}),
    (KEY, {"rules": KEYS, "headers": {"x-goog-api-key": "k-2"}}),
    ("", {"rules": KEYS, "path": PATHS["gemini"] + "&key=k-1"}),
]


@pytest.mark.parametrize(("said", "given"), SWITCHES)
async def test_a_switch_or_a_limit(said: str, given: dict[str, Any]) -> None:
    await check("gemini", gemini(), said, **given)


async def test_gemini_3_wants_the_signatures_of_the_calls_of_this_turn() -> None:
    path = PATHS["gemini"].replace("gemini-2.5-pro", "gemini-3-pro")
    missing = (
        "Function call is missing a thought_signature in functionCall parts. "
        "…`default_api:Read` , position 2."
    )
    answered = turn("user", response(), response("Gone", "c3_1"))
    now = [*gemini()["contents"][:2], answered]
    await check("gemini", gemini() | {"contents": now}, missing, path=path)
    before = [*now, turn("model", text("Done.")), turn("user", text("And now?"))]
    await check("gemini", gemini() | {"contents": before}, "", path=path)
    skipped = call(thoughtSignature="skip_thought_signature_validator")
    step = [turn("user", text("a")), turn("model", skipped), turn("user", response())]
    await check("gemini", gemini() | {"contents": step}, "", path=path)


async def test_R027_gemini_3_signs_the_first_call_and_knows_its_hand() -> None:
    path = PATHS["gemini"].replace("gemini-2.5-pro", "gemini-3-pro")
    made = (Call("Read", {"file_path": "a.py"}), Call("Read", {"file_path": "b.py"}))
    async with LoopbackProvider([Turn(calls=made)] * 2) as server:
        parts = [
            e["candidates"][0]["content"]["parts"][0]
            for e in (await post(server, path, gemini() | START)).events
        ]
        plain = (await post(server, PATHS["gemini"], gemini() | START)).body
    first, second = parts[:2]
    assert ("thoughtSignature" in first, "thoughtSignature" in second) == (True, False)
    assert b"thoughtSignature" not in plain
    answers = turn("user", *({"functionResponse": {"name": "Read", "response": {}}} for _ in made))
    step = [turn("user", text("a")), turn("model", first, second), answers]
    await check("gemini", gemini() | {"contents": step}, "", path=path)
    first["functionCall"]["args"] = {"file_path": "c.py"}
    await check("gemini", gemini() | {"contents": step}, "Corrupted thought signature.", path=path)
