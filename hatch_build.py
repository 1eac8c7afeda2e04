"""Dependencies of the workspace: the packages of this checkout, by their folders."""

from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

EXTRAS = ("acp", "langchain", "mcp", "openai-agents", "otel", "pydantic-ai", "rg")
"""Extras of `longrein`, which `pip install '.[NAME]'` takes too."""


class CheckoutDependencies(MetadataHookInterface):
    """Names each package by the address of its folder, since the index may have other versions."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the dependencies and extras to the metadata."""
        packages = Path(self.root, "packages").as_uri()
        metadata["dependencies"] = [
            f"{name} @ {packages}/{name}" for name in ("longrein-context", "longrein")
        ]
        metadata["optional-dependencies"] = {
            **{name: [f"longrein[{name}] @ {packages}/longrein"] for name in EXTRAS},
            "fleet": [f"longrein-fleet @ {packages}/longrein-fleet"],
        }
