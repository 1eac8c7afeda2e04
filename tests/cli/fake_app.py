"""Fake app that records its calls."""

from collections.abc import Sequence
from typing import Any

from longrein.options import Options


class FakeApp:
    """Replacement of `longrein.entry_points`: raises `error` if set, else returns `code`."""

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

    def run_command(
        self, name: str, options: Options, words: Sequence[str], /, **flags: Any
    ) -> int:
        return self._called(name, options, list(words), flags)


def given(options: Options) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    return {
        name: value
        for (name, value), default in zip(
            zip(Options.__annotations__, options, strict=True), Options(), strict=True
        )
        if value != default
    }
