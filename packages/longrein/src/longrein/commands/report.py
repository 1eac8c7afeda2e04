"""`longrein report`: write a redacted file for a bug report.

The file says what longrein and this machine are, which settings are set, and what kinds of entries
a session ends with. Texts of the session are in it with `--with-content` only. Known secrets and
what looks like one are replaced everywhere. Nothing is sent.
"""

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import msgspec

from longrein import __version__
from longrein.app.run_context import RunContext, kept_keys
from longrein.app.session_export import write_new_file
from longrein.config import known_secrets
from longrein.frontends.reports.doctor import finding_fields, findings_of
from longrein.frontends.stdio import show
from longrein.steps.human_text import counted, escape_line
from longrein.store import Reader, chosen_session
from longrein_context.events import (
    AskFailed,
    Entry,
    TaskEnded,
    ToolEnded,
    TurnEnded,
    encode_event,
    redactor,
)

ENTRIES = 200
"""Last entries of the session that the file lists by default."""
FILE = "longrein-report.json"
MASK = "(left out)"
PRIVATE = re.compile(r"key|token|secret|passw|credential|header|env|auth|cookie", re.IGNORECASE)
"""Names of settings whose values are left out whatever they look like."""
PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
"""User and password in an address."""


def report(
    run_context: RunContext,
    words: Sequence[str],
    *,
    output: str = "",
    entries: int = ENTRIES,
    with_content: bool = False,
) -> int:
    """Write the report to a new file and say what is in it."""
    session = chosen_session(run_context.state_dir, run_context.cwd, words[0] if words else "")
    clean = _cleaner(run_context)
    fields: dict[str, Any] = {
        "longrein": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "doctor": [finding_fields(one) for one in findings_of(run_context)],
        "settings": _settings(run_context),
    }
    listed: list[dict[str, Any]] = []
    if session:
        with closing(Reader(run_context.state_dir, session)) as reader:
            last, _ = reader.tail()
            listed = [
                _entry_fields(one, with_content=with_content)
                for one in reader.entries(max(0, last - entries))
            ]
        fields["session"] = {"id": session, "entries": last, "last": listed}
    data = msgspec.json.format(msgspec.json.encode(_cleaned(fields, clean)), indent=1)
    path = output or FILE
    write_new_file(lambda file: file.write(data + b"\n"), path)
    content = "with their texts" if with_content else "kinds and sizes, no texts"
    lines = [
        f"{escape_line(path)} ({len(data):,} bytes) holds:",
        "  versions of longrein, Python and the system",
        f"  {counted(len(fields['doctor']), 'finding')} of longrein doctor",
        f"  {counted(len(fields['settings']), 'setting')} of yours",
        f"  the last entries of a session ({len(listed)}): {content}",
        "Known secrets and what looks like one are replaced.",
        "Nothing was sent: read the file first.",
    ]
    show("".join(f"{line}\n" for line in lines))
    return 0


def _cleaner(run_context: RunContext) -> Callable[[str], str]:
    """Return a function that takes secrets, passwords and the home folder out of a text."""
    secrets = (*known_secrets(run_context.environ, run_context.settings), *kept_keys(run_context))
    redact = redactor(secrets, "report", run_context.settings.redact.patterns)
    home = run_context.home.rstrip("/")

    def clean(text: str) -> str:
        text = PASSWORD.sub(f"{MASK}@", redact(text))
        return text.replace(home, "~") if home else text

    return clean


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """Return plain data with every text cleaned, keys too."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): _cleaned(one, clean) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_cleaned(one, clean) for one in value]
    return value


def _settings(run_context: RunContext) -> dict[str, dict[str, Any]]:
    """Return the settings that are set: where, and the value unless its name is private."""
    known = msgspec.to_builtins(run_context.settings, str_keys=True, enc_hook=str)
    found = {}
    for name, where in sorted(run_context.settings.origin.items()):
        value: Any = known
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        found[name] = {"from": where, "value": _masked(name, value)}
    return found


def _masked(name: str, value: Any) -> Any:
    if PRIVATE.search(name.rpartition(".")[2]) and value and not isinstance(value, int | float):
        return MASK
    if isinstance(value, dict):
        return {key: _masked(key, one) for key, one in value.items()}
    return [_masked(name, one) for one in value] if isinstance(value, list) else value


def _entry_fields(entry: Entry, *, with_content: bool) -> dict[str, Any]:
    """Return what the report says of an entry."""
    event, data = entry.event, encode_event(entry.event)
    fields: dict[str, Any] = {"seq": entry.seq, "at": entry.at, "kind": type(event).__name__}
    fields["bytes"] = len(data)
    match event:
        case ToolEnded(name=name, status=status):
            fields |= {"tool": name, "status": status}
        case AskFailed(kind=kind, status=code):
            fields |= {"failure": kind, "status": code}
        case TaskEnded(state=state, code=code):
            fields |= {"state": state, "code": code}
        case TurnEnded(reason=reason):
            fields["reason"] = reason
        case _:
            pass
    if with_content:
        fields["content"] = msgspec.json.decode(data)
    return fields
