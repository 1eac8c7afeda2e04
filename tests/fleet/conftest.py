"""Fixtures of the fleet's tests."""

import pytest

from tests.e2e.harness import CliHarness
from tests.fleet.harness import FleetHarness


@pytest.fixture
def fleet(cli: CliHarness, request: pytest.FixtureRequest) -> FleetHarness:
    """A folder with tasks, and a scripted model; sessions in files, or in `postgresql`."""
    if getattr(request, "param", "files") == "postgresql":
        cli.env["LONGREIN_STORE"] = request.getfixturevalue("postgresql").new_schema()
    return FleetHarness(cli)
