"""A model that plays a script file, for the demo, for tests and for trying tools offline.

Its answer is a function of the request, so a script continues after a kill, a resume and a rewind.
Each part of a reply carries its turn's number in a provider block; the next turn is the one after
the last such number in the view. Replies that were cut have no number and count one each.

Settings name the file like any provider: `wire = "scripted"`, `base_url = "path/to/script.json"`:

    {
      "window_tokens": 200000,
      "max_output_tokens": 8192,
      "price": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
      "turns": [
        {
          "expect": "fix the test",
          "thinking": "I look first.",
          "text": "I look at the test.",
          "calls": [{"name": "Read", "arguments": {"path": "test_a.py"}}]
        },
        {
          "find": {"handle": "Recall.(r[0-9]+)"},
          "calls": [{"name": "Recall", "arguments": {"handle": "{{handle}}"}}]
        },
        {
          "text": "Done.",
          "stop": "end",
          "delay_s": 0.5,
          "pace_s": 0.02,
          "piece_chars": 24,
          "fault": {"status": 529, "message": "Overloaded", "times": 2}
        }
      ],
      "summaries": [{"text": "…"}],
      "branches": [{"when": "count the files", "turns": [{"text": "42"}]}]
    }

A turn is a reply, in order; all of it is optional. `expect` must be in the messages since the last
reply, else the request fails. The last match of a pattern of `find` in the request replaces
`{{name}}`. A fault has `status` and `message`, as a provider would answer, or `kind` (a
`FailureKind` such as `stalled`, sent after `after` pieces); it fails `times` times, then the turn
is played. `raw` in a call replaces `arguments` by text as a model might have written it. Of the
summaries the last one repeats. A branch has the turns of another conversation, such as a
subagent's, whose first message contains `when`.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from longrein.models.failures import RetryHeaders, failure_of_status
from longrein.models.model_port import (
    CallDelta,
    Clock,
    Delta,
    Failure,
    ModelOptions,
    ReadBlob,
    Reply,
    TextDelta,
    ThinkingDelta,
)
from longrein.models.wire_content import ReplyBuilder, encode_json, exact_json
from longrein_context import Budget, Item, Price, Request, arguments_text, estimate_text
from longrein_context.events import (
    AnyPart,
    SettingsError,
    Text,
    Thinking,
    ToolCall,
    Usage,
    text_of,
)

# --- The script file ------------------------------------------------------------------------------


PIECE_CHARS = 24
"""Length of a piece of streamed text in characters, about six tokens."""


class ScriptFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure before or inside the answer."""

    status: int = 0
    """HTTP status; 0: `kind` applies."""
    message: str = "scripted fault"
    """Error text of the provider."""
    kind: str = ""
    """A `FailureKind`."""
    after: int = 0
    """Pieces that are sent before the failure."""
    times: int = 1
    """Number of attempts that fail."""
    retry_after_s: float = -1.0
    """Wait that the provider asks for, in seconds; negative: none."""


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call."""

    name: str
    """Tool name."""
    arguments: dict[str, Any] = {}
    """Arguments."""
    raw: str | None = None
    """Text in place of the arguments, which may be invalid JSON."""

    @property
    def received(self) -> str:
        """Arguments as text."""
        return exact_json(self.arguments).decode() if self.raw is None else self.raw


class ScriptedReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a reply, also in scripts of `longrein.testing.loopback`."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    stop: str = ""
    """Stop reason `end`, `calls`, `length` or `refusal`; empty: `calls` if there are any, else
    `end`.
    """
    delay_s: float = 0.0
    """Seconds before the first piece."""
    pace_s: float = 0.0
    """Seconds before each further piece."""


class ScriptTurn(ScriptedReply, frozen=True, forbid_unknown_fields=True):
    """A reply of a script file."""

    expect: str = ""
    """Text that the messages since the last reply must contain."""
    find: dict[str, str] = {}
    """Name -> pattern; the first group of its last match in the request replaces `{{name}}`."""
    piece_chars: int = PIECE_CHARS
    fault: ScriptFault | None = None


class Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns of another conversation."""

    when: str
    """Text that the first message of that conversation contains."""
    turns: tuple[ScriptTurn, ...]
    summaries: tuple[ScriptTurn, ...] = ()


class ScriptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A script file."""

    turns: tuple[ScriptTurn, ...] = ()
    summaries: tuple[ScriptTurn, ...] = ()
    branches: tuple[Branch, ...] = ()
    window_tokens: int = 200_000
    max_output_tokens: int = 8_192
    price: Price | None = None
    cache_ttl_s: float = 300.0
    note: str = ""
    """Remark for readers of the file."""


def read_script(data: bytes, name: str) -> ScriptFile:
    """Parse the script in `data`. Raises `SettingsError` that names the file and the mistake."""
    try:
        return msgspec.json.decode(data, type=ScriptFile)
    except msgspec.DecodeError as error:
        raise SettingsError(f"{name} is no script for a scripted model: {error}") from None


def load_script(path: str, read_file: ReadBlob) -> ScriptFile:
    """Load the script in the file `path`, read by `read_file`. Raises `SettingsError`."""
    try:
        return read_script(read_file(path), path)
    except OSError as error:
        raise SettingsError(
            f"the script {path} of a scripted model cannot be read: {error.strerror}"
        ) from None


# --- The model ------------------------------------------------------------------------------------


_SUMMARY = ScriptTurn(
    text="What was done so far is in the ledger above; the work goes on from its last line."
)
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


class ScriptFileModel:
    """A `Model` that plays a script without a provider."""

    wire = "scripted"

    def __init__(self, script: ScriptFile, options: ModelOptions, clock: Clock) -> None:
        self.name = f"{options.provider}/{options.model}"
        self.provider = options.provider
        self.model = options.model
        self.budget = options.budget or Budget(
            script.window_tokens, script.max_output_tokens, script.price, script.cache_ttl_s
        )
        self._script = script
        self._clock = clock
        self._failed: dict[tuple[str, int, str], int] = {}
        self._answered: dict[str, int] = {}

    async def aclose(self) -> None:
        """Do nothing."""

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `Model.stream`. A request that the script does not foresee gets a `Failure` of
        kind `invalid`.
        """
        number, turn = self._turn(request)
        problem = _problem(turn, number, request)
        if turn is None or problem:
            yield [Failure("invalid", problem)]
            return
        if turn.delay_s:
            await self._clock.sleep(turn.delay_s)
        fault = self._due(turn.fault, request, number)
        if fault is not None and fault.status:
            headers = RetryHeaders(str(fault.retry_after_s) if fault.retry_after_s >= 0 else "")
            yield [
                failure_of_status(
                    fault.status, encode_json({"error": fault.message}).decode(), headers, 0.0
                )
            ]
            return
        turn = _fill_patterns(turn, request)
        final = _reply(turn, number, request, self.budget, self.model)
        parts = final.parts if isinstance(final, Reply) else final.partial
        pieces = delta_pieces(parts, max(1, turn.piece_chars))
        for piece in pieces if fault is None else pieces[: fault.after]:
            if turn.pace_s:
                await self._clock.sleep(turn.pace_s)
            yield [piece]
        if fault is not None:
            yield [
                Failure(fault.kind or "server", fault.message, retry_after_s=fault.retry_after_s)
            ]
            return
        self._answered[request.session] = number + 1
        yield [final]

    def _turn(self, request: Request) -> tuple[int, ScriptTurn | None]:
        turns, summaries = self._script.turns, self._script.summaries
        first = _first_text(request.items)
        for branch in self._script.branches:
            if branch.when in first:
                turns, summaries = branch.turns, branch.summaries
                break
        if request.purpose == "summary":
            known = summaries or (_SUMMARY,)
            number = sum(item.kind == "summary" for item in request.items)
            return number, known[min(number, len(known) - 1)]
        number = self._position(request, turns)
        return number, turns[number] if number < len(turns) else None

    def _position(self, request: Request, turns: Sequence[ScriptTurn]) -> int:
        cut: dict[int, None] = {}
        for item in reversed(request.items):
            if not item.mine or item.kind == "ack":
                continue
            if item.block is not None and item.block.wire == "scripted":
                cut.pop(item.key[0], None)  # a call that was read from this text
                return int(item.block.raw) + 1 + len(cut)
            cut[item.key[0]] = None
        if not any(item.kind == "summary" for item in request.items):
            return len(cut)
        if request.session in self._answered:
            return self._answered[request.session] + len(cut)
        said = _text_since_reply(request.items)
        return next((n for n, turn in enumerate(turns) if turn.expect and turn.expect in said), 0)

    def _due(self, fault: ScriptFault | None, request: Request, number: int) -> ScriptFault | None:
        key = (request.session, number, request.purpose)
        failed = self._failed.get(key, 0)
        if fault is None or failed >= fault.times:
            return None
        self._failed[key] = failed + 1
        return fault


# --- Matching the request -------------------------------------------------------------------------


def _first_text(items: Sequence[Item]) -> str:
    return next((text_of((item.part,)) for item in items if item.kind in ("user", "summary")), "")


