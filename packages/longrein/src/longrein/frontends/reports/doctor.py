"""Missing programs, folders, keys and settings, and how to fix them."""

import os
import platform
import shutil
import sys
from collections.abc import Sequence

from longrein.app.run_context import RunContext, chosen_model, found_in, left_out_note
from longrein.config import Plugins, SkillFiles, load_plugins
from longrein.extension_points import BUNDLED, absent_extensions, bundled_extensions
from longrein.frontends.argv import command_problems
from longrein.frontends.localization import translate
from longrein.frontends.provider_keys import ignored_key, key_of
from longrein.models import look_up
from longrein.permissions.hook_protocol import hook_line
from longrein.settings_schema import SandboxOptions
from longrein.steps.human_text import counted, escape_line
from longrein.store import list_sessions
from longrein.tools import catalogue
from longrein.workspace.sandbox import SandboxPolicy, image_problem, network_problem
from longrein.workspace.sandbox.landlock import unenforced
from longrein.workspace.sandbox.rung import find_rung
from longrein_context.events import LongreinError

Finding = tuple[bool, str, str]


def doctor_lines(run_context: RunContext) -> list[str]:
    """Return the lines of `longrein doctor`, for `/doctor`."""
    return finding_lines(findings_of(run_context))


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding; further lines of its text are indented."""
    rows = []
    for well, what, told in findings:
        first, *more = map(translate, told.splitlines() or [""])
        head = f"{translate(_mark(well, what))}  {translate(what):<14} {first}"
        rows += [head, *(f"{'':<9}{one}" for one in more)]
    return rows


def finding_fields(finding: Finding) -> dict[str, str]:
    """Return the JSON form of a finding: its state is `ok`, `note` or `missing`."""
    well, what, told = finding
    return {"state": _mark(well, what).strip().lower(), "name": what, "text": told}


def findings_of(run_context: RunContext) -> list[Finding]:
    """Look at the machine, the folder, the model and the extensions."""
    findings = [
        *_machine(),
        *_sandbox(run_context),
        *_state(run_context.state_dir),
        _trust(run_context),
        *_model(run_context),
    ]
    findings += [*_hooks(run_context), *_found(run_context), *_extensions(), *_plugins(run_context)]
    return [*findings, *_settings(run_context)]


def _mark(well: bool, what: str) -> str:
    if well:
        return "ok     "
    if what in ("settings", "sandbox", "found", "skills", "extension"):
        return "note   "
    return "MISSING"


def _machine() -> list[Finding]:
    found = [
        (
            sys.version_info >= (3, 11),
            "python",
            f"{platform.python_version()} on {platform.system()}",
        )
    ]
    for program, use in (
        ("bash", "commands run in sh without it"),
        ("git", "branch and file completion need it"),
        ("rg", "searches use slower Python code without it; install ripgrep"),
    ):
        path = shutil.which(program)
        found.append((path is not None, program, path or f"not found: {use}"))
    return found


def _sandbox(run_context: RunContext) -> list[Finding]:
    """Report how commands are confined, why not, and what the sandbox cannot stop."""
    options = run_context.settings.sandbox
    if options.mode == "off":
        return [(True, "sandbox", "none (sandbox.mode is off): commands run as you")]
    rung = find_rung(run_context.environ, run_context.roots)
    if problem := image_problem(options, rung):
        return [(False, "sandbox", problem)]
    if rung.confines:
        problem = network_problem(options, rung)
        told = (
            f"{rung.name} ({translate(rung.reason)}), "
            f"{translate(f'no network: {problem}' if problem else _network(options))}"
        )
        missing = unenforced(SandboxPolicy(())) if rung.name == "landlock" else ()
        return [
            (not problem, "sandbox", told),
            *(
                (False, "sandbox", f"landlock does not stop commands that {translate(one)}")
                for one in missing
            ),
        ]
    return [(False, "sandbox", f"none, so commands run as you and ask: {rung.reason}")]


def _network(options: SandboxOptions) -> str:
    if "*" in options.network:
        return "all of the network"
    hosts = [escape_line(entry) for entry in options.network if entry != "ask"]
    if not options.network:
        return "no network"
    return (
        f"network by a proxy: {', '.join(hosts)}; asks for others"
        if hosts
        else "network by a proxy: asks for each host"
    )


def _state(state_dir: str) -> list[Finding]:
    folder = state_dir
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    writable = os.path.isdir(folder) and os.access(folder, os.W_OK)
    count = len(list_sessions(state_dir)) if writable else 0
    told = (
        f"{state_dir}, {translate(counted(count, 'session'))}"
        if writable
        else f"{folder} is no folder to write in: set LONGREIN_STATE_DIR"
    )
    return [(writable, "state folder", told)]


def _trust(run_context: RunContext) -> Finding:
    if run_context.trusted.cover(run_context.cwd):
        return (
            True,
            "trust",
            f"{run_context.cwd} is trusted; `longrein trust --show` lists what it brings",
        )
    return (
        True,
        "trust",
        left_out_note(run_context) or "not trusted; this folder brings nothing that would need it",
    )


def _hooks(run_context: RunContext) -> list[Finding]:
    """List the hooks that run, those that wait to be confirmed, and what is wrong with their
    files.
    """
    running = [
        (True, "hook", f"{hook_line(hook)} ({hook.source})") for hook in run_context.hooks.hooks
    ]
    waiting = [
        (False, "settings", f"not confirmed: {hook_line(hook)} ({hook.source})")
        for hook in run_context.hooks.changed
    ]
    found = [*running, *waiting, *((False, "settings", note) for note in run_context.hooks.notes)]
    return [(well, what, escape_line(told)) for well, what, told in found]


def _found(run_context: RunContext) -> list[Finding]:
    """List the files of other agents, one line each."""
    files = SkillFiles(
        run_context.cwd, run_context.home, run_context.environ, run_context.trusted.cover
    )
    skills = files.all()
    found = [(one.use != "not used", "found", one.line) for one in found_in(run_context)]
    if skills:
        count, told = sum(one.kind == "skill" for one in skills), len(catalogue(skills))
        counts = f"{counted(count, 'skill')}, {counted(len(skills) - count, 'command')} of files"
        found.append(
            (True, "skills", f"{counts}; the catalogue for the model has {told:,} characters")
        )
    return found + [(False, "skills", note) for note in files.notes]


def _model(run_context: RunContext) -> list[Finding]:
    provider = run_context.settings.model.partition("/")[0]
    if provider in _loaded(run_context)[0].providers:
        return [(True, "model", f"{run_context.settings.model} (of a plugin)")]
    try:
        options = chosen_model(run_context)
    except LongreinError as error:
        return [(False, "model", str(error))]
    key = translate(f"key from {options.key_source}" if options.api_key else "no key")
    name = f"{options.provider}/{options.model}"
    findings = [(True, "model", f"{name} ({options.wire}, {options.base_url}, {key})")]
    if ignored := ignored_key(key_of(run_context, options.provider)):
        findings.append((True, "key", ignored))
    price = (options.budget or look_up(options.provider, options.model)).price
    if price is None:
        unknown = (
            f'not known: no money limit; give price_input and price_output under [models."{name}"]'
        )
        findings.append((True, "prices", unknown))
    elif price.note:
        findings.append((True, "prices", price.note))
    return findings


def _loaded(run_context: RunContext) -> tuple[Plugins, str]:
    """Return the plugins, and why they cannot be used."""
    try:
        return load_plugins(run_context.settings.plugins, (), run_context.settings.providers), ""
    except LongreinError as error:
        return Plugins(), str(error)


def _extensions() -> list[Finding]:
    """List the extensions that come with longrein, and what is missing with those deleted here."""
    here = bundled_extensions()
    found = [(True, "extension", ", ".join(here))] if here else []
    for name in absent_extensions():
        commands = " and ".join(f"`longrein {command}`" for command in BUNDLED[name])
        told = f"{name} is not installed here"
        found.append(
            (False, "extension", f"{told}, and so {commands} is not" if commands else told)
        )
    return found


def _plugins(run_context: RunContext) -> list[Finding]:
    loaded, problem = _loaded(run_context)
    found = [(True, "plugin", f"{package}: {part}") for part, package in loaded.sources.items()]
    problems = [problem] if problem else list(command_problems())
    return [*found, *((False, "plugin", one) for one in problems)]


def _settings(run_context: RunContext) -> list[Finding]:
    origins = [(True, key, where) for key, where in sorted(run_context.settings.origin.items())]
    return origins + [(False, "settings", note) for note in run_context.settings.notes]
