"""Fake app that records its calls."""

from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.frontends.argv import Options


class FakeApp:
    """Replacement of `longrein.app`: raises `error` if set, else returns `code`."""

    def __init__(self, code: int = 0, error: BaseException | None = None) -> None:
        self.code, self.error = code, error
        self.calls: list[tuple[Any, ...]] = []

    def _called(self, *call: Any) -> int:
        self.calls.append(call)
        if self.error is not None:
            raise self.error
        return self.code

    def run_print(self, options: Options) -> int:
        return self._called("print", options)

    def run_interactive(self, options: Options) -> int:
        return self._called("interactive", options)

    def run_demo(self, *, keep: bool) -> int:
        return self._called("demo", keep)

    def run_sessions(self, options: Options, json: bool) -> int:
        return self._called("sessions", options, json)

    def run_context(self, options: Options, session: str, json: bool) -> int:
        return self._called("context", options, session, json)

    def run_search(self, options: Options, query: str, session: str, every: bool, json: bool, page: int) -> int:
        return self._called("search", options, query, session, every, json)

    def run_tasks(self, options: Options, words: Sequence[str], tail: int, json: bool) -> int:
        return self._called("tasks", options, list(words), tail, json)

    def run_agents(self, options: Options, session: str, json: bool) -> int:
        return self._called("agents", options, session, json)

    def run_worktrees(self, options: Options, words: Sequence[str], unmerged: bool, json: bool) -> int:
        return self._called("worktrees", options, list(words), unmerged, json)

    def run_simulate(self, options: Options, /, recorded: Sequence[str], **how: str) -> int:
        return self._called("simulate", options, list(recorded), how)

    def run_export(self, options: Options, session: str, format: str, out: str) -> int:  # noqa: A002
        return self._called("export", options, session, format, out)

    def run_doctor(self, options: Options) -> int:
        return self._called("doctor", options)


def given(options: Options) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    return {
        name: getattr(options, name)
        for name, default in msgspec.to_builtins(Options(), builtin_types=(tuple,)).items()
        if getattr(options, name) != (tuple(default) if isinstance(default, list) else default)
    }
