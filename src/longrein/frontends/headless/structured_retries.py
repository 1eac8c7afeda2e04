"""Asks again when a turn ends without the structured answer that `--json-schema` wants."""

from longrein.agent import SessionPort, UserMessage
from longrein.events import Text
from longrein.frontends.headless.run_state import RunState
from longrein.tools import STRUCTURED_OUTPUT

RETRIES_MAX = 5
"""Messages to the model after an answer without the object, for one prompt."""
AGAIN = (
    f"Your answer counts only as a call of {STRUCTURED_OUTPUT}: call it now with an object "
    "that fits its schema."
)


class StructuredRetries:
    """Retries of one run."""

    def __init__(self, session: SessionPort) -> None:
        self._session = session
        self._count = 0

    async def wants_another(self, run_state: RunState) -> bool:
        """Judge the end of a turn; True if the model was asked again."""
        ended = run_state.ended
        answered = (
            ended is not None and ended.reason in ("done", "blocked") and not ended.message
        )  # no hook stopped it
        missing = answered and run_state.structured is None
        again = missing and self._count < RETRIES_MAX
        if again:
            self._count += 1
            run_state.ended = None
            await self._session.tell(UserMessage((Text(AGAIN),)))
        else:
            self._count = 0
            run_state.unstructured = missing
        return again
