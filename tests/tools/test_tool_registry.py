"""Tools from functions (D2), checked arguments, and one useful line for each wrong call (D7)."""

from typing import Any, Literal, TypedDict

import msgspec
import pytest

from longrein.agent import builtin_kinds
from longrein.tools import (
    SKILL,
    Outcome,
    ToolContext,
    agent_tool,
    alias_names,
    builtin_tools,
    fit_arguments,
    goal_tools,
    make_tool,
    malformed_arguments_message,
    offer_tools,
    own_tools,
    tool,
    unknown_call_message,
)
from longrein_context.clearing.text_features import kind_of_name
from longrein_context.events import ToolError, ToolSpec, ToolTraits, text_of
from longrein_context.state.tool_traits import UNSTATED
from tests.tables import split_words


class Spot(TypedDict, total=False):
    """x: Across."""

    x: int
    y: int


async def Count(
    context: ToolContext,
    file_path: str,
    word: str = "TODO",
    how: Literal["fast", "slow"] = "fast",
    spots: list[Spot] | None = None,
) -> Outcome:
    """Count a word in a file.
    Not for folders.

    - one
    - two

    file_path: The file,
        really.
    word: What to count.
    """
    return Outcome.of(f"{word} in {file_path}")


COUNT = make_tool(Count, access="read", together=True, paths=[("file_path", False)])


def test_D2_signature_and_docstring_are_the_tool() -> None:
    assert dict(zip(("name", "description", "schema"), COUNT.spec.sent, strict=True)) == {
        "name": "Count",
        "description": "Count a word in a file. Not for folders.\n\n- one\n- two",
        "schema": {
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file, really."},
                "word": {"type": "string", "description": "What to count."},
                "how": {"type": "string", "enum": ["fast", "slow"]},
                "spots": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "x": {"type": "integer", "description": "Across."},
                            "y": {"type": "integer"},
                        },
                        "required": [],
                        "additionalProperties": False,
                    },
                },
            },
            "required": ["file_path"],
            "additionalProperties": False,
        },
    }
    assert COUNT.paths({"file_path": "a"}) == (("a", False),)
    assert COUNT.together({})


def test_D2_renaming_a_parameter_changes_the_schema() -> None:
    async def Ask(question: "str", times: "int | None" = None) -> str:
        """Ask.

        Args:
            question: What.
        """
        return f"{question} {times}"

    async def Asks(text: str, times: int | None = None) -> str:
        """Ask.

        Args:
            text: What.
        """
        return text

    first, second = tool()(Ask).spec.schema, tool()(Asks).spec.schema
    assert list(first["properties"]) == ["question", "times"]
    assert first["properties"]["question"] == {"type": "string", "description": "What."}
    assert list(second["properties"]) == ["text", "times"]
    assert tool()(Ask).access == "command"


@pytest.mark.anyio
async def test_any_function_runs(harness: Any) -> None:
    async def Echo(text: str, loud: bool = False) -> str:
        """Echo."""
        if text == "no":
            raise ToolError("[no] Not that.")
        return str(1 / len(text)) if loud else text

    echo = make_tool(Echo, access="none", names={"loud": "-l"})
    assert await echo.run(harness.context(), text="hi") == Outcome.of("hi")
    assert await echo.run(harness.context(), text="no") == Outcome.fail("[no] Not that.")
    with pytest.raises(ZeroDivisionError):
        await echo.run(harness.context(), **{"text": "", "-l": True})


class Answer(msgspec.Struct):
    number: int


class Odd:
    pass


@pytest.mark.anyio
@pytest.mark.parametrize(("value", "text"), [
    ("ä", "ä"),
    (4, "4"),
    (None, "null"),
    (True, "true"),
    ({"a": [1, 2.5]}, '{"a":[1,2.5]}'),
    (Answer(4), '{"number":4}'),
    (Odd(), "TypeError: the tool returned Odd, which has no JSON form"),
])  # fmt: skip
async def test_the_model_gets_any_value_as_json(value: Any, text: str, harness: Any) -> None:
    @tool(access="none")
    async def Give() -> Any:
        return value

    got = await _text_or_error(Give, harness)
    assert got == text or (text.startswith("TypeError") and got.startswith(text))


@pytest.mark.anyio
async def test_the_context_is_known_by_its_type_and_not_by_its_name(harness: Any) -> None:
    async def Ask(context: str) -> str:
        """Ask."""
        return context

    async def Tell(given: "ToolContext", context: str) -> str:
        """Tell."""
        return f"{given.call} {context}"

    for made, told in ((tool()(Ask), "all"), (tool()(Tell), f"{harness.context().call} all")):
        assert list(made.spec.schema["properties"]) == ["context"]
        assert await made.run(harness.context(), context="all") == Outcome.of(told)


