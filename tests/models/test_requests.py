"""Exact JSON of a table of conversations on all four wires (laws 1 and 2)."""

# ruff: noqa: E501 - exact JSON and exact sentences are read as one line

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.models.wire_content import encode_json
from longrein_context import Budget, Item, render
from longrein_context.events import (
    Asked,
    Cleared,
    Document,
    Form,
    Image,
    Opened,
    PrefixSet,
    ProviderBlock,
    Replied,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    UserSpoke,
)
from tests.context.log_builder import EventLog
from tests.models.http_server import BLOBS, READ, item, open_wire_model, request, result
from tests.tables import read_rows

WIRES = ("anthropic", "openai-chat", "openai-responses", "gemini")
LIST = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"
SIGNED = {
    "anthropic": '{"type":"thinking","thinking":"hm","signature":"S1"}',
    "openai-chat": '{"reasoning_content":"hm"}',
    "openai-responses": '{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"E1"}',
}


def sent(
    wire: str,
    *items: Item,
    model: str = "test-model",
    url: str = "http://127.0.0.1:1",
    **given: Any,
) -> Any:
    body = open_wire_model(wire, url, model).body(request(*items, wire=wire, **given))  # type: ignore[attr-defined]
    return json.loads(body)


def check(wire: str, items: list[Item], expected: str, **given: Any) -> None:
    """Compare the wire's list of items as compact JSON, line by line."""
    listed = sent(wire, *items, system="", **given)[LIST[wire]]
    lines = [json.dumps(entry, separators=(",", ":"), ensure_ascii=False) for entry in listed]
    assert lines == [line.strip() for line in expected.strip().splitlines()]


