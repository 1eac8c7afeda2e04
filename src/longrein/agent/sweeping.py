"""Whether a command would come by a file that a rule forbids to read: looked at on the disk before it runs."""

from collections.abc import Iterator

from longrein.agent.session import Session
from longrein.permissions import Call, Rules, Sweep, Touched, hidden, sweep_rule, sweeps, takes, visible
from longrein.workspace import Place

LOOK_S = 0.5
"""Longest look at what one command goes through; a tree of 50,000 files takes about as long."""


def places(session: Session, path: str, real: str) -> Iterator[tuple[str, str, Rules, str]]:
    """(path, real path, rules, present folder) of a file: here, and wherever this place stands for another."""
    rules, cwd, above = session.rules, session.state.cwd, session.crew.above
    yield path, real, rules, cwd
    made = Call("Read", {}, "read", (Touched(path, path, real, True, False),))
    for call, others, folder in above.elsewhere(made, cwd) if above is not None else ():
        for touched in call.touched:
            yield touched.path, touched.real, others, folder


def is_hidden(session: Session, path: str, real: str) -> bool:
    """Whether a rule forbids to read a file, here or where this place stands for another."""
    return any(hidden(*place) for place in places(session, path, real))


def swept(session: Session, command: str) -> tuple[str, str]:
    """("deny", why) of a command that goes through a folder with a file that may not be read in it; ("ask", why) where
    there was too much to look at; else ("", "")."""
    cwd = session.state.cwd
    if not any(rule.lstrip().startswith("Read") for _, _, rules, _ in places(session, cwd, cwd) for rule in rules.deny):
        return "", ""
    kind, reason = "", ""
    for sweep in sweeps(command, cwd, session.rules.home):
        for start in _starts(session, sweep):
            path, rule, whole = _first(session, sweep, start)
            if rule:
                return "deny", _denial(start.path, path, rule)
            if not whole:
                below = visible(start.path)
                kind, reason = "ask", f"it reads what lies below {below}, too much to see whether a rule forbids some"
    return kind, reason


def _denial(start: str, path: str, rule: str) -> str:
    return (
        f"this command reads what lies below {visible(start)}, and the user's rule {visible(rule)} forbids "
        f"{visible(path)} there. Use Grep or Glob, which leave it out, or name the files to read"
    )


def _starts(session: Session, sweep: Sweep) -> list[Place]:
    look, cwd = session.crew.workspace.look, session.state.cwd
    there = [place for place in (look(path, cwd) for path in sweep.paths) if place.kind]
    return [place for place in there or (look(path, cwd) for path in sweep.otherwise) if place.kind == "folder"]


def _first(session: Session, sweep: Sweep, start: Place) -> tuple[str, str, bool]:
    """(path, rule) of the first file on the way that may not be read, and whether all was looked at."""
    found: list[tuple[str, str]] = []

    def note(path: str, real: str) -> None:
        rule = next((rule for place in places(session, path, real) if (rule := sweep_rule(*place))), "")
        if rule:
            found.append((path, rule))

    def visit(real: str, is_folder: bool) -> bool:
        name = real.rpartition("/")[2]
        if found or (name.startswith(".") and not sweep.dotted):
            return False
        if takes(sweep, name) and not (is_folder and sweep.names):
            note(start.path.rstrip("/") + real[len(start.real.rstrip("/")) :], real)
        return not found

    if not sweep.names:
        note(start.path, start.real)
    whole = bool(found) or session.crew.workspace.walk(start.real, visit, LOOK_S, ignored=sweep.ignored)
    return (*found[0], True) if found else ("", "", whole)
