"""Fixtures of the tests with MCP servers."""

from importlib.util import find_spec

import pytest

from tests.e2e.harness import CliHarness


@pytest.fixture
def cli(cli: CliHarness) -> CliHarness:
    """A harness whose forks find the SDK of MCP imported: half a second less for each run."""
    if find_spec("mcp"):
        cli.extensions = ("mcp",)
    return cli