CONVERSATION = [
    item(1, Text("AGENTS.md says: be kind"), "context"),
    item(3, Text("hi"), "user"),
    item(4, Text("hello"), "text"),
    item(6, Text('[longrein:n1 note: "x" changed]'), "reminder"),
    item(7, Text("go"), "user"),
]
TABLE: dict[str, tuple[list[Item], dict[str, str]]] = {
    "text of both sides; neighbours of one side stand in one bracket": (
        CONVERSATION,
        {
            "anthropic": r"""
{"role":"user","content":[{"type":"text","text":"AGENTS.md says: be kind"},{"type":"text","text":"hi"}]}
{"role":"assistant","content":[{"type":"text","text":"hello"}]}
{"role":"user","content":[{"type":"text","text":"[longrein:n1 note: \"x\" changed]"},{"type":"text","text":"go"}]}""",
            "openai-chat": r"""
{"role":"user","content":"AGENTS.md says: be kind\n\nhi"}
{"role":"assistant","content":"hello"}
{"role":"user","content":"[longrein:n1 note: \"x\" changed]\n\ngo"}""",
            "openai-responses": r"""
{"type":"message","role":"user","content":[{"type":"input_text","text":"AGENTS.md says: be kind"},{"type":"input_text","text":"hi"}]}
{"type":"message","id":"msg_4_0_0","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hello","annotations":[]}]}
{"type":"message","role":"user","content":[{"type":"input_text","text":"[longrein:n1 note: \"x\" changed]"},{"type":"input_text","text":"go"}]}""",
            "gemini": r"""
{"role":"user","parts":[{"text":"AGENTS.md says: be kind"},{"text":"hi"}]}
{"role":"model","parts":[{"text":"hello"}]}
{"role":"user","parts":[{"text":"[longrein:n1 note: \"x\" changed]"},{"text":"go"}]}""",
        },
    ),
    "parallel calls, results in call order, a failed one, a steering word after them": (
        [
            item(1, Text("look"), "user"),
            item(2, Text("I look."), "text"),
            item(2, ToolCall("c2.0", "Read", {"path": "a"}), n=1),
            item(2, ToolCall("c2.1", "Read", {}), n=2),
            item(3, result("c2.0", Text("A"))),
            item(4, result("c2.1", Text("path is missing"), status="failed")),
            item(5, Text("faster"), "user"),
        ],
        {
            "anthropic": """
{"role":"user","content":[{"type":"text","text":"look"}]}
{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"c2_0","name":"Read","input":{"path":"a"}},{"type":"tool_use","id":"c2_1","name":"Read","input":{}}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2_0","content":"A"},{"type":"tool_result","tool_use_id":"c2_1","content":"path is missing","is_error":true},{"type":"text","text":"faster"}]}""",
            "openai-chat": r"""
{"role":"user","content":"look"}
{"role":"assistant","content":"I look.","tool_calls":[{"id":"c2_0","type":"function","function":{"name":"Read","arguments":"{\"path\":\"a\"}"}},{"id":"c2_1","type":"function","function":{"name":"Read","arguments":"{}"}}]}
{"role":"tool","tool_call_id":"c2_0","content":"A"}
{"role":"tool","tool_call_id":"c2_1","content":"path is missing"}
{"role":"user","content":"faster"}""",
            "openai-responses": r"""
{"type":"message","role":"user","content":[{"type":"input_text","text":"look"}]}
{"type":"message","id":"msg_2_0_0","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}]}
{"type":"function_call","call_id":"c2_0","name":"Read","arguments":"{\"path\":\"a\"}"}
{"type":"function_call","call_id":"c2_1","name":"Read","arguments":"{}"}
{"type":"function_call_output","call_id":"c2_0","output":"A"}
{"type":"function_call_output","call_id":"c2_1","output":"path is missing"}
{"type":"message","role":"user","content":[{"type":"input_text","text":"faster"}]}""",
            "gemini": """
{"role":"user","parts":[{"text":"look"}]}
{"role":"model","parts":[{"text":"I look."},{"functionCall":{"id":"c2_0","name":"Read","args":{"path":"a"}},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"id":"c2_1","name":"Read","args":{}},"thoughtSignature":"skip_thought_signature_validator"}]}
{"role":"user","parts":[{"functionResponse":{"id":"c2_0","name":"Read","response":{"output":"A"}}},{"functionResponse":{"id":"c2_1","name":"Read","response":{"error":"path is missing"}}},{"text":"faster"}]}""",
        },
    ),
    "calls alone, one of them malformed (R014), one of a name that no provider takes back": (
        [
            item(1, Text("go"), "user"),
            item(2, ToolCall("c2.0", "Read", None, '{"path": "a')),
            item(2, ToolCall("c2.1", "my tool!", {"n": 1}), n=1),
            item(3, result("c2.0", Text("no JSON"), status="failed")),
            item(4, result("c2.1", Text("unknown tool"), status="failed", name="my tool!")),
        ],
        {
            "anthropic": r"""
{"role":"user","content":[{"type":"text","text":"go"}]}
{"role":"assistant","content":[{"type":"tool_use","id":"c2_0","name":"Read","input":{"malformed_arguments":"{\"path\": \"a"}},{"type":"tool_use","id":"c2_1","name":"my_tool_","input":{"n":1}}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2_0","content":"no JSON","is_error":true},{"type":"tool_result","tool_use_id":"c2_1","content":"unknown tool","is_error":true}]}""",
            "openai-chat": r"""
{"role":"user","content":"go"}
{"role":"assistant","content":null,"tool_calls":[{"id":"c2_0","type":"function","function":{"name":"Read","arguments":"{\"malformed_arguments\":\"{\\\"path\\\": \\\"a\"}"}},{"id":"c2_1","type":"function","function":{"name":"my_tool_","arguments":"{\"n\":1}"}}]}
{"role":"tool","tool_call_id":"c2_0","content":"no JSON"}
{"role":"tool","tool_call_id":"c2_1","content":"unknown tool"}""",
            "openai-responses": r"""
{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}
{"type":"function_call","call_id":"c2_0","name":"Read","arguments":"{\"malformed_arguments\":\"{\\\"path\\\": \\\"a\"}"}
{"type":"function_call","call_id":"c2_1","name":"my_tool_","arguments":"{\"n\":1}"}
{"type":"function_call_output","call_id":"c2_0","output":"no JSON"}
{"type":"function_call_output","call_id":"c2_1","output":"unknown tool"}""",
            "gemini": r"""
{"role":"user","parts":[{"text":"go"}]}
{"role":"model","parts":[{"functionCall":{"id":"c2_0","name":"Read","args":{"malformed_arguments":"{\"path\": \"a"}},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"id":"c2_1","name":"my_tool_","args":{"n":1}},"thoughtSignature":"skip_thought_signature_validator"}]}
{"role":"user","parts":[{"functionResponse":{"id":"c2_0","name":"Read","response":{"error":"no JSON"}}},{"functionResponse":{"id":"c2_1","name":"my_tool_","response":{"error":"unknown tool"}}}]}""",
        },
    ),
    "pictures: the user's, and one in a result": (
        [
            item(1, Text("see"), "user"),
            item(1, Image("img1", "image/png", 16), "user", n=1),
            item(2, ToolCall("c2.0", "Read", {"path": "p"})),
            item(3, result("c2.0", Text("a picture:"), Image("img1", "image/png", 16))),
        ],
        {
            "anthropic": f"""
{{"role":"user","content":[{{"type":"text","text":"see"}},{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{PNG}"}}}}]}}
{{"role":"assistant","content":[{{"type":"tool_use","id":"c2_0","name":"Read","input":{{"path":"p"}}}}]}}
{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c2_0","content":[{{"type":"text","text":"a picture:"}},{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{PNG}"}}}}]}}]}}""",
            "openai-chat": rf"""
{{"role":"user","content":[{{"type":"text","text":"see"}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{PNG}"}}}}]}}
{{"role":"assistant","content":null,"tool_calls":[{{"id":"c2_0","type":"function","function":{{"name":"Read","arguments":"{{\"path\":\"p\"}}"}}}}]}}
{{"role":"tool","tool_call_id":"c2_0","content":"a picture:"}}
{{"role":"user","content":[{{"type":"text","text":"[pictures of the results above, in their order]"}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{PNG}"}}}}]}}""",
            "openai-responses": rf"""
{{"type":"message","role":"user","content":[{{"type":"input_text","text":"see"}},{{"type":"input_image","image_url":"data:image/png;base64,{PNG}"}}]}}
{{"type":"function_call","call_id":"c2_0","name":"Read","arguments":"{{\"path\":\"p\"}}"}}
{{"type":"function_call_output","call_id":"c2_0","output":[{{"type":"input_text","text":"a picture:"}},{{"type":"input_image","image_url":"data:image/png;base64,{PNG}"}}]}}""",
            "gemini": f"""
{{"role":"user","parts":[{{"text":"see"}},{{"inlineData":{{"mimeType":"image/png","data":"{PNG}"}}}}]}}
{{"role":"model","parts":[{{"functionCall":{{"id":"c2_0","name":"Read","args":{{"path":"p"}}}},"thoughtSignature":"skip_thought_signature_validator"}}]}}
{{"role":"user","parts":[{{"functionResponse":{{"id":"c2_0","name":"Read","response":{{"output":"a picture:"}}}}}},{{"inlineData":{{"mimeType":"image/png","data":"{PNG}"}}}}]}}""",
        },
    ),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("case", TABLE)
def test_a_conversation_on_each_wire(case: str, wire: str) -> None:
    items, expected = TABLE[case]
    check(wire, items, expected[wire])


# --- thinking: own family, foreign model, no signature --------------------------------------------

THOUGHT = {
    "anthropic": '{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"S1"},{"type":"text","text":"so"}]}',
    "openai-chat": '{"role":"assistant","reasoning_content":"hm","content":"so"}',
    "openai-responses": '{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"E1"}',
}
PLAIN = {
    "anthropic": '{"role":"assistant","content":[{"type":"text","text":"so"}]}',
    "openai-chat": '{"role":"assistant","content":"so"}',
    "openai-responses": '{"type":"message","id":"msg_2_1_0","status":"completed","role":"assistant","content":[{"type":"output_text","text":"so","annotations":[]}]}',
}


TAGGED = '{"content":"<think>\\nhm\\n</think>"}'


@pytest.mark.parametrize(
    ("model", "content"), [("test-model", "<think>\nhm\n</think>\n\nso"), ("other-model", "so")]
)
def test_reasoning_in_tags_goes_back_in_its_tags_to_the_model_that_wrote_it(
    model: str, content: str
) -> None:
    items = [
        item(1, Text("q"), "user"),
        item(2, Thinking("hm"), raw=TAGGED, wire="openai-chat"),
        item(2, Text("so"), "text", 1),
        item(2, ToolCall("c2.2", "Read", {}), n=2),
    ]
    said = sent("openai-chat", *items, model=model, system="")["messages"][1]
    assert (said["content"], len(said["tool_calls"])) == (content, 1)
    alone = sent("openai-chat", *items[:2], items[3], model="test-model", system="")["messages"][1]
    assert alone["content"] == "<think>\nhm\n</think>"


@pytest.mark.parametrize(("now", "wrote", "goes_back"), [
    ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
    ("claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.5", True),
    ("claude-opus-5", "claude-sonnet-4-5", False),
    ("gpt-5.2", "gpt-5.2-2025-12-11", True),
    ("gpt-5.2", "gpt-5.1", False),
])  # fmt: skip
@pytest.mark.parametrize("wire", SIGNED)
def test_R027_thinking_goes_back_byte_for_byte_to_its_own_family_only(
    wire: str, now: str, wrote: str, goes_back: bool
) -> None:
    items = [
        item(1, Text("q"), "user"),
        item(2, Thinking("hm"), raw=SIGNED[wire], wire=wire, by=wrote),
        item(2, Text("so"), "text", n=1, by=wrote),
        item(3, Text("and"), "user"),
    ]
    body = (
        open_wire_model(wire, "http://127.0.0.1:1", now).body(request(*items, wire=wire)).decode()
    )  # type: ignore[attr-defined]
    assert (THOUGHT if goes_back else PLAIN)[wire] in body
    assert (SIGNED[wire].strip("{}") in body) is goes_back


def test_a_switch_of_wire_leaves_foreign_thinking_and_signatures_behind_and_back_again_gives_the_old_bytes() -> (
    None
):
    call = item(
        2,
        ToolCall("c2.0", "Read", {"path": "a"}),
        n=1,
        raw='{"thoughtSignature":"G1"}',
        wire="gemini",
        by="gemini-3-pro",
    )
    items = [item(1, Text("q"), "user"), call, item(3, result("c2.0", Text("A")))]
    at_home = json.dumps(sent("gemini", *items, model="gemini-3-pro-preview"))
    abroad = json.dumps(sent("anthropic", *items))
    assert '"thoughtSignature": "G1"' in at_home
    assert "G1" not in abroad
    assert '"tool_use"' in abroad
    assert json.dumps(sent("gemini", *items, model="gemini-3-pro-preview")) == at_home


def test_reasoning_that_led_to_nothing_is_not_sent_back() -> None:
    raw = SIGNED["openai-responses"]
    items = [
        item(1, Text("q"), "user"),
        item(2, Thinking("hm"), raw=raw, wire="openai-responses"),
        item(3, Text("go on"), "user"),
    ]
    listed = sent("openai-responses", *items)["input"]
    assert [entry["type"] for entry in listed] == ["message", "message"]


def test_text_after_a_call_and_two_replies_in_a_row_keep_the_chat_order() -> None:
    items = [
        item(1, Text("q"), "user"),
        item(2, ToolCall("c2.0", "Read", {}), n=0),
        item(2, Text("after"), "text", n=1),
        item(3, result("c2.0", Text("A"))),
    ]
    check(
        "openai-chat",
        items,
        """
{"role":"user","content":"q"}
{"role":"assistant","content":"after","tool_calls":[{"id":"c2_0","type":"function","function":{"name":"Read","arguments":"{}"}}]}
{"role":"tool","tool_call_id":"c2_0","content":"A"}""",
    )


# --- what stands before the items -----------------------------------------------------------------


def test_heads_of_the_four_wires() -> None:
    schema = READ.schema
    tool = {"name": "Read", "description": "Read a file."}
    common = {"model": "test-model", "stream": True}
    kept = {"cache_control": {"type": "ephemeral"}}
    hi = item(1, Text("hi"), "user")
    assert sent("anthropic", hi, marks=(0,)) == {
        **common,
        "max_tokens": 1000,
        "system": [{"type": "text", "text": "You are longrein.", **kept}],
        "tools": [{**tool, "input_schema": schema}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **kept}]}],
    }
    system = {"role": "system", "content": "You are longrein."}
    assert sent("openai-chat", hi, marks=(0,)) == {
        **common,
        "max_tokens": 1000,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {**tool, "parameters": schema}}],
        "messages": [system, {"role": "user", "content": "hi"}],
    }
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    assert sent("openai-responses", hi, marks=(0,)) == {
        **common,
        "max_output_tokens": 1000,
        "store": False,
        "prompt_cache_key": "s-1",
        "include": ["reasoning.encrypted_content"],
        "instructions": "You are longrein.",
        "tools": [{"type": "function", **tool, "parameters": schema, "strict": False}],
        "input": [said],
    }
    assert sent("gemini", hi, marks=(0,)) == {
        "generationConfig": {"maxOutputTokens": 1000, "thinkingConfig": {"includeThoughts": True}},
        "systemInstruction": {"parts": [{"text": "You are longrein."}]},
        "tools": [{"functionDeclarations": [{**tool, "parametersJsonSchema": schema}]}],
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    }


