"""Fixture: a home and a project on disk, and settings loaded from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from longrein.config import load_settings
from longrein.settings_schema import Settings


class ConfigFolders:
    """A home with a settings file and a project with another."""

    def __init__(self, folder: Path) -> None:
        self.home, self.cwd, self.state = (
            folder / "home",
            folder / "home" / "repo",
            folder / "state",
        )
        self.cwd.mkdir(parents=True)

    def user(self, text: str) -> "ConfigFolders":
        return self._write(self.home / ".config/longrein/config.toml", text)

    def project(self, text: str) -> "ConfigFolders":
        return self._write(self.cwd / ".longrein/config.toml", text)

    def _write(self, path: Path, text: str) -> "ConfigFolders":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return self

    def load(
        self, environ: Mapping[str, str] | None = None, *, trusted: bool = True, **flags: Any
    ) -> Settings:
        return load_settings(
            cwd=str(self.cwd),
            home=str(self.home),
            environ=environ or {},
            flags=flags,
            trusted=trusted,
        )


@pytest.fixture
def folders(tmp_path: Path) -> ConfigFolders:
    return ConfigFolders(tmp_path)
