"""Context engine as a middleware of LangChain agents (version 1), which takes a model's name.

    from longrein.integrations.langchain import ContextMiddleware
    agent = create_agent(model, tools, middleware=[ContextMiddleware("openai/gpt-5")])

Needs `pip install longrein[langchain]`.
"""

from longrein.integrations import engine
from longrein_context.integrations import langchain
from longrein_context.integrations.langchain import recall_tool

__all__ = ["ContextMiddleware", "engine", "recall_tool"]


class ContextMiddleware(langchain.ContextMiddleware):
    """Middleware that takes the arguments of `longrein.engine`; see its base class."""

    make_engine = staticmethod(engine)