OPENROUTER = "https://openrouter.ai/api/v1"


@pytest.mark.parametrize(("url", "model", "has", "has_not"), [
    ("https://api.openai.com/v1", "gpt-5.2", "max_completion_tokens prompt_cache_key", "max_tokens"),
    ("https://api.mistral.ai/v1", "devstral-2", "max_tokens", "stream_options prompt_cache_key"),
    (OPENROUTER, "anthropic/claude-sonnet-5", "cache_control stream_options", "prompt_cache_key"),
    (OPENROUTER, "openai/gpt-5.2", "stream_options", "cache_control"),
    ("https://api.moonshot.ai/v1", "kimi-k2.6", "prompt_cache_key max_tokens", ""),
    ("http://127.0.0.1:11434/v1", "qwen3", "max_tokens stream_options", "prompt_cache_key"),
])  # fmt: skip
def test_chat_servers_get_only_what_they_take(url: str, model: str, has: str, has_not: str) -> None:
    body = sent("openai-chat", item(1, Text("hi"), "user"), url=url, model=model)
    assert [key for key in has.split() if key not in body] == []
    assert [key for key in has_not.split() if key in body] == []


def test_call_ids_for_mistral_are_nine_letters_and_digits_and_pair() -> None:
    items = [
        item(1, Text("q"), "user"),
        item(987, ToolCall("c987.12", "Read", {})),
        item(988, result("c987.12", Text("A"))),
    ]
    listed = sent("openai-chat", *items, url="https://api.mistral.ai/v1", model="devstral-latest")[
        "messages"
    ]
    assert listed[2]["tool_calls"][0]["id"] == listed[3]["tool_call_id"] == "0000rf00c"