def _text_since_reply(items: Sequence[Item]) -> str:
    """Text on the user's side after the last reply."""
    said: list[str] = []
    for item in reversed(items):
        if item.mine and item.kind != "ack":
            break
        said.append(text_of((item.part,)))
    return "\n".join(reversed(said))


def _problem(turn: ScriptTurn | None, number: int, request: Request) -> str:
    if turn is None:
        return f"the script has no turn {number + 1}: it has ended and the session goes on"
    said = _text_since_reply(request.items)
    if turn.expect and turn.expect not in said:
        return (
            f"turn {number + 1} of the script expects {turn.expect!r}, but what was said is "
            f"{said[-200:]!r}"
        )
    return ""


def _fill_patterns(turn: ScriptTurn, request: Request) -> ScriptTurn:
    """Replace each `{{name}}` in `turn` by the match of its pattern."""
    if not turn.find:
        return turn
    whole = "\n".join(text_of((item.part,)) for item in request.items)
    found = {name: _last_match(pattern, whole) for name, pattern in turn.find.items()}
    return msgspec.convert(_replace_names(msgspec.to_builtins(turn), found), ScriptTurn)


def _last_match(pattern: str, text: str) -> str:
    last = ""
    for match in re.finditer(pattern, text):
        last = match[1] if match.re.groups else match[0]
    return last


def _replace_names(value: object, found: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: found.get(match[1], match[0]), value)
    if isinstance(value, list | tuple):
        return [_replace_names(inner, found) for inner in value]
    if isinstance(value, dict):
        return {
            key: inner if key == "find" else _replace_names(inner, found)
            for key, inner in value.items()
        }
    return value


# --- Writing the answer ---------------------------------------------------------------------------


def delta_pieces(
    parts: Sequence[AnyPart], size: int = PIECE_CHARS, pieces_max: int = 0
) -> list[Delta]:
    """Split `parts` into deltas of `size` characters as a provider streams them; with `pieces_max`
    into so many larger ones of a long part.
    """
    found: list[Delta] = []
    calls = 0
    for part in parts:
        match part:
            case Text(text):
                found += [TextDelta(piece) for piece in split_text(text, size, pieces_max)]
            case Thinking(text):
                found += [ThinkingDelta(piece) for piece in split_text(text, size, pieces_max)]
            case ToolCall():
                written = split_text(arguments_text(part), size * 4, pieces_max)
                found.append(CallDelta(calls, part.name))
                found += [CallDelta(calls, json=piece) for piece in written]
                calls += 1
            case _:
                pass
    return found


def split_text(text: str, size: int = PIECE_CHARS, pieces_max: int = 0) -> list[str]:
    """Split `text` into pieces of `size` characters, or into about `pieces_max` larger ones."""
    if pieces_max:
        size = max(size, len(text) // pieces_max + 1)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _reply(
    turn: ScriptTurn, number: int, request: Request, budget: Budget, model: str
) -> Reply | Failure:
    builder = ReplyBuilder()
    if turn.thinking:
        builder.open("thinking", turn.thinking)
    if turn.text:
        builder.open("text", turn.text)
    for call in turn.calls:
        builder.open("call", call.received, call.name)
    for slot in builder.slots:
        slot.raw = str(number)
    builder.stop, builder.usage = turn.stop, simulated_usage(request, turn, budget)
    return builder.finish("scripted", model)


def simulated_usage(request: Request, turn: ScriptTurn, budget: Budget) -> Usage:
    """Usage with a simulated prompt cache: tokens up to the last request's mark are read, later
    ones are written.
    """
    prefix = request.prefix
    tools = [t.name + t.description + encode_json(t.schema).decode() for t in prefix.tools]
    fixed = sum(map(estimate_text, (prefix.system, *tools)))
    sizes = [item.tokens or estimate_text(text_of((item.part,))) for item in request.items]
    read = 0
    if any(item.mine for item in request.items) and request.marks:
        end = request.marks[-2] if len(request.marks) > 1 else -1
        read = fixed + sum(sizes[: end + 1])
    total = fixed + sum(sizes)
    thought = estimate_text(turn.thinking)
    written = estimate_text(turn.text) + sum(
        estimate_text(str(call.arguments)) + 8 for call in turn.calls
    )
    if total < budget.cache_min_tokens or not request.marks:
        return Usage(total, 0, 0, written + thought, thought)
    tail = fixed + sum(sizes[: request.marks[-1] + 1])
    return Usage(total - tail, read, tail - read, written + thought, thought)
