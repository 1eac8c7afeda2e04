"""Whatever the types of a vendor allow passes through the engine: random lists of their types.

An item of a kind that the engine does not know is returned unchanged and in its place, at windows
where old exchanges are cleared and summarised too.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein_context.message_list import Engine
from tests.integrations.vendor_types import random_shape, random_value

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
Build = Callable[[Random], Any]
"""Builds one message or item of a vendor."""


def _anthropic() -> list[Build]:
    beta = pytest.importorskip("anthropic.types.beta", reason="needs anthropic: make library")
    types = pytest.importorskip("anthropic.types")
    return [
        lambda random: random_value(types.MessageParam, random),
        lambda random: random_value(beta.BetaMessageParam, random),
    ]


def _openai_chat() -> list[Build]:
    types = pytest.importorskip("openai.types.chat", reason="needs openai: make library")
    return [lambda random: random_value(types.ChatCompletionMessageParam, random)]


def _openai_responses() -> list[Build]:
    types = pytest.importorskip("openai.types.responses", reason="needs openai: make library")
    return [
        lambda random: random_value(types.ResponseInputItemParam, random),
        lambda random: random_value(types.ResponseOutputItem, random),
    ]


def _gemini() -> list[Build]:
    types = pytest.importorskip("google.genai.types", reason="needs google-genai: make library")

    def content(random: Random) -> Any:
        parts = [random_value(types.Part, random, 3) for _ in range(random.randrange(3))]
        made = types.Content.model_construct(role=random.choice(("user", "model")), parts=parts)
        return made if random.randrange(2) else made.model_dump(exclude_none=True)

    return [content]


def _bedrock() -> list[Build]:
    pytest.importorskip("botocore", reason="needs botocore: make library")
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    service = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"))
    return [lambda random: random_shape(service.shape_for("Message"), random)]


VENDORS = (_anthropic, _openai_chat, _openai_responses, _gemini, _bedrock)


@pytest.fixture(scope="module", params=VENDORS, ids=lambda vendor: vendor.__name__[1:])
def builders(request: pytest.FixtureRequest) -> list[Build]:
    return request.param()


def blocks_of(one: Any) -> list[Any]:
    """Return the content blocks of a message; the message itself where it has none."""
    content = one.get("content") if isinstance(one, dict) else None
    return content if isinstance(content, list) and "role" in one else [one]


KNOWN = ("text", "input_text", "output_text", "refusal", "tool_use", "tool_result", "thinking",
         "redacted_thinking", "image", "image_url", "input_image", "document", "file",
         "input_file", "input_audio", "function_call", "function_call_output",
         "custom_tool_call", "custom_tool_call_output", "reasoning")  # fmt: skip
KNOWN_ROLES = ("user", "assistant", "system", "developer", "tool")


def is_known(block: Any) -> bool:
    """Return whether a block or item may be shortened or left out."""
    if isinstance(block, str):
        return True
    fields = block if isinstance(block, dict) else vars(block)
    if fields.get("type", "text" if "text" in fields else None) in KNOWN:
        return True
    return fields.get("type") in (None, "message") and fields.get("role") in KNOWN_ROLES


def exchange(number: int, random: Random) -> list[dict[str, Any]]:
    """Return a call of a tool and its long result, as OpenAI Chat has them."""
    call = {"id": f"call_{number}", "type": "function"}
    arguments = json.dumps({"path": f"f{number}.py"})
    text = "\n".join(f"line {n} {random.random()} {random.random()}" for n in range(100))
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**call, "function": {"name": "Read", "arguments": arguments}}],
        },
        {"role": "tool", "tool_call_id": f"call_{number}", "content": text},
        {"role": "user", "content": f"Go on with {number}."},
    ]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_a_list_that_fits_comes_out_equal(builders: list[Build], seed: int) -> None:
    random = Random(seed)
    chat = [random.choice(builders)(random) for _ in range(8)]
    engine = Engine(4_000_000, 1_000)
    for end in range(len(chat) + 1):
        view = engine.prepare(chat[:end])
        assert len(view) == end
        assert all(sent is one for sent, one in zip(view, chat, strict=False))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=10)
def test_unknown_items_stand_where_they_stood(builders: list[Build], seed: int) -> None:
    random = Random(seed)
    summarise = (lambda _: "They read on.") if seed % 2 else None
    engine = Engine(16_000, 1_000, summarise=summarise)
    chat: list[Any] = [{"role": "user", "content": "Read all files."}]
    unknown: list[Any] = []
    for number in range(30):
        chat += exchange(number, random)
        if number % 4 == 0:
            made = random.choice(builders)(random)
            if not any(_answers(block) for block in blocks_of(made)):
                chat.append(made)
                unknown += [block for block in blocks_of(made) if not is_known(block)]
        view = engine.prepare(chat)
        check_view(chat, view, unknown)
    assert sum(map(_size, view)) < sum(map(_size, chat)) / 2
    assert engine.state.breaks


def _answers(block: Any) -> bool:
    kinds = ("tool_result", "function_call_output", "custom_tool_call_output")
    return isinstance(block, dict) and (
        block.get("type") in kinds or block.get("role") == "tool" or bool(block.get("tool_calls"))
    )


def _size(one: Any) -> int:
    return len(str(one))


def check_view(chat: Sequence[Any], view: Sequence[Any], unknown: Sequence[Any]) -> None:
    """Check that `unknown` blocks stand in the view in their order, and that calls are paired."""
    waiting = iter([block for one in view for block in blocks_of(one)])
    for block in unknown:
        assert any(_same(sent, block) for sent in waiting), block
    asked = [call["id"] for one in view if isinstance(one, dict)
             for call in one.get("tool_calls") or () if call["id"].startswith("call_")]  # fmt: skip
    answered = [one["tool_call_id"] for one in view if isinstance(one, dict)
                and str(one.get("tool_call_id")).startswith("call_")]  # fmt: skip
    assert asked == answered
    kept = [one for one in view if any(one is said for said in chat)]
    places = [next(n for n, said in enumerate(chat) if said is one) for one in kept]
    assert places == sorted(places)


def _same(sent: Any, block: Any) -> bool:
    return sent is block or sent == block


# --- Named cases ----------------------------------------------------------------------------------


def cleared(chat: list[Any], count: int = 30) -> tuple[Engine, list[Any]]:
    """Return the view of `chat` after `count` further exchanges in a small window."""
    random = Random(1)
    engine = Engine(16_000, 1_000)
    view = engine.prepare(chat)
    for number in range(count):
        chat += exchange(number, random)
        view = engine.prepare(chat)
    assert engine.state.breaks
    return engine, view


def test_a_result_that_holds_an_unknown_block_keeps_its_call() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Find", "input": {"word": "x" * 3_000}}
    found = [{"type": "text", "text": "found " * 900}, {"type": "tool_reference", "name": "Read"}]
    answer = {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": found}]}  # fmt: skip
    asked = {"role": "assistant", "content": [call]}
    engine, view = cleared([{"role": "user", "content": "Find it."}, asked, answer])
    assert [one for one in view if one is asked or one is answer] == [asked, answer]
    assert engine.tokens < 16_000


def test_a_block_without_a_type_stays_unless_it_is_text() -> None:
    image = {"image": {"format": "png", "source": {"bytes": "AAAA"}}}
    document = {"document": {"name": "plan", "source": {"text": "so " * 900}}}
    shown = {"role": "user", "content": [{"text": "Look. " * 900}, image, document]}
    engine, view = cleared([{"role": "user", "content": "Begin."}, shown])
    blocks = [block for one in view for block in blocks_of(one)]
    assert [block for block in blocks if block in (image, document)] == [image, document]
    assert [note.split(":")[0] for note in engine.notes] == [
        "image without a type",
        "document without a type",
    ]


def test_a_reply_of_hosted_tools_alone_stays() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    hosted = {"role": "assistant", "content": [search, found]}
    mixed = {"role": "assistant", "content": [search, found, {"type": "text", "text": "so " * 900}]}
    more = {"role": "user", "content": "More."}
    engine, view = cleared([{"role": "user", "content": "Look."}, hosted, more, mixed, more])
    assert hosted in view
    kept = [one["content"] for one in view if one["role"] == "assistant" and one is not hosted]
    assert [blocks[:2] for blocks in kept if isinstance(blocks, list)] == [[search, found]]
    assert engine.notes == [
        "server_tool_use: the engine does not shorten it; it is sent unchanged",
        "web_search_tool_result: the engine does not shorten it; it is sent unchanged",
    ]


def test_the_reasoning_of_a_hosted_call_stays_with_it() -> None:
    thought = {"type": "reasoning", "id": "rs1", "summary": [
        {"type": "summary_text", "text": "hm " * 900}]}  # fmt: skip
    search = {"type": "web_search_call", "id": "ws1", "status": "completed"}
    said = {"role": "assistant", "content": "It is found."}
    more = {"role": "user", "content": "More."}
    _, view = cleared([{"role": "user", "content": "Look."}, thought, search, said, more])
    at = view.index(search)
    assert view[at - 1] is thought


def test_unknown_items_are_counted() -> None:
    item = {"type": "code_interpreter_call", "id": "c1", "code": "print(1)\n" * 2_000}
    engine = Engine(200_000, 1_000)
    engine.prepare([{"role": "user", "content": "Hi."}])
    before, room = engine.tokens, engine.room
    engine.prepare([{"role": "user", "content": "Hi."}, item])
    assert engine.tokens - before > 4_000
    assert engine.tokens - before == pytest.approx(room - engine.room, rel=0.1)


def test_frameworks_keep_a_reply_of_hosted_tools_alone() -> None:
    parts = pytest.importorskip("pydantic_ai.messages", reason="needs pydantic-ai: make library")
    messages = pytest.importorskip("langchain_core.messages")
    from longrein_context.integrations import MixedFormat

    form = MixedFormat()
    call = parts.NativeToolCallPart(tool_name="web_search", args={}, tool_call_id="s1")
    back = parts.NativeToolReturnPart(tool_name="web_search", content="x", tool_call_id="s1")
    text = parts.TextPart("so")
    reply = parts.ModelResponse(parts=[call, back, text])
    assert [one.kind for one in form.read(reply).unread] == [call.part_kind, back.part_kind]
    assert form.rewrite(reply, {0: None}).parts == [call, back]
    retry = parts.ModelRequest(
        parts=[parts.RetryPromptPart("no", tool_name="Read", tool_call_id="c1")]
    )
    assert form.read(retry).parts[0].call == "c1"
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    repeated = {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": "{}"}
    message = messages.AIMessage(
        content=[search, {"type": "text", "text": "so"}, repeated],
        tool_calls=[{"id": "c1", "name": "Read", "args": {}}],
    )
    assert len(form.read(message).parts) == 2
    assert form.rewrite(message, {0: None, 1: None}).content == [search]
    assert form.rewrite(message, {1: None}).content == message.content[:2]