@pytest.mark.parametrize("result_form", ["full", "placeholder"])
def test_call_ids_of_kimi_go_back_as_they_came_and_those_of_others_in_its_form(
    result_form: str,
) -> None:
    log = EventLog(
        Opened(1, "00000000-0000-4000-8000-000000000001", "n0nce", ("/w",), "/w"),
        PrefixSet("start", "moonshot", "kimi-k2", "openai-chat", "", (READ,)),
        UserSpoke((Text("look"),)),
    )
    for raw in ('{"id":"functions.Read:0"}', '{"id":"call_81"}'):
        asked = log.add(Asked("turn", log.seq, 2))
        call = ToolCall(f"c{asked}.0", "Read", {"path": "a"})
        block = ProviderBlock(1, "openai-chat", "kimi-k2", raw)
        log.add(Replied(asked, (Text("I look."), call), "calls", blocks=(block,)))
        at = log.add(ToolEnded(call.id, "Read", "ok", (Text("A"),)))
        if result_form != "full":
            log.add(Cleared((Form(f"r{at}", result_form, "cleared"),), "rent", 1))
    kimi = render(log.state, Budget(200_000, 8_000))
    body = open_wire_model("openai-chat", "http://127.0.0.1:1", "kimi-k2-0905").body(kimi)  # type: ignore[attr-defined]
    messages = json.loads(body)["messages"]
    made = [call["id"] for one in messages for call in one.get("tool_calls", ())]
    assert made == ["functions.Read:0", f"functions.Read:{100 * asked}"]
    assert [one["tool_call_id"] for one in messages if one["role"] == "tool"] == made


