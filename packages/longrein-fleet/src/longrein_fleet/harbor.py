"""longrein as an agent of Harbor, the framework of Terminal-Bench 2.

    harbor run -p TASKS -a longrein_fleet.harbor:LongreinAgent -m anthropic/claude-opus-5

Install longrein where Harbor is: `uv tool install harbor --with longrein`. The agent runs in the
container of the task, which confines it, so that nothing is asked there. Its session comes back
with the logs; the trajectory (ATIF), the cost and the tokens are read from it.
"""

import json
import os
import shlex
import uuid
from pathlib import Path
from typing import Annotated, Any

import tomlkit
from harbor.agents.agent_auth_resolution import ModelConnectionSpec
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import BaseInstalledAgent, with_prompt_template
from harbor.agents.options import Cli, InstalledAgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import Field

from longrein import __version__
from longrein.app.session_export import export_file
from longrein_context.events import LongreinError

__all__ = ["LongreinAgent", "LongreinOptions"]

HOME = "/installed-agent"
"""Folder that Harbor makes for agents in the container."""
PATH = f'PATH="{HOME}/venv/bin:$PATH"'
CONFIG = '"${XDG_CONFIG_HOME:-$HOME/.config}/longrein"'
STATE, TRAJECTORY, OUTPUT = "longrein", "trajectory.json", "longrein.jsonl"
"""Left by a run in the folder of logs: longrein's state folder, ATIF, lines of stream-json."""
DEPENDENCIES = ("ca_certificates", "git", "python3", "python_venv")
BLOCKED, LIMIT = 3, 4
"""Exit codes of runs that are graded like any other: nobody was there to approve, a limit."""


class LongreinOptions(InstalledAgentOptions):
    """Options of the agent, given to Harbor as `--ak NAME=VALUE`."""

    package: str = Field(
        default=f"longrein=={__version__}",
        description="What pip installs in the container: a requirement, or a file of this machine.",
    )
    max_turns: Annotated[int | None, Cli("--max-turns")] = Field(
        default=None, description="Requests to the model."
    )
    max_budget_usd: Annotated[float | None, Cli("--max-budget-usd")] = Field(
        default=None, description="Money of the session."
    )
    reasoning_effort: Annotated[str | None, Cli("--effort")] = Field(
        default=None, description="How much the model thinks."
    )


class LongreinAgent(BaseInstalledAgent):
    """longrein, installed in the container of a task. `config` is a config.toml or its data."""

    capabilities = AgentCapabilities(atif=True, native_config=True, reasoning_effort=True)
    options_model = LongreinOptions
    options: LongreinOptions
    MODEL_CONNECTION = ModelConnectionSpec()
    """Keys and addresses of providers go into the container by their usual names."""

    _session = ""

    @staticmethod
    def name() -> str:
        """Return the name of the agent."""
        return "longrein"

    def get_version_command(self) -> str:
        """Return the command that prints `longrein VERSION`."""
        return f"{PATH} longrein --version"

    def parse_version(self, stdout: str) -> str:
        """Return the version in that line."""
        return stdout.rsplit(maxsplit=1)[-1] if stdout.strip() else ""

    async def install(self, environment: BaseEnvironment) -> None:
        """Install longrein with pip, unless the image has it. Python 3.11 is needed."""
        if await self.is_requested_version_installed(environment):
            return
        await self.ensure_system_dependencies(environment, DEPENDENCIES)
        package = self.options.package
        if os.path.isfile(package):
            place = f"{HOME}/{os.path.basename(package)}"
            await environment.upload_file(package, place)
            package = place
        venv = f"{HOME}/venv"
        await self.exec_as_root(
            environment,
            f"python3 -m venv {venv} && {venv}/bin/pip install --quiet {shlex.quote(package)}",
        )

    async def configure(self, environment: BaseEnvironment) -> None:
        """Write the settings that Harbor was given."""
        source = self.config_source
        if source is None:
            return
        text = source.read_text() if isinstance(source, Path) else tomlkit.dumps(source)
        place = f"{HOME}/config.toml"
        await self._upload_config_text(
            environment, content=text, remote_path=place, filename="config.toml"
        )
        await self.exec_as_agent(
            environment, f"mkdir -p {CONFIG} && cp {place} {CONFIG}/config.toml"
        )

    @with_prompt_template  # type: ignore[untyped-decorator]
    async def run(
        self,
        instruction: str,
        environment: BaseEnvironment,
        context: AgentContext,  # noqa: ARG002 - filled in once the logs are here
    ) -> None:
        """Run the instruction in a new session."""
        self._session = str(uuid.uuid4())
        logs = self.environment_logs_dir
        words = ["longrein", "-p", "--output-format", "stream-json", "--session-id", self._session]
        words += ["--permission-mode", "bypassPermissions", "--state-dir", f"{logs / STATE}"]
        words += ["--model", self.model_name] if self.model_name else []
        command = f"{PATH} {shlex.join(words)} {self.build_cli_flags()}".rstrip()
        await self.exec_as_agent(
            environment,
            f"{command} -- {shlex.quote(instruction)} </dev/null >>{logs / OUTPUT} || "
            f"case $? in {BLOCKED}|{LIMIT}) ;; *) exit $?;; esac",
            env={**self.model_connection.env, "LONGREIN_SANDBOX_MODE": "off"},
        )

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Write the trajectory and fill in cost and tokens, also after a timeout.

        Harbor has copied the folder of logs to this machine by now.
        """
        path = self.logs_dir / TRAJECTORY
        path.unlink(missing_ok=True)
        try:
            export_file(str(self.logs_dir / STATE), (), self._session, str(path))
            metrics: dict[str, Any] = json.loads(path.read_bytes())["final_metrics"]
        except (LongreinError, OSError) as error:
            self.logger.error(f"longrein's session cannot be read: {error}")
            return
        context.n_input_tokens = metrics["total_prompt_tokens"]
        context.n_cache_tokens = metrics["total_cached_tokens"]
        context.n_output_tokens = metrics["total_completion_tokens"]
        context.cost_usd = metrics["extra"]["cost_usd_with_subagents"]
        context.metadata = {"session": self._session}
