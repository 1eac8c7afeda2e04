"""The ledger as lines, best first: each with the entries that prove it, none that an earlier claim could poison."""

from longrein.context.state import State
from longrein.context.summary.records import FileUse, Ledger, Ran, Running, Trouble, Verdict
from longrein.context.summary.verdicts import Counts, clip

COMMAND_CHARS = 160
"""Of a command or call in a line."""
NAMES_SHOWN_MAX = 12
"""Tests named one by one under one verdict."""


def files(state: State) -> list[str]:
    """What was read and changed: changed ones first, each group newest first."""
    uses = sorted(state.ledger.files.items(), key=lambda pair: (pair[1].changes == 0, -pair[1].seq))
    return [f"- {relative(state, path)}: {_use(state, path, use)}" for path, use in uses]


def relative(state: State, path: str) -> str:
    """`path` as seen from the session's first folder, when it lies in it."""
    root = (state.roots[0].rstrip("/") + "/") if state.roots else ""
    return path[len(root) :] if root and path.startswith(root) else path


def _use(state: State, path: str, use: FileUse) -> str:
    who = {"agent": "you", "user": "somebody else", "command": "a command", "subagent": "a subagent"}
    told = []
    if use.changes:
        times = f" {use.changes} times, last" if use.changes > 1 else ""
        told.append(f"changed by {who.get(use.by, use.by)}{times} r{use.changed}")
    if use.reads and use.seq > use.changed:
        told.append(f"read{'' if use.whole else ' in part'} r{use.seq}")
    known = state.files.get(path)
    content = use.hash
    if known is not None and (disk := known.hash if known.disk is None else known.disk) != use.hash:
        told.append(f"since then it has other content r{known.seq}")
        content = disk
    told.append(f"sha256 {content[:12]}" if content else "it is gone")
    return ", ".join(told)


# --- errors, tests, commands -------------------------------------------------------------------------------------


def errors(state: State) -> list[str]:
    """Errors that stand, failing tests, then what was fixed and how; newest first in each group."""
    troubles = sorted(state.ledger.troubles.values(), key=lambda t: (t.fixed > 0, -max(t.last, t.fixed)))
    standing = [_trouble(state, trouble) for trouble in troubles if not trouble.fixed]
    fixed = [_trouble(state, trouble) for trouble in troubles if trouble.fixed]
    return [*standing, *_failing(state.ledger), *fixed, *_mended(state.ledger)]


def _trouble(state: State, trouble: Trouble) -> str:
    name, _, argument = trouble.line.partition(" ")
    line = f"{name} `{clip(argument, COMMAND_CHARS)}`" if argument else name
    times = f" {trouble.times} times, last r{trouble.last}" if trouble.times > 1 else ""
    told = f'- r{trouble.seq} {line} failed{times}: "{trouble.error}"'
    if not trouble.fixed:
        return f"{told}; it has not succeeded since"
    between = ", ".join(f"{relative(state, path)} r{seq}" for seq, path in trouble.between)
    return f"{told}; it succeeded r{trouble.fixed}" + (f", after changes to {between}" if between else "")


def _failing(ledger: Ledger) -> list[str]:
    failing = [(name, test) for name, test in ledger.tests.items() if not test.passed]
    failing.sort(key=lambda pair: -pair[1].seq)
    lines = [f"- test failing: {name} r{test.seq}" + _since(test) for name, test in failing[:NAMES_SHOWN_MAX]]
    if len(failing) > NAMES_SHOWN_MAX:
        lines.append(f"- and {len(failing) - NAMES_SHOWN_MAX} more failing tests, last seen r{failing[-1][1].seq}")
    return lines


def _since(test: Verdict) -> str:
    return f", since r{test.failed}" if test.failed != test.seq else ""


def _mended(ledger: Ledger) -> list[str]:
    mended = [(name, test) for name, test in ledger.tests.items() if test.passed and test.failed]
    mended.sort(key=lambda pair: -pair[1].seq)
    return [f"- test failed r{t.failed}, no longer r{t.seq}: {name}" for name, t in mended[:NAMES_SHOWN_MAX]]