@pytest.mark.parametrize(("wire", "effort", "model", "expected"), read_rows("""
anthropic => high => claude-opus-5 =>
    "thinking":{"type":"adaptive"},"output_config":{"effort":"high"}
anthropic => low => claude-sonnet-4-5 => "thinking":{"type":"enabled","budget_tokens":2048}
openai-chat => low => gpt-5.2 => "reasoning_effort":"low"
openai-responses => low => gpt-5.2 => "reasoning":{"effort":"low","summary":"auto"}
gemini => low => gemini-3-pro => "thinkingConfig":{"includeThoughts":true,"thinkingLevel":"low"}
gemini => low => gemini-2.5-pro => "thinkingConfig":{"includeThoughts":true,"thinkingBudget":2048}
"""))  # fmt: skip
def test_effort_in_each_providers_words(wire: str, effort: str, model: str, expected: str) -> None:
    asked = msgspec.structs.replace(
        request(item(1, Text("hi"), "user"), wire=wire), max_output_tokens=8000
    )
    assert (
        expected
        in open_wire_model(wire, "http://127.0.0.1:1", model, effort=effort).body(asked).decode()
    )  # type: ignore[attr-defined]


# --- documents and pictures that do not fit -------------------------------------------------------

LOG = Document("doc1", "text/plain", 22, "build.log", 2, "first line", "second line")


