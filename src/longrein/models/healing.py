"""What to leave out when a provider refuses a request for one thing in it, so that a session is never stuck with it.

A picture or a piece of reasoning that is refused once would be refused in each later request. The model answers such a
refusal with a failure that may be asked again, and encodes without the thing from then on.
"""

import re

import msgspec

from longrein.models.port import Failure
from longrein.models.wire import Facing

PICTURE_SIDES_PX = (8_000, 2_000, 0)
"""Longest side of a picture that is sent: what one takes, what many in one request may have, none at all."""
_REASONING = (
    r"signature.{0,80}(thinking|thought)|(thinking|thought).{0,80}signature|expected `?(redacted_)?thinking|"
    r"encrypted[_ ]content.{0,80}(verif|decrypt|invalid|not supported|pars)|reasoning.{0,60}without its required"
)
_PICTURE = (
    r"(image|picture|media|vision).{0,120}(exceed|too large|too big|invalid|not support|unsupported|could not|unable|"
    r"corrupt|dimension|pixels)|"
    r"(could not|unable to|not support|unsupported|invalid|cannot|failed to).{0,60}(image|vision)"
)


def eased(facing: Facing, failure: Failure) -> Facing | None:
    """The facing to go on with after `failure`; None when leaving something out would not help."""
    if failure.kind != "invalid" or failure.status not in (400, 404, 413, 415, 422):
        return None
    text = failure.message
    if facing.reasoning and re.search(_REASONING, text, re.IGNORECASE | re.DOTALL):
        return msgspec.structs.replace(facing, reasoning=False, effort="")
    smaller = [side for side in PICTURE_SIDES_PX if side < facing.picture_side_px]
    if smaller and re.search(_PICTURE, text, re.IGNORECASE | re.DOTALL):
        return msgspec.structs.replace(facing, picture_side_px=smaller[0])
    return None


def told(failure: Failure) -> Failure:
    """`failure` as one that may be asked again."""
    said = f"{failure.message}; asked again without what was refused"
    return msgspec.structs.replace(failure, kind="server", message=said)
