"""Fixtures of the tests with MCP servers."""

import pytest

from tests.e2e.harness import CliHarness


@pytest.fixture
def cli(cli: CliHarness) -> CliHarness:
    """A harness whose forks find the SDK of MCP imported: half a second less for each run."""
    cli.extensions = ("mcp",)
    return cli
