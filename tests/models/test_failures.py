"""Classification of provider errors: kind, wait, window and message."""

# ruff: noqa: E501 - exact JSON and exact sentences are read as one line

import json
from base64 import b64encode

import pytest

from longrein.models import Failure, pause_s
from longrein.models.failures import RetryHeaders, failure_of_status, limit_tokens, retry_after_s
from longrein_context import Request
from longrein_context.events import Image, Text, Thinking
from tests.models.http_server import (
    BLOBS,
    Answer,
    answer_of,
    item,
    open_wire_model,
    request,
    serve_answers,
)
from tests.tables import read_rows

NOW_S = 1_795_255_200.0  # 2026-11-21 10:00:00 UTC


def failure(status: int, body: str, **headers: str) -> Failure:
    return failure_of_status(status, body, RetryHeaders(**headers), NOW_S)


OVERFLOWS = (  # R021: status | who | what | window it names
    """
400 | Anthropic | prompt is too long: 213462 tokens > 200000 maximum | 200000
400 | Anthropic | input length and `max_tokens` exceed context limit: 195000 + 20000 > 200000, decrease input length | 200000
413 | Anthropic | {"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}} | 0
400 | OpenAI | This model's maximum context length is 128,000 tokens. However, your messages resulted in 131072 tokens. | 128000
400 | OpenAI | Your input exceeds the context window of this model. Please adjust your input and try again. | 0
400 | Gemini | The input token count (1196265) exceeds the maximum number of tokens allowed (1048575). | 1048575
400 | xAI | This model's maximum prompt length is 131072 but the request contains 537812 tokens. | 131072
400 | Groq | Please reduce the length of the messages or completion. | 0
400 | OpenRouter | This endpoint's maximum context length is 65536 tokens. However, you requested about 70000 tokens | 65536
400 | Copilot | prompt token count of 130000 exceeds the limit of 128000 | 128000
400 | Mistral | Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length | 32768
400 | Moonshot | Invalid request: Your request exceeded model token limit: 262144 | 262144
400 | MiniMax | invalid params, context window exceeds limit | 0
400 | Bedrock | ValidationException: Input is too long for requested model. | 0
422 | TGI | Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32768. Given: 40000 | 32768
400 | vLLM | The decoder prompt (length 40000) is longer than the maximum model length of 32768. | 32768
400 | llama.cpp | {"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}} | 4096
400 | LM Studio | The number of tokens to keep from the initial prompt is greater than the context length. | 0
400 | LM Studio | Trying to keep the first 12000 tokens when context overflows. However, the model is loaded with context length of only 4096 tokens | 4096
400 | Ollama | prompt too long; exceeded max context length by 1234 tokens | 0
400 | Qwen | <400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024] | 129024
400 | Z.ai | Prompt exceeds max length | 0
400 | Cohere | too many tokens: total number of tokens in the prompt cannot exceed 128000 | 128000
400 | Cerebras, without a word | | 0
413 | a proxy, without a word | | 0
400 | any | The context window was exceeded | 0
500 | a server that blames itself | the request exceeds the available context size | 0
"""
)
ROWS = [
    tuple(part.strip() for part in line.split(" | "))
    for line in OVERFLOWS.replace("| |", "|  |").strip().splitlines()
]


@pytest.mark.parametrize(("status", "who", "said", "window"), ROWS)
def test_R021_every_spelling_of_too_long(status: str, who: str, said: str, window: str) -> None:
    found = failure(int(status), said)
    assert (found.kind, found.limit_tokens) == ("overflow", int(window)), who


@pytest.mark.parametrize("said", [row[2] for row in ROWS if row[2]])
def test_the_status_decides_first_a_429_is_never_an_overflow(said: str) -> None:
    assert failure(429, said).kind == "rate"


KINDS = r"""
429 => {"error":{"message":"Rate limit reached for requests","type":"tokens"}} => rate
429 => This request would exceed the limit on input tokens per minute of 30,000 => rate
429 => {"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}} => billing
529 => {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}} => overload
503 => The model is overloaded. Please try again later. => overload
500 => {"error":{"message":"Internal server error"}} => server
502 => <html><head><title>502 Bad Gateway</title></head></html> => server
504 =>  => server
408 => Request Timeout => server
409 => conflict => server
520 => cloudflare => server
401 => {"error":{"message":"invalid x-api-key"}} => auth
403 => forbidden => auth
403 => Your prompt was blocked by our safety system => refused
402 => Insufficient credits => billing
400 => Your credit balance is too low to access the Anthropic API => billing
400 => [{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}] => auth
400 => {"error":{"code":"content_filter","message":"triggering content management"}} => refused
400 => {"error":{"message":"tools.0.name: String should match pattern"}} => invalid
404 => {"error":{"message":"The model `gpt-9` does not exist"}} => invalid
422 => {"detail":[{"msg":"Extra inputs are not permitted"}]} => invalid
301 =>  => invalid
"""


@pytest.mark.parametrize(("status", "said", "kind"), read_rows(KINDS))
def test_the_kind_of_a_failure(status: str, said: str, kind: str) -> None:
    assert failure(int(status), said).kind == kind