def commands(state: State) -> list[str]:
    """Calls that were carried out, newest first."""
    return [f"- r{ran.seq} {_ran(ran)}" for ran in reversed(state.ledger.ran.values())]


def _ran(ran: Ran) -> str:
    times = f" ({ran.times} times, this is the last)" if ran.times > 1 else ""
    return f"{ran.name} `{clip(ran.argument, COMMAND_CHARS)}`{times} → {_outcome(ran)}"


def _outcome(ran: Ran) -> str:
    if ran.background and ran.status == "running":
        return f"went on in the background as {', '.join(ran.background)}; not over yet"
    told = {
        "done": "done",
        "timed_out": "FAILED, timed out",
        "killed": "killed",
        "lost": "lost, nobody knows how it ended",
        "limit": "FAILED, stopped by a limit",
        "ok": "succeeded",
        "failed": "FAILED",
        "denied": "denied, not run",
        "interrupted": "interrupted; it may have had effects",
        "not_run": "not run",
    }[ran.status]
    if ran.code is not None:
        told = f"exit code {ran.code}" if ran.code == 0 else f"FAILED, exit code {ran.code}"
    if ran.ended:
        told = f"in the background, ended r{ran.ended}: {told}"
    return told + (_counts(ran.tests) if ran.tests is not None else "")


def _counts(counts: Counts) -> str:
    return f"; {counts.runner}: {counts.failed} failed, {counts.passed} passed"


# --- what is decided, and what is open ---------------------------------------------------------------------------


def decisions(state: State) -> list[str]:
    """What the user allowed, denied and answered, newest first; a repeated decision once."""
    newest = {decision.text: decision for decision in state.ledger.decisions}
    ordered = sorted(newest.values(), key=lambda decision: -decision.seqs[-1])
    return [f"- {d.text} ({', '.join(f'r{seq}' for seq in d.seqs)})" for d in ordered]


def pending(state: State) -> list[str]:
    """The todo list, then what still runs."""
    proof = _proof(state.ledger, "todo")
    todos = [f"- [{todo.status}] {todo.content}" for todo in state.todos]
    if todos:
        todos.insert(0, f"The todo list{proof}:")
    runs = [f"- {run.kind} {key} still runs since r{run.seq}: {run.text}" for key, run in state.ledger.running.items()]
    return [*todos, *runs]


def ended(state: State) -> list[str]:
    """Tasks and subagents that are over, newest first."""
    return [_over(run) for run in reversed(state.ledger.over)]


def _over(run: Running) -> str:
    return f"- {run.kind} `{run.text}` (r{run.seq}) ended r{run.ended}: {run.status}"


def standing(state: State) -> list[str]:
    """Mode, folder, instruction files and skills that were told."""
    ledger = state.ledger
    lines = [f"- permission mode: {state.mode}{_proof(ledger, 'mode')}"]
    if state.cwd:
        lines.append(f"- current folder: {state.cwd}{_proof(ledger, 'cwd')}")
    told = sorted(ledger.told.items(), key=lambda pair: -pair[1])
    lines += [f"- told earlier, read it again where it matters: {name} r{seq}" for name, seq in told]
    return lines


def _proof(ledger: Ledger, name: str) -> str:
    seq = ledger.proofs.get(name, 0)
    return f" (r{seq})" if seq else ""


def at_work(state: State) -> list[str]:
    """What code can say of the current work when no model does."""
    doing = [f"- in progress: {todo.content}{_proof(state.ledger, 'todo')}" for todo in state.todos]
    doing = [line for line, todo in zip(doing, state.todos, strict=True) if todo.status == "in_progress"]
    last = [f"- last change: {relative(state, path)} r{seq}" for seq, path in state.ledger.edits[-1:]]
    return [*doing, *commands(state)[:3], *last]
