"""An environment of Harbor without a container: commands run on this machine.

The folders of a container (`/logs`, `/tests`, `/app` …) lie in a folder of the trial; their names
in commands are replaced. Harbor imports this module, in a Python of its own.
"""

import asyncio
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

FOLDERS = re.compile(r"(?<![\w.~*)}\]/-])/(?=(?:logs|tests|app|solution|installed-agent)\b)")


class LocalEnvironment(BaseEnvironment):
    """Commands of a trial as processes of this machine."""

    @staticmethod
    def type() -> str:
        return "local"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    @property
    def root(self) -> Path:
        return self.trial_paths.trial_dir.resolve() / "machine"

    def at(self, path: Any) -> Path:
        return self.root / str(path).lstrip("/")

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        for name in ("app", "home", "logs/agent", "logs/verifier", "logs/artifacts"):
            self.at(name).mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.environment_dir, self.at("app"), dirs_exist_ok=True)

    async def stop(self, delete: bool) -> None:
        pass

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self.at(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self.at(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self.at(target_dir), dirs_exist_ok=True)
        for path in self.at(target_dir).rglob("*.sh"):
            path.write_text(self._here(path.read_text()))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self.at(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self.at(source_dir), target_dir, dirs_exist_ok=True)

    def _here(self, text: str) -> str:
        return FOLDERS.sub(f"{self.root}/", text)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        variables = {**os.environ, "HOME": str(self.at("home")), **(self._merge_env(env) or {})}
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            self._here(command),
            cwd=self.at(cwd or "app"),
            env=variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            os.killpg(process.pid, signal.SIGKILL)  # as the container would end
            raise
        return ExecResult(
            stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0
        )