INNER = (
    r'{"error":{"message":"Provider said","metadata":{"raw":"{\"error\":{\"message\":\"no\"}}"}}}'
)
LINES = f"""
400 => {{"error":{{"message":"bad tool"}}}} => bad tool (HTTP 400)
404 => {{"detail":"no such model"}} => no such model (HTTP 404)
422 => {{"detail":[{{"loc":["x"],"msg":"Extra inputs"}}]}} => Extra inputs (HTTP 422)
502 => <html><body>⏎<h1>Bad Gateway</h1>⏎</body></html> => Bad Gateway (HTTP 502)
500 =>  => HTTP 500
400 => {INNER} => Provider said: no (HTTP 400)
401 => {{"error":{{"message":"invalid x-api-key"}}}} =>
    the provider refused the key (HTTP 401: invalid x-api-key); check the key (`longrein login` \
keeps another) or use another provider
402 => pay => the provider wants money first (HTTP 402: pay); top up the account or use another model
400 => {"x" * 9000} => {"x" * 500} (HTTP 400)
"""


@pytest.mark.parametrize(("status", "said", "line"), read_rows(LINES))
def test_one_line_for_the_person(status: str, said: str, line: str) -> None:
    assert failure(int(status), said).message == line


DAY = "Sat, 21 Nov 2026 "


@pytest.mark.parametrize(("headers", "seconds"), [
    ({"retry_after": "2"}, 2.0),
    ({"retry_after": "0.5"}, 0.5),
    ({"retry_after": "7s"}, 7.0),
    ({"retry_after_ms": "1500", "retry_after": "2"}, 1.5),
    ({"retry_after": f"{DAY}10:00:30 GMT"}, 30.0),
    ({"retry_after": f"{DAY}10:00:30 GMT", "date": f"{DAY}10:00:20 GMT"}, 10.0),
    ({"retry_after": f"{DAY}09:00:00 GMT"}, 0.0),
    ({}, -1.0),
    ({"retry_after": "soon"}, -1.0),
    ({"retry_after": "-5"}, -1.0),
    ({"retry_after": "nan"}, -1.0),
])  # fmt: skip
def test_R001_retry_after_in_its_spellings(headers: dict[str, str], seconds: float) -> None:
    assert retry_after_s(RetryHeaders(**headers), NOW_S) == seconds


def test_a_number_that_can_be_no_window_is_none() -> None:
    assert limit_tokens("maximum context length is 12") == 0
    assert limit_tokens("nothing here") == 0


@pytest.mark.anyio
@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses", "gemini"])
async def test_R001_over_the_wire(wire: str) -> None:
    said = json.dumps({"error": {"message": "slow down"}}).encode()
    headers = {"retry-after": "2", "content-type": "application/json"}
    async with serve_answers(Answer(said, 429, headers)) as server:
        model = open_wire_model(wire, server.url)
        deltas = await answer_of(model, request(item(1, Text("q"), "user")))
        assert deltas == [Failure("rate", "slow down (HTTP 429)", 429, 2.0)]
        await model.aclose()


# --- what is refused for one thing in it ----------------------------------------------------------

THOUGHT = '{"type":"thinking","thinking":"hm","signature":"S1"}'


TOO_MANY_PIXELS = (
    "messages.9.content.0.image.source.base64.data: At least one of the image dimensions exceed "
    "max allowed size for many-image requests: 2000 pixels"
)


@pytest.mark.anyio
@pytest.mark.parametrize(("said", "thoughts", "pictures"), [
    ("messages.1.content.0: Invalid `signature` in `thinking` block", [True, False, False], [2] * 3),
    (TOO_MANY_PIXELS, [True] * 3, [2, 1, 0]),
    ("This model does not support image input", [True] * 3, [2, 0, 0]),
    ("tools.0.name is wrong", [True] * 3, [2] * 3),
])  # fmt: skip
async def test_R025_R027_a_refused_picture_or_thought_is_left_out_and_the_session_goes_on(
    said: str, thoughts: list[bool], pictures: list[int]
) -> None:
    asked = request(
        item(1, Image("img1", "image/png", 9, 2_162, 10), "user"),
        item(2, Image("img1", "image/png", 9, 100, 100), "user"),
        item(3, Thinking("hm"), raw=THOUGHT, wire="anthropic"),
        item(3, Text("so"), "text", n=1),
        item(4, Text("and"), "user"),
    )
    body = json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    ).encode()
    async with serve_answers(Answer(body, 400, {"content-type": "application/json"})) as server:
        model = open_wire_model("anthropic", server.url)
        ends = [(await answer_of(model, asked))[-1] for _ in range(3)]
        assert [b'"signature":"S1"' in sent for sent in server.bodies] == thoughts
        assert [sent.count(b'"type":"image"') for sent in server.bodies] == pictures
        kinds = [end.kind for end in ends if isinstance(end, Failure)]
        healing = sum(
            a != b
            for a, b in zip(
                [*zip(thoughts, pictures, strict=True)],
                [*zip(thoughts, pictures, strict=True)][1:],
                strict=False,
            )
        )
        assert kinds == ["server"] * healing + ["invalid"] * (3 - healing)
        await model.aclose()


