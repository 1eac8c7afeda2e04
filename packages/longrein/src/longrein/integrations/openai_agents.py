"""Context engine as an input filter of the OpenAI Agents SDK, with `longrein.engine`.

Needs `pip install longrein[openai-agents]`.
"""

from longrein.integrations import engine
from longrein_context.integrations.openai_agents import EngineHooks, input_filter, recall_tool

__all__ = ["EngineHooks", "engine", "input_filter", "recall_tool"]
