"""docs/frameworks.md: each snippet keeps its framework inside a small window."""

import asyncio
import re
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from longrein.testing.loopback import Call, Limits, LoopbackProvider, Received, Turn, common_blocks

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
SNIPPETS = dict(re.findall(r"\n## ([^\n]+)\n.*?```python\n(.*?)```", PAGE, re.DOTALL))
MODULES = {
    "smolagents": ("smolagents", "openai"),
    "Strands": ("strands", "openai"),
    "Google ADK": ("google.adk", "litellm"),
    "AG2": ("ag2", "openai"),
    "Agno": ("agno", "openai"),
    "LlamaIndex": ("llama_index.core", "llama_index.llms.openai_like"),
}
"""Framework -> modules that its snippet needs."""
ASYNCHRONOUS = {
    "AG2": "answer = (await agent.ask('Read all the files.')).body",
    "LlamaIndex": "answer = str(await agent.run('Read all the files.', max_iterations=100))",
    "Google ADK": """
        from google.adk.runners import InMemoryRunner
        events = await InMemoryRunner(agent).run_debug('Read all the files.', quiet=True)
        answer = events[-1].content.parts[-1].text
    """,
}
"""Call of an agent that only runs asynchronously."""
WITHOUT_NETWORK = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "AGNO_TELEMETRY": "false"}
"""Variables that keep frameworks from asking servers of their own."""
WINDOW = 12_000
LINES_MAX = 15
BREAKS_MAX = 6
"""Requests that may begin otherwise than the one before them, which breaks the cache."""
FILES = 25


def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: The file to read.
    """
    return "\n".join(f"def line_{n}_of(text='{path}'): return {n}" for n in range(100))


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def script() -> Any:
    """Return a model that reads one big file after the other."""
    numbers = iter(range(FILES))

    def answer(request: Received) -> Turn:
        number = next(numbers, None)
        if number is not None:
            return Turn(calls=(Call("read_file", {"path": f"src/f{number}.py"}),))
        if "final_answer" in str(request.json.get("tools")):
            return Turn(calls=(Call("final_answer", {"answer": "All read."}),))
        return Turn(text="All read.")

    return answer


def run(name: str, url: str) -> str:
    """Run a snippet; return the answer of its agent."""
    values: dict[str, Any] = {"url": url + "/v1", "read_file": read_file}
    exec(compile(SNIPPETS[name], f"docs/frameworks.md: {name}", "exec"), values)
    if name in ASYNCHRONOUS:
        body = textwrap.indent(textwrap.dedent(ASYNCHRONOUS[name]), "    ")
        exec(f"async def call():\n    global answer\n{body}\n", values)
        asyncio.run(values["call"]())
    return str(values["answer"])


@pytest.mark.anyio
@pytest.mark.parametrize("name", SNIPPETS)
async def test_a_snippet_keeps_to_the_window(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [module for module in MODULES[name] if not is_installed(module)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}; docs/frameworks.md names the packages")
    for variable, value in WITHOUT_NETWORK.items():
        monkeypatch.setenv(variable, value)
    async with LoopbackProvider(script(), limits=Limits(window_tokens=WINDOW)) as server:
        assert "All read." in await asyncio.to_thread(run, name, server.url)
    assert not server.refused
    assert len(server.requests) == FILES + 1
    neighbours = zip(server.requests, server.requests[1:], strict=False)
    breaks = sum(common_blocks(one, other) < len(one.blocks) for one, other in neighbours)
    assert 1 <= breaks <= BREAKS_MAX


def test_the_files_are_larger_than_the_window() -> None:
    sizes_bytes = [len(read_file(f"src/f{number}.py")) for number in range(FILES)]
    assert sum(sizes_bytes) > 2 * 4 * WINDOW


@pytest.mark.parametrize("name", MODULES)
def test_a_snippet_is_short_and_names_the_version_that_was_tried(name: str) -> None:
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert re.search(r"^Tried with [\w-]+ \d+\.\d+\.\d+ \(`pip install ", section.strip())
    assert len([line for line in SNIPPETS[name].splitlines() if line]) <= LINES_MAX
