"""Fold of the event catalogue: notices of events, and what the model was told.

`record_notices` is called before each entry is folded. Notices are world state, so a rewind keeps
them. The last reminders are conversation state, so a rewind forgets them and the same is told
again. Effects of the model's own calls are not recorded.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from longrein_context.events import (
    AnyPart,
    Cleared,
    CwdSet,
    Entry,
    FileChanged,
    FilePut,
    Form,
    HookAnswered,
    ModeSet,
    Opened,
    PrefixSet,
    Reminded,
    SubagentEnded,
    Summarized,
    TaskEnded,
    Text,
    Todo,
    TodoSet,
    ToolCall,
    ToolResult,
    decode_object,
)
from longrein_context.state.command_results import clip
from longrein_context.state.reminder_kinds import KINDS, LastReminder, Notice
from longrein_context.state.request_types import Item, ItemForm, ItemKind
from longrein_context.state.state import UNKNOWN_FILE, CompactionMark, KnownFile, State
from longrein_context.state.token_estimate import ITEM_TOKENS, estimate_part
from longrein_context.state.tool_traits import with_traits
from longrein_context.state.view import count_prefix, make_item, reindex, replace_item

NOTICES_MAX = (
    400  # Limit of notices. Told ones are kept too, because a rewind makes them pending again.
)
UNTOLD_MAX = 5_000  # Limit of pending notices
CUT_EVERY = 64  # Number of notices between two cuts, so that the cost per notice is constant
EVENT_CHARS_MAX = 20_000  # Limit of the text of an external event
SOURCE_CHARS_MAX = 500  # Limit of its source
LOOK_BACK = 64  # Latest notices among which an equal one is searched
DAY_US = 86_400_000_000  # Microseconds of a day


def record_notices(state: State, entry: Entry) -> None:
    """Record the notices of `entry`, which is about to be folded into `state`."""
    state.at = entry.at
    look = _LOOKS.get(type(entry.event))
    if look is not None:
        look(state, entry.seq, entry.event)


def external_event(kind: str, source: str, text: str) -> tuple[Reminded, ...]:
    """Return the `Reminded` for an external event, to be told before the next request; () for an
    unknown kind.
    """
    if kind not in KINDS or not KINDS[kind].external:
        return ()
    if len(text) > EVENT_CHARS_MAX:
        text = f"{text[:EVENT_CHARS_MAX]}\n(cut: {len(text) - EVENT_CHARS_MAX} more characters)"
    return (Reminded(kind, "", source[:SOURCE_CHARS_MAX], text),)


def is_repeated(state: State, event: Reminded) -> bool:
    """Return True if an external event says what already waits to be told, or for a state what
    holds already.
    """
    kind = KINDS[event.kind]
    key = "" if kind.single else event.source
    told = state.reminded.get(event.kind)
    for one in reversed(state.notices[-LOOK_BACK:]):
        if (one.kind, one.key) != (event.kind, key):
            continue
        if (one.line, one.body) == (event.source, event.state):
            return kind.nature == "state" or told is None or one.seq > told.seq
        if kind.nature == "state":
            return False
    return False


def add_notice(state: State, seq: int, kind: str, line: str, **more: Any) -> None:
    """Add a notice. `more`: further fields of `Notice`."""
    state.notices.append(Notice(seq, kind, line, **more))
    if len(state.notices) > NOTICES_MAX and len(state.notices) % CUT_EVERY == 0:
        _cut(state)


def _cut(state: State) -> None:
    """Drop the oldest notices, told ones first."""
    told = {kind: last.seq for kind, last in state.reminded.items()}
    old = [one for one in state.notices if one.seq <= told.get(one.kind, 0)]
    dropped = {id(one) for one in old[: len(state.notices) - NOTICES_MAX]}
    state.notices = [one for one in state.notices if id(one) not in dropped][-UNTOLD_MAX:]


# --- Session and prefix ---------------------------------------------------------------------------


def _opened(state: State, seq: int, event: Opened) -> None:
    """Record the day and the branch, which the static context names."""
    state.reminded["clock"] = LastReminder(str(state.at // DAY_US), seq)
    state.branch = event.branch


def _prefix_set(state: State, seq: int, event: PrefixSet) -> None:
    old = state.prefix
    if old is None or not state.asks:
        return
    if (old.provider, old.model) != (event.provider, event.model):
        add_notice(
            state,
            seq,
            "model_changed",
            f"{event.provider}/{event.model}",
            was=f"{old.provider}/{old.model}",
        )
    was, now = [tool.name for tool in old.tools], [tool.name for tool in event.tools]
    new, gone = [name for name in now if name not in was], [name for name in was if name not in now]
    words = [f"new: {', '.join(new)}"] * bool(new) + [f"gone: {', '.join(gone)}"] * bool(gone)
    if words:
        add_notice(state, seq, "tools_changed", "; ".join(words))


def _mode_set(state: State, seq: int, event: ModeSet) -> None:
    """Record a mode change; the first mode of a session only if it is plan mode."""
    if not state.asks:
        state.notices = [one for one in state.notices if one.kind != "mode"]
    if state.asks or event.mode == "plan":
        add_notice(state, seq, "mode", event.mode, was=state.mode)


def _cwd_set(state: State, seq: int, event: CwdSet) -> None:
    if not state.calls:
        add_notice(state, seq, "cwd_changed", event.cwd, was=state.cwd)


def _todo_set(state: State, seq: int, event: TodoSet) -> None:
    state.todo_asks = state.asks
    if state.calls:
        state.reminded["todo"] = LastReminder(todo_state(event.todos), seq)


def todo_state(todos: tuple[Todo, ...]) -> str:
    """Return a todo list as one line, for comparison."""
    return "; ".join(f"{todo.status} {todo.content}" for todo in todos)


# --- Files ----------------------------------------------------------------------------------------


def _file_changed(state: State, seq: int, event: FileChanged) -> None:
    if event.by == "agent":
        return
    kind = "file_changed"
    instructions = [source.path for source in state.prefix.sources] if state.prefix else []
    if event.path in instructions or event.path in state.told:
        kind = "memory_changed"
    words = ", ".join(
        filter(None, ("" if event.hash else "it is gone", _whose(state, event), event.note))
    )
    whole = bool(event.diff) or not event.hash
    add_notice(
        state, seq, kind, f"{event.path}: {words}", body=event.diff, key=event.path, whole=whole
    )


def _whose(state: State, event: FileChanged) -> str:
    """Name the author of a change, as far as it is known."""
    who = event.who
    match event.by:
        case "command" if who in state.tasks or who == "a command":
            return (
                f"while {who if who in state.tasks else 'your tasks'} ran, by that or by "
                "somebody else"
            )
        case "command":
            return f"while your command ran ({who})" if who else "while your command ran"
        case "subagent":
            name, _, command = who.partition(" ")
            if name == "main":
                agent = "the main agent"
            elif name:
                agent = f"subagent {name}"
            else:
                agent = "a subagent"
            return f"by {agent} {command}".rstrip()
        case _:
            return "by somebody else"


def fold_file_changed(state: State, seq: int, event: FileChanged) -> None:
    """Fold a `FileChanged`. Changes by others are on disk, but unknown to the model until they
    are told.
    """
    known = state.files.get(event.path, UNKNOWN_FILE)
    if event.by == "agent":
        told = known.told_by(state.asks)
        mixed = event.over or event.before not in (
            "",
            told[0],
        )  # it has content that the model had not seen
        now = KnownFile(
            event.hash, True, event.blob, True, seq, told=told if mixed else None, asks=state.asks
        )
    else:
        disk = None if event.hash == known.hash else event.hash
        now = replace(known, seq=seq, disk=disk, disk_blob=event.blob, changes=known.changes + 1)
    state.files[event.path] = now


def _now_known(state: State, seqs: list[int]) -> None:
    """Update the files whose changes the model was shown in full."""
    for one in state.notices:
        seen = state.files.get(one.key) if one.seq in seqs and one.whole else None
        if seen is not None and seen.seq == one.seq and seen.disk is not None:
            state.files[one.key] = replace(
                seen,
                hash=seen.disk,
                blob=seen.disk_blob,
                disk=None,
                disk_blob="",
                told=None,
                asks=0,
            )


def add_rewind_notices(
    state: State, then: Mapping[str, KnownFile], put: tuple[FilePut, ...], seq: int
) -> None:
    """After a rewind restore the known files of `then`, and add notices of later changes that
    are still on disk.
    """
    back = {one.path for one in put if one.done}
    for path, now in list(state.files.items()):
        was = then.get(path)
        if path in back and was is not None:
            state.files[path] = was
        elif was is None:
            del state.files[path]
        elif was.hash != now.hash:
            blob = now.blob if now.disk is None else now.disk_blob
            state.files[path] = KnownFile(
                was.hash, was.whole, was.blob, now.changed, now.seq, now.on_disk, blob
            )
        else:
            continue
        if now.changed and path not in back:
            add_notice(
                state, seq, "went_back", f"{path}: as you left it in what was taken back", key=path
            )


# --- Background work and hooks --------------------------------------------------------------------


def _task_ended(state: State, seq: int, event: TaskEnded) -> None:
    task = state.tasks.get(event.task)
    started = [open_call.call for open_call in state.calls.values() if open_call.started]
    asked_about = any(state.reported_task(call) == event.task for call in started)
    if asked_about or (task is not None and task.ended is not None):
        return
    how = f", exit code {event.code}" if event.code is not None else ""
    cause = f" ({event.cause})" if event.cause else ""
    took = f" after {event.elapsed_ms / 1000:.1f} s" if event.elapsed_ms else ""
    kept = ("what was kept of it" if event.elided_bytes else "whole") + f" in r{seq}, the end below"
    if event.elided_bytes >= event.size_bytes:
        kept = "none of which was kept"
    output = f"; {event.size_bytes} bytes of output, {kept}" if event.size_bytes else ""
    kind = "bg_lost" if event.state == "lost" else "bg_done"
    line = (
        f"{event.task}{_what(state, event.task)}: "
        f"{event.state.replace('_', ' ')}{how}{cause}{took}{output}"
    )
    brief = f"{event.state.replace('_', ' ')}{how}"
    add_notice(state, seq, kind, line, body=event.tail, key=event.task, brief=brief)


def _what(state: State, name: str) -> str:
    """Return the command or type of a background task or subagent, from the ledger."""
    running = state.ledger.running.get(name)
    return f" ({clip(running.text, 160)})" if running else ""


def _child_ended(state: State, seq: int, event: SubagentEnded) -> None:
    """Record the end of a subagent, unless the report is the result of its call."""
    child = state.children.get(event.child)
    told = child is not None and not child.started.background and child.started.call in state.calls
    if told or (child is not None and child.ended is not None):
        return
    kind = "subagent_done" if event.status == "done" else "subagent_failed"
    why = f" ({event.message})" if event.message else ""
    kept = f"; {event.worktree}" if event.worktree else ""
    name = f"a{child.seq}" if child is not None else event.child
    line = f"{name}{_what(state, event.child)}: {event.status}{why}{kept}"
    add_notice(state, seq, kind, line, body=event.report, key=event.child, brief=event.status)


def _hook_answered(state: State, seq: int, event: HookAnswered) -> None:
    """Record feedback of a hook, unless the result of the stopped call has it."""
    is_told = event.decision not in ("deny", "ask", "stop") and event.event not in (
        "PreToolUse",
        "UserPromptSubmit",
    )
    body = "\n".join(filter(None, (event.text if is_told else "", event.context)))
    if body:
        add_notice(state, seq, "hook_feedback", f"{event.event} hook", body=body)


# --- Reminders ------------------------------------------------------------------------------------


def _reminded(state: State, seq: int, event: Reminded) -> None:
    """Record a reminder. With text it was told; without text it is an external event still to be
    told.
    """
    if event.kind == "resumed":
        state.resumed_seq, state.resumed_gap_s = seq, int(event.state or 0)
    if event.kind not in KINDS or not KINDS[event.kind].share:
        return
    if not event.text:
        if event.kind == "branch_changed":
            _branch_changed(state, seq, event.source)
        elif KINDS[event.kind].external:
            key = "" if KINDS[event.kind].single else event.source
            add_notice(state, seq, event.kind, event.source, body=event.state, key=key)
        return
    state.reminded[event.kind] = LastReminder(event.state, seq)
    if event.kind in ("file_changed", "memory_changed", "session_resumed"):
        _now_known(state, [int(word) for word in event.state.split() if word.isdigit()])


def _branch_changed(state: State, seq: int, branch: str) -> None:
    """Record another git branch. A change by an open call is known from its result."""
    was, state.branch = state.branch, branch
    if not state.calls:
        add_notice(state, seq, "branch_changed", branch, was=was)


def _summarized(state: State, seq: int, event: Summarized) -> None:
    """Forget reminders inside the span. The summary itself has the todo list."""
    state.reminded.pop("context_budget", None)
    told = state.reminded.get("mode")
    if told is not None and told.seq <= event.last and state.mode == "plan":
        state.notices = [one for one in state.notices if one.kind != "mode"]
        add_notice(state, seq, "mode", "plan")


_LOOKS: dict[type, Callable[[State, int, Any], None]] = {
    Opened: _opened,
    PrefixSet: _prefix_set,
    ModeSet: _mode_set,
    CwdSet: _cwd_set,
    TodoSet: _todo_set,
    FileChanged: _file_changed,
    TaskEnded: _task_ended,
    SubagentEnded: _child_ended,
    HookAnswered: _hook_answered,
    Reminded: _reminded,
    Summarized: _summarized,
}


# --- Changes of the prefix ------------------------------------------------------------------------
#
# Fold of the breaks: entries that change what has been sent. Handles stay valid, so nothing is
# lost.

UNDO_MAX = 20  # Limit of compactions that can be undone by number; the log keeps all
CROSSINGS = ("watermark", "overflow", "memory", "request")
"""Reasons of compactions forced by size; one that only saves money is no crossing."""


def fold_cleared(state: State, seq: int, event: Cleared) -> None:
    """Show items in their shorter forms; remove folded ones from the view."""
    folded = {form.handle for form in event.forms if form.form == "folded"}
    for form in event.forms:
        if form.handle not in folded:
            change_form(state, seq, form)
    if folded:
        gone = [item for item in state.items if item.handle in folded]
        state.items = [item for item in state.items if item.handle not in folded]
        _recount(state, gone)
    mark_break(state)
    _undoable(state, seq)
    if event.reason in CROSSINGS:
        _settled(state)


def _recount(state: State, gone: Sequence[Item], added: Sequence[Item] = ()) -> None:
    """Update estimate and index after `gone` has left the view for `added`."""
    if len(gone) > len(state.items):  # count what stays
        state.gauge.drop_all()
        count_prefix(state, 1)
        gone, added = (), state.conversation
    for item in gone:
        state.gauge.add_part(item.part, item.tokens, -1)
    for item in added:
        state.gauge.add_part(item.part, item.tokens)
    reindex(state)


def _undoable(state: State, seq: int) -> None:
    state.compactions = (*state.compactions[1 - UNDO_MAX :], seq)


def _settled(state: State) -> None:
    state.settled = (*state.settled[-2:], CompactionMark(state.gauge.raw, state.asks))
    state.settled_seq = state.seq
    state.compact_wanted = None
    state.summary_attempts = 0


def change_form(state: State, seq: int, form: Form) -> None:
    """Give one item another form, by entry `seq`. A handle that is not in the view is ignored."""
    at = state.index.get(form.handle)
    if at is None:
        return
    old = state.items[at]
    shape: ItemForm = "trimmed" if form.form == "trimmed" else "placeholder"
    part = reformed(old.part, form.text, images=shape == "trimmed")
    kind: ItemKind = "text" if old.kind == "thinking" else old.kind
    tokens = estimate_part(part) + ITEM_TOKENS
    item = Item(
        (seq, at, old.seqs[0]),
        kind,
        old.seqs,
        old.handle,
        part,
        shape,
        tokens,
        old.block if kind == "result" else None,
        old.owner,
    )
    replace_item(state, at, item)


def reformed(old: AnyPart, text: str, *, images: bool) -> AnyPart:
    """Return `old` with other content. Changed thinking becomes plain text: a signed block is
    whole or gone.
    """
    match old:
        case ToolResult(call, name, status, parts):
            kept = [
                p
                for p in parts
                if not isinstance(p, Text) and not getattr(p, "media", "").startswith("text/")
            ]
            return ToolResult(call, name, status, (Text(text), *kept) if images else (Text(text),))
        case ToolCall(id, name):
            return ToolCall(id, name, decode_object(text), text)
        case _:
            return Text(text)


def fold_summarized(state: State, seq: int, event: Summarized) -> None:
    """Replace the items of a span by one summary; open slots stay."""
    head, tail = state.items[: state.context_items], state.conversation
    kept = [
        item for item in tail if item.seqs[0] == 0 or not event.first <= item.seqs[0] <= event.last
    ]
    gone = [item for item in tail if item.seqs[0] and event.first <= item.seqs[0] <= event.last]
    summary = [
        make_item(
            seq, 0, "summary", Text(event.text), handle=f"r{seq}", span=(event.first, event.last)
        )
    ]
    if event.reply:
        summary.append(make_item(seq, 1, "ack", Text(event.reply), span=(event.first, event.last)))
    older = [at for at, item in enumerate(kept, 1) if item.seqs[0] and item.seqs[1] < event.first]
    cut = older[-1] if older else 0
    state.items = [*head, *kept[:cut], *summary, *kept[cut:]]
    _recount(state, gone, summary)
    mark_break(state)
    _settled(state)
    state.summary = state.summary_of = None
    state.rewritten_seq = seq
    state.ledger_text = event.ledger
    _undoable(state, seq)
    state.told = ()  # told again when a call touches their folder
    state.failure = None


def fold_prefix_set(state: State, seq: int, event: PrefixSet) -> None:
    """Set system text, tool list or static context. The first prefix is no break."""
    first = state.prefix is None
    if state.prefix is not None and (state.prefix.provider, state.prefix.model) != (
        event.provider,
        event.model,
    ):
        state.window_learned = state.input_learned = state.refused_raw = (
            0  # learned of the previous model
        )
        state.gauge.ceiling, state.gauge.flat = 0, (0, 0, 0)
    count_prefix(state, -1)
    head = state.items[: state.context_items]
    added = [item for item in head if item.key[0] != state.prefix_seq]  # by `add_to_context`
    state.prefix, state.prefix_seq = event, seq
    state.traits = with_traits(state.traits, event)
    texts = [(n, Text(text)) for n, text in enumerate(event.context) if text]
    fresh = [make_item(seq, n, "context", text, handle=f"r{seq}.{n + 1}") for n, text in texts]
    fresh += added
    state.items[: state.context_items] = fresh
    state.context_items = len(fresh)
    count_prefix(state, 1)
    reindex(state)
    if not first:
        mark_break(state)
        state.failures = 0


def add_to_context(state: State, item: Item) -> None:
    """Add `item` to the static context, before the first request; no later prefix removes it."""
    count_prefix(state, -1)
    state.items.insert(state.context_items, item)
    state.context_items += 1
    count_prefix(state, 1)
    reindex(state)


def mark_break(state: State) -> None:
    """Note that the next request does not begin with what was sent before."""
    state.breaks += 1
    state.sent_items = 0
