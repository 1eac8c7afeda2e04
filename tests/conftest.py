"""Set-up of every test: asyncio only, no keys from the environment, loopback addresses only,
default signals.
"""

import gc
import importlib
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.costs import TestCosts
from tests.seeds import TIMES

if TYPE_CHECKING:
    from lab.support.postgresql import Server
    from tests.e2e.harness import CliHarness

TESTS = Path(__file__).resolve().parent

for name in [
    n for n in os.environ if n.endswith("_API_KEY") or n.startswith(("LONGREIN_", "XDG_"))
]:
    del os.environ[name]
settings.register_profile(
    "suite",
    max_examples=50 * TIMES,
    derandomize=TIMES == 1,  # nor on luck; more times look further
    deadline=None,  # no verdict depends on the clock
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")
signal.signal(
    signal.SIGHUP, signal.SIG_DFL
)  # `nohup` and many CI runners have them ignored, which longrein respects
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", action="store_true", help="run the rows that fit, by costs.tsv")
    parser.addoption("--write-costs", action="store_true", help="write costs.tsv")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TestCosts(config))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections to anything but loopback addresses, so that no test calls a real model."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = str(address[0]) if isinstance(address, tuple) else ""
        if host and not host.startswith("127.") and host not in ("::1", "localhost"):
            raise AssertionError(f"a test tried to reach {host}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator["CliHarness"]:
    """A harness in a temporary folder; a process that outlives its test fails it."""
    from tests.e2e.harness import CliHarness  # most tests start no process

    harness = CliHarness(tmp_path)
    try:
        yield harness
        assert harness.wait_survivors() == []
    finally:
        harness.clean_up()


@pytest.fixture(scope="session")
def postgresql() -> Iterator["Server"]:
    """A PostgreSQL server; the test is skipped where there is none."""
    from lab.support.postgresql import running_server  # few tests need one

    with running_server() as server:
        yield server


def pytest_collection(session: pytest.Session) -> None:
    """Import the tests of a whole run in another order than the other workers.

    Where nothing is compiled yet each worker then compiles a part of the tests, and finds the rest.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or [Path(one).resolve() for one in session.config.args] != [TESTS]:
        return
    modules = [
        ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        for path in sorted(TESTS.rglob("test_*.py"))
        if (path.parent / "__init__.py").exists()
    ]
    first = len(modules) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for module in modules[first:] + modules[:first]:
        with suppress(Exception, pytest.skip.Exception):  # the collection tells of it
            importlib.import_module(module)


def pytest_collection_finish() -> None:
    """Let no collection of garbage look at what is imported: it stays."""
    gc.collect()
    gc.freeze()
