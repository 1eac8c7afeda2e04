"""The file a scripted model plays: for the demo, for tests, and for trying one's own tools offline.

Settings name it like any provider: `wire = "scripted"`, `base_url = "path/to/script.json"`. The file is one JSON
object:

    {
      "window_tokens": 200000,            // optional: what the model claims to offer …
      "max_output_tokens": 8192,
      "price": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},   // … and to cost
      "turns": [                          // one for each reply, in order
        {"expect": "fix the test",        // must stand in what was said since the last reply, else the request fails
         "thinking": "I look first.",     // all optional: thinking, text, calls
         "text": "I look at the test.",
         "calls": [{"name": "Read", "arguments": {"path": "test_a.py"}}]},
        {"find": {"handle": "Recall\\\\((r\\\\d+)"},  // the last match of the pattern in the request …
         "calls": [{"name": "Recall", "arguments": {"handle": "{{handle}}"}}]},   // … fills {{handle}}
        {"delay_s": 0.5, "pace_s": 0.02,  // wait before the first piece, and before each further one
         "piece_chars": 24,               // length of a piece of text
         "fault": {"status": 529, "message": "Overloaded", "times": 2}},  // fail twice, then play the turn
        {"text": "Done.", "stop": "end"}  // `end`, `calls`, `length`, `refusal`; by default what fits
      ],
      "summaries": [{"text": "…"}],       // answers to requests for a summary; the last one repeats
      "branches": [                       // other turns for other conversations, such as a subagent's:
        {"when": "count the files", "turns": [{"text": "42"}]}   // when this stands in the first thing said
      ]
    }

A fault has `status` and `message` (as a provider would answer), or `kind` (a `FailureKind` such as `stalled` or
`truncated`, then `after` pieces come first), and `times` (default 1). `raw` in a call replaces `arguments` by text as a
model might have written it.
"""

from typing import Any

import msgspec

from longrein.context import Price
from longrein.events import SettingsError
from longrein.models.port import ReadBlob

PIECE_CHARS = 24
"""Length of a piece of streamed text, about six tokens."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure before or inside the answer."""

    status: int = 0
    """HTTP status; 0: `kind` says what happens."""
    message: str = "scripted fault"
    """What the provider says."""
    kind: str = ""
    """A `FailureKind`."""
    after: int = 0
    """Pieces that come before it."""
    times: int = 1
    """Attempts that fail."""
    retry_after_s: float = -1.0
    """What the provider asks us to wait; negative: nothing."""


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call."""

    name: str
    """Tool name."""
    arguments: dict[str, Any] = {}
    """Arguments."""
    raw: str | None = None
    """Text in their place, which may be no JSON."""


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One reply."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    stop: str = ""
    """Why it stops; empty: `calls` if there are any, else `end`."""
    expect: str = ""
    """Must stand in what was said since the last reply."""
    find: dict[str, str] = {}
    """Name -> pattern; the first group of its last match in the request stands for `{{name}}`."""
    delay_s: float = 0.0
    pace_s: float = 0.0
    piece_chars: int = PIECE_CHARS
    fault: Fault | None = None


class Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns of another conversation."""

    when: str
    """Stands in the first thing said in it."""
    turns: tuple[Turn, ...]
    summaries: tuple[Turn, ...] = ()


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    turns: tuple[Turn, ...] = ()
    summaries: tuple[Turn, ...] = ()
    branches: tuple[Branch, ...] = ()
    window_tokens: int = 200_000
    max_output_tokens: int = 8_192
    price: Price | None = None
    cache_ttl_s: float = 300.0
    note: str = ""
    """For people."""


def read_script(data: bytes, name: str) -> Script:
    """The script in `data`. Raises `SettingsError` that names the file and what is wrong in it."""
    try:
        return msgspec.json.decode(data, type=Script)
    except msgspec.DecodeError as error:
        raise SettingsError(f"{name} is no script for a scripted model: {error}") from None


def load_script(path: str, read_file: ReadBlob) -> Script:
    """The script in the file `path`, read by `read_file`."""
    try:
        return read_script(read_file(path), path)
    except OSError as error:
        raise SettingsError(f"the script {path} of a scripted model cannot be read: {error.strerror}") from None