def texts(wire: str, *items: Item) -> str:
    return json.dumps(sent(wire, item(1, Text("q"), "user"), *items), ensure_ascii=False)


@pytest.mark.parametrize("wire", WIRES)
def test_a_text_the_user_attached_goes_whole_and_a_long_result_by_its_ends(wire: str) -> None:
    assert r"build.log:\nfirst line\nsecond line" in texts(wire, item(2, LOG, "user"))
    in_result = texts(
        wire, item(2, ToolCall("c2.0", "Bash", {})), item(3, result("c2.0", LOG, name="Bash"))
    )
    note = (
        r"first line\n[build.log: 2 lines, 22 bytes of text/plain in all; Recall r3 shows the "
        r"rest]\nsecond line"
    )
    assert note in in_result


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses", "gemini"])
def test_a_pdf_goes_as_it_is_where_the_wire_takes_one(wire: str) -> None:
    found = texts(wire, item(2, Document("pdf1", "application/pdf", 8, "a.pdf"), "user"))
    assert "JVBERi0xLjc=" in found


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            Image("img1", "image/png", 6_000_000),
            "0x0 pixels, 6000000 bytes is more than the provider takes",
        ),
        (
            Image("img1", "image/png", 60, 9_000, 20),
            "9000x20 pixels, 60 bytes is more than the provider takes",
        ),
        (Image("img1", "image/tiff", 60), "a picture of type image/tiff was left out"),
        (Image("broken", "image/png", 60), "image/png was left out: its bytes are broken"),
        (Image("real", "image/jpeg", 60), "image/png"),
        (Image("gone", "image/png", 60), "its bytes are gone from the session's folder"),
    ],
)
@pytest.mark.parametrize("wire", WIRES)
def test_R025_a_picture_no_provider_takes_becomes_a_line_that_says_so(
    wire: str, part: Image, said: str
) -> None:
    assert said in texts(wire, item(2, part, "user"))


