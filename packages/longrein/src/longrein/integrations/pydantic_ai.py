"""Context engine as a capability or history processor of Pydantic AI, with `longrein.engine`.

Needs `pip install longrein[pydantic-ai]`.
"""

from longrein.integrations import engine
from longrein_context.integrations.pydantic_ai import (
    EngineCapability,
    PydanticFormat,
    history_processor,
    recall_tool,
)

__all__ = ["EngineCapability", "PydanticFormat", "engine", "history_processor", "recall_tool"]
