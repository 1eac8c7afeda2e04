"""Dependencies of the workspace: the packages of this checkout, by their folders."""

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CheckoutDependencies(MetadataHookInterface):
    """Names each package by the address of its folder, since the index may have other versions."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the dependencies, and the extras of `longrein`, to the metadata."""
        packages = Path(self.root, "packages")
        address = packages.as_uri()
        agent = tomllib.loads((packages / "longrein/pyproject.toml").read_text(encoding="utf-8"))
        metadata["dependencies"] = [
            f"{name} @ {address}/{name}" for name in ("longrein-context", "longrein")
        ]
        metadata["optional-dependencies"] = {
            name: [f"longrein[{name}] @ {address}/longrein"]
            for name in agent["project"]["optional-dependencies"]
        } | {"fleet": [f"longrein-fleet @ {address}/longrein-fleet"]}