# --- marks and laws -------------------------------------------------------------------------------


def marked(listed: Any) -> list[str]:
    return [
        block.get("text") or block.get("content") or block["name"]
        for entry in listed
        for block in entry["content"]
        if "cache_control" in block
    ]


def test_marks_stand_where_asked_and_move_off_thinking_and_nothing() -> None:
    raw = SIGNED["anthropic"]
    items = [
        item(1, Text("static"), "context"),
        item(2, Text("q"), "user"),
        item(3, Thinking("hm"), raw=raw, wire="anthropic"),
        item(3, ToolCall("c3.0", "Read", {}), n=1),
        item(4, result("c3.0", Text("A"))),
    ]
    assert marked(sent("anthropic", *items, marks=(0, 1, 4))["messages"]) == ["static", "q", "A"]
    assert marked(sent("anthropic", *items, marks=(0, 2, 4))["messages"]) == ["static", "q", "A"]
    for wire in WIRES[1:]:
        assert "cache_control" not in json.dumps(sent(wire, *items, marks=(0, 1, 4)))


def test_law_2_the_fragments_of_a_request_begin_the_next_one_and_are_made_once() -> None:
    items = [
        *CONVERSATION,
        *TABLE["parallel calls, results in call order, a failed one, a steering word after them"][
            0
        ],
    ]
    items = [msgspec.structs.replace(old, key=(n, 0, 0)) for n, old in enumerate(items)]
    for wire in WIRES:
        model = open_wire_model(wire, "http://127.0.0.1:1")
        before: list[bytes] = []
        for end in range(1, len(items) + 1):
            asked = request(*items[:end], marks=(max(0, end - 2), end - 1), wire=wire)
            body = model.body(asked)  # type: ignore[attr-defined]
            blocks = model.blocks(asked)  # type: ignore[attr-defined]
            assert blocks[: len(before)] == before
            assert all(new is old for new, old in zip(blocks, before, strict=False))
            fresh = open_wire_model(wire, "http://127.0.0.1:1").body(asked)  # type: ignore[attr-defined]
            assert body == fresh, "law 1: what was sent before must not show"
            before = blocks


PARTS = st.sampled_from(
    [
        ("user", Text("words")),
        ("user", Image("img1", "image/png", 16)),
        ("reminder", Text('{"type":"image_url"')),
        ("text", Text("said")),
        ("text", Text(" ")),
        ("thinking", Thinking("hm")),
        ("call", ToolCall("c2.0", "Read", {"path": "a"})),
        ("result", result("c2.0", Text("A"))),
        ("result", result("c2.0", Image("img1", "image/png", 16))),
        ("summary", Text("before")),
    ]
)