@pytest.mark.anyio
async def test_a_tool_that_forgets_to_await_is_told(harness: Any) -> None:
    async def fetch() -> int:
        return 4

    @tool
    async def Give() -> Any:
        return fetch()

    assert Give.access == "command"
    line = "TypeError: the tool returned a coroutine: `await` is missing before it"
    assert await _text_or_error(Give, harness) == line


async def _text_or_error(given: Any, harness: Any) -> str:
    try:
        return text_of((await given.run(harness.context())).parts)
    except TypeError as error:
        return f"TypeError: {error}"


def test_a_tool_is_made_of_an_async_function() -> None:
    def Give() -> int:
        return 4

    for wrong in (Give, print, Odd()):
        with pytest.raises(TypeError, match=r"a tool is made of an async function, and .* is none"):
            tool(wrong)  # type: ignore[arg-type, call-overload]


def test_a_hint_without_schema_is_a_mistake() -> None:
    async def Bad(what: bytes) -> str:
        """Bad."""
        return str(what)

    with pytest.raises(TypeError, match="cannot be <class 'bytes'>"):
        make_tool(Bad, access="none")


def test_a_tool_with_a_path_states_its_paths() -> None:
    async def Count(file_path: str) -> str:
        """Count."""
        return file_path

    with pytest.raises(TypeError, match=r"Count: state paths=\[\('file_path', False\)\]"):
        make_tool(Count, access="read")


def test_builtin_tools_have_a_fixed_small_form() -> None:
    tools = builtin_tools()
    every = (*tools, agent_tool(builtin_kinds()), *goal_tools())
    for skill, size_max in (((), 7_800), ((SKILL,), 8_100)):
        listed = offer_tools((*every, *skill), 100_000).listed
        sent = [msgspec.structs.replace(spec, traits=None) for spec in listed]
        size = len(msgspec.json.encode(sent))
        assert len(listed) <= 12
        assert size <= size_max, (
            f"every request holds {size} bytes of tools: shorten a docstring, or defer the new tool"
        )
    assert [one.spec.name for one in tools] == NAMES
    for one in tools:
        unsaid = {
            name
            for name, schema in one.spec.schema["properties"].items()
            if not schema.get("description") and not schema.get("deprecated")
        }
        assert unsaid <= set(SAID_BY_THEIR_NAMES.split()), one.spec.name


def test_the_model_is_told_only_what_says_something() -> None:
    (agent,) = offer_tools([agent_tool(builtin_kinds())], 100_000).listed
    whole = agent_tool(builtin_kinds()).spec.schema
    assert whole["additionalProperties"] is False
    assert "additionalProperties" not in str(agent.schema)
    of_call, of_task = (
        agent.schema["properties"],
        agent.schema["properties"]["tasks"]["items"]["properties"],
    )
    assert of_call["subagent_type"]["enum"] == ["general", "explore", "plan"]
    assert list(of_task) == ["description", "prompt"]  # the others are those of the call
    assert whole["properties"]["tasks"]["items"]["properties"]["subagent_type"][
        "enum"
    ]  # and are asked for all the same
    foreign = ToolSpec("mcp__a__b", "What its server says.", whole)
    found = offer_tools([msgspec.structs.replace(builtin_tools()[0], spec=foreign)], 100_000).listed
    assert found == (foreign,)


SAID_BY_THEIR_NAMES = (
    "file_path content old_string new_string replace_all command description pattern path "
    "output_mode -i -C todos task_id text plan url questions input run_in_background head_limit "
    "activeForm prompt model isolation tasks limit name args path time query"
)
TAKES = "it takes file_path (required), word, how, spots"
NAMES = split_words("""
    Read Write Edit apply_patch Bash Grep Glob TodoWrite WebFetch Recall Compact
""")
NAMES += ["ExitPlanMode", "AskUserQuestion"]
NAMES += ["TaskList", "TaskOutput", "TaskStop", "TaskInput"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"file_path": "a"}, None),
        ({"file_path": "a", "word": None, "spots": None}, None),
        ({}, 'missing "file_path" (a string)'),
        ({"file_path": None}, '"file_path" must be a string, not null'),
        ({"path": "a"}, f'unknown argument "path"; {TAKES}'),
        ({"file_path": "a", "zzz": 1}, f'unknown argument "zzz"; {TAKES}'),
        ({"file_path": ["a"]}, '"file_path" must be a string, not ["a"]'),
        ({"file_path": "a", "how": "slowly"}, ('"how" must be "fast" or "slow", not "slowly" (did '
                                              'you mean "slow"?)')),
        ({"file_path": "a", "spots": [{"x": "1"}, {"x": "one"}]}, ('"spots[1].x" must be a whole '
                                                                  'number, not "one"')),
        ({"file_path": "a", "spots": [{"z": 1}]}, 'unknown argument "spots[0].z"; it takes x, y'),
        ({"file_path": "a", "spots": "[{"}, '"spots" must be a list, not "[{"'),
        ({"file_path": {"a": "x" * 99}}, '"file_path" must be a string, not {"a":"' + "x" * 53 + "…"),  # noqa: E501
        ({"file_path": ["\ud800"]}, "\"file_path\" must be a string, not ['\\ud800']"),
    ],
)  # fmt: skip
def test_D7_wrong_arguments_are_named(arguments: dict[str, Any], expected: str | None) -> None:
    end = ". Nothing was done; correct the call and send it again."
    assert fit_arguments(COUNT, arguments)[1] == (
        expected and f"[bad-arguments] Count: {expected}{end}"
    )


