"""What every provider demands of a request, checked on the neutral one before any wire has seen it (laws 3 and 6)."""

from longrein.context import Budget, Item, Request, estimate_text
from longrein.events import Document, Image, Text, Thinking, ToolCall, ToolResult, text_of

ITEM_TOKENS = 4
"""What brackets around a block cost, about."""
IMAGE_TOKENS = 1_600
"""What a picture costs at most with the providers we know."""


class RuleBroken(AssertionError):
    """A request that a provider would refuse. It is our own mistake, so it is raised and never a `Failure`."""


def check_rules(request: Request, budget: Budget | None = None) -> None:
    """Raise `RuleBroken` unless `request` keeps what providers demand.

    Each call has exactly one result, placed right after the calls of its reply and in their order; call ids are
    unique; the first block and, unless `budget` accepts a prefill, the last one are the user's side; nothing is
    empty; marks rise and point at blocks. With `budget` the request and a minimal answer also fit its window.
    """
    problem = (
        _paired(request.items)
        or _sides(request.items, prefill=budget is not None and budget.accepts_prefill)
        or _filled(request.items)
        or _marked(request)
    )
    if not problem and budget is not None and count_tokens(request) > budget.window_tokens:
        problem = f"{count_tokens(request)} tokens do not fit a window of {budget.window_tokens}"
    if problem:
        raise RuleBroken(f"{problem}\n{outline(request)}")


def _paired(items: tuple[Item, ...]) -> str:
    waiting: list[str] = []
    known: set[str] = set()
    answering = False
    for at, item in enumerate(items):
        part = item.part
        if isinstance(part, ToolResult):
            if not waiting or waiting[0] != part.call:
                return f"block {at}: a result of {part.call} where {waiting[:1] or 'none'} is due"
            waiting.pop(0)
            answering = bool(waiting)
        elif waiting and (answering or not isinstance(part, ToolCall)):
            return f"block {at}: a {item.kind} stands where the result of {waiting[0]} is due"
        elif isinstance(part, ToolCall):
            if part.id in known or not part.id:
                return f"block {at}: call id {part.id!r} is empty or stands twice"
            known.add(part.id)
            waiting.append(part.id)
    return f"calls without a result: {waiting}" if waiting else ""


def _sides(items: tuple[Item, ...], *, prefill: bool) -> str:
    if not items:
        return "the request holds no block"
    if items[0].mine:
        return "the first block is the assistant's"
    if items[-1].mine and not prefill:
        return "the last block is the assistant's, and this model takes no prefill"
    return ""


def _filled(items: tuple[Item, ...]) -> str:
    for at, item in enumerate(items):
        match item.part:
            case Text("") | ToolCall(name=""):
                return f"block {at}: an empty {item.kind}"
            case Thinking("") if item.block is None:
                return f"block {at}: thinking without text or the provider's bytes"
            case ToolResult() if item.seqs[0] == 0:
                return f"block {at}: the empty slot of {item.part.call} was sent"
            case _:
                pass
    return ""


def _marked(request: Request) -> str:
    marks = request.marks
    if len(marks) > 3 or list(marks) != sorted(frozenset(marks)):
        return f"marks {marks} are more than three or do not rise"
    if marks and not 0 <= marks[0] <= marks[-1] < len(request.items):
        return f"marks {marks} point outside the {len(request.items)} blocks"
    return "" if request.max_output_tokens > 0 else "no room for an answer"


def count_tokens(request: Request) -> int:
    """What the doubles say a request's input is: the engine's own measure, counted anew from the parts."""
    prefix = request.prefix
    tools = "".join(f"{t.name}{t.description}{t.schema}" for t in prefix.tools)
    return estimate_text(prefix.system) + estimate_text(tools) + sum(map(count_item, request.items))


def count_item(item: Item) -> int:
    """Tokens of one block."""
    return _count_part(item.part) + ITEM_TOKENS


def _count_part(part: object) -> int:
    match part:
        case ToolResult(parts=parts):
            return sum(map(_count_part, parts))
        case ToolCall():
            return estimate_text(part.name) + estimate_text(part.received or str(part.arguments))
        case Image():
            return IMAGE_TOKENS
        case Document():
            return estimate_text(text_of((part,)))
        case Text(text) | Thinking(text):
            return estimate_text(text)
        case _:
            return 0


def outline(request: Request) -> str:
    """The blocks of a request, a line for each, for a failed assertion."""
    lines = [f"{request.purpose} request of session {request.session}, {len(request.items)} blocks:"]
    for at, item in enumerate(request.items):
        call = f" {item.part.id}" if isinstance(item.part, ToolCall) else ""
        call = f" {item.part.call} {item.part.status}" if isinstance(item.part, ToolResult) else call
        lines.append(f"  {at} {item.handle or '-'} {item.kind}{call} {item.form} {text_of((item.part,))[:60]!r}")
    return "\n".join(lines)
