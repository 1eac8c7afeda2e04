"""Classification of provider errors, and the pause before a retry.

The HTTP status decides first, the text only refines it: a 429 is never an overflow, and a 400 is an
overflow only if its text is one of `longrein_context.overflow`.
"""

import re
import time

import msgspec

from longrein.models.model_port import Failure
from longrein_context.events import RETRYABLE, decode_json
from longrein_context.events.escape import one_line, whole_number
from longrein_context.overflow import OVERLOADS, is_overflow, limit_tokens, overflows

# --- Retry pauses ---------------------------------------------------------------------------------
#
# A pure function of the number of failures, the kind of failure and the wait that the provider
# asked for.


FIRST_PAUSE_S = 0.5
"""Pause after the first failure; doubled after each further failure."""
PAUSE_MAX_S = 32.0
"""Longest pause by doubling."""
JITTER_SHARE = 0.25
"""Largest share by which a pause is randomly lengthened, so that many sessions do not retry at
once.
"""
RETRY_AFTER_MAX_S = 60.0
"""Longest pause that a provider can ask for; a longer one is cut to this."""
ATTEMPTS_MAX = 10
"""Attempts at one request. Their pauses add up to at least 127 s, longer than most outages of a
proxy.
"""

REFUSED_ATTEMPTS_MAX = 3
"""Attempts at a server on this machine to which no connection can be made. Their pauses add up to
at most 2 s: a server that is being restarted is met, and one that does not run is told at once.
"""


def pause_s(
    failures_in_row: int,
    kind: str,
    retry_after_s: float = -1.0,
    jitter: float = 0.0,
    attempts_max: int = 0,
) -> float | None:
    """Return the seconds to wait before the next attempt; None: give up.

    `failures_in_row` counts the failure just seen, so it starts at 1. `kind` is a `FailureKind`. A
    negative `retry_after_s` means that the provider asked for no wait. `jitter` is a random number
    from 0 to 1. `attempts_max` is that of the failure; 0: as many as usual.
    """
    if kind not in RETRYABLE or failures_in_row >= (attempts_max or ATTEMPTS_MAX):
        return None
    longer = 1 + JITTER_SHARE * jitter
    if retry_after_s >= 0:
        return min(retry_after_s * longer, RETRY_AFTER_MAX_S)
    return min(FIRST_PAUSE_S * 2.0 ** (max(failures_in_row, 1) - 1), PAUSE_MAX_S) * longer


# --- Addresses ------------------------------------------------------------------------------------


def host_of(url: str) -> str:
    """Return the host of an address, in lower case, without brackets."""
    rest = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return (
        rest.partition("]")[0].lstrip("[")
        if rest.startswith("[")
        else rest.partition(":")[0].lower()
    )


def is_loopback(url: str) -> bool:
    """Return True for an address of this machine."""
    host = host_of(url)
    return host in ("localhost", "::1") or host.startswith("127.")


# --- Classification -------------------------------------------------------------------------------


MESSAGE_CHARS_MAX = 500
"""Longest error text that is kept."""

_BILLING = (
    r"insufficient_quota|credit balance|billing|exceeded your current quota|out of credits|"
    r"insufficient (balance|funds|credits)|payment|spend(ing)? limit|arrears"
)
_OVERLOAD = (
    r"overloaded|at capacity|over capacity|no available (capacity|workers|server)|model "
    r"is (busy|loading)|high demand"
)
_POLICY = (
    r"content_policy|content_filter|content management policy|usage polic|responsible ai|safety "
    r"(system|filter)|"
    r"data_inspection_failed|prohibited_content|moderation"
)


def _search(pattern: str, text: str) -> re.Match[str] | None:
    return re.search(pattern, text, re.IGNORECASE | re.DOTALL)


class RetryHeaders(msgspec.Struct, frozen=True):
    """Response headers that say when to retry, as received; empty when absent."""

    retry_after: str = ""
    retry_after_ms: str = ""
    date: str = ""
    """Time of the server, to which a `Retry-After` date is compared, so that a wrong local clock
    does no harm.
    """


KEY_ADVICE = "check the key (`longrein login` keeps another) or use another provider"