@given(st.data())
def test_laws_1_and_2_whatever_was_sent_before_the_bytes_are_those_of_a_fresh_model(
    data: st.DataObject,
) -> None:
    wire = data.draw(st.sampled_from(WIRES))
    model = open_wire_model(wire, "http://127.0.0.1:1")
    items: list[Item] = []
    for step in range(1, data.draw(st.integers(2, 6))):
        del items[
            data.draw(st.sampled_from([len(items)] * 3 + list(range(len(items) + 1)))) :
        ]  # a rewind
        if items and data.draw(st.booleans()):  # something is cleared
            at = data.draw(st.integers(0, len(items) - 1))
            items[at] = msgspec.structs.replace(items[at], key=(step, at, 1))
        for n, (kind, part) in enumerate(data.draw(st.lists(PARTS, min_size=1, max_size=6))):
            raw = SIGNED.get(wire, "") if kind == "thinking" else ""
            items.append(item(step * 100, part, kind, n, raw, wire))
        marks = tuple(sorted({0, len(items) - 1}))
        asked = request(*items, marks=marks, wire=wire)
        body = model.body(asked)  # type: ignore[attr-defined]
        assert body == open_wire_model(wire, "http://127.0.0.1:1").body(asked)  # type: ignore[attr-defined]
        assert json.loads(body)


def test_an_item_of_another_content_under_a_known_key_is_encoded_anew() -> None:
    model = open_wire_model("anthropic", "http://127.0.0.1:1")
    model.body(request(item(1, Text("before"), "user")))  # type: ignore[attr-defined]
    assert b"after" in model.body(request(item(1, Text("after"), "user")))  # type: ignore[attr-defined]


def test_one_model_serves_several_sessions_and_a_request_aside_without_mixing_them() -> None:
    model = open_wire_model("anthropic", "http://127.0.0.1:1")
    one = request(item(1, Text("one"), "user"))
    two = msgspec.structs.replace(request(item(1, Text("two"), "user")), session="s-2")
    aside = msgspec.structs.replace(
        request(item(1, Text("aside"), "user"), system=""), prefix_seq=0, purpose="summary"
    )
    bodies = [model.body(asked) for asked in (one, two, aside, one, two)]  # type: ignore[attr-defined]
    assert [b"one" in b for b in bodies] == [True, False, False, True, False]
    assert [b"two" in b for b in bodies] == [False, True, False, False, True]
    assert bodies[0] == bodies[3]
    assert BLOBS


@given(st.text(st.sampled_from('\0\\u0a"\ufffd')))
def test_a_NUL_is_the_only_thing_that_is_sent_as_another(text: str) -> None:
    assert json.loads(encode_json([text])) == [text.replace("\0", "\ufffd")]


@pytest.mark.parametrize("wire", WIRES)
def test_a_process_short_of_memory_drops_encoded_items_and_sends_the_same_bytes(wire: str) -> None:
    """`app` asks each model for `forget` by its name."""
    model = open_wire_model(wire, "http://127.0.0.1:1", "test-model")
    wanted = request(*CONVERSATION, wire=wire)
    before, body = model.blocks(wanted), model.body(wanted)  # type: ignore[attr-defined]
    assert model.blocks(wanted)[0] is before[0]  # type: ignore[attr-defined]
    model.forget()  # type: ignore[attr-defined]
    after = model.blocks(wanted)  # type: ignore[attr-defined]
    assert (after, after[0] is before[0]) == (before, False)
    assert model.body(wanted) == body  # type: ignore[attr-defined]


@pytest.mark.parametrize(("url", "has_pauses", "ttl"), [
    ("https://api.anthropic.com/v1", True, "1h"),
    ("https://api.anthropic.com/v1", False, None),
    ("https://compatible.test/anthropic", True, None),
])  # fmt: skip
@pytest.mark.parametrize("system", ["Be good.", ""])
def test_system_text_and_tools_are_cached_for_an_hour_where_a_person_answers(
    url: str, has_pauses: bool, ttl: str | None, system: str
) -> None:
    model = open_wire_model("anthropic", url, has_pauses=has_pauses)
    made = request(item(3, Text("hi"), "user"), system=system, marks=(0,))
    body = json.loads(model.body(made))  # type: ignore[attr-defined]
    head = (body["system"] if system else body["tools"])[-1]["cache_control"]
    assert head == {"type": "ephemeral"} | ({"ttl": ttl} if ttl else {})
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
