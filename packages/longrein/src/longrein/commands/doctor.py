"""`longrein doctor`: report missing programs, folders, keys and settings, and how to fix them; with
`--live` ask the model.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from longrein.app.run_context import CLOCK, RunContext, chosen_model
from longrein.config import load_plugins
from longrein.frontends.reports.doctor import finding_fields, finding_lines, findings_of
from longrein.frontends.reports.model_checks import (
    HOPELESS,
    THINKING_EFFORT,
    Check,
    Claims,
    Verdict,
    claims_of,
    cost_line,
    estimate_usd,
    judge,
    make_checks,
    red_square,
    verdict_rows,
)
from longrein.frontends.stdio import say, show
from longrein.models import Delta, Failure, Model, Reply, cost_usd, open_model

NEEDED = ("python", "state folder", "model", "plugin")
"""Findings without which longrein cannot work."""


def doctor(
    run_context: RunContext,
    _words: Sequence[str] = (),
    *,
    live: bool = False,
    as_json: bool = False,
) -> int:
    """Print the findings; with `live` the checks of the model instead. Return 0 when longrein can
    work, 1 when it cannot.
    """
    if live:
        return asyncio.run(check_model(run_context, as_json=as_json))
    findings = findings_of(run_context)
    if as_json:
        show(msgspec.json.encode([finding_fields(one) for one in findings]) + b"\n")
    else:
        show("".join(f"{row}\n" for row in finding_lines(findings)))
    return 0 if all(well for well, what, _ in findings if what in NEEDED) else 1


# --- Checks of the model --------------------------------------------------------------------------


async def check_model(run_context: RunContext, *, as_json: bool) -> int:
    """Say what the checks cost, make them one after the other, and print each. Return 0 if all
    that the model claims works, else 1. Raises `LongreinError` without a model.
    """
    model, effort = _open(run_context)
    price = model.budget.price
    checks, claims = make_checks(model), claims_of(model.budget, effort)
    await model.aclose()
    cost = cost_line(model.name, checks, price)
    if as_json:
        say(cost)
    else:
        show(f"{cost}\n")
    verdicts: list[Verdict] = []
    is_hopeless = False
    for check in checks:
        verdict = Verdict(check.name, "not asked")
        if not is_hopeless:
            verdict, is_hopeless = await _run(run_context, check, claims)
        verdicts.append(verdict)
        if not as_json:
            show("".join(f"{row}\n" for row in verdict_rows(verdict)))
    spent_usd = sum(cost_usd(price, one.usage, model.wire) for one in verdicts)
    if as_json:
        usual, most = estimate_usd(checks, price) if price else (None, None)
        report = {
            "model": model.name,
            "wire": model.wire,
            "estimated_usd": usual,
            "limit_usd": most,
            "spent_usd": spent_usd if price else None,
            "checks": [one.fields for one in verdicts],
        }
        show(msgspec.json.encode(report) + b"\n")
    elif spent_usd:
        show(f"spent: ${spent_usd:.4f}\n")
    return 1 if any(one.state in ("failed", "not asked") for one in verdicts) else 0


def _open(run_context: RunContext, *, thinks: bool = False) -> tuple[Model, str]:
    """Open the model of the settings, and return the effort that they name."""
    plugins = load_plugins(run_context.settings.plugins, (), run_context.settings.providers)
    given = plugins.open_model(run_context.settings.model)
    if given is not None:
        return given, ""
    options = chosen_model(run_context)
    effort = options.effort
    if thinks:
        wanted = THINKING_EFFORT if effort in ("", "none") else effort
        options = msgspec.structs.replace(options, effort=wanted)
    return open_model(options, lambda _blob: red_square(), CLOCK), effort


async def _run(run_context: RunContext, check: Check, claims: Claims) -> tuple[Verdict, bool]:
    """Make a check with a model of its own, since what one is refused it leaves out later. Return
    the verdict, and whether the other checks would fail as well.
    """
    model, _ = _open(run_context, thinks=check.thinks)
    began_s = CLOCK.mono_s()
    final: Delta | None = None
    try:
        async for batch in model.stream(check.request):
            final = batch[-1]
    finally:
        await model.aclose()
    if not isinstance(final, Reply | Failure):
        final = Failure("truncated", "its stream ended without an end")
    verdict = judge(check, final, claims, round((CLOCK.mono_s() - began_s) * 1000))
    return verdict, isinstance(final, Failure) and final.kind in HOPELESS