def failure_of_status(
    status: int, body: str, headers: RetryHeaders, wall_s: float, key_advice: str = ""
) -> Failure:
    """Make a failure of an error answer. `wall_s` is the present time in seconds UTC.

    `key_advice` says what to do when the key is refused; '' for the usual advice.
    """
    message = error_text(body) or f"HTTP {status}"
    kind = kind_of(status, body)
    limit = limit_tokens(body) if kind == "overflow" else 0
    message = _with_hint(kind, status, message, key_advice or KEY_ADVICE)
    asked_s = retry_after_s(headers, wall_s)
    if kind in RETRYABLE and asked_s > RETRY_AFTER_MAX_S:
        message += (
            f"; it asks for a wait of {asked_s:,.0f} s, longrein waits "
            f"{RETRY_AFTER_MAX_S:.0f} s at most"
        )
    if kind == "billing" and asked_s > 0:
        message += f"; it has a quota again at {_minute(wall_s + asked_s)}"
    return Failure(kind, message, status, asked_s, limit)


def kind_of(status: int, text: str) -> str:
    """Return the `FailureKind` of an error status and its text."""
    if status == 429:
        return "billing" if _search(_BILLING, text) else "rate"
    if status in OVERLOADS:
        return "overload"
    if status == 402:
        return "billing"
    if status in (401, 403):
        return "refused" if _search(_POLICY, text) else "auth"
    if status >= 500 and _search(_OVERLOAD, text):
        return "overload"
    if status >= 500:
        return "overflow" if overflows(status, text) else "server"
    if status in (408, 409, 425):
        return "server"
    return _kind_of_client_error(status, text)


def _kind_of_client_error(status: int, text: str) -> str:
    if overflows(status, text) or (status == 400 and not error_text(text)):
        # Cerebras and several proxies send no body at all when the prompt is too long
        return "overflow"
    if status == 400 and _search(_BILLING, text):
        return "billing"
    if status == 400 and _search(
        r"api[ _]key (not valid|is invalid|not found)|invalid api[ _]key|API_KEY_INVALID", text
    ):
        return "auth"
    return "refused" if _search(_POLICY, text) else "invalid"


def kind_of_error_event(code: str, text: str) -> str:
    """Return the `FailureKind` of an error inside a stream. `code` is a word or a status."""
    status = whole_number(code)
    if 400 <= status < 600:
        return kind_of(status, text)
    both = f"{code} {text}"
    for pattern, kind in (
        (_BILLING, "billing"),
        (_OVERLOAD, "overload"),
        (r"rate.?limit|too many requests|RESOURCE_EXHAUSTED", "rate"),
        (r"authentication|permission|unauthorized|invalid.api.key", "auth"),
        (_POLICY, "refused"),
    ):
        if _search(pattern, both):
            return kind
    if is_overflow(both):
        return "overflow"
    return (
        "invalid"
        if _search(r"invalid_request|invalid_prompt|INVALID_ARGUMENT|not_found_error", both)
        else "server"
    )


def error_text(body: str) -> str:
    """Extract the readable message of an error body, as one line; the body itself if it is not
    JSON.
    """
    try:
        value = decode_json(body)
    except msgspec.DecodeError:
        return one_line(re.sub(r"<[^>]{0,400}>", " ", body))[:MESSAGE_CHARS_MAX]
    return one_line(_find_message(value))[:MESSAGE_CHARS_MAX]


def _find_message(value: object) -> str:
    if isinstance(value, list):
        return _find_message(value[0]) if value else ""
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    for key in ("error", "message", "detail", "error_description", "msg", "title"):
        inner = value.get(key)
        if inner and (said := _find_message(inner)):
            return _with_raw(said, value)
    return ""


def _with_raw(said: str, value: dict[str, object]) -> str:
    """Append the original provider's error, which OpenRouter nests one level deeper."""
    metadata = value.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return f"{said}: {error_text(raw)}" if isinstance(raw, str) and raw else said


def _with_hint(kind: str, status: int, message: str, key_advice: str) -> str:
    match kind:
        case "auth":
            return f"the provider refused the key (HTTP {status}: {message}); {key_advice}"
        case "billing":
            return (
                f"the provider wants money first (HTTP {status}: {message}); top up the "
                "account or use another model"
            )
        case _:
            return f"{message} (HTTP {status})" if str(status) not in message else message


def retry_after_s(headers: RetryHeaders, wall_s: float) -> float:
    """Return the wait that the provider asks for, in seconds; negative: none. Reads
    milliseconds, seconds and dates.
    """
    if (ms := _number(headers.retry_after_ms)) >= 0:
        return ms / 1000
    if (seconds := _number(headers.retry_after)) >= 0:
        return seconds
    until = _date_s(headers.retry_after)
    if until is None:
        return -1.0
    return max(0.0, until - (_date_s(headers.date) or wall_s))


def _minute(wall_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(wall_s))


def _number(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("s"))
    except ValueError:
        return -1.0
    return value if 0 <= value < 1e9 else -1.0


def _date_s(text: str) -> float | None:
    if not text:
        return None
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