async def Kinds(
    i: int = 0,
    f: float = 0,
    b: bool = False,
    s: str = "",
    o: dict[str, Any] | None = None,
    u: int | str = 0,
) -> str:
    """Kinds."""
    return ""


@pytest.mark.parametrize(("given", "read"), [
    ({"i": "3"}, {"i": 3}),
    ({"i": 3.0}, {"i": 3}),
    ({"i": " 3 "}, {"i": 3}),
    ({"f": "2.5"}, {"f": 2.5}),
    ({"f": 2}, {"f": 2}),
    ({"b": "True"}, {"b": True}),
    ({"s": 404}, {"s": "404"}),
    ({"o": '{"a":1}'}, {"o": {"a": 1}}),
    ({"u": "x"}, {"u": "x"}),
    ({"i": 9007199254740993}, {"i": 9007199254740993}),
    ({"i": None}, {}),
])  # fmt: skip
def test_plain_meanings_are_read(given: dict[str, Any], read: dict[str, Any]) -> None:
    fitted, error = fit_arguments(make_tool(Kinds, access="none"), given)
    assert error is None
    assert fitted == read
    assert msgspec.json.encode(fitted) == msgspec.json.encode(read)


@pytest.mark.parametrize("given", [
    {"i": True},
    {"i": 3.5},
    {"i": "x"},
    {"i": 1e400},
    {"b": 1},
    {"s": False},
    {"o": "[1]"},
    {"o": []},
    {"u": []},
])  # fmt: skip
def test_nothing_is_guessed(given: dict[str, Any]) -> None:
    assert fit_arguments(make_tool(Kinds, access="none"), given)[1]


def test_R014_malformed_json() -> None:
    end = "Nothing was done; send valid JSON."
    for received, why in [
        ('{"file_path": "a"', "Input data was truncated"),
        ('{"file_path": a}', 'invalid character at byte 14, near "{\\"file_path\\": a}"'),
        ('["a"]', "they are a list"),
        ("3", "they are a number"),
        ("", "Input data was truncated"),
    ]:
        found = malformed_arguments_message("Read", received)
        assert found == f"[bad-json] The arguments of Read are not a JSON object: {why}. {end}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("read_file", " Did you mean Read?"), ("bash", " Did you mean Bash?"), ("Zzz", "")],
)
def test_R017_unknown_tool(name: str, hint: str) -> None:
    told = f'[unknown-tool] There is no tool "{name}".{hint} Tools: Read, Edit, Bash.'
    assert unknown_call_message(name, ["Read", "Edit", "Bash"], ()) == told


OLD_TOOLS = (
    *split_words("""
        Read Write Edit Bash Grep Glob TodoWrite Recall Compact Agent ToolSearch
    """),
    *("TaskList", "TaskOutput", "TaskStop", "TaskInput", "GoalAdd", "GoalUpdate", "GoalList"),
)
"""Tools in logs without traits. A newer tool states its traits in every log, so this list does
not grow.
"""


def test_the_traits_of_old_logs_are_those_that_the_tools_state_now() -> None:
    """So a session decides alike before and after the tools began to state their traits."""
    old_tools = [made for made in own_tools() if made.spec.name in OLD_TOOLS]
    assert len(old_tools) == len(OLD_TOOLS)
    for made in old_tools:
        old, now = UNSTATED.get(made.spec.name, ToolTraits()), made.traits
        assert (old.quiet, old.polls, old.task_argument) == (
            now.quiet,
            now.polls,
            now.task_argument,
        ), made.spec.name
        assert kind_of_name(made.spec.name) == (now.kind or "other"), made.spec.name


def test_a_custom_tool_states_the_same_traits_as_a_built_in_one() -> None:
    @tool(
        access="read",
        kind="search",
        quiet=True,
        polls=True,
        key_argument="b",
        aliases=("enquire",),
        rule_name="Read",
    )
    async def Ask(a: str, b: str) -> str:
        """Ask."""
        return a + b

    assert Ask.traits == ToolTraits("search", quiet=True, polls=True, key_argument="b")
    assert Ask.rule_name == "Read"
    assert alias_names([Ask]) == {"enquire": "Ask"}
