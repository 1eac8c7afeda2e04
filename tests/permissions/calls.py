"""Builders of calls and verdicts for the permission tests."""

from longrein.permissions import (
    Call,
    PartFacts,
    Rules,
    Touched,
    Verdict,
    glob_base,
    judge,
    read_command,
)
from longrein.permissions.bash_parser import join_path

ROOT, HOME = "/work/repo", "/home/ann"


def bash(command: str, *, confined: bool = False) -> Call:
    read = read_command(command, ROOT, HOME)
    facts = []
    for part, effect in zip(read.script.parts, read.effects, strict=True):
        named = [(word, False) for word in effect.reads] + [(word, True) for word in effect.writes]
        known = [(w, writes) for w, writes in named if not effect.problem or not part.words]
        named_paths = [
            (glob_base(w.text) if w.kind == "glob" else w.text, writes)
            for w, writes in known
            if w.kind != "open"
        ]
        found = [
            touched(join_path(f, path), writes=writes)
            for path, writes in named_paths
            for f in part.folders or ("/?",)
        ]
        unknown = [
            Touched(w.text, "an unknown file", "an unknown file", False, writes)
            for w, writes in known
            if w.kind == "open"
        ]
        facts.append(PartFacts((*found, *unknown)))
    return Call("Bash", {"command": command}, "command", (), "", read, tuple(facts), confined)


def touched(path: str, real: str = "", *, writes: bool = False) -> Touched:
    path = path if path.startswith("/") else f"{ROOT}/{path}"
    real = real or path
    inside = all(p == ROOT or p.startswith(ROOT + "/") for p in (path, real))
    return Touched(path, path, real, inside, writes)


def read(path: str, real: str = "") -> Call:
    return Call("Read", {"file_path": path}, "read", (touched(path, real),), "Read")


def write(path: str, real: str = "", tool: str = "Write") -> Call:
    rule_name = "" if tool.startswith("mcp__") else "Edit"
    return Call(tool, {"file_path": path}, "write", (touched(path, real, writes=True),), rule_name)


def verdict(
    call: Call,
    *,
    allow: str = "",
    ask: str = "",
    deny: str = "",
    mode: str = "default",
    cwd: str = ROOT,
) -> Verdict:
    """Judge `call`. `allow`, `ask` and `deny` hold rules separated by ` + `."""
    given = {
        k: tuple(v.split(" + ")) if v else ()
        for k, v in (("allow", allow), ("ask", ask), ("deny", deny))
    }
    return judge(call, Rules(**given, base=ROOT, home=HOME), mode, cwd)