UNNAMED = "Could not process image"


@pytest.mark.anyio
@pytest.mark.parametrize(("said", "answered", "shown", "refused", "tries"), [
    (UNNAMED, [], ["p1"], ["p1"], 1),
    (UNNAMED, ["p1"], ["p1", "p2"], ["p2"], 1),
    (UNNAMED, ["p1", "p2"], ["p1", "p2", "p3", "p4", "p5"], ["p3"], 3),
    (UNNAMED, ["p1"], ["p1", "p2", "p3"], ["p2", "p3"], 3),
    ("Unsupported image format", ["p1"], ["p1", "p2"], ["p2"], 1),
    ("messages.0.content.1.image.source.base64.data: Could not process image", [], ["p1", "p2", "p3"],
     ["p2"], 1),
    ("Invalid 'messages[0].content[0]': invalid image", [], ["p1", "p2", "p3"], ["p1"], 1),
])  # fmt: skip
async def test_only_the_refused_picture_is_left_out(
    said: str, answered: list[str], shown: list[str], refused: list[str], tries: int
) -> None:
    """The provider refuses some pictures; the others stay, and later ones are sent."""
    codes = {name: b64encode(data).decode() for name, data in BLOBS.items()}

    def pictures(*names: str) -> Request:
        parts = [Image(name, "image/png", 70, 1, 1) for name in names]
        return request(*(item(n, part, "user") for n, part in enumerate(parts, 1)))

    error = json.dumps({"type": "error", "error": {"message": said}}).encode()
    no = Answer(error, 400, {"content-type": "application/json"})
    async with serve_answers(Answer(b"")) as server:

        async def ask(*names: str) -> list[str]:
            """Ask, again after each retryable refusal; return the pictures that were taken."""
            while True:
                body = model.body(pictures(*names)).decode()
                is_bad = any(codes[name] in body for name in refused)
                server.answers = [no if is_bad else Answer(b"")]
                end = (await answer_of(model, pictures(*names)))[-1]
                if not is_bad:
                    return [name for name in names if codes[name] in body]
                assert isinstance(end, Failure)
                assert (end.kind, "asked again without the picture (image/png" in end.message) == (
                    "server",
                    True,
                )

        model = open_wire_model("anthropic", server.url)
        if answered:
            assert await ask(*answered) == answered
        before = len(server.bodies)
        good = [name for name in shown if name not in refused]
        assert await ask(*shown) == good
        assert len(server.bodies) - before == tries + 1
        assert b"the provider refused image/png, 1x1 pixels" in server.bodies[-1]
        assert await ask(*shown, "p7") == [*good, "p7"]
        assert len(server.bodies) - before == tries + 2, "it is remembered"
        await model.aclose()


# --- when to ask again ----------------------------------------------------------------------------


def test_s11_pauses_double_up_to_32_seconds_and_end_after_ten_attempts() -> None:
    pauses = [pause_s(n, "overload") for n in range(1, 12)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0, None, None]
    assert sum(p for p in pauses if p) >= 120, "R003: at least two minutes"


def test_s11_jitter_adds_up_to_a_quarter() -> None:
    assert pause_s(1, "server", jitter=1.0) == 0.625
    assert pause_s(9, "server", jitter=1.0) == 40.0


def test_R001_what_the_provider_asks_goes_first_up_to_a_minute() -> None:
    assert pause_s(1, "rate", 2.0) == 2.0
    assert pause_s(1, "rate", 2.0, 1.0) == 2.5
    assert pause_s(5, "rate", 0.0) == 0.0
    assert pause_s(1, "rate", 86_400.0) == pause_s(1, "rate", 86_400.0, 1.0) == 60.0


@pytest.mark.parametrize("after", ["86400", "Sun, 22 Nov 2026 10:00:00 GMT"])
def test_R001_a_longer_wait_than_a_minute_is_told(after: str) -> None:
    said = "HTTP 429; it asks for a wait of 86,400 s, longrein waits 60 s at most"
    assert failure(429, "", retry_after=after).message == said
    assert failure(401, "no", retry_after=after).message.count("wait") == 0, "it is not asked again"


@pytest.mark.parametrize("after", ["86400", "Sun, 22 Nov 2026 10:00:00 GMT"])
@pytest.mark.parametrize(("status", "text"), [(402, ""), (429, "insufficient_quota")])
def test_an_exhausted_quota_says_when_there_is_one_again(
    status: int, text: str, after: str
) -> None:
    told = failure(status, text, retry_after=after).message
    assert told.endswith("; it has a quota again at 2026-11-22 10:00 UTC")
    assert "again at" not in failure(status, text).message


@pytest.mark.parametrize(
    "kind", ["auth", "billing", "invalid", "refused", "overflow", "cancelled", "lost"]
)
def test_D12_what_would_fail_again_is_not_asked_again(kind: str) -> None:
    assert pause_s(1, kind, 2.0) is None
