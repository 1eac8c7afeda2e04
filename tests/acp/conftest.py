"""The `cli` fixture of the end-to-end tests, without a sandbox where a test does not need one."""

from tests.e2e.conftest import cli

__all__ = ["cli"]
